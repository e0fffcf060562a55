//! Decodes a reply, streamed or whole.
//!
//! What an item says is taken from its own `done` event, and events are told apart by the place of
//! their item: gateways change item ids between events. Tolerant of what gateways leave out; the
//! end of the stream is one of three events and nothing else.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::item::{self, Signer, is_call, is_cut, kind, text};
use super::usage::usage;
use super::{PROVIDER_NAME, errors};
use crate::chat::{Response, Stop, StopReason, StreamEvent};
use crate::wire::failure::{self, RequestTarget, describe_body};
use crate::wire::scan::{Count, LooseString};
use crate::wire::stream::{self, MAX_PARTS, ReplyAssembler, ReplyStreamDecoder, TOO_MANY};
use crate::wire::{Decoded, Endpoint, ReplyDecoder, WireError, model_family};

/// A decoder for the body of one reply.
pub(in crate::wire) fn decoder(endpoint: &Endpoint) -> impl ReplyDecoder + 'static {
    ReplyStreamDecoder::new(ResponsesReply::new(endpoint))
}

/// Decodes the body of a reply that does not stream.
pub(in crate::wire) fn decode_body(endpoint: &Endpoint, bytes: &[u8]) -> Decoded {
    stream::decode_body(ResponsesReply::new(endpoint), bytes)
}

/// What is said of an item that is missing, or nested too deeply to be read.
const UNREADABLE: &str = "an item that cannot be read";

/// An event, read in place.
#[derive(Deserialize)]
struct ResponseEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: LooseString<'a>,
    output_index: Option<Count>,
    content_index: Option<Count>,
    summary_index: Option<Count>,
    #[serde(borrow, default)]
    delta: LooseString<'a>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// A response object, as far as it is used.
#[derive(Deserialize)]
struct ResponseObject<'a> {
    #[serde(borrow, default)]
    id: LooseString<'a>,
    #[serde(borrow, default)]
    model: LooseString<'a>,
    #[serde(borrow, default)]
    status: LooseString<'a>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    usage: Value,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    incomplete_details: Value,
}

/// What kind of text a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemTextKind {
    Text,
    Refusal,
    Summary,
    Thought,
    Arguments,
}

/// An item while it comes in.
#[derive(Debug, Clone)]
struct OutputItem {
    index: u64,
    /// As `output_item.added` had it.
    initial: Value,
    /// Pieces so far, by kind and place in the item.
    texts: Vec<(ItemTextKind, u64, String)>,
    /// As `output_item.done` had it.
    done: Option<Value>,
}

/// A reply while it comes in.
#[derive(Clone)]
struct ResponsesReply {
    signer: Signer,
    requested_model: Option<String>,
    /// Where the provider is, as a person may see it.
    base_url: Option<String>,
    response: Response,
    items: Vec<OutputItem>,
    has_events: bool,
    /// Whether the wire's own end came.
    is_ended: bool,
    error: Option<WireError>,
}

impl ResponsesReply {
    fn new(endpoint: &Endpoint) -> Self {
        Self {
            signer: Signer {
                provider: endpoint.provider.clone(),
                family: String::new(),
            },
            requested_model: endpoint.model.clone(),
            base_url: endpoint.base_url.clone(),
            response: Response::default(),
            items: Vec::new(),
            has_events: false,
            is_ended: false,
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
}

impl ReplyAssembler for ResponsesReply {
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.is_ended || self.error.is_some() || data.trim() == "[DONE]" {
            return;
        }
        if name == "response.in_progress" {
            // As large as the request, and says nothing new.
            self.has_events = true;
            return;
        }
        let Ok(event) = serde_json::from_str::<ResponseEvent<'_>>(data) else {
            let shown = describe_body(data.as_bytes());
            self.protocol(&format!("an event that is not JSON: {shown}"));
            return;
        };
        self.has_events = true;
        if self.items.len() > MAX_PARTS {
            self.too_large(TOO_MANY);
            return;
        }
        let kind = event.kind.as_str().unwrap_or(name);
        match kind {
            "response.output_text.delta" => self.piece(ItemTextKind::Text, &event, out),
            "response.refusal.delta" => self.piece(ItemTextKind::Refusal, &event, out),
            "response.reasoning_summary_text.delta" => {
                self.piece(ItemTextKind::Summary, &event, out);
            }
            "response.reasoning_text.delta" => self.piece(ItemTextKind::Thought, &event, out),
            "response.function_call_arguments.delta"
            | "response.custom_tool_call_input.delta"
            | "response.mcp_call_arguments.delta" => {
                self.piece(ItemTextKind::Arguments, &event, out);
            }
            "response.output_item.added" => match parsed(event.item) {
                Some(item) => self.begin_item(output_index(&event), item, out),
                None => self.protocol(UNREADABLE),
            },
            "response.output_item.done" => match parsed(event.item) {
                Some(item) => self.complete_item(output_index(&event), item, out),
                None => self.protocol(UNREADABLE),
            },
            "response.created" | "response.queued" => {
                if let Some(object) = object(event.response) {
                    self.name(&object);
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => match object(event.response) {
                Some(object) => self.finish(&object, out),
                None => self.protocol("an end without a response"),
            },
            "error" => {
                let event: Value = serde_json::from_str(data).unwrap_or_default();
                let error = event.get("error").filter(|error| !error.is_null());
                let error = error.unwrap_or(&event);
                self.error = Some(errors::in_stream(self.target(), error, self.has_shown()));
            }
            // Those that repeat what a later one says, and kinds that are not known.
            _ => {}
        }
    }

    fn body(&mut self, bytes: &[u8], out: &mut Vec<StreamEvent>) {
        if self.error.is_some() {
            return;
        }
        let body: &RawValue = match serde_json::from_slice(bytes) {
            Ok(body) => body,
            // Left as it is: a body that just stops is a cut.
            Err(error) if error.is_eof() && !bytes.is_empty() => return,
            Err(_) => {
                let shown = describe_body(bytes);
                self.protocol(&format!("a body that is not JSON: {shown}"));
                return;
            }
        };
        let Some(object) = object(Some(body)) else {
            let shown = describe_body(bytes);
            self.protocol(&format!("JSON that is no response: {shown}"));
            return;
        };
        if object.output.is_some() || !object.status.str().is_empty() {
            self.finish(&object, out);
        } else if object.error.is_null() {
            let shown = describe_body(bytes);
            self.protocol(&format!("JSON that is no response: {shown}"));
        } else {
            self.error = Some(errors::in_stream(self.target(), &object.error, false));
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
        if !self.is_ended && self.error.is_none() {
            self.error = Some(failure::cut(PROVIDER_NAME, self.has_shown()));
        }
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.index);
        // The provider's own tools: what did not come to its end is not an item yet.
        items.retain(|item| {
            let kind = kind(&item.initial);
            item.done.is_some() || matches!(kind, "message" | "reasoning") || is_call(&item.initial)
        });
        let items: Vec<Value> = items.into_iter().map(OutputItem::value).collect();
        let mut response = self.response;
        response.parts = item::parts(&items, &self.signer);
        response.complete = self.is_ended;
        Decoded {
            response,
            error: self.error,
        }
    }
}

impl ResponsesReply {
    /// Whether a person has seen something of the reply, or a tool of the provider's has run. A call
    /// is not shown before the end.
    fn has_shown(&self) -> bool {
        self.items.iter().any(|item| {
            let shown = item.done.as_ref().unwrap_or(&item.initial);
            let told = |(field, _, text): &(ItemTextKind, u64, String)| {
                *field != ItemTextKind::Arguments && !text.is_empty()
            };
            match kind(shown) {
                "function_call" | "custom_tool_call" => false,
                // They only read: run twice, they do no harm.
                "web_search_call" | "file_search_call" | "mcp_list_tools" => item.done.is_some(),
                "message" => item.texts.iter().any(told) || !item::message_text(shown).is_empty(),
                "reasoning" => item.texts.iter().any(told) || !item::thought_text(shown).is_empty(),
                _ => true,
            }
        })
    }

    fn name(&mut self, object: &ResponseObject<'_>) {
        if let Some(id) = object.id.as_str() {
            self.response.id = Some(stream::truncated_name(id).to_owned());
        }
        if let Some(model) = object.model.as_str() {
            stream::truncated_name(model).clone_into(&mut self.response.model);
        }
        let model = self
            .requested_model
            .as_deref()
            .unwrap_or(&self.response.model);
        self.signer.family = model_family(model);
    }

    fn begin_item(&mut self, index: Option<u64>, item: Value, out: &mut Vec<StreamEvent>) {
        let index = index.unwrap_or(self.items.len() as u64);
        if self.items.iter().any(|known| known.index == index) {
            // A gateway that repeats itself.
            return;
        }
        announce(&item, out);
        self.items.push(OutputItem {
            index,
            initial: item,
            texts: Vec::new(),
            done: None,
        });
    }

    fn piece(
        &mut self,
        field: ItemTextKind,
        event: &ResponseEvent<'_>,
        out: &mut Vec<StreamEvent>,
    ) {
        let Some(delta) = event.delta.as_str().filter(|delta| !delta.is_empty()) else {
            return;
        };
        let at = match event.output_index {
            Some(index) => self.items.iter().rposition(|item| item.index == index.0),
            None => self.items.len().checked_sub(1),
        };
        let at = at.unwrap_or_else(|| {
            self.items.push(OutputItem {
                index: event.output_index.unwrap_or_default().0,
                initial: json!({"type": field.item()}),
                texts: Vec::new(),
                done: None,
            });
            self.items.len() - 1
        });
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let place = event.content_index.or(event.summary_index);
        let place = place.unwrap_or_default().0;
        let known = item
            .texts
            .iter_mut()
            .rfind(|(known, at, _)| *known == field && *at == place);
        let mut before = "";
        match known {
            Some((_, _, text)) => text.push_str(delta),
            None => {
                // Pieces of a thought are joined like that in the end.
                if item.texts.len() >= MAX_PARTS {
                    self.too_large(TOO_MANY);
                    return;
                }
                if field.is_thought() && item.texts.iter().any(|(_, _, text)| !text.is_empty()) {
                    before = "\n\n";
                }
                item.texts.push((field, place, delta.to_owned()));
            }
        }
        let told = || {
            if before.is_empty() {
                delta.to_owned()
            } else {
                format!("{before}{delta}")
            }
        };
        match field {
            ItemTextKind::Text | ItemTextKind::Refusal => {
                out.push(StreamEvent::Content { delta: told() });
            }
            ItemTextKind::Summary | ItemTextKind::Thought => {
                out.push(StreamEvent::Thinking { delta: told() });
            }
            ItemTextKind::Arguments => {}
        }
    }

    fn complete_item(&mut self, index: Option<u64>, mut item: Value, out: &mut Vec<StreamEvent>) {
        let at = match index {
            Some(index) => self.items.iter().rposition(|known| known.index == index),
            None => self.items.iter().position(|known| known.done.is_none()),
        };
        let at = at.unwrap_or_else(|| {
            announce(&item, out);
            self.items.push(OutputItem {
                index: index.unwrap_or(self.items.len() as u64),
                initial: Value::Null,
                texts: Vec::new(),
                done: None,
            });
            self.items.len() - 1
        });
        let Some(known) = self.items.get_mut(at).filter(|known| known.done.is_none()) else {
            return;
        };
        // What did not come in pieces is told now.
        let unsaid = |said: String, whole: &str| -> Option<String> {
            let rest = whole.strip_prefix(said.as_str())?;
            (!rest.is_empty()).then(|| rest.to_owned())
        };
        match kind(&item) {
            "message" => {
                let delta = unsaid(known.streamed_text(), &item::message_text(&item));
                out.extend(delta.map(|delta| StreamEvent::Content { delta }));
            }
            "reasoning" => {
                let delta = unsaid(known.streamed_text(), &item::thought_text(&item));
                out.extend(delta.map(|delta| StreamEvent::Thinking { delta }));
            }
            _ if is_call(&item) => {
                known.complete_arguments(&mut item);
                if !is_cut(&item) {
                    out.push(StreamEvent::Call {
                        call_id: text(&item, "call_id").to_owned(),
                    });
                }
            }
            _ => out.push(StreamEvent::ServerItem { item: item.clone() }),
        }
        known.done = Some(item);
    }

    /// The end: what it repeats is taken only where it did not come before.
    fn finish(&mut self, object: &ResponseObject<'_>, out: &mut Vec<StreamEvent>) {
        self.name(object);
        for (index, item) in (0..).zip(object.output.iter().flatten()) {
            let known = self.items.iter().find(|known| known.index == index);
            if known.is_some_and(|known| known.done.is_some()) {
                continue;
            }
            if known.is_none() && self.items.len() >= MAX_PARTS {
                self.too_large(TOO_MANY);
                break;
            }
            match parsed(Some(item)) {
                Some(item) => self.complete_item(Some(index), item, out),
                None => self.protocol(UNREADABLE),
            }
        }
        if object.usage.is_object() {
            self.response.usage = usage(&object.usage);
            out.push(StreamEvent::Usage(self.response.usage));
        }
        match object.status.as_str() {
            Some("failed" | "cancelled") => {
                let error = if object.error.is_null() {
                    &object.incomplete_details
                } else {
                    &object.error
                };
                self.error = Some(errors::in_stream(self.target(), error, self.has_shown()));
                return;
            }
            Some("queued" | "in_progress") => {
                self.protocol("a response that is still being made; ask without `background`");
                return;
            }
            _ => {}
        }
        if self.error.is_none() {
            self.is_ended = true;
            self.response.stop = Some(self.stop(object));
        }
    }

    fn stop(&self, object: &ResponseObject<'_>) -> Stop {
        let status = object.status.as_str().unwrap_or("completed");
        let reason = object.incomplete_details.get("reason");
        let raw = reason.and_then(Value::as_str).unwrap_or(status);
        let done = || self.items.iter().filter_map(|item| item.done.as_ref());
        let refuses = |item: &Value| {
            let content = item.get("content").and_then(Value::as_array);
            content
                .into_iter()
                .flatten()
                .any(|piece| kind(piece) == "refusal")
        };
        let reason = match (status, raw) {
            (_, "content_filter") => StopReason::Refusal,
            (_, "max_output_tokens") | ("incomplete", _) => StopReason::MaxTokens,
            _ if done().any(is_call) => StopReason::ToolUse,
            _ if done().any(refuses) => StopReason::Refusal,
            ("completed", _) => StopReason::EndTurn,
            _ => StopReason::Other,
        };
        Stop {
            reason,
            raw: raw.to_owned(),
            sequence: None,
        }
    }
}

impl OutputItem {
    /// The texts that were told in pieces.
    fn streamed_text(&self) -> String {
        let told = self
            .texts
            .iter()
            .filter(|(field, ..)| *field != ItemTextKind::Arguments);
        let between = if self.texts.iter().any(|(field, ..)| field.is_thought()) {
            "\n\n"
        } else {
            ""
        };
        let texts: Vec<&str> = told.map(|(.., text)| text.as_str()).collect();
        texts.join(between)
    }

    /// Puts the arguments that came in pieces into the item of a gateway that leaves them out.
    fn complete_arguments(&self, item: &mut Value) {
        let field = item::arguments_field(item);
        if !item::field_text(item, field).is_empty() {
            return;
        }
        let told = self
            .texts
            .iter()
            .find(|(kind, ..)| *kind == ItemTextKind::Arguments);
        if let (Some((.., text)), Some(fields)) = (told, item.as_object_mut()) {
            fields.insert(field.to_owned(), text.as_str().into());
        }
    }

    /// The item as it was in the end, or as far as it came.
    fn value(self) -> Value {
        if let Some(done) = self.done {
            return done;
        }
        let mut item = self.initial;
        if !item.is_object() {
            item = json!({});
        }
        let Some(fields) = item.as_object_mut() else {
            return item;
        };
        fields.insert("status".to_owned(), "in_progress".into());
        let mut content = Vec::new();
        let mut summary = Vec::new();
        for (field, _, text) in self.texts {
            match field {
                ItemTextKind::Text => content.push(json!({"type": "output_text", "text": text})),
                ItemTextKind::Refusal => content.push(json!({"type": "refusal", "refusal": text})),
                ItemTextKind::Thought => {
                    content.push(json!({"type": "reasoning_text", "text": text}));
                }
                ItemTextKind::Summary => {
                    summary.push(json!({"type": "summary_text", "text": text}));
                }
                ItemTextKind::Arguments => {
                    let is_custom = fields
                        .get("type")
                        .is_some_and(|kind| kind == "custom_tool_call");
                    let name = if is_custom { "input" } else { "arguments" };
                    fields.insert(name.to_owned(), text.into());
                }
            }
        }
        if !content.is_empty() {
            fields.insert("content".to_owned(), Value::Array(content));
        }
        if !summary.is_empty() {
            fields.insert("summary".to_owned(), Value::Array(summary));
        }
        item
    }
}

impl ItemTextKind {
    fn is_thought(self) -> bool {
        matches!(self, Self::Summary | Self::Thought)
    }

    /// The item that such a piece belongs to.
    fn item(self) -> &'static str {
        match self {
            Self::Text | Self::Refusal => "message",
            Self::Summary | Self::Thought => "reasoning",
            Self::Arguments => "function_call",
        }
    }
}

fn announce(item: &Value, out: &mut Vec<StreamEvent>) {
    if is_call(item) {
        out.push(StreamEvent::CallStarted {
            call_id: text(item, "call_id").to_owned(),
            name: text(item, "name").to_owned(),
        });
    }
}

fn output_index(event: &ResponseEvent<'_>) -> Option<u64> {
    event.output_index.map(|index| index.0)
}

fn parsed(raw: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(raw?.get()).ok()
}

fn object(raw: Option<&RawValue>) -> Option<ResponseObject<'_>> {
    serde_json::from_str(raw?.get()).ok()
}
