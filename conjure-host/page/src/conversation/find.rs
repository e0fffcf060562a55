//! Find in this chat: a page of a long chat has few of its entries, so that the browser's own search
//! sees few of them. Looks for words in all of it, and leads from each hit to the entry in its place.

use axum::extract::{Path, Query, State};
use axum::response::Response;
use conjure_store::ThreadId;
use maud::{Markup, html};

use super::context::ConversationContext;
use super::threads::label;
use crate::PageState;
use crate::client::segment;
use crate::failure::PageFailure;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::search::{self, MAX_QUERY_CHARS, SearchHitInfo, SearchWords};
use crate::sheet::sheet;
use crate::timestamps::time;

const TITLE: &str = "Find in this chat";

pub(crate) async fn find(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    Query(wanted): Query<SearchWords>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?;
    let at = conversation.address.with_thread(&thread.id);
    let words = wanted.words();
    let found = search::search_hits(&app, &words, &scope(&thread.id)).await?;
    let body = html! {
        // On a page of its own the address says what was looked for.
        form.row.search #find-form role="search" aria-label=(TITLE) method="get" action={ (at) "/find" }
            data-swap=[request.pieces.then_some("")] {
            input.grow #find-words type="search" name="q" value=(words) maxlength=(MAX_QUERY_CHARS) required
                autofocus autocomplete="off" aria-label="Words";
            button.primary #find-go { "Find" }
        }
        p.hint {
            "What you and the model said in " a href=(at) data-close="" { (label(thread)) }
            ". All words have to be there; the last one may go on."
        }
        @if let Some(hits) = &found {
            p.muted #find-count role="status" { (search::hit_count_text(hits.len())) }
            @if !hits.is_empty() {
                ol.hits #find-hits { @for hit in hits { (result(hit, &at)) } }
            }
        }
    };
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

/// What of a search is asked for beside its words.
fn scope(thread: &ThreadId) -> String {
    format!("&thread={}", segment(thread.as_str()))
}

fn result(hit: &SearchHitInfo, at: &str) -> Markup {
    html! {
        li {
            p.hit-head {
                // What is found may be on the page that the dialog is over.
                a href={ (at) "?at=" (hit.seq) "#e" (hit.seq) } data-close="" { (hit.said_by()) " · #" (hit.seq) }
                span.muted { (time(hit.at_ms)) }
            }
            (search::excerpt(&hit.excerpt))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hit_leads_to_its_entry_in_the_chat_that_is_looked_at_and_is_text() {
        let hit = json!({
            "thread": "what-it-was-forked-from", "label": "", "session": null, "seq": 7,
            "said_by": "model", "at_ms": 0,
            "excerpt": [{ "text": "<b>a ", "is_hit": false }, { "text": "lamp", "is_hit": true }],
        });
        let hit: SearchHitInfo = serde_json::from_value(hit).unwrap();
        let shown = result(&hit, "/sessions/s/threads/0193").into_string();
        let link = "href=\"/sessions/s/threads/0193?at=7#e7\"";
        assert!(shown.contains(link), "{shown}");
        assert!(shown.contains("&lt;b&gt;a <mark>lamp</mark>"), "{shown}");
    }
}
