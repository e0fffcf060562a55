//! What the wire must get right, rule by rule, on small streams and conversations of our own.

mod calls;
mod decode;
mod encode;

use serde_json::{Value, json};

use crate::wire::Wire;
use crate::wire::test_kit::{Rig, stream};

const RIG: Rig = Rig {
    wire: Wire::OpenaiChat,
    provider: "openai",
    model: "gpt-5.2",
};

/// A provider that speaks the dialect of its name.
const fn of(provider: &'static str) -> Rig {
    Rig {
        wire: Wire::OpenaiChat,
        provider,
        model: "some-model",
    }
}

#[expect(clippy::needless_pass_by_value, reason = "calls read better")]
fn delta(delta: Value) -> Value {
    json!({"id": "c_1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c_1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// A stream of these deltas, why it stopped, and its end.
fn reply(deltas: Vec<Value>, reason: &str) -> String {
    let mut events: Vec<Value> = deltas.into_iter().map(delta).collect();
    events.push(finish(reason));
    stream(&events) + "data: [DONE]\n\n"
}

/// A whole reply in one body.
#[expect(clippy::needless_pass_by_value, reason = "calls read better")]
fn body(message: Value, reason: &str) -> String {
    json!({"id": "c_1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]})
        .to_string()
}
