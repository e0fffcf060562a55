//! A chat that was exported, taken in: a file that *Export* or `conjure thread export` made becomes a
//! chat of its own, and the session goes on with it.
//!
//! What is in the file is foreign, as what a model says is: the API judges its lines, and what it shows
//! is shown as any other chat's.

use axum::Router;
use axum::body::Body;
use axum::extract::{Multipart, Path, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use conjure_core::foreign_text::clean;
use conjure_store::ThreadId;
use maud::{Markup, html};
use serde::Deserialize;

use super::address::ConversationAddress;
use super::talk::Talk;
use crate::PageState;
use crate::client::ApiProblem;
use crate::failure::PageFailure;
use crate::forms::form_error;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::sent_file::{self, SentFile};
use crate::sheet::{refused, sheet};

const TITLE: &str = "Import a chat";
/// The part of the form that says what is wrong.
const REPORT: &str = "import-chat-report";

pub(crate) fn router() -> Router<PageState> {
    sent_file::route("/sessions/{session}/import", get(show).post(import))
}

async fn show(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let talk = Talk::find(&app, &session, None).await?;
    let body = form(&talk.address, None);
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

fn form(address: &ConversationAddress, wrong: Option<&str>) -> Markup {
    html! {
        form #import-chat-form method="post" action=(address.of_session("import"))
            enctype="multipart/form-data" data-swap {
            p { "It becomes a chat of its own, and the session goes on with it. Files that it names are not in it." }
            div.field {
                label for="import-chat-file" { "File" }
                input #import-chat-file name="file" type="file" required
                    aria-describedby="import-chat-words";
                p.hint #import-chat-words {
                    "Lines of JSON, as “Export” of a chat and " code { "conjure thread export" } " make them. "
                    "What “Save as HTML” makes is for reading only."
                }
            }
            (report(wrong))
            div.row { button.primary #import-chat-save { "Import" } }
        }
    }
}

/// What is wrong; the file stays chosen beside it.
fn report(wrong: Option<&str>) -> Markup {
    html! { div id=(REPORT) { (form_error(wrong)) } }
}

/// Why nothing was imported.
fn not_imported(problem: &ApiProblem) -> String {
    format!("Nothing was imported: {}", clean(&problem.detail))
}

/// Why the session does not go on with a chat that was imported.
fn not_chosen(imported: &ImportedThreadInfo, reason: &str) -> String {
    let name = match imported.label.is_empty() {
        true => imported.id.as_str(),
        false => &imported.label,
    };
    format!(
        "It was imported, as the chat “{}”, but the session does not go on with it: {}. Choose that \
         chat in the session's config; imported again, it would be there twice",
        clean(name),
        clean(reason)
    )
}

/// A thread that was imported.
#[derive(Deserialize)]
struct ImportedThreadInfo {
    id: ThreadId,
    label: String,
}

async fn import(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
    mut sent: Multipart,
) -> Result<Response, PageFailure> {
    let talk = Talk::find(&app, &session, None).await?;
    let imported = match app.sent_files.read(&mut sent).await {
        Ok(sent) => take_in(&app, sent).await,
        Err(problem) => Err(problem),
    };
    let wrong = match imported {
        Ok(thread) => {
            let chosen = app.manager.choose_thread(&talk.session.id, &thread.id);
            match chosen.await {
                Ok(_) => return Ok(go_to(&request, &talk.address.with_thread(&thread.id))),
                Err(error) => not_chosen(&thread, &error.to_string()),
            }
        }
        Err(problem) => not_imported(&problem),
    };
    if request.pieces {
        return Ok(pieces(piece(Swap::Outer, REPORT, &report(Some(&wrong)))));
    }
    let body = form(&talk.address, Some(&wrong));
    Ok(refused(&request, Nav::Sessions, TITLE, &body))
}

/// Makes a thread of an export.
async fn take_in(app: &PageState, export: SentFile) -> Result<ImportedThreadInfo, ApiProblem> {
    let lines = HeaderValue::from_static("application/jsonl");
    let path = "/api/v1/threads/import";
    app.api
        .hand_over(path, lines, Body::from(export.content))
        .await
}

#[cfg(test)]
mod tests {
    use crate::saved::invalid;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_told_as_words() {
        let problem = invalid("line 1 is no record: `<script>\u{202e}`");
        let shown = report(Some(&not_imported(&problem))).into_string();
        assert!(
            shown.contains("Nothing was imported: line 1 is no record: `&lt;script&gt;`"),
            "{shown}"
        );
    }

    #[test]
    fn a_chat_that_was_imported_and_not_chosen_is_told_with_its_name() {
        let imported = ImportedThreadInfo {
            id: ThreadId::fresh(),
            label: "A <lamp>".to_owned(),
        };
        let wrong = not_chosen(&imported, "the session is gone");
        let shown = report(Some(&wrong)).into_string();
        assert!(
            shown.contains("It was imported, as the chat “A &lt;lamp&gt;”"),
            "{shown}"
        );
        assert!(shown.contains("the session is gone"), "{shown}");
        let unnamed = ImportedThreadInfo {
            label: String::new(),
            ..imported
        };
        assert!(not_chosen(&unnamed, "it is busy").contains(unnamed.id.as_str()));
    }
}
