//! Opens what the command names: a file that may be read, or a URL through the host.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::HttpRequest;
use conjure_skill_sdk::{Cx, Error, Result};

/// A source that is open.
pub(crate) type LogSource = BufReader<Box<dyn Read>>;

/// The size of a read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Opens a source.
pub(crate) fn open(cx: &Cx, name: &str, roots: &[PathBuf]) -> Result<LogSource> {
    let reader: Box<dyn Read> = match name.split_once("://") {
        Some(("http" | "https", _)) => get(cx, name)?,
        Some(("file", path)) => Box::new(file(cx, path, roots)?),
        Some((scheme, _)) => {
            return Err(Error::invalid(format!(
                "`{name}` cannot be fetched: `{scheme}` is neither http nor https nor a file"
            )));
        }
        None => Box::new(file(cx, name, roots)?),
    };
    Ok(BufReader::with_capacity(BUFFER_BYTES, reader))
}

/// Opens a file in the working directory or in one of the configured roots, links resolved.
fn file(cx: &Cx, name: &str, roots: &[PathBuf]) -> Result<File> {
    let working = working_dir(cx)?;
    let cannot = |reason: String| Error::new(format!("`{name}` cannot be read: {reason}"));
    let real = match working.join(name).canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(cannot(format!(
                "there is no such file; relative names start at {}",
                working.display()
            )));
        }
        Err(error) => return Err(cannot(error.to_string())),
    };
    let allowed = std::iter::once(working)
        .chain(roots.iter().map(PathBuf::as_path))
        .filter_map(|root| root.canonicalize().ok())
        .any(|root| real.starts_with(root));
    if !allowed {
        return Err(cannot(outside_error(working, roots, &real)));
    }
    // Looked at first: opening a pipe would wait for somebody to write to it.
    let metadata = real.metadata().map_err(|error| cannot(error.to_string()))?;
    if metadata.is_dir() {
        return Err(cannot(
            "it is a directory; name one of its files".to_owned(),
        ));
    }
    if !metadata.is_file() {
        return Err(cannot("it is no regular file".to_owned()));
    }
    File::open(&real).map_err(|error| cannot(error.to_string()))
}

fn outside_error(working: &Path, roots: &[PathBuf], real: &Path) -> String {
    let mut text = format!(
        "{} is outside of the working directory {}",
        real.display(),
        working.display()
    );
    for root in roots {
        let _ = write!(text, " and of {}", root.display());
    }
    let parent = real.parent().unwrap_or(real);
    let _ = write!(
        text,
        ". To allow it, the person adds {} to `roots` in the configuration of log-fetcher, or \
         copies the file into the working directory",
        parent.display()
    );
    text
}

/// Fetches a URL through the host.
fn get(cx: &Cx, url: &str) -> Result<Box<dyn Read>> {
    let cannot = |reason: &str| Error::new(format!("`{url}` cannot be fetched: {reason}"));
    let request = HttpRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: vec![(
            "accept".to_owned(),
            "application/json, text/plain, */*".to_owned(),
        )],
        ..HttpRequest::default()
    };
    let response = cx.http(&request).map_err(|error| match error.code() {
        code::UNSUPPORTED => cannot(
            "this host sends no requests for plugins (`http.send/1`). Fetch the file by other \
             means into the working directory and name it here",
        ),
        code::CANCELLED => error,
        _ => cannot(error.message()),
    })?;
    let body: Box<dyn Read> = match (response.body, response.body_file) {
        (Some(body), _) => Box::new(Cursor::new(body.into_bytes())),
        (None, Some(file)) => {
            let path = file
                .path
                .ok_or_else(|| cannot("the host gave the answer without a place"))?;
            let opened = File::open(path);
            Box::new(opened.map_err(|error| cannot(&error.to_string()))?)
        }
        (None, None) => Box::new(Cursor::new(Vec::new())),
    };
    if !(200..300).contains(&response.status) {
        let mut beginning = Vec::new();
        let _ = body.take(200).read_to_end(&mut beginning);
        return Err(cannot(&format!(
            "the server answered with status {}: {}",
            response.status,
            String::from_utf8_lossy(&beginning).trim()
        )));
    }
    Ok(body)
}

/// The working directory of the session.
pub(crate) fn working_dir(cx: &Cx) -> Result<&Path> {
    cx.working_dir().ok_or_else(|| {
        Error::invalid("log-fetcher needs the session's working directory, and got none")
    })
}
