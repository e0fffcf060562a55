//! The server on loopback: accepts, chooses an answer, performs it on the socket.
//!
//! The server runs on a thread of its own, so that a test may block, pause its clock or run on one
//! thread. What an answer looks like is decided elsewhere.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

use crate::delivery::{Delivery, Part, Piece, RenderedAnswer, SocketAction, plan, plan_raw};
use crate::hosted::Hosted;
use crate::http::{Connection, ReadError};
use crate::perform::perform;
use crate::reply::{ErrorReply, Reply, ReplyKind};
use crate::request::Request;
use crate::script::Script;
use crate::state::{Exchange, Ledger, Outcome, State};
use crate::validate::{Violation, validate, verify_with};
use crate::wire::{self, Wire};

/// How long a wait lasts at most, unless the caller says otherwise.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running mock. It ends when dropped.
#[derive(Debug)]
pub struct MockLlm {
    address: SocketAddr,
    shared: Arc<MockCore>,
    accepting: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
}

/// Why the mock could not do what a test asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// No socket or thread.
    #[error("the mock server cannot start: {source}; check that loopback and the port are free")]
    Start {
        /// What the system said.
        #[from]
        source: std::io::Error,
    },
    /// What the test waited for did not come.
    #[error(
        "waited {limit:?} for {what}; {requests} requests had arrived, gates reached: {gates:?}"
    )]
    Deadline {
        /// What was awaited.
        what: String,
        /// The limit.
        limit: Duration,
        /// Requests so far.
        requests: usize,
        /// Tokens of the gates that were reached so far.
        gates: Vec<String>,
    },
}

impl MockLlm {
    /// Starts on a free port of loopback.
    ///
    /// # Errors
    /// When there is no socket or thread.
    #[expect(clippy::unused_async, reason = "tests await what may one day wait")]
    pub async fn start(script: Script) -> Result<Self, MockError> {
        Self::start_on(script, 0)
    }

    /// As [`MockLlm::start`], for tests that are not async.
    ///
    /// # Errors
    /// When there is no socket or thread.
    pub fn start_blocking(script: Script) -> Result<Self, MockError> {
        Self::start_on(script, 0)
    }

    /// Starts on a port of loopback; 0 takes a free one.
    ///
    /// # Errors
    /// When there is no socket or thread, or the port is taken.
    pub fn start_on(script: Script, port: u16) -> Result<Self, MockError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("mock-llm")
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(MockCore {
            script: Mutex::new(script),
            ledger: Ledger::default(),
        });
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        let accepting = runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            accepting: Some(accepting),
            runtime: Some(runtime),
        })
    }

    /// `http://127.0.0.1:<port>`, with no slash at the end.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address, for a bare socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, in the order in which their bodies were complete.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        let state = self.shared.ledger.state();
        state
            .requests
            .iter()
            .map(|exchange| Arc::clone(&exchange.request))
            .collect()
    }

    /// The requests for which the script had no answer.
    #[must_use]
    pub fn unexpected(&self) -> Vec<Arc<Request>> {
        let state = self.shared.ledger.state();
        state
            .requests
            .iter()
            .filter(|exchange| !exchange.expected)
            .map(|exchange| Arc::clone(&exchange.request))
            .collect()
    }

    /// What the provider would have refused, in order.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.ledger.state().violations.clone()
    }

    /// The memory of the hosted APIs as it is now; an empty one when the script has none.
    #[must_use]
    pub fn hosted(&self) -> Hosted {
        let script = self.shared.script.lock();
        let script = script.unwrap_or_else(PoisonError::into_inner);
        script.hosted.clone().unwrap_or_default()
    }

    /// Ends a container: whoever names it is refused from now on.
    pub fn expire_container(&self, id: &str) {
        let script = self.shared.script.lock();
        let mut script = script.unwrap_or_else(PoisonError::into_inner);
        if let Some(hosted) = &mut script.hosted {
            hosted.expire(id);
        }
    }

    /// Puts the steps of another script behind those that there are; the rest of it counts for nothing.
    pub fn append(&self, more: Script) {
        let script = self.shared.script.lock();
        let mut script = script.unwrap_or_else(PoisonError::into_inner);
        script.steps.extend(more.steps);
    }

    /// Lets answers pass the gate of this name, now and later.
    pub fn release(&self, token: &str) {
        self.shared
            .ledger
            .change(|state| state.gate(token).released = true);
    }

    /// Waits until an answer stands at the gate of this name (or has passed it).
    ///
    /// # Errors
    /// When 20 seconds pass.
    pub async fn wait_for_gate(&self, token: &str) -> Result<(), MockError> {
        let token = token.to_owned();
        let what = format!("gate `{token}`");
        self.wait_until(what, move |state| state.is_reached(&token).then_some(()))
            .await
    }

    /// [`MockLlm::wait_for_gate`] for tests that are not async.
    ///
    /// # Errors
    /// When 20 seconds pass.
    pub fn wait_for_gate_blocking(&self, token: &str) -> Result<(), MockError> {
        let token = token.to_owned();
        let what = format!("gate `{token}`");
        self.wait_until_blocking(what, move |state| state.is_reached(&token).then_some(()))
    }

    /// Waits until `count` requests have arrived.
    ///
    /// # Errors
    /// When 20 seconds pass.
    pub async fn wait_for_requests(&self, count: usize) -> Result<(), MockError> {
        let what = format!("{count} requests");
        self.wait_until(what, move |state| {
            (state.requests.len() >= count).then_some(())
        })
        .await
    }

    /// Waits until the answer to a request has ended, and says how.
    ///
    /// # Errors
    /// When 20 seconds pass.
    pub async fn wait_for_outcome(&self, index: usize) -> Result<Outcome, MockError> {
        let what = format!("the end of request {index}");
        self.wait_until(what, move |state| state.outcome(index))
            .await
    }

    /// [`MockLlm::wait_for_outcome`] for tests that are not async.
    ///
    /// # Errors
    /// When 20 seconds pass.
    pub fn wait_for_outcome_blocking(&self, index: usize) -> Result<Outcome, MockError> {
        let what = format!("the end of request {index}");
        self.wait_until_blocking(what, move |state| state.outcome(index))
    }

    /// Ends every connection and the listener, and waits for it.
    pub async fn shutdown(mut self) {
        self.shared.ledger.change(|state| state.closing = true);
        if let Some(accepting) = self.accepting.take() {
            // A panic in a script's closure has already reached its own connection.
            let _ended = accepting.await;
        }
    }

    /// Waits for ever, for the binary.
    pub fn serve_forever(mut self) {
        if let (Some(runtime), Some(accepting)) = (&self.runtime, self.accepting.take()) {
            let _ended = runtime.block_on(accepting);
        }
    }

    async fn wait_until<T: Send + 'static>(
        &self,
        what: String,
        ready: impl Fn(&State) -> Option<T> + Send + 'static,
    ) -> Result<T, MockError> {
        // On the mock's own runtime, whose clock no test pauses.
        let waiting = self.runtime.as_ref().map(|runtime| {
            let shared = Arc::clone(&self.shared);
            runtime.spawn(
                async move { tokio::time::timeout(DEADLINE, shared.ledger.wait(ready)).await },
            )
        });
        let found = match waiting {
            Some(waiting) => waiting.await.ok().and_then(Result::ok),
            None => None,
        };
        found.ok_or_else(|| self.deadline_error(what))
    }

    fn wait_until_blocking<T>(
        &self,
        what: String,
        ready: impl Fn(&State) -> Option<T>,
    ) -> Result<T, MockError> {
        let found = self.runtime.as_ref().and_then(|runtime| {
            let wait = self.shared.ledger.wait(ready);
            runtime
                .block_on(async { tokio::time::timeout(DEADLINE, wait).await })
                .ok()
        });
        found.ok_or_else(|| self.deadline_error(what))
    }

    fn deadline_error(&self, what: String) -> MockError {
        let state = self.shared.ledger.state();
        MockError::Deadline {
            what,
            limit: DEADLINE,
            requests: state.requests.len(),
            gates: state
                .gates
                .iter()
                .filter(|(_, gate)| gate.reached)
                .map(|(token, _)| token.clone())
                .collect(),
        }
    }
}

impl Drop for MockLlm {
    fn drop(&mut self) {
        self.shared.ledger.change(|state| state.closing = true);
        if let Some(runtime) = self.runtime.take() {
            // Never blocks, and so may be called where a test's own runtime is at work.
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug)]
struct MockCore {
    script: Mutex<Script>,
    ledger: Ledger,
}

impl MockCore {
    /// Records a request, judges it, and chooses its answer.
    fn answer(&self, mut request: Request) -> (usize, Vec<SocketAction>) {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.ledger.state().requests.len();
        request.index = index;
        let wire = Wire::of(&request);
        let mut violations = match wire {
            Some(wire) => self.violations(wire, &request),
            None => Vec::new(),
        };
        if let (Some(hosted), Some(Wire::Anthropic)) = (&script.hosted, wire) {
            violations.extend(hosted.violations(&request));
        }
        let refusal = violations
            .first()
            .filter(|_| !script.lenient)
            .map(|first| Reply::from(first.refusal()));
        let list = wire::models(&script.models, &request);
        let named = wire
            .is_none()
            .then(|| script.take_named(&request))
            .flatten();
        let hosted = match (&named, wire, &mut script.hosted) {
            (None, None, Some(hosted)) => hosted.answer(&request),
            _ => None,
        };
        let answer = match (&refusal, &list, &hosted) {
            (Some(_), ..) | (None, None, Some(_)) => None,
            (None, Some(_), _) => named,
            (None, None, None) => named.or_else(|| script.take(&request)),
        };
        let expected = answer.is_some() || refusal.is_some() || list.is_some() || hosted.is_some();
        violations.extend(hosted.iter().filter_map(|it| it.violation.clone()));
        let request = Arc::new(request);
        self.ledger.change(|state| {
            state.violations.extend(violations);
            state.requests.push(Exchange {
                request: Arc::clone(&request),
                expected,
                outcome: None,
            });
        });
        // The script's closures run without the lock: they may take their time.
        drop(script);
        if let Some(answered) = hosted {
            return (index, plan(&answered.rendered, &Delivery::default()));
        }
        let reply = match (answer, refusal, list) {
            (Some(answer), ..) => answer.reply(&request),
            (None, Some(refusal), _) => refusal,
            (None, None, Some(Ok(rendered))) => {
                return (index, plan(&rendered, &Delivery::default()));
            }
            (None, None, Some(Err((wire, error)))) => {
                return (index, plan_actions(&Reply::from(error), wire, &request));
            }
            (None, None, None) => no_answer(&request),
        };
        if let (ReplyKind::Message(message), Some(wire)) = (&reply.kind, wire) {
            let model = request.model();
            self.ledger
                .change(|state| state.issued.add(wire, model, message));
            let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(hosted), Wire::Anthropic) = (&mut script.hosted, wire) {
                hosted.record(&request, message);
            }
        }
        (
            index,
            plan_actions(&reply, wire.unwrap_or(Wire::Anthropic), &request),
        )
    }

    /// What the provider would refuse: in the form of the request, and of what is said to be its own.
    fn violations(&self, wire: Wire, request: &Request) -> Vec<Violation> {
        let mut violations = validate(wire, request);
        let state = self.ledger.state();
        violations.extend(verify_with(wire, request, &|signature, signed| {
            state
                .issued
                .origin(wire, request.model(), signature, signed)
        }));
        violations
    }
}

fn no_answer(request: &Request) -> Reply {
    let text = format!(
        "The script has no answer left for request {} ({} {}).",
        request.index, request.method, request.path
    );
    ErrorReply::new(500).message(text).into()
}

fn plan_actions(reply: &Reply, wire: Wire, request: &Request) -> Vec<SocketAction> {
    let rendered = match &reply.kind {
        ReplyKind::Message(message) => wire.message(message, request),
        ReplyKind::Error(error) => wire.error(error, request),
        ReplyKind::Http(http) => RenderedAnswer {
            status: http.status,
            headers: http.headers.clone().into_iter().collect(),
            body: vec![Part(vec![Piece::new(&http.body, http.times)])],
            stream: false,
        },
        ReplyKind::Raw(bytes) => return plan_raw(bytes, &reply.delivery),
    };
    plan(&rendered, &reply.delivery)
}

async fn accept(listener: TcpListener, shared: Arc<MockCore>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.ledger.until_closing() => break,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection until either side ends it.
async fn serve(stream: TcpStream, shared: Arc<MockCore>) {
    // Without this the kernel would join small writes.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection = Connection::new(stream);
    loop {
        let read = tokio::select! {
            () = shared.ledger.until_closing() => return,
            read = connection.read() => read,
        };
        let incoming = match read {
            Ok(Some(incoming)) => incoming,
            Ok(None) | Err(ReadError::Broken { .. }) => return,
            Err(error @ ReadError::Malformed { .. }) => {
                let rendered = RenderedAnswer {
                    status: 400,
                    headers: vec![("connection".to_owned(), "close".to_owned())],
                    body: vec![error.to_string().into_bytes().into()],
                    stream: false,
                };
                perform(
                    &mut connection.stream,
                    plan(&rendered, &Delivery::default()),
                    &shared.ledger,
                )
                .await;
                return;
            }
        };
        let (index, acts) = shared.answer(incoming.request);
        let (outcome, open) = perform(&mut connection.stream, acts, &shared.ledger).await;
        if !(open && incoming.keep_alive) {
            drop(connection);
            shared.ledger.end(index, outcome);
            return;
        }
        shared.ledger.end(index, outcome);
    }
}
