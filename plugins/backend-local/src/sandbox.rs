//! The sandbox of a session's commands: where they write, what they do not see, their own directory for
//! temporary files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use conjure_exec_agent::message::ShellSandbox;
use conjure_exec_agent::sandbox_rules::SandboxRules;

/// The directory for temporary files, in the exchange directory.
const TEMPORARY_DIR: &str = "tmp";

/// The sandbox of a command.
#[derive(Debug)]
pub(crate) struct SessionSandbox {
    write: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    temporary_dir: Option<PathBuf>,
    network: bool,
}

impl SessionSandbox {
    /// The sandbox of a session with these rules.
    pub(crate) fn new(rules: &SandboxRules, exchange_dir: Option<&Path>) -> Self {
        Self {
            hidden: rules.hidden(),
            temporary_dir: exchange_dir.and_then(temporary),
            write: rules.write().to_vec(),
            network: rules.network(),
        }
    }

    /// Where its temporary files go, if there is such a place.
    pub(crate) fn temporary_dir(&self) -> Option<&Path> {
        self.temporary_dir.as_deref()
    }

    /// The sandbox in the agent's type.
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
    let dir = exchange_dir.join(TEMPORARY_DIR);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&dir);
    made.ok().map(|()| dir)
}
