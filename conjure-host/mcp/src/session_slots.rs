//! The slots of sessions over HTTP: so many at once, and of one client at most three quarters of what
//! the others leave while one of the known clients has none, so that each still comes in.
//!
//! A slot is taken where a session is made, whatever a request says of itself, and it is free again
//! when nobody holds the session any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::clients::Principal;
use super::session::lock;

/// The slots that sessions take. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct SessionSlots(Arc<SessionLimit>);

#[derive(Debug)]
struct SessionLimit {
    max_sessions: usize,
    /// How many clients are known.
    clients: usize,
    /// How many each client has.
    used_slots: Mutex<HashMap<Principal, usize>>,
}

/// Holds the slot of a session. Dropping it makes room.
#[derive(Debug)]
pub(super) struct SessionSlot {
    slots: SessionSlots,
    principal: Principal,
}

/// Why there is no slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoSlot {
    #[error(
        "the server has as many sessions as it may ({most}): end one, or try again later; whoever \
         runs the server can allow more with `--max-sessions`"
    )]
    Full { most: usize },
    #[error(
        "this client has as many sessions as one client may ({most}): end one that is no longer \
         needed, or wait until one was idle for long; whoever runs the server can allow more with \
         `--max-sessions`"
    )]
    ClientFull { most: usize },
}

impl SessionSlots {
    /// With so many slots that are taken at once, by so many clients.
    pub(super) fn new(most: usize, clients: usize) -> Self {
        Self(Arc::new(SessionLimit {
            max_sessions: most,
            clients,
            used_slots: Mutex::default(),
        }))
    }

    /// A slot for a session of this client.
    ///
    /// # Errors
    /// When the server or the client has as many sessions as it may.
    pub(super) fn take(&self, principal: &Principal) -> Result<SessionSlot, NoSlot> {
        let SessionLimit {
            max_sessions: most,
            clients,
            ..
        } = *self.0;
        let mut taken = lock(&self.0.used_slots);
        let all = taken.values().sum::<usize>();
        if all >= most {
            return Err(NoSlot::Full { most });
        }
        let own = taken.get(principal).copied().unwrap_or_default();
        let left = most.saturating_sub(all - own);
        let here = taken.len() + usize::from(own == 0);
        let most = match here < clients {
            true => left.saturating_sub(left.div_ceil(4)).max(1),
            false => left,
        };
        if own >= most {
            return Err(NoSlot::ClientFull { most });
        }
        taken.insert(principal.clone(), own + 1);
        Ok(SessionSlot {
            slots: self.clone(),
            principal: principal.clone(),
        })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.0.used_slots);
        if let Some(own) = taken.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
        }
        taken.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> Principal {
        Principal(Arc::from(name))
    }

    /// How many slots each of these clients gets, one after the other.
    fn shares(slots: &SessionSlots, clients: &[&str]) -> Vec<usize> {
        let mut held = Vec::new();
        let take = |name: &&str| {
            let before = held.len();
            while let Ok(slot) = slots.take(&client(name)) {
                held.push(slot);
            }
            held.len() - before
        };
        clients.iter().map(take).collect()
    }

    #[test]
    fn a_client_leaves_slots_to_others_where_there_are_any() {
        for (most, clients, expected) in [
            (64, 2, [48, 16]),
            (4, 2, [3, 1]),
            (3, 2, [2, 1]),
            (2, 2, [1, 1]),
            (1, 2, [1, 0]),
            (4, 1, [4, 0]),
            (0, 2, [0, 0]),
        ] {
            let slots = SessionSlots::new(most, clients);
            assert_eq!(shares(&slots, &["me", "you"]), expected, "{most} {clients}");
            // All of them were given back.
            assert_eq!(shares(&slots, &["you", "me"]), expected, "{most} {clients}");
        }
    }

    #[test]
    fn several_clients_together_leave_a_slot_to_the_last() {
        for (most, expected) in [(64, [48, 12, 4]), (16, [12, 3, 1]), (4, [3, 1, 0])] {
            let slots = SessionSlots::new(most, 3);
            assert_eq!(shares(&slots, &["a", "b", "c"]), expected, "{most}");
        }
    }

    #[test]
    fn a_refusal_says_whose_limit_it_is_and_what_to_do() {
        let slots = SessionSlots::new(4, 2);
        let (me, you) = (client("me"), client("you"));
        let held: Vec<_> = (0..3).map(|_| slots.take(&me).unwrap()).collect();
        assert_eq!(slots.take(&me).unwrap_err(), NoSlot::ClientFull { most: 3 });
        let _his = slots.take(&you).unwrap();
        let full = slots.take(&you).unwrap_err();
        assert_eq!(full, NoSlot::Full { most: 4 });
        assert!(full.to_string().contains("end one"), "{full}");
        drop(held);
        assert!(slots.take(&you).is_ok());
    }
}
