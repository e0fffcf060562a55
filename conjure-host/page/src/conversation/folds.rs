//! Summaries that a model reads in place of the older part of a chat: the dialog that asks for one, and
//! taking the one back that it reads.

use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use conjure_core::log::{Entry, EntryBody};
use conjure_store::ThreadId;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::address::ConversationAddress;
use super::context::ConversationContext;
use super::model::{ConversationItem, ItemContent};
use crate::PageState;
use crate::client::{ApiClient, ApiProblem};
use crate::failure::PageFailure;
use crate::forms::form_error;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece};
use crate::saved::items;
use crate::sheet::{refused_sheet, sheet};

const TITLE: &str = "Summarise older messages";

/// A compaction of a thread.
#[derive(Deserialize)]
struct FoldInfo {
    /// Number of the compaction's entry in the thread.
    seq: u64,
    state: String,
}

impl FoldInfo {
    fn is_standing(&self) -> bool {
        self.state == "standing"
    }
}

/// The compactions of a thread, the oldest first.
async fn folds(api: &ApiClient, thread: &ThreadId) -> Result<Vec<FoldInfo>, ApiProblem> {
    items(api, &format!("/api/v1/threads/{thread}/folds")).await
}

/// Marks the compaction among these items whose summary the model reads, where it is among them.
pub(super) async fn mark_standing(
    api: &ApiClient,
    thread: &ThreadId,
    shown: &mut [ConversationItem],
) -> Result<(), ApiProblem> {
    let is_compacted =
        |item: &ConversationItem| matches!(item.content, ItemContent::Compacted { .. });
    if !shown.iter().any(is_compacted) {
        return Ok(());
    }
    let standing = folds(api, thread).await?.into_iter();
    let standing: Vec<u64> = standing
        .filter(FoldInfo::is_standing)
        .map(|fold| fold.seq)
        .collect();
    for item in shown {
        if let ItemContent::Compacted { is_standing, .. } = &mut item.content {
            *is_standing = standing.contains(&item.seq);
        }
    }
    Ok(())
}

/// The take-back forms of all compactions, as pieces that replace those of a page, where its thread got a
/// compaction among these entries or one that takes one back; else none.
pub(super) async fn fresh_take_back_forms(
    api: &ApiClient,
    address: &ConversationAddress,
    thread: &ThreadId,
    fresh: &[Entry],
) -> Result<Vec<Markup>, ApiProblem> {
    let is_fold = |entry: &Entry| {
        matches!(
            entry.body,
            EntryBody::Compacted { .. } | EntryBody::Unfolded { .. }
        )
    };
    if !fresh.iter().any(is_fold) {
        return Ok(Vec::new());
    }
    let forms = folds(api, thread).await?.into_iter().map(|fold| {
        let what = take_back_form(address, fold.seq, fold.is_standing());
        piece(Swap::Outer, &mark_id(fold.seq), &what)
    });
    Ok(forms.collect())
}

fn mark_id(seq: u64) -> String {
    format!("fold-{seq}")
}

/// The part of a compaction's mark that takes it back, where the model reads its summary.
pub(super) fn take_back_form(address: &ConversationAddress, seq: u64, is_standing: bool) -> Markup {
    html! {
        @if !address.is_shared() {
            div id=(mark_id(seq)) {
                @if is_standing {
                    form method="post" action=(address.of_thread(&format!("unfold/{seq}"))) data-swap {
                        button.small id={ "unfold-" (seq) } aria-label={ "Take back the summary of entry " (seq) } { "Take back" }
                    }
                }
            }
        }
    }
}

/// The question before a summary is made.
fn form(address: &ConversationAddress, problem: Option<&str>) -> Markup {
    html! {
        form #summarise-form method="post" action=(address.of_thread("summarise")) data-swap {
            (form_error(problem))
            p {
                "A model writes a summary of the older messages, and from then on reads it in place of them. "
                "The newest messages stay as they are."
            }
            p {
                "Nothing is deleted: everything stays here to be read, and the summary can be taken back. "
                "To write it costs tokens, about as many as the chat has now, and may take a minute."
            }
            div.row { button.primary #summarise-yes { "Summarise" } }
        }
    }
}

/// Asks whether the older messages are to be summarised.
pub(crate) async fn ask(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let body = form(&conversation.address, None);
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

/// Lets a model write the summary, and leads to where it stands.
pub(crate) async fn summarise(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?.id.clone();
    let path = format!("/api/v1/threads/{thread}/compact");
    let by = json!({ "session": conversation.session.id });
    match app.api.send::<Value>(Method::POST, &path, &by).await {
        Ok(_) => Ok(go_to(&request, &conversation.address.with_thread(&thread))),
        Err(problem) => {
            let body = form(&conversation.address, Some(&problem.detail));
            Ok(refused_sheet(&request, Nav::Sessions, TITLE, &body))
        }
    }
}

/// Lets the model read again what a summary stands for.
pub(crate) async fn take_back(
    State(app): State<PageState>,
    Path((session, thread, fold)): Path<(String, String, u64)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?.id.clone();
    let path = format!("/api/v1/threads/{thread}/unfold");
    let body = json!({ "fold": fold });
    app.api.send::<Value>(Method::POST, &path, &body).await?;
    Ok(go_to(&request, &conversation.address.with_thread(&thread)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use axum::routing::get;
    use axum::{Json, Router};

    use super::*;
    use crate::conversation::{model, render};

    fn api(states: &'static [(u64, &'static str)]) -> ApiClient {
        let folds = move || async move {
            let all = states.iter();
            let all: Vec<Value> = all
                .map(|(seq, state)| json!({ "seq": seq, "upto": 1, "state": state, "by": null }))
                .collect();
            Json(json!({ "items": all, "next": null }))
        };
        ApiClient::new(Router::new().route("/api/v1/threads/t/folds", get(folds)))
    }

    fn address(is_shared: bool) -> ConversationAddress {
        ConversationAddress {
            session: "s".to_owned(),
            name: "s".to_owned(),
            thread: Some(thread()),
            shared: is_shared.then(|| Arc::new(HashMap::new())),
        }
    }

    fn thread() -> ThreadId {
        ThreadId::parse("t").unwrap()
    }

    fn compacted(seq: u64) -> Entry {
        entry(
            seq,
            EntryBody::Compacted {
                upto: 1,
                summary: "Of the *sea*.".to_owned(),
                meta: None,
            },
        )
    }

    fn entry(seq: u64, body: EntryBody) -> Entry {
        Entry {
            seq,
            turn: 1,
            at_ms: 5,
            body,
        }
    }

    #[tokio::test]
    async fn the_summary_that_a_model_reads_can_be_taken_back_and_no_other() {
        let api = api(&[(5, "inside"), (7, "standing"), (9, "unfolded")]);
        let entries = [compacted(5), compacted(7), compacted(9)];
        let mut items = model::items(&entries);
        mark_standing(&api, &thread(), &mut items).await.unwrap();
        let shown = render::items(&address(false), &items).into_string();
        assert_eq!(shown.matches("<form").count(), 1, "{shown}");
        let action = "action=\"/sessions/s/threads/t/unfold/7\"";
        assert!(shown.contains(action), "{shown}");
        assert_eq!(shown.matches("<em>sea</em>").count(), 3, "{shown}");
        // In a file nothing can be done.
        let shown = render::items(&address(true), &items).into_string();
        assert!(!shown.contains("<form"), "{shown}");
    }

    #[tokio::test]
    async fn marks_that_a_page_has_follow_what_becomes_of_their_summaries() {
        let api = api(&[(5, "standing"), (7, "unfolded")]);
        let (here, thread) = (address(false), thread());
        let taken_back = [entry(8, EntryBody::Unfolded { fold: 7 })];
        let pieces = fresh_take_back_forms(&api, &here, &thread, &taken_back);
        let pieces = pieces.await.unwrap();
        let [again, gone] = pieces.as_slice() else {
            panic!("{} pieces", pieces.len());
        };
        assert!(again.0.contains("data-target=\"fold-5\""), "{}", again.0);
        assert!(again.0.contains("/unfold/5"), "{}", again.0);
        assert!(gone.0.contains("data-target=\"fold-7\""), "{}", gone.0);
        assert!(!gone.0.contains("<form"), "{}", gone.0);
        let other = [entry(9, EntryBody::notice("Something else."))];
        let none = fresh_take_back_forms(&api, &here, &thread, &other);
        let none = none.await.unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn why_nothing_is_summarised_stands_in_the_form_as_words() {
        let shown = form(&address(false), Some("a turn <runs>")).into_string();
        assert!(shown.contains("role=\"alert\""), "{shown}");
        assert!(shown.contains("a turn &lt;runs&gt;"), "{shown}");
        let shown = form(&address(false), None).into_string();
        assert!(!shown.contains("role=\"alert\""), "{shown}");
        assert!(
            shown.contains("/sessions/s/threads/t/summarise\""),
            "{shown}"
        );
    }
}
