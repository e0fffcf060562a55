//! What a connection's transport, its handler and its callers know of each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::Progress;
use rmcp::model::{ProgressToken, RequestId};
use serde_json::Value;
use tokio::sync::watch;

/// The state of one connection that several tasks share.
#[derive(Debug)]
pub(crate) struct Link {
    closed: watch::Sender<Option<String>>,
    heard: AtomicBool,
    changes: watch::Sender<u64>,
    skipped: AtomicU64,
    underway: Mutex<BTreeMap<u64, Arc<Underway>>>,
    next: AtomicU64,
    /// Results that came and are not fetched yet, and those that are expected.
    results: Mutex<BTreeMap<i64, Option<Value>>>,
}

/// The most results that are expected or kept; rmcp sends fewer requests at the same time.
const RESULTS: usize = 1_024;

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Underway {
    id: RequestId,
    token: ProgressToken,
    /// The call that it is for.
    pub(crate) cx: Option<Cx>,
    progress: watch::Sender<Option<Progress>>,
    /// How many questions of the server's for it wait for an answer.
    asking: watch::Sender<usize>,
}

/// Ends the note of a request when it is dropped.
#[derive(Debug)]
pub(crate) struct Noted {
    link: Arc<Link>,
    number: u64,
    pub(crate) progress: watch::Receiver<Option<Progress>>,
    pub(crate) asking: watch::Receiver<usize>,
}

/// A question that waits for an answer; dropped when it has it.
#[derive(Debug)]
pub(crate) struct Asking(Arc<Underway>);

impl Link {
    /// Of a connection that is being made.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            closed: watch::Sender::new(None),
            heard: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            skipped: AtomicU64::new(0),
            underway: Mutex::default(),
            next: AtomicU64::new(0),
            results: Mutex::default(),
        })
    }

    /// The connection is over. The first reason stays.
    pub(crate) fn close(&self, why: &str) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(why.to_owned());
            }
            first
        });
    }

    /// Why it is over, if it is.
    pub(crate) fn closed(&self) -> Option<String> {
        self.closed.borrow().clone()
    }

    /// Waits until it is over.
    pub(crate) async fn until_closed(&self) -> String {
        let mut closed = self.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// The server said something.
    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether the server said something.
    pub(crate) fn heard_something(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// The server's lists may be others now.
    pub(crate) fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Sees each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something was no message.
    pub(crate) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many pieces of output were no messages.
    pub(crate) fn skipped_so_far(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The result of a request that is being sent is to be kept as it comes.
    pub(crate) fn expect(&self, id: &RequestId) {
        let Some(number) = number(id) else { return };
        let mut results = lock(&self.results);
        results.insert(number, None);
        if results.len() > RESULTS {
            results.pop_first();
        }
    }

    /// Whether a result is to be kept.
    pub(crate) fn is_expected(&self, id: &RequestId) -> bool {
        number(id).is_some_and(|number| lock(&self.results).contains_key(&number))
    }

    /// Keeps a result that is expected.
    pub(crate) fn keep(&self, id: &RequestId, result: Value) {
        let mut results = lock(&self.results);
        if let Some(place) = number(id).and_then(|number| results.get_mut(&number)) {
            *place = Some(result);
        }
    }

    /// Fetches a result that was kept.
    pub(crate) fn fetch(&self, id: &RequestId) -> Option<Value> {
        lock(&self.results).remove(&number(id)?)?
    }

    /// Notes a request that was sent.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: RequestId,
        token: ProgressToken,
        cx: Option<Cx>,
    ) -> Noted {
        let (progress, seen_progress) = watch::channel(None);
        let (asking, seen_asking) = watch::channel(0);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let underway = Underway {
            id,
            token,
            cx,
            progress,
            asking,
        };
        self.lock().insert(number, Arc::new(underway));
        Noted {
            link: Arc::clone(self),
            number,
            progress: seen_progress,
            asking: seen_asking,
        }
    }

    /// The request that a question belongs to: the one named, else the newest that is a call.
    pub(crate) fn asked_for(&self, id: Option<&RequestId>) -> Option<Arc<Underway>> {
        let underway = self.lock();
        let mut newest_first = underway.values().rev();
        let found = match id {
            Some(id) => newest_first.find(|request| request.id == *id),
            None => newest_first.find(|request| request.cx.is_some()),
        };
        found.cloned()
    }

    /// A request made progress.
    pub(crate) fn progress(&self, token: &ProgressToken, progress: Progress) {
        let found = self
            .lock()
            .values()
            .find(|request| request.token == *token)
            .cloned();
        if let Some(request) = found {
            request.progress.send_replace(Some(progress));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Underway>>> {
        lock(&self.underway)
    }
}

/// An id as rmcp makes them; servers send a number back as text.
fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Underway {
    /// The server waits for an answer; the request's clock stops.
    pub(crate) fn ask(self: &Arc<Self>) -> Asking {
        self.asking.send_modify(|asking| *asking += 1);
        Asking(Arc::clone(self))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.send_modify(|asking| *asking -= 1);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(request) = self.link.lock().remove(&self.number)
            && let Some(number) = number(&request.id)
        {
            lock(&self.link.results).remove(&number);
        }
    }
}
