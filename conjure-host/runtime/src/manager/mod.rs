//! Saved sessions that run: each has one actor, a task that takes what is asked of it in order,
//! opens its thread when there is something to do, and closes it when there was nothing for a
//! while. A run belongs to no client; whoever comes back finds in the log what they missed.
//!
//! ```no_run
//! use conjure_core::chat::Message;
//! use conjure_providers::auths::{Auths, KeySources};
//! use conjure_runtime::{Host, manager::{Manager, ManagerOptions, NewSession}};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let data_dir = conjure_config::env::data_dir();
//! let store = conjure_store::open(&data_dir).await?;
//! let auths = Auths::over(store.clone(), KeySources::new(&data_dir));
//! let host = Host::builder().default_plugins().log(store.clone()).auths(auths).build().await?;
//! let manager = Manager::start(host, store, ManagerOptions::default()).await?;
//! let session = manager.create(NewSession::new("work", "claude-sonnet-4-5", "/home/ada")).await?;
//! let turn = manager.say(&session.id, Message::user("What is in this directory?"), None).await?;
//! println!("{:?}", manager.wait(&turn.id).await?.state);
//! # Ok(()) }
//! ```

mod abandoned_threads;
mod abandoned_turns;
mod abandoned_usage;
mod active_thread;
mod actor;
mod actor_thread;
mod adoption;
mod approvals;
mod attendance;
mod changes;
mod error;
mod event_stream;
mod files;
mod heartbeat;
mod interrupted_turns;
mod opening;
mod opening_turn;
mod questions;
mod remote;
mod requests;
mod run_ends;
mod running_turn;
mod runs;
mod saving;
mod sealing;
mod server_settings;
mod session_names;
mod session_row;
mod session_script;
mod session_watch;
mod signals;
mod spec;
mod terms;
mod thread_marks;
mod thread_watch;
mod threads;
mod turn_files;
mod turn_queue;
mod turn_runner;
mod view;
mod working_dir;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use approvals::{Approval, DecisionScope};
pub use attendance::Attendant;
pub use changes::{SessionChange, SessionChangeStream};
pub use error::ManagerError;
pub use event_stream::EventStream;
pub use files::{FetchError, FetchedFile};
pub use questions::{PendingQuestion, QuestionReply};
pub use remote::{RemoteError, RemoteErrorKind};
pub use runs::Turn;
pub use spec::spec_of;
pub use terms::{TurnRequest, TurnTerms};
pub use view::{
    ChatRetention, NewSession, PersonaCopy, SessionPatch, SessionState, SessionView, ThreadChoice,
    ThreadView,
};

use crate::Host;
use active_thread::ActiveThread;
use actor::SavedSessionActor;
use adoption::OwnTurns;
use attendance::Attendance;
use changes::States;
use conjure_config::SyncBox;
use conjure_store::{Store, ThreadId};
use interrupted_turns::InterruptedTurns;
use requests::ActorRequest;
use run_ends::PendingRunEnds;
use thread_marks::PendingMarks;
use thread_watch::ThreadWatches;

/// How long sessions have to end when the deadline of a shutdown has passed: each ends its turn in
/// ten seconds where the database and the session answer.
const END_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// Messages that may wait at an actor.
const MAILBOX: usize = 64;

/// Options of a manager.
#[derive(Debug, Clone, Copy)]
pub struct ManagerOptions {
    /// After how long without anything to do a session's thread is closed; 10 minutes by default.
    pub idle: Duration,
    /// How long a call waits for a person's decision before it is denied, and a question for an
    /// answer before it is cancelled; 10 minutes by default.
    pub approval: Duration,
    /// For how long somebody who could decide in an unattended turn still counts after they left, and
    /// who may come yet from its beginning on; 30 s by default, so that a page may be loaded anew.
    pub absence: Duration,
    /// How often it is looked whether runs are alive; 5 s by default.
    pub heartbeat_interval: Duration,
    /// After how long without a sign of life a run is ended and marked as lost; a minute by
    /// default.
    pub silence: Duration,
    /// How long a session waits for a thread that another one writes; 30 s by default.
    pub patience: Duration,
    /// The most follow-ups that wait in a session; 100 by default.
    pub max_queued: usize,
    /// Whether turns that waited in a process that is gone are run here as soon as that is known;
    /// they are by default. Else that holds for sessions in which something was said from here.
    pub adopts: bool,
    /// Whether turns that other processes asked for are begun here also when nothing waits any more
    /// that was said here; they are by default. Else they are left to those processes, as by a program
    /// that ends with its own turn.
    pub begins_for_others: bool,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(10),
            approval: Duration::from_mins(10),
            absence: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(5),
            silence: Duration::from_mins(1),
            patience: Duration::from_secs(30),
            max_queued: 100,
            adopts: true,
            begins_for_others: true,
        }
    }
}

/// Keeps the sessions of a host. Cloning it is cheap.
#[derive(Clone)]
pub struct Manager {
    inner: Arc<ManagerState>,
}

/// The state that a manager's clones share.
pub(crate) struct ManagerState(SyncBox<ManagerParts>);

/// What [`ManagerState`] consists of.
pub(crate) struct ManagerParts {
    host: Host,
    store: Store,
    options: ManagerOptions,
    /// The actors, by session.
    actors: Mutex<HashMap<String, mpsc::Sender<Box<ActorRequest>>>>,
    /// Threads that are open here.
    active_threads: Mutex<HashMap<ThreadId, ActiveThread>>,
    /// Notifies followers when a thread is opened or closed.
    thread_watches: ThreadWatches,
    /// Followed threads that other processes wrote to.
    pending_marks: Arc<PendingMarks>,
    /// Other processes may have changed sessions.
    sessions_changed: Arc<Notify>,
    states: States,
    /// Ends of runs that are not in the store yet.
    run_ends: PendingRunEnds,
    /// Turns that ended without an end in their thread's log.
    interrupted: InterruptedTurns,
    /// Turns started by this process, so that adoption leaves them alone.
    own_turns: OwnTurns,
    attendance: Attendance,
    /// Woken when the first follower arrives; polling of what other processes wrote starts then.
    listening: Arc<Notify>,
    /// Nothing new is begun.
    closing: CancellationToken,
    /// What runs is ended.
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Deref for ManagerState {
    type Target = ManagerParts;

    fn deref(&self) -> &ManagerParts {
        &self.0
    }
}

impl Manager {
    /// A manager for a host whose threads are in this store. Ends the runs that a process left
    /// behind which is no more: they are interrupted, and nothing of them is repeated. Those that
    /// waited there are run here, in their order and before what is said later.
    ///
    /// # Errors
    /// [`ManagerError::Store`].
    #[boxed]
    pub async fn start(
        host: Host,
        store: Store,
        options: ManagerOptions,
    ) -> Result<Self, ManagerError> {
        let inner = Arc::new(ManagerState(SyncBox::new(ManagerParts {
            host,
            store,
            options,
            actors: Mutex::default(),
            active_threads: Mutex::default(),
            thread_watches: ThreadWatches::default(),
            pending_marks: Arc::default(),
            sessions_changed: Arc::default(),
            states: States::default(),
            run_ends: PendingRunEnds::default(),
            interrupted: InterruptedTurns::default(),
            own_turns: OwnTurns::default(),
            attendance: Attendance::default(),
            listening: Arc::default(),
            closing: CancellationToken::new(),
            ending: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })));
        inner.take_over_abandoned().await?;
        inner.record_unbegun().await?;
        inner.adopt().await?;
        let beating = heartbeat::run_heartbeat(
            Arc::downgrade(&inner),
            inner.closing.clone(),
            options.heartbeat_interval,
        );
        inner.tasks.spawn(beating);
        let attendance = inner.attendance.changes();
        let closing = inner.closing.clone();
        inner.tasks.spawn(attendance::announce(
            Arc::downgrade(&inner),
            attendance,
            closing,
        ));
        let marked = inner.store.marked_threads();
        let looks = Arc::clone(&inner.pending_marks);
        tokio::spawn(thread_marks::watch_marks(
            Arc::downgrade(&inner),
            marked,
            looks,
        ));
        tokio::spawn(session_watch::watch_sessions(Arc::downgrade(&inner)));
        // Not among the tasks that a shutdown waits for: it serves them to their end.
        let listening = Arc::clone(&inner.listening);
        tokio::spawn(signals::listen(Arc::downgrade(&inner), listening));
        Ok(Self { inner })
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Says where this process serves the API: others that share the database name that place where
    /// they cannot reach it themselves.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn announce(&self, address: &str) -> Result<(), ManagerError> {
        Ok(self.inner.store.announce(address).await?)
    }

    /// Begins nothing any more, lets what runs come to its end for this long, ends the rest with
    /// what came so far kept, and closes every session. Turns that wait here and that other processes
    /// asked for are left to these. A session that does not end within 15 s more is left to the end of
    /// the process, as after a crash.
    #[boxed]
    pub async fn shutdown(&self, deadline: Duration) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        let ended = tokio::time::timeout(deadline, self.inner.tasks.wait()).await;
        if ended.is_err() {
            self.inner.ending.cancel();
            let ended = tokio::time::timeout(END_TIMEOUT, self.inner.tasks.wait()).await;
            if ended.is_err() {
                let left = self.inner.tasks.len();
                tracing::error!("{left} tasks of sessions did not end; they end with the process");
            }
        }
    }

    /// Asks a session's actor, which is made when there is none.
    async fn ask<T>(
        &self,
        session: &str,
        ask: impl Fn(tokio::sync::oneshot::Sender<T>) -> ActorRequest,
    ) -> Result<T, ManagerError> {
        // An actor that ends while it is asked has taken nothing; the next one does.
        loop {
            if self.inner.closing.is_cancelled() {
                return Err(ManagerError::Closing);
            }
            let actor = self.inner.actor(session).await?;
            let (done, answer) = tokio::sync::oneshot::channel();
            if actor.send(Box::new(ask(done))).await.is_ok()
                && let Ok(answer) = answer.await
            {
                return Ok(answer);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asks a session's actor where there is one.
    async fn ask_running<T>(
        &self,
        session: &str,
        ask: impl FnOnce(tokio::sync::oneshot::Sender<T>) -> ActorRequest,
    ) -> Option<T> {
        let actor = lock(&self.inner.actors).get(session).cloned()?;
        let (done, answer) = tokio::sync::oneshot::channel();
        actor.send(Box::new(ask(done))).await.ok()?;
        answer.await.ok()
    }
}

impl ManagerState {
    /// An actor is over; another one may have taken its place.
    fn forget(&self, session: &str) {
        let mut actors = lock(&self.actors);
        if actors.get(session).is_some_and(mpsc::Sender::is_closed) {
            actors.remove(session);
        }
    }

    /// The actor of a session.
    async fn actor(
        self: &Arc<Self>,
        session: &str,
    ) -> Result<mpsc::Sender<Box<ActorRequest>>, ManagerError> {
        if let Some(actor) = lock(&self.actors).get(session).cloned()
            && !actor.is_closed()
        {
            return Ok(actor);
        }
        let row = self.store.session(session).await?;
        let mut actors = lock(&self.actors);
        if let Some(actor) = actors.get(session)
            && !actor.is_closed()
        {
            return Ok(actor.clone());
        }
        let (asks, mailbox) = mpsc::channel(MAILBOX);
        let actor = Box::new(SavedSessionActor::new(Arc::clone(self), row.id, mailbox));
        self.tasks.spawn(actor.run_supervised());
        actors.insert(session.to_owned(), asks.clone());
        self.listening.notify_one();
        Ok(asks)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
