//! Why a relay does not let somebody in, as data: what to do about it is for whoever configured the
//! session, and is never read off the words.

use std::io::{Error, ErrorKind};

/// A refusal of a relay: the reason, and the words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRefusal {
    /// Reason, from which a backend names the remedy.
    pub reason: RefusalReason,
    /// Text with what failed and why.
    pub text: String,
}

/// The reason of a refusal, where there is a remedy for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RefusalReason {
    /// A reason without a remedy, or a relay that gives no reason.
    #[default]
    Other,
    /// Commands cannot work in the directory that was named.
    WorkingDir,
    /// There is no room for what the session needs.
    NoRoom,
}

impl RelayRefusal {
    /// A refusal because commands cannot work in a directory.
    pub(super) fn working_dir(text: String) -> Self {
        Self {
            reason: RefusalReason::WorkingDir,
            text,
        }
    }
}

impl From<Error> for RelayRefusal {
    fn from(error: Error) -> Self {
        let reason = match is_no_room(&error) {
            true => RefusalReason::NoRoom,
            false => RefusalReason::Other,
        };
        Self {
            reason,
            text: error.to_string(),
        }
    }
}

/// Whether a file system, or what a user may have of it, is full.
pub(super) fn is_no_room(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

impl RefusalReason {
    /// The number in a frame. A reason without a remedy has none, and its frame is the one that
    /// executors from before there were reasons understand.
    pub(super) fn number(self) -> Option<u8> {
        match self {
            Self::Other => None,
            Self::WorkingDir => Some(1),
            Self::NoRoom => Some(2),
        }
    }

    /// The reason with a number; one that is not known here is a reason without a remedy.
    pub(super) fn from_number(number: u8) -> Self {
        let known = [Self::WorkingDir, Self::NoRoom];
        let found = known
            .into_iter()
            .find(|known| known.number() == Some(number));
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_the_reason_and_any_other_failure_is_not() {
        let reason = |kind: ErrorKind| RelayRefusal::from(Error::from(kind)).reason;
        assert_eq!(reason(ErrorKind::StorageFull), RefusalReason::NoRoom);
        assert_eq!(reason(ErrorKind::QuotaExceeded), RefusalReason::NoRoom);
        assert_eq!(reason(ErrorKind::NotFound), RefusalReason::Other);
        // Words decide nothing.
        let says_so = Error::other("there is no directory /x to work in: No space left");
        assert_eq!(RelayRefusal::from(says_so).reason, RefusalReason::Other);
    }
}
