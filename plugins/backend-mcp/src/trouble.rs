//! How a request to a server went wrong, and what of it can go on.

use crate::failure::Failure;
use crate::secrets::Secrets;

/// Failure of a request.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is gone, and with it whatever was to come.
    Lost(String),
    /// The request's way broke after it was sent. The connection goes on.
    Broken(String),
    /// The request could not be sent. The connection goes on.
    Unsent(String),
    /// Anything else.
    Failed(Failure),
}

impl Trouble {
    /// Hides secrets in the failure.
    pub(crate) fn hiding(self, secrets: &Secrets) -> Self {
        match self {
            Self::Lost(why) => Self::Lost(secrets.hide(why)),
            Self::Broken(why) => Self::Broken(secrets.hide(why)),
            Self::Unsent(why) => Self::Unsent(secrets.hide(why)),
            Self::Failed(failure) => Self::Failed(failure.hiding(secrets)),
        }
    }

    /// Why, for those who cannot do anything about it.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Lost(why) => format!("the connection went: {why}"),
            Self::Broken(why) => format!("no answer came: {why}"),
            Self::Unsent(why) => format!("nothing could be sent: {why}"),
            Self::Failed(failure) => failure.to_string(),
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
