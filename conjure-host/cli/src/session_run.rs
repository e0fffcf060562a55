//! `conjure run --session` and `conjure session follow`: one turn of a saved session, shown.

use std::io::IsTerminal as _;

use conjure_core::chat::Event;
use conjure_core::foreign_text::in_json;
use conjure_runtime::manager::TurnTerms;
use conjure_store::{Run, RunState, Store};
use serde_json::{Value, json};

use super::args::{Global, SessionArgs};
use super::attachments::{AttachedMessage, FilesToAttach};
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::session_follower::{FollowEnd, SessionFollower};
use super::sessions::{SavedSessions, StartedTurn};
use super::signals::Signals;
use super::thread::id;
use super::transcript::Transcript;

pub(crate) async fn run(
    global: &Global,
    store: Store,
    (session, thread): (&str, Option<&str>),
    options: SessionArgs,
    files: FilesToAttach,
    (question, output_schema): (String, Option<Value>),
) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let sessions = signals
        .unless(SavedSessions::for_one_turn(global, store, &options.plugins))
        .await?;
    let chosen = async {
        let id = select_session(&sessions, session, thread).await?;
        let said = files.into_message(sessions.manager().host(), question)?;
        Ok((id, said))
    };
    let (id, said) = match chosen.await {
        Ok(chosen) => chosen,
        Err(error) => {
            sessions.close().await;
            return Err(error);
        }
    };
    let attended = is_attended(global);
    let mut transcript = Transcript::new(global.json);
    let mut following = SessionFollower {
        sessions: &sessions,
        session: &id,
        name: session,
        transcript: &mut transcript,
        signals: &mut signals,
        attended,
        detaches_on_signal: false,
    };
    let terms = TurnTerms {
        policy: options.policy(),
        unattended: !attended,
        output_schema,
        ..TurnTerms::default()
    };
    let asked = following.answer_to(global, &said, &terms).await;
    tokio::select! {
        () = sessions.close() => {}
        _ = signals.next() => {}
    }
    asked
}

/// Whether a person is at the terminal who can be asked.
fn is_attended(global: &Global) -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !global.json
}

/// Shows the turn that runs in a session, from its beginning to its end. Who sits at the terminal
/// is asked what waits for a person.
pub(crate) async fn follow(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
) -> Result<Exit, CliError> {
    let manager = sessions.manager();
    let view = manager.get(session).await?;
    let Some(turn) = view.turn else {
        output::print_note("Nothing runs in it.");
        return Ok(Exit::Success);
    };
    let run = manager.run(&turn).await?;
    let mut signals = Signals::listen()?;
    let mut transcript = Transcript::new(global.json);
    let mut following = SessionFollower {
        sessions,
        session: &view.id,
        name: session,
        transcript: &mut transcript,
        signals: &mut signals,
        attended: is_attended(global),
        detaches_on_signal: true,
    };
    let turn = StartedTurn {
        id: turn,
        thread: run.thread,
    };
    let until = following.follow_until_over(&turn).await?;
    transcript.end();
    match until {
        FollowEnd::Detached(signal) => Ok(signal.exit()),
        FollowEnd::Over(_) => turn_exit(&manager.wait(&turn.id).await?, &transcript, &signals),
    }
}

/// The session, on the thread that is wanted.
pub(crate) async fn select_session(
    sessions: &SavedSessions,
    session: &str,
    thread: Option<&str>,
) -> Result<String, CliError> {
    let manager = sessions.manager();
    let view = match thread {
        Some(thread) => manager.choose_thread(session, &id(thread)?).await?,
        None => manager.get(session).await?,
    };
    Ok(view.id)
}

/// The answer of a turn: what the model said last in it. One that failed or was ended has none, whatever
/// was said.
async fn answer(sessions: &SavedSessions, run: &Run) -> Option<String> {
    if !matches!(run.state, RunState::Completed | RunState::CutShort) {
        return None;
    }
    let events = sessions
        .manager()
        .store()
        .events_after(&run.thread, None, usize::MAX);
    let events = events.await.ok()?;
    events.into_iter().rev().find_map(|(_, event)| match event {
        Event::Done { turn_id, text, .. } if turn_id == run.id => Some(text),
        _ => None,
    })
}

/// How the program ends after a turn.
pub(crate) fn turn_exit(
    run: &Run,
    transcript: &Transcript,
    signals: &Signals,
) -> Result<Exit, CliError> {
    let exit = match run.state {
        RunState::Completed => return Ok(Exit::Success),
        RunState::CutShort | RunState::Limit => Exit::Limit,
        RunState::Failed => Exit::Provider,
        RunState::Cancelled => signals
            .last()
            .map_or(Exit::Interrupted, super::signals::Signal::exit),
        _ => Exit::Host,
    };
    let why = match (&run.error, run.state) {
        (Some(error), _) => error.clone(),
        (None, RunState::CutShort) => transcript.cut_short(),
        (None, state) => format!("the turn was {}", state.as_str().replace('_', " ")),
    };
    let shown = transcript.has_shown_text(&why);
    Err(CliError::new(exit, why).with_shown(shown))
}

impl SessionFollower<'_> {
    /// Asks a question, shows the turn, and says how it ended.
    async fn answer_to(
        &mut self,
        global: &Global,
        said: &AttachedMessage,
        terms: &TurnTerms,
    ) -> Result<Exit, CliError> {
        let holds_answer = terms.output_schema.is_some() && !global.json;
        let followed = self.say_and_follow(said, terms, holds_answer);
        let (run, files) = followed.await?;
        self.transcript.files(&files);
        let text = match holds_answer || global.json {
            true => answer(self.sessions, &run).await,
            false => None,
        };
        if holds_answer && run.state == RunState::Completed {
            output::line(in_json(text.as_deref().unwrap_or_default().trim()));
        }
        if global.json {
            output::json_line(&json!({
                "type": "result", "text": text, "state": run.state.as_str(), "turn": run.id,
                "thread": run.thread, "files": files,
            }));
        }
        turn_exit(&run, self.transcript, self.signals)
    }
}
