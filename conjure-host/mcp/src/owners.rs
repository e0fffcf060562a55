//! Owners of the sessions of the old era: a session belongs to the client whose token opened it.
//!
//! The id of a session lets nobody in by itself. For another client's token there is no such session.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::clients::Principal;

/// The sessions that were opened, by their ids.
#[derive(Default)]
pub(super) struct Owners(Mutex<HashMap<String, Principal>>);

impl Owners {
    /// A session was opened. Those that are over are forgotten.
    pub(super) fn record_owner(
        &self,
        session: &str,
        by: &Principal,
        is_open: impl Fn(&str) -> bool,
    ) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|known, _| is_open(known));
        owners.insert(session.to_owned(), by.clone());
    }

    /// Whether a session is another client's.
    pub(super) fn belongs_to_other(&self, session: &str, client: &Principal) -> bool {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(session).is_some_and(|owner| owner != client)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_session_is_its_openers_until_it_is_over() {
        let client = |name: &str| Principal(Arc::from(name));
        let owners = Owners::default();
        owners.record_owner("s1", &client("a"), |_| true);
        assert!(!owners.belongs_to_other("s1", &client("a")));
        assert!(owners.belongs_to_other("s1", &client("b")));
        assert!(
            !owners.belongs_to_other("s2", &client("b")),
            "it is nobody's"
        );
        owners.record_owner("s2", &client("b"), |session| session != "s1");
        assert!(owners.belongs_to_other("s2", &client("a")));
        assert_eq!(owners.0.lock().unwrap().len(), 1, "the first is over");
    }
}
