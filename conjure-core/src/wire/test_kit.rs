//! What the tests of several wires share: streams out of values, decoding, small conversations.

use serde_json::Value;

use super::{Decoded, Encoded, Endpoint, Wire};
use crate::chat::{
    Content, FunctionCall, FunctionCallOutput, Message, Part, Response, Role, Sidecar, StreamEvent,
};
use crate::repair::{RepairTarget, repair};
use crate::request::{ModelRequest, ToolDefinition};

/// A wire as the tests of its folder use it.
pub(super) struct Rig {
    pub(super) wire: Wire,
    pub(super) provider: &'static str,
    pub(super) model: &'static str,
}

impl Rig {
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.provider).with_model(self.model)
    }

    pub(super) fn target(&self) -> RepairTarget {
        RepairTarget::new(self.provider, self.model).with_wire(self.wire)
    }

    /// Decodes pieces of one body.
    pub(super) fn pieces(&self, pieces: &[&[u8]]) -> (Decoded, Vec<StreamEvent>) {
        let mut decoder = self.wire.decoder(&self.endpoint());
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events);
        }
        let decoded = decoder.finish(&mut events);
        (decoded, events)
    }

    pub(super) fn decode(&self, body: &str) -> (Decoded, Vec<StreamEvent>) {
        self.pieces(&[body.as_bytes()])
    }

    /// A reply that must be whole.
    pub(super) fn complete_reply(&self, body: &str) -> Response {
        let decoded = self.decode(body).0;
        assert_eq!(decoded.error, None);
        assert!(decoded.response.complete);
        decoded.response
    }

    pub(super) fn request(&self, messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            messages: repair(messages, &self.target()),
            ..ModelRequest::empty(&self.target())
        }
    }

    pub(super) fn encode(&self, request: &ModelRequest) -> Encoded {
        let encoded = self.wire.encode(request, &self.endpoint());
        assert_eq!(self.wire.encode(request, &self.endpoint()), encoded);
        encoded
    }

    /// The body of a conversation's request.
    pub(super) fn body(&self, messages: Vec<Message>) -> Value {
        json(&self.encode(&self.request(messages)))
    }

    /// What this wire's model signed.
    pub(super) fn sidecar(&self, data: Value) -> Option<Sidecar> {
        Some(Sidecar {
            provider: self.provider.to_owned(),
            model_family: super::model_family(self.model),
            data,
        })
    }

    /// A conversation in which this reply's calls get `ok` as their results.
    pub(super) fn answered(&self, reply: &Response) -> Vec<Message> {
        let said = Message::new(Role::Assistant, reply.parts.clone());
        let results: Vec<Part> = said
            .calls()
            .map(|call| result(&call.call_id, "ok"))
            .collect();
        // As the log does: through its JSON.
        let text = serde_json::to_string(&said).unwrap();
        let said = serde_json::from_str(&text).unwrap();
        let mut messages = vec![Message::user("q"), said];
        if !results.is_empty() {
            messages.push(Message::new(Role::Tool, results));
        }
        messages
    }
}

/// The body as JSON.
pub(super) fn json(encoded: &Encoded) -> Value {
    serde_json::from_slice(&encoded.body).unwrap()
}

/// An SSE body of these events without names.
pub(super) fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

pub(super) fn call(id: &str, name: &str, arguments: Value) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: name.to_owned(),
        arguments,
        arguments_text: None,
    })
    .into()
}

pub(super) fn result(id: &str, text: &str) -> Part {
    Content::FunctionCallOutput(FunctionCallOutput::text(id, text, false)).into()
}

pub(super) fn assistant(parts: Vec<Part>) -> Message {
    Message::new(Role::Assistant, parts)
}

pub(super) fn results(parts: Vec<Part>) -> Message {
    Message::new(Role::Tool, parts)
}

pub(super) fn tool(name: &str, input_schema: Value) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema,
    }
}

/// The calls of a reply, with the text of arguments that cannot run.
pub(super) fn calls(response: &Response) -> Vec<(String, String, Value, Option<String>)> {
    response
        .parts
        .iter()
        .filter_map(Part::as_call)
        .map(|call| {
            (
                call.call_id.clone(),
                call.name.clone(),
                call.arguments.clone(),
                call.arguments_text.clone(),
            )
        })
        .collect()
}
