//! What was seen of a thread before a kill: everything in it was acknowledged.

use std::collections::BTreeMap;
use std::fmt;

use conjure_core::chat::{Event, EventId};
use conjure_host::store::ThreadId;
use serde_json::Value;

use crate::chain::Chain;

/// Where a session was when its host was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The host had not said that it was ready.
    Starting,
    /// A turn after the last kill was to show that the thread goes on.
    Recovering,
    /// A turn was asked for, and nothing of it seen.
    BeforeRequest,
    /// A request had left, and nothing had come.
    Waiting,
    /// A reply came.
    Streaming,
    /// Calls ran.
    Calls,
    /// Results had come, and the next request not left.
    AfterResults,
    /// The last reply had come, and the turn was not seen to be over.
    BeforeTurnEnd,
    /// The session's turns were over.
    Idle,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Recovering => "going on after a kill",
            Self::BeforeRequest => "before the request",
            Self::Waiting => "waiting for a reply",
            Self::Streaming => "streaming",
            Self::Calls => "calls running",
            Self::AfterResults => "between reply and request",
            Self::BeforeTurnEnd => "at the end of a turn",
            Self::Idle => "idle",
        })
    }
}

/// How many sessions were in which phase when their host was killed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Phases(BTreeMap<Phase, u64>);

impl Phases {
    pub(crate) fn count(&mut self, phase: Phase) {
        *self.0.entry(phase).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (phase, count) in &other.0 {
            *self.0.entry(*phase).or_default() += count;
        }
    }

    /// How many there were of one.
    #[must_use]
    pub fn of(&self, phase: Phase) -> u64 {
        self.0.get(&phase).copied().unwrap_or_default()
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (phase, count)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {phase}")?;
        }
        Ok(())
    }
}

/// A turn as its client knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    pub(crate) is_accepted: bool,
    /// End of the turn: the state and the error.
    pub(crate) end: Option<(String, Option<String>)>,
    /// Whether the turn's host was killed before its end.
    is_cut: bool,
}

impl Turn {
    /// Whether the turn is over or cut off, so that nothing more is to be seen of it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_cut || self.end.is_some()
    }
}

/// A session, its thread, and what was seen of both.
#[derive(Debug)]
pub(crate) struct ObservedThread {
    pub(crate) session: String,
    pub(crate) thread: ThreadId,
    pub(crate) events: Vec<(EventId, Value)>,
    pub(crate) chain: Chain,
    pub(crate) turns: BTreeMap<String, Turn>,
    /// Nothing before the host that runs was asked for a turn.
    phase: Option<Phase>,
    /// Calls that are seen to run.
    running: usize,
}

impl ObservedThread {
    pub(crate) fn new(session: String, thread: ThreadId) -> Self {
        Self {
            session,
            thread,
            events: Vec::new(),
            chain: Chain::default(),
            turns: BTreeMap::new(),
            phase: None,
            running: 0,
        }
    }

    /// The newest event that was seen.
    pub(crate) fn last_event(&self) -> Option<EventId> {
        self.events.last().map(|(id, _)| *id)
    }

    /// A turn is asked for.
    pub(crate) fn ask(&mut self, turn: &str) {
        self.turns.insert(turn.to_owned(), Turn::default());
        if self.phase.is_none_or(|phase| phase == Phase::Idle) {
            self.phase = Some(Phase::BeforeRequest);
        }
    }

    /// The host is gone; the turns that were seen to begin end with it.
    pub(crate) fn killed(&mut self) {
        self.phase = None;
        self.running = 0;
        for turn in self.turns.values_mut() {
            turn.is_cut |= turn.end.is_none();
        }
    }

    /// Phase of the session; `None` where it has nothing to do.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Takes an event in that a follower got.
    pub(crate) fn observe(&mut self, id: EventId, event: Value) {
        self.chain.add(id, &event);
        if let Ok(event) = serde_json::from_value::<Event>(event.clone()) {
            self.step(&event);
        }
        self.events.push((id, event));
    }

    fn step(&mut self, event: &Event) {
        self.phase = Some(match event {
            Event::TurnStarted { .. } => Phase::BeforeRequest,
            Event::Round { .. } => Phase::Waiting,
            Event::Content { .. } | Event::Thinking { .. } => Phase::Streaming,
            Event::FunctionCall { .. } => Phase::Calls,
            Event::CallStarted { .. } => {
                self.running += 1;
                Phase::Calls
            }
            Event::FunctionCallOutput(_) => {
                self.running = self.running.saturating_sub(1);
                if self.running == 0 {
                    Phase::AfterResults
                } else {
                    Phase::Calls
                }
            }
            Event::Usage(_) | Event::Cost { .. } if self.phase == Some(Phase::Streaming) => {
                Phase::BeforeTurnEnd
            }
            Event::Done { .. } => {
                self.running = 0;
                Phase::Idle
            }
            _ => return,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_say_where_a_turn_is() {
        let mut watched = ObservedThread::new("s".to_owned(), ThreadId::fresh());
        watched.ask("t");
        assert_eq!(watched.phase(), Some(Phase::BeforeRequest));
        let events = [
            (
                json!({ "type": "round", "round": 1, "provider": "p", "model": "m", "table": 1 }),
                Phase::Waiting,
            ),
            (
                json!({ "type": "content", "delta": "Hi" }),
                Phase::Streaming,
            ),
            (
                json!({ "type": "call_started", "call_id": "1", "backend": "b" }),
                Phase::Calls,
            ),
            (
                json!({ "type": "done", "turn_id": "t", "outcome": "completed", "text": "Hi" }),
                Phase::Idle,
            ),
        ];
        for (seq, (event, phase)) in events.into_iter().enumerate() {
            let seq = seq as u64 + 1;
            watched.observe(EventId { epoch: 1, seq }, event);
            assert_eq!(watched.phase(), Some(phase));
        }
        assert_eq!(watched.chain.len(), 4);
        assert_eq!(watched.last_event(), Some(EventId { epoch: 1, seq: 4 }));
    }
}
