//! The entries of a thread, in pages forwards and backwards.

use axum::Json;
use axum::extract::State;
use conjure_core::log::Entry;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Id, Named, Params};
use super::pages;
use super::problem::Problem;
use super::state::App;
use crate::store::{ThreadId, Window};

/// Which entries; the newest without `before` and `after`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// The newest of those before this one.
    before: Option<u64>,
    /// The oldest of those behind this one; behind 0 are all.
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
    tag = "threads", params(("thread" = String, Path, description = "The thread's id"), Query),
    responses((status = 200, description = "A page", body = Entries)))]
pub(super) async fn list(
    State(app): State<App>,
    Named(Id(id)): Named<Id>,
    Params(query): Params<Query>,
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
    let page = app
        .store
        .entries(&ThreadId::parse(&id)?, window, limit)
        .await?;
    let first = page.entries.first().filter(|_| page.has_earlier());
    let last = page.entries.last().filter(|_| page.has_later());
    Ok(Json(Entries {
        before: first.map(|entry| entry.seq),
        after: last.map(|entry| entry.seq),
        first_seq: page.first_seq,
        last_seq: page.last_seq,
        entries: page.entries,
    }))
}

/// A number that a database can hold.
fn number(what: &str, number: u64) -> Result<u64, Problem> {
    if i64::try_from(number).is_ok() {
        Ok(number)
    } else {
        Err(Problem::invalid(format!("`{what}` is no entry's number")))
    }
}
