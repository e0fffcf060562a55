//! The server that is announced for a data directory, for as long as it answers, and the events of a
//! thread from there.
//!
//! A server may hang or be killed at any time. Whatever is asked then goes through the database, as it
//! does without a server: there the process that has a turn is asked too, or named where it does not
//! answer.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conjure_client::{RemoteServer, ServerError, ServerEvents};
use conjure_runtime::manager::{Attendant, EventStream, Manager};
use conjure_runtime::session::Stamped;

use super::error::CliError;

/// How long a server that gave no sign of life is not asked for one again.
const PROBE_BACKOFF: Duration = Duration::from_secs(10);

/// The server of a data directory.
#[derive(Clone)]
pub(crate) struct AnnouncedServer {
    server: RemoteServer,
    /// Time at which the server last gave no sign of life.
    silent_at: Arc<Mutex<Option<Instant>>>,
}

impl AnnouncedServer {
    /// The server that runs for a data directory; nothing where none does.
    pub(crate) fn find(data_dir: &Path) -> Option<Self> {
        RemoteServer::find(data_dir).map(|server| Self {
            server,
            silent_at: Arc::default(),
        })
    }

    /// The server, whether it answers or not.
    pub(crate) fn server(&self) -> &RemoteServer {
        &self.server
    }

    /// The server, where it answers.
    pub(crate) async fn responsive_server(&self) -> Option<&RemoteServer> {
        if self
            .silent_at()
            .is_some_and(|silent_at| silent_at.elapsed() < PROBE_BACKOFF)
        {
            return None;
        }
        let probed = self.server.probe().await;
        let is_silent = matches!(probed, Err(ServerError::Silent { .. }));
        let before = self.replace_silent_at(is_silent.then(Instant::now));
        match probed {
            Ok(()) => return Some(&self.server),
            // The person is told once for as long as it lasts.
            Err(silent) if is_silent && before.is_none() => {
                tracing::warn!("{silent}; what is asked goes through the database");
            }
            Err(error) => tracing::debug!("{error}"),
        }
        None
    }

    fn silent_at(&self) -> Option<Instant> {
        *self
            .silent_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the server gave a sign of life; what was known before.
    fn replace_silent_at(&self, silent_at: Option<Instant>) -> Option<Instant> {
        let mut known = self
            .silent_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut known, silent_at)
    }
}

/// The events of a thread, read here or from a server.
pub(crate) enum EventFeed {
    Local {
        events: Box<EventStream>,
        /// The person who follows: turns of other processes wait for them.
        _person: Option<Attendant>,
    },
    Remote(Box<ServerFeed>),
}

/// The events of a thread from a server, and where they are read when that is gone.
pub(crate) struct ServerFeed {
    pub(crate) events: ServerEvents,
    pub(crate) manager: Manager,
    /// Whether a person follows.
    pub(crate) attended: bool,
}

impl ServerFeed {
    /// The events behind those that were seen, from the database.
    async fn local_feed(&self) -> Result<EventFeed, CliError> {
        let (manager, thread) = (&self.manager, self.events.thread());
        Ok(EventFeed::Local {
            events: Box::new(manager.events(thread, self.events.last_seen()).await?),
            _person: self.attended.then(|| manager.attend(Some(thread))),
        })
    }
}

impl EventFeed {
    /// The next event; nothing when none comes any more. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Stamped>, CliError> {
        loop {
            let feed = match self {
                Self::Local { events, .. } => {
                    let event = events.next().await?;
                    return Ok(event.map(|event| Stamped::clone(&event)));
                }
                Self::Remote(feed) => feed,
            };
            match feed.events.next().await {
                Ok(event) => return Ok(Some(event)),
                Err(gone @ ServerError::Unreachable { .. }) => {
                    tracing::warn!("{gone}; what follows comes from the database");
                    *self = feed.local_feed().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
