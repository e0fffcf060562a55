//! `conjure run --session`: one question in a saved session.

use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal as _;

use conjure_core::chat::{Event, EventId, QuestionAsked};
use conjure_host::artifacts::Artifact;
use conjure_host::backend::Asker as _;
use conjure_host::manager::Scope;
use conjure_host::store::{Run, RunState, ThreadId};
use conjure_skill_sdk::protocol::Elicit;
use serde_json::json;

use super::args::Global;
use super::exit::{Exit, Failure};
use super::output;
use super::person::{Terminal, ask};
use super::sessions::{Begun, Events, Sessions};
use super::signals::Signals;
use super::thread::id;
use super::transcript::{Asked, Transcript};

pub(crate) async fn run(
    global: &Global,
    session: &str,
    thread: Option<&str>,
    question: String,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let sessions = signals.unless(Sessions::open(global)).await?;
    let asked = answer(global, &sessions, session, thread, question, &mut signals).await;
    tokio::select! {
        () = sessions.close() => {}
        _ = signals.next() => {}
    }
    asked
}

async fn answer(
    global: &Global,
    sessions: &Sessions,
    session: &str,
    thread: Option<&str>,
    question: String,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let session = chosen(sessions, session, thread).await?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let mut transcript = Transcript::new(global.json);
    let mut following = Following {
        sessions,
        session: &session,
        transcript: &mut transcript,
        signals,
        attended: is_terminal && !global.json,
    };
    let (run, files) = following.say(question).await?;
    transcript.files(&files);
    if global.json {
        let text = text(sessions, &run).await;
        output::json_line(&json!({
            "type": "result", "text": text, "state": run.state.as_str(), "turn": run.id,
            "thread": run.thread, "files": files,
        }));
    }
    ended(&run, &transcript, signals)
}

/// Shows the turn that runs in a session, from its beginning to its end.
pub(crate) async fn follow(
    global: &Global,
    sessions: &Sessions,
    session: &str,
) -> Result<Exit, Failure> {
    let manager = sessions.manager();
    let view = manager.get(session).await?;
    let Some(turn) = view.turn else {
        output::aside("Nothing runs in it.");
        return Ok(Exit::Fine);
    };
    let run = manager.run(&turn).await?;
    let mut signals = Signals::listen()?;
    let mut transcript = Transcript::new(global.json);
    let after = before(sessions, &run.thread).await?;
    let mut events = sessions.events(&run.thread, after).await?;
    let mut began = false;
    loop {
        let event = tokio::select! {
            biased;
            // Who only looks ends nothing.
            signal = signals.next() => return Ok(signal.exit()),
            event = events.next() => event?,
        };
        let Some(event) = event else { break };
        began |= matches!(&event.event, Event::TurnStarted { turn_id } if *turn_id == turn);
        if began {
            transcript.show(&event.event, false);
        }
        if matches!(&event.event, Event::Done { turn_id, .. } if *turn_id == turn) {
            break;
        }
    }
    transcript.end();
    ended(&manager.wait(&turn).await?, &transcript, &signals)
}

/// The session, on the thread that is wanted.
pub(crate) async fn chosen(
    sessions: &Sessions,
    session: &str,
    thread: Option<&str>,
) -> Result<String, Failure> {
    let manager = sessions.manager();
    let view = match thread {
        Some(thread) => manager.choose_thread(session, &id(thread)?).await?,
        None => manager.get(session).await?,
    };
    Ok(view.id)
}

/// What the model said last in a turn.
async fn text(sessions: &Sessions, run: &Run) -> Option<String> {
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
pub(crate) fn ended(
    run: &Run,
    transcript: &Transcript,
    signals: &Signals,
) -> Result<Exit, Failure> {
    let exit = match run.state {
        RunState::Completed => return Ok(Exit::Fine),
        RunState::CutShort | RunState::Limit => Exit::Limit,
        RunState::Failed => Exit::Provider,
        RunState::Cancelled => signals
            .last()
            .map_or(Exit::Interrupted, super::signals::Signal::exit),
        _ => Exit::Host,
    };
    let why = match (&run.error, run.state) {
        (Some(error), _) => error.clone(),
        (None, RunState::CutShort) => {
            "the answer was cut short by the provider; what came is above".to_owned()
        }
        (None, state) => format!("the turn was {}", state.as_str().replace('_', " ")),
    };
    Err(Failure {
        shown: transcript.has_shown_text(&why),
        ..Failure::new(exit, why)
    })
}

/// Shows a turn of a saved session while it runs.
pub(crate) struct Following<'a> {
    pub(crate) sessions: &'a Sessions,
    pub(crate) session: &'a str,
    pub(crate) transcript: &'a mut Transcript,
    pub(crate) signals: &'a mut Signals,
    pub(crate) attended: bool,
}

impl Following<'_> {
    /// Says something, shows the turn until it is over, and gives the files that it made. A signal
    /// ends the turn; what came so far is kept. A second one does not wait for that.
    pub(crate) async fn say(&mut self, text: String) -> Result<(Run, Vec<Artifact>), Failure> {
        let turn = self.sessions.say(self.session, text).await?;
        let made = self.until_over(&turn).await?;
        let run = self.sessions.wait(&turn.id).await?;
        self.transcript.end();
        let files = self.sessions.manager().host().files(&turn.thread).await?;
        let files = files.into_iter().filter(|file| made.contains(&file.id));
        Ok((run, files.collect()))
    }

    async fn until_over(&mut self, turn: &Begun) -> Result<BTreeSet<String>, Failure> {
        let after = before(self.sessions, &turn.thread).await?;
        let events = self.sessions.events(&turn.thread, after).await?;
        let mut events = Ahead::new(events);
        let (mut began, mut cancelled) = (false, false);
        let mut made = BTreeSet::new();
        loop {
            let event = tokio::select! {
                biased;
                _ = self.signals.next() => {
                    if std::mem::replace(&mut cancelled, true) {
                        return Ok(made);
                    }
                    self.sessions.cancel(self.session).await?;
                    continue;
                }
                event = events.next() => event?,
            };
            let Some(event) = event else {
                return Ok(made);
            };
            began |= matches!(&event, Event::TurnStarted { turn_id } if *turn_id == turn.id);
            if !began {
                continue;
            }
            if let Event::File { artifact, .. } = &event {
                made.insert(artifact.id.clone());
            }
            let asked = self.transcript.show(&event, self.attended);
            if let Some(asked) = asked.filter(|_| !cancelled) {
                cancelled |= self.decide(&asked, &mut events).await?;
            }
            if let Event::Question(question) = &event
                && self.attended
                && !cancelled
            {
                cancelled |= self.answer(question, &mut events).await?;
            }
            if matches!(&event, Event::Done { turn_id, .. } if *turn_id == turn.id) {
                return Ok(made);
            }
        }
    }

    /// Lets the person answer a question of a plugin, until the answer fits the form; whether they
    /// ended the turn instead.
    async fn answer(
        &mut self,
        question: &QuestionAsked,
        events: &mut Ahead,
    ) -> Result<bool, Failure> {
        loop {
            let asked = Elicit {
                message: question.message.clone(),
                schema: question.schema.clone(),
                url: question.url.clone(),
                ..Elicit::default()
            };
            let answer = tokio::select! {
                biased;
                _ = self.signals.next() => {
                    self.sessions.cancel(self.session).await?;
                    return Ok(true);
                }
                over = events.until_over(&question.id) => {
                    over?;
                    output::aside(SETTLED);
                    return Ok(false);
                }
                answer = Terminal.elicit(question.plugin.clone(), asked) => answer,
            };
            let answered = self
                .sessions
                .answer(self.session, &question.id, &answer)
                .await?;
            match answered {
                Ok(()) => return Ok(false),
                Err(why) => output::aside(output::clean(&why)),
            }
        }
    }

    /// Lets the person decide about a call; whether they ended the turn instead.
    async fn decide(&mut self, asked: &Asked, events: &mut Ahead) -> Result<bool, Failure> {
        let decided = tokio::select! {
            biased;
            _ = self.signals.next() => {
                self.sessions.cancel(self.session).await?;
                return Ok(true);
            }
            over = events.until_over(&asked.call_id) => {
                over?;
                output::aside(SETTLED);
                return Ok(false);
            }
            decided = ask(asked) => decided,
        };
        let scope = if decided.always {
            Scope::Tool
        } else {
            Scope::Once
        };
        let (call, decision) = (&asked.call_id, decided.decision);
        self.sessions
            .decide(self.session, call, decision, scope)
            .await?;
        Ok(false)
    }
}

/// What a person reads below a prompt that is taken away: somebody else answered, or the turn ended.
const SETTLED: &str = "\n  No answer is needed any more.";

/// The most events that are kept while a person is asked.
const MOST_AHEAD: usize = 4096;

/// A turn's events, some of which may be looked at before they are shown.
struct Ahead {
    events: Events,
    seen: VecDeque<Event>,
}

impl Ahead {
    fn new(events: Events) -> Self {
        Self {
            events,
            seen: VecDeque::new(),
        }
    }

    /// The next event; nothing when none comes any more.
    async fn next(&mut self) -> Result<Option<Event>, Failure> {
        if let Some(event) = self.seen.pop_front() {
            return Ok(Some(event));
        }
        Ok(self.events.next().await?.map(|stamped| stamped.event))
    }

    /// Waits until a call or a question, by its id, waits for nobody any more. What comes until
    /// then is shown later; behind more than it keeps it is not found.
    async fn until_over(&mut self, id: &str) -> Result<(), Failure> {
        let mut looked_at = 0;
        loop {
            while let Some(event) = self.seen.get(looked_at) {
                if settles(event, id) {
                    return Ok(());
                }
                looked_at += 1;
            }
            if self.seen.len() >= MOST_AHEAD {
                return std::future::pending().await;
            }
            match self.events.next().await? {
                Some(stamped) => self.seen.push_back(stamped.event),
                None => return Ok(()),
            }
        }
    }
}

/// Whether what waited for a person does so no longer, after this.
fn settles(event: &Event, id: &str) -> bool {
    match event {
        Event::QuestionOver { id: over, .. } => over == id,
        Event::CallStarted { call_id, .. } => call_id == id,
        Event::FunctionCallOutput(output) => output.call_id == id,
        Event::Done { .. } => true,
        _ => false,
    }
}

/// A place before whatever a turn shows that begins now.
async fn before(sessions: &Sessions, thread: &ThreadId) -> Result<Option<EventId>, Failure> {
    let epoch = sessions.manager().store().thread(thread).await?.epoch;
    Ok(epoch.checked_sub(1).map(|epoch| EventId {
        epoch,
        seq: u64::MAX,
    }))
}
