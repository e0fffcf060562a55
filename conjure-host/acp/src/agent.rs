//! One connection: the requests of a client, and the sessions that it has open.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthenticateRequest, CancelNotification, ClientCapabilities,
    CloseSessionRequest, CloseSessionResponse, ConfigOptionUpdate, ContentBlock, CurrentModeUpdate,
    DeleteSessionRequest, DeleteSessionResponse, Implementation, InitializeRequest,
    InitializeResponse, ListSessionsRequest, LoadSessionRequest, LoadSessionResponse,
    LogoutRequest, McpCapabilities, McpServer, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, ResumeSessionRequest, ResumeSessionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities, SessionId,
    SessionListCapabilities, SessionResumeCapabilities, SessionSystemPromptCapabilities,
    SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse, SystemPrompt, SystemPromptMode,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, Error, JsonRpcResponse, Lines, on_receive_notification, on_receive_request,
};
use conjure_core::turn::EffectiveFrom;
use conjure_runtime::manager::{
    ChatRetention, Manager, NewSession, PersonaCopy, SessionPatch, SessionView,
};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::error::{invalid, no_session, of_manager};
use super::open_session::{OpenSession, lock};
use super::prompt::QueuedPrompt;
use super::request_queue::QueueTicket;
use super::sign_in::SignIn;
use super::too_long::{TooLongAnswer, TooLongRequest};
use super::transport::{self, Outflow};
use super::updates::Updates;
use super::{
    AcpCommands, AcpError, AcpOptions, defaults, history, listing, mcp_servers, prompt, settings,
};

/// The connection of one client, with what is open and what runs for it.
pub(crate) struct AgentConnection {
    manager: Manager,
    options: AcpOptions,
    outflow: Arc<Outflow>,
    client: Mutex<ClientCapabilities>,
    sign_in: SignIn,
    sessions: Mutex<HashMap<SessionId, Arc<OpenSession>>>,
    /// The turns that the client began and that run, with their sessions.
    running: Mutex<BTreeMap<String, String>>,
}

/// Serves a client until its stream or this token ends.
pub(crate) async fn serve<R, W>(
    manager: Manager,
    options: AcpOptions,
    read: R,
    write: W,
    end: CancellationToken,
) -> Result<(), AcpError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let outflow = Arc::new(Outflow::default());
    let lines = Lines::new(
        transport::outgoing(write, Arc::clone(&outflow)),
        Box::pin(transport::incoming(read, options.max_message_bytes)),
    );
    let connection = Arc::new(AgentConnection {
        manager,
        options,
        outflow,
        client: Mutex::default(),
        sign_in: SignIn::default(),
        sessions: Mutex::default(),
        running: Mutex::default(),
    });
    let serving = Arc::clone(&connection).requests(lines);
    let served = tokio::select! {
        served = serving => match served {
            // A client may go while something is still written to it.
            Err(_) if connection.outflow.is_closed() => Ok(()),
            served => served.map_err(|error| AcpError { reason: error.to_string() }),
        },
        () = end.cancelled() => Ok(()),
    };
    connection.end().await;
    served
}

impl AgentConnection {
    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Whether the client shows notices apart from messages.
    pub(crate) fn supports_notices(&self) -> bool {
        let client = lock(&self.client);
        let session = client.session.as_ref();
        session.is_some_and(|session| session.notices.is_some())
    }

    /// Whether the client gives texts as it shows them.
    pub(crate) fn supports_text_reads(&self) -> bool {
        lock(&self.client).fs.read_text_file
    }

    /// The commands that a session has.
    pub(crate) fn commands(&self) -> Option<&AcpCommands> {
        self.options.commands.as_ref()
    }

    /// The commands, for the client of a session.
    fn commands_update(
        &self,
        client: ConnectionTo<Client>,
        session: &SessionId,
    ) -> Option<OpeningUpdate> {
        let commands = self.commands()?;
        Some((self.updates(client, session), commands.update()))
    }

    /// Whether the client can ask the person to fill in a form, or to visit a page.
    pub(crate) fn can_elicit(&self, page: bool) -> bool {
        let client = lock(&self.client);
        let Some(elicitation) = &client.elicitation else {
            return false;
        };
        match page {
            true => elicitation.url.is_some(),
            false => elicitation.form.is_some(),
        }
    }

    /// Takes note of a turn that runs.
    pub(crate) fn add_running(&self, session: &str, turn: &str) {
        lock(&self.running).insert(turn.to_owned(), session.to_owned());
    }

    /// Takes note that it runs no more.
    pub(crate) fn remove_running(&self, turn: &str) {
        lock(&self.running).remove(turn);
    }

    /// Cancels what still runs.
    async fn end(&self) {
        let running = std::mem::take(&mut *lock(&self.running));
        for (turn, session) in running {
            if let Err(error) = self.manager.cancel_turn(&session, &turn).await {
                tracing::warn!("a turn goes on without its editor: {error}");
            }
        }
    }

    async fn requests(
        self: Arc<Self>,
        lines: impl agent_client_protocol::ConnectTo<Agent> + 'static,
    ) -> Result<(), Error> {
        let on = || Arc::clone(&self);
        let (one, two, three, four, five, six) = (on(), on(), on(), on(), on(), on());
        let (seven, eight, nine, ten, eleven, twelve) = (on(), on(), on(), on(), on(), on());
        let thirteen = on();
        let agent = Agent.v1().name("conjure");
        let agent = agent.on_receive_request(
            async move |request: TooLongRequest, responder: Responder<TooLongAnswer>, _| {
                responder.respond_with_error(invalid(format!(
                    "the message has more than {} bytes, which is the most that is read",
                    request.most
                )))
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                responder.respond(one.initialize(request))
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: AuthenticateRequest, responder, client| {
                let on = Arc::clone(&two);
                answer(&client, responder, async move {
                    on.sign_in.authenticate(&on.manager, &request).await
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |_: LogoutRequest, responder, _| {
                responder.respond(thirteen.sign_in.logout())
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: NewSessionRequest, responder, client| {
                let (on, to) = (Arc::clone(&three), client.clone());
                answer_then_update(&client, responder, async move {
                    let opened = on.new_session(request).await?;
                    let offer = on.commands_update(to, &opened.session_id);
                    Ok((opened, offer))
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: LoadSessionRequest, responder, client| {
                let (on, to) = (Arc::clone(&four), client.clone());
                answer_then_update(&client, responder, async move {
                    let offer = on.commands_update(to.clone(), &request.session_id);
                    Ok((on.load(to, request).await?, offer))
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: ResumeSessionRequest, responder, client| {
                let (on, to) = (Arc::clone(&five), client.clone());
                answer_then_update(&client, responder, async move {
                    let offer = on.commands_update(to, &request.session_id);
                    Ok((on.resume(request).await?, offer))
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: ListSessionsRequest, responder, client| {
                let on = Arc::clone(&six);
                answer(&client, responder, async move {
                    listing::page(&on.manager, &request).await
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: CloseSessionRequest, responder, client| {
                let on = Arc::clone(&seven);
                let closing = on.close_session(&request.session_id);
                answer(&client, responder, async move {
                    let (ticket, session) = closing?;
                    on.cancel(&session).await;
                    drop(ticket);
                    Ok(CloseSessionResponse::new())
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: DeleteSessionRequest, responder, client| {
                let on = Arc::clone(&eight);
                answer(&client, responder, async move {
                    on.delete(&request.session_id).await
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: SetSessionModeRequest, responder, client| {
                let (on, to) = (Arc::clone(&nine), client.clone());
                let ticket = on.ticket(&request.session_id);
                answer(&client, responder, async move {
                    let set = on.set_mode(to, request).await;
                    drop(ticket);
                    set
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, client| {
                let (on, to) = (Arc::clone(&ten), client.clone());
                let ticket = on.ticket(&request.session_id);
                answer(&client, responder, async move {
                    // What was asked before it is asked of the model of then. A mode counts at once.
                    if let Some(ticket) = &ticket
                        && &*request.config_id.0 == settings::MODEL
                    {
                        ticket.wait_first().await;
                    }
                    let set = on.set_option(to, request).await;
                    drop(ticket);
                    set
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_request(
            async move |request: PromptRequest, responder, client| {
                let (on, to) = (Arc::clone(&eleven), client.clone());
                let cancellation = responder.cancellation();
                // Now, and not when its work begins: what comes behind it waits for it.
                let session = on.session(&request.session_id);
                let queued = session.map(|session| (session.queue.enter(), session));
                answer(&client, responder, async move {
                    let (ticket, session) = queued?;
                    let updates = on.updates(to, &request.session_id);
                    let prompt = QueuedPrompt {
                        request,
                        cancellation,
                        ticket,
                    };
                    Box::pin(prompt::run(on, session, updates, prompt)).await
                })
            },
            on_receive_request!(),
        );
        let agent = agent.on_receive_notification(
            async move |note: CancelNotification, client| {
                let on = Arc::clone(&twelve);
                let session = on.session(&note.session_id);
                // Now: it ends what was asked before it, and nothing that comes behind it.
                match session.map(|session| (session.queue.cancel(), session)) {
                    Ok((ticket, session)) => client.spawn(async move {
                        on.cancel(&session).await;
                        drop(ticket);
                        Ok(())
                    }),
                    Err(_) => Ok(()),
                }
            },
            on_receive_notification!(),
        );
        agent.connect_to(lines).await
    }

    fn initialize(&self, request: InitializeRequest) -> InitializeResponse {
        *lock(&self.client) = request.client_capabilities;
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .system_prompt(SessionSystemPromptCapabilities::new());
        let can = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().embedded_context(true).image(true))
            .mcp_capabilities(McpCapabilities::new().http(true))
            .session_capabilities(sessions)
            .auth(SignIn::capabilities());
        let version = env!("CARGO_PKG_VERSION");
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(can)
            .auth_methods(SignIn::methods())
            .agent_info(Implementation::new("conjure", version).title("Conjure".to_owned()))
    }

    async fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, Error> {
        self.sign_in.check()?;
        let mcps = mcp_servers::settings(&request.mcp_servers)?;
        let persona = persona(request.system_prompt.as_ref())?;
        reject_additional_roots(&request.additional_directories)?;
        let defaults = defaults::of(&self.manager, &self.options).await?;
        let new = NewSession {
            persona: persona.unwrap_or_default(),
            tools: self.options.tools.clone(),
            mcps,
            ..NewSession::new(defaults.auth, defaults.model, request.cwd)
        };
        let view = self.manager.create(new).await;
        let view = view.map_err(|error| of_manager(&error))?;
        let id = SessionId::new(view.id.clone());
        let mode = self.register_open(id.clone(), &view).mode();
        let options = settings::options(&self.manager, &view, mode).await?;
        Ok(NewSessionResponse::new(id)
            .modes(mode.state())
            .config_options(options))
    }

    async fn load(
        &self,
        client: ConnectionTo<Client>,
        request: LoadSessionRequest,
    ) -> Result<LoadSessionResponse, Error> {
        self.sign_in.check()?;
        persona(request.system_prompt.as_ref())?;
        reject_additional_roots(&request.additional_directories)?;
        let id = request.session_id;
        let view = self
            .open_saved(&id, &request.cwd, &request.mcp_servers)
            .await?;
        if let Some(thread) = &view.thread {
            let updates = self.updates(client, &id);
            history::replay(&self.manager, &thread.id, &view.working_dir, &updates).await?;
        }
        let mode = self.register_open(id, &view).mode();
        let options = settings::options(&self.manager, &view, mode).await?;
        Ok(LoadSessionResponse::new()
            .modes(mode.state())
            .config_options(options))
    }

    async fn resume(&self, request: ResumeSessionRequest) -> Result<ResumeSessionResponse, Error> {
        self.sign_in.check()?;
        persona(request.system_prompt.as_ref())?;
        reject_additional_roots(&request.additional_directories)?;
        let id = request.session_id;
        let view = self
            .open_saved(&id, &request.cwd, &request.mcp_servers)
            .await?;
        let mode = self.register_open(id, &view).mode();
        let options = settings::options(&self.manager, &view, mode).await?;
        Ok(ResumeSessionResponse::new()
            .modes(mode.state())
            .config_options(options))
    }

    /// A saved session, in the directory and with the servers that the client says. Servers that
    /// the session has beside those stay.
    async fn open_saved(
        &self,
        id: &SessionId,
        cwd: &Path,
        servers: &[McpServer],
    ) -> Result<SessionView, Error> {
        let wrong = |error| of_manager(&error);
        let view = self.manager.get(&id.0).await.map_err(wrong)?;
        let mut mcps: Map<String, Value> = view.mcps.clone();
        mcps.extend(mcp_servers::settings(servers)?);
        let wanted = listing::RequestedDir::new(cwd);
        let patch = SessionPatch {
            working_dir: (!wanted.matches(&view.working_dir)).then(|| cwd.to_owned()),
            mcps: (mcps != view.mcps).then_some(mcps),
            ..SessionPatch::default()
        };
        if patch == SessionPatch::default() {
            return Ok(view);
        }
        let changed = self
            .manager
            .update(&view.id, patch, EffectiveFrom::NextTurn)
            .await;
        changed.map_err(wrong)
    }

    /// Has a session open. One that is open stays the one that it is, whatever the client calls it:
    /// its turns go on, and what is set from now on counts for them.
    fn register_open(&self, id: SessionId, view: &SessionView) -> Arc<OpenSession> {
        let mut open = lock(&self.sessions);
        let known = open.values().find(|session| session.id == view.id);
        let session = known.map_or_else(|| Arc::new(OpenSession::new(view)), Arc::clone);
        open.insert(id, Arc::clone(&session));
        session
    }

    fn session(&self, id: &SessionId) -> Result<Arc<OpenSession>, Error> {
        let open = lock(&self.sessions);
        open.get(id).cloned().ok_or_else(|| no_session(&id.0))
    }

    /// A ticket of the queue of a session; nothing where that is not open. As long as somebody has it, no
    /// prompt that came later begins.
    fn ticket(&self, id: &SessionId) -> Option<QueueTicket> {
        let session = self.session(id).ok()?;
        Some(session.queue.enter())
    }

    fn updates(&self, client: ConnectionTo<Client>, session: &SessionId) -> Updates {
        Updates::new(client, session.clone(), Arc::clone(&self.outflow))
    }

    /// Has a session open no more, and cancels what was asked in it. What the manager runs of that is
    /// still to be ended.
    fn close_session(&self, id: &SessionId) -> Result<(QueueTicket, Arc<OpenSession>), Error> {
        let closed = lock(&self.sessions).remove(id);
        let session = closed.ok_or_else(|| no_session(&id.0))?;
        Ok((session.queue.cancel(), session))
    }

    async fn delete(&self, id: &SessionId) -> Result<DeleteSessionResponse, Error> {
        let deleted = self.manager.delete(&id.0, ChatRetention::Keep).await;
        deleted.map_err(|error| of_manager(&error))?;
        lock(&self.sessions).remove(id);
        Ok(DeleteSessionResponse::new())
    }

    async fn set_mode(
        &self,
        client: ConnectionTo<Client>,
        request: SetSessionModeRequest,
    ) -> Result<SetSessionModeResponse, Error> {
        let session = self.session(&request.session_id)?;
        let mode = settings::mode(&request.mode_id.0)?;
        session.set_mode(mode);
        let view = self.manager.get(&session.id).await;
        let view = view.map_err(|error| of_manager(&error))?;
        let options = settings::options(&self.manager, &view, mode).await?;
        let update = SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options));
        self.updates(client, &request.session_id).send(update).await;
        Ok(SetSessionModeResponse::new())
    }

    async fn set_option(
        &self,
        client: ConnectionTo<Client>,
        request: SetSessionConfigOptionRequest,
    ) -> Result<SetSessionConfigOptionResponse, Error> {
        let session = self.session(&request.session_id)?;
        let value = settings::option_value(&request)?;
        let view = match &*request.config_id.0 {
            settings::MODE => {
                session.set_mode(settings::mode(value)?);
                let update = CurrentModeUpdate::new(session.mode().id());
                let updates = self.updates(client, &request.session_id);
                updates.send(SessionUpdate::CurrentModeUpdate(update)).await;
                let view = self.manager.get(&session.id).await;
                view.map_err(|error| of_manager(&error))?
            }
            settings::MODEL => settings::set_model(&self.manager, &session.id, value).await?,
            other => {
                return Err(invalid(format!(
                    "there is no option `{other}`; there are {} and {}",
                    settings::MODE,
                    settings::MODEL
                )));
            }
        };
        let options = settings::options(&self.manager, &view, session.mode()).await?;
        Ok(SetSessionConfigOptionResponse::new(options))
    }

    /// Ends what runs in a session, and what waits behind it.
    async fn cancel(&self, session: &OpenSession) {
        if let Err(error) = self.manager.cancel(&session.id, true).await {
            tracing::warn!("a turn could not be cancelled: {error}");
        }
    }
}

/// Answers a request when its work is done; other requests are taken meanwhile.
fn answer<T: JsonRpcResponse + Send>(
    client: &ConnectionTo<Client>,
    responder: Responder<T>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Error> {
    client.spawn(async move {
        // A client that is gone needs no answer.
        let _ = responder.respond_with_result(work.await);
        Ok(())
    })
}

/// Answers a request, and tells the client something after the answer.
fn answer_then_update<T: JsonRpcResponse + Send>(
    client: &ConnectionTo<Client>,
    responder: Responder<T>,
    work: impl Future<Output = Result<(T, Option<OpeningUpdate>), Error>> + Send + 'static,
) -> Result<(), Error> {
    client.spawn(async move {
        let (answer, offer) = match work.await {
            Ok((answer, offer)) => (Ok(answer), offer),
            Err(error) => (Err(error), None),
        };
        // A client that is gone needs no answer.
        let _ = responder.respond_with_result(answer);
        if let Some((updates, update)) = offer {
            updates.send(update).await;
        }
        Ok(())
    })
}

/// Updates for a session that was opened, and how they are sent.
type OpeningUpdate = (Updates, SessionUpdate);

/// The instructions that a client adds to those of the session.
fn persona(prompt: Option<&SystemPrompt>) -> Result<Option<PersonaCopy>, Error> {
    let Some(prompt) = prompt else {
        return Ok(None);
    };
    if prompt.mode != SystemPromptMode::Append {
        return Err(invalid("a system prompt can only be appended"));
    }
    let mut text = String::new();
    for block in &prompt.content {
        match block {
            ContentBlock::Text(block) => text.push_str(&block.text),
            _ => return Err(invalid("a system prompt is made of texts")),
        }
    }
    Ok(Some(PersonaCopy {
        persona_text: text,
        ..PersonaCopy::default()
    }))
}

fn reject_additional_roots(more: &[std::path::PathBuf]) -> Result<(), Error> {
    match more {
        [] => Ok(()),
        _ => Err(invalid(
            "a session has one working directory; `additionalDirectories` is not supported, as \
             `initialize` says",
        )),
    }
}
