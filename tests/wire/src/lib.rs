//! Reads recorded exchanges with providers, for the tests of this crate and for benchmarks.
//!
//! The recordings are not in the repository: `CONJURE_CASSETTES` names their folder. Each file is a
//! row of YAML documents, one an exchange.

mod recorded;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use recorded::{PROVIDERS, Recorded, recorded};

/// The variable that names the folder of recordings.
pub const VARIABLE: &str = "CONJURE_CASSETTES";

/// One recorded exchange.
#[derive(Debug, Clone, Deserialize)]
pub struct Exchange {
    /// What was sent.
    pub when: Request,
    /// What came back.
    pub then: Reply,
}

/// A recorded request.
#[derive(Debug, Clone, Deserialize)]
pub struct Request {
    /// Such as `/v1/messages`.
    pub path: String,
    /// Such as `POST`.
    pub method: String,
    /// The body as text.
    pub body: Option<String>,
}

/// A recorded reply.
#[derive(Debug, Clone, Deserialize)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers, in order.
    #[serde(default)]
    pub header: Vec<Header>,
    /// The body as text; a whole event stream for one that streamed.
    pub body: Option<String>,
}

/// A recorded header.
#[derive(Debug, Clone, Deserialize)]
pub struct Header {
    /// Name of the header.
    pub name: String,
    /// Value, which YAML may take for something else than a text.
    pub value: serde_json::Value,
}

/// A file of recordings.
#[derive(Debug, Clone)]
pub struct Cassette {
    /// Path of the file below the wire's folder.
    pub name: String,
    /// Exchanges in order.
    pub exchanges: Vec<Exchange>,
}

/// Why a file cannot be read.
#[derive(Debug)]
pub struct CassetteError {
    path: PathBuf,
    reason: String,
}

impl fmt::Display for CassetteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for CassetteError {}

impl Exchange {
    /// The body that was sent, as JSON; null when it is none.
    pub fn request(&self) -> serde_json::Value {
        let body = self.when.body.as_deref().unwrap_or_default();
        serde_json::from_str(body).unwrap_or_default()
    }

    /// The body that came back.
    pub fn reply(&self) -> &str {
        self.then.body.as_deref().unwrap_or_default()
    }
}

impl Reply {
    /// Whether the body is an event stream.
    pub fn is_stream(&self) -> bool {
        self.header.iter().any(|header| {
            header.name.eq_ignore_ascii_case("content-type")
                && header
                    .value
                    .as_str()
                    .is_some_and(|value| value.starts_with("text/event-stream"))
        })
    }
}

/// All recordings below `folder`, sorted by name.
///
/// # Errors
/// [`CassetteError`] names the file that cannot be read.
pub fn cassettes(folder: &Path) -> Result<Vec<Cassette>, CassetteError> {
    let mut files = Vec::new();
    walk(folder, &mut files)?;
    files.sort();
    files.iter().map(|path| read(folder, path)).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CassetteError> {
    let failed = |error: std::io::Error| CassetteError {
        path: folder.to_owned(),
        reason: error.to_string(),
    };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn read(folder: &Path, path: &Path) -> Result<Cassette, CassetteError> {
    let failed = |reason: String| CassetteError {
        path: path.to_owned(),
        reason,
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let exchanges =
        serde_saphyr::from_multiple(&text).map_err(|error| failed(error.to_string()))?;
    let name = path.strip_prefix(folder).unwrap_or(path);
    Ok(Cassette {
        name: name.display().to_string(),
        exchanges,
    })
}
