//! What the wire must get right, rule by rule, on small streams and conversations of our own.

mod decode;
mod encode;
mod round_trip;

use serde_json::{Value, json};

use crate::wire::Wire;
use crate::wire::test_kit::Rig;

const RIG: Rig = Rig {
    wire: Wire::OpenaiResponses,
    provider: "openai",
    model: "gpt-5.2",
};

/// An SSE body of these events, named as the API names them.
fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

/// A stream of whole items, without any deltas, and its end.
fn reply(items: &[Value], status: &str) -> String {
    let mut events = vec![created()];
    for (index, item) in items.iter().enumerate() {
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(end(status, items));
    stream(&events)
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-5.2-2025-12-11", "status": "in_progress"}})
}

fn end(status: &str, items: &[Value]) -> Value {
    let reason = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
    json!({"type": format!("response.{status}"), "response": {
        "id": "resp_1", "model": "gpt-5.2-2025-12-11", "status": status, "output": items,
        "incomplete_details": reason, "error": null,
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                  "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 20}}
    }})
}

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "status": "completed", "role": "assistant",
           "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": "Hm."}],
           "encrypted_content": format!("enc_{id}")})
}

fn function_call(id: &str, call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": "read",
           "arguments": arguments, "status": "completed"})
}
