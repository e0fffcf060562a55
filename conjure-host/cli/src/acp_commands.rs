//! The commands of a chat, as a person types them in an editor.

use std::sync::Arc;

use conjure_acp::{AcpCommand, AcpCommands};
use conjure_runtime::manager::{Manager, TurnTerms};

use super::args::Global;
use super::chat_commands::{COMMANDS, report_error, run};
use super::chat_session::{ChatSession, SavedChat, models};
use super::chat_threads;
use super::error::CliError;
use super::output::{self, clean, print_note};
use super::sessions::SavedSessions;
use super::thread_directories::ThreadDirectories;
use super::thread_feed::Following;
use super::transcript::Transcript;

/// Commands that are left out: an editor has them itself, or they are of a terminal.
const EXCLUDED_COMMANDS: [&str; 3] = ["/save", "/help", "/quit"];

/// What a terminal answers with a list to pick from.
const RESUME: &str = "/resume";
/// The most conversations that are told.
const MAX_THREADS: usize = 20;

/// The commands, for sessions of this manager.
pub(crate) fn of(global: &Global, manager: &Manager) -> AcpCommands {
    let offered = COMMANDS
        .iter()
        .filter(|command| !EXCLUDED_COMMANDS.contains(&command.name));
    let list = offered.map(|command| AcpCommand {
        name: command.name.trim_start_matches('/').to_owned(),
        arguments: command.arguments.to_owned(),
        help: command.help.to_owned(),
    });
    let (manager, auths, models) = (manager.clone(), global.auths(), models(global));
    AcpCommands {
        list: list.collect(),
        run: Arc::new(move |session, line| {
            let mut chat = ChatSession::Saved(Box::new(SavedChat {
                sessions: SavedSessions::with_manager(manager.clone()),
                auths: auths.clone(),
                name: session.clone(),
                id: session,
                terms: TurnTerms::default(),
                models: models.clone(),
                following: Following::No,
                shown_thread: None,
                shown_turn: 0,
            }));
            let running = output::capture(async move {
                let done = match line.trim() {
                    RESUME => print_threads(&chat).await,
                    line => run(&mut chat, line, &mut Transcript::new(false)).await,
                };
                if let Err(error) = done {
                    report_error(&error);
                }
            });
            Box::pin(async move { fence_text(Box::pin(running).await.trim_end()) })
        }),
    }
}

/// Tells the conversations that the session could go on with: an editor has no list to pick from.
async fn print_threads(chat: &ChatSession) -> Result<(), CliError> {
    let current = chat.thread().await?.to_string();
    let directory = chat.directory().await?;
    let dirs = ThreadDirectories::default();
    let picker = chat_threads::list(chat.store(), "", &directory, &dirs).await?;
    let mut threads = picker.map(|picker| picker.choices).unwrap_or_default();
    threads.retain(|thread| thread.id != current);
    if threads.is_empty() {
        print_note("There is no other conversation to go on with.");
        return Ok(());
    }
    print_note("`/resume ID` goes on with one of these, those of this directory first:");
    for thread in threads.iter().take(MAX_THREADS) {
        print_note(format_args!(
            "{}  {}  ({})",
            thread.id,
            clean(&thread.label),
            clean(&thread.detail)
        ));
    }
    if let Some(more) = threads
        .len()
        .checked_sub(MAX_THREADS)
        .filter(|more| *more > 0)
    {
        print_note(format_args!(
            "… {more} more: `conjure thread list` has all of them, `conjure thread search WORDS` \
             those with these words"
        ));
    }
    Ok(())
}

/// A text as it is, for an editor that reads Markdown.
fn fence_text(text: &str) -> String {
    if !text.contains('\n') {
        return text.trim().to_owned();
    }
    let runs = text.split(|c| c != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or_default().max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}
