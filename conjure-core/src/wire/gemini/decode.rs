//! Decodes a reply, streamed or whole.
//!
//! A stream is a row of whole responses, each with some more parts; without `alt=sse` it is one
//! JSON array of them. Nothing marks the end: a reply is whole when a candidate said why it
//! finished, and everything up to the end of the body is read.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, MapAccess};
use serde_json::Value;
use serde_json::value::RawValue;

use super::pieces::{CandidateParts, PartForm, PartHead, RawPart};
use super::usage::Counts;
use super::{PROVIDER_NAME, errors};
use crate::chat::{Response, Stop, StopReason, StreamEvent};
use crate::wire::failure::{self, RequestTarget, describe_body};
use crate::wire::fill::{FieldReader, Fill, fill, fill_field, set, skip};
use crate::wire::scan::{Count, LooseString, SmallList};
use crate::wire::stream::{self, MAX_PARTS, ReplyAssembler, ReplyStreamDecoder, TOO_MANY};
use crate::wire::{Decoded, Endpoint, ReplyDecoder, WireError, model_family};

/// A decoder for the body of one reply.
pub(in crate::wire) fn decoder(endpoint: &Endpoint) -> impl ReplyDecoder + 'static {
    ReplyStreamDecoder::new(GeminiReply::new(endpoint))
}

/// Decodes the body of a reply that does not stream, or that is a JSON array.
pub(in crate::wire) fn decode_body(endpoint: &Endpoint, bytes: &[u8]) -> Decoded {
    stream::decode_body(GeminiReply::new(endpoint), bytes)
}

/// One response of a stream, read in place, with its parts in the form `P`.
#[derive(Default)]
struct GeminiChunk<'a, P> {
    candidates: Option<SmallList<ReplyCandidate<'a, P>>>,
    usage_metadata: Option<Counts>,
    model_version: LooseString<'a>,
    response_id: LooseString<'a>,
    prompt_feedback: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default)]
struct ReplyCandidate<'a, P> {
    index: Option<Count>,
    content: Option<CandidateContent<P>>,
    finish_reason: LooseString<'a>,
    finish_message: LooseString<'a>,
    grounding_metadata: Option<&'a RawValue>,
    url_context_metadata: Option<&'a RawValue>,
    citation_metadata: Option<&'a RawValue>,
}

#[derive(Default)]
struct CandidateContent<P> {
    parts: SmallList<P>,
}

impl<'de, P: Fill<'de>> FieldReader<'de> for GeminiChunk<'de, P> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "candidates" => fill_field(&mut self.candidates, map),
            "usageMetadata" => fill_field(&mut self.usage_metadata, map),
            "modelVersion" => set(&mut self.model_version, map),
            "responseId" => set(&mut self.response_id, map),
            "promptFeedback" => set(&mut self.prompt_feedback, map),
            "error" => set(&mut self.error, map),
            _ => skip(map),
        }
    }
}

impl<'de, P: Fill<'de>> FieldReader<'de> for ReplyCandidate<'de, P> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => set(&mut self.index, map),
            "content" => fill_field(&mut self.content, map),
            "finishReason" => set(&mut self.finish_reason, map),
            "finishMessage" => set(&mut self.finish_message, map),
            "groundingMetadata" => set(&mut self.grounding_metadata, map),
            "urlContextMetadata" => set(&mut self.url_context_metadata, map),
            "citationMetadata" => set(&mut self.citation_metadata, map),
            _ => skip(map),
        }
    }
}

impl<'de, P: Fill<'de>> FieldReader<'de> for CandidateContent<P> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "parts" => fill_field(&mut self.parts, map),
            _ => skip(map),
        }
    }
}

impl<'de, P: Fill<'de>> Deserialize<'de> for GeminiChunk<'de, P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut chunk = Self::default();
        chunk.fill(from)?;
        Ok(chunk)
    }
}

impl<P> GeminiChunk<'_, P> {
    fn parts(&self) -> impl Iterator<Item = &P> {
        let candidates = self.candidates.iter().flat_map(SmallList::iter);
        let said = candidates.filter_map(|candidate| candidate.content.as_ref());
        said.flat_map(|said| said.parts.iter())
    }
}

/// Room for an id or a model's name. Made with the decoder, as is what else every reply has: an
/// event then allocates only what it hands on.
const NAME_CAPACITY: usize = 48;

/// A reply while it comes in.
#[derive(Clone)]
struct GeminiReply {
    provider: String,
    requested_model: Option<String>,
    /// Where the provider is, as a person may see it.
    base_url: Option<String>,
    /// The reply's own id; empty until it is told.
    id: String,
    response: Response,
    pieces: CandidateParts,
    /// The word for why it finished.
    finish_reason: Option<Cow<'static, str>>,
    has_events: bool,
    /// Whether something came that is no reply: then its end is not known.
    is_unreadable: bool,
    error: Option<WireError>,
}

impl GeminiReply {
    fn new(endpoint: &Endpoint) -> Self {
        Self {
            provider: endpoint.provider.clone(),
            requested_model: endpoint.model.clone(),
            base_url: endpoint.base_url.clone(),
            id: String::with_capacity(NAME_CAPACITY),
            response: Response {
                model: String::with_capacity(NAME_CAPACITY),
                ..Response::default()
            },
            pieces: CandidateParts::default(),
            finish_reason: None,
            has_events: false,
            is_unreadable: false,
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
        errors::in_stream(self.target(), error, self.pieces.has_shown())
    }
}

impl ReplyAssembler for GeminiReply {
    fn event(&mut self, _name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.error.is_some() || data.trim() == "[DONE]" {
            return;
        }
        // Nearly all events hold texts and calls only, and are read once.
        let mut chunk = GeminiChunk::<'_, PartHead<'_>>::default();
        if fill(&mut chunk, data).is_ok() && !chunk.parts().any(PartHead::is_item) {
            self.has_events = true;
            self.take(&mut chunk, out);
            return;
        }
        let mut chunk = GeminiChunk::<'_, RawPart<'_>>::default();
        if fill(&mut chunk, data).is_err() {
            let shown = describe_body(data.as_bytes());
            self.protocol(&format!("an event that is no response: {shown}"));
            return;
        }
        self.has_events = true;
        self.take(&mut chunk, out);
    }

    fn body(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) {
        if self.error.is_some() {
            return;
        }
        let trimmed = bytes.trim_ascii_start();
        let mut rest = trimmed.strip_prefix(b"[").unwrap_or(trimmed);
        loop {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
            let start = rest.iter().position(|byte| !blank(byte));
            rest = start
                .and_then(|start| rest.get(start..))
                .unwrap_or_default();
            if rest.is_empty() || rest.starts_with(b"]") || self.error.is_some() {
                return;
            }
            let mut values = serde_json::Deserializer::from_slice(rest)
                .into_iter::<GeminiChunk<'_, RawPart<'_>>>();
            match values.next() {
                Some(Ok(mut chunk)) => {
                    let is_response = chunk.candidates.is_some()
                        || chunk.prompt_feedback.is_some()
                        || chunk.usage_metadata.is_some()
                        || chunk.error.is_some();
                    if !is_response {
                        let shown = describe_body(bytes);
                        self.protocol(&format!("JSON that is no response: {shown}"));
                        return;
                    }
                    self.take(&mut chunk, out);
                }
                // Left as it is: a body that just stops is a cut.
                Some(Err(error)) if error.is_eof() => return,
                _ => {
                    let shown = describe_body(bytes);
                    self.protocol(&format!("a body that is no response: {shown}"));
                    return;
                }
            }
            let read = values.byte_offset();
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    fn protocol(&mut self, found: &str) {
        if self.error.is_none() {
            self.is_unreadable = true;
            self.error = Some(failure::protocol(PROVIDER_NAME, found));
        }
    }

    fn too_large(&mut self, found: &str) {
        self.is_unreadable = true;
        failure::too_large(&mut self.error, found);
    }

    fn has_events(&self) -> bool {
        self.has_events
    }

    fn end(mut self, out: &mut Vec<StreamEvent>) -> Decoded {
        let stop = self.stop();
        let runs = stop
            .as_ref()
            .is_some_and(|stop| stop.reason.calls_may_run());
        if runs && self.error.is_none() {
            self.pieces.close(out);
        }
        if stop.is_none() && self.error.is_none() {
            self.error = Some(failure::cut(PROVIDER_NAME, self.pieces.has_shown()));
        }
        let model = self
            .requested_model
            .as_deref()
            .unwrap_or(&self.response.model);
        let family = model_family(model);
        let mut response = self.response;
        response.id = (!self.id.is_empty()).then_some(self.id);
        response.complete = stop.is_some() && !self.is_unreadable;
        response.stop = stop;
        response.parts = self.pieces.into_parts(&self.provider, &family);
        Decoded {
            response,
            error: self.error,
        }
    }
}

impl GeminiReply {
    fn take<P: PartForm>(&mut self, chunk: &mut GeminiChunk<'_, P>, out: &mut Vec<StreamEvent>) {
        if self.id.is_empty() {
            self.id
                .push_str(stream::truncated_name(chunk.response_id.str()));
        }
        if self.response.model.is_empty() {
            let model = stream::truncated_name(chunk.model_version.str());
            self.response.model.push_str(model);
        }
        for candidate in chunk.candidates.iter_mut().flat_map(SmallList::iter_mut) {
            if candidate.index.unwrap_or_default().0 == 0 {
                self.candidate(candidate, out);
            }
        }
        if let Some(counts) = &chunk.usage_metadata {
            let usage = counts.usage();
            if usage != self.response.usage {
                self.response.usage = usage;
                out.push(StreamEvent::Usage(usage));
            }
        }
        if let Some(feedback) = chunk.prompt_feedback {
            let feedback: Value = serde_json::from_str(feedback.get()).unwrap_or_default();
            if let Some(word) = feedback.get("blockReason").and_then(Value::as_str) {
                self.finish_reason = Some(Cow::Owned(word.to_owned()));
                self.response
                    .fields
                    .insert("promptFeedback".to_owned(), feedback);
            }
        }
        if let Some(error) = chunk.error {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            self.error = Some(self.failure(&error));
        }
    }

    fn candidate<P: PartForm>(
        &mut self,
        candidate: &mut ReplyCandidate<'_, P>,
        out: &mut Vec<StreamEvent>,
    ) {
        let parts = candidate.content.iter_mut();
        for part in parts.flat_map(|said| said.parts.iter_mut()) {
            if self.pieces.len() >= MAX_PARTS {
                self.too_large(TOO_MANY);
                return;
            }
            if !part.append_to(&mut self.pieces, out) {
                self.protocol("a part that cannot be read");
            }
        }
        let fields = [
            ("groundingMetadata", candidate.grounding_metadata),
            ("urlContextMetadata", candidate.url_context_metadata),
            ("citationMetadata", candidate.citation_metadata),
        ];
        for (name, value) in fields {
            let value = value.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
            if let Some(value) = value.filter(|value| !value.is_null()) {
                self.response.fields.insert(name.to_owned(), value);
            }
        }
        let Some(word) = candidate
            .finish_reason
            .as_str()
            .filter(|word| !word.is_empty())
        else {
            return;
        };
        match word {
            // A second `STOP` does not make up for what was said before.
            "STOP" if self.finish_reason.is_some() => {}
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "MISSING_THOUGHT_SIGNATURE"
            | "TOO_MANY_TOOL_CALLS" => {
                let why = candidate.finish_message.str();
                let told = format!("the model's call cannot be used ({word}) {why}");
                let error = serde_json::json!({"message": told.trim_end(), "code": 500});
                self.finish_reason = Some(Cow::Owned(word.to_owned()));
                self.error = Some(self.failure(&error));
            }
            "STOP" => self.finish_reason = Some(Cow::Borrowed("STOP")),
            "MAX_TOKENS" => self.finish_reason = Some(Cow::Borrowed("MAX_TOKENS")),
            _ => self.finish_reason = Some(Cow::Owned(word.to_owned())),
        }
    }

    /// A reply with calls says `STOP` too: its parts tell what it waits for.
    fn stop(&self) -> Option<Stop> {
        let raw = self.finish_reason.clone()?;
        let reason = match raw.as_ref() {
            "STOP" if self.pieces.has_calls() => StopReason::ToolUse,
            "STOP" => StopReason::EndTurn,
            "MAX_TOKENS" => StopReason::MaxTokens,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "BLOCK_REASON_UNSPECIFIED"
            | "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "MISSING_THOUGHT_SIGNATURE"
            | "TOO_MANY_TOOL_CALLS" => StopReason::Refusal,
            _ => StopReason::Other,
        };
        Some(Stop {
            reason,
            raw: raw.into_owned(),
            sequence: None,
        })
    }
}
