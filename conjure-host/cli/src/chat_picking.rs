//! What a chat lets the person pick: a model, a message to fork at, another conversation; and what
//! becomes of what is picked.

use std::path::Path;

use conjure_terminal::{Picker, PickerItem};

use super::chat_commands::{model_check_report, split_provider_model};
use super::chat_messages::MESSAGES;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::output::{BOLD, DIM, RESET, clean, clean_line, print_note};
use super::thread_directories::ThreadDirectories;
use super::transcript::Transcript;
use super::{chat_commands, chat_messages, chat_models, chat_threads};

/// The list of models.
pub(crate) const MODELS: &str = "models";
/// The list that asks whether the model that was picked is meant.
const CONFIRMATION_LIST: &str = "confirmed";
/// The most choices that are told with numbers: they are read one after the other.
const MAX_NUMBERED: usize = 40;

/// What became of what was picked.
pub(crate) enum PickOutcome {
    /// Another list is to be picked from.
    Next(Picker),
    /// Another model answers.
    Model,
    /// A fork goes on that ends before this message.
    Fork(String),
    /// Another thread goes on.
    Thread,
}

/// The list of a command that is given nothing to choose; nothing where it has none, or was given it.
///
/// # Errors
/// When no conversation has the words that stand behind the command.
pub(crate) async fn of_command(
    chat: &ChatSession,
    line: &str,
    dirs: &ThreadDirectories,
) -> Result<Option<Picker>, CliError> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, rest.trim()) {
        ("/model", "") => models(chat).await,
        ("/fork", "") => {
            let thread = chat.thread().await?;
            Ok(chat_messages::list(chat.store(), &thread).await?)
        }
        ("/resume", "") => {
            let directory = chat.directory().await?;
            chat_threads::list(chat.store(), "", &directory, dirs).await
        }
        ("/resume", words) => {
            if chat_threads::of_id(chat.store(), words).await?.is_some() {
                return Ok(None);
            }
            let directory = chat.directory().await?;
            let list = chat_threads::list(chat.store(), words, &directory, dirs).await?;
            let none = || chat_threads::no_match_error(words).hint("`/resume` lists all of them");
            list.ok_or_else(none).map(Some)
        }
        _ => Ok(None),
    }
}

/// Goes on with what was picked of a list.
///
/// # Errors
/// What stood in the way; the conversation goes on as it was.
pub(crate) async fn apply_pick(
    chat: &mut ChatSession,
    list: &str,
    id: &str,
) -> Result<PickOutcome, CliError> {
    Ok(match list {
        MODELS => PickOutcome::Next(confirmation_picker(chat, id).await?),
        CONFIRMATION_LIST => {
            let line = format!("/model {id}");
            let mut transcript = Transcript::new(false);
            Box::pin(chat_commands::run(chat, &line, &mut transcript)).await?;
            PickOutcome::Model
        }
        MESSAGES => {
            let thread = chat.thread().await?;
            if let Some(earlier) =
                chat_messages::earlier_messages(chat.store(), &thread, id).await?
            {
                return Ok(PickOutcome::Next(earlier));
            }
            let said = chat_messages::fork_before(chat, id).await?;
            print_note(format_args!(
                "{DIM}A fork that ends before it. Both branches stay.{RESET}"
            ));
            PickOutcome::Fork(said)
        }
        _ => {
            chat.go_to(super::thread::id(id)?).await?;
            PickOutcome::Thread
        }
    })
}

/// Runs a command where nothing is redrawn: a line that begins with a slash. Where it is given nothing
/// to choose and somebody is there, they pick by number; `next` is the next line that is typed then.
///
/// # Errors
/// What stood in the way; the conversation goes on.
pub(crate) async fn run_command(
    chat: &mut ChatSession,
    line: &str,
    transcript: &mut Transcript,
    attended: bool,
    next: impl AsyncFnMut() -> Option<String>,
) -> Result<(), CliError> {
    if attended && Box::pin(pick_by_number(chat, line, next)).await? {
        return Ok(());
    }
    Box::pin(chat_commands::run(chat, line, transcript)).await
}

/// Lets the person pick where a command is given nothing to choose: each choice has a number, which is
/// typed. Whether the command is done with that.
async fn pick_by_number(
    chat: &mut ChatSession,
    line: &str,
    mut next: impl AsyncFnMut() -> Option<String>,
) -> Result<bool, CliError> {
    let dirs = ThreadDirectories::default();
    let Some(mut picker) = of_command(chat, line, &dirs).await? else {
        return Ok(false);
    };
    loop {
        print_choices(&picker);
        let Some(id) = choice(&picker, &mut next).await else {
            print_note(format_args!("{DIM}Nothing changes.{RESET}"));
            return Ok(true);
        };
        match apply_pick(chat, &picker.list, &id).await? {
            PickOutcome::Next(another) => {
                picker = another;
                continue;
            }
            PickOutcome::Fork(said) => print_note(format_args!("You said: {}", clean_line(&said))),
            PickOutcome::Thread => print_note(format_args!("{DIM}Now that thread goes on.{RESET}")),
            PickOutcome::Model => {}
        }
        return Ok(true);
    }
}

fn print_choices(picker: &Picker) {
    print_note(format_args!("{BOLD}{}{RESET}", clean_line(&picker.title)));
    for (number, choice) in (1..).zip(picker.choices.iter().take(MAX_NUMBERED)) {
        let detail = match choice.detail.as_str() {
            "" => String::new(),
            detail => format!("  ({detail})"),
        };
        let said = format!("{number}. {}{detail}", choice.label);
        print_note(format_args!("  {}", clean_line(&said)));
    }
    let more = picker.choices.len().saturating_sub(MAX_NUMBERED);
    if more > 0 {
        print_note(format_args!("  … {more} more"));
    }
    print_note("Type a number, or nothing to leave the list.");
}

/// What is picked; nothing where the list is left.
async fn choice(picker: &Picker, next: &mut impl AsyncFnMut() -> Option<String>) -> Option<String> {
    while let Some(line) = next().await {
        let line = line.trim();
        if line.is_empty() {
            return None;
        }
        let number = line.parse::<usize>().ok();
        let at = number.and_then(|number| number.checked_sub(1));
        if let Some(choice) = at.and_then(|at| picker.choices.get(at)) {
            return Some(choice.id.clone());
        }
        print_note(format_args!(
            "That is no number of the list: 1 to {}.",
            picker.choices.len()
        ));
    }
    None
}

/// The models that the chat can go on with; nothing where none is known.
async fn models(chat: &ChatSession) -> Result<Option<Picker>, CliError> {
    let choices = Box::pin(chat_models::choices(chat)).await?;
    let picker = Picker::new(MODELS, "Go on with the model", choices);
    Ok((!picker.choices.is_empty()).then_some(picker))
}

/// Says what a model would get of the conversation, and asks whether it is meant.
async fn confirmation_picker(chat: &ChatSession, wanted: &str) -> Result<Picker, CliError> {
    let (provider, model) = split_provider_model(wanted).unwrap_or_default();
    print_note(format_args!(
        "{BOLD}What {} would get{RESET}",
        clean(wanted)
    ));
    for said in model_check_report(chat, provider, model).await? {
        print_note(format_args!("  {}", clean(&said)));
    }
    let go_on = PickerItem {
        id: wanted.to_owned(),
        label: format!("go on with {wanted}"),
        detail: String::new(),
    };
    Ok(Picker::new(
        CONFIRMATION_LIST,
        "Is it meant? Esc says no",
        vec![go_on],
    ))
}

/// Looks for more that a list can have: what has these words.
///
/// # Errors
/// What the database says.
pub(crate) async fn search_list(
    chat: &ChatSession,
    list: &str,
    words: &str,
    directory: &Path,
    dirs: &ThreadDirectories,
) -> Result<Vec<PickerItem>, CliError> {
    match list {
        MESSAGES => {
            let thread = chat.thread().await?;
            Ok(chat_messages::search_messages(chat.store(), &thread, words).await?)
        }
        _ => chat_threads::search_threads(chat.store(), words, directory, dirs).await,
    }
}

#[cfg(test)]
mod tests {
    use conjure_terminal::PickerItem;

    use super::*;

    #[tokio::test]
    async fn only_a_number_of_the_list_picks() {
        let item = |id: &str| PickerItem {
            id: id.to_owned(),
            label: id.to_owned(),
            detail: String::new(),
        };
        let picker = Picker::new("list", "Which?", vec![item("one"), item("two")]);
        for (typed, picked) in [
            (&["0", "3", "two", " 2 "][..], Some("two")),
            (&["3", ""], None),
            (&["x"], None),
        ] {
            let mut lines = typed.iter().map(|line| (*line).to_owned());
            let mut next = async || lines.next();
            assert_eq!(choice(&picker, &mut next).await.as_deref(), picked);
        }
    }
}
