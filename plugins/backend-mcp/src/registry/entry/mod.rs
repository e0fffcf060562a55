//! One server of one session (or of several that share it): its connection over time.
//!
//! Tools stay listed while it connects anew.

mod life;
mod refresh_delay;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::protocol::{PluginEvent, ToolMode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connect::ConnectError;
use super::{ConnectionRegistry, EntryState, Key, NoConnection, Status, WatchedResources};
use crate::config::StartMode;
use crate::connection::Connection;
use crate::hub::WatchHub;
use crate::listing::{Listing, Tool};
use crate::sandbox::ServerWorkspace;
use crate::server::Server;
use crate::stdio::StderrTail;

/// How many lines of standard error a status has.
const STATUS_LINES: usize = 10;
/// After so many tries that failed in a row, calls do not wait for the next.
const FAST_FAIL_THRESHOLD: u32 = 3;
/// How long calls may go on after their entry was retired.
const RETIRED_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long the end of an entry may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// One server in the registry, with its connection.
pub(crate) struct ServerEntry {
    key: Mutex<Key>,
    pub(crate) server: Arc<Server>,
    working_dir: Option<PathBuf>,
    /// Place where the server works and what it may change, once that could be said.
    workspace: OnceLock<ServerWorkspace>,
    state: watch::Sender<EntryState>,
    lists: watch::Sender<ServerLists>,
    users: Mutex<BTreeSet<String>>,
    /// The resources whose changes its sessions want to hear of.
    pub(crate) watched: Arc<WatchedResources>,
    /// Number of running calls.
    calls: watch::Sender<usize>,
    /// Counts those who wanted a connection.
    demand: watch::Sender<u64>,
    /// The number of the newest connection.
    generation: AtomicU64,
    stop: watch::Sender<bool>,
    /// Stateful calls run one after the other, in the order in which they came.
    pub(crate) call_order: tokio::sync::Mutex<()>,
    /// A stateful tool was advertised or invoked.
    session_required: AtomicBool,
    retired: AtomicBool,
    tail: StderrTail,
}

/// The lists that a server has given so far.
#[derive(Clone, Default)]
pub(crate) struct ServerLists {
    /// The newest that could be read.
    pub(crate) listing: Option<Arc<Listing>>,
    /// Error of the last try.
    pub(crate) error: Option<String>,
    /// The connection that was asked last; none when this is from an earlier time.
    listed_connection: Option<u64>,
}

impl ServerEntry {
    pub(super) fn new(
        key: Key,
        server: Arc<Server>,
        working_dir: Option<&Path>,
        generation: u64,
    ) -> Arc<Self> {
        let state = match server.config.start {
            StartMode::Background => EntryState::Starting(None),
            StartMode::Lazy => EntryState::Idle,
        };
        Arc::new(Self {
            key: Mutex::new(key),
            working_dir: working_dir.map(Path::to_path_buf),
            workspace: OnceLock::new(),
            state: watch::Sender::new(state),
            lists: watch::Sender::new(ServerLists::default()),
            users: Mutex::default(),
            watched: Arc::default(),
            calls: watch::Sender::new(0),
            demand: watch::Sender::new(0),
            generation: AtomicU64::new(generation),
            stop: watch::Sender::new(false),
            call_order: tokio::sync::Mutex::new(()),
            session_required: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            tail: StderrTail::with_secrets(server.secrets.clone()),
            server,
        })
    }

    /// Looks at where it works, before anything runs there: where the entry before it of the same server
    /// did, if there is one.
    pub(super) fn resolve_workspace(&self, before: Option<&Self>) {
        let before = before.filter(|before| before.server.hash == self.server.hash);
        if let Some(known) = before.and_then(|before| before.workspace.get()) {
            let _ = self.workspace.set(known.clone());
        }
        // What is wrong with it is said where it is to be started.
        let _ = self.workspace();
    }

    /// Place where the server works and what it may change.
    ///
    /// # Errors
    /// Which path cannot be allowed.
    fn workspace(&self) -> Result<&ServerWorkspace, ConnectError> {
        if let Some(known) = self.workspace.get() {
            return Ok(known);
        }
        let cwd = self.server.cwd.as_deref().map(Path::new);
        let setting = &self.server.config.sandbox;
        let place = ServerWorkspace::of(setting, cwd, self.working_dir.as_deref());
        let place = place.map_err(|error| ConnectError::Permanent(error.to_string()))?;
        Ok(self.workspace.get_or_init(|| place))
    }

    /// Sets the listing of an earlier time.
    pub(crate) fn restore_listing(&self, listing: Arc<Listing>) {
        if listing.tools.iter().any(is_stateful) {
            self.require_session();
        }
        self.lists
            .send_modify(|listed| listed.listing = Some(listing));
    }

    /// Starts the task.
    pub(super) fn run(self: &Arc<Self>, registry: Arc<ConnectionRegistry>) {
        tokio::spawn(Arc::clone(self).supervise(registry));
    }

    /// A connection younger than `after`, when there is one until then.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn wait_for_connection(
        &self,
        after: u64,
        until: Instant,
    ) -> Result<Arc<Connection>, NoConnection> {
        self.demand.send_modify(|wanted| *wanted += 1);
        let mut states = self.state.subscribe();
        let mut tried = false;
        loop {
            let now = states.borrow_and_update().clone();
            match &now {
                EntryState::Ready(connection)
                    if connection.generation > after
                        && connection.link().close_reason().is_none()
                        && !self.has_other_login(connection) =>
                {
                    return Ok(Arc::clone(connection));
                }
                EntryState::Closed => return Err(now.no_connection()),
                EntryState::Backoff { tries, .. } if *tries >= FAST_FAIL_THRESHOLD => {
                    return Err(now.no_connection());
                }
                now if now.is_stuck() && tried => return Err(now.no_connection()),
                _ => {}
            }
            tried = true;
            match tokio::time::timeout_at(until, states.changed()).await {
                Ok(Ok(())) => {}
                _ => return Err(now.no_connection()),
            }
        }
    }

    /// Whether a connection has served another login than the one that there is now. Whoever was
    /// behind that one may have left something in it.
    pub(crate) fn has_other_login(&self, connection: &Connection) -> bool {
        let auth = self.server.auth.as_ref();
        auth.is_some_and(|auth| connection.link().is_not_of(*auth.logins().borrow()))
    }

    /// A call runs on it until this is dropped.
    pub(crate) fn in_use(&self) -> UseGuard<'_> {
        self.calls.send_modify(|calls| *calls += 1);
        UseGuard(self)
    }

    /// Waits until no call runs on it. Each has its own limits, which a person may stretch.
    pub(super) async fn until_unused(&self) {
        let mut calls = self.calls.subscribe();
        let unused = calls.wait_for(|calls| *calls == 0);
        let _ = tokio::time::timeout(RETIRED_TIMEOUT, unused).await;
    }

    /// The newest connection's number.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Current lists of the server.
    pub(crate) fn lists(&self) -> ServerLists {
        self.lists.borrow().clone()
    }

    /// Waits until it was listed, or it is certain that it cannot be now.
    pub(crate) async fn until_listed(&self) {
        let mut states = self.state.subscribe();
        let mut listed = self.lists.subscribe();
        loop {
            let lists = listed.borrow_and_update().clone();
            let comes = matches!(
                &*states.borrow_and_update(),
                EntryState::Starting(_) | EntryState::Ready(_)
            );
            let lazy = self.server.config.start == StartMode::Lazy;
            if lists.listing.is_some()
                || lists.error.is_some()
                || (!comes && !self.is_new())
                || lazy
            {
                return;
            }
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                changed = listed.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Tells a session that has just come what went wrong before.
    pub(crate) fn report_failures(&self, hub: &WatchHub, session: &str) {
        let state = self.state.borrow().clone();
        let name = &self.server.name;
        let has_failed =
            matches!(state, EntryState::Backoff { .. }) || state.failed_try().is_some();
        if state.is_stuck() || has_failed {
            let text = format!("MCP server `{name}` did not start: {}", state.reason());
            hub.notice(session, &text);
        }
        for left_out in self
            .lists()
            .listing
            .iter()
            .flat_map(|listing| &listing.quarantined)
        {
            let text = format!(
                "MCP server `{name}`: {} is left out: {}",
                left_out.name, left_out.why
            );
            hub.notice(session, &text);
        }
    }

    /// A stateful tool was invoked.
    pub(crate) fn require_session(&self) {
        self.session_required.store(true, Ordering::Relaxed);
    }

    /// Each of its users gets one of its own.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether the entry must not be used any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_retired() || *self.stop.borrow()
    }

    /// What a person or a program wants to know of it.
    pub(crate) fn status(&self) -> Status {
        let state = self.state.borrow().clone();
        let ServerLists {
            listing,
            error,
            listed_connection: asked,
        } = self.lists();
        let required = self.session_required.load(Ordering::Relaxed);
        let mut status = Status {
            server: self.server.name.clone(),
            state: state.name(),
            why: state.reason(),
            failed_as: state.failed_try().map(|before| before.state),
            no_program: state.has_no_program(),
            lacks_right: state.lacks_right(),
            auth: self.auth(),
            transport: if self.server.config.url.is_some() {
                "http"
            } else {
                "stdio"
            },
            session_mode: if required { "required" } else { "optional" },
            shared: self.key().session.is_none(),
            list_error: error,
            tools: listing.as_ref().map(|listing| listing.tools.len()),
            instructions: listing
                .as_ref()
                .and_then(|listing| listing.instructions.clone()),
            quarantined: listing
                .map(|listing| listing.quarantined.clone())
                .unwrap_or_default(),
            stderr: self.tail.last_lines(STATUS_LINES),
            ..Status::default()
        };
        if let EntryState::Ready(connection) = &state {
            let generation = connection.generation;
            status.era = Some(connection.era.name());
            status.protocol = Some(connection.info.protocol_version.as_str().to_owned());
            status.generation = Some(generation);
            status.listing = asked != Some(generation);
            status.pid = connection.pid;
            status.program = connection.program.clone();
            status.ready_ms = u64::try_from(connection.connect_time.as_millis()).ok();
            status.skipped = connection.link().skipped_count();
            status.session_id = required.then(|| format!("{}#{generation}", self.server.name));
        }
        status
    }

    fn auth(&self) -> Option<&'static str> {
        let auth = self.server.auth.as_ref();
        match auth {
            Some(auth) if auth.is_logged_in() => Some("logged_in"),
            Some(_) => Some("logged_out"),
            None if self.server.config.url.is_some() => Some("configured"),
            None => None,
        }
    }

    /// Ends it and waits for that.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        let mut states = self.state.subscribe();
        let closed = states.wait_for(|state| matches!(state, EntryState::Closed));
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    }

    pub(super) fn add(&self, session: &str) {
        lock(&self.users).insert(session.to_owned());
    }

    /// Removes a session; whether none is left.
    pub(super) fn remove(&self, session: &str) -> bool {
        self.watched.forget(session);
        let mut users = lock(&self.users);
        users.remove(session);
        users.is_empty()
    }

    pub(crate) fn users(&self) -> Vec<String> {
        lock(&self.users).iter().cloned().collect()
    }

    pub(super) fn key(&self) -> Key {
        lock(&self.key).clone()
    }

    pub(super) fn set_key(&self, key: Key) {
        *lock(&self.key) = key;
    }

    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_new(&self) -> bool {
        matches!(*self.state.borrow(), EntryState::Idle)
    }

    fn set(&self, registry: &ConnectionRegistry, state: EntryState) {
        let event = PluginEvent::State {
            state: state.name().to_owned(),
            detail: format!("`{}` {}", self.server.name, state.reason()),
        };
        self.state.send_replace(state);
        registry.hub.send(&self.users(), &event);
    }

    /// Sets the state while the server is being connected; why the last try failed is still told.
    fn set_starting(&self, registry: &ConnectionRegistry) {
        let next = self.state.borrow().next_try();
        self.set(registry, next);
    }

    fn notice(&self, registry: &ConnectionRegistry, level: &str, text: &str) {
        let event = PluginEvent::Notice {
            level: level.to_owned(),
            text: format!("MCP server `{}`: {text}", self.server.name),
        };
        registry.hub.send(&self.users(), &event);
    }

    fn with_stderr(&self, why: String, status: Option<ExitStatus>) -> String {
        let text = match status {
            Some(status) => format!("{why} ({status})"),
            None => why,
        };
        self.tail.annotate(&text, 3)
    }
}

/// A call that runs on an entry.
pub(crate) struct UseGuard<'a>(&'a ServerEntry);

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        self.0
            .calls
            .send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}

fn is_stateful(tool: &Tool) -> bool {
    tool.decl.mode == ToolMode::Stateful
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
