//! A chat that was exported, taken in: a file that *Export* or `conjure thread export` made becomes a
//! chat of its own, and the session goes on with it.
//!
//! What is in the file is foreign, as what a model says is: the API judges its lines, and what it shows
//! is shown as any other chat's. A form that is sent twice imports once.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Multipart, Path, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use conjure_core::foreign_text::clean;
use conjure_runtime::uploads::ReceiveLimits;
use conjure_store::{ThreadId, hex};
use maud::{Markup, html};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::address::ConversationAddress;
use super::context::ConversationContext;
use crate::PageState;
use crate::client::{ApiClient, ApiProblem};
use crate::failure::PageFailure;
use crate::file_form::{self, FileForm, key_field};
use crate::forms::form_error;
use crate::layout::Nav;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::sheet::{refused_sheet, sheet};

const TITLE: &str = "Import a chat";
/// The part of the form that says what is wrong.
const REPORT: &str = "import-chat-report";
/// How long a form that was sent twice waits for what came of it the first time, and after how long it
/// asks at first and at last: each time the file is looked at whole.
const FIRST_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_POLL_DELAY: Duration = Duration::from_millis(250);
const MAX_POLL_DELAY: Duration = Duration::from_secs(2);

pub(crate) fn router() -> Router<PageState> {
    file_form::route("/sessions/{session}/import", get(show).post(import))
}

async fn show(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let body = form(&conversation.address, &Uuid::now_v7().to_string(), None);
    Ok(sheet(&request, Nav::Sessions, TITLE, &body))
}

/// The form; `once` is what it is known by when it is sent again.
fn form(address: &ConversationAddress, once: &str, wrong: Option<&str>) -> Markup {
    html! {
        form #import-chat-form method="post" action=(address.of_session("import"))
            enctype="multipart/form-data" data-swap {
            (key_field("import-chat-once", once))
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
         chat in the session's config, or send this form again: it is not imported twice",
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
    Extension(limits): Extension<ReceiveLimits>,
    request: PageRequest,
    mut sent: Multipart,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let mut once = Uuid::now_v7().to_string();
    let imported = match app.file_forms.read(&mut sent, &limits).await {
        Ok(sent) => {
            if let Some(Ok(known)) = sent.idempotency_key.as_ref().map(HeaderValue::to_str) {
                known.clone_into(&mut once);
            }
            upload_export(&app.api, sent).await
        }
        Err(problem) => Err(problem),
    };
    let wrong = match imported {
        Ok(thread) => {
            let chosen = app
                .manager
                .choose_thread(&conversation.session.id, &thread.id);
            match chosen.await {
                Ok(_) => {
                    return Ok(go_to(
                        &request,
                        &conversation.address.with_thread(&thread.id),
                    ));
                }
                Err(error) => not_chosen(&thread, &error.to_string()),
            }
        }
        Err(problem) => not_imported(&problem),
    };
    if request.pieces {
        return Ok(pieces(piece(Swap::Outer, REPORT, &report(Some(&wrong)))));
    }
    let body = form(&conversation.address, &once, Some(&wrong));
    Ok(refused_sheet(&request, Nav::Sessions, TITLE, &body))
}

/// Makes a thread of an export, one of a form that is sent twice.
async fn upload_export(
    api: &ApiClient,
    export: FileForm,
) -> Result<ImportedThreadInfo, ApiProblem> {
    let lines = HeaderValue::from_static("application/jsonl");
    let path = "/api/v1/threads/import";
    let until = Instant::now() + FIRST_TIMEOUT;
    let mut key = export.idempotency_key.clone();
    let (mut look, mut is_of_file) = (FIRST_POLL_DELAY, false);
    loop {
        let content = Body::from(export.content.clone());
        let taken = api.upload(path, key.as_ref(), lines.clone(), content);
        let taken = taken.await;
        match &taken {
            // What comes of it the first time is the answer.
            Err(problem) if problem.is("in-flight") && Instant::now() < until => {
                sleep(look).await;
                look = (look * 2).min(MAX_POLL_DELAY);
            }
            // Another file was chosen in a form that imported one; that file imports once too.
            Err(problem) if problem.is("key-reused") && !is_of_file => {
                is_of_file = true;
                let content = export.content.clone();
                let key_of_both = move || key_of_file(&key?, &content);
                let found = tokio::task::spawn_blocking(key_of_both).await;
                key = found.ok().flatten();
            }
            _ => return taken,
        }
    }
}

/// What a form is known by together with its file.
fn key_of_file(once: &HeaderValue, content: &[u8]) -> Option<HeaderValue> {
    let digest = hex(&Sha256::digest(content));
    let once = once.to_str().ok()?;
    HeaderValue::try_from(format!("{once}-{digest}")).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Json;
    use axum::extract::FromRequest as _;
    use axum::http::{HeaderMap, Request, StatusCode, header};
    use axum::response::IntoResponse as _;
    use axum::routing::post;
    use serde_json::json;

    use super::*;
    use crate::file_form::FileForms;
    use crate::saved::invalid;

    const LIMITS: ReceiveLimits = ReceiveLimits {
        most_bytes: 1024,
        at_once: 1,
        queue_timeout: Duration::from_secs(1),
        arrival_timeout: Duration::from_secs(1),
    };

    async fn export() -> FileForm {
        let form = "--x\r\ncontent-disposition: form-data; name=\"once\"\r\n\r\nf-1\r\n\
             --x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlines\r\n\
             --x--\r\n";
        let request = Request::builder()
            .method("POST")
            .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
            .body(Body::from(form))
            .unwrap();
        let mut form = Multipart::from_request(request, &()).await.unwrap();
        let files = FileForms::default();
        files.read(&mut form, &LIMITS).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_is_sent_twice_waits_for_what_came_of_it_and_another_file_is_another_import()
     {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let import = move |headers: HeaderMap| {
            let turn = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let key = headers
                    .get("idempotency-key")
                    .map(|key| key.as_bytes().to_vec());
                let kind = match (turn, key.as_deref()) {
                    (0, Some(b"f-1")) => "in-flight",
                    (1, Some(b"f-1")) => "key-reused",
                    (2, Some(key)) if key.starts_with(b"f-1-") && key.len() == 68 => {
                        let thread = json!({ "id": "0193", "label": "" });
                        return (StatusCode::CREATED, Json(thread)).into_response();
                    }
                    other => panic!("{other:?}"),
                };
                let problem = json!({ "type": format!("urn:conjure:problem:{kind}"), "title": "",
                    "status": 409, "detail": "no" });
                (StatusCode::CONFLICT, Json(problem)).into_response()
            }
        };
        let api = ApiClient::new(Router::new().route("/api/v1/threads/import", post(import)));
        let imported = upload_export(&api, export().await).await.unwrap();
        assert_eq!(imported.id.as_str(), "0193");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

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
