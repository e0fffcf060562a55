//! The life of an entry: it connects, lists, sees the end, waits and connects again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conjure_skill_sdk::protocol::PluginEvent;
use tokio::sync::watch;

use super::super::connect::{self, ConnectError, ConnectionParts, Peer};
use super::super::{ConnectionRegistry, EntryState};
use super::refresh_delay::RefreshDelay;
use super::{ServerEntry, ServerLists, is_stateful};
use crate::backoff::Backoff;
use crate::config::StartMode;
use crate::connection::{Connection, Era};
use crate::failure::AuthDemand;
use crate::listing::Listing;
use crate::request_failure::RequestFailure;
use crate::server_notices::ServerNotices;
use crate::subscription;

/// How long answers are waited for when somebody else has logged in.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody has logged in.
const LOGIN_POLL_INTERVAL: Duration = Duration::from_secs(2);

impl ServerEntry {
    /// Runs until it is stopped.
    pub(super) async fn supervise(self: Arc<Self>, registry: Arc<ConnectionRegistry>) {
        let mut stop = self.stop.subscribe();
        let mut backoff = Backoff::default();
        if self.server.config.start == StartMode::Lazy {
            let mut wanted = self.demand.subscribe();
            tokio::select! {
                _ = wanted.wait_for(|wanted| *wanted > 0) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        while !*stop.borrow() {
            self.set_starting(&registry);
            let opened = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                opened = self.open(&registry) => opened,
            };
            let why = match opened {
                Ok(connection) => {
                    backoff.reset();
                    let connection = Arc::new(connection);
                    let end = self.serve(&registry, &connection, &mut stop).await;
                    let status = connection.end().await;
                    if *stop.borrow() {
                        break;
                    }
                    let why = match end {
                        ConnectionEnd::Closed(why) => why,
                        ConnectionEnd::LoginChanged => {
                            let text = "somebody has logged in or out, so it is connected anew";
                            self.notice(&registry, "info", text);
                            continue;
                        }
                        ConnectionEnd::NeedsAuth(wanted) => {
                            let state = EntryState::NeedsAuth(wanted);
                            self.wait_for_retry(&registry, state, &mut stop).await;
                            continue;
                        }
                    };
                    let why = self.with_stderr(why, status);
                    self.notice(&registry, "warn", &format!("its connection ended: {why}"));
                    why
                }
                Err(ConnectError::Transient(why)) => {
                    if backoff.tries() == 0 {
                        self.notice(&registry, "warn", &format!("it did not start: {why}"));
                    }
                    registry.set_era(&self.server.hash, None);
                    why
                }
                Err(ConnectError::NeedsAuth(wanted)) => {
                    let state = EntryState::NeedsAuth(wanted);
                    self.wait_for_retry(&registry, state, &mut stop).await;
                    continue;
                }
                Err(ConnectError::Permanent(why)) => {
                    self.wait_for_retry(&registry, EntryState::Failed(why), &mut stop)
                        .await;
                    continue;
                }
                Err(ConnectError::NoProgram(why)) => {
                    self.wait_for_retry(&registry, EntryState::NoProgram(why), &mut stop)
                        .await;
                    continue;
                }
            };
            let wait = backoff.next();
            let tries = backoff.tries();
            self.set(
                &registry,
                EntryState::Backoff {
                    tries,
                    wait,
                    reason: why,
                },
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        self.set(&registry, EntryState::Closed);
    }

    /// Waits until somebody wants it, or has logged in.
    async fn wait_for_retry(
        &self,
        registry: &ConnectionRegistry,
        state: EntryState,
        stop: &mut watch::Receiver<bool>,
    ) {
        let mut wanted = self.demand.subscribe();
        let text = match &state {
            EntryState::NeedsAuth(wanted) if self.server.auth.is_some() => {
                let (name, why) = (&self.server.name, &wanted.reason);
                format!("it wants a login ({why}): `conjure mcp login {name}`")
            }
            other => other.reason(),
        };
        let is_login = matches!(state, EntryState::NeedsAuth(_));
        self.notice(registry, "error", &text);
        self.set(registry, state);
        let login = async {
            let Some(auth) = self.server.auth.as_ref().filter(|_| is_login) else {
                return std::future::pending().await;
            };
            loop {
                tokio::time::sleep(LOGIN_POLL_INTERVAL).await;
                if auth.has_new_token().await {
                    return;
                }
            }
        };
        tokio::select! {
            _ = wanted.changed() => {}
            () = login => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn open(&self, registry: &ConnectionRegistry) -> Result<Connection, ConnectError> {
        let (server, dir) = (&self.server, self.working_dir.as_deref());
        // It may take a person's profile a while to say where a program is, and nobody else waits.
        let place = self.workspace()?;
        let (shell, supervisors) = (&registry.login_shell, &registry.supervisors);
        let peer = Peer::find(server, dir, place, shell, supervisors).await?;
        let closed = |_| ConnectError::Transient("the registry is closed".to_owned());
        let _turn = registry.starting.acquire().await.map_err(closed)?;
        let users = self.users();
        let hub = Arc::clone(&registry.hub);
        let (name, secrets) = (&self.server.name, self.server.secrets.clone());
        let outside = ServerNotices::new(name, secrets, {
            let (hub, users) = (Arc::clone(&hub), users.clone());
            let watched = Arc::clone(&self.watched);
            move |event: &PluginEvent| match event {
                PluginEvent::ResourceUpdated { uri, .. } => {
                    hub.resource_updated(&watched.sessions(uri), uri);
                }
                _ => hub.send(&users, event),
            }
        });
        let opening = ConnectionParts {
            server,
            peer,
            supervisors: &registry.supervisors,
            notices: Arc::new(outside),
            context_source: Arc::new(move || hub.any_context(&users)),
            generation: self.generation() + 1,
            serial: registry.serial(),
            tail: &self.tail,
            previous_era: registry.known_era(&self.server.hash),
        };
        let connection = connect::open(&opening).await?;
        registry.set_era(&self.server.hash, Some(connection.era));
        self.generation
            .store(connection.generation, Ordering::Relaxed);
        Ok(connection)
    }

    /// Lists, and again with every change, until the connection is over.
    async fn serve(
        self: &Arc<Self>,
        registry: &Arc<ConnectionRegistry>,
        connection: &Arc<Connection>,
        stop: &mut watch::Receiver<bool>,
    ) -> ConnectionEnd {
        let mut refresh = RefreshDelay::new(connection.link().changes());
        let _subscribed = subscription::maintain(connection, &self.server, &self.watched);
        self.set(registry, EntryState::Ready(Arc::clone(connection)));
        let (talks, config) = (Arc::clone(connection), Arc::clone(&self.server));
        tokio::spawn(async move {
            // A server that does not listen says what it likes.
            let _ = talks.set_log_level(&config.config).await;
        });
        let anothers = self.until_login_changes(registry, connection);
        tokio::pin!(anothers);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return ConnectionEnd::Closed(String::new()),
                () = &mut anothers => return ConnectionEnd::LoginChanged,
                listed = self.list(registry, connection) => if let Err(wanted) = listed {
                    return ConnectionEnd::NeedsAuth(wanted);
                },
            }
            refresh.note_read();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return ConnectionEnd::Closed(String::new()),
                () = &mut anothers => return ConnectionEnd::LoginChanged,
                why = connection.link().until_closed() => return ConnectionEnd::Closed(why),
                () = refresh.next() => {}
            }
        }
    }

    /// Reads the lists anew.
    ///
    /// # Errors
    /// The credentials that the server wants first.
    async fn list(
        self: &Arc<Self>,
        registry: &Arc<ConnectionRegistry>,
        connection: &Connection,
    ) -> Result<(), AuthDemand> {
        let listing = match Listing::load(connection, &self.server).await {
            // Part of it may have been refused.
            _ if self.has_other_login(connection) => return Ok(()),
            Ok(listing) => listing,
            Err(RequestFailure::ConnectionLost(_)) => return Ok(()),
            Err(trouble) => {
                if let RequestFailure::Failed(failure) = &trouble
                    && let Some(wanted) = failure.auth_demand()
                {
                    return Err(wanted);
                }
                let why = trouble.into_reason();
                self.notice(
                    registry,
                    "warn",
                    &format!("its tools were not listed: {why}"),
                );
                // What was listed before stays.
                self.lists.send_modify(|listed| {
                    listed.error = Some(why);
                    listed.listed_connection = Some(connection.generation);
                });
                return Ok(());
            }
        };
        if listing.tools.iter().any(is_stateful) {
            self.require_session();
        }
        let config = &self.server.config;
        // A sandbox is made of the session's directory, too.
        let has_a_place = config.url.is_some() || (config.cwd.is_some() && !config.sandbox.is_on());
        // One that had a stateful tool may get it again.
        let had_stateful = self.session_required.load(Ordering::Relaxed);
        let may_be_shared = connection.era == Era::Modern && !had_stateful && has_a_place;
        let before = self.lists().listing;
        let is_new = before.as_deref() != Some(&listing);
        for quarantined in &listing.quarantined {
            let known = before.as_ref().map(|before| before.quarantined.as_slice());
            if !known.unwrap_or_default().contains(quarantined) {
                let text = format!("{} is left out: {}", quarantined.name, quarantined.why);
                self.notice(registry, "warn", &text);
            }
        }
        let listing = Arc::new(listing);
        self.cache_listing(registry, connection.era, &listing);
        self.lists.send_replace(ServerLists {
            listing: Some(listing),
            error: None,
            listed_connection: Some(connection.generation),
        });
        registry.insert_entry(self, connection.era, may_be_shared);
        if is_new {
            registry.hub.catalog_changed(&self.users());
        }
        Ok(())
    }

    /// Keeps a list for the next time; that it cannot be is no trouble of a session.
    fn cache_listing(&self, registry: &Arc<ConnectionRegistry>, era: Era, listing: &Listing) {
        if let Some(note) = registry.cache.prepare_write(&self.server, era, listing) {
            let registry = Arc::clone(registry);
            tokio::task::spawn_blocking(move || {
                let _ = registry.cache.write(&note);
            });
        }
    }

    /// Waits until the connection is another login's than the one that there is, and until what
    /// was sent with that has its answers.
    async fn until_login_changes(&self, registry: &ConnectionRegistry, connection: &Connection) {
        let Some(auth) = &self.server.auth else {
            return std::future::pending().await;
        };
        let mut logins = auth.logins();
        while !self.has_other_login(connection) {
            let _ = tokio::time::timeout(LOGIN_POLL_INTERVAL, logins.changed()).await;
            auth.check_stored_login().await;
        }
        self.set_starting(registry);
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, connection.link().until_quiet()).await;
    }
}

/// How a connection ended.
enum ConnectionEnd {
    Closed(String),
    /// The connection has served another login than there is now.
    LoginChanged,
    /// The server lists nothing without other credentials.
    NeedsAuth(AuthDemand),
}
