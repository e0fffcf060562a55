//! A turn of a saved session while it runs, wherever that is: shown, and where a person is at the
//! terminal, asked what it waits for.

use std::collections::{BTreeSet, VecDeque};

use conjure_core::chat::{CallAnnounced, Event, EventId, QuestionAsked};
use conjure_runtime::artifacts::Artifact;
use conjure_runtime::backend::Asker as _;
use conjure_runtime::manager::TurnTerms;
use conjure_skill_sdk::protocol::Elicit;
use conjure_store::{Run, ThreadId};

use super::announced_server::EventFeed;
use super::attachments::AttachedMessage;
use super::error::CliError;
use super::open_prompts::{OpenPrompts, settles};
use super::output::{self, BOLD, DIM, RESET, YELLOW, clean, print_note};
use super::person::{Terminal, ask};
use super::session_prompts::{how_to_answer, how_to_decide, remaining};
use super::sessions::{AnswerResult, SavedSessions, StartedTurn};
use super::signals::{Signal, Signals};
use super::transcript::{CallForApproval, Transcript};
use super::{chat_rules, drawn_turn, overwritten};

/// Shows a turn of a saved session while it runs.
pub(crate) struct SessionFollower<'a> {
    pub(crate) sessions: &'a SavedSessions,
    /// Id of the session.
    pub(crate) session: &'a str,
    /// Name that the person calls it by.
    pub(crate) name: &'a str,
    pub(crate) transcript: &'a mut Transcript,
    pub(crate) signals: &'a mut Signals,
    pub(crate) attended: bool,
    /// A signal ends the look and not the turn.
    pub(crate) detaches_on_signal: bool,
}

/// How following a turn ended.
pub(crate) enum FollowEnd {
    /// The turn is over, or is being cancelled; the files that it made.
    Over(BTreeSet<String>),
    /// A signal ended the look.
    Detached(Signal),
}

/// The result of asking the person.
enum PromptResult {
    Yes,
    /// A signal came first.
    Signal(Signal),
}

impl SessionFollower<'_> {
    /// Says something, shows the turn until it is over, and gives the files that it made. A signal
    /// ends the turn; what came so far is kept. A second one does not wait for that.
    pub(crate) async fn say(
        &mut self,
        said: &AttachedMessage,
        terms: &TurnTerms,
    ) -> Result<(Run, Vec<Artifact>), CliError> {
        self.say_and_follow(said, terms, false).await
    }

    /// Like [`Self::say`]; with `holds_answer` the answer is not shown as it comes, since it may have to
    /// be given again.
    pub(crate) async fn say_and_follow(
        &mut self,
        said: &AttachedMessage,
        terms: &TurnTerms,
        holds_answer: bool,
    ) -> Result<(Run, Vec<Artifact>), CliError> {
        let turn = self.sessions.say(self.session, said, terms).await?;
        let made = match self.follow(&turn, holds_answer).await? {
            FollowEnd::Over(made) => made,
            FollowEnd::Detached(_) => BTreeSet::new(),
        };
        // Where nobody notes its end, a signal ends the waiting.
        let ended = self.sessions.wait(&turn.id);
        let run = self.signals.unless(ended).await?;
        self.transcript.end();
        let files = self.sessions.manager().host().files(&turn.thread).await?;
        let files = files.into_iter().filter(|file| made.contains(&file.id));
        Ok((run, files.collect()))
    }

    /// Shows a turn until it is over.
    pub(crate) async fn follow_until_over(
        &mut self,
        turn: &StartedTurn,
    ) -> Result<FollowEnd, CliError> {
        self.follow(turn, false).await
    }

    async fn follow(
        &mut self,
        turn: &StartedTurn,
        holds_answer: bool,
    ) -> Result<FollowEnd, CliError> {
        let after = position_before_new_turn(self.sessions, &turn.thread).await?;
        let events = self
            .sessions
            .events(&turn.thread, after, self.attended)
            .await?;
        let mut events = LookaheadEvents::new(events);
        let (mut began, mut cancelled, mut is_over) = (false, false, false);
        let over = self.sessions.wait(&turn.id);
        tokio::pin!(over);
        let mut made = BTreeSet::new();
        let mut open = OpenPrompts::default();
        loop {
            let event = tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if self.stops(turn, &mut cancelled).await? {
                        return Ok(self.end_on_signal(signal, made));
                    }
                    continue;
                }
                event = events.next() => event?,
                // A turn that was dropped while it waited for others tells nothing of itself.
                over = &mut over, if !began && !is_over => {
                    is_over = true;
                    if over?.started_at_ms.is_none() {
                        return Ok(FollowEnd::Over(made));
                    }
                    continue;
                }
                () = tokio::time::sleep_until(open.due()), if !open.is_empty() && !cancelled => {
                    let waiting = std::mem::take(&mut open);
                    let asked = Box::pin(self.ask_before(waiting, &mut events));
                    if let PromptResult::Signal(signal) = asked.await?
                        && self.stops(turn, &mut cancelled).await?
                    {
                        return Ok(self.end_on_signal(signal, made));
                    }
                    continue;
                }
            };
            let Some(event) = event else {
                return Ok(FollowEnd::Over(made));
            };
            began |= matches!(&event, Event::TurnStarted { turn_id } if *turn_id == turn.id);
            if !began {
                // What the turn before it waits for holds it up too.
                if self.attended && !cancelled {
                    open.record(event);
                }
                continue;
            }
            open = OpenPrompts::default();
            if let Event::File { artifact, .. } = &event {
                made.insert(artifact.id.clone());
            }
            if holds_answer && matches!(event, Event::Content { .. }) {
                continue;
            }
            let asked = self.transcript.show(&event, self.attended);
            if !cancelled
                && let PromptResult::Signal(signal) = self.ask(asked, &event, &mut events).await?
                && self.stops(turn, &mut cancelled).await?
            {
                return Ok(self.end_on_signal(signal, made));
            }
            if matches!(&event, Event::Done { turn_id, .. } if *turn_id == turn.id) {
                return Ok(FollowEnd::Over(made));
            }
        }
    }

    /// Ends the look, or the turn; whether nothing more is shown.
    async fn stops(&self, turn: &StartedTurn, cancelled: &mut bool) -> Result<bool, CliError> {
        if self.detaches_on_signal || std::mem::replace(cancelled, true) {
            return Ok(true);
        }
        self.sessions.cancel_turn(self.session, &turn.id).await?;
        Ok(false)
    }

    /// Result of following where a signal ends it.
    fn end_on_signal(&self, signal: Signal, made: BTreeSet<String>) -> FollowEnd {
        if self.detaches_on_signal {
            FollowEnd::Detached(signal)
        } else {
            FollowEnd::Over(made)
        }
    }

    /// Asks what turns before this one wait for, as far as they still do.
    async fn ask_before(
        &mut self,
        open: OpenPrompts,
        events: &mut LookaheadEvents,
    ) -> Result<PromptResult, CliError> {
        for event in open.still_waiting(self.sessions, self.session).await {
            print_note(format_args!(
                "{DIM}In a turn that somebody else began:{RESET}"
            ));
            let asked = self.transcript.show(&event, self.attended);
            let answered = self.ask(asked, &event, events).await?;
            if matches!(answered, PromptResult::Signal(_)) {
                return Ok(answered);
            }
        }
        Ok(PromptResult::Yes)
    }

    /// Asks the person what an event asks, or says how somebody can answer it.
    async fn ask(
        &mut self,
        asked: Option<CallForApproval>,
        event: &Event,
        events: &mut LookaheadEvents,
    ) -> Result<PromptResult, CliError> {
        match (asked, event) {
            (Some(mut asked), _) => {
                let manager = self.sessions.manager();
                asked.overwritten =
                    overwritten::text_in_saved_session(manager, self.session, &asked.call).await;
                if let Some(text) = &asked.overwritten {
                    drawn_turn::set_overwritten(&asked.call.id, text);
                }
                self.decide(&asked, events).await
            }
            (None, Event::Approval { call, .. }) => {
                self.print_decide_hint(call).await?;
                Ok(PromptResult::Yes)
            }
            (None, Event::Question(question)) if self.attended => {
                self.answer(question, events).await
            }
            (None, Event::Question(question)) => {
                self.print_answer_hint(question).await?;
                Ok(PromptResult::Yes)
            }
            (None, _) => Ok(PromptResult::Yes),
        }
    }

    /// Says of a call that waits how long it does, and how to decide about it.
    async fn print_decide_hint(&self, call: &CallAnnounced) -> Result<(), CliError> {
        let waiting = self.sessions.approvals(self.session).await?;
        let Some(waiting) = waiting.iter().find(|waiting| waiting.call.id == call.id) else {
            return Ok(());
        };
        print_note(format_args!(
            "{YELLOW}?{RESET} {BOLD}{}{RESET} waits for a person{}{}: {}",
            clean(&call.name),
            waiting
                .denied_in_ms
                .map_or_else(String::new, |left| format!(
                    ", and is denied {}",
                    remaining(left)
                )),
            self.early_end_hint(),
            how_to_decide(self.name, &call.id),
        ));
        Ok(())
    }

    /// What ends the wait before its time, in a turn that was begun from here.
    fn early_end_hint(&self) -> &'static str {
        if self.detaches_on_signal {
            ""
        } else {
            ", or half a minute after nobody follows the session any more"
        }
    }

    /// Says of a question how long it waits, and how to answer it.
    async fn print_answer_hint(&self, question: &QuestionAsked) -> Result<(), CliError> {
        let waiting = self.sessions.questions(self.session).await?;
        let Some(waiting) = waiting.iter().find(|one| one.question.id == question.id) else {
            return Ok(());
        };
        print_note(format_args!(
            "{YELLOW}?{RESET} {BOLD}{}{RESET} asks: {}\n  It waits for an answer, and is cancelled \
             {}{}: {}",
            clean(&question.plugin),
            clean(&question.message),
            remaining(waiting.cancelled_in_ms),
            self.early_end_hint(),
            how_to_answer(self.name, &question.id),
        ));
        Ok(())
    }

    /// Lets the person answer a question of a plugin, until the answer fits the form.
    async fn answer(
        &mut self,
        question: &QuestionAsked,
        events: &mut LookaheadEvents,
    ) -> Result<PromptResult, CliError> {
        if self.detaches_on_signal {
            let waiting = self.sessions.questions(self.session).await?;
            if !waiting.iter().any(|one| one.question.id == question.id) {
                return Ok(PromptResult::Yes);
            }
        }
        loop {
            let asked = Elicit {
                message: question.message.clone(),
                schema: question.schema.clone(),
                url: question.url.clone(),
                ..Elicit::default()
            };
            let answer = tokio::select! {
                biased;
                signal = self.signals.next() => return Ok(PromptResult::Signal(signal)),
                over = events.buffer_until_settled(&question.id) => {
                    over?;
                    output::print_note(SETTLED);
                    return Ok(PromptResult::Yes);
                }
                answer = Terminal.elicit(question.plugin.clone(), asked) => answer,
            };
            let answered = self
                .sessions
                .answer(self.session, &question.id, &answer)
                .await;
            match answered {
                Ok(AnswerResult::Accepted | AnswerResult::Late) => return Ok(PromptResult::Yes),
                Ok(AnswerResult::Invalid(why)) => {
                    output::print_note(output::clean(&why.to_string()));
                }
                Err(error) => {
                    report_rejected(&error, &how_to_answer(self.name, &question.id));
                    return Ok(PromptResult::Yes);
                }
            }
        }
    }

    /// Lets the person decide about a call.
    async fn decide(
        &mut self,
        asked: &CallForApproval,
        events: &mut LookaheadEvents,
    ) -> Result<PromptResult, CliError> {
        if self.detaches_on_signal {
            // What was settled before the look began is told again by the events.
            let waiting = self.sessions.approvals(self.session).await?;
            if !waiting.iter().any(|one| one.call.id == asked.call.id) {
                return Ok(PromptResult::Yes);
            }
        }
        let decided = tokio::select! {
            biased;
            signal = self.signals.next() => return Ok(PromptResult::Signal(signal)),
            over = events.buffer_until_settled(&asked.call.id) => {
                over?;
                output::print_note(SETTLED);
                return Ok(PromptResult::Yes);
            }
            decided = ask(asked) => decided,
        };
        let session = (self.session, self.name);
        let call = &asked.call.id;
        match chat_rules::decide_saved(self.sessions, session, call, decided).await {
            Ok(true) => {}
            Ok(false) => output::print_note(SETTLED),
            Err(error) => report_rejected(&error, &how_to_decide(self.name, call)),
        }
        Ok(PromptResult::Yes)
    }
}

/// What a person reads below a prompt that is taken away: somebody else answered, or the turn ended.
const SETTLED: &str = "\n  No answer is needed any more.";

/// Says that what a person decided or answered was not taken, and how to say it again. The turn is
/// shown all the same.
fn report_rejected(error: &CliError, again: &str) {
    print_note(format_args!(
        "{YELLOW}!{RESET} {}\n  To say it again: {again}",
        clean(&error.to_string())
    ));
}

/// The most events that are kept while a person is asked.
const MAX_LOOKAHEAD: usize = 4096;

/// A turn's events, some of which may be looked at before they are shown.
struct LookaheadEvents {
    events: EventFeed,
    buffered: VecDeque<Event>,
}

impl LookaheadEvents {
    fn new(events: EventFeed) -> Self {
        Self {
            events,
            buffered: VecDeque::new(),
        }
    }

    /// The next event; nothing when none comes any more.
    async fn next(&mut self) -> Result<Option<Event>, CliError> {
        if let Some(event) = self.buffered.pop_front() {
            return Ok(Some(event));
        }
        Ok(self.events.next().await?.map(|stamped| stamped.event))
    }

    /// Waits until a call or a question, by its id, waits for nobody any more. What comes until
    /// then is shown later; behind more than it keeps it is not found.
    async fn buffer_until_settled(&mut self, id: &str) -> Result<(), CliError> {
        let mut looked_at = 0;
        loop {
            while let Some(event) = self.buffered.get(looked_at) {
                if settles(event, id) {
                    return Ok(());
                }
                looked_at += 1;
            }
            if self.buffered.len() >= MAX_LOOKAHEAD {
                return std::future::pending().await;
            }
            match self.events.next().await? {
                Some(stamped) => self.buffered.push_back(stamped.event),
                None => return Ok(()),
            }
        }
    }
}

/// A place before whatever a turn shows that begins now.
pub(crate) async fn position_before_new_turn(
    sessions: &SavedSessions,
    thread: &ThreadId,
) -> Result<Option<EventId>, CliError> {
    let epoch = sessions.manager().store().thread(thread).await?.epoch;
    Ok(epoch.checked_sub(1).map(|epoch| EventId {
        epoch,
        seq: u64::MAX,
    }))
}
