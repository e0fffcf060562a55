//! The list of sessions: all of them, or those that a person looks for.

use axum::Json;
use axum::extract::State;
use conjure_store::SessionCursor;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::extract::Params;
use super::pages::{self, Page};
use super::problem::Problem;
use super::sessions::SessionResponse;
use super::state::App;

/// The most characters that are looked for.
const MAX_QUERY_CHARS: usize = 200;

/// Selection, order and page of a list of sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionQuery {
    /// `next` of the page before; the first page without it.
    cursor: Option<String>,
    /// The most items.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
    /// Order of the list.
    #[serde(default)]
    order: SessionOrder,
    /// Only sessions that have all of these words in their name, model, working directory or the
    /// name of their thread, in upper or lower case. Needs `order=used`.
    #[param(max_length = 200)]
    q: Option<String>,
}

/// The order of a list of sessions.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SessionOrder {
    /// The oldest first.
    #[default]
    Created,
    /// What was used last first: changed, or its thread grew.
    Used,
}

/// List sessions, the oldest first, or what was used last
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", tag = "sessions",
    params(SessionQuery), responses((status = 200, description = "A page", body = Page<SessionResponse>)))]
pub(super) async fn list(
    State(app): State<App>,
    Params(query): Params<SessionQuery>,
) -> Result<Json<Page<SessionResponse>>, Problem> {
    let limit = pages::limit(query.limit)?;
    let page = match query.order {
        SessionOrder::Created if query.q.is_some() => {
            return Err(Problem::invalid("`q` needs `order=used`"));
        }
        SessionOrder::Created => {
            let after = query.cursor.as_deref().map(pages::read).transpose()?;
            let found = app.manager.list(after.as_deref(), limit + 1).await?;
            let sessions = found.into_iter().map(SessionResponse::from).collect();
            Page::from_items(sessions, limit, |one: &SessionResponse| &one.id)
        }
        SessionOrder::Used => {
            sessions_used(
                &app,
                query.q.as_deref().unwrap_or_default(),
                query.cursor,
                limit,
            )
            .await?
        }
    };
    Ok(Json(page))
}

async fn sessions_used(
    app: &App,
    words: &str,
    cursor: Option<String>,
    limit: u64,
) -> Result<Page<SessionResponse>, Problem> {
    if words.chars().count() > MAX_QUERY_CHARS {
        return Err(Problem::invalid(format!(
            "`q` has at most {MAX_QUERY_CHARS} characters"
        )));
    }
    let behind = cursor.as_deref().map(read).transpose()?;
    let found = app.manager.recent(words, behind.as_ref(), limit + 1);
    let mut found = found.await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_last = found.len() <= limit;
    found.truncate(limit);
    let last = found.last().filter(|_| !is_last);
    Ok(Page {
        next: last.map(|(_, place)| write(place)),
        items: found
            .into_iter()
            .map(|(session, _)| session.into())
            .collect(),
    })
}

fn write(place: &SessionCursor) -> String {
    pages::write(&format!("{}/{}", place.used_at_ms, place.id))
}

fn read(cursor: &str) -> Result<SessionCursor, Problem> {
    let text = pages::read(cursor)?;
    let (at, id) = text.split_once('/').ok_or_else(pages::bad)?;
    Ok(SessionCursor {
        used_at_ms: at.parse().map_err(|_| pages::bad())?,
        id: id.to_owned(),
    })
}
