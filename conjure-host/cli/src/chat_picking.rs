//! What a chat on a terminal lets the person pick: a model, and a message to fork at.

use conjure_core::chat::{Content, Role};
use conjure_core::log::EntryBody;
use conjure_store::Log as _;
use conjure_terminal::{Picker, PickerItem};

use super::chat_commands::{checked, named};
use super::chat_models;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::output::{BOLD, RESET, aside, clean};
use super::transcript::one_line;

/// The list of models.
pub(crate) const MODELS: &str = "models";
/// The list that asks whether the model that was picked is meant.
pub(crate) const CONFIRMED: &str = "confirmed";
/// The list of messages.
pub(crate) const MESSAGES: &str = "messages";

/// The models that the chat can go on with; nothing where none is known.
pub(crate) async fn models(chat: &ChatSession) -> Result<Option<Picker>, CliError> {
    let choices = Box::pin(chat_models::choices(chat)).await?;
    let picker = Picker::new(MODELS, "Go on with the model", choices);
    Ok((!picker.choices.is_empty()).then_some(picker))
}

/// Says what a model would get of the conversation, and asks whether it is meant.
pub(crate) async fn confirmed(chat: &ChatSession, wanted: &str) -> Result<Picker, CliError> {
    let (provider, model) = named(wanted).unwrap_or_default();
    aside(format_args!(
        "{BOLD}What {} would get{RESET}",
        clean(wanted)
    ));
    for said in checked(chat, provider, model).await? {
        aside(format_args!("  {}", clean(&said)));
    }
    let go_on = PickerItem {
        id: wanted.to_owned(),
        label: format!("go on with {wanted}"),
        detail: String::new(),
    };
    Ok(Picker::new(
        CONFIRMED,
        "Is it meant? Esc says no",
        vec![go_on],
    ))
}

/// What the person said in the thread, the newest first.
pub(crate) async fn messages(chat: &ChatSession) -> Result<Option<Picker>, CliError> {
    let thread = chat.thread().await?;
    let entries = chat.store().read_entries(&thread).await?;
    let mut choices = Vec::new();
    for entry in entries.iter().rev() {
        if let EntryBody::Message { message } = &entry.body
            && message.role == Role::User
        {
            let text: Vec<&str> = message
                .content
                .iter()
                .filter_map(|part| text(&part.content))
                .collect();
            choices.push(PickerItem {
                id: entry.seq.to_string(),
                label: one_line(&text.join(" "), 60),
                detail: format!("turn {}", entry.turn),
            });
        }
    }
    let picker = Picker::new(
        MESSAGES,
        "Say it otherwise, in a fork that ends before",
        choices,
    );
    Ok((!picker.choices.is_empty()).then_some(picker))
}

/// Goes on with a fork that ends before a message, and gives back its text.
pub(crate) async fn fork_before(chat: &mut ChatSession, seq: &str) -> Result<String, CliError> {
    let thread = chat.thread().await?;
    let entries = chat.store().read_entries(&thread).await?;
    let chosen = entries.iter().find(|entry| entry.seq.to_string() == seq);
    let Some(chosen) = chosen else {
        return Err(CliError::usage("the thread has no such entry any more"));
    };
    let said = match &chosen.body {
        EntryBody::Message { message } => {
            let texts = message
                .content
                .iter()
                .filter_map(|part| text(&part.content));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    // Its turn began before it was said.
    let before = entries.iter().rev().find(|entry| entry.turn < chosen.turn);
    match before.map(|entry| entry.seq) {
        Some(seq) => chat.fork(Some(seq)).await?,
        None => chat.start_thread().await?,
    }
    Ok(said)
}

fn text(content: &Content) -> Option<&str> {
    match content {
        Content::Text { text } => Some(text),
        _ => None,
    }
}
