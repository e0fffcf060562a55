//! The dialogs of a conversation: clearing asks first, a message is edited, a follow-up is edited, a
//! long output and a file are shown whole.

use axum::extract::{Path, State};
use axum::response::Response;
use conjure_core::chat::{ArtifactRef, Content, Message};
use conjure_core::foreign_text::clean;
use conjure_core::log::{Entry, EntryBody};
use conjure_runtime::uploads::SOURCE;
use conjure_store::{Run, ThreadId, Window};
use maud::{Markup, html};

use super::context::ConversationContext;
use super::threads::label;
use crate::PageState;
use crate::failure::PageFailure;
use crate::forms::{Field, form_error, show_dialog};
use crate::layout::{Nav, PageFrame};
use crate::request::PageRequest;
use crate::sheet::{refused_sheet, sheet};

/// How many entries before a turn are looked at for the files that it attaches.
const MAX_SCANNED_ENTRIES: u64 = 500;
/// The most bytes of a file that are previewed.
const PREVIEW: u64 = 256 * 1024;

fn dialog_response(
    request: &PageRequest,
    conversation: &ConversationContext,
    title: &str,
    body: &Markup,
) -> Response {
    show_dialog(
        request,
        &PageFrame::new(Nav::Sessions, &conversation.address.name),
        title,
        body,
    )
}

/// Asks whether the chat is to be cleared.
pub(crate) async fn clear(
    State(app): State<PageState>,
    Path((session, thread)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let thread = conversation.thread()?;
    let keeping = app.manager.store().forks_keeping(&thread.id).await?;
    let body = html! {
        p { "Everything in “" (label(thread)) "” is deleted for good. The chat itself stays, empty." }
        @if !keeping.is_empty() {
            p { "These forks go on showing what they share with it:" }
            ul { @for fork in &keeping { li { (label(fork)) } } }
        }
        form method="post" action=(conversation.address.of_thread("clear")) data-swap="close" {
            div.row {
                button.danger #clear-yes { "Clear it" }
                button.plain #clear-no type="button" data-close="" { "Keep it" }
            }
        }
    };
    Ok(dialog_response(
        &request,
        &conversation,
        "Clear this chat?",
        &body,
    ))
}

/// What the form of a message holds that is said otherwise.
pub(crate) struct MessageDraft<'a> {
    pub(crate) text: &'a str,
    /// The ids of the files that are ticked; nothing where nobody chose yet, and all are.
    pub(crate) ticked: Option<&'a [String]>,
    /// Why it was refused.
    pub(crate) problem: Option<&'a str>,
}

impl MessageDraft<'_> {
    fn is_ticked(&self, file: &ArtifactRef) -> bool {
        self.ticked.is_none_or(|ticked| ticked.contains(&file.id))
    }

    /// Shows the form that holds it.
    fn response(&self, request: &PageRequest, title: &str, form: &Markup) -> Response {
        match self.problem {
            Some(_) => refused_sheet(request, Nav::Sessions, title, form),
            None => sheet(request, Nav::Sessions, title, form),
        }
    }
}

/// A message of the person's, to be said otherwise in a fork.
pub(crate) async fn edit(
    State(app): State<PageState>,
    Path((session, thread, seq)): Path<(String, String, u64)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let message = message_at(&app, &conversation.thread()?.id, seq).await?;
    let draft = MessageDraft {
        text: &message.text(),
        ticked: None,
        problem: None,
    };
    Ok(edit_form(&request, &conversation, seq, &message, &draft))
}

/// The form of a message that is said otherwise in a fork.
pub(crate) fn edit_form(
    request: &PageRequest,
    conversation: &ConversationContext,
    seq: u64,
    message: &Message,
    draft: &MessageDraft<'_>,
) -> Response {
    let at = conversation.address.of_thread(&format!("edit/{seq}"));
    let files = files_of(message);
    // A form that is shown once more keeps what was typed into it, which is for this message alone.
    let id = format!("edit-text-{seq}");
    let field = Field::new(&id, "text", "Message")
        .hint("It is said in a new chat that forks before this message. This one stays as it is.");
    let field = if files.is_empty() {
        field.required()
    } else {
        field
    };
    let body = html! {
        form method="post" action=(at) data-swap {
            (form_error(draft.problem))
            (field.textarea(6, draft.text))
            @if !files.is_empty() {
                p.hint #edit-files { "Files that are attached again" }
                div.row role="group" aria-labelledby="edit-files" {
                    @for (number, file) in files.iter().enumerate() {
                        label.choice {
                            input id={ "edit-file-" (seq) "-" (number) } type="checkbox" name="file" value=(file.id)
                                checked[draft.is_ticked(file)];
                            " " (clean(&file.name))
                        }
                    }
                }
            }
            div.row { button.primary #edit-send { "Fork and send" } }
        }
    };
    draft.response(request, "Edit and fork", &body)
}

/// A follow-up that waits.
pub(crate) async fn queued_dialog(
    State(app): State<PageState>,
    Path((session, turn)): Path<(String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, None).await?;
    let run = app.manager.run(&turn).await?;
    let draft = MessageDraft {
        text: &run.message.as_ref().map(Message::text).unwrap_or_default(),
        ticked: None,
        problem: None,
    };
    Ok(queued_form(&request, &conversation, &run, &draft))
}

/// The form of a follow-up that waits.
pub(crate) fn queued_form(
    request: &PageRequest,
    conversation: &ConversationContext,
    run: &Run,
    draft: &MessageDraft<'_>,
) -> Response {
    let files = run.message.as_ref();
    let files = files.map_or(0, |message| files_of(message).len());
    let hint = match files {
        0 => "It keeps its place among what waits.".to_owned(),
        _ => format!(
            "It keeps its place among what waits, with its {}.",
            file_count(files)
        ),
    };
    let id = format!("queued-text-{}", run.id);
    let field = Field::new(&id, "text", "Message").hint(&hint);
    let field = if files == 0 { field.required() } else { field };
    let field = field.textarea(6, draft.text);
    let at = conversation
        .address
        .of_session(&format!("queue/{}", crate::client::segment(&run.id)));
    let body = html! {
        form method="post" action=(at) data-swap {
            (form_error(draft.problem))
            (field)
            div.row { button.primary #queued-send { "Save" } }
        }
    };
    draft.response(request, "Edit a follow-up", &body)
}

/// All of what a call gave back.
pub(crate) async fn output(
    State(app): State<PageState>,
    Path((session, thread, seq)): Path<(String, String, u64)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let entry = entry(&app, &conversation.thread()?.id, seq).await?;
    let EntryBody::CallEnded { output, .. } = &entry.body else {
        return Err(PageFailure::not_found(format!("entry {seq} is no result")));
    };
    let text = output.joined_text();
    let body = html! {
        figure.code {
            figcaption { span { "Result" } button.plain #copy-output type="button" data-copy="" { "Copy" } }
            pre.wrap tabindex="0" { (clean(&text)) }
        }
    };
    Ok(dialog_response(&request, &conversation, "Result", &body))
}

/// The beginning of a file, as text.
pub(crate) async fn file(
    State(app): State<PageState>,
    Path((session, thread, file)): Path<(String, String, String)>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let conversation = ConversationContext::find(&app, &session, Some(&thread)).await?;
    let url = conversation.address.file(&file);
    let (bytes, is_cut) = app.api.read_prefix(&url, PREVIEW).await?;
    let text = String::from_utf8_lossy(&bytes);
    let all = app
        .manager
        .store()
        .artifacts(&conversation.thread()?.id)
        .await?;
    let known = all.iter().rfind(|known| known.id == file);
    let name = known.map_or(file.as_str(), |known| &known.name);
    let body = html! {
        p.row { a.button #preview-download href=(url) download="" { "Download" }
            @if is_cut { span.muted { "Only the beginning is shown." } } }
        figure.code {
            figcaption { span { (clean(name)) } button.plain #copy-preview type="button" data-copy="" { "Copy" } }
            pre.wrap tabindex="0" { (clean(&text)) }
        }
    };
    Ok(dialog_response(&request, &conversation, "Preview", &body))
}

/// The message at an entry of a thread.
pub(crate) async fn message_at(
    app: &PageState,
    thread: &ThreadId,
    seq: u64,
) -> Result<Message, PageFailure> {
    match entry(app, thread, seq).await?.body {
        EntryBody::Message { message } => Ok(message),
        _ => Err(PageFailure::not_found(format!("entry {seq} is no message"))),
    }
}

/// The files that a message attaches.
pub(crate) fn files_of(message: &Message) -> Vec<&ArtifactRef> {
    let parts = message.content.iter();
    let files = parts.filter_map(|part| match &part.content {
        Content::Image { artifact } | Content::File { artifact } => Some(artifact),
        _ => None,
    });
    files.collect()
}

fn file_count(files: usize) -> String {
    match files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    }
}

async fn entry(app: &PageState, thread: &ThreadId, seq: u64) -> Result<Entry, PageFailure> {
    let store = app.manager.store();
    let window = Window::After(seq.saturating_sub(1));
    let page = store.entries(thread, window, 1).await?;
    let found = page.entries.into_iter().find(|entry| entry.seq == seq);
    found.ok_or_else(|| PageFailure::not_found(format!("the thread shows no entry {seq}")))
}

/// The entry before the turn that an entry is in; nothing where the thread shows none before it.
pub(crate) async fn before_turn(
    app: &PageState,
    thread: &ThreadId,
    seq: u64,
) -> Result<Option<u64>, PageFailure> {
    let store = app.manager.store();
    let mut before = seq.saturating_add(1);
    loop {
        let page = store.entries(thread, Window::Before(before), 50).await?;
        let is_begin = |entry: &&Entry| matches!(entry.body, EntryBody::TurnStarted { .. });
        if let Some(begin) = page.entries.iter().rev().find(is_begin) {
            let window = Window::Before(begin.seq);
            let page = store.entries(thread, window, MAX_SCANNED_ENTRIES).await?;
            let begin = attaching(&page.entries).unwrap_or(begin.seq);
            let last = begin.saturating_sub(1);
            return Ok((last >= page.first_seq).then_some(last));
        }
        match page.entries.first() {
            Some(first) if page.has_earlier() => before = first.seq,
            _ => return Ok(None),
        }
    }
}

/// Where a turn that begins behind these entries has begun to take the files in that it attaches:
/// they are recorded before it, with what a model cannot look at.
fn attaching(before: &[Entry]) -> Option<u64> {
    let is_file =
        |entry: &&Entry| matches!(&entry.body, EntryBody::File { source, .. } if source == SOURCE);
    let of_files = before
        .iter()
        .rev()
        .take_while(|entry| is_file(entry) || matches!(entry.body, EntryBody::Notice { .. }));
    of_files.filter(is_file).last().map(|entry| entry.seq)
}
