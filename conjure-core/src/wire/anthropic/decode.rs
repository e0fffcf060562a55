//! Decodes a reply, streamed or whole.
//!
//! Tolerant of what gateways leave out or add, strict about what would change the meaning: two
//! messages in one stream, pieces of a block that never began, data that is not JSON.

use std::borrow::Cow;
use std::mem;

use serde::Deserialize;
use serde_json::Value;

use super::block::Block;
use super::{PROVIDER, PROVIDER_NAME, errors, usage};
use crate::chat::{Response, Stop, StopReason, StreamEvent};
use crate::wire::failure::{self, RequestTarget, describe_body, text_of};
use crate::wire::scan::{Count, LooseString};
use crate::wire::stream::{self, MAX_PARTS, ReplyAssembler, ReplyStreamDecoder, TOO_MANY};
use crate::wire::{Decoded, Endpoint, ReplyDecoder, WireError, model_family};

/// A decoder for the body of one streaming reply.
///
/// A gateway that answers a streaming request with one JSON body is understood too.
#[must_use]
pub fn decoder() -> impl ReplyDecoder + 'static {
    decoder_of(&Endpoint::new(PROVIDER))
}

/// Like [`decoder`], for any provider that speaks this wire.
pub(in crate::wire) fn decoder_of(endpoint: &Endpoint) -> impl ReplyDecoder + use<> {
    ReplyStreamDecoder::new(AnthropicReply::new(endpoint))
}

/// Decodes the body of a reply that does not stream.
#[must_use]
pub fn decode_body(bytes: &[u8]) -> Decoded {
    decode_body_of(&Endpoint::new(PROVIDER), bytes)
}

/// Like [`decode_body`], for any provider that speaks this wire.
pub(in crate::wire) fn decode_body_of(endpoint: &Endpoint, bytes: &[u8]) -> Decoded {
    stream::decode_body(AnthropicReply::new(endpoint), bytes)
}

/// A reply while it comes in.
#[derive(Clone, Default)]
struct AnthropicReply {
    response: Response,
    provider: String,
    /// The model that was asked for.
    requested_model: Option<String>,
    /// Where the provider is, as a person may see it.
    base_url: Option<String>,
    family: String,
    blocks: Vec<Block>,
    /// Whether an event of this API came.
    has_events: bool,
    started: bool,
    /// Whether `message_start` said why the message stopped: then nothing has to follow.
    stopped_at_start: bool,
    /// Whether the wire's own end came.
    is_ended: bool,
    error: Option<WireError>,
}

/// A delta of the kinds that come by the hundred, read in place.
#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: LooseString<'a>,
    index: Option<Count>,
    #[serde(borrow)]
    delta: PieceDelta<'a>,
}

/// `content_block_stop` or `message_stop`, read in place.
#[derive(Deserialize)]
struct BlockEnd<'a> {
    #[serde(borrow, rename = "type")]
    kind: LooseString<'a>,
    index: Option<Count>,
}

#[derive(Deserialize)]
struct PieceDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: LooseString<'a>,
    #[serde(borrow, default, alias = "thinking", alias = "partial_json")]
    text: LooseString<'a>,
}

impl ReplyAssembler for AnthropicReply {
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.is_ended || self.error.is_some() || data.trim() == "[DONE]" {
            return;
        }
        let is_small = match name {
            "content_block_delta" => self.piece(data, out),
            "content_block_stop" => self.stop_of_block(data, out),
            "message_stop" => self.stop_of_message(data, out),
            "ping" => true,
            _ => false,
        };
        if is_small {
            self.has_events = true;
            return;
        }
        let Ok(data) = serde_json::from_str::<Value>(data) else {
            let shown = describe_body(data.as_bytes());
            self.protocol(&format!("an event that is not JSON: {shown}"));
            return;
        };
        self.has_events = true;
        let kind = data.get("type").and_then(Value::as_str);
        match kind.unwrap_or(name) {
            "message_start" => {
                if let Some(message) = data.get("message") {
                    self.start(message, out);
                }
            }
            "content_block_start" => self.block_start(&data, out),
            "content_block_delta" => self.block_delta(&data, out),
            "content_block_stop" => {
                if let Some(at) = self.open_block(&data) {
                    self.close(at, out);
                }
            }
            "message_delta" => {
                let delta = data.get("delta").unwrap_or(&Value::Null);
                self.take_fields(&data);
                self.take_fields(delta);
                self.take_stop(delta);
                self.take_usage(&data, out);
            }
            "message_stop" => self.end_message(out),
            "error" => {
                let error = data.get("error").unwrap_or(&Value::Null);
                self.error = Some(errors::in_stream(self.target(), error, self.has_shown()));
            }
            // `ping`, and kinds that this version does not know.
            _ => {}
        }
    }

    /// A whole reply in one piece.
    fn body(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) {
        if self.error.is_some() {
            return;
        }
        let body: Value = match serde_json::from_slice(bytes) {
            Ok(body) => body,
            // Left as it is: a body that just stops is a cut.
            Err(error) if error.is_eof() && !bytes.is_empty() => return,
            Err(_) => {
                let shown = describe_body(bytes);
                self.protocol(&format!("a body that is not JSON: {shown}"));
                return;
            }
        };
        if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
            self.error = Some(errors::in_stream(self.target(), error, false));
        } else if body.get("content").is_some_and(Value::is_array) {
            self.start(&body, out);
            self.end_message(out);
        } else {
            let shown = describe_body(bytes);
            self.protocol(&format!("JSON that is no message: {shown}"));
        }
    }

    fn protocol(&mut self, found: &str) {
        if self.error.is_none() && !self.is_ended {
            self.error = Some(failure::protocol(PROVIDER_NAME, found));
        }
    }

    fn too_large(&mut self, found: &str) {
        self.is_ended = false;
        failure::too_large(&mut self.error, found);
    }

    fn has_events(&self) -> bool {
        self.has_events
    }

    fn end(mut self, _out: &mut Vec<StreamEvent>) -> Decoded {
        let whole = self.blocks.iter().all(|block| block.is_complete);
        if self.error.is_none() && self.stopped_at_start && whole {
            self.is_ended = true;
        }
        if !self.is_ended && self.error.is_none() {
            self.error = Some(failure::cut(PROVIDER_NAME, self.has_shown()));
        }
        let mut response = self.response;
        response.parts = self
            .blocks
            .iter()
            .filter_map(|block| block.part(&self.provider, &self.family))
            .collect();
        response.complete = self.is_ended;
        Decoded {
            response,
            error: self.error,
        }
    }
}

impl AnthropicReply {
    fn new(endpoint: &Endpoint) -> Self {
        Self {
            provider: endpoint.provider.clone(),
            requested_model: endpoint.model.clone(),
            base_url: endpoint.base_url.clone(),
            ..Self::default()
        }
    }

    /// What the request asked for, and where.
    fn target(&self) -> RequestTarget<'_> {
        RequestTarget {
            model: self.requested_model.as_deref(),
            base_url: self.base_url.as_deref(),
        }
    }

    /// Whether a person has seen something of the reply, or a tool of the provider's has run. A call
    /// is not shown before the end, and a thought that is encrypted never.
    fn has_shown(&self) -> bool {
        self.blocks.iter().any(|block| match block.kind() {
            "tool_use" | "redacted_thinking" => false,
            // While it is written nobody runs it.
            "server_tool_use" | "mcp_tool_use" => block.is_complete,
            kind @ ("text" | "thinking") => !block.text(kind).is_empty(),
            _ => true,
        })
    }

    /// The end of the message; false when it is something else.
    fn stop_of_message(&mut self, data: &str, out: &mut Vec<StreamEvent>) -> bool {
        let end = serde_json::from_str::<BlockEnd<'_>>(data);
        let is_end = end.is_ok_and(|end| end.kind.str() == "message_stop");
        if is_end {
            self.end_message(out);
        }
        is_end
    }

    /// The end of a block; false when it ends none.
    fn stop_of_block(&mut self, data: &str, out: &mut Vec<StreamEvent>) -> bool {
        let Ok(BlockEnd { kind, index }) = serde_json::from_str::<BlockEnd<'_>>(data) else {
            return false;
        };
        let index = Some(index.unwrap_or_default().0);
        let open = self
            .blocks
            .iter()
            .rposition(|block| block.index.is_some() && block.index == index && !block.is_complete);
        match open {
            Some(at) if kind.str() == "content_block_stop" => {
                self.close(at, out);
                true
            }
            _ => false,
        }
    }

    /// A delta of text, thought or input; false when it is none of them or stands nowhere.
    fn piece(&mut self, data: &str, out: &mut Vec<StreamEvent>) -> bool {
        let Ok(BlockDelta { kind, index, delta }) = serde_json::from_str::<BlockDelta<'_>>(data)
        else {
            return false;
        };
        let index = Some(index.unwrap_or_default().0);
        let open = self
            .blocks
            .iter_mut()
            .rfind(|block| block.index.is_some() && block.index == index && !block.is_complete);
        let (Some(block), LooseString::Text(piece), "content_block_delta") =
            (open, delta.text, kind.str())
        else {
            return false;
        };
        let kind = delta.kind.str();
        if !matches!(kind, "text_delta" | "thinking_delta" | "input_json_delta") {
            return false;
        }
        block.push(kind, &piece);
        if piece.is_empty() {
            return true;
        }
        let delta = piece.into_owned();
        match kind {
            "text_delta" => out.push(StreamEvent::Content { delta }),
            "thinking_delta" => out.push(StreamEvent::Thinking { delta }),
            _ => {}
        }
        true
    }

    /// `message_start`, or a whole message. Blocks in it are finished: replies with programmatic
    /// tool calls come like that.
    fn start(&mut self, message: &Value, out: &mut Vec<StreamEvent>) {
        let text = |of: &str| {
            message
                .get(of)
                .and_then(Value::as_str)
                .map(stream::truncated_name)
        };
        let id = text("id").map(str::to_owned);
        if mem::replace(&mut self.started, true) {
            if id != self.response.id {
                self.protocol("a second message inside the first");
            }
            return;
        }
        self.response.id = id;
        self.response.model = text("model").unwrap_or_default().to_owned();
        self.family = model_family(&self.response.model);
        for block in message
            .get("content")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if self.blocks.len() >= MAX_PARTS {
                self.too_large(TOO_MANY);
                break;
            }
            self.blocks.push(Block::new(None, block.clone()));
            self.announce_newest(out);
            self.close(self.blocks.len() - 1, out);
        }
        self.take_fields(message);
        self.take_stop(message);
        self.take_usage(message, out);
        self.stopped_at_start = self.response.stop.is_some();
    }

    fn block_start(&mut self, data: &Value, out: &mut Vec<StreamEvent>) {
        let index = index_of(data);
        if self.blocks.len() >= MAX_PARTS {
            self.too_large(TOO_MANY);
            return;
        }
        if self
            .blocks
            .iter()
            .any(|b| b.index == index && !b.is_complete)
        {
            self.protocol("a block that begins inside another of the same number");
            return;
        }
        let block = data.get("content_block").cloned().unwrap_or_default();
        self.blocks.push(Block::new(index, block));
        self.announce_newest(out);
    }

    fn block_delta(&mut self, data: &Value, out: &mut Vec<StreamEvent>) {
        let at = self.open_block(data);
        let Some(block) = at.and_then(|at| self.blocks.get_mut(at)) else {
            self.protocol("a piece of a block that never began");
            return;
        };
        let delta = data.get("delta").unwrap_or(&Value::Null);
        let pieces = [
            ("text_delta", "text"),
            ("thinking_delta", "thinking"),
            ("input_json_delta", "partial_json"),
        ];
        let kind = text_of(delta, "type");
        let Some((kind, field)) = pieces.into_iter().find(|(known, _)| *known == kind) else {
            block.apply(delta);
            return;
        };
        // An input that a gateway hands on as it is instead of as its text.
        let piece = match delta.get(field) {
            Some(Value::String(piece)) => Cow::Borrowed(piece.as_str()),
            Some(other @ (Value::Object(_) | Value::Array(_))) if kind == "input_json_delta" => {
                Cow::Owned(other.to_string())
            }
            _ => Cow::Borrowed(""),
        };
        block.push(kind, &piece);
        if piece.is_empty() {
            return;
        }
        let delta = piece.into_owned();
        match kind {
            "text_delta" => out.push(StreamEvent::Content { delta }),
            "thinking_delta" => out.push(StreamEvent::Thinking { delta }),
            _ => {}
        }
    }

    /// What a block shows the moment it begins.
    fn announce_newest(&self, out: &mut Vec<StreamEvent>) {
        let Some(block) = self.blocks.last() else {
            return;
        };
        match block.kind() {
            "text" if !block.text("text").is_empty() => out.push(StreamEvent::Content {
                delta: block.text("text").to_owned(),
            }),
            "thinking" if !block.text("thinking").is_empty() => out.push(StreamEvent::Thinking {
                delta: block.text("thinking").to_owned(),
            }),
            "tool_use" => out.push(StreamEvent::CallStarted {
                call_id: block.text("id").to_owned(),
                name: block.text("name").to_owned(),
            }),
            _ => {}
        }
    }

    fn close(&mut self, at: usize, out: &mut Vec<StreamEvent>) {
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        block.is_complete = true;
        match block.kind() {
            "text" | "thinking" | "redacted_thinking" => {}
            "tool_use" => out.push(StreamEvent::Call {
                call_id: block.text("id").to_owned(),
            }),
            _ => out.push(StreamEvent::ServerItem { item: block.item() }),
        }
    }

    fn open_block(&self, data: &Value) -> Option<usize> {
        let index = index_of(data);
        self.blocks
            .iter()
            .rposition(|block| block.index.is_some() && block.index == index && !block.is_complete)
    }

    /// The wire's own end; blocks whose end a gateway left out end here too.
    fn end_message(&mut self, out: &mut Vec<StreamEvent>) {
        if self.error.is_some() {
            return;
        }
        let open: Vec<usize> = (0..self.blocks.len())
            .filter(|at| self.blocks.get(*at).is_some_and(|block| !block.is_complete))
            .collect();
        for at in open {
            self.close(at, out);
        }
        self.is_ended = true;
    }

    fn take_stop(&mut self, from: &Value) {
        if let Some(raw) = from.get("stop_reason").and_then(Value::as_str) {
            let sequence = from.get("stop_sequence").and_then(Value::as_str);
            self.response.stop = Some(Stop {
                reason: stop_reason(raw),
                raw: raw.to_owned(),
                sequence: sequence.map(str::to_owned),
            });
        }
    }

    /// Keeps what concerns the conversation. What a reply leaves out or sets to null stays.
    fn take_fields(&mut self, from: &Value) {
        for name in ["container", "stop_details", "context_management"] {
            if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
                self.response.fields.insert(name.to_owned(), value.clone());
            }
        }
    }

    fn take_usage(&mut self, from: &Value, out: &mut Vec<StreamEvent>) {
        if let Some(counts) = from.get("usage").filter(|counts| counts.is_object()) {
            usage::take(&mut self.response.usage, counts);
            out.push(StreamEvent::Usage(self.response.usage));
        }
    }
}

fn index_of(data: &Value) -> Option<u64> {
    Some(data.get("index").and_then(Value::as_u64).unwrap_or(0))
}

fn stop_reason(raw: &str) -> StopReason {
    match raw {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "stop_sequence" => StopReason::StopSequence,
        "max_tokens" => StopReason::MaxTokens,
        "model_context_window_exceeded" => StopReason::ContextWindow,
        // After a compaction on the provider's side too, the content goes back as it is.
        "pause_turn" | "compaction" => StopReason::Pause,
        "refusal" => StopReason::Refusal,
        _ => StopReason::Other,
    }
}
