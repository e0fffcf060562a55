//! Snapshots as they are, and as they should not be.

use conjure_core::log::{Entry, messages};
use serde_json::json;

use super::*;

fn read(messages: &Json) -> (Vec<Draft>, LeftOut) {
    read_all(&json!({ "messages": messages }))
}

fn read_all(chat: &Json) -> (Vec<Draft>, LeftOut) {
    let mut left_out = LeftOut::default();
    let drafts = drafts(chat, "Be terse.", BTreeSet::new(), &mut left_out);
    (drafts, left_out)
}

/// What a model is told: who says what, calls and results by their ids.
fn told(drafts: &[Draft]) -> Vec<String> {
    let entries: Vec<Entry> = drafts
        .iter()
        .zip(1..)
        .map(|(draft, seq)| Entry {
            seq,
            turn: draft.turn,
            at_ms: 0,
            body: draft.body.clone(),
        })
        .collect();
    let part = |part: &Part| match &part.content {
        Content::FunctionCall(call) => {
            format!("{}={}({})", call.call_id, call.name, call.arguments)
        }
        Content::FunctionCallOutput(output) => {
            format!("{}: {}", output.call_id, output.joined_text())
        }
        _ => part.as_text().unwrap_or_default().to_owned(),
    };
    messages(&entries)
        .iter()
        .map(|message| {
            let parts: Vec<String> = message.content.iter().map(part).collect();
            format!("{:?} {}", message.role, parts.join(" | "))
        })
        .collect()
}

#[test]
fn a_turn_is_what_a_user_began_and_ends_as_it_was_left() {
    let (drafts, left_out) = read(&json!([
        {"role": "system", "content": [{"type": "text", "text": "Be terse."}]},
        {"role": "user", "content": [{"type": "text", "text": "A river?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "The Rhone."}], "_meta": {
            "provider": "openai", "model": "gpt-5", "auth_type": "oauth", "auth_name": "work",
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
            "latency_ms": 250,
        }},
        {"role": "user", "content": "And a lake?"},
        {"role": "user", "content": "Hello?"},
    ]));
    let turns: Vec<u64> = drafts.iter().map(|draft| draft.turn).collect();
    assert_eq!(turns, [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    let outcomes: Vec<&str> = drafts
        .iter()
        .filter_map(|draft| match &draft.body {
            EntryBody::TurnEnded { outcome, .. } => Some(outcome.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, ["completed", "interrupted", "interrupted"]);
    let meta = drafts.iter().find_map(|draft| draft.body.meta()).unwrap();
    assert_eq!(
        (
            meta.usage.input,
            meta.usage.output,
            meta.latency_ms,
            meta.model.as_str()
        ),
        (12, 3, 250, "gpt-5")
    );
    let EntryBody::TurnEnded { usage, .. } = &drafts[3].body else {
        panic!("{:?}", drafts[3]);
    };
    assert_eq!(*usage, meta.usage);
    assert_eq!(left_out.get(Left::PersonaMessages), 1);
    assert_eq!(left_out.all().count(), 1);
}

#[test]
fn calls_come_before_the_text_that_was_said_after_them_each_with_its_result() {
    let (drafts, left_out) = read_all(&json!({
        "messages": [
            {"role": "user", "content": "List it."},
            {"role": "assistant", "content": [{"type": "text", "text": "Two files."}],
             "_meta": {"usage": {"prompt_tokens": 5}},
             "tool_calls": [{"id": "c1", "name": "shell", "arguments": "{\"cmd\":\"ls\"}"}]},
            {"role": "tool", "tool_call_id": "c1",
             "content": [{"type": "text", "text": "\"a\\nb\""}]},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text":
              "{\"output\":\"no\",\"metadata\":{\"exit_code\":1}}"}]},
            {"role": "tool", "tool_call_id": "nobody's", "content": "lost"},
        ],
        "tool_history": [{"calls": [
            {"id": "c1", "name": "shell", "arguments": "{\"cmd\":\"ls\"}"},
            {"id": "c2", "name": "shell", "arguments": "{\"cmd\":\"cat c\"}"},
            {"id": "c3", "name": "shell", "arguments": "{}"},
        ]}],
    }));
    assert_eq!(
        told(&drafts),
        [
            "User List it.",
            "Assistant c1=shell({\"cmd\":\"ls\"}) | c2=shell({\"cmd\":\"cat c\"})",
            "Tool c1: a\nb | c2: {\"output\":\"no\",\"metadata\":{\"exit_code\":1}}",
            "Assistant Two files.",
        ]
    );
    let ends: Vec<CallEnd> = drafts
        .iter()
        .filter_map(|draft| match &draft.body {
            EntryBody::CallEnded { end, .. } => Some(*end),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [CallEnd::Done, CallEnd::Failed]);
    assert_eq!(
        drafts
            .iter()
            .filter(|draft| draft.body.meta().is_some())
            .count(),
        1
    );
    assert_eq!(left_out.get(Left::OutputsWithoutCall), 1);
    assert_eq!(left_out.get(Left::UnplacedCalls), 1);
}

#[test]
fn calls_are_closed_have_ids_of_their_own_and_keep_odd_arguments() {
    let call = |id: &str, arguments: Json| json!({"id": id, "name": "f", "arguments": arguments});
    let (drafts, left_out) = read_all(&json!({
        "messages": [
            {"role": "assistant", "content": null, "tool_calls": [
                call("c", json!("{}")), call("c", json!("not json")), call("", json!({"a": 1})),
                {"id": "d", "function": {"name": "g", "arguments": ""}}, {"id": "e"}, 5,
            ]},
            {"role": "tool", "tool_call_id": "c", "content": "one"},
            {"role": "tool", "tool_call_id": "c", "content": "two"},
            {"role": "assistant", "content": "again", "tool_calls": [call("c", json!([1]))]},
        ],
        "tool_history": [{"outputs": [{"id": "d", "output": {"x": 1}}]}],
    }));
    let shown = told(&drafts);
    assert_eq!(
        shown[0],
        "Assistant c=f({}) | c-2=f({}) | call-0=f({\"a\":1}) | d=g({})"
    );
    assert!(
        shown[1].starts_with("Tool c: one | c-2: two | call-0: The result"),
        "{}",
        shown[1]
    );
    assert!(shown[1].ends_with("d: {\"x\":1}"), "{}", shown[1]);
    assert!(shown[2].starts_with("Assistant c-3="), "{}", shown[2]);
    let raw: Vec<String> = drafts
        .iter()
        .filter_map(|draft| match &draft.body {
            EntryBody::Message { message } => Some(message),
            _ => None,
        })
        .flat_map(Message::calls)
        .filter_map(|call| call.arguments_text.clone())
        .collect();
    assert_eq!(raw, ["not json", "[1]"]);
    assert_eq!(left_out.get(Left::CallsWithoutOutput), 2);
    assert_eq!(left_out.get(Left::MalformedMessages), 2);
    assert_eq!(drafts[0].turn, 1, "an answer to nobody begins a turn, too");
}

#[test]
fn what_is_no_message_is_counted_and_nothing_ends_it() {
    for chat in [
        json!(null),
        json!([]),
        json!("x"),
        json!({}),
        json!({"messages": {"a": 1}}),
    ] {
        assert_eq!(read_all(&chat).0, []);
    }
    let (drafts, left_out) = read(&json!([
        null, 5, "text", [], {}, {"role": 7, "content": "x"}, {"role": "nobody", "content": "x"},
        {"role": "user"}, {"role": "user", "content": []}, {"role": "user", "content": 9},
        {"role": "assistant", "content": [{"type": "image", "url": "x"}]},
        {"role": "tool", "content": "alone"},
        {"role": "system", "content": "Another rule."},
    ]));
    assert_eq!(told(&drafts), ["System Another rule."]);
    assert_eq!(left_out.get(Left::MalformedMessages), 7);
    assert_eq!(left_out.get(Left::EmptyMessages), 4);
    assert_eq!(left_out.get(Left::Parts), 2);
    assert_eq!(left_out.get(Left::OutputsWithoutCall), 1);
    let (_, left_out) = read_all(&json!({
        "events": [{"type": "content"}], "threads": {"t": {"turns": []}},
    }));
    assert_eq!(left_out.get(Left::Timelines), 2);
}

#[test]
fn a_count_of_tokens_that_is_none_is_none() {
    let usage = json!({"prompt_tokens": -5, "completion_tokens": u64::MAX});
    let (drafts, _) = read(&json!([
        {"role": "assistant", "content": "x", "_meta": {"usage": usage, "latency_ms": 1.5}},
        {"role": "assistant", "content": "y", "_meta": {"usage": null, "model": 5}},
    ]));
    let metas: Vec<&Meta> = drafts
        .iter()
        .filter_map(|draft| draft.body.meta())
        .collect();
    assert_eq!(metas, [&Meta::default(), &Meta::default()]);
}
