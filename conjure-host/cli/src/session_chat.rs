//! `conjure chat --session`: a conversation in a saved session.

use std::io::IsTerminal as _;

use conjure_config::PolicySpec;
use conjure_core::turn::When;
use conjure_runtime::manager::{SessionPatch, TurnTerms};
use conjure_store::ThreadId;

use super::args::{Global, SessionArgs};
use super::chat::{LineReader, compacted_words};
use super::entry_at;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, DIM, RESET, YELLOW, aside, clean};
use super::session_following::SessionFollower;
use super::session_run::{chosen, ended};
use super::session_show::print;
use super::sessions::SavedSessions;
use super::signals::{Signal, Signals};
use super::spent::thousands;
use super::transcript::Transcript;

const HELP: &str = "/session           the session's settings, and what it came to
/tools             the routing table
/auth NAME MODEL   go on with another saved auth and model
/compact           put a summary in place of the older part, as far as the model reads it
/unfold            let the model read again what a summary hides
/new               go on with a fresh thread
/fork [ENTRY]      go on with a fork of this thread, behind an entry (its number, or text of it)
/help              this
/quit              end the conversation (or Ctrl-D)
Ctrl-C             end the turn that runs; what came so far is kept";

pub(crate) async fn run(
    global: &Global,
    session: &str,
    thread: Option<&str>,
    options: SessionArgs,
) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let opening = SavedSessions::with_plugins(global, &options.plugins);
    let sessions = signals.unless(opening).await?;
    let policy = options.policy();
    let done = talk(global, &sessions, session, thread, policy, &mut signals).await;
    tokio::select! {
        () = sessions.close() => {}
        _ = signals.next() => {}
    }
    done
}

async fn talk(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
    thread: Option<&str>,
    policy: PolicySpec,
    signals: &mut Signals,
) -> Result<Exit, CliError> {
    let name = session;
    let session = chosen(sessions, session, thread).await?;
    let attended = std::io::stdin().is_terminal() && !global.json;
    let terms = TurnTerms {
        policy,
        unattended: !attended,
        ..TurnTerms::default()
    };
    if !global.json {
        print(&sessions.manager().get(&session).await?);
        aside(format_args!(
            "{DIM}`/help` shows what else there is.{RESET}"
        ));
    }
    let mut transcript = Transcript::new(global.json);
    let (mut lines, _printer) = LineReader::start(attended).await;
    loop {
        let line = tokio::select! {
            biased;
            signal = signals.next() => return Ok(signal.exit()),
            line = lines.next() => line,
        };
        let Some(line) = line else {
            return Ok(Exit::Fine);
        };
        let text = line.trim();
        match text {
            "" => continue,
            "/quit" | "/exit" => return Ok(Exit::Fine),
            _ => {}
        }
        let done = if text.starts_with('/') {
            command(sessions, &session, text).await
        } else {
            let mut following = SessionFollower {
                sessions,
                session: &session,
                name,
                transcript: &mut transcript,
                signals: &mut *signals,
                attended,
                leaves: false,
            };
            let said = following.say(&text.to_owned().into(), &terms).await;
            match said {
                Ok((run, files)) => {
                    transcript.files(&files);
                    ended(&run, &transcript, signals).map(drop)
                }
                Err(error) => Err(error),
            }
        };
        if let Err(error) = done
            && !error.shown
        {
            output::error(&error, global.json);
        }
        // Ctrl-C ends the turn; the others mean the program.
        if let Some(signal) = signals.last().filter(|signal| *signal != Signal::Interrupt) {
            return Ok(signal.exit());
        }
    }
}

async fn command(sessions: &SavedSessions, session: &str, line: &str) -> Result<(), CliError> {
    let manager = sessions.manager();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["/session"] => print(&manager.get(session).await?),
        ["/tools"] => super::routes::print(&manager.tools(session).await?),
        ["/auth", auth, model] => {
            let patch = SessionPatch {
                auth: Some((*auth).to_owned()),
                model: Some((*model).to_owned()),
                ..SessionPatch::default()
            };
            let view = sessions.update(session, patch, When::Now).await?;
            aside(format_args!(
                "{DIM}Now {} answers.{RESET}",
                clean(&view.model)
            ));
        }
        ["/compact"] => {
            let thread = thread_of(sessions, session).await?;
            let compacted = manager.compact(&thread, Some(session)).await?;
            aside(compacted_words(compacted));
        }
        ["/unfold"] => {
            let thread = thread_of(sessions, session).await?;
            let (fold, tokens) = manager.unfold(&thread, None).await?;
            aside(format_args!(
                "Compaction {fold} is taken back: the next request has about {} tokens of this \
                 conversation.",
                thousands(tokens)
            ));
        }
        ["/new"] => {
            manager.start_thread(session).await?;
            aside(format_args!(
                "{DIM}A fresh thread. The one before stays.{RESET}"
            ));
        }
        ["/fork", ..] => {
            let thread = thread_of(sessions, session).await?;
            let at = line.trim_start_matches("/fork").trim();
            let at = Some(at).filter(|at| !at.is_empty());
            let at = entry_at::resolve(manager.store(), &thread, at).await?;
            manager.fork_thread(session, &thread, at).await?;
            aside(format_args!(
                "{DIM}A fork of it. Both branches stay.{RESET}"
            ));
        }
        ["/help"] => aside(HELP),
        _ => aside(format_args!(
            "{YELLOW}note:{RESET} there is no `{line}`.\n{HELP}"
        )),
    }
    Ok(())
}

/// The thread that the session goes on with.
async fn thread_of(sessions: &SavedSessions, session: &str) -> Result<ThreadId, CliError> {
    let view = sessions.manager().get(session).await?;
    let thread = view.thread.map(|thread| thread.id);
    thread.ok_or_else(|| CliError::usage("the session has no thread").hint("`/new` begins one"))
}
