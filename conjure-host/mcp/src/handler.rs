//! The requests of MCP clients, in both eras.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_core::chat::FunctionCall;
use conjure_skill_sdk::protocol::PromptGet;
use futures_util::future::BoxFuture;
#[expect(deprecated, reason = "clients of the old era still set a level")]
use rmcp::model::SetLevelRequestParams;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Implementation, InitializeRequestParams, InitializeResult,
    InputRequiredResult, InputResponses, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::answers::{
    as_text, no_resource, prompt_result, read_error, read_result, resume_error, unexpected_answer,
};
use super::changes::{ChangeNotice, SessionChanges};
use super::client_questions::ClientQuestionKinds;
use super::clients::{ClientSessions, Identity};
use super::instructions::instructions;
use super::lists::{SourceListKind, fetch_lists};
use super::notes::{MessageFilter, Outlet, rank};
use super::session::{ClientSession, RequestWork, WorkStart};
use super::session_manager::AdmittedRequest;
use super::subscriptions::ResourceStream;
use super::suspendable_request::{
    DriveResult, RequestTarget, ServedRequest, SuspendableRequest, WorkResult, input_required,
};
use super::tools::ServedTools;
use super::verbatim::{AnswerKind, sdk_value};
use super::{
    changes, completion, files, lists, meta_tools, permission, results, subscriptions, verbatim,
};
use conjure_runtime::backend::CallReport;
use conjure_runtime::backend::readers::{ReadError, SourceLists};
use conjure_runtime::session::ToolSession;

/// Handler of one connection, or of one request without a connection.
pub(super) struct McpHandler {
    clients: Arc<ClientSessions>,
    /// Whether requests of the new era come without a connection.
    over_http: bool,
    own_session: OnceCell<Arc<ClientSession>>,
    /// How often anything had changed when a listener was about to be acknowledged.
    changes_at_listen: AtomicU64,
}

/// A request that its client may have to continue.
struct ResumableRequest {
    target: RequestTarget,
    responses: Option<InputResponses>,
    state: Option<String>,
}

impl McpHandler {
    pub(super) fn new(clients: Arc<ClientSessions>, over_http: bool) -> Self {
        Self {
            clients,
            over_http,
            own_session: OnceCell::new(),
            changes_at_listen: AtomicU64::new(0),
        }
    }

    async fn session(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<ClientSession>, ErrorData> {
        if self.over_http && is_modern(context) {
            let identity = Identity::of(&AdmittedRequest::of(context)?.principal, context);
            let session = self.clients.get_or_begin_shared_session(&identity)?;
            session.declare(|| identity.kinds);
            return Ok(session);
        }
        let session = self.connection_session(context).await?;
        session.declare(|| ClientQuestionKinds::of(context.client_capabilities().as_ref()));
        Ok(session)
    }

    /// The session of the connection, which the first request of it begins.
    async fn connection_session(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<ClientSession>, ErrorData> {
        let begin = || match self.over_http {
            true => AdmittedRequest::of(context)
                .and_then(|by| self.clients.begin_connection_session(by)),
            false => Ok(self.clients.new_session(None)),
        };
        let own = self.own_session.get_or_try_init(|| ready(begin())).await?;
        Ok(Arc::clone(own))
    }

    /// Begins a request's work, or goes on with it, and follows it. In a box of its own: it is
    /// large, and the SDK moves the future of a request several times.
    fn follow<'a, F>(
        &'a self,
        session: &'a ClientSession,
        context: &'a RequestContext<RoleServer>,
        request: ResumableRequest,
        lane: Option<&'a str>,
        work: impl FnOnce(RequestWork) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<RequestOutcome, ErrorData>>
    where
        F: Future<Output = WorkResult> + Send + 'static,
    {
        Box::pin(async move {
            let modern = is_modern(context);
            let outlet = note_outlet(session, context, modern, &request.target.name);
            let suspendable: SuspendableRequest = match request.state {
                Some(state) => {
                    let responses = request.responses.unwrap_or_default();
                    let resumed = session
                        .suspended
                        .resume(&state, &request.target, &responses);
                    resumed.map_err(|error| resume_error(&error))?
                }
                None => {
                    let capabilities = context.client_capabilities();
                    let start = WorkStart {
                        target: request.target,
                        capabilities: capabilities.as_ref(),
                        initial_answers: request.responses.unwrap_or_default(),
                        lane,
                    };
                    session.start(start, work).await?
                }
            };
            let answer_timeout = session.common.options.answer_timeout;
            let served = ServedRequest {
                context,
                outlet,
                modern,
                answer_timeout,
            };
            match suspendable.drive(served).await? {
                DriveResult::Input(suspendable, requests) => {
                    let state = session.suspended.insert(*suspendable, answer_timeout);
                    Ok(RequestOutcome::Input(input_required(requests, state)))
                }
                DriveResult::Done(done, call) => {
                    let missing = call.undeclared().filter(|_| modern && done.is_failure());
                    match missing {
                        Some(missing) => {
                            Err(ErrorData::missing_required_client_capability(missing))
                        }
                        None => Ok(RequestOutcome::Done(done)),
                    }
                }
            }
        })
    }

    async fn call(
        &self,
        session: &ClientSession,
        context: &RequestContext<RoleServer>,
        tools: &ServedTools,
        request: CallToolRequestParams,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        let Some(served) = tools.find(&name) else {
            let text = match tools.snapshot.table().find_quarantined(&name) {
                Some(kept_out) => format!("the tool `{name}` is not offered: {}", kept_out.error),
                None => {
                    format!("there is no tool `{name}`; `tools/list` has those that there are")
                }
            };
            return Err(ErrorData::invalid_params(text, None));
        };
        let what = RequestTarget {
            method: "tools/call",
            name,
            arguments: request.arguments,
        };
        let (snapshot, public) = (Arc::clone(&tools.snapshot), served.public.clone());
        let source = snapshot.source_of(&public);
        let arguments = Value::Object(what.arguments.clone().unwrap_or_default());
        let request = ResumableRequest {
            target: what,
            responses: request.input_responses,
            state: request.request_state,
        };
        let work = |work: RequestWork| async move {
            let call = FunctionCall {
                call_id: work.id.as_ref().to_owned(),
                name: public,
                arguments,
                arguments_text: None,
            };
            let with = work.call_options(&snapshot);
            if let Err(refusal) = permission::authorize(&work, &snapshot, &call).await {
                let route = snapshot.table().route(&call.name);
                let backend = route.map(|route| &*route.backend);
                let report = CallReport::not_run(&call, backend, refusal.kind());
                return WorkResult::Call(Ok(report));
            }
            let report = work.calls.call_with(&call, with).await;
            WorkResult::Call(report.map_err(|error| error.to_string()))
        };
        let lane = served.lane.as_deref();
        let modern = is_modern(context);
        match self.follow(session, context, request, lane, work).await? {
            RequestOutcome::Input(input) => Ok(input.into()),
            RequestOutcome::Done(done) => match *done {
                WorkResult::Call(Ok(report)) => {
                    let calls = session.calls().await?;
                    let said = report.plugin_result.as_ref();
                    let meta = said.and_then(|said| said.meta.as_ref());
                    if let Some(answer) = verbatim::answer(meta, calls.artifacts()) {
                        session.links.note_answer(source.as_ref(), &answer);
                        let result: CallToolResult = sdk_value(answer, AnswerKind::Call, modern)?;
                        return Ok(result.into());
                    }
                    let result = results::call(report, calls.artifacts(), calls.most_bytes());
                    session.links.note_content(source.as_ref(), &result.content);
                    Ok(result.into())
                }
                WorkResult::Call(Err(text)) => Err(ErrorData::invalid_params(text, None)),
                WorkResult::Read(_) | WorkResult::Prompt(_) => Err(unexpected_answer()),
            },
        }
    }

    async fn lists(
        &self,
        context: &RequestContext<RoleServer>,
        of: SourceListKind,
    ) -> Result<(Arc<ToolSession>, Vec<SourceLists>), ErrorData> {
        let session = self.session(context).await?;
        let calls = Arc::clone(session.calls().await?);
        let listed = fetch_lists(&calls, &context.ct, of).await;
        Ok((calls, listed))
    }
}

/// Outcome of a request.
enum RequestOutcome {
    Done(Box<WorkResult>),
    Input(InputRequiredResult),
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "prompts": { "listChanged": true },
            "completions": {},
            "logging": {},
        });
        let capabilities = serde_json::from_value::<ServerCapabilities>(capabilities);
        let mut info = ServerConfig::new(capabilities.unwrap_or_default());
        info.server_info = Implementation::new("conjure", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut info = self.negotiate_initialize(&request)?;
        let session = self.connection_session(&context).await?;
        session.declare(|| ClientQuestionKinds::of(Some(&request.capabilities)));
        info.instructions = instructions(&session).await;
        Ok(info)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        // Without a session that may be opened, the first request that needs one says why.
        if let Ok(session) = self.session(&context).await {
            info.instructions = instructions(&session).await;
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.clients.tool(name)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let session = self.session(&context).await?;
        let tools = session.tools().await?.listed();
        let (tools, next) = lists::page(tools, cursor(request.as_ref()))?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        Ok(result)
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session(&context).await?;
        let tools = session.tools().await?;
        if tools.is_meta(&request.name) {
            if request.name != meta_tools::CALL {
                let arguments = request.arguments.unwrap_or_default();
                let result = match meta_tools::answer(&request.name, &arguments, &tools) {
                    Ok(answer) => CallToolResult::structured(answer),
                    Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
                };
                return Ok(result.into());
            }
            let (name, arguments) = meta_tools::inner_call(request.arguments.take())?;
            request.name = name.into();
            request.arguments = arguments;
        }
        self.call(&session, &context, &tools, request).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let session = self.session(&context).await?;
        let (calls, listed) = self.lists(&context, SourceListKind::Resources).await?;
        let resources = lists::resources(&listed, &session.hidden, calls.artifacts());
        let (resources, next) = lists::page(resources, cursor(request.as_ref()))?;
        let mut result = ListResourcesResult::with_all_items(resources);
        result.next_cursor = next;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let (_, listed) = self.lists(&context, SourceListKind::Resources).await?;
        let templates = lists::templates(&listed);
        let (templates, next) = lists::page(templates, cursor(request.as_ref()))?;
        let mut result = ListResourceTemplatesResult::with_all_items(templates);
        result.next_cursor = next;
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let session = self.session(&context).await?;
        let uri = request.uri;
        if files::is_file(&uri) {
            let calls = session.calls().await?;
            let content = files::read(calls.artifacts(), &uri).await;
            let content = content.map_err(|text| ErrorData::invalid_params(text, None))?;
            return match content {
                Some(content) => read_result(&uri, &[content]),
                None => Err(no_resource(&uri, "there is no such file in this session")),
            };
        }
        let request = ResumableRequest {
            target: RequestTarget {
                method: "resources/read",
                name: uri.clone(),
                arguments: None,
            },
            responses: request.input_responses,
            state: request.request_state,
        };
        let (target_uri, links) = (uri.clone(), session.links.sources(&uri));
        let work = |work: RequestWork| async move {
            let snapshot = work.calls.snapshot();
            let with = work.call_options(&snapshot);
            let reader = work.calls.reader(Some(&work.id), &with);
            WorkResult::Read(reader.read(&target_uri, &links).await)
        };
        match self.follow(&session, &context, request, None, work).await? {
            RequestOutcome::Input(input) => Ok(input.into()),
            RequestOutcome::Done(done) => match *done {
                WorkResult::Read(Ok(said)) => {
                    let calls = session.calls().await?;
                    if let Some(answer) = verbatim::answer(said.meta.as_ref(), calls.artifacts()) {
                        let modern = is_modern(&context);
                        let result: ReadResourceResult =
                            sdk_value(answer, AnswerKind::Read, modern)?;
                        return Ok(result.into());
                    }
                    if said.is_error {
                        return Err(ErrorData::internal_error(said.joined_text(), None));
                    }
                    read_result(&uri, &results::contents(&uri, &said, calls.artifacts()))
                }
                WorkResult::Read(Err(ReadError::NotFound(text))) => Err(no_resource(&uri, &text)),
                WorkResult::Read(Err(error)) => Err(read_error(&error)),
                WorkResult::Call(_) | WorkResult::Prompt(_) => Err(unexpected_answer()),
            },
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (_, listed) = self.lists(&context, SourceListKind::Prompts).await?;
        let prompts = lists::prompts(&listed).into_values();
        let prompts = prompts.map(|served| served.prompt).collect();
        let (prompts, next) = lists::page(prompts, cursor(request.as_ref()))?;
        let mut result = ListPromptsResult::with_all_items(prompts);
        result.next_cursor = next;
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let session = self.session(&context).await?;
        let calls = session.calls().await?;
        let served = lists::prompt(&session, calls, &context.ct, &request.name).await?;
        let arguments = request.arguments.clone().unwrap_or_default();
        let prompt = PromptGet {
            name: served.source_name,
            arguments: arguments.into_iter().map(as_text).collect(),
        };
        let request = ResumableRequest {
            target: RequestTarget {
                method: "prompts/get",
                name: request.name,
                arguments: request.arguments,
            },
            responses: request.input_responses,
            state: request.request_state,
        };
        let source = served.source.clone();
        let work = |work: RequestWork| async move {
            let snapshot = work.calls.snapshot();
            let with = work.call_options(&snapshot);
            let reader = work.calls.reader(Some(&work.id), &with);
            WorkResult::Prompt(reader.prompt(&source, prompt).await)
        };
        match self.follow(&session, &context, request, None, work).await? {
            RequestOutcome::Input(input) => Ok(input.into()),
            RequestOutcome::Done(done) => match *done {
                WorkResult::Prompt(Ok(filled)) => {
                    let source = calls.snapshot().prompt_source(&served.source);
                    let meta = filled.meta.as_ref().and_then(Value::as_object);
                    if let Some(answer) = verbatim::answer(meta, calls.artifacts()) {
                        session.links.note_answer(source.as_ref(), &answer);
                        let modern = is_modern(&context);
                        let result: GetPromptResult =
                            sdk_value(answer, AnswerKind::Prompt, modern)?;
                        return Ok(result.into());
                    }
                    let result = prompt_result(filled)?;
                    let content = result.messages.iter().map(|message| &message.content);
                    session.links.note_content(source.as_ref(), content);
                    Ok(result.into())
                }
                WorkResult::Prompt(Err(error)) => Err(read_error(&error)),
                WorkResult::Call(_) | WorkResult::Read(_) => Err(unexpected_answer()),
            },
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let session = self.session(&context).await?;
        let calls = session.calls().await?;
        // As large as all the rest of a request, and rare.
        Box::pin(completion::complete(&session, calls, &context.ct, request)).await
    }

    #[expect(deprecated, reason = "clients of the old era still set a level")]
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            let method = "logging/setLevel".to_owned();
            let code = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
            return Err(ErrorData::new(code, method, None));
        }
        let level = serde_json::to_value(request.level).unwrap_or_default();
        let session = self.connection_session(&context).await?;
        session.set_level(rank(level.as_str().unwrap_or_default()));
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(&context).await?;
        subscriptions::subscribe(&session, &request.uri).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(&context).await?;
        subscriptions::unsubscribe(&session, &request.uri).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        // The acknowledgement goes out before anybody listens.
        self.changes_at_listen
            .store(self.clients.changes(), Ordering::Relaxed);
        Some(subscriptions::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let session = self.session(context.request_context()).await?;
        // Held until the sources know that it is over; a session in use is not closed.
        let _listening = session.register_listener();
        let was_open = session.open_calls().is_some();
        let calls = Arc::clone(session.calls().await?);
        let changes = SessionChanges::of(&calls);
        let mut missed = Vec::new();
        if !was_open || self.clients.changes() != self.changes_at_listen.load(Ordering::Relaxed) {
            let lists = [
                ChangeNotice::Tools,
                ChangeNotice::Resources,
                ChangeNotice::Prompts,
            ];
            missed.extend(lists);
        }
        let uris = context.accepted().resource_subscriptions.clone();
        let stream = ResourceStream::begin(&session, &calls, &uris.unwrap_or_default());
        Box::pin(changes.notify_listener(&context, &session, &stream, missed)).await;
        Box::pin(stream.end()).await;
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Some(session) = self.own_session.get() {
            changes::notify_client(context.peer, session);
        }
    }
}

/// Whether a request is of the era without requests of the server.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn note_outlet(
    session: &ClientSession,
    context: &RequestContext<RoleServer>,
    modern: bool,
    tool: &str,
) -> Outlet {
    let wants = if modern {
        let level = context.meta.log_level();
        let level = level.and_then(|level| serde_json::to_value(level).ok());
        match level.as_ref().and_then(Value::as_str) {
            Some(level) => MessageFilter::From(rank(level)),
            None => MessageFilter::Nothing,
        }
    } else {
        session.message_filter()
    };
    let token = context.meta.get_progress_token();
    Outlet::new(context.peer.clone(), token, wants, tool)
}

fn cursor(request: Option<&PaginatedRequestParams>) -> Option<&str> {
    request?.cursor.as_deref()
}
