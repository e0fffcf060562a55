//! What a verb fails with: what failed, why, what to do about it, and how the program ends.
//!
//! An error is data until `output::error` prints it, for people or as JSON. With which code each
//! error of the crates below ends the program is in `error/exits.rs`.

mod exits;

use std::error::Error;
use std::fmt::{self, Display};
use std::io;

use super::exit::Exit;

/// Why a verb could not do what it was asked to.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: Exit,
    /// What failed and why, in one sentence.
    message: String,
    /// The error of a crate below that it comes from.
    source: Option<Box<dyn Error + Send + Sync>>,
    /// What the person can do, a sentence each.
    hints: Vec<String>,
    /// Whether the person has read it already.
    pub(crate) is_shown: bool,
}

impl CliError {
    /// An error of the verb's own.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            source: None,
            hints: Vec::new(),
            is_shown: false,
        }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something of the host's own failed.
    pub(crate) fn host(message: impl Into<String>) -> Self {
        Self::new(Exit::Host, message)
    }

    /// An error of a crate below, in its own words.
    pub(crate) fn from_source(exit: Exit, source: impl Error + Send + Sync + 'static) -> Self {
        let message = source.to_string();
        Self {
            source: Some(Box::new(source)),
            ..Self::new(exit, message)
        }
    }

    /// As [`CliError::from_source`], where what failed and what can be done are told apart.
    fn with_remedy(
        exit: Exit,
        (failure, remedy): (String, Option<String>),
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            message: failure,
            hints: remedy.into_iter().collect(),
            ..Self::from_source(exit, source)
        }
    }

    /// An error about a path that the person named: wrong usage where the path is what is wrong.
    pub(crate) fn of_named_path(error: io::Error) -> Self {
        let kind = error.kind();
        match is_about_path(kind) {
            true => Self::usage_from(error).hint_if_exists(kind),
            false => Self::host_from(error),
        }
    }

    /// Says what can be done where the file is there already.
    fn hint_if_exists(self, kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::AlreadyExists => {
                self.hint("nothing is written over: name another file, or remove that one")
            }
            _ => self,
        }
    }

    /// As [`CliError::from_source`], for what the person can put right.
    pub(crate) fn usage_from(source: impl Error + Send + Sync + 'static) -> Self {
        Self::from_source(Exit::Usage, source)
    }

    /// As [`CliError::from_source`], for what failed here.
    pub(crate) fn host_from(source: impl Error + Send + Sync + 'static) -> Self {
        Self::from_source(Exit::Host, source)
    }

    /// Says what was being done.
    pub(crate) fn context(mut self, what: impl Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Says what the person can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Says what the person can do, where that is known.
    fn with_optional_hint(mut self, hint: Option<&'static str>) -> Self {
        self.hints.extend(hint.map(str::to_owned));
        self
    }

    /// Says whether the person has read it already.
    pub(crate) fn with_shown(mut self, shown: bool) -> Self {
        self.is_shown = shown;
        self
    }

    /// What the person can do.
    pub(crate) fn hints(&self) -> &[String] {
        &self.hints
    }
}

/// Whether it is the path that is wrong: nothing is there, something is, or it is of another kind.
fn is_about_path(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
    )
}

impl Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Error for CliError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_where_it_comes_from() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let words = missing.to_string();
        let error = CliError::usage_from(missing)
            .context("the file cannot be read")
            .hint("name another one");
        assert_eq!(
            error.to_string(),
            format!("the file cannot be read: {words}")
        );
        assert_eq!(error.hints(), ["name another one"]);
        let source = error.source().and_then(|source| source.downcast_ref());
        let kind = source.map(std::io::Error::kind);
        assert_eq!(kind, Some(std::io::ErrorKind::NotFound));
    }
}
