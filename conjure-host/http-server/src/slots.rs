//! The slots of connections: so many at once, and who has to go when there are no more.
//!
//! A connection is a stranger's until a request on it has shown a token, and the oldest stranger makes
//! room for the next connection: whoever cannot get in keeps nobody out. One client has at most three
//! quarters of the slots that the others leave, so that another one still comes in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The slots that connections take. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots(Arc<ConnectionLimit>);

#[derive(Debug)]
struct ConnectionLimit {
    limit: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// Open connections, in the order in which they came.
    connections: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    /// Client of the connection, once it is known.
    client: Option<Arc<str>>,
    revocation: CancellationToken,
}

/// Holds the slot of a connection. Dropping it makes room.
#[derive(Debug)]
pub(super) struct ConnectionSlotGuard {
    slots: ConnectionSlots,
    number: u64,
    gone: CancellationToken,
}

/// The connection that a request came over, for those who find out whose it is.
#[derive(Debug, Clone)]
pub struct ConnectionHandle {
    slots: ConnectionSlots,
    number: u64,
}

impl ConnectionSlots {
    /// With so many slots that are taken at once.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(ConnectionLimit {
            limit: most,
            open: Mutex::default(),
        }))
    }

    /// A slot, if need be that of the stranger who has been here longest; nothing when all have
    /// shown who they are.
    pub(super) fn take(&self) -> Option<ConnectionSlotGuard> {
        let mut open = self.open();
        if open.connections.len() >= self.0.limit {
            let mut strangers = open.connections.iter();
            let (number, _) = strangers.find(|(_, open)| open.client.is_none())?;
            let number = *number;
            if let Some(stranger) = open.connections.remove(&number) {
                stranger.revocation.cancel();
            }
        }
        let number = open.next;
        open.next += 1;
        let gone = CancellationToken::new();
        let connection = OpenConnection {
            client: None,
            revocation: gone.clone(),
        };
        open.connections.insert(number, connection);
        Some(ConnectionSlotGuard {
            slots: self.clone(),
            number,
            gone,
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlotGuard {
    /// Handle by which requests name their connection's client.
    pub(super) fn handle(&self) -> ConnectionHandle {
        ConnectionHandle {
            slots: self.slots.clone(),
            number: self.number,
        }
    }

    /// Becomes ready when somebody else has the slot.
    pub(super) async fn until_revoked(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for ConnectionSlotGuard {
    fn drop(&mut self) {
        self.slots.open().connections.remove(&self.number);
    }
}

impl ConnectionHandle {
    /// Says whose it is. False when that client has as many slots as it may; the connection is a
    /// stranger's still then.
    #[must_use]
    pub fn identify(&self, client: &Arc<str>) -> bool {
        let mut open = self.slots.open();
        let is_its = |connection: &OpenConnection| connection.client.as_ref() == Some(client);
        match open.connections.get(&self.number) {
            // Every request but the first.
            Some(connection) if is_its(connection) => return true,
            Some(_) => {}
            // Its slot was taken away a moment ago.
            None => return true,
        }
        let known = open.connections.values();
        let known = known.filter(|one| one.client.is_some());
        let (own, others): (Vec<_>, Vec<_>) = known.partition(|one| is_its(one));
        let left = self.slots.0.limit.saturating_sub(others.len());
        if own.len() >= left - left / 4 {
            return false;
        }
        if let Some(connection) = open.connections.get_mut(&self.number) {
            connection.client = Some(Arc::clone(client));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room_and_nobody_who_is_known_does() {
        let slots = ConnectionSlots::new(2);
        let first = slots.take().unwrap();
        let second = slots.take().unwrap();
        assert!(first.handle().identify(&Arc::from("me")));
        let third = slots.take().unwrap();
        assert!(second.gone.is_cancelled() && !first.gone.is_cancelled());
        // That it goes at last takes away no slot of another one.
        drop(second);
        assert!(third.handle().identify(&Arc::from("you")));
        assert!(slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
    }

    #[test]
    fn a_client_leaves_slots_to_others() {
        let slots = ConnectionSlots::new(4);
        let me = Arc::from("me");
        let open: Vec<_> = (0..4).map(|_| slots.take().unwrap()).collect();
        let known: Vec<bool> = open
            .iter()
            .map(|slot| slot.handle().identify(&me))
            .collect();
        assert_eq!(known, [true, true, true, false]);
        // On a connection of its own it goes on.
        assert!(open.first().unwrap().handle().identify(&me));
        assert!(open.last().unwrap().handle().identify(&Arc::from("you")));
    }

    #[test]
    fn several_clients_together_leave_slots_to_another_one() {
        let slots = ConnectionSlots::new(64);
        let mut open = Vec::new();
        for (client, most) in [("a", 48), ("b", 12), ("c", 3), ("d", 1)] {
            let client = Arc::from(client);
            let mut has = 0;
            while let Some(slot) = slots.take() {
                if !slot.handle().identify(&client) {
                    break;
                }
                has += 1;
                open.push(slot);
            }
            assert_eq!(has, most, "{client}");
        }
        // Whoever had more than its part gets no more of it back.
        open.drain(..10);
        let slot = slots.take().unwrap();
        assert!(!slot.handle().identify(&Arc::from("a")));
        assert!(slot.handle().identify(&Arc::from("e")));
    }
}
