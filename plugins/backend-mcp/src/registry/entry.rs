//! One server of one session (or of several that share it): its connection over time.
//!
//! A task an entry connects, lists, sees the end, waits and connects again. Tools stay listed
//! while it does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::protocol::{PluginEvent, ToolMode};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::connect::{self, OpenError, Opening};
use super::{Key, Registry, State, Status};
use crate::config::Start;
use crate::connection::{Connection, Era, Trouble};
use crate::hub::Hub;
use crate::listing::{Listing, Tool};
use crate::server::Server;
use crate::stdio::Tail;
use crate::subscription;

/// Changes that come together are one.
const TOGETHER: Duration = Duration::from_millis(10);
/// How many lines of standard error a status has.
const LINES: usize = 10;
/// After so many tries that failed in a row, calls do not wait for the next.
const HOPELESS: u32 = 3;
/// How long the end of an entry may take.
const CLOSING: Duration = Duration::from_secs(8);

/// One entry of the registry.
pub(crate) struct Entry {
    key: Mutex<Key>,
    pub(crate) server: Arc<Server>,
    working_dir: Option<PathBuf>,
    state: watch::Sender<State>,
    listed: watch::Sender<Listed>,
    users: Mutex<BTreeSet<String>>,
    wanted: Notify,
    stop: watch::Sender<bool>,
    /// Stateful calls run one after the other, in the order in which they came.
    pub(crate) in_order: tokio::sync::Mutex<()>,
    /// A stateful tool was advertised or invoked.
    session_required: AtomicBool,
    retired: AtomicBool,
    tail: Tail,
}

/// What is known of a server's lists.
#[derive(Clone, Default)]
pub(crate) struct Listed {
    /// The newest that could be read.
    pub(crate) listing: Option<Arc<Listing>>,
    /// Why the last try failed.
    pub(crate) error: Option<String>,
}

impl Entry {
    pub(super) fn new(key: Key, server: Arc<Server>, working_dir: Option<&Path>) -> Arc<Self> {
        Arc::new(Self {
            key: Mutex::new(key),
            working_dir: working_dir.map(Path::to_path_buf),
            state: watch::Sender::new(State::Idle),
            listed: watch::Sender::new(Listed::default()),
            users: Mutex::default(),
            wanted: Notify::new(),
            stop: watch::Sender::new(false),
            in_order: tokio::sync::Mutex::new(()),
            session_required: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            tail: Tail::hiding(server.secrets.iter().cloned()),
            server,
        })
    }

    /// What it listed at an earlier time.
    pub(crate) fn remember(&self, listing: Arc<Listing>) {
        if listing.tools.iter().any(is_stateful) {
            self.require_session();
        }
        self.listed
            .send_modify(|listed| listed.listing = Some(listing));
    }

    /// Starts the task.
    pub(super) fn run(self: &Arc<Self>, registry: Arc<Registry>) {
        tokio::spawn(Arc::clone(self).supervise(registry));
    }

    /// A connection younger than `after`, when there is one until then.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn ready(
        &self,
        after: u64,
        until: Instant,
    ) -> Result<Arc<Connection>, String> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let mut tried = false;
        loop {
            let now = states.borrow_and_update().clone();
            match &now {
                State::Ready(connection)
                    if connection.generation > after && connection.link().closed().is_none() =>
                {
                    return Ok(Arc::clone(connection));
                }
                State::Closed => return Err(now.why()),
                State::Backoff { tries, .. } if *tries >= HOPELESS => return Err(now.why()),
                State::Failed(_) | State::NeedsAuth(_) if tried => return Err(now.why()),
                _ => {}
            }
            tried = true;
            match tokio::time::timeout_at(until, states.changed()).await {
                Ok(Ok(())) => {}
                _ => return Err(now.why()),
            }
        }
    }

    /// What it lists now.
    pub(crate) fn listed(&self) -> Listed {
        self.listed.borrow().clone()
    }

    /// Waits until it was listed, or it is certain that it cannot be now.
    pub(crate) async fn until_listed(&self) {
        let mut states = self.state.subscribe();
        let mut listed = self.listed.subscribe();
        loop {
            let lists = listed.borrow_and_update().clone();
            let over = match &*states.borrow_and_update() {
                State::Idle | State::Closed | State::Failed(_) | State::NeedsAuth(_) => true,
                State::Backoff { .. } => true,
                State::Starting | State::Ready(_) => false,
            };
            let lazy = self.server.config.start == Start::Lazy;
            if lists.listing.is_some() || lists.error.is_some() || (over && !self.is_new()) || lazy
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
    pub(crate) fn tell_trouble(&self, hub: &Hub, session: &str) {
        let state = self.state.borrow().clone();
        let name = &self.server.name;
        if let State::Backoff { .. } | State::NeedsAuth(_) | State::Failed(_) = state {
            let text = format!("MCP server `{name}` did not start: {}", state.why());
            hub.notice(session, &text);
        }
        for left_out in self
            .listed()
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

    /// It must not be used any more.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// What a person or a program wants to know of it.
    pub(crate) fn status(&self) -> Status {
        let state = self.state.borrow().clone();
        let Listed { listing, error } = self.listed();
        let required = self.session_required.load(Ordering::Relaxed);
        let mut status = Status {
            server: self.server.name.clone(),
            state: state.name(),
            why: state.why(),
            session_mode: if required { "required" } else { "optional" },
            shared: self.key().session.is_none(),
            list_error: error,
            tools: listing.as_ref().map(|listing| listing.tools.len()),
            quarantined: listing
                .map(|listing| listing.quarantined.clone())
                .unwrap_or_default(),
            stderr: self.tail.last(LINES),
            ..Status::default()
        };
        if let State::Ready(connection) = &state {
            let generation = connection.generation;
            status.era = Some(connection.era.name());
            status.protocol = Some(connection.info.protocol_version.as_str().to_owned());
            status.generation = Some(generation);
            status.pid = connection.pid;
            status.skipped = connection.link().skipped_so_far();
            status.session_id = required.then(|| format!("{}#{generation}", self.server.name));
        }
        status
    }

    /// Ends it and waits for that.
    pub(super) async fn close(&self) {
        self.stop.send_replace(true);
        let mut states = self.state.subscribe();
        let closed = states.wait_for(|state| matches!(state, State::Closed));
        let _ = tokio::time::timeout(CLOSING, closed).await;
    }

    pub(super) fn add(&self, session: &str) {
        lock(&self.users).insert(session.to_owned());
    }

    /// Whether nobody is left.
    pub(super) fn remove(&self, session: &str) -> bool {
        let mut users = lock(&self.users);
        users.remove(session);
        users.is_empty()
    }

    pub(super) fn users(&self) -> Vec<String> {
        lock(&self.users).iter().cloned().collect()
    }

    pub(super) fn key(&self) -> Key {
        lock(&self.key).clone()
    }

    pub(super) fn set_key(&self, key: Key) {
        *lock(&self.key) = key;
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    fn is_new(&self) -> bool {
        matches!(*self.state.borrow(), State::Idle)
    }

    async fn supervise(self: Arc<Self>, registry: Arc<Registry>) {
        let mut stop = self.stop.subscribe();
        let mut backoff = Backoff::default();
        let mut generation = 0;
        if self.server.config.start == Start::Lazy {
            tokio::select! {
                () = self.wanted.notified() => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        while !*stop.borrow() {
            self.set(&registry, State::Starting);
            let opened = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                opened = self.open(&registry, generation + 1) => opened,
            };
            let why = match opened {
                Ok(connection) => {
                    generation += 1;
                    backoff.reset();
                    let connection = Arc::new(connection);
                    let why = self.serve(&registry, &connection, &mut stop).await;
                    let status = connection.end().await;
                    if *stop.borrow() {
                        break;
                    }
                    let why = self.with_last_words(why, status);
                    self.notice(&registry, "warn", &format!("its connection ended: {why}"));
                    why
                }
                Err(OpenError::Transient(why)) => {
                    if backoff.tries() == 0 {
                        self.notice(&registry, "warn", &format!("it did not start: {why}"));
                    }
                    registry.learn_era(&self.server.hash, None);
                    why
                }
                Err(error) => {
                    let state = match error {
                        OpenError::NeedsAuth(why) => State::NeedsAuth(why),
                        OpenError::Permanent(why) | OpenError::Transient(why) => State::Failed(why),
                    };
                    self.notice(&registry, "error", &state.why());
                    self.set(&registry, state);
                    tokio::select! {
                        () = self.wanted.notified() => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    continue;
                }
            };
            let wait = backoff.next();
            let tries = backoff.tries();
            self.set(&registry, State::Backoff { tries, wait, why });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        self.set(&registry, State::Closed);
    }

    async fn open(&self, registry: &Registry, generation: u64) -> Result<Connection, OpenError> {
        let closed = |_| OpenError::Transient("the registry is closed".to_owned());
        let _turn = registry.starting.acquire().await.map_err(closed)?;
        let users = self.users();
        let hub = Arc::clone(&registry.hub);
        let opening = Opening {
            server: &self.server,
            working_dir: self.working_dir.as_deref(),
            guardian: &registry.guardian,
            standing: Arc::new(move || hub.one_of(&users)),
            generation,
            tail: &self.tail,
            known: registry.known_era(&self.server.hash),
        };
        let connection = connect::open(&opening).await?;
        registry.learn_era(&self.server.hash, Some(connection.era));
        Ok(connection)
    }

    /// Lists, and again with every change, until the connection is over.
    async fn serve(
        &self,
        registry: &Arc<Registry>,
        connection: &Arc<Connection>,
        stop: &mut watch::Receiver<bool>,
    ) -> String {
        let mut changes = connection.link().changes();
        let _subscribed =
            (connection.era == Era::Modern).then(|| subscription::keep(Arc::clone(connection)));
        self.set(registry, State::Ready(Arc::clone(connection)));
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return String::new(),
                () = self.list(registry, connection) => {}
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return String::new(),
                why = connection.link().until_closed() => return why,
                changed = changes.changed() => if changed.is_err() { return String::new() },
            }
            tokio::time::sleep(TOGETHER).await;
            changes.mark_unchanged();
        }
    }

    async fn list(&self, registry: &Arc<Registry>, connection: &Connection) {
        let listing = match Listing::load(connection, &self.server).await {
            Ok(listing) => listing,
            Err(Trouble::Lost(_)) => return,
            Err(Trouble::Failed(failure)) => {
                let why = failure.to_string();
                self.notice(
                    registry,
                    "warn",
                    &format!("its tools were not listed: {why}"),
                );
                // What was listed before stays.
                self.listed.send_modify(|listed| listed.error = Some(why));
                return;
            }
        };
        let any_stateful = listing.tools.iter().any(is_stateful);
        if any_stateful {
            self.require_session();
        }
        let config = &self.server.config;
        let has_a_place = config.url.is_some() || config.cwd.is_some();
        let may_be_shared = connection.era == Era::Modern && !any_stateful && has_a_place;
        let before = self.listed().listing;
        let is_new = before.as_deref() != Some(&listing);
        for quarantined in &listing.quarantined {
            let known = before.as_ref().map(|before| before.quarantined.as_slice());
            if !known.unwrap_or_default().contains(quarantined) {
                let text = format!("{} is left out: {}", quarantined.name, quarantined.why);
                self.notice(registry, "warn", &text);
            }
        }
        let listing = Arc::new(listing);
        self.keep(registry, connection.era, &listing);
        self.listed.send_replace(Listed {
            listing: Some(listing),
            error: None,
        });
        if let Some(entry) = registry.entry_of(self) {
            registry.place(&entry, connection.era, may_be_shared);
        }
        if is_new {
            registry.hub.catalog_changed(&self.users());
        }
    }

    /// Keeps a list for the next time; that it cannot be is no trouble of a session.
    fn keep(&self, registry: &Arc<Registry>, era: Era, listing: &Arc<Listing>) {
        let (registry, server) = (Arc::clone(registry), Arc::clone(&self.server));
        let listing = Arc::clone(listing);
        tokio::task::spawn_blocking(move || {
            let _ = registry.cache.save(&server, era, &listing);
        });
    }

    fn set(&self, registry: &Registry, state: State) {
        let event = PluginEvent::State {
            state: state.name().to_owned(),
            detail: format!("`{}` {}", self.server.name, state.why()),
        };
        self.state.send_replace(state);
        registry.hub.send(&self.users(), &event);
    }

    fn notice(&self, registry: &Registry, level: &str, text: &str) {
        let event = PluginEvent::Notice {
            level: level.to_owned(),
            text: format!("MCP server `{}`: {text}", self.server.name),
        };
        registry.hub.send(&self.users(), &event);
    }

    fn with_last_words(&self, why: String, status: Option<ExitStatus>) -> String {
        let mut text = why;
        if let Some(status) = status {
            text = format!("{text} ({status})");
        }
        let lines = self.tail.last(3);
        if !lines.is_empty() {
            text = format!("{text}; it wrote: {}", lines.join(" | "));
        }
        text
    }
}

fn is_stateful(tool: &Tool) -> bool {
    tool.decl.mode == ToolMode::Stateful
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
