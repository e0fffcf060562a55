//! Clients that are there without a stream of events: whoever looks at a turn, or lists what waits in
//! its session while it runs. They count like those who follow it, from their request until a moment
//! behind it; who has left counts for half a minute more.
//!
//! Only turns whose client did not say whether it can be asked have such clients, at the server where
//! they were begun, until they are over or that server is restarted. A client that said that it cannot
//! be asked looks too, and does not count.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::state::App;
use conjure_runtime::manager::{Attendant, Turn};
use conjure_store::{Run, RunState, StoreError, ThreadId};

/// For how long a client is there behind its request.
const PRESENCE_GRACE: Duration = Duration::from_secs(5);
/// Turns that are remembered, the newest.
const MAX_TURNS: usize = 1024;

/// Turns that were begun here by clients that did not say whether they can be asked.
#[derive(Debug, Default)]
pub(super) struct UndeclaredTurns(Mutex<VecDeque<UndeclaredTurn>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct UndeclaredTurn {
    turn: String,
    /// The session's id.
    session: String,
    thread: ThreadId,
}

impl UndeclaredTurns {
    fn add(&self, turn: UndeclaredTurn) {
        let mut turns = self.lock();
        if turns.contains(&turn) {
            return;
        }
        turns.push_back(turn);
        if turns.len() > MAX_TURNS {
            turns.pop_front();
        }
    }

    /// The thread of a turn.
    fn of_turn(&self, turn: &str) -> Option<ThreadId> {
        let turns = self.lock();
        let found = turns.iter().rfind(|open| open.turn == turn);
        found.map(|open| open.thread.clone())
    }

    /// The turns of a session.
    fn of_session(&self, session: &str) -> Vec<UndeclaredTurn> {
        let turns = self.lock();
        let its = turns.iter().filter(|open| open.session == session);
        its.cloned().collect()
    }

    /// Forgets those of these turns that are over.
    fn forget_ended(&self, known: &[UndeclaredTurn], open_runs: &[Run]) {
        let is_over = |turn: &UndeclaredTurn| open_runs.iter().all(|run| run.id != turn.turn);
        self.lock()
            .retain(|turn| !(known.contains(turn) && is_over(turn)));
    }

    /// The thread in which one of these turns runs.
    fn running_thread(known: &[UndeclaredTurn], runs: &[Run]) -> Option<ThreadId> {
        let mut running = runs.iter().filter(|run| run.state == RunState::Running);
        let found = running.find_map(|run| known.iter().find(|open| open.turn == run.id));
        found.map(|open| open.thread.clone())
    }

    /// A turn is over.
    pub(super) fn forget(&self, turn: &str) {
        self.lock().retain(|open| open.turn != turn);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<UndeclaredTurn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client while its request is served, and for a moment behind it.
#[derive(Debug)]
pub(super) struct ClientPresence(Option<Attendant>);

impl Drop for ClientPresence {
    fn drop(&mut self) {
        if let (Some(client), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                tokio::time::sleep(PRESENCE_GRACE).await;
                drop(client);
            });
        }
    }
}

impl App {
    /// The client that began a turn in a session did not say whether it can be asked.
    pub(super) async fn note_undeclared(&self, turn: &Turn, session: &str) {
        if let Some(session) = self.session_id(session).await {
            self.undeclared_turns.add(UndeclaredTurn {
                turn: turn.id.clone(),
                session,
                thread: turn.thread.clone(),
            });
        }
    }

    /// A client looks at a turn.
    pub(super) fn presence_at_turn(&self, turn: &str) -> Option<ClientPresence> {
        self.attend(self.undeclared_turns.of_turn(turn))
    }

    /// A client looks at what waits in a session.
    pub(super) async fn presence_in_session(&self, session: &str) -> Option<ClientPresence> {
        if self.undeclared_turns.lock().is_empty() {
            return None;
        }
        let session = self.session_id(session).await?;
        // Before the runs are read: a turn that begins meanwhile is not taken for one that is over.
        let known = self.undeclared_turns.of_session(&session);
        if known.is_empty() {
            return None;
        }
        let runs = self.store.open_runs(&session).await.ok()?;
        self.undeclared_turns.forget_ended(&known, &runs);
        self.attend(UndeclaredTurns::running_thread(&known, &runs))
    }

    /// The id of a session that is named by its id or its name.
    async fn session_id(&self, session: &str) -> Option<String> {
        let found = match self.store.session(session).await {
            Err(StoreError::NotFound { .. }) => self.store.session_named(session).await,
            found => found,
        };
        found.ok().map(|session| session.id)
    }

    fn attend(&self, thread: Option<ThreadId>) -> Option<ClientPresence> {
        let client = self.manager.attend(Some(&thread?));
        Some(ClientPresence(Some(client)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: usize) -> UndeclaredTurn {
        UndeclaredTurn {
            turn: format!("turn-{number}"),
            session: format!("session-{}", number % 2),
            thread: ThreadId::parse(&format!("thread-{number}")).unwrap(),
        }
    }

    #[test]
    fn the_newest_turns_are_remembered_each_once() {
        let turns = UndeclaredTurns::default();
        for number in 0..=MAX_TURNS {
            turns.add(turn(number));
            turns.add(turn(number));
        }
        assert_eq!(turns.lock().len(), MAX_TURNS);
        assert_eq!(turns.of_turn("turn-0"), None);
        assert_eq!(turns.of_turn("turn-1"), Some(turn(1).thread));
        assert_eq!(turns.of_session("session-0").last(), Some(&turn(MAX_TURNS)));
        assert_eq!(turns.of_session("other"), []);
        turns.forget("turn-1");
        assert_eq!(turns.of_turn("turn-1"), None);
    }

    #[test]
    fn a_client_of_a_session_counts_for_the_turn_that_runs_and_for_none_that_is_over() {
        let turns = UndeclaredTurns::default();
        for number in [1, 2, 4, 6] {
            turns.add(turn(number));
        }
        let run = |number: usize, state| Run {
            state,
            ..Run::new(
                &turn(number).turn,
                Some("session-0".to_owned()),
                turn(number).thread,
            )
        };
        let known = turns.of_session("session-0");
        let runs = [run(4, RunState::Running), run(6, RunState::Queued)];
        turns.forget_ended(&known, &runs);
        let running = UndeclaredTurns::running_thread(&known, &runs);
        assert_eq!(running, Some(turn(4).thread));
        assert_eq!(turns.of_session("session-0"), [turn(4), turn(6)]);
        assert_eq!(turns.of_session("session-1"), [turn(1)]);
        // One of another client runs.
        let runs = [
            run(8, RunState::Running),
            run(4, RunState::Queued),
            run(6, RunState::Queued),
        ];
        assert_eq!(UndeclaredTurns::running_thread(&known, &runs), None);
    }
}
