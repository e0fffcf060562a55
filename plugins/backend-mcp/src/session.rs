//! One session of the host: its servers, and which connections its stateful calls ran on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::listing::Listing;
use crate::mentions::Mentions;
use crate::registry::{ConnectionRegistry, ServerEntry};
use crate::server::Server;

/// An open session of the backend.
pub(crate) struct McpSession {
    pub(crate) id: String,
    working_dir: Option<PathBuf>,
    /// In the order of the configuration; a server that cannot be used with the reason.
    pub(crate) servers: Vec<(String, Result<Arc<Server>, String>)>,
    entries: Mutex<HashMap<String, Arc<ServerEntry>>>,
    /// The connections that stateful calls ran on, by server.
    pins: Mutex<HashMap<String, u64>>,
    over: AtomicBool,
    /// Another one goes on with what it had.
    superseded: AtomicBool,
    /// What the host was told last, by server.
    given: Mutex<HashMap<String, Arc<Listing>>>,
    mentions: Mutex<Mentions>,
    /// Somebody waited for its servers already.
    waited: AtomicBool,
    /// Shared by the session's requests when the host has no trace of its own.
    trace: String,
}

impl McpSession {
    pub(crate) fn new(
        id: &str,
        working_dir: Option<&Path>,
        servers: Vec<(String, Result<Arc<Server>, String>)>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            working_dir: working_dir.map(Path::to_path_buf),
            servers,
            entries: Mutex::default(),
            pins: Mutex::default(),
            over: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            given: Mutex::default(),
            mentions: Mutex::default(),
            waited: AtomicBool::new(false),
            trace: trace(id),
        }
    }

    /// Goes on with what a session with other servers had of the servers that are the same here.
    /// Gives back the connections that are of no use any more.
    pub(crate) fn go_on_from(&self, before: &Self) -> Vec<Arc<ServerEntry>> {
        let known: HashMap<_, _> = {
            let mut entries = lock(&before.entries);
            before.superseded.store(true, Ordering::Relaxed);
            entries.drain().collect()
        };
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            known.into_iter().partition(|(name, entry)| {
                let mut here = self.servers.iter();
                here.any(|(own, server)| {
                    own == name
                        && server.as_ref().is_ok_and(|server| {
                            server.hash == entry.server.hash
                                && server.principal == entry.server.principal
                        })
                })
            });
        let pins = lock(&before.pins);
        let kept_pins = pins.iter().filter(|(server, _)| kept.contains_key(*server));
        lock(&self.pins).extend(kept_pins.map(|(server, serial)| (server.clone(), *serial)));
        let given = lock(&before.given);
        let kept_given = given
            .iter()
            .filter(|(server, _)| kept.contains_key(*server));
        lock(&self.given)
            .extend(kept_given.map(|(server, told)| (server.clone(), Arc::clone(told))));
        *lock(&self.mentions) = std::mem::take(&mut *lock(&before.mentions));
        *lock(&self.entries) = kept;
        gone.into_values().collect()
    }

    /// The trace context of requests.
    pub(crate) fn trace(&self) -> &str {
        &self.trace
    }

    /// The entry for a server; a retired one is replaced.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub(crate) async fn entry(
        &self,
        registry: &Arc<ConnectionRegistry>,
        server: &str,
    ) -> Result<Arc<ServerEntry>, String> {
        let known = {
            let entries = lock(&self.entries);
            if self.superseded.load(Ordering::Relaxed) {
                return Err("the servers of the session are configured anew; call again".to_owned());
            }
            entries.get(server).cloned()
        };
        let old = match known {
            Some(entry) if !entry.is_over() => return Ok(entry),
            other => other,
        };
        let found = self.servers.iter().find(|(name, _)| name == server);
        let configured = match found {
            Some((_, Ok(server))) => server,
            Some((_, Err(why))) => return Err(why.clone()),
            None => return Err(format!("there is no MCP server `{server}`")),
        };
        let dir = self.working_dir.as_deref();
        let entry = registry.acquire(configured, &self.id, dir, old.as_deref());
        let is_over = {
            let mut entries = lock(&self.entries);
            let is_over = self.over.load(Ordering::Relaxed);
            if !is_over {
                entries.insert(server.to_owned(), Arc::clone(&entry));
            }
            is_over
        };
        if is_over {
            registry.release(&entry, &self.id).await;
            return Err("the session is closed".to_owned());
        }
        if let Some(old) = old {
            registry.release(&old, &self.id).await;
        }
        Ok(entry)
    }

    /// It is closed: no entry is used any more. Gives back those that were.
    pub(crate) fn end(&self) -> Vec<Arc<ServerEntry>> {
        let mut entries = lock(&self.entries);
        self.over.store(true, Ordering::Relaxed);
        entries.drain().map(|(_, entry)| entry).collect()
    }

    /// Whether this is the first time that its servers are waited for.
    pub(crate) fn waits_first(&self) -> bool {
        !self.waited.swap(true, Ordering::Relaxed)
    }

    /// All entries that the session uses.
    pub(crate) fn entries(&self) -> Vec<Arc<ServerEntry>> {
        lock(&self.entries).values().cloned().collect()
    }

    /// Pins stateful calls to a connection, by its serial number. Gives back the one before if it
    /// is another.
    pub(crate) fn pin(&self, server: &str, serial: u64) -> Option<u64> {
        let before = lock(&self.pins).insert(server.to_owned(), serial);
        before.filter(|before| *before != serial)
    }

    /// The next stateful call begins anew.
    pub(crate) fn unpin(&self, server: &str) {
        lock(&self.pins).remove(server);
    }

    /// Notes the resources that a server's result names.
    pub(crate) fn note_mentions(&self, server: &str, result: &Value) {
        lock(&self.mentions).note(server, result);
    }

    /// The server whose result named a resource.
    pub(crate) fn mentioned(&self, uri: &str) -> Option<String> {
        lock(&self.mentions).server(uri).map(str::to_owned)
    }

    /// Notes what the host is told of a server.
    pub(crate) fn give(&self, server: &str, listing: &Arc<Listing>) {
        lock(&self.given).insert(server.to_owned(), Arc::clone(listing));
    }

    /// Whether the host was given this listing of a server.
    pub(crate) fn has(&self, server: &str, listing: &Arc<Listing>) -> bool {
        let given = lock(&self.given);
        given
            .get(server)
            .is_some_and(|given| Arc::ptr_eq(given, listing) || given == listing)
    }
}

/// A trace context that is the same for all of a session.
fn trace(session: &str) -> String {
    let hash = Sha256::digest(format!("conjure mcp session {session}"));
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let (trace, rest) = hex.split_at(32);
    let span = rest.get(..16).unwrap_or_default();
    format!("00-{trace}-{span}-01")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use conjure_exec_agent::private::PrivatePaths;

    use serde_json::json;

    use super::*;
    use crate::cache::Cache;
    use crate::hub::WatchHub;
    use crate::secrets::Secrets;

    #[tokio::test]
    async fn a_session_that_is_closed_uses_no_entry_and_leaves_none() {
        let config = json!({ "command": "never-started", "start": "lazy" });
        let server = Arc::new(Server {
            name: "s".to_owned(),
            config: serde_json::from_value(config).unwrap(),
            command: None,
            cwd: None,
            args: Vec::new(),
            env: Default::default(),
            url: None,
            headers: HashMap::new(),
            secrets: Secrets::default(),
            auth: None,
            client: None,
            hash: "h".to_owned(),
            principal: "p".to_owned(),
        });
        let registry = ConnectionRegistry::new(
            1,
            Arc::new(WatchHub::default()),
            Cache::default(),
            PrivatePaths::default(),
        );
        let session = McpSession::new("one", None, vec![("s".to_owned(), Ok(server))]);
        let entry = session.entry(&registry, "s").await.unwrap();
        assert!(!entry.is_over());
        for used in session.end() {
            registry.release(&used, "one").await;
        }
        assert!(entry.is_over(), "nobody uses it any more");
        let late = session.entry(&registry, "s").await;
        assert_eq!(late.err().as_deref(), Some("the session is closed"));
        assert!(session.entries().is_empty());
    }
}
