//! The file operations of a session on this machine.
//!
//! What may be touched, how it is shown and what is refused is the agent's code, which containers
//! run too. Here is what this machine adds: which directories a call has, and files for the host.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_exec_agent::executor::to_error;
use conjure_exec_agent::files::{self, CallRoots, OpenFile, RootKind, RootedPath};
use conjure_skill_sdk::protocol::{CreateFile, FileRef, StrReplace, View, Viewed, Written};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::session::LocalSession;

/// The largest file of a skill that is copied for the host when it was cut.
const MAX_COPY: u64 = 64 * 1024 * 1024;

pub(crate) fn no_working_dir() -> Error {
    Error::invalid("the local executor needs the session's working directory, and got none")
}

/// The directories of a call: the working directory, the exchange directory, skill folders, as they led
/// when the session began. What is private is in none of them.
pub(crate) fn roots<'a>(
    cx: &Cx,
    session: &LocalSession,
    private: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<CallRoots> {
    let working = cx.working_dir().ok_or_else(no_working_dir)?;
    let skills = session
        .skills()
        .into_iter()
        .map(|skill| PathBuf::from(skill.dir))
        .chain(cx.skill_dir().map(Path::to_owned));
    CallRoots::of(session.skill_dirs(), working, skills, cx.exchange_dir())
        .map(|roots| roots.without(private))
        .map_err(|error| to_error(&error))
}

/// Shows a file or a directory.
pub(crate) fn view(cx: &Cx, roots: &CallRoots, request: &View) -> Result<Viewed> {
    let check = || cx.check().map_err(|_| cancelled());
    let viewed = files::view(roots, &request.path, request.view_range, check);
    let viewed = viewed.map_err(|error| to_error(&error))?;
    Ok(Viewed {
        content: viewed.content,
        directory: viewed.directory,
        total_lines: viewed.total_lines,
        full_content: viewed
            .full_file
            .and_then(|(place, size)| full_file(cx, &place, size)),
    })
}

/// Writes a file, from its text or from a file of the host's.
pub(crate) fn create_file(roots: &CallRoots, request: &CreateFile) -> Result<Written> {
    let made = match (&request.file_text, &request.content) {
        (Some(text), _) => files::create_file(roots, &request.path, |file| {
            file.write_all(text.as_bytes())?;
            Ok(text.len() as u64)
        }),
        (None, Some(content)) => {
            let path = content.path.as_deref().ok_or_else(|| {
                Error::invalid("`content` is a file without a path; it must be fetched first")
            })?;
            // The place is looked at first: it is what the model wrote.
            let writable = roots.resolve_for_writing(&request.path);
            writable.map_err(|error| to_error(&error))?;
            let mut source = regular(roots, path)?;
            files::create_file(roots, &request.path, |file| io::copy(&mut source, file))
        }
        (None, None) => return Err(Error::invalid("`file_text` is missing")),
    };
    made.map(to_written).map_err(|error| to_error(&error))
}

/// Replaces the only occurrence of a passage.
pub(crate) fn str_replace(roots: &CallRoots, request: &StrReplace) -> Result<Written> {
    files::str_replace(roots, &request.path, &request.old_str, &request.new_str)
        .map(to_written)
        .map_err(|error| to_error(&error))
}

#[expect(clippy::needless_pass_by_value, reason = "it is a step of a chain")]
fn to_written(written: files::WrittenFile) -> Written {
    Written {
        file: FileRef {
            size: Some(written.size),
            ..FileRef::at(written.path.to_string_lossy())
        },
        replaced: written.replaced,
    }
}

fn regular(roots: &CallRoots, path: &str) -> Result<File> {
    let opened = roots
        .resolve(path)
        .and_then(|place| files::open_file(&place));
    opened
        .map(|(file, _)| file)
        .map_err(|error| to_error(&error))
}

/// The whole file, as the host can read it. It takes none from a skill's folder, so that is
/// copied.
fn full_file(cx: &Cx, place: &RootedPath, size: u64) -> Option<FileRef> {
    let path = match place.kind() {
        RootKind::Skill => copy(place, size, cx.exchange_dir()?)?,
        RootKind::Working | RootKind::Exchange => place.display_path(),
    };
    Some(FileRef {
        name: place
            .display_path()
            .file_name()?
            .to_string_lossy()
            .into_owned(),
        size: Some(size),
        ..FileRef::at(path.to_str()?)
    })
}

fn copy(place: &RootedPath, size: u64, exchange: &Path) -> Option<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if size > MAX_COPY {
        return None;
    }
    let Ok(OpenFile::File(file, _)) = files::open(place) else {
        return None;
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = exchange.join(format!("view-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).open(&path).ok()?;
    io::copy(&mut file.take(MAX_COPY), &mut target).ok()?;
    Some(path)
}

fn cancelled() -> conjure_exec_agent::error::AgentError {
    conjure_exec_agent::error::AgentError::cancelled()
}
