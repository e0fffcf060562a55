//! Search over what was said in all chats: words, and a link from each hit to the very entry.

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde::Deserialize;

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::timestamps::time;

/// The most hits that are shown.
const MAX_HITS: usize = 50;
/// The most characters that are looked for.
pub(crate) const MAX_QUERY_CHARS: usize = 500;

pub(crate) fn router() -> Router<PageState> {
    Router::new().route("/search", get(search))
}

/// What is looked for.
#[derive(Deserialize)]
pub(crate) struct SearchWords {
    #[serde(default)]
    q: String,
}

impl SearchWords {
    /// As many as are looked for, without blanks around them.
    pub(crate) fn words(&self) -> String {
        let words: String = self.q.chars().take(MAX_QUERY_CHARS).collect();
        words.trim().to_owned()
    }
}

#[derive(Deserialize)]
struct SearchInfo {
    items: Vec<SearchHitInfo>,
}

/// Something that was said and has the words.
#[derive(Deserialize)]
pub(crate) struct SearchHitInfo {
    thread: String,
    label: String,
    session: Option<String>,
    pub(crate) seq: u64,
    said_by: String,
    pub(crate) at_ms: i64,
    pub(crate) excerpt: Vec<ExcerptPieceInfo>,
}

impl SearchHitInfo {
    /// The speaker of the text that was found, in words.
    pub(crate) fn said_by(&self) -> &'static str {
        match self.said_by.as_str() {
            "person" => "You",
            _ => "Model",
        }
    }
}

/// A piece of an excerpt.
#[derive(Deserialize)]
pub(crate) struct ExcerptPieceInfo {
    text: String,
    is_hit: bool,
}

async fn search(
    State(app): State<PageState>,
    Query(wanted): Query<SearchWords>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let words = wanted.words();
    let found = search_hits(&app, &words, "").await?;
    // A chat that no session spoke in is shown by the session that was used last.
    let newest = app.manager.recent("", None, 1).await?;
    let newest = newest.first().map(|(session, _)| session.id.as_str());
    let body = html! {
        h1 { "Search" }
        form.row.search role="search" aria-label="Search" method="get" action="/search" {
            input.grow #search-words type="search" name="q" value=(words) maxlength=(MAX_QUERY_CHARS) required
                autofocus[words.is_empty()] autocomplete="off" aria-label="Words";
            button.primary #search-go { "Search" }
        }
        p.hint { "What people and models said, in any chat. All words have to be there; the last one may go on." }
        @if let Some(hits) = &found { (results(hits, newest)) }
    };
    let mut title = clean(&words).into_owned();
    if title.is_empty() {
        "Search".clone_into(&mut title);
    } else {
        title.push_str(" – Search");
    }
    Ok(layout(&request, &PageFrame::new(Nav::None, &title), &body))
}

/// What has the words; nothing is looked for without any. `scope` is what of the search's query comes
/// behind them.
pub(crate) async fn search_hits(
    app: &PageState,
    words: &str,
    scope: &str,
) -> Result<Option<Vec<SearchHitInfo>>, ApiProblem> {
    if words.is_empty() {
        return Ok(None);
    }
    let path = format!(
        "/api/v1/search?q={}&limit={MAX_HITS}{scope}",
        segment(words)
    );
    let found: SearchInfo = app.api.get(&path).await?;
    Ok(Some(found.items))
}

/// How many were found, in words.
pub(crate) fn hit_count_text(hits: usize) -> String {
    match hits {
        0 => "Nothing that was said has all these words.".to_owned(),
        1 => "One entry".to_owned(),
        MAX_HITS => format!("The newest {MAX_HITS} entries; further words narrow it down"),
        count => format!("{count} entries, the newest first"),
    }
}

/// The words with what stands around them.
pub(crate) fn excerpt(pieces: &[ExcerptPieceInfo]) -> Markup {
    html! {
        p.excerpt {
            @for piece in pieces {
                @if piece.is_hit { mark { (clean(&piece.text)) } } @else { (clean(&piece.text)) }
            }
        }
    }
}

fn results(hits: &[SearchHitInfo], newest: Option<&str>) -> Markup {
    html! {
        p.muted[!hits.is_empty()] #search-count role="status" { (hit_count_text(hits.len())) }
        @if !hits.is_empty() {
            ol.hits #search-hits { @for hit in hits { (result(hit, newest)) } }
        }
    }
}

fn result(hit: &SearchHitInfo, newest: Option<&str>) -> Markup {
    let label = match hit.label.trim() {
        "" => "New chat".into(),
        label => clean(label),
    };
    let session = hit.session.as_deref().or(newest);
    html! {
        li {
            p.hit-head {
                @match session {
                    Some(session) => {
                        a href={ "/sessions/" (segment(session)) "/threads/" (segment(&hit.thread)) "?at=" (hit.seq) "#e" (hit.seq) } { (label) }
                    }
                    None => { strong { (label) } }
                }
                span.muted { (hit.said_by()) " · #" (hit.seq) " · " (time(hit.at_ms)) }
            }
            (excerpt(&hit.excerpt))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(session: Option<&str>) -> SearchHitInfo {
        SearchHitInfo {
            thread: "0193".to_owned(),
            label: "<b>Name</b>".to_owned(),
            session: session.map(str::to_owned),
            seq: 7,
            said_by: "model".to_owned(),
            at_ms: 0,
            excerpt: vec![
                ExcerptPieceInfo {
                    text: "<script>a ".to_owned(),
                    is_hit: false,
                },
                ExcerptPieceInfo {
                    text: "lamp".to_owned(),
                    is_hit: true,
                },
            ],
        }
    }

    #[test]
    fn a_hit_leads_to_its_entry_and_is_text() {
        let shown = result(&hit(Some("s/1")), None).into_string();
        let at = "/sessions/s%2F1/threads/0193?at=7#e7";
        assert!(shown.contains(at), "{shown}");
        assert!(shown.contains("<mark>lamp</mark>"), "{shown}");
        assert!(
            !shown.contains("<script>") && !shown.contains("<b>"),
            "{shown}"
        );
    }

    #[test]
    fn a_hit_of_no_session_is_shown_by_the_newest_or_without_a_link() {
        let shown = result(&hit(None), Some("newest")).into_string();
        assert!(shown.contains("/sessions/newest/threads/0193"), "{shown}");
        assert!(!result(&hit(None), None).into_string().contains("<a "));
    }
}
