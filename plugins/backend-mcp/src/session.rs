//! One session of the host: its servers, and which connections its stateful calls ran on.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::listing::Listing;
use crate::mentions::Mentions;
use crate::registry::{ConnectionRegistry, ServerEntry};
use crate::server::Server;

/// Why nothing is done for a session whose servers were configured anew meanwhile.
const SUPERSEDED: &str = "the servers of the session are configured anew; call again";
/// Why nothing is done for a session that was closed.
const CLOSED: &str = "the session is closed";

/// An open session of the backend.
pub(crate) struct McpSession {
    pub(crate) id: String,
    working_dir: Option<PathBuf>,
    /// In the order of the configuration; a server that cannot be used with the reason.
    pub(crate) servers: Vec<(String, Result<Arc<Server>, String>)>,
    used: Mutex<UsedServers>,
    /// The connections that stateful calls ran on, by server.
    pins: Mutex<HashMap<String, u64>>,
    closed: AtomicBool,
    /// Another one goes on with what it had.
    superseded: AtomicBool,
    /// What the host was told last, by server.
    sent_listings: Mutex<HashMap<String, Arc<Listing>>>,
    mentions: Mutex<Mentions>,
    /// Somebody waited for its servers already.
    has_waited: AtomicBool,
    /// Shared by the session's requests when the host has no trace of its own.
    trace: String,
}

/// What a session uses of its servers, by their names.
#[derive(Default)]
struct UsedServers {
    entries: HashMap<String, Arc<ServerEntry>>,
    /// URIs of the resources whose changes it wants to hear of. An entry goes with its connection
    /// and its configuration; these stay, and each entry that comes in its place is told.
    watched: HashMap<String, SessionWatches>,
    /// How many wishes there were.
    watch_count: u64,
}

impl UsedServers {
    /// The session does not want to hear of a resource any more.
    fn unwatch(&mut self, uri: &str, session: &str) {
        self.watched.retain(|_, uris| {
            uris.remove(uri);
            !uris.is_empty()
        });
        for entry in self.entries.values() {
            entry.watched.remove(uri, session);
        }
    }
}

/// What a session wants to hear of, by URI; with the newest wish as long as none was answered.
type SessionWatches = BTreeMap<String, Option<u64>>;

/// A session's wish to hear of a resource that its server has not answered.
pub(crate) struct PendingWatch {
    /// The entry that is to tell.
    pub(crate) entry: Arc<ServerEntry>,
    uri: String,
    number: u64,
}

impl McpSession {
    pub(crate) fn new(
        id: &str,
        working_dir: Option<PathBuf>,
        servers: Vec<(String, Result<Arc<Server>, String>)>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            working_dir,
            servers,
            used: Mutex::default(),
            pins: Mutex::default(),
            closed: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            sent_listings: Mutex::default(),
            mentions: Mutex::default(),
            has_waited: AtomicBool::new(false),
            trace: trace(id),
        }
    }

    /// Working directory without links: as they led when the session was opened.
    pub(crate) fn working_dir(&self) -> Option<&Path> {
        self.working_dir.as_deref()
    }

    /// Goes on with what a session with other servers had of the servers that are the same here.
    /// Gives back the connections that are of no use any more.
    pub(crate) fn inherit_entries(&self, before: &Self) -> Vec<Arc<ServerEntry>> {
        let known = {
            let mut used = lock(&before.used);
            before.superseded.store(true, Ordering::Relaxed);
            std::mem::take(&mut *used)
        };
        let (kept, gone): (HashMap<_, _>, HashMap<_, _>) =
            known.entries.into_iter().partition(|(name, entry)| {
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
        let given = lock(&before.sent_listings);
        let kept_given = given
            .iter()
            .filter(|(server, _)| kept.contains_key(*server));
        lock(&self.sent_listings)
            .extend(kept_given.map(|(server, told)| (server.clone(), Arc::clone(told))));
        *lock(&self.mentions) = std::mem::take(&mut *lock(&before.mentions));
        *lock(&self.used) = UsedServers {
            entries: kept,
            watched: known.watched,
            watch_count: known.watch_count,
        };
        gone.into_values().collect()
    }

    /// Wants to hear of the resources of which the session before wanted to hear, which was opened
    /// under the same name.
    pub(crate) fn inherit_watches(&self, before: &Self) {
        let (watched, wishes) = {
            let mut used = lock(&before.used);
            (std::mem::take(&mut used.watched), used.watch_count)
        };
        for (server, uris) in watched {
            let mut used = lock(&self.used);
            used.watch_count = used.watch_count.max(wishes);
            if let Some(entry) = used.entries.get(&server) {
                self.register_watches(entry, &uris);
            }
            used.watched.entry(server).or_default().extend(uris);
        }
    }

    fn register_watches(&self, entry: &ServerEntry, uris: &SessionWatches) {
        for uri in uris.keys() {
            entry.watched.add(uri, &self.id);
        }
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
            let used = lock(&self.used);
            if self.superseded.load(Ordering::Relaxed) {
                return Err(SUPERSEDED.to_owned());
            }
            used.entries.get(server).cloned()
        };
        let old = match known {
            Some(entry) if !entry.is_closed() => return Ok(entry),
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
            let mut used = lock(&self.used);
            let is_over = self.closed.load(Ordering::Relaxed);
            if !is_over {
                if let Some(uris) = used.watched.get(server) {
                    self.register_watches(&entry, uris);
                }
                used.entries.insert(server.to_owned(), Arc::clone(&entry));
            }
            is_over
        };
        if is_over {
            registry.release(&entry, &self.id).await;
            return Err(CLOSED.to_owned());
        }
        if let Some(old) = old {
            registry.release(&old, &self.id).await;
        }
        Ok(entry)
    }

    /// Closes the session: no entry is used any more. Gives back those that were.
    pub(crate) fn end(&self) -> Vec<Arc<ServerEntry>> {
        let mut used = lock(&self.used);
        self.closed.store(true, Ordering::Relaxed);
        used.entries.drain().map(|(_, entry)| entry).collect()
    }

    /// Notes that the session wants to hear of a resource of a server's, maybe once more.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn watch(&self, server: &str, uri: &str) -> Result<PendingWatch, String> {
        let mut used = lock(&self.used);
        if self.superseded.load(Ordering::Relaxed) {
            return Err(SUPERSEDED.to_owned());
        }
        let entry = used.entries.get(server).cloned();
        let entry = entry.ok_or_else(|| CLOSED.to_owned())?;
        if !entry.watched.add(uri, &self.id) {
            return Err(format!(
                "too many resources of the MCP server `{server}` are watched already"
            ));
        }
        used.watch_count += 1;
        let number = used.watch_count;
        let watched = used.watched.entry(server.to_owned()).or_default();
        match watched.get_mut(uri) {
            // Whatever becomes of this wish, the one before stands.
            Some(None) => {}
            Some(pending) => *pending = Some(number),
            None => {
                watched.insert(uri.to_owned(), Some(number));
            }
        }
        Ok(PendingWatch {
            entry,
            uri: uri.to_owned(),
            number,
        })
    }

    /// A server tells of a resource: the wish stands.
    pub(crate) fn confirm_watch(&self, wish: &PendingWatch) {
        let mut used = lock(&self.used);
        let uris = used.watched.get_mut(&wish.entry.server.name);
        if let Some(pending) = uris.and_then(|uris| uris.get_mut(&wish.uri)) {
            *pending = None;
        }
    }

    /// Nothing comes of a wish. The resource stays watched where another wish stands or is newer.
    pub(crate) fn withdraw_watch(&self, wish: &PendingWatch) {
        let server = &wish.entry.server.name;
        let mut used = lock(&self.used);
        let Some(uris) = used.watched.get_mut(server) else {
            return;
        };
        if uris.get(&wish.uri) != Some(&Some(wish.number)) {
            return;
        }
        uris.remove(&wish.uri);
        if uris.is_empty() {
            used.watched.remove(server);
        }
        if let Some(entry) = used.entries.get(server) {
            entry.watched.remove(&wish.uri, &self.id);
        }
    }

    /// Why what it wanted is wanted by nobody any more.
    pub(crate) fn end_reason(&self) -> &'static str {
        match self.closed.load(Ordering::Relaxed) && !self.superseded.load(Ordering::Relaxed) {
            true => CLOSED,
            false => SUPERSEDED,
        }
    }

    /// Notes that the session does not want to hear of a resource any more.
    pub(crate) fn unwatch(&self, uri: &str) {
        lock(&self.used).unwatch(uri, &self.id);
    }

    /// Whether this is the first time that its servers are waited for.
    pub(crate) fn begin_first_wait(&self) -> bool {
        !self.has_waited.swap(true, Ordering::Relaxed)
    }

    /// All entries that the session uses.
    pub(crate) fn entries(&self) -> Vec<Arc<ServerEntry>> {
        lock(&self.used).entries.values().cloned().collect()
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
        lock(&self.mentions).record(server, result);
    }

    /// Notes that a resource which a result named is this server's.
    pub(crate) fn note_mention(&self, server: &str, uri: &str) {
        lock(&self.mentions).add(server, uri);
    }

    /// The server whose result named a resource, or whose that one turned out to be.
    pub(crate) fn mentioning_server(&self, uri: &str) -> Option<String> {
        lock(&self.mentions).server(uri).map(str::to_owned)
    }

    /// Notes what the host is told of a server.
    pub(crate) fn record_sent(&self, server: &str, listing: &Arc<Listing>) {
        lock(&self.sent_listings).insert(server.to_owned(), Arc::clone(listing));
    }

    /// Whether the host was given this listing of a server.
    pub(crate) fn has(&self, server: &str, listing: &Arc<Listing>) -> bool {
        let given = lock(&self.sent_listings);
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

    /// A server that is not started, of a configuration with this hash.
    fn lazy(hash: &str) -> Arc<Server> {
        let config = json!({ "command": "never-started", "start": "lazy" });
        Arc::new(Server {
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
            hash: hash.to_owned(),
            principal: "p".to_owned(),
        })
    }

    fn registry() -> Arc<ConnectionRegistry> {
        ConnectionRegistry::new(
            1,
            Arc::new(WatchHub::default()),
            Cache::default(),
            PrivatePaths::default(),
        )
    }

    fn session(hash: &str) -> McpSession {
        McpSession::new("one", None, vec![("s".to_owned(), Ok(lazy(hash)))])
    }

    async fn close(session: &McpSession, registry: &ConnectionRegistry) {
        for used in session.end() {
            registry.release(&used, "one").await;
        }
    }

    #[tokio::test]
    async fn what_is_watched_stays_watched_when_a_server_is_configured_anew() {
        let (registry, first) = (registry(), session("h"));
        first.entry(&registry, "s").await.unwrap();
        for uri in ["a", "b"] {
            first.watch("s", uri).unwrap();
        }
        let other = session("other");
        for gone in other.inherit_entries(&first) {
            registry.release(&gone, "one").await;
            assert!(gone.watched.uris().is_empty());
        }
        assert_eq!(first.watch("s", "c").err().as_deref(), Some(SUPERSEDED));
        other.unwatch("b");
        let entry = other.entry(&registry, "s").await.unwrap();
        assert_eq!(entry.watched.sessions("a"), ["one"]);
        assert!(entry.watched.sessions("b").is_empty());
        // Opened once more under its name, it is told too.
        let last = session("h");
        let entry = last.entry(&registry, "s").await.unwrap();
        last.inherit_watches(&other);
        assert_eq!(entry.watched.sessions("a"), ["one"]);
        close(&other, &registry).await;
        close(&last, &registry).await;
        assert_eq!(last.watch("s", "a").err().as_deref(), Some(CLOSED));
    }

    #[tokio::test]
    async fn a_wish_that_nothing_comes_of_leaves_one_that_stands_or_is_newer() {
        let (registry, session) = (registry(), session("h"));
        let entry = session.entry(&registry, "s").await.unwrap();
        let first = session.watch("s", "a").unwrap();
        let second = session.watch("s", "a").unwrap();
        session.withdraw_watch(&first);
        assert_eq!(entry.watched.sessions("a"), ["one"], "the second waits");
        session.confirm_watch(&second);
        let third = session.watch("s", "a").unwrap();
        session.withdraw_watch(&third);
        assert_eq!(entry.watched.sessions("a"), ["one"], "the second stands");
        session.unwatch("a");
        let last = session.watch("s", "a").unwrap();
        session.withdraw_watch(&last);
        assert!(entry.watched.uris().is_empty());
        close(&session, &registry).await;
    }

    #[tokio::test]
    async fn a_wish_is_taken_back_where_its_server_is_configured_anew() {
        let (registry, first) = (registry(), session("h"));
        first.entry(&registry, "s").await.unwrap();
        let wish = first.watch("s", "a").unwrap();
        let other = session("other");
        for gone in other.inherit_entries(&first) {
            registry.release(&gone, "one").await;
        }
        assert_eq!(wish.entry.watched.wait_for_answer("a").await, None);
        assert_eq!(first.end_reason(), SUPERSEDED);
        let entry = other.entry(&registry, "s").await.unwrap();
        assert_eq!(entry.watched.sessions("a"), ["one"]);
        other.withdraw_watch(&wish);
        assert!(entry.watched.uris().is_empty());
        close(&other, &registry).await;
        assert_eq!(other.end_reason(), CLOSED);
    }

    #[tokio::test]
    async fn a_session_that_is_closed_uses_no_entry_and_leaves_none() {
        let (registry, session) = (registry(), session("h"));
        let entry = session.entry(&registry, "s").await.unwrap();
        assert!(!entry.is_closed());
        close(&session, &registry).await;
        assert!(entry.is_closed(), "nobody uses it any more");
        let late = session.entry(&registry, "s").await;
        assert_eq!(late.err().as_deref(), Some("the session is closed"));
        assert!(session.entries().is_empty());
    }
}
