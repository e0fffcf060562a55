//! The error of author code and of host operations.

use std::fmt;

use conjure_abi::{Fault, code};

/// What author code returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure with a message for the model or for people, and a code of [`conjure_abi::code`].
///
/// Made from any `std::error::Error` by `?`, and from text by [`Error::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: u32,
    message: String,
}

impl Error {
    /// An operation that failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_code(code::FAILED, message)
    }

    /// A failure of a certain kind.
    pub fn with_code(code: u32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A request that is not what it should be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::with_code(code::INVALID, message)
    }

    /// A thing that does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::with_code(code::NOT_FOUND, message)
    }

    /// The call was cancelled.
    pub fn cancelled() -> Self {
        Self::with_code(code::CANCELLED, "the call was cancelled")
    }

    /// One of [`conjure_abi::code`].
    pub fn code(&self) -> u32 {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.contains(&cause_text) {
                message.push_str(": ");
                message.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self::new(message)
    }
}

pub(crate) fn to_fault(error: Error) -> Fault {
    Fault::new(error.code, error.message)
}

pub(crate) fn from_fault(fault: &Fault) -> Error {
    Error::with_code(fault.code, fault.text().into_owned())
}
