//! The sessions that are open at an executor or a backend, so that they can be opened anew where its
//! worker ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::protocol::op;
use serde::Deserialize;

/// The sessions that are open.
#[derive(Debug, Default)]
pub(super) struct SessionOpenings(Mutex<Vec<SessionOpening>>);

/// A request that opened a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionOpening {
    session: Option<String>,
    pub(super) op: String,
    pub(super) json: Vec<u8>,
}

/// What a request says of its session.
#[derive(Deserialize)]
struct RequestSession {
    #[serde(default)]
    session: Option<String>,
}

impl SessionOpenings {
    /// A request was carried out.
    pub(super) fn record(&self, op: &str, json: &[u8]) {
        // Whoever is given other options is opened anew with these.
        let op = match op {
            op::BACKEND_REOPEN => op::BACKEND_OPEN,
            other => other,
        };
        let opens = matches!(op, op::BACKEND_OPEN | op::EXECUTOR_INIT);
        let closes = matches!(op, op::BACKEND_CLOSE | op::EXECUTOR_CLEANUP);
        if !opens && !closes {
            return;
        }
        let Ok(RequestSession { session }) = serde_json::from_slice(json) else {
            return;
        };
        let mut open = self.lock();
        open.retain(|opening| opening.session != session);
        if opens {
            open.push(SessionOpening {
                session,
                op: op.to_owned(),
                json: json.to_vec(),
            });
        }
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> Vec<SessionOpening> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SessionOpening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_kept_from_its_opening_to_its_end() {
        let openings = SessionOpenings::default();
        let sessions = || {
            let all = openings.all().into_iter();
            all.map(|opening| opening.session.unwrap_or_default())
                .collect::<Vec<_>>()
        };
        let json = |session: &str| format!("{{\"session\":\"{session}\",\"body\":{{}}}}");
        openings.record(op::BACKEND_OPEN, json("a").as_bytes());
        openings.record(op::EXECUTOR_INIT, json("b").as_bytes());
        openings.record(op::BACKEND_CALL, json("c").as_bytes());
        openings.record(op::BACKEND_OPEN, b"no JSON");
        assert_eq!(sessions(), ["a", "b"]);
        openings.record(op::BACKEND_OPEN, json("a").as_bytes());
        assert_eq!(sessions(), ["b", "a"]);
        openings.record(op::BACKEND_REOPEN, json("a").as_bytes());
        let newest = openings.all().pop().unwrap();
        assert_eq!(
            (newest.op.as_str(), newest.json),
            (op::BACKEND_OPEN, json("a").into_bytes())
        );
        openings.record(op::EXECUTOR_CLEANUP, json("b").as_bytes());
        openings.record(op::BACKEND_CLOSE, json("unknown").as_bytes());
        assert_eq!(sessions(), ["a"]);
    }
}
