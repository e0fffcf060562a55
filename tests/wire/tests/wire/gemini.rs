//! `generateContent`.

use conjure_core::wire::Wire;
use serde_json::Value;

use crate::recordings::Recorded;
use crate::said::{Said, events, every_reply, text};

#[test]
fn every_recorded_reply_decodes_to_what_was_said() {
    every_reply(Wire::Gemini, read);
}

/// Read out of the parts, one after the other.
fn read(recorded: &Recorded) -> Said {
    let chunks: Vec<Value> = if recorded.exchange.then.is_stream() {
        events(recorded)
    } else {
        vec![serde_json::from_str(recorded.exchange.reply()).unwrap()]
    };
    let mut said = Said::default();
    for chunk in &chunks {
        let count = |name: &str| chunk["usageMetadata"][name].as_u64().unwrap_or_default();
        said.output = count("candidatesTokenCount") + count("thoughtsTokenCount");
        let candidate = &chunk["candidates"][0];
        said.stop = text(&candidate["finishReason"]).or(said.stop);
        for part in candidate["content"]["parts"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let more = part["text"].as_str().unwrap_or_default();
            if part["thought"] == true {
                said.thoughts += more;
            } else {
                said.text += more;
            }
            let call = &part["functionCall"];
            if call.is_object() {
                let id = text(&call["id"]);
                let id = id.unwrap_or_else(|| format!("call_{}", said.calls.len() + 1));
                let name = text(&call["name"]).unwrap();
                said.calls.push((id, name, call["args"].clone()));
            }
        }
    }
    said
}
