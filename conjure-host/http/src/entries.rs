//! The entries of a thread, in pages forwards and backwards.

use axum::Json;
use axum::extract::State;
use conjure_core::log::{Entry, EntryBody};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Id, Params, PathParams};
use super::folds::{self, FoldView};
use super::pages;
use super::problem::Problem;
use super::state::App;
use conjure_store::{ThreadId, Window};

/// Page of entries; the newest without `before` and `after`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EntryQuery {
    /// The newest of the entries before this number.
    before: Option<u64>,
    /// The oldest of the entries behind this number; behind 0 are all.
    after: Option<u64>,
    /// The most entries.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
}

/// A page of a thread's entries.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Entries {
    /// In their order, without a gap: `seq`, `turn`, `at_ms`, `entry` (its kind) and what the kind
    /// has.
    #[schema(value_type = Vec<Object>)]
    entries: Vec<Entry>,
    /// What has become of the compactions among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    folds: Vec<FoldView>,
    /// The first entry that the thread shows.
    first_seq: u64,
    /// The last; smaller than the first when it shows none.
    last_seq: u64,
    /// `before` of the page before this one; absent on the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    /// `after` of the page behind this one; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
}

/// Show entries of a thread, its ancestors' included
#[utoipa::path(get, path = "/api/v1/threads/{thread}/entries", operation_id = "list_entries",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id"), EntryQuery),
    responses((status = 200, description = "A page", body = Entries)))]
pub(super) async fn list(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    Params(query): Params<EntryQuery>,
) -> Result<Json<Entries>, Problem> {
    let limit = pages::limit(query.limit)?;
    let window = match (query.before, query.after) {
        (None, None) => Window::Last,
        (Some(before), None) => Window::Before(number("before", before)?),
        (None, Some(after)) => Window::After(number("after", after)?),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("give `before` or `after`, not both"));
        }
    };
    let thread = ThreadId::parse(&id)?;
    let page = app.store.entries(&thread, window, limit).await?;
    let folds = folds_of(&app, &thread, &page.entries).await?;
    let first = page.entries.first().filter(|_| page.has_earlier());
    let last = page.entries.last().filter(|_| page.has_later());
    Ok(Json(Entries {
        before: first.map(|entry| entry.seq),
        after: last.map(|entry| entry.seq),
        folds,
        first_seq: page.first_seq,
        last_seq: page.last_seq,
        entries: page.entries,
    }))
}

/// The compactions among these entries. Only where there is one the thread is looked through for
/// what has become of it.
async fn folds_of(
    app: &App,
    thread: &ThreadId,
    entries: &[Entry],
) -> Result<Vec<FoldView>, Problem> {
    let is_fold = |entry: &Entry| matches!(entry.body, EntryBody::Compacted { .. });
    if !entries.iter().any(is_fold) {
        return Ok(Vec::new());
    }
    let mut folds = folds::folds(app, thread).await?;
    folds.retain(|fold| entries.iter().any(|entry| entry.seq == fold.seq));
    Ok(folds)
}

/// A number that a database can hold.
fn number(what: &str, number: u64) -> Result<u64, Problem> {
    if i64::try_from(number).is_ok() {
        Ok(number)
    } else {
        Err(Problem::invalid(format!("`{what}` is no entry's number")))
    }
}
