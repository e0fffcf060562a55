//! The Messages API.

use conjure_core::chat::{Content, FunctionCallOutput, Message, OutputPart, Part, Role};
use conjure_core::repair::{RepairTarget, repair};
use conjure_core::request::ModelRequest;
use conjure_core::wire::{Endpoint, Wire};
use conjure_wire_tests::{Exchange, Reply};
use serde_json::{Value, json};

use crate::recordings::recordings;
use crate::said::{Said, every_reply};

#[test]
fn every_recorded_reply_decodes_to_what_was_said() {
    every_reply(Wire::Anthropic, |recorded| {
        self::recorded(&recorded.exchange.then)
    });
}

#[test]
fn a_recorded_conversation_goes_on_as_it_was_recorded() {
    let Some(cassettes) = recordings("anthropic") else {
        return;
    };
    let mut compared = 0;
    for cassette in &cassettes {
        for pair in cassette.exchanges.windows(2) {
            let [before, after] = pair else { continue };
            // Here the recorder put another tool's name into the history on purpose.
            let altered = cassette.name.contains("repaired_invalid_call");
            let Some(messages) = went_on(before, after).filter(|_| !altered) else {
                continue;
            };
            let endpoint = Endpoint::new("anthropic");
            let mut decoder = Wire::Anthropic.decoder(&endpoint);
            decoder.push(before.reply().as_bytes(), &mut Vec::new());
            let reply = decoder.finish(&mut Vec::new());
            let model = reply.response.model.clone();
            let results: Vec<Part> = results(&messages[1]);
            let sendable = repair(
                vec![
                    Message::user("q"),
                    Message::new(Role::Assistant, reply.response.parts),
                    Message::new(Role::Tool, results),
                ],
                &RepairTarget::new("anthropic", &model),
            );
            let request = ModelRequest {
                messages: sendable,
                ..ModelRequest::empty(&RepairTarget::new("anthropic", &model))
            };
            let body: Value =
                serde_json::from_slice(&Wire::Anthropic.encode(&request, &endpoint).body).unwrap();
            let mut built = body["messages"].as_array().unwrap()[1..].to_vec();
            built.iter_mut().for_each(without_marks);
            assert_eq!(built, messages, "{}", cassette.name);
            compared += 1;
        }
    }
    println!("anthropic: {compared} follow-up requests compared");
    assert!(compared > 0);
}

/// Reads a reply out of the recording by other means: line by line, block by block.
fn recorded(reply: &Reply) -> Said {
    let body = reply.body.clone().unwrap_or_default();
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    let mut last = json!({});
    if reply.is_stream() {
        for line in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            let event: Value = serde_json::from_str(line).unwrap();
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    blocks.push(event["content_block"].clone());
                    inputs.push(String::new());
                }
                "content_block_delta" => {
                    let at = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
                    for field in ["text", "thinking"] {
                        if let Some(piece) = event["delta"][field].as_str() {
                            let so_far = blocks[at][field].as_str().unwrap().to_owned();
                            blocks[at][field] = (so_far + piece).into();
                        }
                    }
                    if let Some(piece) = event["delta"]["partial_json"].as_str() {
                        inputs[at].push_str(piece);
                    }
                }
                "message_delta" => {
                    last = event["delta"].clone();
                    last["usage"] = event["usage"].clone();
                }
                _ => {}
            }
        }
    } else {
        last = serde_json::from_str(&body).unwrap();
        blocks = last["content"].as_array().unwrap().clone();
        inputs = vec![String::new(); blocks.len()];
    }
    let all = |field: &str| -> String {
        blocks
            .iter()
            .filter_map(|block| block[field].as_str())
            .collect()
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Said {
        text: all("text"),
        thoughts: all("thinking"),
        calls: blocks
            .iter()
            .zip(&inputs)
            .filter(|(block, _)| block["type"] == "tool_use")
            .map(|(block, input)| {
                let input = if input.is_empty() {
                    block["input"].clone()
                } else {
                    serde_json::from_str(input).unwrap()
                };
                (
                    text(&block["id"]).unwrap(),
                    text(&block["name"]).unwrap(),
                    input,
                )
            })
            .collect(),
        stop: text(&last["stop_reason"]),
        sequence: text(&last["stop_sequence"]),
        output: last["usage"]["output_tokens"].as_u64().unwrap(),
    }
}

/// The model's message and the results behind it, when the second request goes on where the first
/// reply ended.
fn went_on(before: &Exchange, after: &Exchange) -> Option<Vec<Value>> {
    let messages = |exchange: &Exchange| -> Option<Vec<Value>> {
        let body: Value = serde_json::from_str(exchange.when.body.as_deref()?).ok()?;
        let mut messages = body["messages"].as_array()?.clone();
        messages.iter_mut().for_each(without_marks);
        Some(messages)
    };
    let (old, new) = (messages(before)?, messages(after)?);
    let rest = new.strip_prefix(old.as_slice())?;
    let is_step = rest.len() == 2
        && rest[0]["role"] == "assistant"
        && rest[1]["content"]
            .as_array()?
            .iter()
            .all(|block| block["type"] == "tool_result");
    is_step.then(|| rest.to_vec())
}

fn without_marks(message: &mut Value) {
    for block in message["content"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = block.as_object_mut() {
            fields.shift_remove("cache_control");
        }
    }
}

fn results(message: &Value) -> Vec<Part> {
    message["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| {
            let texts = block["content"].as_array().unwrap().iter();
            let output = texts
                .map(|text| OutputPart::Text {
                    text: text["text"].as_str().unwrap().to_owned(),
                })
                .collect();
            Content::FunctionCallOutput(FunctionCallOutput {
                call_id: block["tool_use_id"].as_str().unwrap().to_owned(),
                output,
                is_error: block["is_error"].as_bool().unwrap_or_default(),
            })
            .into()
        })
        .collect()
}
