//! One connection to one server: requests with limits, and its end.
//!
//! rmcp waits for ever, so every request here has an idle limit, which progress extends, and a
//! total one. Both stand still while the server waits for a person. Whatever ends a request
//! before its answer tells the server so.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::Cx;
use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientJsonRpcMessage,
    ClientNotification, ClientRequest, CustomRequest, GetMeta as _, ProtocolVersion, RequestId,
    RequestMetaObject, ServerPeerInfo, ServerResult,
};
use rmcp::service::{
    Peer, PeerRequestOptions, RunningService, RunningServiceCancellationToken, ServiceError,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::asking::QuestionPolicy;
use crate::config::{RequestLimits, ServerConfig};
use crate::failure::Failure;
use crate::handler::{Handler, identity};
use crate::http;
use crate::link::{Link, PendingRequestGuard, RequestProgress, RequestResult};
use crate::request_failure::RequestFailure;
use crate::secrets::Secrets;
use crate::server::Server;
use crate::stdio::{ServerInput, ServerProcess, StderrTail};
use crate::wire;

/// Calls that may run on a connection at the same time.
const MAX_CALLS: usize = 64;
/// How long an answer that came with the end of the connection may take to arrive.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// How long telling a server that a request is cancelled may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the polite end of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// From which level on the messages of a call are wanted, in the newer era.
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The two kinds of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Era {
    /// Up to 2025-11-25: a handshake, a session over HTTP.
    Legacy,
    /// From 2026-07-28: neither.
    Modern,
}

impl Era {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// A connection that is ready.
pub(crate) struct Connection {
    server: String,
    secrets: Secrets,
    /// Counts the connections of a server's for its users.
    pub(crate) generation: u64,
    /// Unlike any other connection's of the instance.
    pub(crate) serial: u64,
    pub(crate) era: Era,
    pub(crate) info: ServerPeerInfo,
    pub(crate) pid: Option<u32>,
    /// The file of its program.
    pub(crate) program: Option<String>,
    /// Time that connecting took.
    pub(crate) connect_time: Duration,
    peer: Peer<RoleClient>,
    direct: Option<Direct>,
    link: Arc<Link>,
    pub(crate) slots: Semaphore,
    alarm: Arc<Alarm>,
    /// From which level on calls ask for messages, where each has to.
    level: Option<String>,
    shutdown: Mutex<Option<ConnectionShutdown>>,
    tail: StderrTail,
}

/// The way of requests to a server's program. They pass rmcp by, which hands each from task to
/// task; the handshake, the server's own requests and notifications are rmcp's here too.
struct Direct {
    input: ServerInput,
    /// What every request says of the host.
    meta: RequestMetaObject,
}

/// A request that was sent.
struct SentRequest {
    id: RequestId,
    answer: oneshot::Receiver<RequestResult>,
    guard: PendingRequestGuard,
}

struct ConnectionShutdown {
    token: RunningServiceCancellationToken,
    service: JoinHandle<()>,
    process: Option<ServerProcess>,
}

/// Options for sending a request.
pub(crate) struct RequestOptions<'a> {
    pub(crate) limits: RequestLimits,
    /// Call for which the request is sent.
    pub(crate) caller: Option<&'a Cx>,
    pub(crate) trace: Option<&'a str>,
    /// What can be asked, where that is less than was declared.
    pub(crate) capabilities: Option<ClientCapabilities>,
}

impl RequestOptions<'_> {
    /// A request that is for no call.
    pub(crate) fn for_host(limits: RequestLimits) -> Self {
        Self {
            limits,
            caller: None,
            trace: None,
            capabilities: None,
        }
    }
}

impl Connection {
    /// Takes over a service that has done its handshake.
    pub(crate) fn new(
        server: &Server,
        (generation, serial): (u64, u64),
        era: Era,
        service: RunningService<RoleClient, Handler>,
        program: Option<(ServerProcess, ServerInput)>,
        (link, tail): (Arc<Link>, StderrTail),
        begun: std::time::Instant,
    ) -> Result<Self, String> {
        let peer = service.peer().clone();
        let info = peer.peer_info().ok_or("it said nothing of itself")?;
        let (process, input) = program.unzip();
        let is_stateless = !info.protocol_version.has_initialize();
        let has_log = is_stateless && info.capabilities.logging.is_some();
        let direct = input.map(|input| Direct {
            input,
            meta: meta(server, &info.protocol_version),
        });
        link.backlog().forget_open();
        let token = service.cancellation_token();
        let over = Arc::clone(&link);
        let running = tokio::spawn(async move {
            let _ = service.waiting().await;
            over.close("the connection ended");
        });
        Ok(Self {
            server: server.name.clone(),
            secrets: server.secrets.clone(),
            generation,
            serial,
            era,
            info: (*info).clone(),
            pid: process.as_ref().map(ServerProcess::id),
            program: process.as_ref().map(|process| process.program().to_owned()),
            connect_time: begun.elapsed(),
            peer,
            direct,
            link,
            slots: Semaphore::new(MAX_CALLS),
            alarm: Alarm::start(),
            level: has_log.then(|| {
                server
                    .config
                    .log_level
                    .unwrap_or_default()
                    .name()
                    .to_owned()
            }),
            shutdown: Mutex::new(Some(ConnectionShutdown {
                token,
                service: running,
                process,
            })),
            tail,
        })
    }

    /// The other side of the protocol.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// State that the connection's tasks share.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Sends a request and waits for its result, as it came.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        options: RequestOptions<'_>,
    ) -> Result<Value, RequestFailure> {
        let (limits, caller) = (options.limits, options.caller);
        if let Some(why) = self.link.close_reason() {
            return Err(RequestFailure::ConnectionLost(why));
        }
        let mut told = CancelNotifier {
            peer: &self.peer,
            id: None,
        };
        let mut clock = Clock::new(limits);
        let sending = async {
            match &self.direct {
                Some(direct) => self.send(direct, request, &options, &mut told).await,
                None => self.send_by_rmcp(request, &options, &mut told).await,
            }
        };
        // Nearly always it goes out at once, and nothing else is looked at.
        let mut sent = tokio::select! {
            biased;
            sent = sending => sent?,
            why = self.link.until_closed() => return Err(RequestFailure::ConnectionLost(why)),
            () = cancelled(caller) => return Err(self.cancelled()),
            () = clock.wait_expired(&self.alarm) => return Err(self.timed_out("took no request", limits.idle)),
        };
        let cancelled = cancelled(caller);
        tokio::pin!(cancelled);
        loop {
            tokio::select! {
                biased;
                answer = &mut sent.answer => {
                    told.id = None;
                    let answer = answer.map_err(|_| ServiceError::TransportClosed).flatten();
                    return self.answer(&sent.id, answer);
                }
                why = self.link.until_closed() => {
                    told.id = None;
                    let last = tokio::time::timeout(LAST_ANSWER_TIMEOUT, &mut sent.answer).await;
                    return match last {
                        Ok(Ok(Ok(result))) => self.answer(&sent.id, Ok(result)),
                        _ => Err(RequestFailure::ConnectionLost(why)),
                    };
                }
                Ok(()) = sent.guard.progress.changed() => {
                    clock.update(*sent.guard.progress.borrow_and_update());
                }
                () = &mut cancelled => return Err(self.cancelled()),
                () = clock.wait_expired(&self.alarm) => {
                    let (what, limit) = clock.exceeded_limit();
                    return Err(self.timed_out(what, limit));
                }
            }
        }
    }

    /// Sends a request to a server's own input; its answer comes from where its output is read.
    async fn send(
        &self,
        direct: &Direct,
        mut request: ClientRequest,
        options: &RequestOptions<'_>,
        told: &mut CancelNotifier<'_>,
    ) -> Result<SentRequest, RequestFailure> {
        let own = self.link.begin_direct(options.caller.cloned());
        let meta = request.get_meta_mut();
        meta.extend(direct.meta.clone());
        meta.set_progress_token(own.token);
        self.extend_meta(meta, options);
        let message = ClientJsonRpcMessage::request(request, own.id.clone());
        let line = wire::line(&message).map_err(|error| self.bad_answer(&error))?;
        told.id = Some(own.id.clone());
        if let Err(error) = direct.input.write(line).await {
            told.id = None;
            let why = error.to_string();
            self.link.close(&why);
            return Err(RequestFailure::ConnectionLost(why));
        }
        Ok(SentRequest {
            id: own.id,
            answer: own.answer,
            guard: own.guard,
        })
    }

    async fn send_by_rmcp(
        &self,
        request: ClientRequest,
        options: &RequestOptions<'_>,
        told: &mut CancelNotifier<'_>,
    ) -> Result<SentRequest, RequestFailure> {
        let mut meta = RequestMetaObject::new();
        self.extend_meta(&mut meta, options);
        let with_meta = PeerRequestOptions::no_options().with_meta(meta);
        let sent = self.peer.send_request_with_option(request, with_meta).await;
        let handle = sent.map_err(|error| self.classify(error))?;
        let token = handle.progress_token.clone();
        let guard = self
            .link
            .begin(handle.id.clone(), token, options.caller.cloned());
        told.id = Some(handle.id.clone());
        Ok(SentRequest {
            id: handle.id,
            answer: handle.rx,
            guard,
        })
    }

    /// What a request says beside what all of them do.
    fn extend_meta(&self, meta: &mut RequestMetaObject, options: &RequestOptions<'_>) {
        if let Some(trace) = options.trace {
            meta.set_traceparent(trace);
        }
        let is_stateless = !self.info.protocol_version.has_initialize();
        if is_stateless && let Some(capabilities) = &options.capabilities {
            meta.set_client_capabilities(capabilities.clone());
        }
        if let (Some(level), Some(_)) = (&self.level, options.caller) {
            meta.insert(LOG_LEVEL.to_owned(), level.as_str().into());
        }
    }

    /// Tells a server of the older era from which level on its messages are wanted.
    pub(crate) async fn set_log_level(&self, config: &ServerConfig) -> Result<(), RequestFailure> {
        let has_log = self.info.capabilities.logging.is_some();
        let Some(level) = config.log_level.filter(|_| has_log && self.level.is_none()) else {
            return Ok(());
        };
        let params = json!({ "level": level.name() });
        let request = CustomRequest::new("logging/setLevel", Some(params));
        let request = ClientRequest::CustomRequest(request);
        let done = self.request(request, RequestOptions::for_host(config.limits()));
        done.await.map(drop)
    }

    /// Ends the connection and, if there is one, the server's process.
    pub(crate) async fn end(&self) -> Option<ExitStatus> {
        let ending = self
            .shutdown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let ConnectionShutdown {
            token,
            service,
            process,
        } = ending?;
        self.link.close("the connection was closed");
        token.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, service).await;
        process?.end().await
    }

    /// The last lines of the server's standard error.
    pub(crate) fn tail(&self) -> &StderrTail {
        &self.tail
    }

    fn answer(
        &self,
        id: &RequestId,
        answer: Result<ServerResult, ServiceError>,
    ) -> Result<Value, RequestFailure> {
        let kept = self.link.fetch(id);
        match (answer, kept) {
            (Ok(_), Some(kept)) => Ok(kept),
            (Ok(ServerResult::CustomResult(result)), None) => Ok(result.0),
            (Ok(result), None) => {
                serde_json::to_value(&result).map_err(|error| self.bad_answer(&error))
            }
            (Err(error), _) => Err(self.classify(error)),
        }
    }

    fn classify(&self, error: ServiceError) -> RequestFailure {
        match error {
            ServiceError::McpError(error) => RequestFailure::Failed(
                Failure::Refused {
                    server: self.server.clone(),
                    code: error.code.0,
                    message: error.message.into_owned(),
                    data: error.data.map(Box::new),
                }
                .redacted(&self.secrets),
            ),
            ServiceError::TransportClosed => {
                let why = self.link.close_reason();
                RequestFailure::ConnectionLost(
                    why.unwrap_or_else(|| "the connection ended".to_owned()),
                )
            }
            ServiceError::TransportSend(error) => {
                let sent = http::judge(&self.server, error.error.as_ref());
                if let RequestFailure::ConnectionLost(why) = &sent {
                    self.link.close(&self.secrets.redact(why.clone()));
                }
                sent.redacted(&self.secrets)
            }
            other => self.bad_answer(&other),
        }
    }

    fn cancelled(&self) -> RequestFailure {
        RequestFailure::Failed(Failure::Cancelled {
            server: self.server.clone(),
        })
    }

    fn bad_answer(&self, why: &dyn std::fmt::Display) -> RequestFailure {
        RequestFailure::Failed(Failure::BadAnswer {
            server: self.server.clone(),
            why: self.secrets.redact(why.to_string()),
        })
    }

    fn timed_out(&self, what: &'static str, limit: Duration) -> RequestFailure {
        RequestFailure::Failed(Failure::TimedOut {
            server: self.server.clone(),
            what,
            limit,
        })
    }
}

/// What every request says of the host, where there is no handshake that said it.
fn meta(server: &Server, version: &ProtocolVersion) -> RequestMetaObject {
    if version.has_initialize() {
        return RequestMetaObject::new();
    }
    let capabilities = QuestionPolicy::new(server, server.client).capabilities();
    RequestMetaObject::with_client_context(version.clone(), identity(), capabilities)
}

/// Becomes ready when the call is cancelled.
async fn cancelled(caller: Option<&Cx>) {
    match caller {
        Some(cx) => cx.until_cancelled().await,
        None => std::future::pending().await,
    }
}

/// Tells the server that nobody waits for an answer any more, unless there was one.
struct CancelNotifier<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelNotifier<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let peer = self.peer.clone();
        let param = CancelledNotificationParam::new(Some(id), Some("no longer wanted".to_owned()));
        runtime.spawn(async move {
            let notification =
                ClientNotification::CancelledNotification(CancelledNotification::new(param));
            let _ =
                tokio::time::timeout(CANCEL_TIMEOUT, peer.send_notification(notification)).await;
        });
    }
}

/// The two limits of a request.
struct Clock {
    limits: RequestLimits,
    idle: Instant,
    total: Instant,
    /// How often there was progress so far.
    progress: u64,
    stopped: Option<Instant>,
}

impl Clock {
    fn new(limits: RequestLimits) -> Self {
        let now = Instant::now();
        Self {
            limits,
            idle: now + limits.idle,
            total: now + limits.total,
            progress: 0,
            stopped: None,
        }
    }

    fn update(&mut self, course: RequestProgress) {
        if course.progress != self.progress {
            self.progress = course.progress;
            self.idle = Instant::now() + self.limits.idle;
        }
        match (course.open_questions > 0, self.stopped) {
            (true, None) => self.stopped = Some(Instant::now()),
            (false, Some(since)) => {
                let waited = since.elapsed();
                self.idle += waited;
                self.total += waited;
                self.stopped = None;
            }
            _ => {}
        }
    }

    async fn wait_expired(&self, alarm: &Alarm) {
        if self.stopped.is_some() {
            std::future::pending::<()>().await;
        }
        let end = self.idle.min(self.total);
        while Instant::now() < end {
            alarm.wait_until(end).await;
        }
    }

    fn exceeded_limit(&self) -> (&'static str, Duration) {
        if self.total <= self.idle {
            ("was not done", self.limits.total)
        } else {
            ("neither answered nor made progress", self.limits.idle)
        }
    }
}
