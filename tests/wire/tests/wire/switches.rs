//! Random conversations over random switches among the four wires.
//!
//! Each leg's replies are written in its provider's own form and decoded, so that what they leave
//! in the conversation is what a real reply leaves. Before each request the whole conversation is
//! repaired and encoded for the provider that is next; a strict reader looks at the body.

use conjure_core::chat::{Content, FunctionCallOutput, Message, Meta, Part, Role};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_core::repair::{RepairTarget, repair};
use conjure_core::request::ModelRequest;
use conjure_core::request::{Room, conversation, cut_point, summary_request};
use conjure_core::wire::{Endpoint, Wire};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::validators::broken;

/// The providers of the legs: every wire, and the dialects that want something of their own.
const LEGS: [(Wire, &str, &str); 7] = [
    (Wire::Anthropic, "anthropic", "claude-sonnet-4-5"),
    (Wire::Anthropic, "anthropic", "claude-opus-4-7"),
    (Wire::OpenaiResponses, "openai", "gpt-5.2"),
    (Wire::OpenaiChat, "deepseek", "deepseek-reasoner"),
    (Wire::OpenaiChat, "mistral", "magistral-medium-latest"),
    (Wire::Gemini, "gemini", "gemini-3-pro-preview"),
    (Wire::Gemini, "gemini", "gemini-2.5-flash"),
];

/// One thing that a reply holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bit {
    Text,
    Blank,
    Thought,
    /// A call, with an id that is odd or none.
    Call {
        odd_id: bool,
    },
    /// A use of the provider's own tool, with its result or without.
    Hosted {
        whole: bool,
    },
    Refusal,
}

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Done,
    Limit,
    /// A limit in the middle of the last call.
    CutCall,
    /// Cancelled or broken off.
    Partial,
}

/// One round: what the model says, and what becomes of it.
#[derive(Debug, Clone)]
struct Round {
    leg: usize,
    /// Whether the session asks for thoughts.
    thinks: bool,
    bits: Vec<Bit>,
    ending: Ending,
    /// How many of its calls get a result before the person goes on.
    answered: usize,
    /// Whether the person says something before the next request.
    speaks: bool,
}

/// A leg to ask, mostly with thoughts.
fn any_ask() -> impl Strategy<Value = (usize, bool)> {
    (0..LEGS.len(), prop::bool::weighted(0.8))
}

fn any_round() -> impl Strategy<Value = Round> {
    let bit = prop_oneof![
        3 => Just(Bit::Text),
        1 => Just(Bit::Blank),
        3 => Just(Bit::Thought),
        4 => prop::bool::weighted(0.3).prop_map(|odd_id| Bit::Call { odd_id }),
        2 => prop::bool::weighted(0.7).prop_map(|whole| Bit::Hosted { whole }),
        1 => Just(Bit::Refusal),
    ];
    let ending = prop_oneof![
        5 => Just(Ending::Done),
        1 => Just(Ending::Limit),
        1 => Just(Ending::CutCall),
        1 => Just(Ending::Partial),
    ];
    let parts = prop::collection::vec(bit, 0..6);
    (
        any_ask(),
        parts,
        ending,
        0usize..5,
        prop::bool::weighted(0.4),
    )
        .prop_map(|((leg, thinks), bits, ending, answered, speaks)| Round {
            leg,
            thinks,
            bits,
            ending,
            answered,
            speaks,
        })
}

/// The reply's body in its provider's own form; `n` makes its ids its own.
fn native(round: &Round, n: usize) -> Value {
    let (wire, provider, model) = LEGS[round.leg];
    let last_call = round
        .bits
        .iter()
        .rposition(|bit| matches!(bit, Bit::Call { .. }));
    let mut items = Vec::new();
    let mut thought: Option<String> = None;
    for (at, bit) in round.bits.iter().enumerate() {
        let cut = round.ending == Ending::CutCall && Some(at) == last_call;
        let id = format!("{n}_{at}");
        match wire {
            Wire::Anthropic => anthropic_blocks(*bit, &id, &mut items),
            Wire::OpenaiResponses => {
                // Each id says which thought the item follows.
                let after = thought
                    .take()
                    .map(|id| format!("_after_{id}"))
                    .unwrap_or_default();
                if *bit == Bit::Thought {
                    thought = Some(format!("rs_{id}"));
                }
                response_items(*bit, &id, &after, cut, &mut items);
            }
            Wire::OpenaiChat => {}
            Wire::Gemini => gemini_parts(*bit, &id, &mut items),
        }
    }
    let limit = matches!(round.ending, Ending::Limit | Ending::CutCall);
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    match wire {
        Wire::Anthropic => {
            let stop = if limit { "max_tokens" } else { "end_turn" };
            json!({"id": format!("msg_{n}"), "model": model, "content": items, "stop_reason": stop, "usage": usage})
        }
        Wire::OpenaiResponses => {
            let status = if limit { "incomplete" } else { "completed" };
            json!({"id": format!("resp_{n}"), "model": model, "output": items, "status": status, "usage": usage})
        }
        Wire::OpenaiChat => {
            let stop = if limit { "length" } else { "stop" };
            let message = chat_message(round, provider, n);
            json!({"id": format!("c_{n}"), "model": model, "choices": [{"index": 0, "message": message, "finish_reason": stop}]})
        }
        Wire::Gemini => {
            let stop = if limit { "MAX_TOKENS" } else { "STOP" };
            json!({"responseId": format!("r_{n}"), "modelVersion": model, "candidates": [
                {"index": 0, "content": {"role": "model", "parts": items}, "finishReason": stop}]})
        }
    }
}

fn anthropic_blocks(bit: Bit, id: &str, blocks: &mut Vec<Value>) {
    match bit {
        Bit::Text | Bit::Refusal => blocks.push(json!({"type": "text", "text": format!("text {id}")})),
        Bit::Blank => blocks.push(json!({"type": "text", "text": " \n"})),
        Bit::Thought => blocks.push(json!({"type": "thinking", "thinking": "t", "signature": format!("sig_{id}")})),
        Bit::Call { .. } => blocks.push(json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": "read", "input": {"n": id}})),
        Bit::Hosted { whole } => {
            let name = "web_search";
            blocks.push(json!({"type": "server_tool_use", "id": format!("srv_{id}"), "name": name, "input": {}}));
            if whole {
                blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": format!("srv_{id}"), "content": []}));
            }
        }
    }
}

fn response_items(bit: Bit, id: &str, after: &str, cut: bool, items: &mut Vec<Value>) {
    let message = |content: Value| json!({"type": "message", "id": format!("msg_{id}{after}"), "role": "assistant", "status": "completed", "content": [content]});
    items.push(match bit {
        Bit::Text => message(json!({"type": "output_text", "text": format!("text {id}"), "annotations": []})),
        Bit::Blank => message(json!({"type": "output_text", "text": ""})),
        Bit::Refusal => message(json!({"type": "refusal", "refusal": format!("no {id}")})),
        Bit::Thought => {
            json!({"type": "reasoning", "id": format!("rs_{id}"), "summary": [], "encrypted_content": format!("enc_{id}")})
        }
        Bit::Call { .. } => {
            let status = if cut { "incomplete" } else { "completed" };
            json!({"type": "function_call", "id": format!("fc_{id}{after}"), "call_id": format!("call_{id}"),
                   "name": "read", "arguments": if cut { "{\"n\":" } else { "{\"n\":1}" }, "status": status})
        }
        Bit::Hosted { whole } => {
            let kind = if whole { "web_search_call" } else { "computer_call" };
            let mut item = json!({"type": kind, "id": format!("ws_{id}{after}"), "status": "completed"});
            if !whole {
                item["call_id"] = format!("computer_{id}").into();
            }
            item
        }
    });
}

fn chat_message(round: &Round, provider: &str, n: usize) -> Value {
    let mut text = String::new();
    let mut thoughts = String::new();
    let mut calls = Vec::new();
    for (at, bit) in round.bits.iter().enumerate() {
        match bit {
            Bit::Text | Bit::Refusal | Bit::Hosted { .. } => text += &format!("text {n}_{at} "),
            Bit::Blank => text += "\n",
            Bit::Thought => thoughts += &format!("thought {n}_{at} "),
            Bit::Call { odd_id } => {
                let id = if *odd_id {
                    String::new()
                } else {
                    format!("call:{n}_{at}")
                };
                calls.push(json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{\"n\":1}"}}));
            }
        }
    }
    if round.ending == Ending::CutCall
        && let Some(last) = calls.last_mut()
    {
        last["function"]["arguments"] = "{\"n\":".into();
    }
    let mut message = json!({"role": "assistant", "content": text, "tool_calls": calls});
    if !thoughts.is_empty() {
        if provider == "mistral" {
            message["content"] = json!([{"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}, {"type": "text", "text": text}]);
        } else {
            message["reasoning_content"] = thoughts.into();
        }
    }
    message
}

fn gemini_parts(bit: Bit, id: &str, parts: &mut Vec<Value>) {
    let signature = format!("sig_{id}");
    match bit {
        Bit::Text | Bit::Refusal => parts.push(json!({"text": format!("text {id}")})),
        Bit::Blank => parts.push(json!({"text": "", "thoughtSignature": signature})),
        Bit::Thought => parts.push(json!({"text": "thought", "thought": true})),
        Bit::Call { odd_id: true } => {
            parts.push(json!({"functionCall": {"name": "read", "args": {"n": id}}, "thoughtSignature": signature}));
        }
        Bit::Call { odd_id: false } => {
            parts.push(
                json!({"functionCall": {"id": format!("real {id}"), "name": "read", "args": {}}}),
            );
        }
        Bit::Hosted { whole } => {
            parts.push(json!({"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": signature}));
            if whole {
                parts
                    .push(json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}));
            }
        }
    }
}

/// What a round leaves in the log.
fn live(round: &Round, n: usize, log: &mut Vec<Message>) {
    let (wire, provider, model) = LEGS[round.leg];
    let endpoint = Endpoint::new(provider).with_model(model);
    let decoded = wire.decode_body(&endpoint, native(round, n).to_string().as_bytes());
    assert_eq!(decoded.error, None);
    let response = decoded.response;
    let calls: Vec<String> = response
        .parts
        .iter()
        .filter_map(Part::as_call)
        .map(|call| call.call_id.clone())
        .collect();
    log.push(Message {
        meta: Some(Meta {
            provider: provider.to_owned(),
            model: model.to_owned(),
            stop_reason: response.stop.map(|stop| stop.raw),
            partial: round.ending == Ending::Partial,
            ..Meta::default()
        }),
        ..Message::new(Role::Assistant, response.parts)
    });
    for (at, id) in calls.iter().enumerate().take(round.answered) {
        let output = FunctionCallOutput::text(id, format!("result {n} {at}"), at == 1);
        log.push(Message::new(
            Role::Tool,
            vec![Content::FunctionCallOutput(output).into()],
        ));
    }
    if round.speaks {
        log.push(Message::user(format!("go on {n}")));
    }
}

/// Asks the provider of a leg to go on, as a host would.
fn ask((leg, thinks): (usize, bool), log: &[Message]) {
    let (wire, provider, model) = LEGS[leg];
    let target = RepairTarget::new(provider, model).with_wire(wire);
    let sendable = repair(log.to_vec(), &target);
    let twice = repair(sendable.messages().to_vec(), &target);
    assert_eq!(
        twice, sendable,
        "{provider}: the repair is not done at once"
    );
    let originals: Vec<&Part> = log.iter().flat_map(|message| &message.content).collect();
    for part in sendable
        .messages()
        .iter()
        .flat_map(|message| &message.content)
    {
        let Some(own) = &part.sidecar else { continue };
        assert_eq!(own.provider, provider);
        // A call's id may have been taken already; what its signer gave is never touched.
        let came = |original: &&Part| original.sidecar.as_ref() == Some(own);
        assert!(originals.iter().any(came), "changed: {part:?}");
    }
    taken(
        leg,
        &ModelRequest {
            messages: sendable,
            thinking_tokens: thinks.then_some(2_048),
            ..ModelRequest::empty(&target)
        },
    );
}

/// Holds a request against the rules of its provider.
fn taken(leg: usize, request: &ModelRequest) {
    let (wire, provider, model) = LEGS[leg];
    let endpoint = Endpoint::new(provider).with_model(model);
    let encoded = wire.encode(request, &endpoint);
    assert_eq!(wire.encode(request, &endpoint), encoded);
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let found = broken(wire, provider, model, &body);
    assert_eq!(found, [] as [&str; 0], "{provider} {model}: {body:#}");
}

/// The log that leaves these messages.
fn entries(messages: &[Message]) -> Vec<Entry> {
    let mut turn = 0;
    let mut entries: Vec<Entry> = Vec::new();
    for message in messages {
        turn += u64::from(message.role == Role::User);
        let bodies = if message.role == Role::Tool {
            let outputs = message
                .content
                .iter()
                .filter_map(|part| match &part.content {
                    Content::FunctionCallOutput(output) => Some(EntryBody::CallEnded {
                        output: output.clone(),
                        end: CallEnd::Done,
                        reason: None,
                        duration_ms: 1,
                        meta: None,
                    }),
                    _ => None,
                });
            outputs.collect()
        } else {
            vec![EntryBody::Message {
                message: message.clone(),
            }]
        };
        for body in bodies {
            entries.push(Entry {
                seq: entries.len() as u64 + 1,
                turn,
                at_ms: 0,
                body,
            });
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_request_of_every_path_of_switches_is_one_that_its_provider_takes(
        rounds in prop::collection::vec(any_round(), 1..8),
        path in prop::collection::vec(any_ask(), 1..=6),
    ) {
        let mut log = vec![Message::user("q")];
        for (n, round) in rounds.iter().enumerate() {
            ask((round.leg, round.thinks), &log);
            live(round, n, &mut log);
        }
        for next in path {
            ask(next, &log);
        }
    }

    #[test]
    fn a_conversation_that_was_cut_and_the_request_for_its_summary_are_taken_too(
        rounds in prop::collection::vec(any_round(), 2..8),
        path in prop::collection::vec(any_ask(), 1..=3),
        most in 1u64..2_000,
    ) {
        let mut log = vec![Message::user("q")];
        for (n, round) in rounds.iter().enumerate() {
            live(round, n, &mut log);
        }
        let mut entries = entries(&log);
        let room = Room { window: None, compact_at: Some(most) };
        for (leg, thinks) in path {
            let Some(upto) = cut_point(&entries, &room) else { break };
            let (wire, provider, model) = LEGS[leg];
            let target = RepairTarget::new(provider, model).with_wire(wire);
            let like = ModelRequest {
                thinking_tokens: thinks.then_some(2_048),
                ..ModelRequest::empty(&target)
            };
            taken(leg, &summary_request(&entries, upto, &target, &room, like));
            entries.push(Entry {
                seq: entries.len() as u64 + 1,
                turn: entries.last().unwrap().turn,
                at_ms: 0,
                body: EntryBody::Compacted {
                    upto,
                    summary: "so far".to_owned(),
                    meta: None,
                },
            });
            ask((leg, thinks), &conversation(&entries));
        }
    }

    #[test]
    fn what_a_model_thought_comes_home_where_nothing_was_lost(
        rounds in prop::collection::vec(any_round(), 1..5),
        away in prop::collection::vec(0..LEGS.len(), 1..4),
    ) {
        // A whole reply with a call that was answered, then other providers, then back.
        for (leg, (wire, provider, model)) in LEGS.iter().enumerate() {
            let home = Round {
                leg,
                thinks: true,
                bits: vec![Bit::Thought, Bit::Call { odd_id: true }],
                ending: Ending::Done,
                answered: 1,
                speaks: true,
            };
            let mut log = vec![Message::user("q")];
            live(&home, 100, &mut log);
            let signed: Vec<Part> = log[1].content.iter().filter(|part| part.sidecar.is_some()).cloned().collect();
            for (n, round) in rounds.iter().enumerate() {
                let round = Round { leg: away[n % away.len()], ..round.clone() };
                live(&round, n, &mut log);
            }
            let target = RepairTarget::new(*provider, *model).with_wire(*wire);
            let sendable = repair(log, &target);
            let sent: Vec<&Part> = sendable.messages().iter().flat_map(|message| &message.content).collect();
            for part in &signed {
                prop_assert!(sent.contains(&part), "{provider}: lost {part:?}");
            }
            prop_assert!(!signed.is_empty());
        }
    }
}
