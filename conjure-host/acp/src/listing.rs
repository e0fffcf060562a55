//! The saved sessions, as a client lists them: what was used last comes first.

use std::path::Path;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ListSessionsRequest, ListSessionsResponse, SessionInfo};
use conjure_runtime::manager::{Manager, ManagerError, SessionView};

use super::error::{invalid, of_manager};
use super::open_session::title;

/// Sessions that are read at once.
const BATCH_SESSIONS: u64 = 200;
/// Sessions of one answer.
const PAGE_SESSIONS: usize = 50;

/// All sessions, those that were used last first.
pub(crate) async fn newest_first(manager: &Manager) -> Result<Vec<SessionView>, ManagerError> {
    let mut all: Vec<SessionView> = Vec::new();
    loop {
        let after = all.last().map(|session| session.id.clone());
        let page = manager.list(after.as_deref(), BATCH_SESSIONS).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    all.sort_by(|a, b| sort_key(b).cmp(&sort_key(a)));
    Ok(all)
}

/// A page of the sessions.
pub(crate) async fn page(
    manager: &Manager,
    request: &ListSessionsRequest,
) -> Result<ListSessionsResponse, Error> {
    let after = request.cursor.as_deref().map(cursor).transpose()?;
    let all = newest_first(manager).await;
    let all = all.map_err(|error| of_manager(&error))?;
    let in_dir = |session: &&SessionView| {
        let wanted: Option<&Path> = request.cwd.as_deref();
        wanted.is_none_or(|dir| session.working_dir == dir)
    };
    let behind = |session: &&SessionView| {
        let after = after.as_ref();
        after.is_none_or(|after| sort_key(session) < (after.0, &after.1))
    };
    let mut wanted = all.iter().filter(in_dir).filter(behind);
    let page: Vec<&SessionView> = wanted.by_ref().take(PAGE_SESSIONS).collect();
    let next = match (page.last(), wanted.next()) {
        (Some(last), Some(_)) => Some(format!("{}:{}", last.updated_at_ms, last.id)),
        _ => None,
    };
    let sessions = page.into_iter().map(info).collect();
    Ok(ListSessionsResponse::new(sessions).next_cursor(next))
}

fn sort_key(session: &SessionView) -> (i64, &str) {
    (session.updated_at_ms, &session.id)
}

fn cursor(text: &str) -> Result<(i64, String), Error> {
    let parts = text.split_once(':');
    let read = parts.and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    read.ok_or_else(|| invalid(format!("`{text}` is no cursor of a list of sessions")))
}

fn info(session: &SessionView) -> SessionInfo {
    let at = jiff::Timestamp::from_millisecond(session.updated_at_ms).ok();
    SessionInfo::new(session.id.clone(), session.working_dir.clone())
        .title(title(session))
        .updated_at(at.map(|at| at.to_string()))
}
