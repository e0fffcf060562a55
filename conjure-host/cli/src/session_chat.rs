//! `conjure chat --session`: a conversation in a saved session.

use std::io::IsTerminal as _;

use conjure_runtime::manager::TurnTerms;
use conjure_store::Store;

use super::args::{Global, SessionArgs};
use super::chat::LineReader;
use super::chat_opening::ChatToShow;
use super::chat_picking::run_command;
use super::chat_session::{ChatSession, SavedChat, models};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, DIM, RESET, print_note};
use super::session_follower::SessionFollower;
use super::session_run::{select_session, turn_exit};
use super::session_show::print;
use super::sessions::SavedSessions;
use super::signals::{Signal, Signals};
use super::thread_feed::Following;
use super::transcript::Transcript;
use super::{chat_face, chat_mentions, chat_shell, terminal_support};

pub(crate) async fn run(
    global: &Global,
    store: Store,
    session: &str,
    thread: Option<&str>,
    options: SessionArgs,
) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let auths = global.auths_over(&store);
    let opening = SavedSessions::with_store(global, store, &options.plugins);
    let sessions = signals.unless(opening).await?;
    let id = match select_session(&sessions, session, thread).await {
        Ok(id) => id,
        Err(error) => {
            sessions.close().await;
            return Err(error);
        }
    };
    let attended = std::io::stdin().is_terminal() && !global.json;
    let mut chat = ChatSession::Saved(Box::new(SavedChat {
        sessions,
        auths,
        id,
        name: session.to_owned(),
        terms: TurnTerms {
            policy: options.policy(),
            unattended: !attended,
            ..TurnTerms::default()
        },
        models: models(global),
        following: Following::No,
        shown_thread: None,
        shown_turn: 0,
    }));
    let (chat, done) = if terminal_support::is_supported(global) {
        let shown = ChatToShow::Open(chat);
        Box::pin(chat_face::run(global, shown, &mut signals)).await
    } else {
        let mut was_used = false;
        let talk = lines(global, &mut chat, attended, &mut was_used, &mut signals);
        let done = Box::pin(talk).await;
        if attended && was_used {
            chat.print_resume_command();
        }
        (Some(chat), done)
    };
    if let Some(ChatSession::Saved(mut saved)) = chat {
        // Nobody is there any more for what others begin.
        saved.following = Following::No;
        tokio::select! {
            () = saved.sessions.close() => {}
            _ = signals.next() => {}
        }
    }
    done
}

/// A conversation line by line; whether something was said in it, now or before, is noted.
async fn lines(
    global: &Global,
    chat: &mut ChatSession,
    attended: bool,
    was_used: &mut bool,
    signals: &mut Signals,
) -> Result<Exit, CliError> {
    if !global.json {
        if let ChatSession::Saved(saved) = &*chat {
            print(&saved.sessions.manager().get(&saved.id).await?);
        }
        print_note(format_args!(
            "{DIM}`/help` shows what else there is.{RESET}"
        ));
    }
    if attended {
        *was_used |= chat.print_recent().await?;
    }
    let mut transcript = Transcript::new(global.json);
    let history = attended.then(|| global.input_history());
    let (mut lines, _printer) = LineReader::start(attended, history).await;
    let directory = chat.directory().await?;
    // What the person's own commands said since the last message.
    let mut told: Vec<String> = Vec::new();
    loop {
        let line = match lines.next_or_signal(signals).await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Exit::Success),
            Err(signal) => return Ok(signal.exit()),
        };
        let text = line.trim();
        match text {
            "" => continue,
            "/quit" | "/exit" => return Ok(Exit::Success),
            _ => {}
        }
        let own_command = text.strip_prefix('!').filter(|_| attended).map(str::trim);
        let done = if text.starts_with('/') {
            let thread = chat.thread().await.ok();
            let next = async || lines.next_choice(&mut *signals).await;
            match run_command(chat, text, &mut transcript, attended, next).await {
                Ok(()) if attended => {
                    let before = chat.print_recent_unless_on(thread.as_ref()).await;
                    before.map(|has_told| *was_used |= has_told)
                }
                done => done,
            }
        } else if let Some(command) = own_command {
            if command.is_empty() {
                print_note(chat_shell::USAGE);
                continue;
            }
            let ran = Box::pin(chat_shell::run(command, &directory, signals)).await;
            ran.map(|said| told.push(said))
        } else {
            let ChatSession::Saved(saved) = &*chat else {
                return Ok(Exit::Success);
            };
            let mut following = SessionFollower {
                sessions: &saved.sessions,
                session: &saved.id,
                name: &saved.name,
                transcript: &mut transcript,
                signals: &mut *signals,
                attended,
                detaches_on_signal: false,
            };
            let host = saved.sessions.manager().host();
            let message = chat_mentions::of_line(host, &directory, text, &told, attended);
            let Some(message) = message else { continue };
            *was_used = true;
            let said = following.say(&message, &saved.terms).await;
            match said {
                Ok((run, files)) => {
                    // What was not said goes with the next message.
                    told.clear();
                    transcript.files(&files);
                    turn_exit(&run, &transcript, signals).map(drop)
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = done
            && !error.is_shown
        {
            output::error(&error, global.json);
        }
        // Ctrl-C ends the turn; the others mean the program.
        if let Some(signal) = signals.last().filter(|signal| *signal != Signal::Interrupt) {
            return Ok(signal.exit());
        }
    }
}
