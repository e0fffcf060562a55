//! Chat Completions and its dialects.

use conjure_core::wire::Wire;
use serde_json::Value;

use crate::recordings::Recorded;
use crate::said::{Said, arguments, events, every_reply, text};

#[test]
fn every_recorded_reply_decodes_to_what_was_said() {
    every_reply(Wire::OpenaiChat, read);
}

/// Read out of the first choice, delta by delta.
fn read(recorded: &Recorded) -> Said {
    let is_stream = recorded.exchange.then.is_stream();
    let chunks = if is_stream {
        events(recorded)
    } else {
        vec![serde_json::from_str(recorded.exchange.reply()).unwrap()]
    };
    let mut said = Said::default();
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for chunk in &chunks {
        if let Some(output) = chunk["usage"]["completion_tokens"].as_u64() {
            said.output = output;
        }
        let choices = chunk["choices"].as_array().unwrap();
        for choice in choices.iter().filter(|choice| choice["index"] == 0) {
            said.stop = text(&choice["finish_reason"]).or(said.stop);
            let delta = &choice[if is_stream { "delta" } else { "message" }];
            said.text += delta["content"].as_str().unwrap_or_default();
            said.text += delta["refusal"].as_str().unwrap_or_default();
            said.thoughts += &thoughts(delta);
            for (at, call) in delta["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let at = call["index"]
                    .as_u64()
                    .map_or(at, |at| usize::try_from(at).unwrap());
                if calls.len() <= at {
                    calls.resize(at + 1, Default::default());
                }
                calls[at].0 += call["id"].as_str().unwrap_or_default();
                calls[at].1 += call["function"]["name"].as_str().unwrap_or_default();
                calls[at].2 += call["function"]["arguments"].as_str().unwrap_or_default();
            }
        }
    }
    let last = calls.len();
    let cut = said.stop.as_deref() == Some("length");
    for (at, (id, name, text)) in calls.into_iter().enumerate() {
        // What a limit cut off stays text, whatever it looks like.
        let arguments = if cut && at + 1 == last {
            text.into()
        } else {
            arguments(&text)
        };
        said.calls.push((id, name, arguments));
    }
    said
}

fn thoughts(delta: &Value) -> String {
    let plain = text(&delta["reasoning_content"]).or(text(&delta["reasoning"]));
    plain.filter(|text| !text.is_empty()).unwrap_or_else(|| {
        let details = delta["reasoning_details"].as_array().into_iter().flatten();
        details
            .filter_map(|detail| text(&detail["text"]).or(text(&detail["summary"])))
            .collect()
    })
}
