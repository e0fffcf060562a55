//! The saved sessions, as a client lists them: what was used last comes first.

use std::path::{Path, PathBuf};

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ListSessionsRequest, ListSessionsResponse, SessionInfo};
use conjure_runtime::manager::{Manager, ManagerError, SessionView};
use conjure_store::SessionCursor;

use super::error::{invalid, of_manager};
use super::open_session::title;

/// Sessions of one answer.
const PAGE_SESSIONS: usize = 50;
/// Sessions that are read first: those of an answer, and one that says that there are more.
const BATCH_SESSIONS: u64 = PAGE_SESSIONS as u64 + 1;
/// How many times as many are read with each batch: finding one looks at all sessions in the database.
const BATCH_GROWTH: u64 = 4;

/// The session that was used last of those that fit.
pub(crate) async fn newest(
    manager: &Manager,
    fits: impl Fn(&SessionView) -> bool,
) -> Result<Option<SessionView>, ManagerError> {
    let mut behind = None;
    let mut limit = BATCH_SESSIONS;
    loop {
        let batch = manager.recent("", behind.as_ref(), limit).await?;
        let Some((_, last)) = batch.last() else {
            return Ok(None);
        };
        behind = Some(last.clone());
        let mut sessions = batch.into_iter().map(|(session, _)| session);
        let found = sessions.find(|session| fits(session));
        if found.is_some() {
            return Ok(found);
        }
        limit = limit.saturating_mul(BATCH_GROWTH);
    }
}

/// A directory as a client names it, and without links, as sessions have it.
pub(crate) struct RequestedDir<'a> {
    named: &'a Path,
    real: Option<PathBuf>,
}

impl<'a> RequestedDir<'a> {
    pub(crate) fn new(named: &'a Path) -> Self {
        Self {
            named,
            real: named.canonicalize().ok(),
        }
    }

    /// Whether a session that was saved with this directory works there.
    pub(crate) fn matches(&self, saved: &Path) -> bool {
        saved == self.named || self.real.as_deref() == Some(saved)
    }
}

/// A page of the sessions.
pub(crate) async fn page(
    manager: &Manager,
    request: &ListSessionsRequest,
) -> Result<ListSessionsResponse, Error> {
    let mut behind = request.cursor.as_deref().map(parse_cursor).transpose()?;
    let mut listed: Vec<(SessionView, SessionCursor)> = Vec::new();
    let wanted = request.cwd.as_deref().map(RequestedDir::new);
    let mut limit = BATCH_SESSIONS;
    loop {
        let batch = manager.recent("", behind.as_ref(), limit).await;
        let batch = batch.map_err(|error| of_manager(&error))?;
        let is_last = (batch.len() as u64) < limit;
        limit = limit.saturating_mul(BATCH_GROWTH);
        behind = batch.last().map(|(_, place)| place.clone());
        let in_dir = |(session, _): &(SessionView, SessionCursor)| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|wanted| wanted.matches(&session.working_dir))
        };
        listed.extend(batch.into_iter().filter(in_dir));
        if listed.len() > PAGE_SESSIONS {
            listed.truncate(PAGE_SESSIONS);
            let next = listed.last().map(|(_, place)| encode_cursor(place));
            return Ok(answer(&listed, next));
        }
        if is_last {
            return Ok(answer(&listed, None));
        }
    }
}

fn answer(listed: &[(SessionView, SessionCursor)], next: Option<String>) -> ListSessionsResponse {
    let sessions = listed.iter().map(|(session, place)| info(session, place));
    ListSessionsResponse::new(sessions.collect::<Vec<_>>()).next_cursor(next)
}

fn encode_cursor(place: &SessionCursor) -> String {
    format!("{}:{}", place.used_at_ms, place.id)
}

fn parse_cursor(text: &str) -> Result<SessionCursor, Error> {
    let place = text.split_once(':').and_then(|(at, id)| {
        Some(SessionCursor {
            used_at_ms: at.parse().ok()?,
            id: id.to_owned(),
        })
    });
    place.ok_or_else(|| invalid(format!("`{text}` is no cursor of a list of sessions")))
}

fn info(session: &SessionView, place: &SessionCursor) -> SessionInfo {
    let at = jiff::Timestamp::from_millisecond(place.used_at_ms).ok();
    SessionInfo::new(session.id.clone(), session.working_dir.clone())
        .title(title(session))
        .updated_at(at.map(|at| at.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_named_by_a_link_is_that_of_its_sessions() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (work, link) = (root.join("work"), root.join("link"));
        std::fs::create_dir(&work).unwrap();
        std::os::unix::fs::symlink(&work, &link).unwrap();
        let wanted = RequestedDir::new(&link);
        assert!(wanted.matches(&work) && wanted.matches(&link) && !wanted.matches(&root));
    }
}
