//! Replies that are longer than a session takes are cut: the thread holds what came, the next
//! request is sent, and the server stays small.

use std::collections::BTreeMap;

use conjure_mock_llm::{Bulk, Faults, HttpReply, Message};
use serde_json::{Value, json};

use crate::events::{Came, Client};
use crate::stage::{Stage, auth, text};

/// The most that a body may have, in bytes.
const LIMIT: u64 = 64 * 1024 * 1024;

fn bulky(bulk: Bulk) -> Message {
    let faults = Faults {
        bulk: Some(bulk),
        ..Faults::default()
    };
    Message::new().text("On and on ").faults(faults)
}

/// The most memory that a process has had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.unwrap().trim().trim_end_matches(" kB");
    kibibytes.trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_reply_that_is_too_long_is_cut_and_the_conversation_goes_on() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let thread = text(&session["thread"]["id"]);
    let events = format!("/api/v1/threads/{thread}/events");
    let mut follower = Client::follow(&stage.server, &events, None);
    let mut notices = 0;
    for bulk in [Bulk::Text(100_000_000), Bulk::Deltas(u64::MAX)] {
        stage.model.says(bulky(bulk));
        let turn = stage.over(&stage.say(&id, "Tell me all"));
        assert!(
            turn["state"] == "cut_short" || turn["state"] == "failed",
            "{turn}"
        );
        let shown = follower.until("done");
        let is_notice = |came: &&Came| came.data["text"].to_string().contains("The reply is cut");
        notices += shown.iter().filter(is_notice).count();
        stage.model.says(Message::new().text("Shorter."));
        stage.talk(&id, "Shorter, please");
        follower.until("done");
    }
    assert!(notices > 0);
    let pid = stage.server.running.pid().unwrap();
    let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
    let peak = peak(pid);
    assert!(peak <= 3 * LIMIT, "{} MiB", peak / 1024 / 1024);
}

/// What is large in a reply.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Large {
    Id,
    Name,
    Arguments,
    /// What the provider keeps beside a thought. There is a thought only here: what the mock did not
    /// sign it does not take, and this one is not sent back with its signature.
    Signature,
    /// More calls than a reply has parts.
    Calls,
    /// A text that is larger than what is read in one piece.
    Text,
}

const ALL: [Large; 6] = [
    Large::Id,
    Large::Name,
    Large::Arguments,
    Large::Signature,
    Large::Calls,
    Large::Text,
];

/// More than a session takes of a reply, and less than is read of it in one piece.
const FIELD: usize = 7_500_000;
const TEXT: usize = 40_000_000;
const CALLS: usize = 20_000;

impl Large {
    /// The calls of the reply, each with id, name and arguments.
    fn calls(self) -> Vec<(String, String, Value)> {
        let large = |is: bool, small: &str| match is {
            true => "x".repeat(FIELD),
            false => small.to_owned(),
        };
        let count = match self {
            Self::Calls => CALLS,
            Self::Id | Self::Name | Self::Arguments => 1,
            Self::Signature | Self::Text => 0,
        };
        let call = |number: usize| {
            (
                large(self == Self::Id, &format!("call_{number}")),
                large(self == Self::Name, "local_bash_tool"),
                json!({ "command": large(self == Self::Arguments, "true"), "description": "d" }),
            )
        };
        (0..count).map(call).collect()
    }

    /// The thought, with its signature in `field`.
    fn thought(self, mut thought: Value, field: &str) -> Option<Value> {
        thought[field] = "x".repeat(FIELD).into();
        (self == Self::Signature).then_some(thought)
    }

    fn text(self) -> String {
        let length = if self == Self::Text { TEXT } else { 3 };
        "y".repeat(length)
    }
}

/// A reply of Anthropic's, and its events.
fn anthropic(large: Large) -> (Value, Vec<Value>) {
    let thought = json!({ "type": "thinking", "thinking": "m" });
    let thought = large.thought(thought, "signature").into_iter();
    let mut content: Vec<Value> = thought.collect();
    content.push(json!({ "type": "text", "text": large.text() }));
    content.extend(large.calls().into_iter().map(
        |(id, name, input)| json!({ "type": "tool_use", "id": id, "name": name, "input": input }),
    ));
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let mut message = json!({
        "type": "message", "id": "m", "model": "m", "role": "assistant", "content": content,
        "stop_reason": "tool_use", "stop_sequence": null, "usage": usage,
    });
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut events = vec![json!({ "type": "message_start", "message": start })];
    for (at, block) in content.into_iter().enumerate() {
        events.push(json!({ "type": "content_block_start", "index": at, "content_block": block }));
        events.push(json!({ "type": "content_block_stop", "index": at }));
    }
    let delta = json!({ "stop_reason": "tool_use" });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    message["model"] = "a-model".into();
    (message, events)
}

/// A reply of OpenAI's Responses API, and its events.
fn responses(large: Large) -> (Value, Vec<Value>) {
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let thought = large.thought(thought, "encrypted_content").into_iter();
    let mut output: Vec<Value> = thought.collect();
    let text = json!({ "type": "output_text", "text": large.text(), "annotations": [] });
    output.push(
        json!({ "type": "message", "id": "msg_1", "role": "assistant",
        "status": "completed", "content": [text] }),
    );
    let calls = large.calls().into_iter().enumerate();
    output.extend(calls.map(|(at, (id, name, arguments))| {
        let item = format!("fc_{at}");
        json!({ "type": "function_call", "id": item, "call_id": id, "name": name,
            "arguments": arguments.to_string(), "status": "completed" })
    }));
    let whole = json!({ "id": "r", "model": "m", "status": "completed", "output": output });
    let mut events = Vec::new();
    for (at, item) in output.into_iter().enumerate() {
        let done = "response.output_item.done";
        events.push(json!({ "type": done, "output_index": at, "item": item }));
    }
    let end = json!({ "id": "r", "model": "m", "status": "completed", "output": [] });
    events.push(json!({ "type": "response.completed", "response": end }));
    (whole, events)
}

/// A reply of Chat Completions, and its events.
fn chat(large: Large) -> (Value, Vec<Value>) {
    let calls: Vec<Value> = large
        .calls()
        .into_iter()
        .enumerate()
        .map(|(at, (id, name, arguments))| {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            json!({ "index": at, "id": id, "type": "function", "function": function })
        })
        .collect();
    let details = large.thought(json!({ "type": "reasoning.encrypted" }), "data");
    let details: Vec<Value> = details.into_iter().collect();
    let message = json!({ "role": "assistant", "content": large.text(), "tool_calls": calls,
        "reasoning_details": details });
    let of = |field: &str, message: &Value| {
        json!({ "id": "r", "model": "m", "choices": [{ "index": 0, field: message,
            "finish_reason": "tool_calls" }] })
    };
    (of("message", &message), vec![of("delta", &message)])
}

/// A reply of Gemini's, and its events.
fn gemini(large: Large) -> (Value, Vec<Value>) {
    let thought = json!({ "text": "m", "thought": true });
    let thought = large.thought(thought, "thoughtSignature").into_iter();
    let mut parts: Vec<Value> = thought.collect();
    parts.push(json!({ "text": large.text() }));
    parts.extend(large.calls().into_iter().map(
        |(id, name, args)| json!({ "functionCall": { "id": id, "name": name, "args": args } }),
    ));
    let whole = json!({ "candidates": [{ "content": { "parts": parts, "role": "model" },
        "finishReason": "STOP" }], "modelVersion": "m" });
    (whole.clone(), vec![whole])
}

/// The answer with this body, or with these events.
fn answer(events: Option<Vec<Value>>, body: &Value) -> HttpReply {
    let (kind, body) = match events {
        None => ("application/json", body.to_string()),
        Some(events) => {
            let event = |event: &Value| {
                let name = event["type"].as_str().unwrap_or("message");
                format!("event: {name}\ndata: {event}\n\n")
            };
            let events: String = events.iter().map(event).collect();
            ("text/event-stream", events)
        }
    };
    HttpReply {
        status: 200,
        headers: BTreeMap::from([("content-type".to_owned(), kind.to_owned())]),
        body,
        times: 1,
    }
}

/// Each reply is cut with a notice, the session goes on, and the server stays small.
fn is_cut(provider: &str, reply: fn(Large) -> (Value, Vec<Value>)) {
    for large in ALL {
        let stage = Stage::new();
        let auth = auth(&stage.server, "large", provider, &stage.model.base_url());
        for streams in [false, true] {
            let session = stage.session(&json!({ "auth": auth }));
            let id = text(&session["id"]);
            let thread = text(&session["thread"]["id"]);
            let events = format!("/api/v1/threads/{thread}/events");
            let mut follower = Client::follow(&stage.server, &events, None);
            let (body, pieces) = reply(large);
            stage.model.says(answer(streams.then_some(pieces), &body));
            let turn = stage.over(&stage.say(&id, "Tell me all"));
            assert_eq!(turn["state"], "cut_short", "{large:?} {streams}: {turn}");
            let shown = follower.until("done");
            let is_notice =
                |came: &Came| came.data["text"].to_string().contains("The reply is cut");
            assert!(shown.iter().any(is_notice), "{large:?} {streams}");
            stage.model.says(Message::new().text("Shorter."));
            stage.talk(&id, "Shorter, please");
            // What was sent then is what the provider takes.
            let _ = stage.model.requests();
        }
        let pid = stage.server.running.pid().unwrap();
        let peak = peak(u32::try_from(pid.as_raw_nonzero().get()).unwrap());
        assert!(peak <= 3 * LIMIT, "{large:?}: {} MiB", peak / 1024 / 1024);
    }
}

#[test]
fn whatever_is_large_in_a_reply_of_anthropic_is_cut() {
    is_cut("anthropic", anthropic);
}

#[test]
fn whatever_is_large_in_a_reply_of_the_responses_api_is_cut() {
    is_cut("openai", responses);
}

#[test]
fn whatever_is_large_in_a_chat_completion_is_cut() {
    is_cut("openai-compatible", chat);
}

#[test]
fn whatever_is_large_in_a_reply_of_gemini_is_cut() {
    is_cut("gemini", gemini);
}
