//! Word of what other processes write to the same database, as it comes: PostgreSQL notifies, and
//! an SQLite file is looked at. A signal says where to look again and nothing else, and it may come
//! for nothing; whoever must not miss anything looks now and then without one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use crate::database::{Database, Transaction};
use crate::sql::DatabaseKind;
use crate::{Store, StoreError, ThreadId, row};

/// Tells of requests and answers, by a writer's or a request's id.
pub(crate) const REQUESTS_CHANNEL: &str = "conjure_requests";
/// Tells of threads, by their ids.
pub(crate) const THREADS_CHANNEL: &str = "conjure_threads";
/// Tells that sessions, or turns of them, are others, by who says so: whoever hears it looks at all.
const SESSIONS_CHANNEL: &str = "conjure_sessions";
/// How often a file is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Between two tries to reach a server.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Signals that one may be behind before all of them are one.
const CHANNEL_CAPACITY: usize = 256;
/// The most bytes of the ids in one notification; PostgreSQL takes 8,000.
const MAX_PAYLOAD_BYTES: usize = 4_000;

/// A part of the store in which something may be new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSignal {
    /// Anywhere.
    Anywhere,
    /// Among requests and their answers.
    Requests,
    /// A change in this thread.
    Thread(ThreadId),
    /// Among sessions and the turns that run or wait in them.
    Sessions,
}

/// Signals of writes by other processes, while this value lives.
pub struct StoreSignals {
    receiver: broadcast::Receiver<StoreSignal>,
    _watch: Arc<Watch>,
}

impl StoreSignals {
    /// The next signal. Safe to drop and call again.
    pub async fn next(&mut self) -> StoreSignal {
        match self.receiver.recv().await {
            Ok(signal) => signal,
            Err(broadcast::error::RecvError::Lagged(_)) => StoreSignal::Anywhere,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The task that tells, as long as anybody listens.
pub(crate) struct Watch {
    sender: broadcast::Sender<StoreSignal>,
    task: Option<AbortHandle>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The one watch of a database, shared by its readers.
pub(crate) struct SharedWatch {
    watch: Mutex<Weak<Watch>>,
    /// Under which name this opening of the database tells others; what comes of itself is no news.
    origin: String,
}

impl Default for SharedWatch {
    fn default() -> Self {
        Self {
            watch: Mutex::default(),
            origin: uuid::Uuid::now_v7().to_string(),
        }
    }
}

impl Store {
    /// Word of what other processes write, from now on.
    pub fn signals(&self) -> StoreSignals {
        let slot = &self.db().watch.watch;
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = known.upgrade().unwrap_or_else(|| {
            let watch = Arc::new(Watch::start(self.shared_db()));
            *known = Arc::downgrade(&watch);
            watch
        });
        StoreSignals {
            receiver: watch.sender.subscribe(),
            _watch: watch,
        }
    }
}

impl Store {
    /// Tells other processes that sessions or their turns are others by now; where they look by
    /// themselves, nothing. What was written holds whether or not they hear of it.
    pub(crate) async fn notify_sessions(&self) {
        if self.db().backend() != DatabaseKind::Postgres {
            return;
        }
        const TELLING: &str = "tell other processes of a session";
        let own = self.db().watch.origin.as_str();
        let values = vec![SESSIONS_CHANNEL.into(), own.into()];
        let told = self
            .db()
            .execute(false, "SELECT pg_notify($1, $2)", values, TELLING);
        if let Err(error) = told.await {
            tracing::debug!(%error, "other processes see it when they look again");
        }
    }
}

impl Watch {
    fn start(db: Arc<Database>) -> Self {
        let told = broadcast::Sender::new(CHANNEL_CAPACITY);
        let sender = told.clone();
        let task = match (db.listen_options(), db.file()) {
            (Some(options), _) => {
                let own = db.watch.origin.clone();
                Some(tokio::spawn(listen(options, own, sender)))
            }
            (None, Some(file)) => {
                let file = file.to_owned();
                Some(tokio::spawn(poll_file(db, file, sender)))
            }
            // Nobody else has it.
            (None, None) => None,
        };
        Self {
            sender: told,
            task: task.map(|task| task.abort_handle()),
        }
    }
}

/// Listens to a PostgreSQL server. A connection that is lost is made again.
async fn listen(options: PgConnectOptions, own: String, sender: broadcast::Sender<StoreSignal>) {
    loop {
        if let Err(error) = next_notification(options.clone(), &own, &sender).await {
            tracing::debug!(%error, "word of other processes is not heard");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn next_notification(
    options: PgConnectOptions,
    own: &str,
    sender: &broadcast::Sender<StoreSignal>,
) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect_with(options).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener
        .listen_all([REQUESTS_CHANNEL, THREADS_CHANNEL, SESSIONS_CHANNEL])
        .await?;
    // Nobody listens any more when that fails, which ends this task.
    let _ = sender.send(StoreSignal::Anywhere);
    loop {
        let Some(heard) = listener.try_recv().await? else {
            let _ = sender.send(StoreSignal::Anywhere);
            continue;
        };
        if heard.channel() == REQUESTS_CHANNEL {
            let _ = sender.send(StoreSignal::Requests);
            continue;
        }
        if heard.channel() == SESSIONS_CHANNEL {
            if heard.payload() != own {
                let _ = sender.send(StoreSignal::Sessions);
            }
            continue;
        }
        for id in heard.payload().split_whitespace() {
            let _ = sender.send(StoreSignal::Thread(ThreadId::stored(id.to_owned())));
        }
    }
}

/// Looks at an SQLite file: at what is beside it while nothing changes, and then whether it was
/// this process that changed it.
async fn poll_file(db: Arc<Database>, file: PathBuf, sender: broadcast::Sender<StoreSignal>) {
    let mut name = file.into_os_string();
    name.push("-wal");
    let log = PathBuf::from(name);
    let (mut seen, mut version) = (state(&log), version(&db).await.ok());
    let mut every = tokio::time::interval(POLL_INTERVAL);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut again = true;
    // From here on nothing is missed.
    let _ = sender.send(StoreSignal::Anywhere);
    loop {
        every.tick().await;
        let now = state(&log);
        let has_changed = now != seen;
        seen = now;
        // What is written in the same tick of the file system's clock as a look shows at the next.
        if !has_changed && !std::mem::take(&mut again) {
            continue;
        }
        again = has_changed;
        match self::version(&db).await {
            Ok(now) if version != Some(now) => {
                version = Some(now);
                let _ = sender.send(StoreSignal::Anywhere);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "word of other processes is not heard"),
        }
    }
}

/// Size and time of a file, which change when it is written.
fn state(file: &Path) -> Option<(SystemTime, u64)> {
    let about = std::fs::metadata(file).ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// A number that changes when another connection than the one that writes here has written.
async fn version(db: &Database) -> Result<u64, StoreError> {
    const LOOKING: &str = "look for changes";
    let row = db
        .write_connection()
        .await
        .one("PRAGMA data_version", Vec::new())
        .await;
    let row = row.map_err(StoreError::of(LOOKING))?;
    row.map_or(Ok(0), |row| row::number(&row, "data_version"))
}

impl Transaction<'_> {
    /// Tells other processes when this is committed; where they look by themselves, nothing.
    pub(crate) async fn notify(&self, channel: &str, text: &str) -> Result<(), StoreError> {
        if self.backend() != DatabaseKind::Postgres {
            return Ok(());
        }
        let sql = "SELECT pg_notify($1, $2)";
        self.one(sql, [channel.into(), text.into()]).await.map(drop)
    }

    /// Tells of threads.
    pub(crate) async fn notify_threads<'a>(
        &self,
        threads: impl Iterator<Item = &'a ThreadId>,
    ) -> Result<(), StoreError> {
        if self.backend() != DatabaseKind::Postgres {
            return Ok(());
        }
        let mut payload = String::new();
        for thread in threads {
            if payload.len() + thread.as_str().len() >= MAX_PAYLOAD_BYTES {
                self.notify(THREADS_CHANNEL, &std::mem::take(&mut payload))
                    .await?;
            }
            payload.push_str(thread.as_str());
            payload.push(' ');
        }
        if payload.is_empty() {
            return Ok(());
        }
        self.notify(THREADS_CHANNEL, &payload).await
    }
}
