//! A request under way that may ask its client something: a call, a read, a prompt.
//!
//! In the old era a question is a request to the client while the work waits for the answer. In the era of 2026-07-28 there are none: the request is answered with the
//! questions, the work is suspended, and the client's next request with the answers goes on with
//! it, under a state that is told once and nobody can guess.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_abi::{Fault, code};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use rmcp::model::{
    ClientResult, CustomRequest, ErrorData, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{Peer, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client_questions::{
    AskingCall, QuestionRound, SessionQuestions, from_client, to_client,
};
use super::notes::{CallNote, Outlet};
use conjure_runtime::backend::CallReport;
use conjure_runtime::backend::questions::ClientQuestion;
use conjure_runtime::backend::readers::ReadError;
use conjure_runtime::backend::results::has_server_answer;
use conjure_skill_sdk::protocol::{PromptText, ToolResult};

/// Time for work that was cancelled to end, before nobody waits for it any more.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Result of the work of a request.
pub(super) enum WorkResult {
    /// A tool call; or there is no such tool, and why.
    Call(Result<CallReport, String>),
    /// A resource.
    Read(Result<ToolResult, ReadError>),
    /// A prompt.
    Prompt(Result<PromptText, ReadError>),
}

impl WorkResult {
    /// Whether it failed in other than a server's own words.
    pub(super) fn is_failure(&self) -> bool {
        let is_verbatim = |said: &ToolResult| said.meta.as_ref().is_some_and(has_server_answer);
        match self {
            Self::Call(Ok(report)) if report.plugin_result.as_deref().is_some_and(is_verbatim) => {
                false
            }
            Self::Read(Ok(said)) if is_verbatim(said) => false,
            Self::Call(Ok(report)) => report.output.is_error,
            Self::Call(Err(_)) | Self::Read(Err(_)) | Self::Prompt(Err(_)) => true,
            Self::Read(Ok(said)) => said.is_error,
            Self::Prompt(Ok(_)) => false,
        }
    }
}

/// A request's work, which can be suspended until its client has answered.
pub(super) struct SuspendableRequest {
    id: Arc<str>,
    /// What the client asked for, so that another request cannot go on with it.
    target: RequestTarget,
    work: SuspendableWork,
    notes: mpsc::Receiver<CallNote>,
    rounds: mpsc::Receiver<QuestionRound>,
    questions: Arc<SessionQuestions>,
    call: Arc<AskingCall>,
    cancel: CancellationToken,
    _cancel: DropGuard,
    /// Questions that the client has been asked and did not answer yet, by round.
    open: Vec<OpenRound>,
}

/// The work itself: a part of its request, because a task of its own would cost each call two
/// changes of threads; and a task of its own from when it is suspended.
enum SuspendableWork {
    Inline(BoxFuture<'static, Result<WorkResult, PanicPayload>>),
    Task(JoinHandle<Result<WorkResult, PanicPayload>>),
}

type PanicPayload = Box<dyn Any + Send>;

impl SuspendableWork {
    /// Waits for the result; nothing when the host broke at it.
    async fn completion(&mut self) -> Option<WorkResult> {
        match self {
            Self::Inline(work) => work.await.ok(),
            Self::Task(work) => work.await.ok()?.ok(),
        }
    }

    /// Goes on by itself.
    fn detach(self) -> Self {
        match self {
            Self::Inline(work) => Self::Task(tokio::spawn(work)),
            Self::Task(_) => self,
        }
    }
}

/// Target of a request: a tool, a resource or a prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestTarget {
    pub(super) method: &'static str,
    pub(super) name: String,
    pub(super) arguments: Option<Map<String, Value>>,
}

/// A round with the answers so far.
struct OpenRound {
    round: QuestionRound,
    answers: BTreeMap<String, Value>,
}

/// Outcome of driving a request to its end or to its next question.
pub(super) enum DriveResult {
    /// The work is done.
    Done(Box<WorkResult>, Arc<AskingCall>),
    /// The client has to answer first.
    Input(Box<SuspendableRequest>, InputRequests),
}

/// Parts of a suspendable request.
pub(super) struct SuspendableRequestParts {
    pub(super) id: Arc<str>,
    pub(super) target: RequestTarget,
    pub(super) work: BoxFuture<'static, WorkResult>,
    pub(super) notes: mpsc::Receiver<CallNote>,
    pub(super) rounds: mpsc::Receiver<QuestionRound>,
    pub(super) questions: Arc<SessionQuestions>,
    pub(super) call: Arc<AskingCall>,
    pub(super) cancel: CancellationToken,
}

/// Channels and limits of a request while its work runs.
pub(super) struct ServedRequest<'a> {
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) outlet: Outlet,
    /// Whether the client speaks the era without requests of the server.
    pub(super) modern: bool,
    /// How long the client may take to answer.
    pub(super) answer_timeout: Duration,
}

impl SuspendableRequest {
    pub(super) fn new(parts: SuspendableRequestParts) -> Self {
        Self {
            id: parts.id,
            target: parts.target,
            work: SuspendableWork::Inline(AssertUnwindSafe(parts.work).catch_unwind().boxed()),
            notes: parts.notes,
            rounds: parts.rounds,
            questions: parts.questions,
            call: parts.call,
            _cancel: parts.cancel.clone().drop_guard(),
            cancel: parts.cancel,
            open: Vec::new(),
        }
    }

    pub(super) fn is_for(&self, what: &RequestTarget) -> bool {
        self.target == *what
    }

    /// Follows the work until it is done, or until the client has to answer.
    pub(super) async fn drive(
        mut self,
        mut served: ServedRequest<'_>,
    ) -> Result<DriveResult, ErrorData> {
        let mut asked = FuturesUnordered::new();
        if !self.open.is_empty() {
            // Not everything was answered.
            return self.suspend();
        }
        loop {
            tokio::select! {
                biased;
                () = served.context.ct.cancelled() => {
                    self.cancel.cancel();
                    let _ = tokio::time::timeout(CANCEL_GRACE, self.work.completion()).await;
                    return Err(ErrorData::internal_error("the request was cancelled", None));
                }
                Some(note) = self.notes.recv() => served.outlet.send(note).await,
                done = self.work.completion() => {
                    while let Ok(note) = self.notes.try_recv() {
                        served.outlet.send(note).await;
                    }
                    let done = done.ok_or_else(|| {
                        ErrorData::internal_error("the host broke at this request", None)
                    })?;
                    return Ok(DriveResult::Done(Box::new(done), Arc::clone(&self.call)));
                }
                Some(round) = self.rounds.recv() => {
                    if !served.modern {
                        let peer = served.context.peer.clone();
                        asked.push(ask(peer, round, served.answer_timeout));
                        continue;
                    }
                    self.open.push(OpenRound { round, answers: BTreeMap::new() });
                    while let Ok(round) = self.rounds.try_recv() {
                        self.open.push(OpenRound { round, answers: BTreeMap::new() });
                    }
                    return self.suspend();
                }
                Some(()) = asked.next(), if !asked.is_empty() => {}
            }
        }
    }

    /// Gives the client's answers to those who asked.
    ///
    /// # Errors
    /// When an answer is none; the request is as it was then.
    pub(super) fn answer(&mut self, responses: &InputResponses) -> Result<(), String> {
        let mut translated = BTreeMap::new();
        for open in &self.open {
            for (key, question) in &open.round.questions {
                if let Some(answer) = responses.get(key) {
                    let answer = from_client(question.kind, answer)
                        .map_err(|reason| format!("`inputResponses.{key}`: {reason}"))?;
                    translated.insert(key.clone(), answer);
                }
            }
        }
        let (complete, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open)
            .into_iter()
            .map(|mut open| {
                for (key, _) in &open.round.questions {
                    if let Some(answer) = translated.remove(key) {
                        open.answers.insert(key.clone(), answer);
                    }
                }
                open
            })
            .partition(OpenRound::is_complete);
        self.open = open;
        for round in complete {
            round.reply();
        }
        Ok(())
    }

    fn suspend(mut self) -> Result<DriveResult, ErrorData> {
        let mut requests = InputRequests::new();
        for open in &self.open {
            for (key, question) in &open.round.questions {
                if !open.answers.contains_key(key) {
                    requests.insert(key.clone(), input_request(question)?);
                }
            }
        }
        let nothing = std::future::pending().boxed();
        self.work = std::mem::replace(&mut self.work, SuspendableWork::Inline(nothing)).detach();
        Ok(DriveResult::Input(Box::new(self), requests))
    }
}

impl Drop for SuspendableRequest {
    fn drop(&mut self) {
        self.questions.end(&self.id);
    }
}

impl OpenRound {
    fn is_complete(&self) -> bool {
        let mut questions = self.round.questions.iter();
        questions.all(|(key, _)| self.answers.contains_key(key))
    }

    fn reply(mut self) {
        let questions = self.round.questions.iter();
        let answers =
            questions.map(|(key, _)| self.answers.remove(key).ok_or_else(unanswered_fault));
        // Whoever asked may have lost interest.
        let _ = self.round.reply.send(answers.collect());
    }
}

fn unanswered_fault() -> Fault {
    Fault::new(code::GONE, "the client gave no answer")
}

/// A question in the form in which it is part of a result.
fn input_request(question: &ClientQuestion) -> Result<InputRequest, ErrorData> {
    let (method, params) = to_client(question);
    let mut request = Map::new();
    request.insert("method".to_owned(), method.into());
    if let Some(params) = params {
        request.insert("params".to_owned(), params);
    }
    serde_json::from_value(Value::Object(request)).map_err(|error| {
        let text = format!("a plugin's question is none that MCP has ({method}): {error}");
        ErrorData::internal_error(text, None)
    })
}

/// Asks a client of the old era, all questions of a round at the same time.
async fn ask(peer: Peer<RoleServer>, round: QuestionRound, limit: Duration) {
    let answers = round.questions.iter().map(|(_, question)| {
        let peer = peer.clone();
        async move {
            let (method, params) = to_client(question);
            let request = CustomRequest::new(method, params);
            let options = PeerRequestOptions::with_timeout(limit);
            let sent =
                peer.send_request_with_option(ServerRequest::CustomRequest(request), options);
            let failed = |error: rmcp::ServiceError| {
                Fault::new(code::FAILED, format!("the client did not answer: {error}"))
            };
            let handle = sent.await.map_err(failed)?;
            let answer: ClientResult = handle.await_response().await.map_err(failed)?;
            let answer = serde_json::to_value(answer)
                .map_err(|error| Fault::new(code::FAILED, error.to_string()))?;
            from_client(question.kind, &answer).map_err(|reason| {
                Fault::new(code::INVALID, format!("the client's answer: {reason}"))
            })
        }
    });
    let answers = futures_util::future::join_all(answers).await;
    let _ = round.reply.send(answers);
}

/// The result that tells the client what it is asked.
pub(super) fn input_required(requests: InputRequests, state: String) -> InputRequiredResult {
    InputRequiredResult::new(Some(requests), Some(state))
}
