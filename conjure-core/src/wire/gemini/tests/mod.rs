//! What the wire must get right, rule by rule, on small streams and conversations of our own.

mod decode;
mod encode;
mod schemas;

use serde_json::{Value, json};

use crate::wire::Wire;
use crate::wire::test_kit::{Rig, stream};

const RIG: Rig = Rig {
    wire: Wire::Gemini,
    provider: "gemini",
    model: "gemini-3-pro-preview",
};

/// One response of a stream with these parts.
#[expect(clippy::needless_pass_by_value, reason = "calls read better")]
fn chunk(parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
           "modelVersion": RIG.model, "responseId": "r_1"})
}

fn last(parts: Value, reason: &str) -> Value {
    let mut chunk = chunk(parts);
    chunk["candidates"][0]["finishReason"] = reason.into();
    chunk["usageMetadata"] = json!({"promptTokenCount": 100, "cachedContentTokenCount": 40,
        "candidatesTokenCount": 10, "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 7,
        "totalTokenCount": 122});
    chunk
}

/// A stream of one response.
fn reply(parts: Value, reason: &str) -> String {
    stream(&[last(parts, reason)])
}
