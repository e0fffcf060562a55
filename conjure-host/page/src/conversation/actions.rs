//! What a person does in a conversation: says something, stops, forks, renames, clears, decides.

use axum::body::Body;
use axum::extract::{Form, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use conjure_core::chat::{ArtifactRef, Message};
use conjure_core::foreign_text::clean;
use conjure_runtime::manager::QuestionReply;
use conjure_runtime::uploads::MOST_ATTACHED;
use conjure_store::ThreadId;
use maud::html;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::address::ConversationAddress;
use super::composer;
use super::context::ConversationContext;
use super::dialogs::{self, MessageDraft};
use super::figures;
use super::question;
use crate::PageState;
use crate::client::segment;
use crate::failure::PageFailure;
use crate::fingerprint::fingerprint;
use crate::forms::close_dialog;
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};

/// What the form of a message sends.
#[derive(Default)]
struct MessageForm {
    text: String,
    /// The model goes on with nothing new said.
    go_on: bool,
    /// The thread that the person looks at.
    thread: String,
    /// Files that were handed over.
    attachments: Vec<String>,
    /// Files of the chat that are attached once more.
    files: Vec<String>,
    /// Id of the form that the message was written in: see [`MessageForm::turn_id`].
    form: String,
    /// The page shows older entries, and follows nothing.
    is_elsewhere: bool,
}

impl MessageForm {
    fn read(sent: Vec<(String, String)>) -> Self {
        let mut said = Self::default();
        for (name, value) in sent {
            match name.as_str() {
                "text" => said.text = value,
                "go_on" => said.go_on = true,
                "thread" => said.thread = value,
                "attachment" => said.attachments.push(value),
                "file" => said.files.push(value),
                "form" => said.form = value,
                "elsewhere" => said.is_elsewhere = true,
                _ => {}
            }
        }
        said
    }

    /// What the API takes, for a thread, or for the session's own where there is none.
    fn body(&self, thread: Option<&ThreadId>) -> Value {
        let mut body = Map::new();
        let mut has = |name: &str, value: Value| body.insert(name.to_owned(), value);
        if let Some(thread) = thread {
            has("thread", json!(thread));
        }
        if self.go_on {
            has("go_on", json!(true));
        }
        if !self.go_on && (self.attachments.is_empty() || !self.text.trim().is_empty()) {
            has("text", json!(self.text));
        }
        if !self.go_on && !self.attachments.is_empty() {
            has("attachments", json!(self.attachments));
        }
        // A person says it, and comes back to decide: what asks waits also while the page is closed.
        has("unattended", json!(false));
        if let Some(turn) = self.turn_id(&body) {
            body.insert("turn_id".to_owned(), Value::String(turn));
        }
        Value::Object(body)
    }

    /// Id of the turn: equal for the same message out of the same form, so that a message whose answer
    /// was lost, and that is sent again, is said once. Another message out of the form is another turn.
    fn turn_id(&self, body: &Map<String, Value>) -> Option<String> {
        let said = json!(body).to_string();
        let id = || format!("{}-{:016x}", self.form, fingerprint(&said));
        (!self.form.is_empty()).then(id)
    }
}

pub(crate) async fn say(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
    Form(sent): Form<Vec<(String, String)>>,
) -> Result<Response, PageFailure> {
    let said = MessageForm::read(sent);
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let mut address = conversation.address;
    // It goes to where the person read when they wrote it, whatever the session did meanwhile.
    let looked_at = match said.thread.is_empty() {
        true => None,
        false => Some(ThreadId::parse(&said.thread)?),
    };
    if address.thread.is_none() && looked_at.is_none() {
        app.manager.start_thread(&address.session).await?;
    }
    let thread = begin(&app, &address, &said.body(looked_at.as_ref())).await?;
    address.thread = Some(thread);
    // A page that shows no thread follows none, also where an earlier try has begun one.
    if !request.pieces || looked_at.is_none() || said.is_elsewhere {
        return Ok(go_to(&request, &thread_url(&address)));
    }
    // What is written next is another message, also where it has the same words.
    let next = match said.form.is_empty() {
        true => html! {},
        false => piece(Swap::Outer, "message-form", &composer::form_id()),
    };
    Ok(pieces(next))
}

/// Begins a turn. The thread that it is in.
async fn begin(
    app: &PageState,
    address: &ConversationAddress,
    body: &Value,
) -> Result<ThreadId, PageFailure> {
    let path = format!("/api/v1/sessions/{}/turns", segment(&address.session));
    let begun: BegunTurnInfo = app.api.send(Method::POST, &path, body).await?;
    Ok(begun.thread)
}

/// A turn that was begun, or waits to be.
#[derive(Deserialize)]
struct BegunTurnInfo {
    thread: ThreadId,
}

/// The query of an upload: the file's name.
#[derive(Deserialize)]
pub(crate) struct UploadName {
    name: String,
}

/// A file that was handed over.
#[derive(Deserialize)]
struct UploadInfo {
    id: String,
    name: String,
    size: u64,
}

/// Takes a file in, which the next message attaches.
pub(crate) async fn attach(
    State(app): State<PageState>,
    Query(named): Query<UploadName>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageFailure> {
    let path = format!("/api/v1/uploads?name={}", segment(&named.name));
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind
        .cloned()
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let kept: UploadInfo = app.api.upload(&path, None, kind, body).await?;
    let shown = html! {
        span.badge {
            input type="hidden" name="attachment" value=(kept.id);
            (clean(&kept.name)) ", " (figures::size(kept.size)) " "
            button.plain id={ "drop-" (kept.id) } type="button" data-drop="" aria-label={ "Leave out " (clean(&kept.name)) } { "×" }
        }
    };
    Ok(pieces(piece(Swap::Append, "attached", &shown)))
}

/// Where the thread is looked at.
fn thread_url(address: &ConversationAddress) -> String {
    match &address.thread {
        Some(thread) => address.with_thread(thread),
        None => address.of_session(""),
    }
}

/// The turn that is to be stopped.
#[derive(Deserialize)]
pub(crate) struct StopForm {
    turn: String,
}

pub(crate) async fn stop(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
    Form(stopped): Form<StopForm>,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    app.manager
        .cancel_turn(&conversation.session.id, &stopped.turn)
        .await?;
    done(&request, &conversation.address)
}

/// Nothing to put in place: the stream says what came of it.
fn done(request: &PageRequest, address: &ConversationAddress) -> Result<Response, PageFailure> {
    match request.pieces {
        true => Ok(pieces(html! {})),
        false => Ok(go_to(request, &thread_url(address))),
    }
}

pub(crate) async fn new_thread(
    State(app): State<PageState>,
    Path(session): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let session = app.manager.start_thread(&session).await?;
    let thread = session.thread.as_ref().map(|thread| thread.id.clone());
    Ok(go_to(
        &request,
        &thread_url(&ConversationAddress::of(&session, thread)),
    ))
}

/// Where a fork begins.
#[derive(Deserialize)]
pub(crate) struct ForkForm {
    /// The last entry that it shows; the newest where it is empty.
    at: String,
}

pub(crate) async fn fork(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
    Form(forked): Form<ForkForm>,
) -> Result<Response, PageFailure> {
    let upto = match forked.at.as_str() {
        "" => None,
        at => Some(at.parse::<u64>().map_err(|_| {
            let words = format!("`{at}` is no entry's number");
            PageFailure::new(StatusCode::UNPROCESSABLE_ENTITY, words)
        })?),
    };
    let thread = ThreadId::parse(&thread)?;
    let session = app.manager.fork_thread(&session, &thread, upto).await?;
    let fork = session.thread.as_ref().map(|thread| thread.id.clone());
    Ok(go_to(
        &request,
        &thread_url(&ConversationAddress::of(&session, fork)),
    ))
}

/// What a follow-up becomes.
#[derive(Deserialize)]
pub(crate) struct EditForm {
    text: String,
}

/// Forks before a message, and says the changed one there.
pub(crate) async fn edit(
    State(app): State<PageState>,
    Path((session, thread, seq)): Path<(String, String, u64)>,
    request: PageRequest,
    Form(sent): Form<Vec<(String, String)>>,
) -> Result<Response, PageFailure> {
    let mut edited = MessageForm::read(sent);
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let message = dialogs::message_at(&app, &conversation.thread()?.id, seq).await?;
    match say_in_fork(&app, &conversation, seq, &message, &mut edited).await {
        Ok(fork) => Ok(go_to(&request, &conversation.address.with_thread(&fork))),
        Err(refused) => {
            let draft = MessageDraft {
                text: &edited.text,
                ticked: Some(&edited.files),
                problem: Some(&refused.detail),
            };
            Ok(dialogs::edit_form(
                &request,
                &conversation,
                seq,
                &message,
                &draft,
            ))
        }
    }
}

/// Says a message otherwise in a fork before its turn. The fork.
async fn say_in_fork(
    app: &PageState,
    conversation: &ConversationContext,
    seq: u64,
    message: &Message,
    edited: &mut MessageForm,
) -> Result<ThreadId, PageFailure> {
    let refused = |words: &str| PageFailure::new(StatusCode::UNPROCESSABLE_ENTITY, words);
    let files = dialogs::files_of(message).into_iter();
    let files: Vec<_> = files.filter(|it| edited.files.contains(&it.id)).collect();
    if edited.text.trim().is_empty() && files.is_empty() {
        return Err(refused(
            "a message has a text; write one, or close the dialog",
        ));
    }
    if files.len() > MOST_ATTACHED {
        return Err(refused(&format!(
            "a message takes {MOST_ATTACHED} files at most; tick fewer of them"
        )));
    }
    // Before there is a fork: where a file is gone, nothing happens.
    for file in files {
        let again = attach_again(app, conversation, file).await?;
        edited.attachments.push(again);
    }
    let fork = ThreadId::fresh();
    let store = app.manager.store();
    match dialogs::before_turn(app, &conversation.thread()?.id, seq).await? {
        Some(before) => {
            store
                .fork(&conversation.thread()?.id, before, &fork)
                .await?;
        }
        // Nothing is before it.
        None => store.create_thread(&fork, "").await?,
    }
    // The session goes on there with the turn, and not without it.
    if let Err(refused) = begin(app, &conversation.address, &edited.body(Some(&fork))).await {
        // The next try has a fork of its own. Where it is not known whether it was begun, it stays.
        if is_refusal(refused.status)
            && let Err(error) = app.manager.remove_thread(&fork).await
        {
            tracing::warn!(thread = %fork, "a fork in which nothing was said stays: {error}");
        }
        return Err(refused);
    }
    Ok(fork)
}

/// Whether a status says that no turn was begun. A conflict says nothing of it: another process may have
/// taken the turn, and not have answered yet.
fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::TOO_MANY_REQUESTS
    )
}

/// Hands a file of a chat over once more, for another chat's message.
async fn attach_again(
    app: &PageState,
    conversation: &ConversationContext,
    file: &ArtifactRef,
) -> Result<String, PageFailure> {
    let thread = &conversation.thread()?.id;
    let content = format!(
        "/api/v1/threads/{thread}/files/{}/content?session={}",
        segment(&file.id),
        segment(&conversation.session.id)
    );
    let bytes = app.api.content(&content).await?;
    let kind = HeaderValue::from_str(&file.media_type)
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let path = format!("/api/v1/uploads?name={}", segment(&file.name));
    let kept: UploadInfo = app.api.upload(&path, None, kind, bytes).await?;
    Ok(kept.id)
}

/// The new name of a thread.
#[derive(Deserialize)]
pub(crate) struct RenameForm {
    label: String,
}

pub(crate) async fn rename(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
    Form(renamed): Form<RenameForm>,
) -> Result<Response, PageFailure> {
    let path = format!("/api/v1/threads/{}", segment(&thread));
    let body = json!({ "label": renamed.label });
    let _: Value = app.api.send(Method::PATCH, &path, &body).await?;
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    if !request.pieces {
        return Ok(go_to(&request, &thread_url(&conversation.address)));
    }
    let tree = super::threads::tree(&app, &conversation).await?;
    Ok(pieces(html! {
        (piece(Swap::Outer, "label", &super::head::title(&conversation)))
        (piece(Swap::Outer, "threads", &tree.markup))
    }))
}

pub(crate) async fn clear(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let path = format!("/api/v1/threads/{}/entries", segment(&thread));
    let _: Value = app.api.send_empty(Method::DELETE, &path).await?;
    Ok(go_to(&request, &thread_url(&conversation.address)))
}

/// What is decided about a call.
#[derive(Deserialize)]
pub(crate) struct DecisionForm {
    decision: String,
    #[serde(default)]
    reason: String,
}

pub(crate) async fn decide(
    State(app): State<PageState>,
    Path((session, call)): Path<(String, String)>,
    request: PageRequest,
    Form(decided): Form<DecisionForm>,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    if decided.decision != "deny" && !decided.reason.trim().is_empty() {
        let words = "a reason goes with a refusal only: nothing was decided; press “Deny”, or \
                     allow it without a reason";
        return Err(PageFailure::new(StatusCode::UNPROCESSABLE_ENTITY, words));
    }
    let body = match decided.decision.as_str() {
        "allow" => json!({ "decision": "allow" }),
        "allow-tool" => json!({ "decision": "allow", "scope": { "kind": "tool" } }),
        _ => json!({ "decision": "deny", "reason": decided.reason }),
    };
    let path = format!(
        "/api/v1/sessions/{}/approvals/{}",
        segment(&conversation.session.id),
        segment(&call)
    );
    let () = app.api.send(Method::POST, &path, &body).await?;
    done(&request, &conversation.address)
}

pub(crate) async fn answer(
    State(app): State<PageState>,
    Path((session, question)): Path<(String, String)>,
    request: PageRequest,
    Form(sent): Form<Vec<(String, String)>>,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let waiting = app.manager.questions(&conversation.session.id).await?;
    let asked = waiting.into_iter().find(|one| one.question.id == question);
    let asked = asked.ok_or_else(|| {
        PageFailure::not_found(
            "this question waits for nobody any more; somebody answered it, or its time was up",
        )
    })?;
    let action = sent.iter().find(|(name, _)| name == "action");
    let reply = match action.map(|(_, action)| action.as_str()) {
        Some("accept") => {
            QuestionReply::Accept(question::content(asked.question.schema.as_ref(), &sent))
        }
        Some("decline") => QuestionReply::Decline,
        _ => QuestionReply::Cancel,
    };
    app.manager
        .answer(&conversation.session.id, &question, reply)
        .await?;
    done(&request, &conversation.address)
}

/// Takes a follow-up out of the queue.
pub(crate) async fn unqueue(
    State(app): State<PageState>,
    Path((session, turn)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    app.manager
        .cancel_turn(&conversation.session.id, &turn)
        .await?;
    done(&request, &conversation.address)
}

/// Says something else in its place.
pub(crate) async fn requeue(
    State(app): State<PageState>,
    Path((session, turn)): Path<(String, String)>,
    request: PageRequest,
    Form(edited): Form<EditForm>,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let path = format!("/api/v1/turns/{}", segment(&turn));
    let body = json!({ "text": edited.text });
    let said = app.api.send::<Value>(Method::PATCH, &path, &body).await;
    let Err(problem) = said else {
        return Ok(match request.pieces && !request.in_sheet {
            // The stream says what waits now.
            true => pieces(close_dialog()),
            false => go_to(&request, &thread_url(&conversation.address)),
        });
    };
    let run = app.manager.run(&turn).await?;
    let draft = MessageDraft {
        text: &edited.text,
        ticked: None,
        problem: Some(&problem.detail),
    };
    Ok(dialogs::queued_form(&request, &conversation, &run, &draft))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(form: &str, text: &str) -> Value {
        let sent = [("form", form), ("text", text)];
        let sent = sent.map(|(name, value)| (name.to_owned(), value.to_owned()));
        MessageForm::read(sent.to_vec()).body(None)
    }

    #[test]
    fn a_message_that_is_sent_again_is_the_same_turn_and_another_one_is_not() {
        let first = said("a-form", "hello");
        assert_eq!(first, said("a-form", "hello"));
        assert_eq!(first["text"], "hello");
        for other in [said("a-form", "hello again"), said("another", "hello")] {
            assert_ne!(first["turn_id"], other["turn_id"]);
        }
        assert_eq!(
            said("", "hello"),
            json!({ "text": "hello", "unattended": false })
        );
    }

    #[test]
    fn a_message_goes_to_the_thread_that_was_looked_at() {
        let thread = ThreadId::parse("t").unwrap();
        let mut form = MessageForm::default();
        form.attachments.push("file".to_owned());
        let body = form.body(Some(&thread));
        let of_file = json!({ "thread": "t", "attachments": ["file"], "unattended": false });
        assert_eq!(body, of_file);
        form.go_on = true;
        let body = form.body(Some(&thread));
        let going_on = json!({ "thread": "t", "go_on": true, "unattended": false });
        assert_eq!(body, going_on);
    }

    #[test]
    fn a_conflict_does_not_say_that_nothing_was_begun() {
        for refused in [404, 413, 422, 429] {
            assert!(is_refusal(StatusCode::from_u16(refused).unwrap()));
        }
        for unknown in [408, 409, 500, 503] {
            assert!(!is_refusal(StatusCode::from_u16(unknown).unwrap()));
        }
    }
}
