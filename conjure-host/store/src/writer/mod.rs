//! The one task that writes threads, on a thread of its own.
//!
//! The task takes appends from a queue, puts all that waits into one transaction, and answers each. It
//! also opens and closes threads, since who may write a thread and what comes next in it are known
//! here. It knows nothing of what entries mean.

mod clear;
mod encode;
mod group;
mod imported_thread;
mod insert;
mod lease;
mod opening;
mod settling;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::checkpoints;
use crate::database::Database;
use crate::platform::LiveWriter;
use crate::{PendingAppend, Record, StoreError, ThreadId, ThreadLog};

use insert::Statements;
use lease::Lease;

pub(crate) use imported_thread::write_imported_thread;
pub(crate) use insert::EVENT_COLUMNS;
pub(crate) use lease::{
    LEASE_EXPIRY, expired_among, expired_beside, is_dead, is_expired, lock_writer,
};

/// How much may wait to be written, in bytes.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// The largest append, in bytes.
const MAX_APPEND_BYTES: usize = QUEUE_BYTES / 2;
/// Transactions that nobody waits for urgently are at least so far apart: what comes meanwhile
/// goes into one.
const COMMIT_SPACING: Duration = Duration::from_millis(3);
/// How long events without entries wait for those of other threads, while several threads are appended
/// to.
const GATHER_TIME: Duration = Duration::from_millis(1);
/// How long after an append of another thread than the one before it events are gathered.
const GATHER_WINDOW: Duration = Duration::from_millis(50);
/// How often a writer that is idle says that it lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(4);
/// How long the writer waits for a database that does not answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for clearing a thread, which may be a long one.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(300);
/// A transaction takes in no more than this, in bytes.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;

/// A command to the writer.
enum WriterCommand {
    Append(Box<Append>),
    Open(OpenRequest),
    Release {
        lease: u64,
    },
    Register {
        answer: oneshot::Sender<Result<String, StoreError>>,
    },
    Clear {
        thread: ThreadId,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    Remove {
        thread: ThreadId,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
}

struct Append {
    lease: u64,
    thread: ThreadId,
    rows: encode::Rows,
    durable: bool,
    answer: oneshot::Sender<Result<(), StoreError>>,
    /// Place of the append in the queue, until it is answered.
    queue_permit: OwnedSemaphorePermit,
}

/// A request to open a thread for writing.
struct OpenRequest {
    thread: ThreadId,
    answer: oneshot::Sender<Result<WriteGrant, StoreError>>,
    /// Channel that returns the lease.
    commands: mpsc::UnboundedSender<WriterCommand>,
}

/// The right to write a thread, with where the thread stands.
struct WriteGrant {
    lease: LeaseGuard,
    epoch: u64,
    last_seq: u64,
}

/// The queue of commands to the writer.
#[derive(Clone)]
pub(crate) struct WriterQueue {
    commands: mpsc::UnboundedSender<WriterCommand>,
    /// Bounds the queue: a permit a byte.
    capacity: Arc<Semaphore>,
    /// Told of appends that should not wait for others.
    urgent: Arc<Notify>,
    /// The writer's id in the database; empty while it has none.
    id: Arc<RwLock<String>>,
    /// Address at which this process serves the API.
    address: Arc<RwLock<Option<String>>>,
}

impl WriterQueue {
    /// Starts a writer, on a thread of its own: a transaction is a handful of round trips between
    /// it and the database's thread, and none of them goes through the workers of a runtime.
    pub(crate) fn start(db: Arc<Database>) -> Result<Self, StoreError> {
        let (commands, received) = mpsc::unbounded_channel();
        let queue = Self {
            commands,
            capacity: Arc::new(Semaphore::new(QUEUE_BYTES)),
            urgent: Arc::default(),
            id: Arc::default(),
            address: Arc::default(),
        };
        let writer = WriterTask {
            db,
            id: String::new(),
            shared_id: Arc::clone(&queue.id),
            address: Arc::clone(&queue.address),
            live_writer: None,
            groups: 0,
            leases: HashMap::new(),
            next_lease: 1,
            statements: Statements::default(),
            recent_rows: 0,
            newest_lease: None,
            lease_changed: None,
        };
        let urgent = Arc::clone(&queue.urgent);
        let shortening = checkpoints::keep_log_short(Arc::clone(&writer.db));
        let writing = async move {
            let shortening = tokio::spawn(shortening);
            writer.run(received, urgent).await;
            shortening.abort();
        };
        let started = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("store-aside")
            .build()
            .and_then(|runtime| {
                std::thread::Builder::new()
                    .name("store-writer".to_owned())
                    .spawn(move || runtime.block_on(writing))
            });
        match started {
            Ok(_) => Ok(queue),
            Err(error) => Err(StoreError::io("start the thread", "store-writer")(error)),
        }
    }

    /// Opens a thread.
    pub(crate) async fn open(&self, thread: &ThreadId) -> Result<ThreadWriter, StoreError> {
        let WriteGrant {
            lease: held,
            epoch,
            last_seq,
        } = self
            .ask(|answer| {
                WriterCommand::Open(OpenRequest {
                    thread: thread.clone(),
                    answer,
                    commands: self.commands.clone(),
                })
            })
            .await?;
        Ok(ThreadWriter {
            queue: self.clone(),
            thread: thread.clone(),
            held,
            epoch,
            last_seq,
        })
    }

    /// The writer's id in the database, under which this process owns threads and runs.
    pub(crate) async fn writer(&self) -> Result<String, StoreError> {
        if let Some(id) = self.known_writer() {
            return Ok(id);
        }
        self.ask(|answer| WriterCommand::Register { answer }).await
    }

    /// Says where this process serves the API, whenever its writer is made known.
    pub(crate) fn set_address(&self, address: &str) {
        let mut known = self.address.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(address.to_owned());
    }

    /// Id of the writer, where the store has one already.
    pub(crate) fn known_writer(&self) -> Option<String> {
        let id = self.id.read().unwrap_or_else(PoisonError::into_inner);
        let known = !id.is_empty() && !self.commands.is_closed();
        known.then(|| id.clone())
    }

    pub(crate) async fn clear(&self, thread: &ThreadId) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.ask(|answer| WriterCommand::Clear { thread, answer })
            .await
    }

    pub(crate) async fn remove(&self, thread: &ThreadId) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.ask(|answer| WriterCommand::Remove { thread, answer })
            .await
    }

    /// Writes what waits, gives all threads back, and ends the writer.
    pub(crate) async fn close(&self) {
        let (answer, done) = oneshot::channel();
        if self.commands.send(WriterCommand::Close { answer }).is_ok() {
            self.urgent.notify_one();
            let _ = done.await;
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> WriterCommand,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.commands
            .send(command(answer))
            .map_err(|_| StoreError::Closed)?;
        self.urgent.notify_one();
        answered.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// A thread that is open for writing.
pub(crate) struct ThreadWriter {
    queue: WriterQueue,
    thread: ThreadId,
    held: LeaseGuard,
    epoch: u64,
    last_seq: u64,
}

impl ThreadLog for ThreadWriter {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn append(&mut self, records: &[Record], durable: bool) -> PendingAppend {
        self.try_append(records, durable)
            .unwrap_or_else(|error| PendingAppend::ready(Err(error)))
    }
}

impl ThreadWriter {
    fn try_append(
        &mut self,
        records: &[Record],
        durable: bool,
    ) -> Result<PendingAppend, StoreError> {
        let rows = encode::rows(&self.thread, records)?;
        let too_large = StoreError::TooLarge {
            size: rows.size,
            limit: MAX_APPEND_BYTES,
        };
        let room = u32::try_from(rows.size)
            .ok()
            .filter(|_| rows.size <= MAX_APPEND_BYTES)
            .ok_or(too_large)?;
        let room = Arc::clone(&self.queue.capacity)
            .try_acquire_many_owned(room)
            .map_err(|_| StoreError::Behind { limit: QUEUE_BYTES })?;
        let (answer, answered) = oneshot::channel();
        let append = Append {
            lease: self.held.lease,
            thread: self.thread.clone(),
            rows,
            durable,
            answer,
            queue_permit: room,
        };
        self.queue
            .commands
            .send(WriterCommand::Append(Box::new(append)))
            .map_err(|_| StoreError::Closed)?;
        if durable {
            self.queue.urgent.notify_one();
        }
        Ok(PendingAppend::pending(answered))
    }
}

/// The lease of a thread. Dropping it gives the thread back.
struct LeaseGuard {
    lease: u64,
    commands: mpsc::UnboundedSender<WriterCommand>,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let lease = self.lease;
        let _ = self.commands.send(WriterCommand::Release { lease });
    }
}

/// The state of the writer's task.
struct WriterTask {
    db: Arc<Database>,
    /// Id of the writer in the database; empty while it has no thread open.
    id: String,
    /// Id of the writer, for those who ask for it.
    shared_id: Arc<RwLock<String>>,
    /// Address at which this process serves the API.
    address: Arc<RwLock<Option<String>>>,
    live_writer: Option<LiveWriter>,
    /// Transactions so far, as the database counts them.
    groups: u64,
    leases: HashMap<u64, Lease>,
    next_lease: u64,
    statements: Statements,
    /// Rows that this writer added to `recent_events` since they were moved last.
    recent_rows: usize,
    /// The lease that the newest append was of.
    newest_lease: Option<u64>,
    /// When an append of another lease than the one before it came last.
    lease_changed: Option<Instant>,
}

impl WriterTask {
    async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<WriterCommand>,
        urgent: Arc<Notify>,
    ) {
        let mut ended = None;
        let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut due = Instant::now();
        while ended.is_none() {
            let first = tokio::select! {
                first = commands.recv() => match first {
                    Some(first) => first,
                    None => break,
                },
                _ = beat.tick(), if !self.id.is_empty() => {
                    let beaten = async {
                        self.beat().await;
                        Ok(())
                    };
                    let what = "say that this process lives";
                    let _ = with_timeout(WRITE_TIMEOUT, what, beaten).await;
                    continue;
                }
            };
            let now = Instant::now();
            let begin = match &first {
                WriterCommand::Append(append) if append.durable => now,
                WriterCommand::Append(append)
                    if append.rows.entries.is_empty() && self.is_shared(now) =>
                {
                    due.max(now + GATHER_TIME)
                }
                WriterCommand::Append(_) => due,
                _ => now,
            };
            if now < begin {
                tokio::select! {
                    () = urgent.notified() => {}
                    () = tokio::time::sleep_until(begin) => {}
                }
            }
            ended = self.take(first, &mut commands).await;
            if self.recent_rows >= self.max_recent_rows() {
                self.settle().await;
            }
            due = Instant::now() + COMMIT_SPACING;
        }
        self.end().await;
        if let Some(ended) = ended {
            self.db.close().await;
            let _ = ended.send(());
        }
    }

    /// Does what waits; who closed the store, when somebody did.
    async fn take(
        &mut self,
        first: WriterCommand,
        commands: &mut mpsc::UnboundedReceiver<WriterCommand>,
    ) -> Option<oneshot::Sender<()>> {
        let (mut appends, mut openings) = (Vec::new(), Vec::new());
        let mut size = 0;
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                WriterCommand::Append(append) => {
                    size += append.rows.size;
                    appends.push(*append);
                    if size > MAX_GROUP_BYTES {
                        break;
                    }
                }
                WriterCommand::Open(opening) => openings.push(opening),
                other => {
                    self.write(std::mem::take(&mut appends)).await;
                    self.open_all(std::mem::take(&mut openings)).await;
                    if let WriterCommand::Close { answer } = other {
                        return Some(answer);
                    }
                    self.control(other).await;
                }
            }
            next = commands.try_recv().ok();
        }
        self.write(appends).await;
        self.open_all(openings).await;
        None
    }

    /// Whether more than one thread is being appended to.
    fn is_shared(&self, now: Instant) -> bool {
        let changed = self.lease_changed;
        changed.is_some_and(|changed| now.duration_since(changed) < GATHER_WINDOW)
    }

    async fn control(&mut self, command: WriterCommand) {
        match command {
            WriterCommand::Release { lease } => {
                let released = async {
                    self.release(lease).await;
                    Ok(())
                };
                // The thread is free when this writer is silent or gone, too.
                let _ = with_timeout(WRITE_TIMEOUT, "close the thread", released).await;
            }
            WriterCommand::Register { answer } => {
                let registered =
                    with_timeout(WRITE_TIMEOUT, "make this process known", self.register()).await;
                let _ = answer.send(registered.map(|()| self.id.clone()));
            }
            WriterCommand::Clear { thread, answer } => {
                let cleared =
                    with_timeout(CLEAR_TIMEOUT, "clear the thread", self.clear(&thread)).await;
                let _ = answer.send(cleared);
            }
            WriterCommand::Remove { thread, answer } => {
                let removed =
                    with_timeout(CLEAR_TIMEOUT, "remove the thread", self.remove(&thread)).await;
                let _ = answer.send(removed);
            }
            WriterCommand::Append(_) | WriterCommand::Open(_) | WriterCommand::Close { .. } => {}
        }
    }
}

/// Result of an operation of the database, or an error after a time limit.
async fn with_timeout<T>(
    limit: Duration,
    what: &'static str,
    done: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let done = tokio::time::timeout(limit, done).await;
    done.unwrap_or_else(|_| Err(no_answer(limit, what)))
}

fn no_answer(limit: Duration, what: &'static str) -> StoreError {
    StoreError::Unreachable {
        what,
        reason: format!("no answer in {} seconds", limit.as_secs()),
    }
}
