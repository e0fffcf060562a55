//! Threads: listing, looking, naming, forking, clearing, removing.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_core::cost::{Average, ThreadCost};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Id, JsonBody, Params, PathParams, shown_name};
use super::operations::{Operations, routes};
use super::pages::{self, Page};
use super::problem::Problem;
use super::state::App;
use conjure_store::{Cursor, ThreadId};

/// The most characters of a name.
const MAX_NAME_CHARS: usize = 200;
/// How many of the newest turns an average is of, where nothing else is said.
const DEFAULT_TURNS: u32 = 10;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(get, change, remove))
        .routes(routes!(cost))
        .routes(routes!(fork))
        .routes(routes!(super::entries::list, clear))
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Thread)]
pub(super) struct ThreadResponse {
    #[schema(value_type = String)]
    id: ThreadId,
    /// Newest name of the thread; empty where it has none.
    label: String,
    /// Thread that this one was forked from.
    #[schema(value_type = Option<String>)]
    parent_thread_id: Option<ThreadId>,
    /// Entry behind which this thread was forked.
    fork_from_seq: Option<u64>,
    /// The newest entry; 0 before the first.
    last_seq: u64,
    turns: u64,
    replies: u64,
    usage: Tokens,
    /// The time of all replies from request to end, in milliseconds.
    latency_ms: u64,
    /// Cost of the thread so far, as its newest `cost` event says.
    #[schema(value_type = Option<Object>)]
    cost: Option<Value>,
    /// Whether some program has the thread open.
    is_open: bool,
    created_at_ms: i64,
    updated_at_ms: i64,
}

/// Tokens, in numbers that do not overlap except for `total`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Tokens {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    /// How much of the output was reasoning, where the provider tells.
    reasoning: u64,
    total: u64,
}

impl From<conjure_core::chat::Usage> for Tokens {
    fn from(usage: conjure_core::chat::Usage) -> Self {
        Self {
            input: usage.input,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            output: usage.output,
            reasoning: usage.reasoning,
            total: usage.total(),
        }
    }
}

impl From<conjure_store::Thread> for ThreadResponse {
    fn from(thread: conjure_store::Thread) -> Self {
        let cost = thread.cost.as_deref();
        Self {
            cost: cost.and_then(|cost| serde_json::from_str(cost).ok()),
            fork_from_seq: thread.parent.as_ref().map(|_| thread.fork_from_seq),
            id: thread.id,
            label: thread.label,
            parent_thread_id: thread.parent,
            last_seq: thread.last_seq,
            turns: thread.last_turn,
            replies: thread.totals.replies,
            usage: thread.totals.usage.into(),
            latency_ms: thread.totals.latency_ms,
            is_open: thread.is_open,
            created_at_ms: thread.created_at_ms,
            updated_at_ms: thread.updated_at_ms,
        }
    }
}

/// A thread with where it stands among others.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadDetail {
    #[serde(flatten)]
    thread: ThreadResponse,
    /// Names of the thread with their times, the oldest first.
    labels: Vec<ThreadLabel>,
    /// Forks of the thread, the oldest first.
    forks: Vec<ThreadResponse>,
    /// Forks, and forks of forks, that go on showing text of this thread when it is cleared.
    #[schema(value_type = Vec<String>)]
    kept_by_forks: Vec<ThreadId>,
}

/// A name of a thread.
#[derive(Debug, Serialize, ToSchema)]
struct ThreadLabel {
    label: String,
    at_ms: i64,
}

/// Selection and page of a list of threads.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ThreadQuery {
    /// `next` of the page before; the first page without it.
    cursor: Option<String>,
    /// The most threads.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
    /// Only threads whose name contains this, in upper or lower case.
    #[param(max_length = 200)]
    q: Option<String>,
}

/// Changes to a thread.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangeThread {
    /// New name of the thread: one line of at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    label: String,
}

/// Last entry and name of a new fork.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForkThread {
    /// The last entry that the fork shows; the newest without it.
    #[schema(minimum = 1)]
    at: Option<u64>,
    /// Name of the fork.
    #[schema(min_length = 1, max_length = 200)]
    label: Option<String>,
}

/// What clearing a thread did.
#[derive(Debug, Serialize, ToSchema)]
struct ClearedThread {
    #[schema(value_type = String)]
    cleared: ThreadId,
    /// Forks that go on showing text of it.
    #[schema(value_type = Vec<String>)]
    kept_by_forks: Vec<ThreadId>,
}

/// List threads, the newest first
#[utoipa::path(get, path = "/api/v1/threads", operation_id = "list_threads", tag = "threads",
    params(ThreadQuery), responses((status = 200, description = "A page", body = Page<ThreadResponse>)))]
async fn list(
    State(app): State<App>,
    Params(query): Params<ThreadQuery>,
) -> Result<Json<Page<ThreadResponse>>, Problem> {
    let limit = pages::limit(query.limit)?;
    let after = query.cursor.as_deref().map(thread_cursor).transpose()?;
    if query
        .q
        .as_ref()
        .is_some_and(|text| text.chars().count() > MAX_NAME_CHARS)
    {
        return Err(Problem::invalid(format!(
            "`q` has at most {MAX_NAME_CHARS} characters"
        )));
    }
    let (after, one_more) = (after.as_ref(), limit + 1);
    let mut found = match query.q.as_deref() {
        Some(text) => app.store.threads_named(text, after, one_more).await?,
        None => app.store.thread_page(after, one_more).await?,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_last = found.len() <= limit;
    found.truncate(limit);
    let last = found.last().filter(|_| !is_last);
    Ok(Json(Page {
        next: last.map(|last| cursor(&last.cursor())),
        items: found.into_iter().map(ThreadResponse::from).collect(),
    }))
}

/// Show a thread with its totals, its names and its forks
#[utoipa::path(get, path = "/api/v1/threads/{thread}", operation_id = "get_thread",
    tag = "threads", params(("thread" = String, Path, description = "Its id")),
    responses((status = 200, description = "It", body = ThreadDetail)))]
async fn get(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<ThreadDetail>, Problem> {
    let id = ThreadId::parse(&id)?;
    let thread = app.store.thread(&id).await?;
    let labels = app.store.thread_labels(&id).await?;
    let labels = labels
        .into_iter()
        .map(|(at_ms, label)| ThreadLabel { label, at_ms });
    let forks = app.store.forks(&id).await?;
    Ok(Json(ThreadDetail {
        thread: thread.into(),
        labels: labels.collect(),
        forks: forks.into_iter().map(ThreadResponse::from).collect(),
        kept_by_forks: kept_by_forks(&app, &id).await?,
    }))
}

/// Rename a thread
#[utoipa::path(patch, path = "/api/v1/threads/{thread}", operation_id = "change_thread",
    tag = "threads", params(("thread" = String, Path, description = "Its id")),
    request_body = ChangeThread,
    responses((status = 200, description = "As it is now", body = ThreadResponse)))]
async fn change(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<ChangeThread>,
) -> Result<Json<ThreadResponse>, Problem> {
    let id = ThreadId::parse(&id)?;
    let label = shown_name("label", &body.label, MAX_NAME_CHARS)?;
    app.store.rename_thread(&id, label).await?;
    Ok(Json(app.store.thread(&id).await?.into()))
}

/// Clear a thread and take it away; sessions that chose it have none then
///
/// A turn that runs on it is cancelled first.
#[utoipa::path(delete, path = "/api/v1/threads/{thread}", operation_id = "delete_thread",
    tag = "threads", params(("thread" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is gone"),
        (status = 409, description = "It is open")))]
async fn remove(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<StatusCode, Problem> {
    app.manager.remove_thread(&ThreadId::parse(&id)?).await?;
    app.store.collect_blobs().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Over which turns the second average is.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CostQuery {
    /// The most of the newest turns.
    #[param(minimum = 1, default = 10)]
    last: Option<u32>,
}

/// What a thread cost, and what a turn of it comes to.
#[derive(Debug, Serialize)]
struct Costed {
    #[serde(flatten)]
    cost: ThreadCost,
    average: Averages,
}

#[derive(Debug, Serialize)]
struct Averages {
    all: Average,
    newest: Average,
}

/// Say what a thread cost, turn by turn, and why
///
/// `average` says what a turn came to, of `all` turns and of the `newest`: `turns`, `tokens`, `usd`.
#[utoipa::path(get, path = "/api/v1/threads/{thread}/cost", operation_id = "get_thread_cost",
    tag = "threads", params(("thread" = String, Path, description = "Its id"), CostQuery),
    responses((status = 200, description = "Its cost in US dollars, with the prices known now",
        body = Object)))]
async fn cost(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    Params(query): Params<CostQuery>,
) -> Result<Response, Problem> {
    let last = query.last.unwrap_or(DEFAULT_TURNS);
    if last == 0 {
        return Err(Problem::invalid("`last` is 1 or more"));
    }
    let cost = app.host.cost(&ThreadId::parse(&id)?).await?;
    let average = Averages {
        all: cost.average(usize::MAX),
        newest: cost.average(usize::try_from(last).unwrap_or(usize::MAX)),
    };
    Ok(Json(Costed { cost, average }).into_response())
}

/// Begin another thread behind an entry of this one
///
/// Nothing is copied. The fork keeps what it shows when the other is cleared.
#[utoipa::path(post, path = "/api/v1/threads/{thread}/fork", operation_id = "fork_thread",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    request_body = ForkThread,
    responses((status = 201, description = "The fork", body = ThreadResponse,
        headers(("Location" = String, description = "Its address")))))]
async fn fork(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<ForkThread>,
) -> Result<Response, Problem> {
    let id = ThreadId::parse(&id)?;
    let label = body.label.as_deref();
    let label = label
        .map(|label| shown_name("label", label, MAX_NAME_CHARS))
        .transpose()?;
    let at = match body.at {
        Some(at) => at,
        None => app.store.thread(&id).await?.last_seq,
    };
    let fork = ThreadId::fresh();
    app.store.fork(&id, at, &fork).await?;
    if let Some(label) = label {
        app.store.rename_thread(&fork, label).await?;
    }
    let made = ThreadResponse::from(app.store.thread(&fork).await?);
    let address = [(header::LOCATION, format!("/api/v1/threads/{fork}"))];
    Ok((StatusCode::CREATED, address, Json(made)).into_response())
}

/// Delete what a thread holds for good, except for what its forks show; its id stays
///
/// A turn that runs on it is cancelled first.
#[utoipa::path(delete, path = "/api/v1/threads/{thread}/entries", operation_id = "clear_thread",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    responses((status = 200, description = "It is empty now", body = ClearedThread),
        (status = 409, description = "Another program has it open")))]
async fn clear(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<ClearedThread>, Problem> {
    let id = ThreadId::parse(&id)?;
    let kept_by_forks = kept_by_forks(&app, &id).await?;
    app.manager.clear_thread(&id).await?;
    app.store.collect_blobs().await?;
    Ok(Json(ClearedThread {
        cleared: id,
        kept_by_forks,
    }))
}

async fn kept_by_forks(app: &App, thread: &ThreadId) -> Result<Vec<ThreadId>, Problem> {
    let forks = app.store.forks_keeping(thread).await?;
    Ok(forks.into_iter().map(|fork| fork.id).collect())
}

fn cursor(place: &Cursor) -> String {
    pages::write(&format!("{}/{}", place.created_at_ms, place.id))
}

fn thread_cursor(cursor: &str) -> Result<Cursor, Problem> {
    let text = pages::read(cursor)?;
    let (at, id) = text.split_once('/').ok_or_else(pages::bad)?;
    Ok(Cursor {
        created_at_ms: at.parse().map_err(|_| pages::bad())?,
        id: id.to_owned(),
    })
}
