//! The Messages API.

use conjure_core::chat::{
    Content, FunctionCallOutput, Message, OutputPart, Part, Response, Role, StreamEvent,
};
use conjure_core::repair::{Target, repair};
use conjure_core::request::{ModelRequest, ProviderFragments, ToolChoice};
use conjure_core::wire::anthropic::{decode_body, decoder, encode, error};
use conjure_core::wire::{Decoded, Decoder as _};
use conjure_wire_tests::{Cassette, Exchange, Reply};
use serde_json::{Value, json};

use crate::recordings::recordings;

#[test]
fn every_recorded_reply_decodes_to_what_was_said() {
    let Some(cassettes) = recordings("anthropic") else {
        return;
    };
    let (mut streams, mut bodies, mut errors, mut other) = (0, 0, 0, 0);
    for (name, exchange) in messages_exchanges(&cassettes, &mut other) {
        let body = exchange.then.body.clone().unwrap_or_default();
        if exchange.then.status != 200 {
            let error = error(exchange.then.status, body.as_bytes());
            assert!(
                matches!(error.kind.as_str(), "auth" | "bad_request"),
                "{name}: {error:?}"
            );
            errors += 1;
            continue;
        }
        let decoded = if exchange.then.is_stream() {
            streams += 1;
            decode(&[body.as_bytes()]).0
        } else {
            bodies += 1;
            assert_eq!(
                decode(&[body.as_bytes()]).0,
                decode_body(body.as_bytes()),
                "{name}"
            );
            decode_body(body.as_bytes())
        };
        assert_eq!(decoded.error, None, "{name}");
        assert!(decoded.response.complete, "{name}");
        assert_eq!(said(&decoded.response), recorded(&exchange.then), "{name}");
    }
    println!(
        "anthropic: {streams} streams, {bodies} bodies, {errors} errors; {other} exchanges of \
         other endpoints not looked at"
    );
    assert!(streams > 0 && bodies > 0 && errors > 0);
}

#[test]
fn a_stream_cut_at_any_byte_or_fed_byte_by_byte_decodes_to_the_same() {
    let Some(cassettes) = recordings("anthropic") else {
        return;
    };
    let (mut streams, mut cuts) = (0, 0);
    for (name, exchange) in messages_exchanges(&cassettes, &mut 0) {
        let body = exchange.then.body.clone().unwrap_or_default();
        if !exchange.then.is_stream() || exchange.then.status != 200 {
            continue;
        }
        streams += 1;
        let bytes = body.as_bytes();
        let whole = decode(&[bytes]);
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(decode(&[first, second]), whole, "{name}, cut at {at}");
            cuts += 1;
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&each), whole, "{name}, byte by byte");
    }
    println!("anthropic: {streams} streams, {cuts} cuts");
    assert!(streams > 0);
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
            let reply = decode(&[before.then.body.clone().unwrap_or_default().as_bytes()]).0;
            let model = reply.response.model.clone();
            let results: Vec<Part> = results(&messages[1]);
            let sendable = repair(
                vec![
                    Message::user("q"),
                    Message::new(Role::Assistant, reply.response.parts),
                    Message::new(Role::Tool, results),
                ],
                &Target::new("anthropic", &model),
            );
            let request = ModelRequest {
                provider: "anthropic".to_owned(),
                model,
                system: Vec::new(),
                messages: sendable,
                tools: Vec::new(),
                tool_choice: ToolChoice::Auto,
                max_tokens: 1024,
                thinking_tokens: None,
                stop_sequences: Vec::new(),
                response_format: None,
                contribution: ProviderFragments::default(),
                attachments: std::collections::BTreeMap::new(),
                stream: true,
            };
            let body: Value = serde_json::from_slice(&encode(&request).body).unwrap();
            let mut built = body["messages"].as_array().unwrap()[1..].to_vec();
            built.iter_mut().for_each(without_marks);
            assert_eq!(built, messages, "{}", cassette.name);
            compared += 1;
        }
    }
    println!("anthropic: {compared} follow-up requests compared");
    assert!(compared > 0);
}

fn messages_exchanges<'a>(
    cassettes: &'a [Cassette],
    other: &mut usize,
) -> Vec<(&'a str, &'a Exchange)> {
    let mut found = Vec::new();
    for cassette in cassettes {
        for exchange in &cassette.exchanges {
            if exchange.when.path == "/v1/messages" {
                found.push((cassette.name.as_str(), exchange));
            } else {
                *other += 1;
            }
        }
    }
    found
}

fn decode(pieces: &[&[u8]]) -> (Decoded, Vec<StreamEvent>) {
    let mut decoder = decoder();
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events);
    }
    let decoded = decoder.finish(&mut events);
    (decoded, events)
}

/// What a reply says, in the few words that both readers can tell.
#[derive(Debug, PartialEq)]
struct Said {
    text: String,
    thoughts: String,
    calls: Vec<(String, String, Value)>,
    stop: Option<String>,
    sequence: Option<String>,
    output: u64,
}

fn said(response: &Response) -> Said {
    let message = Message::new(Role::Assistant, response.parts.clone());
    Said {
        text: message.text(),
        thoughts: message
            .content
            .iter()
            .filter_map(|part| match &part.content {
                Content::Reasoning { text } => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        calls: message
            .calls()
            .map(|call| {
                (
                    call.call_id.clone(),
                    call.name.clone(),
                    call.arguments.clone(),
                )
            })
            .collect(),
        stop: response.stop.as_ref().map(|stop| stop.raw.clone()),
        sequence: response
            .stop
            .as_ref()
            .and_then(|stop| stop.sequence.clone()),
        output: response.usage.output,
    }
}

/// The same, read out of the recording by other means: line by line, block by block.
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
