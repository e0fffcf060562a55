//! Compactions of a thread: what a model reads in place of its older part, and taking one back.

use axum::Json;
use axum::extract::State;
use conjure_core::log::{self, FoldState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Id, JsonBody, PathParams};
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::state::App;
use conjure_store::ThreadId;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(unfold))
        .routes(routes!(compact))
}

/// A compaction: a summary that a model reads in place of the entries before `upto`. What was said
/// stays.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Fold)]
pub(super) struct FoldView {
    /// Number of the compaction's entry.
    pub(super) seq: u64,
    /// The first entry that a model reads as it is.
    upto: u64,
    state: Became,
    /// The later compaction that stands for what this one stood for, where it is `inside`.
    by: Option<u64>,
}

/// State of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FoldState)]
enum Became {
    /// The model reads its summary.
    Standing,
    /// A later compaction stands for what this one stood for.
    Inside,
    /// The compaction was taken back.
    Unfolded,
}

/// Compaction that is taken back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UnfoldThread)]
struct Unfold {
    /// Number of the compaction's entry; without it, the compaction that stands is taken back.
    #[schema(minimum = 1)]
    fold: Option<u64>,
}

/// Result of taking a compaction back.
#[derive(Debug, Serialize, ToSchema)]
struct Unfolded {
    /// The compaction's entry.
    unfolded: u64,
    /// Tokens of the conversation that a model reads now, about. The compaction stays taken
    /// back until somebody asks for another one, or the provider refuses the conversation as too long.
    tokens: u64,
}

/// The compactions of a thread, the oldest first.
pub(super) async fn folds(app: &App, thread: &ThreadId) -> Result<Vec<FoldView>, Problem> {
    let entries = app.store.fold_entries(thread).await?;
    let folds = log::folds(&entries).into_iter().map(|fold| FoldView {
        seq: fold.seq,
        upto: fold.visible_from,
        state: match fold.state {
            FoldState::Standing => Became::Standing,
            FoldState::Inside { .. } => Became::Inside,
            FoldState::Unfolded => Became::Unfolded,
        },
        by: match fold.state {
            FoldState::Inside { outer: by } => Some(by),
            FoldState::Standing | FoldState::Unfolded => None,
        },
    });
    Ok(folds.collect())
}

/// List the compactions of a thread, the oldest first
#[utoipa::path(get, path = "/api/v1/threads/{thread}/folds", operation_id = "list_folds",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    responses((status = 200, description = "All of them", body = Page<FoldView>)))]
async fn list(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<Page<FoldView>>, Problem> {
    Ok(Json(Page {
        items: folds(&app, &ThreadId::parse(&id)?).await?,
        next: None,
    }))
}

/// Take a compaction back: from the next request on the model reads again what it hid
#[utoipa::path(post, path = "/api/v1/threads/{thread}/unfold", operation_id = "unfold_thread",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    request_body = Unfold,
    responses((status = 200, description = "It is taken back", body = Unfolded),
        (status = 409, description = "Nothing is folded, it is taken back already, a later one \
            stands for it, or another program has the thread open")))]
async fn unfold(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<Unfold>,
) -> Result<Json<Unfolded>, Problem> {
    let thread = ThreadId::parse(&id)?;
    let (unfolded, tokens) = app.manager.unfold(&thread, body.fold).await?;
    Ok(Json(Unfolded { unfolded, tokens }))
}

/// Session whose model writes the summary.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CompactThread)]
struct Compact {
    /// Id or name of the session; without it, one that goes on with the thread. Where a session has
    /// the thread open, the model of that session writes the summary.
    session: Option<String>,
}

/// Result of a compaction.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Compacted)]
struct CompactionView {
    /// The compaction's entry.
    compacted: u64,
    /// Tokens of the conversation that a model reads now, about.
    tokens: u64,
}

/// Put a summary in place of the older part of a thread, as far as a model reads it
///
/// Answered when the model has written it. Nothing is deleted; `unfold` takes it back.
#[utoipa::path(post, path = "/api/v1/threads/{thread}/compact", operation_id = "compact_thread",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    request_body = Compact,
    responses((status = 200, description = "The summary stands", body = CompactionView),
        (status = 409, description = "A turn runs, there is nothing to summarise, no session has \
            the thread, or another program has it open"),
        (status = 502, description = "The model wrote no summary")))]
async fn compact(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<Compact>,
) -> Result<Json<CompactionView>, Problem> {
    let thread = ThreadId::parse(&id)?;
    let done = app.manager.compact(&thread, body.session.as_deref());
    let (compacted, tokens) = done.await?;
    Ok(Json(CompactionView { compacted, tokens }))
}
