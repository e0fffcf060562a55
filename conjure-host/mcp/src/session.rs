//! What one MCP client has: a session of the host's, opened when it is first needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{ClientCapabilities, ErrorData};
use serde_json::Value;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client_questions::{ClientQuestionKinds, SessionQuestions};
use super::hidden_resources::HiddenResources;
use super::links::ResourceLinks;
use super::notes::{MessageFilter, listener};
use super::options::McpOptions;
use super::session_slots::SessionSlot;
use super::subscriptions::Subscriptions;
use super::suspendable_request::{
    RequestTarget, SuspendableRequest, SuspendableRequestParts, WorkResult,
};
use super::suspended::SuspendedWork;
use super::tools::ServedTools;
use conjure_config::SessionSpec;
use conjure_runtime::Host;
use conjure_runtime::backend::questions::SessionClient;
use conjure_runtime::backend::request_context::RequestContext;
use conjure_runtime::backend::{LiveOutput, ToolSnapshot};
use conjure_runtime::session::{SessionError, ToolCallOptions, ToolSession};

/// How long after the opening of a session servers behind may take to say what they have.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Locks of those who wait for each other, by what they have in common.
type KeyedLocks = Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>;

/// State that all clients share.
pub(super) struct SharedServerState {
    pub(super) host: Host,
    pub(super) spec: SessionSpec,
    pub(super) options: McpOptions,
    /// Cancelled when the server ends.
    pub(super) closing: CancellationToken,
    /// Sessions that are ending.
    pub(super) ending: TaskTracker,
}

/// Session of one client.
pub(super) struct ClientSession {
    pub(super) common: Arc<SharedServerState>,
    /// Slot of the session over HTTP; the connection of an old session holds it too.
    _slot: Option<Arc<SessionSlot>>,
    calls: OnceCell<Arc<ToolSession>>,
    opened: watch::Sender<bool>,
    opened_at: OnceLock<Instant>,
    questions: Arc<SessionQuestions>,
    pub(super) suspended: Arc<SuspendedWork>,
    /// Locks of calls, by lane.
    lanes: KeyedLocks,
    /// Locks of telling sources of a resource, by URI.
    resources: KeyedLocks,
    tools: Mutex<Option<Arc<ServedTools>>>,
    /// What the list of resources does not show.
    pub(super) hidden: HiddenResources,
    /// The resources that results linked to.
    pub(super) links: ResourceLinks,
    /// Level of messages that a client of the old era asked for.
    level: Mutex<Option<usize>>,
    subscriptions: Arc<Subscriptions>,
    last_used: Mutex<Instant>,
    /// Streams that wait for changes.
    listeners: AtomicU64,
    number: AtomicU64,
}

/// Context that starting work needs.
pub(super) struct WorkStart<'a> {
    pub(super) target: RequestTarget,
    pub(super) capabilities: Option<&'a ClientCapabilities>,
    /// Answers that came with the request.
    pub(super) initial_answers: BTreeMap<String, Value>,
    /// Calls in one lane wait for each other.
    pub(super) lane: Option<&'a str>,
}

/// Context of the work of one request.
pub(super) struct RequestWork {
    pub(super) calls: Arc<ToolSession>,
    pub(super) id: Arc<str>,
    pub(super) questions: Arc<SessionQuestions>,
    pub(super) cancel: CancellationToken,
    pub(super) live: LiveOutput,
    /// What its requests say about the session, where its client declares something else than the
    /// session's did.
    request_context: Option<RequestContext>,
}

impl RequestWork {
    /// Options of the session's calls and questions.
    pub(super) fn call_options<'a>(&'a self, snapshot: &'a ToolSnapshot) -> ToolCallOptions<'a> {
        ToolCallOptions {
            snapshot,
            cancel: &self.cancel,
            live: &self.live,
            request_context: self.request_context.as_ref(),
            verbatim: true,
        }
    }
}

impl ClientSession {
    pub(super) fn new(common: Arc<SharedServerState>, slot: Option<Arc<SessionSlot>>) -> Arc<Self> {
        Arc::new(Self {
            common,
            _slot: slot,
            calls: OnceCell::new(),
            opened: watch::Sender::new(false),
            opened_at: OnceLock::new(),
            questions: Arc::default(),
            suspended: Arc::default(),
            lanes: Mutex::default(),
            resources: Mutex::default(),
            tools: Mutex::default(),
            hidden: HiddenResources::default(),
            links: ResourceLinks::default(),
            level: Mutex::default(),
            subscriptions: Arc::default(),
            last_used: Mutex::new(Instant::now()),
            listeners: AtomicU64::new(0),
            number: AtomicU64::new(0),
        })
    }

    /// Notes what the client declares, for what is opened then; only the first time counts.
    pub(super) fn declare(&self, kinds: impl FnOnce() -> ClientQuestionKinds) {
        self.questions.declare(kinds);
    }

    /// The host's session, opened at the first use.
    pub(super) async fn calls(&self) -> Result<&Arc<ToolSession>, ErrorData> {
        *lock(&self.last_used) = Instant::now();
        match self.calls.get() {
            Some(calls) if *self.opened.borrow() => Ok(calls),
            // In a box of its own: it is large and needed once, and every request has a place for
            // it, which the SDK moves several times.
            _ => Box::pin(self.open()).await,
        }
    }

    async fn open(&self) -> Result<&Arc<ToolSession>, ErrorData> {
        let calls = self.calls.get_or_try_init(|| async {
            let client: Arc<dyn SessionClient> = Arc::clone(&self.questions) as _;
            let opened = self.common.host.calls_for(self.common.spec.clone(), client);
            opened.await.map(Arc::new)
        });
        let calls = calls.await.map_err(|error: SessionError| {
            let text = format!("the session could not be opened: {error}");
            tracing::error!("{text}");
            ErrorData::internal_error(text, None)
        })?;
        self.opened_at.get_or_init(Instant::now);
        self.opened
            .send_if_modified(|opened| !std::mem::replace(opened, true));
        Ok(calls)
    }

    /// Remaining time for servers behind to say what they have.
    pub(super) fn remaining_settle_time(&self) -> Duration {
        let since = self.opened_at.get().map_or(SETTLE_TIME, Instant::elapsed);
        SETTLE_TIME.saturating_sub(since)
    }

    /// The host's session if it is open.
    pub(super) fn open_calls(&self) -> Option<&Arc<ToolSession>> {
        self.calls.get()
    }

    /// Tells when the session is open.
    pub(super) fn opened(&self) -> watch::Receiver<bool> {
        self.opened.subscribe()
    }

    /// The tools of now.
    pub(super) async fn tools(&self) -> Result<Arc<ServedTools>, ErrorData> {
        Ok(self.tools_of(self.calls().await?))
    }

    /// The tools as they were served last; nothing before the first time.
    pub(super) fn cached_tools(&self) -> Option<Arc<ServedTools>> {
        Some(self.tools_of(self.calls.get()?))
    }

    fn tools_of(&self, calls: &ToolSession) -> Arc<ServedTools> {
        let snapshot = calls.snapshot();
        let mut known = lock(&self.tools);
        if let Some(tools) = &*known
            && Arc::ptr_eq(&tools.snapshot, &snapshot)
        {
            return Arc::clone(tools);
        }
        let tools = Arc::new(ServedTools::of(
            calls,
            snapshot,
            self.common.options.meta_tools,
        ));
        *known = Some(Arc::clone(&tools));
        tools
    }

    /// Starts work.
    ///
    /// # Errors
    /// When the client has too many requests under way.
    pub(super) async fn start<F>(
        &self,
        start: WorkStart<'_>,
        work: impl FnOnce(RequestWork) -> F,
    ) -> Result<SuspendableRequest, ErrorData>
    where
        F: Future<Output = WorkResult> + Send + 'static,
    {
        let most = self.common.options.max_calls;
        if self.questions.len() >= most {
            let text = format!("{most} calls are under way already; wait for one, or cancel it");
            return Err(ErrorData::internal_error(text, None));
        }
        let calls = Arc::clone(self.calls().await?);
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let id: Arc<str> = Arc::from(format!("mcp-{number}"));
        let (live, notes) = listener(&calls);
        let cancel = CancellationToken::new();
        let kinds = ClientQuestionKinds::of(start.capabilities);
        let (call, rounds) = self.questions.begin(&id, kinds, start.initial_answers);
        let lane = start.lane.map(|lane| self.lane(lane));
        let work = work(RequestWork {
            request_context: calls.context_for_client(kinds.served()),
            calls,
            id: Arc::clone(&id),
            questions: Arc::clone(&self.questions),
            cancel: cancel.clone(),
            live,
        });
        let waiting = cancel.clone();
        let work = Box::pin(async move {
            let _turn = match lane {
                Some(lane) => tokio::select! {
                    turn = lane.lock_owned() => Some(turn),
                    // Nobody reads what comes of it.
                    () = waiting.cancelled() => return WorkResult::Call(Err("cancelled".to_owned())),
                },
                None => None,
            };
            work.await
        });
        Ok(SuspendableRequest::new(SuspendableRequestParts {
            id,
            target: start.target,
            work,
            notes,
            rounds,
            questions: Arc::clone(&self.questions),
            call,
            cancel,
        }))
    }

    fn lane(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        keyed_lock(&self.lanes, name)
    }

    /// A client of the old era wants messages from this level on.
    pub(super) fn set_level(&self, rank: usize) {
        *lock(&self.level) = Some(rank);
    }

    /// The messages that a client of the old era gets.
    pub(super) fn message_filter(&self) -> MessageFilter {
        match *lock(&self.level) {
            Some(rank) => MessageFilter::From(rank),
            None => MessageFilter::ToolMessages,
        }
    }

    /// The resources whose changes the client wants to hear of.
    pub(super) fn subscriptions(&self) -> &Arc<Subscriptions> {
        &self.subscriptions
    }

    /// Held by whoever tells sources of a resource, so that they hear of its wishes in order.
    pub(super) fn resource_lock(&self, uri: &str) -> Arc<tokio::sync::Mutex<()>> {
        keyed_lock(&self.resources, uri)
    }

    /// Counts a stream that waits for changes, for as long as the guard lives.
    pub(super) fn register_listener(self: &Arc<Self>) -> ListenerGuard {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        ListenerGuard(Arc::clone(self))
    }

    /// Time since the last use; nothing while the session is in use.
    pub(super) fn idle(&self) -> Option<Duration> {
        let busy = self.questions.len() > 0 || self.listeners.load(Ordering::Relaxed) > 0;
        (!busy).then(|| lock(&self.last_used).elapsed())
    }

    /// Ends what it started.
    pub(super) async fn close(&self) {
        if let Some(calls) = self.calls.get() {
            calls.end().await;
        }
    }
}

impl Drop for ClientSession {
    /// A session that nobody holds any more is ended, and the server waits for that at its own
    /// end.
    fn drop(&mut self) {
        if let Some(calls) = self.calls.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let ending = async move { calls.end().await };
            self.common.ending.spawn_on(ending, &runtime);
        }
    }
}

/// Somebody who waits for changes.
pub(super) struct ListenerGuard(Arc<ClientSession>);

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.0.last_used) = Instant::now();
    }
}

/// The lock of a name. Those that nobody holds or waits for are forgotten.
fn keyed_lock(locks: &KeyedLocks, name: &str) -> Arc<tokio::sync::Mutex<()>> {
    let mut locks = lock(locks);
    locks.retain(|known, one| known == name || Arc::strong_count(one) > 1);
    Arc::clone(locks.entry(name.to_owned()).or_default())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
