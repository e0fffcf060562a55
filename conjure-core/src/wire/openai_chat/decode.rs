//! Decodes a reply, streamed or whole.
//!
//! Reads every way in which a server of this API is known to write; the dialect says only what the
//! end of a stream looks like. Of several choices the first is read.

use serde::de::MapAccess;
use serde_json::Value;
use serde_json::value::RawValue;

use super::assembly::{Assembly, Delta};
use super::usage::usage;
use super::{Dialect, errors};
use crate::chat::{Content, Response, Stop, StopReason, StreamEvent};
use crate::wire::failure::{self, RequestTarget, describe_body};
use crate::wire::fill::{FieldReader, fill, fill_bytes, fill_field, set, skip};
use crate::wire::scan::{Count, LooseString, SmallList};
use crate::wire::stream::{self, MAX_PARTS, ReplyAssembler, ReplyStreamDecoder, TOO_MANY};
use crate::wire::{Decoded, Endpoint, ReplyDecoder, WireError, model_family};

/// A decoder for the body of one reply.
pub(in crate::wire) fn decoder(endpoint: &Endpoint) -> impl ReplyDecoder + 'static {
    ReplyStreamDecoder::new(ChatReply::new(endpoint))
}

/// Decodes the body of a reply that does not stream.
pub(in crate::wire) fn decode_body(endpoint: &Endpoint, bytes: &[u8]) -> Decoded {
    stream::decode_body(ChatReply::new(endpoint), bytes)
}

/// A chunk of a stream, or a whole reply, read in place.
#[derive(Default)]
struct ChatChunk<'a> {
    id: LooseString<'a>,
    model: LooseString<'a>,
    choices: Option<SmallList<Choice<'a>>>,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default)]
struct Choice<'a> {
    index: Option<Count>,
    delta: Option<Delta<'a>>,
    finish_reason: LooseString<'a>,
}

impl<'de> FieldReader<'de> for ChatChunk<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "id" => set(&mut self.id, map),
            "model" => set(&mut self.model, map),
            "choices" => fill_field(&mut self.choices, map),
            "usage" => set(&mut self.usage, map),
            "error" => set(&mut self.error, map),
            _ => skip(map),
        }
    }
}

impl<'de> FieldReader<'de> for Choice<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => set(&mut self.index, map),
            "delta" | "message" => fill_field(&mut self.delta, map),
            "finish_reason" => set(&mut self.finish_reason, map),
            _ => skip(map),
        }
    }
}

/// A reply while it comes in.
#[derive(Clone)]
struct ChatReply {
    provider: String,
    requested_model: Option<String>,
    /// Where the provider is, as a person may see it.
    base_url: Option<String>,
    dialect: Dialect,
    response: Response,
    message: Assembly,
    /// The word for why it stopped.
    finish_reason: Option<String>,
    has_events: bool,
    /// Whether `[DONE]` came, or a whole body.
    is_done: bool,
    /// Whether its tokens were told, which a server does when the reply is whole.
    has_usage: bool,
    error: Option<WireError>,
}

impl ChatReply {
    fn new(endpoint: &Endpoint) -> Self {
        Self {
            provider: endpoint.provider.clone(),
            requested_model: endpoint.model.clone(),
            base_url: endpoint.base_url.clone(),
            dialect: endpoint.dialect.clone(),
            response: Response::default(),
            message: Assembly::default(),
            finish_reason: None,
            has_events: false,
            is_done: false,
            has_usage: false,
            error: None,
        }
    }

    /// What the request asked for, and where.
    fn target(&self) -> RequestTarget<'_> {
        RequestTarget {
            model: self.requested_model.as_deref(),
            base_url: self.base_url.as_deref(),
        }
    }

    /// What an error inside the reply means.
    fn failure(&self, error: &Value) -> WireError {
        let shown = self.message.has_shown();
        errors::in_stream(&self.dialect.title, self.target(), error, shown)
    }
}

impl ReplyAssembler for ChatReply {
    fn event(&mut self, _name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.is_done || self.error.is_some() {
            return;
        }
        if data.trim() == "[DONE]" {
            self.has_events = true;
            self.is_done = true;
            return;
        }
        let mut chunk = ChatChunk::default();
        if fill(&mut chunk, data).is_err() {
            let shown = describe_body(data.as_bytes());
            self.protocol(&format!("an event that is no chunk of a reply: {shown}"));
            return;
        }
        self.has_events = true;
        self.take(&mut chunk, true, out);
    }

    fn body(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) {
        if self.error.is_some() {
            return;
        }
        let mut chunk = ChatChunk::default();
        match fill_bytes(&mut chunk, bytes) {
            Ok(()) => {}
            // Left as it is: a body that just stops is a cut.
            Err(error) if error.is_eof() && !bytes.is_empty() => return,
            Err(_) => {
                let shown = describe_body(bytes);
                self.protocol(&format!("a body that is no reply: {shown}"));
                return;
            }
        }
        if chunk.choices.is_none() && chunk.error.is_none() {
            let shown = describe_body(bytes);
            self.protocol(&format!("JSON that is no reply: {shown}"));
            return;
        }
        self.take(&mut chunk, false, out);
        self.is_done = self.error.is_none();
    }

    fn protocol(&mut self, found: &str) {
        if self.error.is_none() && !self.is_done {
            self.error = Some(failure::protocol(&self.dialect.title, found));
        }
    }

    fn too_large(&mut self, found: &str) {
        self.is_done = false;
        failure::too_large(&mut self.error, found);
    }

    fn has_events(&self) -> bool {
        self.has_events
    }

    fn end(mut self, out: &mut Vec<StreamEvent>) -> Decoded {
        let ended = self.is_done || (self.finish_reason.is_some() && !self.dialect.ends_with_done);
        // Upstreams of routers leave the reason out; the tokens and `[DONE]` then say that the
        // reply is whole.
        let told_why = self.finish_reason.is_some() || !self.dialect.says_why || self.has_usage;
        let complete = self.error.is_none() && ended && told_why;
        if !complete && self.error.is_none() {
            let shown = self.message.has_shown();
            self.error = Some(failure::cut(&self.dialect.title, shown));
        }
        self.response.stop = self.stop();
        let stop = self.response.stop.as_ref();
        let cut = stop.is_some_and(|stop| !stop.reason.calls_may_run());
        let model = self
            .requested_model
            .as_deref()
            .unwrap_or(&self.response.model);
        let family = model_family(model);
        let mut response = self.response;
        response.parts = self
            .message
            .into_parts(&self.provider, &family, complete, cut);
        response.complete = complete;
        // Only the end says that a call is whole.
        for part in &response.parts {
            if let Content::FunctionCall(call) = &part.content
                && call.arguments_text.is_none()
                && complete
            {
                out.push(StreamEvent::Call {
                    call_id: call.call_id.clone(),
                });
            }
        }
        Decoded {
            response,
            error: self.error,
        }
    }
}

impl ChatReply {
    fn take(&mut self, chunk: &mut ChatChunk<'_>, streams: bool, out: &mut Vec<StreamEvent>) {
        if self.response.id.is_none()
            && let Some(id) = chunk.id.as_str().filter(|id| !id.is_empty())
        {
            self.response.id = Some(stream::truncated_name(id).to_owned());
        }
        if self.response.model.is_empty() {
            stream::truncated_name(chunk.model.str()).clone_into(&mut self.response.model);
        }
        for choice in chunk.choices.iter_mut().flat_map(SmallList::iter_mut) {
            if choice.index.unwrap_or_default().0 != 0 {
                continue;
            }
            if let Some(delta) = &mut choice.delta
                && !self.message.take(delta, streams, out)
            {
                self.protocol("a tool call that cannot be read");
            }
            if self.message.calls() > MAX_PARTS {
                self.too_large(TOO_MANY);
            }
            if let Some(reason) = choice
                .finish_reason
                .as_str()
                .filter(|word| !word.is_empty())
            {
                self.finish_reason = Some(reason.to_owned());
            }
        }
        if let Some(counts) = chunk.usage {
            let counts: Value = serde_json::from_str(counts.get()).unwrap_or_default();
            if counts.is_object() {
                self.has_usage = true;
                let usage = usage(&counts);
                if usage != self.response.usage {
                    self.response.usage = usage;
                    out.push(StreamEvent::Usage(usage));
                }
            }
        }
        if let Some(error) = chunk.error {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            self.error = Some(self.failure(&error));
        } else if let Some(word @ ("error" | "insufficient_system_resource")) =
            self.finish_reason.as_deref()
        {
            let error = serde_json::json!({
                "message": format!("it stopped with `{word}`"),
                "code": if word == "error" { "server_error" } else { "server_is_overloaded" },
            });
            self.error = Some(self.failure(&error));
        }
    }

    fn stop(&self) -> Option<Stop> {
        let raw = self.finish_reason.clone()?;
        let reason = match raw.as_str() {
            "length" | "max_tokens" => StopReason::MaxTokens,
            "model_length" => StopReason::ContextWindow,
            "content_filter" | "safety" => StopReason::Refusal,
            _ if self.message.has_calls() => StopReason::ToolUse,
            _ if self.message.refuses() => StopReason::Refusal,
            "stop" | "eos" | "end_turn" => StopReason::EndTurn,
            "tool_calls" | "function_call" => StopReason::ToolUse,
            _ => StopReason::Other,
        };
        Some(Stop {
            reason,
            raw,
            sequence: None,
        })
    }
}
