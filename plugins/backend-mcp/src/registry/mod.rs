//! The registry: every connection, and the only place where one starts.
//!
//! Entries are told apart by configuration, credentials and era, and by session. Only a server of
//! 2026-07-28 whose tools are all stateless is shared by sessions: there is nothing that one could
//! see of another.

mod connect;
mod entry;
mod state;
mod status;
mod watched_resources;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_exec_agent::private::PrivatePaths;
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::connection::Era;
use crate::hub::WatchHub;
use crate::server::Server;
use crate::stdio::{LoginShell, Supervisors};

pub(crate) use entry::ServerEntry;
pub(crate) use state::{EntryState, NoConnection};
pub(crate) use status::Status;
pub(crate) use watched_resources::{WatchedResources, WatchedUris};

/// Key of a connection: its server, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    config: String,
    principal: String,
    /// Known once it was connected.
    era: Option<Era>,
    /// Absent when sessions share it.
    session: Option<String>,
}

/// All connections of an instance.
pub(crate) struct ConnectionRegistry {
    entries: Mutex<HashMap<Key, Arc<ServerEntry>>>,
    /// The era that servers spoke, by configuration.
    eras: Mutex<HashMap<String, Era>>,
    /// Number of connections that were made.
    connections: AtomicU64,
    starting: Semaphore,
    supervisors: Arc<Supervisors>,
    login_shell: LoginShell,
    hub: Arc<WatchHub>,
    cache: Cache,
}

impl ConnectionRegistry {
    /// An empty one that starts at most `starting` servers at the same time.
    pub(crate) fn new(
        starting: usize,
        hub: Arc<WatchHub>,
        cache: Cache,
        private: PrivatePaths,
    ) -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            eras: Mutex::default(),
            connections: AtomicU64::new(0),
            starting: Semaphore::new(starting),
            supervisors: Supervisors::new(private),
            login_shell: LoginShell::default(),
            hub,
            cache,
        })
    }

    /// The entry that a session uses for a server; made when there is none. In place of `before`
    /// its generations go on from there.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        server: &Arc<Server>,
        session: &str,
        working_dir: Option<&Path>,
        before: Option<&ServerEntry>,
    ) -> Arc<ServerEntry> {
        let mut entries = self.lock();
        let found = entries.iter().find(|(key, _)| {
            key.config == server.hash
                && key.principal == server.principal
                && key.session.as_deref().is_none_or(|own| own == session)
        });
        if let Some((_, entry)) = found {
            entry.add(session);
            return Arc::clone(entry);
        }
        let key = Key {
            config: server.hash.clone(),
            principal: server.principal.clone(),
            era: None,
            session: Some(session.to_owned()),
        };
        let generation = before.map_or(0, ServerEntry::generation);
        let entry = ServerEntry::new(key.clone(), Arc::clone(server), working_dir, generation);
        entry.resolve_workspace(before);
        // The tools of the one before are offered until the new one has listed them itself.
        let known = before.and_then(|before| before.lists().listing);
        if let Some(listing) = known.or_else(|| self.cache.load(server).map(Arc::new)) {
            entry.restore_listing(listing);
        }
        entry.add(session);
        entries.insert(key, Arc::clone(&entry));
        drop(entries);
        entry.run(Arc::clone(self));
        entry
    }

    /// A session uses an entry no more; who was the last ends it. One that was retired has calls
    /// that go on: it ends after them.
    pub(crate) async fn release(&self, entry: &Arc<ServerEntry>, session: &str) {
        let last = {
            let mut entries = self.lock();
            let last = entry.remove(session);
            if last {
                entries.retain(|_, known| !Arc::ptr_eq(known, entry));
            }
            last
        };
        if last && entry.is_retired() {
            let entry = Arc::clone(entry);
            tokio::spawn(async move {
                entry.until_unused().await;
                entry.close().await;
            });
        } else if last {
            entry.close().await;
        }
    }

    /// A number that no other connection has.
    fn serial(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The era that a configuration's server spoke before.
    fn known_era(&self, config: &str) -> Option<Era> {
        let eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        eras.get(config).copied()
    }

    fn set_era(&self, config: &str, era: Option<Era>) {
        let mut eras = self.eras.lock().unwrap_or_else(PoisonError::into_inner);
        match era {
            Some(era) => eras.insert(config.to_owned(), era),
            None => eras.remove(config),
        };
    }

    /// Puts an entry under the key that its era and tools give it. One that must not be shared
    /// (any more) and has several users is retired: each gets one of its own.
    fn insert_entry(&self, entry: &Arc<ServerEntry>, era: Era, may_be_shared: bool) {
        let mut entries = self.lock();
        if !entries.values().any(|known| Arc::ptr_eq(known, entry)) {
            return;
        }
        let mut key = entry.key();
        key.era = Some(era);
        if may_be_shared {
            key.session = None;
            if entries
                .get(&key)
                .is_some_and(|other| !Arc::ptr_eq(other, entry))
            {
                // Somebody was faster; this one stays its session's.
                return;
            }
        } else if key.session.is_none() {
            let users = entry.users();
            let [only] = users.as_slice() else {
                entries.retain(|_, known| !Arc::ptr_eq(known, entry));
                entry.retire();
                return;
            };
            key.session = Some(only.clone());
        }
        entries.retain(|_, known| !Arc::ptr_eq(known, entry));
        entry.set_key(key.clone());
        entries.insert(key, Arc::clone(entry));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<ServerEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
