//! The records of an open thread on their way into its log, and from there to who follows the thread.
//!
//! Entries and events get their numbers here. While one batch is on its way the next one gathers, so that
//! a reply that comes in many pieces is written in few. The log's answer shows a batch and hands the next
//! one over: no task has to be woken for that, as long as both are nothing but pieces of texts. So a piece of
//! a reply wakes who follows it, and not the session. All else is handed over and shown by the session.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker, ready};

use conjure_core::chat::{Event, EventId};
use conjure_core::log::{Entry, EntryBody};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::unconstrained;

use super::hub::{Hub, Stamped, is_piece};
use super::record_weight::weight;
use conjure_store::{PendingAppend, Record, StoreError, ThreadLog};

/// The most bytes of texts and values that are appended at once, unless they are of one record.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The most of it that is handed over where the log answers, which is one thread for all sessions.
const MAX_LOG_THREAD_BYTES: usize = 64 * 1024;

/// What of an open thread is to be written and shown.
pub(crate) struct RecordQueue {
    hub: Arc<Hub>,
    state: Mutex<QueueState>,
    /// The log has answered, and nobody looked at that yet.
    is_answered: AtomicBool,
    /// Told when the log has what the session waits for, and when it failed.
    progress: Notify,
}

struct QueueState {
    /// Nothing once the thread is closed.
    log: Option<Box<dyn ThreadLog>>,
    turn: u64,
    last_seq: u64,
    next_event: EventId,
    /// What was not handed over yet.
    pending: Vec<Record>,
    durable: bool,
    /// Pieces of a reply are among it that gather until somebody ends their window.
    gathers: bool,
    /// What was handed over and is not written yet, in order.
    in_flight: VecDeque<Batch>,
    /// The newest batch that was handed over, and the newest that is written.
    sent: u64,
    written: u64,
    /// The newest batch that the session waits for, and the newest of which it was told.
    awaited: u64,
    reported: u64,
    /// Why nothing more is written.
    failed: Option<StoreError>,
}

/// Records that were handed over at once.
struct Batch {
    committed: PendingAppend,
    /// The log said so.
    is_written: bool,
    events: Vec<Stamped>,
}

impl RecordQueue {
    /// A queue behind the newest entry of a thread, which is of this turn.
    pub(super) fn new(log: Box<dyn ThreadLog>, turn: u64) -> Arc<Self> {
        let next_event = EventId {
            epoch: log.epoch(),
            seq: 1,
        };
        Arc::new(Self {
            hub: Hub::new(next_event.epoch),
            state: Mutex::new(QueueState {
                turn,
                last_seq: log.last_seq(),
                log: Some(log),
                next_event,
                pending: Vec::new(),
                durable: false,
                gathers: false,
                in_flight: VecDeque::new(),
                sent: 0,
                written: 0,
                awaited: 0,
                reported: 0,
                failed: None,
            }),
            is_answered: AtomicBool::new(false),
            progress: Notify::new(),
        })
    }

    /// Does something with the state.
    fn with_state<T>(self: &Arc<Self>, work: impl FnOnce(&mut QueueState) -> T) -> T {
        let done = work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.see_answers();
        done
    }

    /// Where the events are shown.
    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The number that the next event gets.
    pub(super) fn next_event(self: &Arc<Self>) -> EventId {
        self.with_state(|state| state.next_event)
    }

    /// Takes an entry in, as what it is given back.
    pub(super) fn entry(self: &Arc<Self>, body: EntryBody) -> Entry {
        self.with_state(|state| state.entry(body))
    }

    /// Takes an event in. It is shown once it is written; pieces of one text become one event.
    pub(super) fn event(self: &Arc<Self>, event: Event) {
        self.with_state(|state| state.event(event));
    }

    /// Takes a piece of a reply in that gathers with others until [`RecordQueue::end_window`], unless
    /// the reply `is_over` by now. Whether it is the first one of a window.
    pub(super) fn piece(self: &Arc<Self>, event: Event, is_over: &AtomicBool) -> bool {
        self.with_state(|state| {
            if is_over.load(Ordering::Relaxed) || state.log.is_none() {
                return false;
            }
            state.event(event);
            !std::mem::replace(&mut state.gathers, true)
        })
    }

    /// Takes pieces of a reply in that gathered already, unless the reply `is_over` by now.
    pub(super) fn pieces(
        self: &Arc<Self>,
        events: impl Iterator<Item = Event>,
        is_over: &AtomicBool,
    ) {
        self.with_state(|state| {
            if !is_over.load(Ordering::Relaxed) {
                events.for_each(|event| state.event(event));
                self.end_gathering(state);
            }
        });
    }

    /// Hands over what gathered.
    pub(super) fn end_window(self: &Arc<Self>) {
        self.with_state(|state| self.end_gathering(state));
    }

    /// Says that a reply is over: no piece of it comes in any more.
    pub(super) fn end_reply(self: &Arc<Self>, is_over: &AtomicBool) {
        // While nobody takes one in.
        self.with_state(|_| is_over.store(true, Ordering::Relaxed));
    }

    /// Hands what waits to the log, unless something is on its way already and this can wait for
    /// it. The number that [`RecordQueue::is_written`] is asked with for everything so far; the
    /// session waits for that where this cannot wait.
    pub(super) fn hand_over(self: &Arc<Self>, can_wait: bool) -> u64 {
        self.with_state(|state| {
            if !state.pending.is_empty() && (!can_wait || state.in_flight.is_empty()) {
                state.append();
            }
            self.advance(state, QueueDriver::Session);
            if !can_wait {
                (state.awaited, state.reported) = (state.sent, state.written);
            }
            state.sent
        })
    }

    /// Whether a batch is in the log, and shown.
    pub(super) fn is_written(self: &Arc<Self>, batch: u64) -> bool {
        self.with_state(|state| state.written >= batch)
    }

    /// Waits until more is written of what the session waits for, and moves the queue on. Safe to
    /// drop and call again.
    ///
    /// # Errors
    /// The store's; nothing that was handed over since is written then.
    pub(super) async fn progress(self: &Arc<Self>) -> Result<(), StoreError> {
        loop {
            let is_new = self.with_state(|state| {
                self.advance(state, QueueDriver::Session);
                let written = state.awaited.min(state.written);
                let before = std::mem::replace(&mut state.reported, written);
                let failed = state.failed.clone();
                failed.map_or(Ok(before < written), Err)
            });
            if is_new? {
                return Ok(());
            }
            self.progress.notified().await;
        }
    }

    /// Gives room back, and what was shown: it is in the log.
    pub(super) fn rest(self: &Arc<Self>) {
        self.hub.rest();
        self.with_state(|state| state.in_flight.shrink_to_fit());
    }

    /// Closes the thread. What was handed over is written all the same.
    pub(super) fn close(self: &Arc<Self>) {
        let log = self.with_state(|state| {
            state.give_up();
            state.log.take()
        });
        drop(log);
        self.hub.close();
    }

    fn end_gathering(self: &Arc<Self>, state: &mut QueueState) {
        state.gathers = false;
        self.advance(state, QueueDriver::Anybody);
    }

    /// Sees to the log's answers, unless somebody has the state: who has it does so behind it. So the
    /// log's thread, which is one for all sessions, waits for none.
    fn see_answers(self: &Arc<Self>) {
        loop {
            // Whoever gives the state back looks behind that, and here it is looked at the state behind
            // that there is an answer: one of the two sees the other.
            fence(Ordering::SeqCst);
            if !self.is_answered.load(Ordering::SeqCst) {
                return;
            }
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.is_answered.store(false, Ordering::SeqCst);
            self.advance(&mut state, QueueDriver::Anybody);
        }
    }

    /// Shows what is written by now, and hands over what gathered meanwhile. Where that is more than pieces,
    /// only the session does: it knows what belongs together, and what it shows it sees first.
    fn advance(self: &Arc<Self>, state: &mut QueueState, by: QueueDriver) {
        loop {
            let Some(batch) = state.in_flight.front_mut() else {
                if state.gathers || state.pending.is_empty() {
                    return;
                }
                if by != QueueDriver::Session && !state.is_appendable_by_anyone() {
                    self.progress.notify_one();
                    return;
                }
                state.append();
                if state.in_flight.is_empty() {
                    return;
                }
                continue;
            };
            match batch.poll(&Waker::from(Arc::clone(self))) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => {
                    state.failed = Some(error);
                    state.give_up();
                    self.progress.notify_one();
                    return;
                }
                Poll::Ready(Ok(())) => {}
            }
            let shows_more = !batch.events.iter().all(|stamped| is_piece(&stamped.event));
            if by != QueueDriver::Session && shows_more {
                self.progress.notify_one();
                return;
            }
            if let Some(batch) = state.in_flight.pop_front() {
                self.hub.publish(batch.events);
            }
            state.written += 1;
            if state.written <= state.awaited {
                self.progress.notify_one();
            }
        }
    }
}

/// The party that moves the queue on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueDriver {
    /// The session, while it is in the middle of nothing.
    Session,
    /// Whoever reads a reply, or the log's thread.
    Anybody,
}

impl Batch {
    /// Whether it is in the log.
    fn poll(&mut self, waker: &Waker) -> Poll<Result<(), StoreError>> {
        if !self.is_written {
            // Whoever takes a record in may have used its turn up, which says nothing about the log.
            let committed = &mut unconstrained(&mut self.committed);
            ready!(committed.poll_unpin(&mut Context::from_waker(waker)))?;
            self.is_written = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// The log has answered.
impl Wake for RecordQueue {
    fn wake(self: Arc<Self>) {
        self.is_answered.store(true, Ordering::SeqCst);
        self.see_answers();
    }
}

impl QueueState {
    fn entry(&mut self, body: EntryBody) -> Entry {
        if matches!(body, EntryBody::TurnStarted { .. }) {
            self.turn += 1;
        }
        // A result that was seen must not be asked for again, whatever ends the machine: calls
        // that a model asks for after it wait. For everything else it is enough that the process
        // may end.
        self.durable |= matches!(body, EntryBody::CallEnded { .. });
        self.last_seq += 1;
        let entry = Entry {
            seq: self.last_seq,
            turn: self.turn,
            at_ms: jiff::Timestamp::now().as_millisecond(),
            body,
        };
        self.pending.push(Record::Entry(entry.clone()));
        entry
    }

    fn event(&mut self, event: Event) {
        if let Some(Record::Event { event: last, .. }) = self.pending.last_mut()
            && try_merge(last, &event)
        {
            return;
        }
        let id = self.next_event;
        self.next_event.seq += 1;
        self.pending.push(Record::Event { id, event });
    }

    /// Whether what waits may be handed over by anybody: pieces, and not many, since the log's thread is
    /// one for all sessions.
    fn is_appendable_by_anyone(&self) -> bool {
        let are_pieces = self.pending.iter().all(|record| match record {
            Record::Event { event, .. } => is_piece(event),
            Record::Entry(_) | Record::Opened { .. } => false,
        });
        are_pieces && self.pending.iter().map(weight).sum::<usize>() <= MAX_LOG_THREAD_BYTES
    }

    /// Hands over what waits.
    fn append(&mut self) {
        // Taken, so that a thread that is idle keeps no room for a busy one.
        let mut records = std::mem::take(&mut self.pending);
        let durable = std::mem::take(&mut self.durable);
        let Some(log) = self.log.as_mut().filter(|_| self.failed.is_none()) else {
            return;
        };
        while !records.is_empty() {
            let rest = records.split_off(batch_len(&records));
            // Anybody's code, perhaps on a thread that others need, too.
            let committed = AssertUnwindSafe(|| log.append(&records, durable));
            let committed = catch_unwind(committed)
                .unwrap_or_else(|_| PendingAppend::ready(Err(StoreError::Closed)));
            let events = records.into_iter().filter_map(|record| match record {
                Record::Event { id, event } => Some(Stamped { id, event }),
                _ => None,
            });
            let events = events.collect();
            self.in_flight.push_back(Batch {
                committed,
                is_written: false,
                events,
            });
            self.sent += 1;
            records = rest;
        }
    }

    /// Waits for nothing any more, and writes nothing more.
    fn give_up(&mut self) {
        self.pending = Vec::new();
        self.in_flight = VecDeque::new();
    }
}

/// How many of the first records are appended at once: at least one.
fn batch_len(records: &[Record]) -> usize {
    let mut size = 0;
    let fits = records.iter().position(|record| {
        size += weight(record);
        size > MAX_BATCH_BYTES
    });
    fits.unwrap_or(records.len()).max(1)
}

fn try_merge(last: &mut Event, next: &Event) -> bool {
    match (last, next) {
        (Event::Content { delta }, Event::Content { delta: more })
        | (Event::Thinking { delta }, Event::Thinking { delta: more }) => {
            delta.push_str(more);
            true
        }
        (
            Event::ToolOutput {
                call_id,
                stream,
                chunk,
            },
            Event::ToolOutput {
                call_id: same_call,
                stream: same_stream,
                chunk: more,
            },
        ) if call_id == same_call && stream == same_stream => {
            chunk.push_str(more);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
