//! Calls of tools, by their mode.
//!
//! A *stateful* call runs behind the ones before it, on the connection that they ran on, and never
//! twice. A *stateless* one runs at once on whatever connection there is, and again on the next
//! one when the first went and repeating does no harm.

use std::sync::Arc;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::{BackendCall, ToolMode, ToolResult};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::connection::{Connection, Era};
use crate::failure::Failure;
use crate::listing::Tool;
use crate::registry::ServerEntry;
use crate::request_failure::RequestFailure;
use crate::result::{self, Receiver};
use crate::rounds::Rounds;
use crate::session::McpSession;

/// How often the person is asked to log in for one call.
const MAX_LOGINS: usize = 2;
/// A capability by which a peer declares that it keeps nothing: `{"mode": "stateless"}`.
const SESSION_CAPABILITY: &str = "dev.conjure/session";

/// One call of a tool.
pub(crate) struct Call<'a> {
    pub(crate) cx: &'a Cx,
    pub(crate) session: &'a McpSession,
    pub(crate) entry: &'a Arc<ServerEntry>,
    pub(crate) tool: &'a Tool,
    pub(crate) arguments: JsonObject,
    pub(crate) trace: String,
}

/// The arguments of a call as an object.
pub(crate) fn arguments(request: &mut BackendCall) -> Result<JsonObject, Failure> {
    match request.arguments.take() {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        other => Err(Failure::Invalid(format!(
            "the arguments of `{}` are an object, not {other}",
            request.name
        ))),
    }
}

impl Call<'_> {
    /// Runs it. A server that wants a login, or more rights than the last one gave, has done
    /// nothing: the person is asked and the call sent again.
    pub(crate) async fn run(self) -> Result<ToolResult, Failure> {
        let mut logins = 0;
        let value = loop {
            let done = match self.tool.decl.mode {
                ToolMode::Stateful => self.stateful().await,
                ToolMode::Stateless => self.stateless().await,
            };
            match (done, &self.entry.server.auth) {
                (
                    Err(refused @ (Failure::NeedsAuth { .. } | Failure::MissingScope { .. })),
                    Some(auth),
                ) if logins < MAX_LOGINS => {
                    logins += 1;
                    let done = auth.log_in_for_call(self.cx).await;
                    done.map_err(|why| refused.with_reason(why))?;
                }
                (done, _) => break done?,
            }
        };
        let server = self.server();
        self.session.note_mentions(server, &value);
        result::result(server, value, Receiver::of(self.cx)).map_err(|why| self.bad_answer(&why))
    }

    async fn stateful(&self) -> Result<Value, Failure> {
        let server = self.server();
        self.entry.require_session();
        if self.entry.server.config.stateless_only {
            return Err(self.mismatch());
        }
        let until = self.connection_deadline();
        let in_order = tokio::time::timeout_at(until, self.entry.call_order.lock());
        // What is there at once costs no question to the host.
        let turn = tokio::select! {
            biased;
            turn = in_order => turn,
            () = self.cx.until_cancelled() => return Err(self.cancelled()),
        };
        let _turn = turn.map_err(|_| self.not_ready("the stateful calls before it still run"))?;
        let connection = self.wait_for_connection(0, until).await?;
        let over_http = self.entry.server.config.url.is_some();
        if is_stateless_peer(&connection, over_http) {
            return Err(self.mismatch());
        }
        if self.session.pin(server, connection.serial).is_some() {
            return Err(Failure::SessionLost {
                server: server.to_owned(),
                why: "it was connected anew".to_owned(),
                sent: "The call was not sent.",
            });
        }
        self.rounds(&connection)
            .await
            .map_err(|trouble| match trouble {
                RequestFailure::Failed(failure) => failure,
                RequestFailure::Unsent(why) if self.entry.has_other_login(&connection) => {
                    self.session.unpin(server);
                    Failure::SessionLost {
                        server: server.to_owned(),
                        why,
                        sent: "The call was not sent.",
                    }
                }
                RequestFailure::Unsent(why) => self.not_ready(&why),
                RequestFailure::NoAnswer(why) => self.connection_lost(why, &connection),
                RequestFailure::ConnectionLost(why) => {
                    // It is said once; what comes next begins anew.
                    self.session.unpin(server);
                    Failure::SessionLost {
                        server: server.to_owned(),
                        why: self.with_stderr(why, &connection),
                        sent: "The call was sent, and it is not known whether it took effect.",
                    }
                }
            })
    }

    async fn stateless(&self) -> Result<Value, Failure> {
        let mut after = 0;
        let mut is_again = false;
        loop {
            let until = self.connection_deadline();
            let connection = self.wait_for_connection(after, until).await?;
            let slot = tokio::time::timeout_at(until, connection.slots.acquire());
            let slot = tokio::select! {
                biased;
                slot = slot => slot,
                () = self.cx.until_cancelled() => return Err(self.cancelled()),
            };
            let Ok(Ok(_slot)) = slot else {
                return Err(self.not_ready("too many calls run on it already"));
            };
            // It may have ended while this waited for its place on it.
            if connection.link().close_reason().is_some() {
                continue;
            }
            // Once more only, or a call that ends a server would end it for ever.
            let may_again = !is_again;
            is_again = true;
            match self.rounds(&connection).await {
                Ok(value) => return Ok(value),
                Err(RequestFailure::Failed(failure)) => return Err(failure),
                Err(RequestFailure::ConnectionLost(_)) if self.tool.idempotent && may_again => {
                    after = connection.generation;
                }
                Err(RequestFailure::NoAnswer(_)) if self.tool.idempotent && may_again => {}
                Err(RequestFailure::Unsent(_)) if may_again => {}
                Err(RequestFailure::Unsent(why)) => return Err(self.not_ready(&why)),
                Err(RequestFailure::ConnectionLost(why) | RequestFailure::NoAnswer(why)) => {
                    return Err(self.connection_lost(why, &connection));
                }
            }
        }
    }

    /// Sends the call, and again with answers for as long as the server asks.
    async fn rounds(&self, connection: &Connection) -> Result<Value, RequestFailure> {
        let params = CallToolRequestParams::new(self.tool.decl.name.clone())
            .with_arguments(self.arguments.clone());
        let rounds = Rounds {
            server: &self.entry.server,
            connection,
            cx: self.cx,
            limits: self.tool.limits,
            trace: Some(&self.trace),
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        rounds.run(request).await
    }

    async fn wait_for_connection(
        &self,
        after: u64,
        until: Instant,
    ) -> Result<Arc<Connection>, Failure> {
        tokio::select! {
            biased;
            ready = self.entry.wait_for_connection(after, until) => ready.map_err(|not_there| {
                if not_there.needs_auth {
                    self.needs_auth(&not_there.reason)
                } else {
                    self.not_ready(&not_there.reason)
                }
            }),
            () = self.cx.until_cancelled() => Err(self.cancelled()),
        }
    }

    /// How long it may wait for a connection.
    fn connection_deadline(&self) -> Instant {
        let idle = self.tool.limits.idle;
        Instant::now() + self.cx.time_limit().map_or(idle, |limit| limit.min(idle))
    }

    fn server(&self) -> &str {
        &self.entry.server.name
    }

    fn with_stderr(&self, why: String, connection: &Connection) -> String {
        if self.entry.server.config.url.is_some() {
            return why;
        }
        connection.tail().annotate(&why, 3)
    }

    fn connection_lost(&self, why: String, connection: &Connection) -> Failure {
        Failure::ConnectionLost {
            server: self.server().to_owned(),
            why: self.with_stderr(why, connection),
        }
    }

    fn needs_auth(&self, why: &str) -> Failure {
        Failure::NeedsAuth {
            server: self.server().to_owned(),
            why: why.to_owned(),
        }
    }

    fn mismatch(&self) -> Failure {
        Failure::ModeMismatch {
            server: self.server().to_owned(),
            tool: self.tool.decl.name.clone(),
        }
    }

    fn not_ready(&self, why: &str) -> Failure {
        Failure::NotReady {
            server: self.server().to_owned(),
            why: why.to_owned(),
        }
    }

    fn cancelled(&self) -> Failure {
        Failure::Cancelled {
            server: self.server().to_owned(),
        }
    }

    fn bad_answer(&self, why: &str) -> Failure {
        Failure::BadAnswer {
            server: self.server().to_owned(),
            why: why.to_owned(),
        }
    }
}

/// Whether the peer declares that it keeps nothing between calls: by the capability, or because
/// it speaks the newer protocol over HTTP, where there is nothing that could be kept.
fn is_stateless_peer(connection: &Connection, over_http: bool) -> bool {
    let experimental = connection.info.capabilities.experimental.as_ref();
    let declared = experimental.and_then(|all| all.get(SESSION_CAPABILITY)?.get("mode")?.as_str());
    declared == Some("stateless") || (over_http && connection.era == Era::Modern)
}
