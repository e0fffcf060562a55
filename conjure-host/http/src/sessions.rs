//! Sessions: the saved settings that conversations run with.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_core::turn::EffectiveFrom;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::extract::{JsonBody, Params, PathParams, Ref, line, text};
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use super::threads::Tokens;
use super::versions::{IfMatch, Tagged, VersionCondition};
use conjure_config::PolicySpec;
use conjure_config::json::object_with_kind;
use conjure_runtime::describe::{backends_json, tool_preview_json};
use conjure_runtime::manager::{self, SessionState, SessionView};
use conjure_store::ThreadId;

/// The most characters of a name.
const MAX_NAME_CHARS: usize = 100;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(super::session_list::list, create))
        .routes(routes!(get, change, remove))
        .routes(routes!(check))
        .routes(routes!(tools))
        .routes(routes!(thread))
}

/// A session, and its state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionResponse {
    pub(super) id: String,
    name: Option<String>,
    auth: SessionAuth,
    /// The model, as the provider names it.
    model: String,
    /// Working directory of the calls.
    working_dir: String,
    persona: PersonaCopyBody,
    /// Memory of the session: `{name, version, memory_text}`, or any other object.
    #[schema(value_type = Object)]
    memory: Map<String, Value>,
    /// Backends, names, policy, budgets and limits, in the shape of the session file.
    #[schema(value_type = Object)]
    tools: Map<String, Value>,
    /// MCP servers by name, each with its settings. Secrets are named there.
    #[schema(value_type = Object)]
    mcps: Map<String, Value>,
    /// The active thread; null after it was removed.
    thread: Option<SessionThread>,
    /// The newest entry, as `thread/seq`.
    latest_entry: Option<String>,
    state: StateName,
    /// The turn that runs.
    turn: Option<String>,
    /// How many follow-ups wait.
    queued: usize,
    created_at_ms: i64,
    updated_at_ms: i64,
    /// For each rule of the session's policy that allows less than it seems to: why, and a better rule.
    warnings: Vec<String>,
}

/// The saved auth of a session; its provider is the session's.
#[derive(Debug, Serialize, ToSchema)]
struct SessionAuth {
    id: String,
    provider: String,
    kind: String,
    name: String,
}

/// The active thread of a session, with what its replies came to.
#[derive(Debug, Serialize, ToSchema)]
struct SessionThread {
    #[schema(value_type = String)]
    id: ThreadId,
    /// Newest name of the thread; empty where it has none.
    label: String,
    /// The newest entry; 0 before the first.
    last_seq: u64,
    /// Time when the thread last grew.
    updated_at_ms: i64,
    turns: u64,
    replies: u64,
    usage: Tokens,
    /// Average time of a reply in milliseconds; null before the first.
    average_latency_ms: Option<u64>,
    /// Average tokens of a reply; null before the first.
    average_tokens: Option<u64>,
    /// Cost of the thread so far; null before the first turn.
    #[schema(value_type = Option<Object>)]
    cost: Option<Value>,
}

/// State of a session.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SessionState)]
pub(super) enum StateName {
    /// Nothing runs.
    Idle,
    /// A turn runs.
    Running,
    /// A turn waits for a person: a decision about a call, or an answer.
    Waiting,
}

impl From<SessionState> for StateName {
    fn from(state: SessionState) -> Self {
        match state {
            SessionState::Idle => Self::Idle,
            SessionState::Running => Self::Running,
            SessionState::Waiting => Self::Waiting,
        }
    }
}

/// A persona as a session has it: a copy.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = PersonaCopy)]
struct PersonaCopyBody {
    name: String,
    version: String,
    /// What the model is told.
    persona_text: String,
}

impl From<SessionView> for SessionResponse {
    fn from(session: SessionView) -> Self {
        let thread = session.thread.map(|thread| SessionThread {
            id: thread.id,
            label: thread.label,
            last_seq: thread.last_seq,
            updated_at_ms: thread.updated_at_ms,
            turns: thread.turns,
            replies: thread.replies,
            usage: thread.usage.into(),
            average_latency_ms: thread.average_latency_ms,
            average_tokens: thread.average_tokens,
            cost: thread.cost,
        });
        let warnings = rule_warnings(&PolicySpec::of_settings(&session.tools));
        Self {
            id: session.id,
            name: session.name,
            auth: SessionAuth {
                id: session.auth_id,
                provider: session.auth.provider,
                kind: session.auth.kind,
                name: session.auth.name,
            },
            model: session.model,
            working_dir: session.working_dir.display().to_string(),
            persona: PersonaCopyBody {
                name: session.persona.name,
                version: session.persona.version,
                persona_text: session.persona.persona_text,
            },
            memory: session.memory,
            tools: session.tools,
            mcps: session.mcps,
            thread,
            latest_entry: session.latest_entry,
            state: session.state.into(),
            turn: session.turn,
            queued: session.queued,
            created_at_ms: session.created_at_ms,
            updated_at_ms: session.updated_at_ms,
            warnings,
        }
    }
}

/// What is told of rules that allow less than they seem to.
pub(super) fn rule_warnings(policy: &PolicySpec) -> Vec<String> {
    let warnings = policy.warnings().into_iter();
    warnings.map(|warning| warning.to_string()).collect()
}

impl PersonaCopyBody {
    fn validate(self) -> Result<manager::PersonaCopy, Problem> {
        for (what, given) in [
            ("persona.name", &self.name),
            ("persona.version", &self.version),
            ("persona.persona_text", &self.persona_text),
        ] {
            text(what, given)?;
        }
        Ok(manager::PersonaCopy {
            name: self.name,
            version: self.version,
            persona_text: self.persona_text,
        })
    }
}

/// A session that is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSession)]
struct NewSessionBody {
    /// Name of the session, which no other session has: one line of at most 100 characters.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// The saved auth: its id, its name, or `PROVIDER/KIND/NAME`.
    auth: String,
    /// The model, as the provider names it.
    model: String,
    /// Working directory of the calls: an absolute path of a directory that exists.
    working_dir: String,
    /// Thread that the session begins with; without it, a new one.
    #[serde(default, deserialize_with = "object_with_kind")]
    thread: ThreadChoiceBody,
    persona: Option<PersonaCopyBody>,
    /// Memory of the session: `{name, version, memory_text}`, or any other object.
    #[schema(value_type = Option<Object>)]
    memory: Option<Map<String, Value>>,
    /// Backends, names, policy, budgets and limits, in the shape of the session file; without
    /// backends the usual ones.
    #[schema(value_type = Option<Object>)]
    tools: Option<Map<String, Value>>,
    /// MCP servers by name, each with its settings.
    #[schema(value_type = Option<Object>)]
    mcps: Option<Map<String, Value>>,
}

/// Changes to a session; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangeSession {
    /// New name of the session; the empty text takes the name away.
    #[schema(max_length = 100)]
    name: Option<String>,
    /// The saved auth: its id, its name, or `PROVIDER/KIND/NAME`.
    auth: Option<String>,
    model: Option<String>,
    working_dir: Option<String>,
    persona: Option<PersonaCopyBody>,
    #[schema(value_type = Option<Object>)]
    memory: Option<Map<String, Value>>,
    /// All settings of the tools; they replace the ones before.
    #[schema(value_type = Option<Object>)]
    tools: Option<Map<String, Value>>,
    /// All MCP servers by name; they replace the ones before.
    #[schema(value_type = Option<Object>)]
    mcps: Option<Map<String, Value>>,
}

/// Thread that a session goes on with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "an object with its `kind`"
)]
#[schema(as = ThreadChoice)]
enum ThreadChoiceBody {
    /// A new thread.
    New {},
    /// A thread that exists.
    Existing {
        /// Id of the thread.
        thread: String,
    },
    /// A fork of another thread.
    Fork {
        /// The id of the thread that is forked.
        thread: String,
        /// The last entry that the fork shows; the newest without it.
        upto: Option<u64>,
    },
}

/// When a change holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ChangeQuery {
    /// `next_turn` (without it), or `now`: the stream that runs is stopped, what came is kept, and the model is
    /// asked again with the new settings.
    #[param(inline)]
    apply: Option<Apply>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Apply {
    Now,
    NextTurn,
}

/// What becomes of the chat.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveQuery {
    /// `keep` (without it), or `delete`: the active thread is deleted for good.
    #[param(inline)]
    chat: Option<ChatRetentionBody>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Chat)]
enum ChatRetentionBody {
    Keep,
    Delete,
}

/// Save a session
#[utoipa::path(post, path = "/api/v1/sessions", operation_id = "create_session", tag = "sessions",
    request_body = NewSessionBody,
    responses((status = 201, description = "It is saved", body = SessionResponse,
            headers(("Location" = String, description = "Its address"))),
        (status = 404, description = "There is no such auth or thread"),
        (status = 409, description = "The name is taken")))]
async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody<NewSessionBody>,
) -> Result<Response, Problem> {
    let new = manager::NewSession {
        name: name(body.name)?,
        auth: text("auth", &body.auth)?.to_owned(),
        model: text("model", &body.model)?.to_owned(),
        working_dir: text("working_dir", &body.working_dir)?.into(),
        thread: body.thread.read()?,
        persona: body.persona.unwrap_or_default().validate()?,
        memory: body.memory.unwrap_or_default(),
        tools: body.tools.unwrap_or_default(),
        mcps: body.mcps.unwrap_or_default(),
    };
    let session = app.manager.create(new).await?;
    let at = [(header::LOCATION, format!("/api/v1/sessions/{}", session.id))];
    Ok((StatusCode::CREATED, at, tagged_view(session)).into_response())
}

/// Show a session
#[utoipa::path(get, path = "/api/v1/sessions/{session}", operation_id = "get_session",
    tag = "sessions", params(("session" = String, Path, description = "Its id or its name")),
    responses((status = 200, description = "It", body = SessionResponse,
        headers(("ETag" = String, description = "Which version of its settings this is")))))]
async fn get(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
) -> Result<Response, Problem> {
    Ok(tagged_view(app.manager.get(&id).await?).into_response())
}

/// Change a session
#[utoipa::path(patch, path = "/api/v1/sessions/{session}", operation_id = "change_session",
    tag = "sessions",
    params(("session" = String, Path, description = "Its id or its name"), ChangeQuery, IfMatch),
    request_body = ChangeSession,
    responses((status = 200, description = "As it is now", body = SessionResponse,
            headers(("ETag" = String, description = "Which version of its settings this is"))),
        (status = 409, description = "The name is taken, or the change stands against what runs"),
        (status = 412, description = "Its settings are another version than the one of `If-Match`")))]
async fn change(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    Params(query): Params<ChangeQuery>,
    wanted: VersionCondition,
    JsonBody(body): JsonBody<ChangeSession>,
) -> Result<Response, Problem> {
    let when = match query.apply {
        Some(Apply::Now) => EffectiveFrom::Now,
        Some(Apply::NextTurn) | None => EffectiveFrom::NextTurn,
    };
    let mut patch = body.read()?;
    if wanted != VersionCondition::Any {
        let now = app.manager.get(&id).await?.updated_at_ms;
        wanted.check(now)?;
        patch.seen_ms = Some(now);
    }
    let changed = app.manager.update(&id, patch, when).await;
    let changed = changed.map_err(|error| wanted.explain_conflict(error.into()))?;
    Ok(tagged_view(changed).into_response())
}

/// Remove a session; what runs in it is ended first
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", operation_id = "delete_session",
    tag = "sessions",
    params(("session" = String, Path, description = "Its id or its name"), RemoveQuery),
    responses((status = 204, description = "It is removed"),
        (status = 409, description = "Another program has its thread open")))]
async fn remove(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    Params(query): Params<RemoveQuery>,
) -> Result<StatusCode, Problem> {
    let chat = match query.chat {
        Some(ChatRetentionBody::Delete) => manager::ChatRetention::Delete,
        Some(ChatRetentionBody::Keep) | None => manager::ChatRetention::Keep,
    };
    app.manager.delete(&id, chat).await?;
    if chat == manager::ChatRetention::Delete {
        app.store.collect_blobs().await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Say what a change would change about the next request, before it is made
///
/// Parts that would be left out or told otherwise, what the model cannot look at, tools that would
/// not be offered, tokens, and whether the prompt cache is lost. Needs no key and writes nothing.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/check", operation_id = "check_session",
    tag = "sessions", params(("session" = String, Path, description = "Its id or its name")),
    request_body = ChangeSession,
    responses((status = 200, description = "The report", body = Object),
        (status = 409, description = "Its thread or its tools are not to be had")))]
async fn check(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    JsonBody(body): JsonBody<ChangeSession>,
) -> Result<Response, Problem> {
    let patch = body.read()?;
    let _trial = app.trial_permit().await?;
    let report = app.manager.check(&id, &patch).await?;
    Ok(Json(report).into_response())
}

/// List the tools that the session's next request has
#[utoipa::path(get, path = "/api/v1/sessions/{session}/tools", operation_id = "list_tools",
    tag = "sessions", params(("session" = String, Path, description = "Its id or its name")),
    responses(
        (status = 200, description = "`version`, `routes`, `shadowed`, `quarantined`, \
            `server_tools`, which run at the provider, `left_out`, which it does not take, and \
            `failed_backends`", body = Object),
        (status = 409, description = "The tools are not to be had")))]
async fn tools(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
) -> Result<Json<Value>, Problem> {
    // What is open holds up nobody for whom backends are made ready.
    let tool_preview = match app.manager.open_tools(&id).await? {
        Some(open) => open,
        None => {
            let _trial = app.trial_permit().await?;
            let policy = PolicySpec::default();
            app.manager.tool_preview(&id, &policy).await?
        }
    };
    let mut shown = tool_preview_json(&tool_preview);
    if let Some(members) = shown.as_object_mut() {
        members.insert("backends".to_owned(), backends_json(&tool_preview));
    }
    Ok(Json(shown))
}

/// Go on with another thread: a new chat, one that there is, or a fork
///
/// A turn that runs comes to its end in the thread that it began in.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/thread", operation_id = "choose_thread",
    tag = "sessions", params(("session" = String, Path, description = "Its id or its name")),
    request_body = ThreadChoiceBody,
    responses((status = 200, description = "The session as it is now", body = SessionResponse)))]
async fn thread(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    JsonBody(body): JsonBody<ThreadChoiceBody>,
) -> Result<Json<SessionResponse>, Problem> {
    let session = match body.read()? {
        manager::ThreadChoice::New => app.manager.start_thread(&id).await,
        manager::ThreadChoice::Existing { thread } => app.manager.choose_thread(&id, &thread).await,
        manager::ThreadChoice::Fork { thread, upto } => {
            app.manager.fork_thread(&id, &thread, upto).await
        }
    };
    Ok(Json(session?.into()))
}

impl ChangeSession {
    fn read(self) -> Result<manager::SessionPatch, Problem> {
        let whole = |what: &str, given: Option<String>| match given {
            Some(given) => text(what, &given).map(|text| Some(text.to_owned())),
            None => Ok(None),
        };
        Ok(manager::SessionPatch {
            name: match self.name.as_deref() {
                Some("") => Some(String::new()),
                _ => name(self.name)?,
            },
            auth: whole("auth", self.auth)?,
            model: whole("model", self.model)?,
            working_dir: whole("working_dir", self.working_dir)?.map(Into::into),
            persona: self.persona.map(PersonaCopyBody::validate).transpose()?,
            memory: self.memory,
            tools: self.tools,
            mcps: self.mcps,
            seen_ms: None,
        })
    }
}

/// A session with the version of its settings.
fn tagged_view(session: SessionView) -> Tagged<SessionResponse> {
    Tagged(session.updated_at_ms, session.into())
}

impl Default for ThreadChoiceBody {
    fn default() -> Self {
        Self::New {}
    }
}

impl ThreadChoiceBody {
    fn read(self) -> Result<manager::ThreadChoice, Problem> {
        Ok(match self {
            Self::New {} => manager::ThreadChoice::New,
            Self::Existing { thread } => manager::ThreadChoice::Existing {
                thread: ThreadId::parse(&thread)?,
            },
            Self::Fork { thread, upto } => manager::ThreadChoice::Fork {
                thread: ThreadId::parse(&thread)?,
                upto,
            },
        })
    }
}

fn name(given: Option<String>) -> Result<Option<String>, Problem> {
    match given {
        Some(given) => Ok(Some(line("name", &given, MAX_NAME_CHARS)?.to_owned())),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_takes_no_member_that_it_does_not_know() {
        let read = |value| serde_json::from_value::<ThreadChoiceBody>(value);
        assert!(read(json!({ "kind": "new" })).is_ok());
        for wrong in [
            json!({ "kind": "new", "thread": "x" }),
            json!({ "kind": "existing", "thread": "x", "upto": 1 }),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }
}
