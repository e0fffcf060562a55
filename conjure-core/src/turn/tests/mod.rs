//! Tests of the machine: inputs in, actions out, and what the log says then.

mod calls;
mod cancel;
mod change;
mod limits;
pub(crate) mod random;
mod replies;

use serde_json::{Map, Value, json};

use super::*;
use crate::chat::{
    Content, Event, FunctionCall, FunctionCallOutput, Message, Meta, Part, Response, Role, Stop,
    StopReason, Usage,
};
use crate::context::CallRefusal;
use crate::log::{CallEnd, Entry, EntryBody, NotRun, TableChange, TurnOutcome, messages};
use crate::repair::tests::checker;
use crate::repair::{RepairTarget, repair};
use crate::request::conversation;

/// A machine, the log that it writes and the events that it tells.
pub(crate) struct Bench {
    machine: Machine,
    pub(crate) log: Vec<Entry>,
    told: Vec<Event>,
    turn: u64,
}

impl Bench {
    fn new(settings: TurnSettings) -> Self {
        Self {
            machine: Machine::new(settings, 1, &[]),
            log: Vec::new(),
            told: Vec::new(),
            turn: 0,
        }
    }

    /// One with defaults and a turn that waits for its first reply.
    fn asked() -> Self {
        Self::asked_with(settings())
    }

    fn asked_with(settings: TurnSettings) -> Self {
        let mut bench = Self::new(settings);
        assert_eq!(
            bench.user("q"),
            [HostAction::Request {
                request: 1,
                round: 1
            }]
        );
        bench
    }

    /// Takes an input; gives back what is left to do for a host that writes and tells.
    fn input(&mut self, input: TurnInput) -> Vec<HostAction> {
        let mut left = Vec::new();
        for action in self.machine.handle(input, &judge) {
            match action {
                HostAction::Write(body) => {
                    if matches!(body, EntryBody::TurnStarted { .. }) {
                        self.turn += 1;
                    }
                    self.log.push(Entry {
                        seq: self.log.len() as u64 + 1,
                        turn: self.turn,
                        at_ms: 0,
                        body,
                    });
                }
                HostAction::Publish(event) => self.told.push(event),
                other => left.push(other),
            }
        }
        left
    }

    fn user(&mut self, text: &str) -> Vec<HostAction> {
        self.input(TurnInput::User {
            turn_id: format!("turn-{text}"),
            message: Message::user(text),
        })
    }

    fn reply(&mut self, request: u64, parts: Vec<Part>, stop: &str) -> Vec<HostAction> {
        self.input(TurnInput::ModelDone {
            request,
            response: response(parts, stop),
            meta: meta(),
        })
    }

    fn fail(&mut self, request: u64, partial: Option<Vec<Part>>) -> Vec<HostAction> {
        self.input(TurnInput::ModelFailed {
            request,
            failure: ModelFailure {
                error: "The line is dead.".to_owned(),
                kind: "network".to_owned(),
            },
            partial: partial.map(|parts| {
                let partial = Response {
                    complete: false,
                    stop: None,
                    ..response(parts, "")
                };
                (partial, meta())
            }),
        })
    }

    fn done(&mut self, id: &str) -> Vec<HostAction> {
        self.ended(id, "ok", CallEnd::Done)
    }

    fn ended(&mut self, id: &str, text: &str, end: CallEnd) -> Vec<HostAction> {
        self.input(TurnInput::CallDone {
            output: FunctionCallOutput::text(id, text, end != CallEnd::Done),
            end,
            duration_ms: 5,
            meta: None,
        })
    }

    fn observed(&mut self) -> Vec<HostAction> {
        self.input(TurnInput::Observed)
    }

    fn decide(&mut self, id: &str, decision: ApprovalDecision) -> Vec<HostAction> {
        self.input(TurnInput::Decided {
            call_id: id.to_owned(),
            decision,
        })
    }

    fn cancel(&mut self) -> Vec<HostAction> {
        self.input(TurnInput::Cancel { drop_queued: false })
    }

    /// How each call ended, in the log's order: id, end, text.
    fn ends(&self) -> Vec<(&str, CallEnd, String)> {
        self.log
            .iter()
            .filter_map(|entry| match &entry.body {
                EntryBody::CallEnded { output, end, .. } => {
                    Some((output.call_id.as_str(), *end, output.joined_text()))
                }
                _ => None,
            })
            .collect()
    }

    fn outcomes(&self) -> Vec<&TurnOutcome> {
        self.log
            .iter()
            .filter_map(|entry| match &entry.body {
                EntryBody::TurnEnded { outcome, .. } => Some(outcome),
                _ => None,
            })
            .collect()
    }

    /// The conversation as it would be sent, checked.
    fn sendable(&self) -> Vec<Message> {
        sendable(&self.log)
    }

    fn errors(&self) -> Vec<&str> {
        self.told
            .iter()
            .filter_map(|event| match event {
                Event::Error(error) => Some(error.kind.as_str()),
                _ => None,
            })
            .collect()
    }

    fn done_event(&self) -> &Event {
        let is_done = |event: &&Event| matches!(event, Event::Done { .. });
        self.told.iter().rfind(is_done).unwrap()
    }
}

/// The messages of a log after the repair, which had to invent nothing; neither of all of it, nor
/// of what a compaction leaves, where it had to drop no result either.
pub(crate) fn sendable(log: &[Entry]) -> Vec<Message> {
    let view = conversation(log);
    let sent = repaired(view.clone());
    // What was begun again is not sent, and neither are the results of its calls.
    let gone: Vec<String> = messages(log)
        .iter()
        .filter(|message| message.meta.as_ref().is_some_and(|meta| meta.superseded))
        .flat_map(Message::calls)
        .map(|call| call.call_id.clone())
        .collect();
    let results = |messages: &[Message]| -> Vec<String> {
        let parts = messages.iter().flat_map(|message| &message.content);
        let ids = parts.filter_map(|part| match &part.content {
            Content::FunctionCallOutput(output) => Some(output.call_id.clone()),
            _ => None,
        });
        ids.filter(|id| !gone.contains(id)).collect()
    };
    assert_eq!(results(&view), results(&sent), "a result without its call");
    repaired(messages(log))
}

fn repaired(messages: Vec<Message>) -> Vec<Message> {
    let target = RepairTarget::new("anthropic", "claude-test");
    let sendable = repair(messages, &target);
    checker::check(&sendable, &target);
    let text = format!("{:?}", sendable.messages());
    assert!(
        !text.contains(crate::context::notes::NO_RESULT),
        "a call has no result in the log: {text}"
    );
    sendable.messages().to_vec()
}

fn settings() -> TurnSettings {
    TurnSettings::new("anthropic", "claude-test")
}

fn meta() -> Meta {
    Meta {
        provider: "anthropic".to_owned(),
        model: "claude-test".to_owned(),
        ..Meta::default()
    }
}

fn response(parts: Vec<Part>, stop: &str) -> Response {
    let reason = match stop {
        "tool_use" => StopReason::ToolUse,
        "pause_turn" => StopReason::Pause,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        _ => StopReason::EndTurn,
    };
    Response {
        id: None,
        model: "claude-test".to_owned(),
        parts,
        stop: Some(Stop {
            reason,
            raw: stop.to_owned(),
            sequence: None,
        }),
        usage: Usage {
            input: 100,
            output: 10,
            ..Usage::default()
        },
        fields: Map::new(),
        complete: true,
    }
}

fn call(id: &str, name: &str) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: name.to_owned(),
        arguments: json!({}),
        arguments_text: None,
    })
    .into()
}

fn server_use(id: &str) -> Part {
    Content::ServerItem {
        provider: "anthropic".to_owned(),
        item: json!({"type": "server_tool_use", "id": id}),
    }
    .into()
}

/// What a name means here: `a…` and `b…` are tools of two lanes, `ask_a` waits for a person in
/// lane `a`, `free` is stateless, anything else is not there.
fn judge(call: &FunctionCall) -> CallVerdict {
    let lane = call.name.strip_prefix("ask_").unwrap_or(&call.name);
    let lane = lane.get(..1).filter(|lane| ["a", "b"].contains(lane));
    let backend = "backend".to_owned();
    match (call.name.as_str(), lane) {
        ("free", _) => CallVerdict::Run {
            backend,
            plugin: None,
            lane: None,
        },
        (name, Some(lane)) if name.starts_with("ask_") => CallVerdict::Ask {
            backend,
            plugin: None,
            lane: Some(lane.to_owned()),
            reason: "ask by default".to_owned(),
        },
        (_, Some(lane)) => CallVerdict::Run {
            backend,
            plugin: Some("skill 1.0.0".to_owned()),
            lane: Some(lane.to_owned()),
        },
        (name, None) => CallVerdict::Refuse(CallRefusal {
            text: format!("There is no tool `{name}`."),
            reason: Some(NotRun::NoSuchTool),
        }),
    }
}

fn run(id: &str, name: &str) -> HostAction {
    match call(id, name).content {
        Content::FunctionCall(call) => HostAction::RunCall { call, route: None },
        _ => panic!("no call"),
    }
}

fn request(request: u64, round: u32) -> HostAction {
    HostAction::Request { request, round }
}

fn over(text: &str) -> HostAction {
    HostAction::TurnOver {
        turn_id: format!("turn-{text}"),
    }
}

fn changed(version: u64) -> TableChange {
    TableChange {
        version,
        ..TableChange::default()
    }
}

fn note(text: &str) -> Box<EntryBody> {
    Box::new(EntryBody::SettingsChanged {
        summary: text.to_owned(),
        settings: Value::Null,
    })
}
