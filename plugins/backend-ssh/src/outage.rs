//! Why connections fail without a word: a login more finds the reason, so that one outage has one of
//! them, however often the connection is tried again.

use std::sync::{Mutex, PoisonError};

use crate::reason::with_reason;
use crate::ssh::SshFailure;

/// The time from a first failure to the next connection that is made.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<String>>);

impl Outage {
    /// Gives the failure its reason, which `ask` finds where it is not known yet.
    pub(crate) async fn with_known_reason(
        &self,
        failure: SshFailure,
        ask: impl Future<Output = Option<SshFailure>>,
    ) -> SshFailure {
        if let Some(complaint) = self.reason() {
            return SshFailure {
                stderr: complaint,
                ..failure
            };
        }
        let failure = match ask.await {
            Some(again) => with_reason(failure, &again),
            None => failure,
        };
        self.set_reason(Some(failure.stderr.clone()));
        failure
    }

    /// A connection was made.
    pub(crate) fn end(&self) {
        self.set_reason(None);
    }

    fn reason(&self) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn set_reason(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn the_reason_is_asked_for_once_until_a_connection_is_made() {
        let outage = Outage::default();
        let asked = Cell::new(0);
        let failed = |complaint: &str| SshFailure {
            code: Some(255),
            stderr: complaint.to_owned(),
            ..SshFailure::default()
        };
        let fail = async |again: Option<SshFailure>| {
            let ask = async {
                asked.set(asked.get() + 1);
                again
            };
            outage.with_known_reason(failed(""), ask).await.stderr
        };
        let closed = "Connection closed by 10.0.0.7 port 22";
        for _ in 0..3 {
            assert_eq!(fail(Some(failed(closed))).await, closed);
        }
        assert_eq!(asked.get(), 1);
        outage.end();
        // One that comes in when it is asked tells no reason, and is not asked again at once.
        for _ in 0..3 {
            assert_eq!(fail(None).await, "");
        }
        assert_eq!(asked.get(), 2);
    }
}
