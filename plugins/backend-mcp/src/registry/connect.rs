//! Making a connection: a process or an endpoint, the era, the handshake.
//!
//! Nothing outside the registry can reach this.
//!
//! `server/discover` asks which era a server speaks. A server of the era before may answer with an
//! error, say nothing, or exit; the last two get a second start, with the handshake. The answer is
//! kept for the configuration.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;

use crate::asking::QuestionPolicy;
use crate::config::EraChoice;
use crate::connection::{Connection, Era};
use crate::failure::{AuthDemand, chain};
use crate::handler::{ContextSource, Handler};
use crate::http;
use crate::link::Link;
use crate::request_failure::RequestFailure;
use crate::sandbox::{ServerWorkspace, start_dir};
use crate::secrets::beginning;
use crate::server::Server;
use crate::server_notices::ServerNotices;
use crate::stdio::{
    Launch, LoginShell, ServerProcess, ServerProgram, StderrTail, StdioTransport, Supervisors,
    launch,
};

/// How long after a server failed its last words are read, which arrive meanwhile.
const STDERR_DELAY: Duration = Duration::from_millis(100);
/// How many lines of standard error a reason has.
const MAX_STDERR_LINES: usize = 5;
/// How many bytes of a server's words a reason has.
const MAX_REASON_BYTES: usize = 500;

/// Everything that a connection is made of.
pub(super) struct ConnectionParts<'a> {
    pub(super) server: &'a Server,
    pub(super) peer: Peer<'a>,
    pub(super) supervisors: &'a Arc<Supervisors>,
    pub(super) context_source: ContextSource,
    pub(super) notices: Arc<ServerNotices>,
    pub(super) generation: u64,
    pub(super) serial: u64,
    pub(super) tail: &'a StderrTail,
    /// The era that the server spoke before.
    pub(super) previous_era: Option<Era>,
}

/// The other end of a connection that is made.
pub(super) enum Peer<'a> {
    Endpoint(&'a str),
    Program(Launch<'a>, ServerProgram),
}

impl<'a> Peer<'a> {
    /// The server's endpoint or program.
    pub(super) async fn find(
        server: &'a Server,
        working_dir: Option<&'a Path>,
        place: &'a ServerWorkspace,
        login_shell: &LoginShell,
        supervisors: &Arc<Supervisors>,
    ) -> Result<Self, ConnectError> {
        if let Some(url) = &server.url {
            return Ok(Self::Endpoint(url));
        }
        let config = &server.config;
        let cwd = server.cwd.as_deref().map(Path::new);
        let start_dir = start_dir(cwd, working_dir);
        // It may be put back.
        let start_dir = start_dir.map_err(|error| ConnectError::Transient(error.to_string()))?;
        let launch = Launch {
            command: server.command.as_deref().unwrap_or_default(),
            args: &server.args,
            env: &server.env,
            pass_env: &config.pass_env,
            cwd: start_dir,
            confine: config.confine,
            sandbox: place.sandbox.clone(),
            visible: place.unlinked_dirs(),
        };
        match launch.find(login_shell, supervisors).await {
            Ok(program) => Ok(Self::Program(launch, program)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(ConnectError::NoProgram(error.to_string()))
            }
            Err(error) => Err(ConnectError::Transient(error.to_string())),
        }
    }
}

/// The reason why a connection failed.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The server wants credentials.
    NeedsAuth(AuthDemand),
    /// There is no program that could be started.
    NoProgram(String),
    /// A failure that lasts until somebody changes something.
    Permanent(String),
    /// A failure that may be over later.
    Transient(String),
}

/// Makes one.
pub(super) async fn open(opening: &ConnectionParts<'_>) -> Result<Connection, ConnectError> {
    let config = &opening.server.config;
    let chosen = match config.era {
        EraChoice::Legacy => Some(Era::Legacy),
        EraChoice::Modern => Some(Era::Modern),
        EraChoice::Auto => opening.previous_era,
    };
    match chosen {
        Some(era) => {
            let link = Link::new(Arc::clone(&opening.notices));
            opening.attempt(Some(era), link).await
        }
        None => opening.probe().await,
    }
}

impl ConnectionParts<'_> {
    /// Asks for the modern era. Beside a server that is silent for too long a second one is
    /// started, with the handshake: the first may only be slow, and then it is still first.
    async fn probe(&self) -> Result<Connection, ConnectError> {
        let link = Link::new(Arc::clone(&self.notices));
        let mut asked = Box::pin(self.attempt(None, Arc::clone(&link)));
        let silent = async {
            tokio::time::sleep(self.server.config.probe()).await;
            link.has_activity()
        };
        let probed = tokio::select! {
            asked = &mut asked => Some(asked),
            heard = silent => if heard { Some(asked.as_mut().await) } else { None },
        };
        let handshake = || {
            let link = Link::new(Arc::clone(&self.notices));
            Box::pin(self.attempt(Some(Era::Legacy), link))
        };
        match probed {
            Some(Err(ConnectError::Transient(probed))) => handshake()
                .await
                .map_err(|error| with_previous(error, &probed)),
            Some(done) => done,
            None => {
                let mut second = handshake();
                tokio::select! {
                    asked = &mut asked => match asked {
                        Err(ConnectError::Transient(probed)) => {
                            second.await.map_err(|error| with_previous(error, &probed))
                        }
                        done => done,
                    },
                    done = &mut second => match done {
                        Err(ConnectError::Transient(why)) => {
                            asked.await.map_err(|error| with_previous(error, &why))
                        }
                        done => done,
                    },
                }
            }
        }
    }

    /// One start and one handshake, of one era or, for `None`, of the newer that the server knows.
    async fn attempt(&self, era: Option<Era>, link: Arc<Link>) -> Result<Connection, ConnectError> {
        let config = &self.server.config;
        let policy = QuestionPolicy::new(self.server, self.server.client);
        let handler = Handler::new(Arc::clone(&link), policy, Arc::clone(&self.context_source));
        let lifecycle = match era {
            Some(Era::Legacy) => ClientLifecycleMode::Initialize,
            Some(Era::Modern) => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
            None => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        };
        let begun = Instant::now();
        let (service, process) = match &self.peer {
            Peer::Endpoint(url) => {
                let auth = self.server.auth.clone();
                let client =
                    http::McpHttpClient::new(Arc::clone(&link), auth, config.max_message_bytes)
                        .map_err(|error| ConnectError::Permanent(chain(&error)))?;
                let settings =
                    http::transport(url, self.server.headers.clone(), config.max_message_bytes);
                let transport = StreamableHttpClientTransport::with_client(client, settings);
                let serving = serve_client_with_lifecycle(handler, transport, lifecycle);
                (self.handshake(serving, &link).await?, None)
            }
            Peer::Program(how, program) => {
                let (process, pipe) = self.start((how, program), &link).await?;
                let input = pipe.input().clone();
                let serving = serve_client_with_lifecycle(handler, pipe, lifecycle);
                let service = self.handshake(serving, &link).await?;
                (service, Some((process, input)))
            }
        };
        let version = service.peer().peer_info();
        let says_modern =
            version.is_some_and(|info| info.protocol_version >= ProtocolVersion::NO_INITIALIZE);
        // What was asked decides; a server that claims another revision in a handshake does not.
        let era = era.unwrap_or(if says_modern {
            Era::Modern
        } else {
            Era::Legacy
        });
        let tail = self.tail.clone();
        let numbers = (self.generation, self.serial);
        let connection = Connection::new(
            self.server,
            numbers,
            era,
            service,
            process,
            (link, tail),
            begun,
        );
        connection.map_err(ConnectError::Transient)
    }

    async fn start(
        &self,
        (how, program): (&Launch<'_>, &ServerProgram),
        link: &Arc<Link>,
    ) -> Result<(ServerProcess, StdioTransport), ConnectError> {
        let launched = launch(how, program, self.supervisors).await;
        let (process, pipes) = launched.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                ConnectError::Permanent(error.to_string())
            }
            _ => ConnectError::Transient(error.to_string()),
        })?;
        if let Some(lacks) = process.gaps() {
            self.notices.warn(&format!(
                "it is not confined as it should be: {lacks} (the system gives no more)"
            ));
        }
        tokio::spawn(self.tail.clone().drain(pipes.stderr));
        let (mut exit, over) = (process.exit(), Arc::clone(link));
        tokio::spawn(async move {
            exit.wait().await;
            // What it said last is still in its pipe. Another program may hold that open.
            tokio::time::sleep(STDERR_DELAY).await;
            over.close("it ended");
        });
        let pipe = StdioTransport::new(
            pipes.stdin,
            pipes.stdout,
            self.server.config.max_message_bytes,
            Arc::clone(link),
            self.tail.clone(),
        );
        Ok((process, pipe))
    }

    async fn handshake(
        &self,
        serving: impl Future<
            Output = Result<RunningService<RoleClient, Handler>, ClientInitializeError>,
        >,
        link: &Link,
    ) -> Result<RunningService<RoleClient, Handler>, ConnectError> {
        let serving = Box::pin(serving);
        let limit = self.server.config.initialize();
        let why = tokio::select! {
            biased;
            served = serving => match served {
                Ok(service) => return Ok(service),
                Err(error) => return Err(self.handshake_error(&error).await),
            },
            why = link.until_closed() => why,
            () = tokio::time::sleep(limit) => {
                format!("it did not finish the handshake within {limit:?}")
            }
        };
        Err(ConnectError::Transient(self.with_stderr(why).await))
    }

    async fn handshake_error(&self, error: &ClientInitializeError) -> ConnectError {
        let is_program = self.server.config.url.is_none();
        let why = if is_program
            && let ClientInitializeError::TransportError { .. }
            | ClientInitializeError::ConnectionClosed(_) = error
        {
            // Whether it is found when it is written to or read from is a matter of moments.
            "it ended before the handshake was over".to_owned()
        } else if let ClientInitializeError::TransportError { error, .. } = error {
            let trouble = http::judge(&self.server.name, error.error.as_ref());
            match trouble.redacted(&self.server.secrets) {
                RequestFailure::Failed(failure) => {
                    return match failure.auth_demand() {
                        Some(wanted) => ConnectError::NeedsAuth(wanted),
                        None => ConnectError::Transient(failure.to_string()),
                    };
                }
                RequestFailure::ConnectionLost(why)
                | RequestFailure::NoAnswer(why)
                | RequestFailure::Unsent(why) => why,
            }
        } else {
            self.server.secrets.redact(error.to_string())
        };
        ConnectError::Transient(self.with_stderr(beginning(why, MAX_REASON_BYTES)).await)
    }

    /// The reason with the last lines of the server's standard error.
    async fn with_stderr(&self, why: String) -> String {
        if self.server.config.url.is_some() {
            return why;
        }
        tokio::time::sleep(STDERR_DELAY).await;
        self.tail.annotate(&why, MAX_STDERR_LINES)
    }
}

/// A failure with the one before it.
fn with_previous(error: ConnectError, before: &str) -> ConnectError {
    match error {
        ConnectError::Transient(why) => {
            ConnectError::Transient(format!("{why}; and started in the other way: {before}"))
        }
        other => other,
    }
}
