//! What a connection's transport, its handler and its callers know of each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::{Message, PluginEvent, Progress};
use rmcp::model::{
    JsonRpcMessage, NumberOrString, ProgressNotificationParam, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::Value;
use tokio::sync::{Notify, oneshot, watch};

use crate::answer_backlog::AnswerBacklog;
use crate::oauth::Token;
use crate::secrets::Secrets;
use crate::server_notices::ServerNotices;
use crate::wire::LOG_MESSAGE;

/// The state of one connection that several tasks share.
#[derive(Debug)]
pub(crate) struct Link {
    notices: Arc<ServerNotices>,
    closed: watch::Sender<Option<String>>,
    /// The login that it is of, if any was sent.
    login: Mutex<LinkLogin>,
    has_activity: AtomicBool,
    changes: watch::Sender<u64>,
    skipped: AtomicU64,
    pending: Mutex<BTreeMap<u64, Arc<PendingRequest>>>,
    /// Told when the last of them is over.
    quiet: Notify,
    next: AtomicU64,
    /// Results that came and are not fetched yet, and those that are expected.
    results: Mutex<BTreeMap<i64, Option<Value>>>,
    backlog: Arc<AnswerBacklog>,
}

/// The login of a connection.
#[derive(Debug, Default)]
struct LinkLogin {
    /// The newest token of it that was sent.
    newest_token: Option<Token>,
    /// Whether the server did anything with one.
    is_served: bool,
    /// The last token that the server did not take.
    refused_token: Option<Token>,
}

/// The most results that are expected or kept; rmcp sends fewer requests at the same time.
const MAX_RESULTS: usize = 1_024;
/// The ids of requests that pass rmcp by begin here: rmcp counts its own from 0, and makes few of
/// them where there are any of these.
const FIRST_DIRECT_ID: u64 = 1 << 20;

/// The result of a request.
pub(crate) type RequestResult = Result<ServerResult, ServiceError>;

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    id: RequestId,
    token: ProgressToken,
    /// The call that it is for.
    pub(crate) cx: Option<Cx>,
    progress: watch::Sender<RequestProgress>,
    /// Receiver of the answer, where that passes rmcp by.
    waiter: Mutex<Option<oneshot::Sender<RequestResult>>>,
}

/// The progress of a request before its result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestProgress {
    /// Number of progress messages.
    pub(crate) progress: u64,
    /// How many questions of the server's for it wait for an answer.
    pub(crate) open_questions: usize,
}

/// Ends the note of a request when it is dropped.
#[derive(Debug)]
pub(crate) struct PendingRequestGuard {
    link: Arc<Link>,
    number: u64,
    pub(crate) progress: watch::Receiver<RequestProgress>,
}

/// A request that is sent without rmcp.
#[derive(Debug)]
pub(crate) struct DirectRequest {
    pub(crate) id: RequestId,
    pub(crate) token: ProgressToken,
    pub(crate) answer: oneshot::Receiver<RequestResult>,
    pub(crate) guard: PendingRequestGuard,
}

/// Counts a question as open until dropped.
#[derive(Debug)]
pub(crate) struct QuestionGuard(Arc<PendingRequest>);

impl Link {
    /// The link of a connection that is being made.
    pub(crate) fn new(outside: Arc<ServerNotices>) -> Arc<Self> {
        Arc::new(Self {
            notices: outside,
            closed: watch::Sender::new(None),
            login: Mutex::default(),
            has_activity: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            skipped: AtomicU64::new(0),
            pending: Mutex::default(),
            quiet: Notify::new(),
            next: AtomicU64::new(0),
            results: Mutex::default(),
            backlog: Arc::default(),
        })
    }

    /// What must not be shown of what the server says.
    pub(crate) fn secrets(&self) -> &Secrets {
        self.notices.secrets()
    }

    /// The answers that the server has not got yet.
    pub(crate) fn backlog(&self) -> &Arc<AnswerBacklog> {
        &self.backlog
    }

    /// Waits until the server is owed few enough answers for more of it to be read. False when that
    /// took too long, and the connection is over.
    pub(crate) async fn until_room(&self) -> bool {
        let has_room = self.backlog.until_room().await;
        if !has_room {
            self.close(&AnswerBacklog::stall());
        }
        has_room
    }

    /// Lets a message go on to rmcp, if it is to; a request as soon as the server is owed few enough
    /// answers.
    pub(crate) async fn admit(
        &self,
        message: ServerJsonRpcMessage,
    ) -> Option<ServerJsonRpcMessage> {
        if let JsonRpcMessage::Request(request) = &message {
            // Several streams may wait for the same room.
            while self.until_room().await {
                if let Some(is_first) = self.backlog.record_if_room(&request.id) {
                    return is_first.then_some(message);
                }
            }
            return None;
        }
        self.backlog.record(&message).then_some(message)
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

    /// Reason of the connection's end, once it ended.
    pub(crate) fn close_reason(&self) -> Option<String> {
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

    /// Whether a request with this token may go out, or one without any: not if it is of another login
    /// than those before. The first token is the connection's own from now on, unless it is known that
    /// the server does nothing with it: other requests go out without it at the same time.
    pub(crate) fn admits(&self, token: Option<&Token>) -> bool {
        let mut login = lock(&self.login);
        match (&login.newest_token, token) {
            (Some(own), token) => token.map(Token::login) == Some(own.login()),
            (None, Some(token)) if login.refused_token.as_ref() != Some(token) => {
                login.newest_token = Some(token.clone());
                true
            }
            (None, _) => true,
        }
    }

    /// The server wanted another token than this. As long as it did nothing with any, the connection
    /// is nobody's.
    pub(crate) fn token_refused(&self, token: &Token) {
        let mut login = lock(&self.login);
        if !login.is_served {
            login.newest_token.take_if(|own| own == token);
        }
        login.refused_token = Some(token.clone());
    }

    /// The server did something with this token, or may have.
    pub(crate) fn token_accepted(&self, token: &Token) {
        let mut login = lock(&self.login);
        let own = login.newest_token.as_ref();
        if own.is_none_or(|own| own.login() == token.login()) {
            login.newest_token = Some(token.clone());
            login.is_served = true;
        }
    }

    /// The newest token of its own login.
    pub(crate) fn token(&self) -> Option<Token> {
        lock(&self.login).newest_token.clone()
    }

    /// Whether it is of a login, and that is another one than this.
    pub(crate) fn is_not_of(&self, login: u64) -> bool {
        let own = &lock(&self.login).newest_token;
        own.as_ref().is_some_and(|token| token.login() != login)
    }

    /// Waits until no request waits for its answer.
    pub(crate) async fn until_quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.lock().is_empty() {
                return;
            }
            quiet.await;
        }
    }

    /// The server said something.
    pub(crate) fn note_activity(&self) {
        self.has_activity.store(true, Ordering::Relaxed);
    }

    /// Whether the server sent anything.
    pub(crate) fn has_activity(&self) -> bool {
        self.has_activity.load(Ordering::Relaxed)
    }

    /// The server's lists may be others now.
    pub(crate) fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// A resource of the server's says something else now.
    pub(crate) fn resource_updated(&self, uri: &str) {
        self.notices.resource_updated(uri);
    }

    /// Sees each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Something was no message.
    pub(crate) fn note_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many pieces of output were no messages.
    pub(crate) fn skipped_count(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The result of a request that is being sent is to be kept as it comes.
    pub(crate) fn expect(&self, id: &RequestId) {
        let Some(number) = number(id) else { return };
        let mut results = lock(&self.results);
        results.insert(number, None);
        if results.len() > MAX_RESULTS {
            results.pop_first();
        }
    }

    /// Whether the result of a request is to be kept.
    pub(crate) fn is_expected(&self, id: &RequestId) -> bool {
        number(id).is_some_and(|number| lock(&self.results).contains_key(&number))
    }

    /// Keeps a result that is expected.
    pub(crate) fn store_result(&self, id: &RequestId, result: Value) {
        let mut results = lock(&self.results);
        if let Some(place) = number(id).and_then(|number| results.get_mut(&number)) {
            *place = Some(result);
        }
    }

    /// Fetches a result that was kept.
    pub(crate) fn fetch(&self, id: &RequestId) -> Option<Value> {
        lock(&self.results).remove(&number(id)?)?
    }

    /// Notes a request that rmcp sends.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: RequestId,
        token: ProgressToken,
        cx: Option<Cx>,
    ) -> PendingRequestGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.register(number, id, token, cx, None)
    }

    /// Notes a request that passes rmcp by, under an id and a token of its own.
    pub(crate) fn begin_direct(self: &Arc<Self>, cx: Option<Cx>) -> DirectRequest {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let own = i64::try_from(FIRST_DIRECT_ID + number).unwrap_or(i64::MAX);
        let id = RequestId::Number(own);
        let token = ProgressToken(NumberOrString::Number(own));
        let (waiter, answer) = oneshot::channel();
        let guard = self.register(number, id.clone(), token.clone(), cx, Some(waiter));
        DirectRequest {
            id,
            token,
            answer,
            guard,
        }
    }

    fn register(
        self: &Arc<Self>,
        number: u64,
        id: RequestId,
        token: ProgressToken,
        cx: Option<Cx>,
        waiter: Option<oneshot::Sender<RequestResult>>,
    ) -> PendingRequestGuard {
        let (course, seen) = watch::channel(RequestProgress::default());
        let request = PendingRequest {
            id,
            token,
            cx,
            progress: course,
            waiter: Mutex::new(waiter),
        };
        self.lock().insert(number, Arc::new(request));
        PendingRequestGuard {
            link: Arc::clone(self),
            number,
            progress: seen,
        }
    }

    /// Takes what a server said, in the order in which it came, on the stream of a request where
    /// there are such; gives back what is for rmcp.
    pub(crate) fn take(
        &self,
        message: ServerJsonRpcMessage,
        stream: Option<&RequestId>,
    ) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Response(response) => match self.direct_request(&response.id) {
                Some(request) => request.deliver(Ok(response.result)),
                None => return Some(JsonRpcMessage::Response(response)),
            },
            JsonRpcMessage::Error(error) => {
                match error.id.as_ref().and_then(|id| self.direct_request(id)) {
                    Some(request) => request.deliver(Err(ServiceError::McpError(error.error))),
                    None => return Some(JsonRpcMessage::Error(error)),
                }
            }
            JsonRpcMessage::Notification(notification) => match notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.progress(progress.params);
                }
                ServerNotification::CustomNotification(said) if said.method == LOG_MESSAGE => {
                    self.log(stream, said.params.unwrap_or_default());
                }
                _ => return Some(JsonRpcMessage::Notification(notification)),
            },
            request => return Some(request),
        }
        None
    }

    /// The request that passes rmcp by with this id.
    fn direct_request(&self, id: &RequestId) -> Option<Arc<PendingRequest>> {
        let own = number(id)?;
        let number = u64::try_from(own).ok()?.checked_sub(FIRST_DIRECT_ID)?;
        let found = self.lock().get(&number).cloned()?;
        // One of rmcp's may have the number, and has another id.
        (found.id == RequestId::Number(own)).then_some(found)
    }

    /// The request that a question belongs to: the one named, else the newest that is a call.
    pub(crate) fn asking_request(&self, id: Option<&RequestId>) -> Option<Arc<PendingRequest>> {
        let pending = self.lock();
        let mut newest_first = pending.values().rev();
        let found = match id {
            Some(id) => newest_first.find(|request| request.id == *id),
            None => newest_first.find(|request| request.cx.is_some()),
        };
        found.cloned()
    }

    /// The server told of something: the call hears it that it belongs to, and else the sessions.
    fn log(&self, stream: Option<&RequestId>, mut params: Value) {
        let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
        let message = Message {
            level: text("level").unwrap_or_else(|| "info".to_owned()),
            logger: text("logger"),
            data: params.get_mut("data").map(Value::take).unwrap_or_default(),
        };
        match self
            .asking_request(stream)
            .filter(|request| request.cx.is_some())
        {
            Some(call) => call.show(&PluginEvent::Log(message)),
            None => self.notices.report(&message),
        }
    }

    /// A request made progress.
    fn progress(&self, params: ProgressNotificationParam) {
        let token = &params.progress_token;
        let found = self
            .lock()
            .values()
            .find(|request| request.token == *token)
            .cloned();
        let Some(request) = found else { return };
        request.progress.send_modify(|course| course.progress += 1);
        request.show(&PluginEvent::Progress(Progress {
            done: params.progress,
            total: params.total,
            message: params.message,
        }));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PendingRequest>>> {
        lock(&self.pending)
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

impl PendingRequest {
    /// The server waits for an answer; the request's clock stops.
    pub(crate) fn ask(self: &Arc<Self>) -> QuestionGuard {
        self.progress
            .send_modify(|course| course.open_questions += 1);
        QuestionGuard(Arc::clone(self))
    }

    fn deliver(&self, answer: RequestResult) {
        if let Some(waiter) = lock(&self.waiter).take() {
            // Whoever waited may be gone.
            let _ = waiter.send(answer);
        }
    }

    /// Hands an event to the call; what does not fit into its queue is left out.
    fn show(&self, event: &PluginEvent) {
        if let Some(cx) = &self.cx
            && let Ok(event) = serde_json::to_vec(event)
        {
            cx.try_emit(EmitKind::Event, &event);
        }
    }
}

impl Drop for QuestionGuard {
    fn drop(&mut self) {
        self.0
            .progress
            .send_modify(|course| course.open_questions -= 1);
    }
}

impl Drop for PendingRequestGuard {
    fn drop(&mut self) {
        let (request, is_last) = {
            let mut pending = self.link.lock();
            (pending.remove(&self.number), pending.is_empty())
        };
        if is_last {
            self.link.quiet.notify_waiters();
        }
        if let Some(request) = request
            && let Some(number) = number(&request.id)
        {
            lock(&self.link.results).remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Arc<Link> {
        let outside = ServerNotices::new("s", Secrets::default(), |_| {});
        Link::new(Arc::new(outside))
    }

    #[test]
    fn a_token_that_is_refused_at_once_leaves_the_connection_to_everybody() {
        let (link, over) = (link(), Token::of_login("over", 1));
        assert!(link.admits(Some(&over)));
        assert!(!link.admits(None), "it may be served still");
        link.token_refused(&over);
        // Others send it at the same time, which makes it nobody's own again.
        assert!(link.admits(Some(&over)) && link.admits(None));
        link.token_refused(&over);
        assert!(link.token().is_none() && link.admits(None));
    }

    #[test]
    fn a_connection_on_which_a_token_may_have_done_something_is_its_logins() {
        let (link, own) = (link(), Token::of_login("own", 1));
        assert!(link.admits(Some(&own)));
        link.token_refused(&own);
        assert!(link.admits(Some(&own)));
        link.token_accepted(&own);
        link.token_refused(&own);
        let (renewed, anothers) = (Token::of_login("renewed", 1), Token::of_login("other", 2));
        assert!(link.admits(Some(&renewed)));
        assert!(!link.admits(None) && !link.admits(Some(&anothers)));
        assert!(link.is_not_of(2) && !link.is_not_of(1));
    }
}
