//! The sandbox of a session's commands: where they write, what they do not see, their own directory for
//! temporary files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use conjure_exec_agent::files::CallRoots;
use conjure_exec_agent::home_secrets::home_secrets;
use conjure_exec_agent::message::ShellSandbox;
use conjure_skill_sdk::protocol::Sandbox;
use conjure_skill_sdk::{Error, Result};

/// The directory for temporary files, in the exchange directory.
const TEMPORARY: &str = "tmp";

/// Looks at what a session allows beside its directories.
///
/// # Errors
/// Which path it cannot be.
pub(crate) fn check(sandbox: &Sandbox) -> Result<()> {
    for path in sandbox.write.iter().chain(&sandbox.read) {
        if !path.starts_with('/') {
            return Err(Error::invalid(format!(
                "the session's sandbox names `{path}`; it must be an absolute path"
            )));
        }
    }
    for path in &sandbox.write {
        if let Err(error) = std::fs::metadata(path) {
            return Err(Error::invalid(format!(
                "the session's sandbox lets commands write to `{path}`, which cannot be looked at: \
                 {error}; make it, or leave it out"
            )));
        }
    }
    Ok(())
}

/// The sandbox of a command.
#[derive(Debug)]
pub(crate) struct SessionSandbox {
    write: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    temporary_dir: Option<PathBuf>,
    network: bool,
}

impl SessionSandbox {
    /// Of a session with these rules and directories.
    pub(crate) fn new(rules: &Sandbox, roots: &CallRoots, exchange_dir: Option<&Path>) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let named = |paths: &[String]| {
            let paths = paths.iter().map(|path| real(Path::new(path)));
            paths.collect::<Vec<_>>()
        };
        let mut write = named(&rules.write);
        let mut granted = named(&rules.read);
        granted.extend(write.iter().cloned());
        write.push(real(roots.working_dir()));
        write.extend(exchange_dir.map(real));
        Self {
            hidden: home_secrets(std::env::home_dir().as_deref(), &granted),
            temporary_dir: exchange_dir.and_then(temporary),
            write,
            network: rules.network,
        }
    }

    /// Where its temporary files go, if there is such a place.
    pub(crate) fn temporary_dir(&self) -> Option<&Path> {
        self.temporary_dir.as_deref()
    }

    /// As the agent is told.
    pub(crate) fn into_shell(self) -> ShellSandbox {
        let texts = |paths: Vec<PathBuf>| {
            let texts = paths.iter().map(|path| path.to_string_lossy().into_owned());
            texts.collect()
        };
        ShellSandbox {
            write: texts(self.write),
            hidden: texts(self.hidden),
            network: self.network,
        }
    }
}

/// The session's own, for this user only.
fn temporary(exchange_dir: &Path) -> Option<PathBuf> {
    let dir = exchange_dir.join(TEMPORARY);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&dir);
    made.ok().map(|()| dir)
}
