//! What a reply says, in the few words that the decoder and a plain reader of the recording can
//! both tell.

use conjure_core::chat::{Content, Message, Response, Role, StreamEvent};
use conjure_core::wire::{Decoded, Wire};
use serde_json::Value;

use crate::recordings::{Recorded, exchanges};

/// What a reply says.
#[derive(Debug, PartialEq, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) thoughts: String,
    /// Id, name and arguments; the text of the arguments where they are cut off.
    pub(crate) calls: Vec<(String, String, Value)>,
    pub(crate) stop: Option<String>,
    pub(crate) sequence: Option<String>,
    pub(crate) output: u64,
}

impl Said {
    pub(crate) fn of(response: &Response) -> Self {
        let message = Message::new(Role::Assistant, response.parts.clone());
        let thoughts = message
            .content
            .iter()
            .filter_map(|part| match &part.content {
                Content::Reasoning { text } => Some(text.as_str()),
                _ => None,
            });
        let calls = message.calls().map(|call| {
            let arguments = match &call.arguments_text {
                Some(text) => text.as_str().into(),
                None => call.arguments.clone(),
            };
            (call.call_id.clone(), call.name.clone(), arguments)
        });
        Self {
            text: message.text(),
            thoughts: thoughts.collect(),
            calls: calls.collect(),
            stop: response.stop.as_ref().map(|stop| stop.raw.clone()),
            sequence: response
                .stop
                .as_ref()
                .and_then(|stop| stop.sequence.clone()),
            output: response.usage.output,
        }
    }
}

/// Decodes pieces of one body.
pub(crate) fn decode(recorded: &Recorded, pieces: &[&[u8]]) -> (Decoded, Vec<StreamEvent>) {
    let mut decoder = recorded.wire.decoder(&recorded.endpoint());
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events);
    }
    let decoded = decoder.finish(&mut events);
    (decoded, events)
}

/// Decodes every recorded reply of a wire and compares it with what `read` finds in it.
pub(crate) fn every_reply(wire: Wire, read: impl Fn(&Recorded) -> Said) {
    let Some(exchanges) = exchanges(wire) else {
        return;
    };
    let (mut streams, mut bodies, mut errors) = (0, 0, 0);
    for recorded in &exchanges {
        let name = format!("{} #{}", recorded.name, recorded.index);
        let then = &recorded.exchange.then;
        let body = recorded.exchange.reply().as_bytes();
        if then.status != 200 {
            let error = wire.error(&recorded.endpoint(), then.status, &[], body);
            assert!(
                matches!(error.kind.as_str(), "auth" | "bad_request" | "not_found"),
                "{name}: {error:?}"
            );
            errors += 1;
            continue;
        }
        let (decoded, events) = decode(recorded, &[body]);
        if then.is_stream() {
            streams += 1;
        } else {
            bodies += 1;
            assert_eq!(
                decoded,
                wire.decode_body(&recorded.endpoint(), body),
                "{name}"
            );
            for at in 0..body.len() {
                let (first, second) = body.split_at(at);
                assert_eq!(
                    decode(recorded, &[first, second]).0,
                    decoded,
                    "{name} at {at}"
                );
            }
        }
        assert_eq!(decoded.error, None, "{name}");
        assert!(decoded.response.complete, "{name}");
        let said = Said::of(&decoded.response);
        assert_eq!(said, read(recorded), "{name}");
        assert_eq!(
            told(&events),
            (said.text, said.thoughts),
            "{name}: the events"
        );
    }
    println!("{wire}: {streams} streams, {bodies} bodies, {errors} errors");
    assert!(streams > 0 && bodies > 0);
}

/// The text and the thoughts that were told while the reply came in.
fn told(events: &[StreamEvent]) -> (String, String) {
    let mut told = (String::new(), String::new());
    for event in events {
        match event {
            StreamEvent::Content { delta } => told.0.push_str(delta),
            StreamEvent::Thinking { delta } => told.1.push_str(delta),
            _ => {}
        }
    }
    told
}

/// The `data` of a recorded stream's events that are JSON.
pub(crate) fn events(recorded: &Recorded) -> Vec<Value> {
    let lines = recorded.exchange.reply().lines();
    lines
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Arguments as a reader without knowledge sees them.
pub(crate) fn arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(arguments) => arguments,
        Err(_) if text.is_empty() => serde_json::json!({}),
        Err(_) => text.into(),
    }
}

/// A string, if it is one.
pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
