//! Random inputs: whatever happens in whatever order, no call is left without exactly one result.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::request::{Room, cut_point, view_tokens};

/// Something that happens; which request, call or question it is about is found when it does.
#[derive(Debug, Clone)]
enum Step {
    User,
    Reply {
        parts: Vec<Part>,
        stop: &'static str,
    },
    Fail {
        partial: Option<Vec<Part>>,
        kind: &'static str,
    },
    CallDone {
        pick: usize,
        end: CallEnd,
    },
    Stray {
        id: &'static str,
    },
    Decide {
        pick: usize,
        allow: bool,
    },
    Cancel {
        drop_queued: bool,
    },
    Settings {
        when: EffectiveFrom,
        compact: bool,
    },
    Table,
    Compacted {
        failed: bool,
    },
    Observed,
    Exhausted,
    GoOn,
}

fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    let id = prop_oneof![Just(""), Just("x"), Just("x_1"), Just("y")];
    let name = prop_oneof![
        Just("a"),
        Just("a2"),
        Just("b"),
        Just("free"),
        Just("ask_a"),
        Just("ask_b"),
        Just("a"),
        Just("b"),
        Just("gone"),
    ];
    let part = prop_oneof![
        2 => Just(Part::text("text")),
        1 => Just(Part::text(" ")),
        6 => (id, name).prop_map(|(id, name)| call(id, name)),
        1 => Just(server_use("s")),
    ];
    prop::collection::vec(part, 0..5)
}

fn any_step() -> impl Strategy<Value = Step> {
    let stop = prop_oneof![
        6 => Just("tool_use"),
        1 => Just("end_turn"),
        1 => Just("max_tokens"),
        1 => Just("pause_turn"),
    ];
    let end = prop_oneof![
        Just(CallEnd::Done),
        Just(CallEnd::Failed),
        Just(CallEnd::TimedOut)
    ];
    let when = prop_oneof![Just(EffectiveFrom::Now), Just(EffectiveFrom::NextTurn)];
    prop_oneof![
        6 => Just(Step::User),
        8 => (any_parts(), stop).prop_map(|(parts, stop)| Step::Reply { parts, stop }),
        1 => (prop::option::of(any_parts()), prop_oneof![Just("network"), Just("too_large")])
            .prop_map(|(partial, kind)| Step::Fail { partial, kind }),
        10 => (0usize..5, end).prop_map(|(pick, end)| Step::CallDone { pick, end }),
        1 => prop_oneof![Just("x"), Just("y"), Just("x_1")].prop_map(|id| Step::Stray { id }),
        4 => (0usize..5, any::<bool>()).prop_map(|(pick, allow)| Step::Decide { pick, allow }),
        1 => any::<bool>().prop_map(|drop_queued| Step::Cancel { drop_queued }),
        1 => (when, any::<bool>()).prop_map(|(when, compact)| Step::Settings { when, compact }),
        1 => Just(Step::Table),
        2 => any::<bool>().prop_map(|failed| Step::Compacted { failed }),
        4 => Just(Step::Observed),
        1 => Just(Step::Exhausted),
        1 => Just(Step::GoOn),
    ]
}

/// A host that does what the machine says, and no more.
struct Host {
    bench: Bench,
    request: Option<u64>,
    running: Vec<(String, Option<String>)>,
    asked: Vec<String>,
    compacting: bool,
    unobserved: u32,
    table: u64,
    ran: HashSet<String>,
}

impl Host {
    fn new() -> Self {
        Self {
            bench: Bench::new(TurnSettings {
                max_iterations: 4,
                max_pauses: 2,
                ..settings()
            }),
            request: None,
            running: Vec::new(),
            asked: Vec::new(),
            compacting: false,
            unobserved: 0,
            table: 1,
            ran: HashSet::new(),
        }
    }

    fn input(&mut self, input: TurnInput) {
        for action in self.bench.input(input) {
            match action {
                HostAction::Request { request, .. } => {
                    assert!(self.request.is_none() && self.running.is_empty() && !self.compacting);
                    self.request = Some(request);
                }
                HostAction::StopModel { request } => assert_eq!(self.request, Some(request)),
                HostAction::RunCall { call, .. } => {
                    assert!(self.ran.insert(call.call_id.clone()), "run twice: {call:?}");
                    let CallVerdict::Run { lane, .. } = judge(&FunctionCall {
                        name: call.name.trim_start_matches("ask_").to_owned(),
                        ..call.clone()
                    }) else {
                        panic!("{call:?} may not run");
                    };
                    let busy = self
                        .running
                        .iter()
                        .any(|(_, other)| lane.is_some() && *other == lane);
                    assert!(!busy, "two calls in one lane: {call:?}");
                    self.running.push((call.call_id, lane));
                }
                HostAction::StopCall { call_id } => {
                    assert!(self.running.iter().any(|(id, _)| *id == call_id));
                }
                HostAction::AskPerson { call, .. } => self.asked.push(call.call_id),
                HostAction::WithdrawApproval { call_id } => self.asked.retain(|id| *id != call_id),
                HostAction::Compact { .. } => {
                    assert!(self.request.is_none() && !self.compacting);
                    self.compacting = true;
                }
                HostAction::StopCompaction => self.compacting = false,
                HostAction::Dropped { .. } => {}
                HostAction::UseTable { version } => assert!(version <= self.table),
                HostAction::TurnOver { .. } => {
                    assert!(self.running.is_empty() && self.asked.is_empty());
                    sendable(&self.bench.log);
                }
                HostAction::Observe { .. } => self.unobserved += 1,
                HostAction::UseSettings(_) => {}
                HostAction::Write(_) | HostAction::Publish(_) => panic!("the bench takes these"),
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::User => self.input(TurnInput::User {
                turn_id: "t".to_owned(),
                message: Message::user("q"),
            }),
            Step::Reply { parts, stop } => {
                if let Some(request) = self.request.take() {
                    self.input(TurnInput::ModelDone {
                        request,
                        response: response(parts, stop),
                        meta: meta(),
                    });
                }
            }
            Step::Fail { partial, kind } => {
                if let Some(request) = self.request.take() {
                    self.input(TurnInput::ModelFailed {
                        request,
                        failure: ModelFailure {
                            error: "e".to_owned(),
                            kind: kind.to_owned(),
                        },
                        partial: partial.map(|parts| (response(parts, "tool_use"), meta())),
                    });
                }
            }
            Step::CallDone { pick, end } => {
                if !self.running.is_empty() {
                    let (id, _) = self.running.remove(pick % self.running.len());
                    self.call_done(&id, end);
                }
            }
            // A host that loses its way: a result for a call that does not run.
            Step::Stray { id } => {
                if !self.running.iter().any(|(running, _)| running == id) {
                    self.call_done(id, CallEnd::Done);
                }
            }
            Step::Decide { pick, allow } => {
                if !self.asked.is_empty() {
                    let call_id = self.asked.remove(pick % self.asked.len());
                    let decision = if allow {
                        ApprovalDecision::Allow
                    } else {
                        ApprovalDecision::Deny {
                            reason: String::new(),
                        }
                    };
                    self.input(TurnInput::Decided { call_id, decision });
                }
            }
            Step::Cancel { drop_queued } => self.input(TurnInput::Cancel { drop_queued }),
            Step::Settings { when, compact } => self.input(TurnInput::Settings {
                settings: Box::new(TurnSettings {
                    compaction: if compact {
                        CompactionTrigger::At(1)
                    } else {
                        CompactionTrigger::Refused
                    },
                    ..self.bench.machine.settings().clone()
                }),
                entry: note("s"),
                when,
            }),
            Step::Table => {
                self.table += 1;
                self.input(TurnInput::Table(changed(self.table)));
            }
            Step::Compacted { failed } => {
                if std::mem::take(&mut self.compacting) {
                    let room = Room {
                        window: None,
                        compact_at: Some(1),
                    };
                    let upto = cut_point(&self.bench.log, &room).filter(|_| !failed);
                    self.input(match upto {
                        None => TurnInput::CompactionFailed {
                            error: "e".to_owned(),
                        },
                        Some(upto) => TurnInput::Compacted {
                            visible_from: upto,
                            summary: "s".to_owned(),
                            meta: meta(),
                            tokens: self.tokens_folded(upto),
                        },
                    });
                }
            }
            Step::Observed => {
                if let Some(left) = self.unobserved.checked_sub(1) {
                    self.unobserved = left;
                    self.input(TurnInput::Observed);
                }
            }
            Step::GoOn => self.input(TurnInput::Continue {
                turn_id: "t".to_owned(),
            }),
            Step::Exhausted => self.input(TurnInput::Exhausted {
                limit: "wall_time_ms".to_owned(),
                value: 1,
            }),
        }
    }

    /// Tokens of what the model reads behind a compaction.
    fn tokens_folded(&self, upto: u64) -> u64 {
        let mut log = self.bench.log.clone();
        log.push(Entry {
            seq: log.len() as u64 + 1,
            turn: self.bench.turn,
            at_ms: 0,
            body: EntryBody::Compacted {
                upto,
                summary: "s".to_owned(),
                meta: None,
            },
        });
        view_tokens(&log)
    }

    fn call_done(&mut self, id: &str, end: CallEnd) {
        self.input(TurnInput::CallDone {
            output: FunctionCallOutput::text(id, "r", end != CallEnd::Done),
            end,
            duration_ms: 1,
            meta: None,
        });
    }

    /// Ends what is open, as a host does that shuts down.
    fn close(&mut self) {
        self.step(Step::Cancel { drop_queued: true });
        self.step(Step::Fail {
            partial: None,
            kind: "network",
        });
        while !self.running.is_empty() {
            self.step(Step::CallDone {
                pick: 0,
                end: CallEnd::Cancelled,
            });
        }
        assert!(!self.bench.machine.is_busy(), "still busy");
    }
}

/// The log of a thread in which anything happened.
pub(crate) fn any_log() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(any_step(), 0..40).prop_map(|steps| {
        let mut host = Host::new();
        host.step(Step::User);
        for step in steps {
            host.step(step);
        }
        host.bench.log
    })
}

/// Every call of a closed log has exactly one result, and only calls have.
pub(crate) fn check_results(log: &[Entry]) {
    let mut results: HashMap<&str, usize> = HashMap::new();
    for entry in log {
        if let EntryBody::CallEnded { output, .. } = &entry.body {
            *results.entry(&output.call_id).or_default() += 1;
        }
    }
    let calls: Vec<&str> = crate::log::call_ids(log).collect();
    let unique: HashSet<&str> = calls.iter().copied().collect();
    assert_eq!(calls.len(), unique.len(), "an id twice: {calls:?}");
    for call in calls {
        assert_eq!(results.remove(call), Some(1), "results of {call}");
    }
    assert!(results.is_empty(), "results without calls: {results:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_call_has_exactly_one_result_and_every_turn_ends_sendable(
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        let mut host = Host::new();
        host.step(Step::User);
        for step in steps {
            host.step(step);
        }
        host.close();
        let log = &host.bench.log;
        check_results(log);
        sendable(log);
        let mut open = false;
        for entry in log {
            match entry.body {
                EntryBody::TurnStarted { .. } => {
                    prop_assert!(!std::mem::replace(&mut open, true), "a turn inside a turn");
                }
                EntryBody::TurnEnded { .. } => {
                    prop_assert!(std::mem::replace(&mut open, false), "an end without a turn");
                }
                EntryBody::CallStarted { .. } | EntryBody::CallEnded { .. } => prop_assert!(open),
                _ => {}
            }
        }
        prop_assert!(!open);
    }
}
