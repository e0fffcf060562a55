//! How a request to a server went wrong, and what of it can go on.

use crate::failure::Failure;
use crate::secrets::Secrets;

/// Failure of a request.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The connection is gone, and with it whatever was to come.
    ConnectionLost(String),
    /// The request's way broke after it was sent. The connection goes on.
    NoAnswer(String),
    /// The request could not be sent. The connection goes on.
    Unsent(String),
    /// Anything else.
    Failed(Failure),
}

impl RequestFailure {
    /// Hides secrets in the failure.
    pub(crate) fn redacted(self, secrets: &Secrets) -> Self {
        match self {
            Self::ConnectionLost(why) => Self::ConnectionLost(secrets.redact(why)),
            Self::NoAnswer(why) => Self::NoAnswer(secrets.redact(why)),
            Self::Unsent(why) => Self::Unsent(secrets.redact(why)),
            Self::Failed(failure) => Self::Failed(failure.redacted(secrets)),
        }
    }

    /// Why, for those who cannot do anything about it.
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::ConnectionLost(why) => format!("the connection went: {why}"),
            Self::NoAnswer(why) => format!("no answer came: {why}"),
            Self::Unsent(why) => format!("nothing could be sent: {why}"),
            Self::Failed(failure) => failure.to_string(),
        }
    }
}

impl From<Failure> for RequestFailure {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
