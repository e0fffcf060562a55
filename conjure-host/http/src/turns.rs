//! Turns: something is said in a session, the model answers. A turn belongs to no client: it runs
//! on when nobody looks, and whoever comes back finds what it did in the events of its thread.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_core::chat::Message;
use conjure_core::routing::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{self, ObjectBuilder, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

use super::approvals::{self, ApprovalView};
use super::extract::{JsonBody, Params, PathParams, Ref, line, text};
use super::idempotency::Idempotency;
use super::operations::{Operations, routes};
use super::pages::{self, Page};
use super::problem::Problem;
use super::questions::{self, QuestionView};
use super::sessions::rule_warnings;
use super::state::App;
use super::threads::Tokens;
use super::uploads;
use conjure_config::PolicySpec;
use conjure_runtime::manager::{TurnRequest, TurnTerms};
use conjure_runtime::uploads::{self as runtime_uploads, Upload};
use conjure_store::{Run, RunState, ThreadId};

/// The most characters of a turn's id.
const MAX_ID_CHARS: usize = 100;
/// The longest wait for a turn, in seconds.
const MAX_WAIT_SECONDS: u64 = 60;
/// How often whoever waits for a turn looks whether it asks for something, at least.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list, say))
        .routes(routes!(get))
        .routes(routes!(cancel))
}

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Turn)]
pub(super) struct TurnView {
    id: String,
    /// The session's id; null when that is gone.
    session: Option<String>,
    #[schema(value_type = String)]
    thread: ThreadId,
    state: TurnState,
    /// Tokens that the turn spent so far.
    usage: Tokens,
    /// Number of calls of tools.
    calls: u64,
    /// Cost in US dollars; null where a price is not known.
    usd: Option<f64>,
    /// Reason why the turn failed.
    error: Option<String>,
    /// Calls that wait for a decision: without one they are denied when their time is up.
    approvals: Vec<ApprovalView>,
    /// Questions that wait for an answer: without one they are cancelled when their time is up.
    questions: Vec<QuestionView>,
    queued_at_ms: i64,
    started_at_ms: Option<i64>,
    ended_at_ms: Option<i64>,
}

/// State of a turn.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TurnState {
    /// The turn waits for those before it.
    Queued,
    Running,
    /// The turn came to its end.
    Completed,
    /// Somebody cancelled the turn.
    Cancelled,
    Failed,
    /// A limit ended the turn.
    Limit,
    /// The provider cut the answer short.
    CutShort,
    /// The host that ran the turn ended.
    Interrupted,
    /// The session that ran the turn gave no sign of life for too long, or broke.
    Lost,
}

impl From<Run> for TurnView {
    fn from(run: Run) -> Self {
        Self {
            id: run.id,
            session: run.session_id,
            thread: run.thread,
            state: match run.state {
                RunState::Queued => TurnState::Queued,
                RunState::Running => TurnState::Running,
                RunState::Completed => TurnState::Completed,
                RunState::Cancelled => TurnState::Cancelled,
                RunState::Failed => TurnState::Failed,
                RunState::Limit => TurnState::Limit,
                RunState::CutShort => TurnState::CutShort,
                RunState::Interrupted => TurnState::Interrupted,
                RunState::Lost => TurnState::Lost,
            },
            usage: run.spent.usage.into(),
            calls: run.spent.calls,
            usd: run.spent.usd,
            error: run.error,
            approvals: Vec::new(),
            questions: Vec::new(),
            queued_at_ms: run.queued_at_ms,
            started_at_ms: run.started_at_ms,
            ended_at_ms: run.ended_at_ms,
        }
    }
}

/// What is said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTurn {
    /// What is said; absent with `go_on`, and where files say enough.
    text: Option<String>,
    /// Files that were handed over (`upload_file`), by their ids, each used once. The model is shown
    /// images, PDFs and texts that it can read, and the names of others; tools can open all of
    /// them.
    #[serde(default)]
    #[schema(max_items = 20)]
    attachments: Vec<String>,
    /// The model goes on from where the thread ends, with nothing new said.
    #[serde(default)]
    go_on: bool,
    /// The turn's id, where the client chooses it: the same id again begins nothing and gives the
    /// turn that there is.
    #[schema(min_length = 1, max_length = 100)]
    turn_id: Option<String>,
    /// The id of the thread that it is said in, which the session goes on with from then on; without
    /// it, the thread that the session goes on with.
    thread: Option<String>,
    /// Rules for this turn beside those of the session.
    #[serde(default)]
    policy: TurnPolicy,
    /// Whether whoever says it cannot be asked. `true`: a call that asks is denied at once and a
    /// question cancelled, unless somebody follows events as a person who can be asked
    /// (`attended=true`). `false`: both wait for somebody. Without it the client counts as such a
    /// person for half a minute, and again whenever it looks at the turn or lists what waits.
    unattended: Option<bool>,
    /// JSON Schema that the answer must fit.
    #[schema(schema_with = schema_of_output_schema)]
    output_schema: Option<Value>,
}

/// A JSON Schema is an object, or `true` or `false`.
fn schema_of_output_schema() -> schema::Object {
    let description = "JSON Schema that the answer must fit, of whatever values; `true` fits all, and \
        `false`, which fits none, is refused. The answer is one JSON value then and nothing else. Where \
        it does not fit, the model is asked again, twice at most; then the turn is `failed`.";
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![
            Type::Object,
            Type::Boolean,
            Type::Null,
        ]))
        .description(Some(description))
        .build()
}

/// Rules for the calls of a turn: patterns of tool names, `backend:NAME`, or `NAME(arguments)`. Deny
/// wins.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct TurnPolicy {
    /// Calls that run without asking.
    allow: Vec<String>,
    /// Calls that ask first.
    ask: Vec<String>,
    /// Calls that never run.
    deny: Vec<String>,
}

impl TurnPolicy {
    fn read(&self) -> Result<PolicySpec, Problem> {
        let patterns = |list: &str, texts: &[String]| -> Result<Vec<Pattern>, Problem> {
            let read = texts.iter().enumerate().map(|(at, text)| {
                let pattern = text.parse::<Pattern>();
                pattern.map_err(|error| {
                    Problem::invalid(format!("`policy.{list}[{at}]`: {error}")).at("policy")
                })
            });
            read.collect()
        };
        Ok(PolicySpec {
            allow: patterns("allow", &self.allow)?,
            ask: patterns("ask", &self.ask)?,
            deny: patterns("deny", &self.deny)?,
        })
    }
}

/// A turn that was begun, or waits to be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BegunTurn)]
struct BegunTurnView {
    turn: String,
    /// Thread of the turn, whatever the session's thread is later.
    #[schema(value_type = String)]
    thread: ThreadId,
    /// Number of turns that come before this one.
    before: usize,
    /// Path of the events of the thread.
    events: String,
    /// For each rule of the turn's `policy` that allows less than it seems to: why, and a better rule.
    warnings: Vec<String>,
}

/// Size of a list of turns.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TurnQuery {
    /// The most turns.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// Seconds in which the turn may come to its end, or ask for something, before it is shown.
    #[param(minimum = 0, maximum = 60, default = 0)]
    wait: Option<u64>,
}

/// What is cancelled.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelTurn {
    /// The follow-ups that wait never begin.
    #[serde(default)]
    drop_queued: bool,
    /// Only this turn, whether it runs or waits; others go on.
    turn: Option<String>,
}

/// List the turns of a session, the newest first
#[utoipa::path(get, path = "/api/v1/sessions/{session}/turns", operation_id = "list_turns",
    tag = "turns",
    params(("session" = String, Path, description = "The session's id or name"), TurnQuery),
    responses((status = 200, description = "The newest", body = Page<TurnView>)))]
async fn list(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    Params(query): Params<TurnQuery>,
) -> Result<Json<Page<TurnView>>, Problem> {
    let limit = pages::limit(query.limit)?;
    let runs = app.manager.runs(&id, limit).await?;
    let mut items = Vec::new();
    for run in runs {
        items.push(view(&app, run).await);
    }
    Ok(Json(Page { items, next: None }))
}

/// Say something in a session
///
/// Answered when what was said is kept. A turn that runs comes to its end first.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/turns", operation_id = "create_turn",
    tag = "turns", params(("session" = String, Path, description = "The session's id or name")),
    request_body = NewTurn,
    responses((status = 202, description = "It is begun, or waits", body = BegunTurnView,
            headers(("Location" = String, description = "The turn's address"))),
        (status = 409, description = "The session has no thread, or the turn is another session's"),
        (status = 429, description = "Too many follow-ups wait")))]
async fn say(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    idempotency: Option<Extension<Idempotency>>,
    JsonBody(body): JsonBody<NewTurn>,
) -> Result<Response, Problem> {
    let turn_id = match body.turn_id {
        Some(id) => Some(line("turn_id", &id, MAX_ID_CHARS)?.to_owned()),
        // The same request after a crash of the host is the same turn.
        None => idempotency.map(|Extension(idempotency)| idempotency.id()),
    };
    let thread = body.thread.as_deref().map(ThreadId::parse).transpose()?;
    let terms = TurnTerms {
        policy: body.policy.read()?,
        unattended: body.unattended.unwrap_or(true),
        may_come: body.unattended.is_none(),
        output_schema: body.output_schema,
    };
    let attached = uploads::resolve_attachments(&app, turn_id.as_deref(), &body.attachments)?;
    let message = message(body.text.as_deref(), &attached, body.go_on)?;
    let warnings = rule_warnings(&terms.policy);
    let request = TurnRequest {
        message,
        turn_id,
        thread,
        terms,
    };
    let turn = app.manager.begin(&id, request).await?;
    if body.unattended.is_none() {
        app.note_undeclared(&turn, &id).await;
    }
    let at = [(header::LOCATION, format!("/api/v1/turns/{}", turn.id))];
    let begun = BegunTurnView {
        events: format!("/api/v1/threads/{}/events", turn.thread),
        turn: turn.id,
        thread: turn.thread,
        before: turn.before,
        warnings,
    };
    Ok((StatusCode::ACCEPTED, at, Json(begun)).into_response())
}

/// What is said.
fn message(
    said: Option<&str>,
    attached: &[Upload],
    go_on: bool,
) -> Result<Option<Message>, Problem> {
    let said = said.filter(|said| !said.trim().is_empty());
    let said = said.map(|said| text("text", said)).transpose()?;
    if said.is_none() && attached.is_empty() {
        let nothing = "give `text` that is not empty, `attachments`, or `go_on`";
        return if go_on {
            Ok(None)
        } else {
            Err(Problem::invalid(nothing))
        };
    }
    if go_on {
        let both = "`go_on` says nothing new: it takes neither `text` nor `attachments`";
        return Err(Problem::invalid(both));
    }
    Ok(Some(runtime_uploads::message(said, attached)))
}

/// Show a turn, when it is over, when it asks for something, or when the time for that is up
#[utoipa::path(get, path = "/api/v1/turns/{turn}", operation_id = "get_turn", tag = "turns",
    params(("turn" = String, Path, description = "Its id"), WaitQuery),
    responses((status = 200, description = "It", body = TurnView)))]
async fn get(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    Params(query): Params<WaitQuery>,
) -> Result<Json<TurnView>, Problem> {
    let seconds = query.wait.unwrap_or(0);
    if seconds > MAX_WAIT_SECONDS {
        return Err(Problem::invalid(format!(
            "`wait` is 0 to {MAX_WAIT_SECONDS}"
        )));
    }
    // One that is not there is said at once.
    let run = app.manager.run(&id).await?;
    if run.state.is_over() {
        app.undeclared_turns.forget(&id);
        return Ok(Json(view(&app, run).await));
    }
    // Whoever waits for longer is seen while it does: most turns are over before that.
    let is_short = Duration::from_secs(seconds) <= 2 * POLL_INTERVAL;
    let _client = is_short.then(|| app.presence_at_turn(&id));
    if seconds == 0 {
        return Ok(Json(view(&app, run).await));
    }
    let run = tokio::select! {
        run = app.manager.wait(&id) => run?,
        asks = wait_for_question(&app, &id) => return Ok(Json(asks?)),
        () = tokio::time::sleep(Duration::from_secs(seconds)) => app.manager.run(&id).await?,
        () = app.closing.cancelled() => app.manager.run(&id).await?,
    };
    Ok(Json(view(&app, run).await))
}

/// A turn with what it waits for, once it waits for something, but not at once: whoever only waits
/// for its end does not ask again and again meanwhile.
async fn wait_for_question(app: &App, turn: &str) -> Result<TurnView, Problem> {
    let mut changes = app.manager.own_changes();
    tokio::time::sleep(POLL_INTERVAL).await;
    let _client = app.presence_at_turn(turn);
    loop {
        let view = view(app, app.manager.run(turn).await?).await;
        if !view.approvals.is_empty() || !view.questions.is_empty() {
            return Ok(view);
        }
        tokio::select! {
            () = changes.of(view.session.as_deref().unwrap_or_default()) => {}
            // What another process runs tells nothing here.
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// A turn, with what it waits for.
pub(super) async fn view(app: &App, run: Run) -> TurnView {
    let mut view = TurnView::from(run);
    if let (TurnState::Running, Some(session)) = (&view.state, &view.session) {
        // Where whoever runs it does not say what it waits for, the turn is shown all the same.
        let approvals = approvals::waiting(app, session).await;
        view.approvals = approvals.unwrap_or_default();
        let questions = questions::waiting(app, session).await;
        view.questions = questions.unwrap_or_default();
    }
    view
}

/// Cancel the turn that runs in a session; what came so far is kept
///
/// Where nothing runs, or the turn is over, nothing happens.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/cancel", operation_id = "cancel_turn",
    tag = "turns", params(("session" = String, Path, description = "The session's id or name")),
    request_body = CancelTurn, responses((status = 204, description = "It is being cancelled"),
        (status = 404, description = "There is no such session, or no such turn in it")))]
async fn cancel(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
    JsonBody(body): JsonBody<CancelTurn>,
) -> Result<StatusCode, Problem> {
    match (body.turn, body.drop_queued) {
        (None, drop_queued) => app.manager.cancel(&id, drop_queued).await?,
        (Some(turn), false) => {
            let session = app.manager.get(&id).await?.id;
            let run = app.manager.run(&turn).await?;
            if run.session_id.as_ref() != Some(&session) {
                return Err(Problem::not_found(format!(
                    "there is no turn `{turn}` in this session"
                )));
            }
            app.manager.cancel_turn(&session, &turn).await?;
        }
        (Some(_), true) => return Err(Problem::invalid("give either `turn` or `drop_queued`")),
    }
    Ok(StatusCode::NO_CONTENT)
}
