//! The Responses API.

use crate::recordings::Recorded;
use crate::said::{Said, arguments, events, every_reply, text};
use conjure_core::wire::Wire;

#[test]
fn every_recorded_reply_decodes_to_what_was_said() {
    every_reply(Wire::OpenaiResponses, read);
}

/// Read out of the items of the last event, or of the body.
fn read(recorded: &Recorded) -> Said {
    let response = if recorded.exchange.then.is_stream() {
        events(recorded).pop().unwrap()["response"].clone()
    } else {
        serde_json::from_str(recorded.exchange.reply()).unwrap()
    };
    let mut said = Said {
        stop: text(&response["incomplete_details"]["reason"]).or(text(&response["status"])),
        output: response["usage"]["output_tokens"].as_u64().unwrap(),
        ..Said::default()
    };
    for item in response["output"].as_array().unwrap() {
        let pieces = |field: &str, name: &str| -> Vec<String> {
            let list = item[field].as_array().into_iter().flatten();
            list.filter_map(|piece| text(&piece[name])).collect()
        };
        match item["type"].as_str().unwrap() {
            "message" => {
                said.text += &pieces("content", "text").concat();
                said.text += &pieces("content", "refusal").concat();
            }
            "reasoning" => said.thoughts += &pieces("summary", "text").join("\n\n"),
            "function_call" => said.calls.push((
                text(&item["call_id"]).unwrap(),
                text(&item["name"]).unwrap(),
                arguments(item["arguments"].as_str().unwrap()),
            )),
            other => panic!("{other}: {item}"),
        }
    }
    said
}
