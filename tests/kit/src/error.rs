//! Why a test could not get what it asked the kit for.
//!
//! Tests unwrap these, so each text says enough to find the cause from a log.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the kit could not do what a test asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// A file or directory.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program did not start.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The path of the program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Cargo failed.
    #[error("cargo could not build {package}:\n{stderr}")]
    Build {
        /// The package.
        package: String,
        /// What cargo said.
        stderr: String,
    },
    /// Cargo succeeded and made something else.
    #[error("cargo built {package}, but no {wanted} came of it; check its Cargo.toml")]
    NoArtifact {
        /// The package.
        package: String,
        /// What was wanted.
        wanted: String,
    },
    /// Time passed.
    #[error("waited {limit:?} for {what}; seen so far:\n{seen}")]
    Deadline {
        /// What was awaited.
        what: String,
        /// The limit.
        limit: Duration,
        /// Output so far.
        seen: String,
    },
    /// A program failed.
    #[error("{} failed:\n{said}", program.display())]
    Failed {
        /// The path of the program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// A program ended before what was awaited.
    #[error("the program ended before {what}; it had said:\n{seen}")]
    Ended {
        /// What was awaited.
        what: String,
        /// All of its output.
        seen: String,
    },
}

impl KitError {
    /// For `map_err` on a file operation.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
