//! One message while it comes in, out of deltas or in one piece.

use serde::de::MapAccess;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::{CallFragment, ChatCalls, Function};
use super::reasoning::Reasoning;
use crate::chat::{Content, Part, Sidecar, StreamEvent};
use crate::wire::fill::{FieldReader, set, skip};
use crate::wire::openai::unwrapped;
use crate::wire::scan::{LooseString, SmallList};
use crate::wire::stream::MAX_PARTS;

/// A delta, or a whole message, read in place.
#[derive(Default)]
pub(super) struct Delta<'a> {
    content: LooseString<'a>,
    refusal: LooseString<'a>,
    reasoning_content: LooseString<'a>,
    reasoning: LooseString<'a>,
    reasoning_details: Option<&'a RawValue>,
    // Both large and rare, so they are read when they are there.
    tool_calls: Option<&'a RawValue>,
    function_call: Option<&'a RawValue>,
}

impl<'de> FieldReader<'de> for Delta<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => set(&mut self.content, map),
            "refusal" => set(&mut self.refusal, map),
            "reasoning_content" => set(&mut self.reasoning_content, map),
            "reasoning" => set(&mut self.reasoning, map),
            "reasoning_details" => set(&mut self.reasoning_details, map),
            "tool_calls" => set(&mut self.tool_calls, map),
            "function_call" => set(&mut self.function_call, map),
            _ => skip(map),
        }
    }
}

/// A text that says something, taken out.
fn take_nonempty(piece: &mut LooseString<'_>) -> Option<String> {
    piece.take().filter(|text| !text.is_empty())
}

/// A message while it comes in.
#[derive(Debug, Clone, Default)]
pub(super) struct Assembly {
    reasoning: Reasoning,
    text: String,
    refusal: String,
    calls: ChatCalls,
}

impl Assembly {
    /// Whether a person has seen something of the message. A call is not shown before the end.
    pub(super) fn has_shown(&self) -> bool {
        let texts = !self.text.is_empty() || !self.refusal.is_empty();
        texts || !self.reasoning.is_empty()
    }

    pub(super) fn has_calls(&self) -> bool {
        self.calls() > 0
    }

    /// How many calls have begun.
    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn refuses(&self) -> bool {
        !self.refusal.is_empty()
    }

    /// Takes a delta in; `streams`: whether more of them make up the message. False when its calls
    /// cannot be read.
    pub(super) fn take(
        &mut self,
        delta: &mut Delta<'_>,
        streams: bool,
        out: &mut Vec<StreamEvent>,
    ) -> bool {
        let mut thought = false;
        let fields = [
            ("reasoning_content", &mut delta.reasoning_content),
            ("reasoning", &mut delta.reasoning),
        ];
        for (field, piece) in fields {
            // Servers that fill in both say the same in both.
            if !thought && let Some(piece) = take_nonempty(piece) {
                thought = true;
                self.reasoning.push(field, &piece);
                out.push(StreamEvent::Thinking { delta: piece });
            }
        }
        if let Some(details) = delta.reasoning_details {
            let said = self.reasoning.take_details(details.get(), streams, thought);
            if !said.is_empty() {
                out.push(StreamEvent::Thinking { delta: said });
            }
        }
        if let LooseString::Other(pieces) = &delta.content {
            for piece in pieces.as_array().into_iter().flatten() {
                self.content_piece(piece, out);
            }
        } else if let Some(delta) = take_nonempty(&mut delta.content) {
            self.text.push_str(&delta);
            out.push(StreamEvent::Content { delta });
        }
        if let Some(delta) = take_nonempty(&mut delta.refusal) {
            self.refusal.push_str(&delta);
            out.push(StreamEvent::Content { delta });
        }
        if let Some(calls) = delta.tool_calls {
            let Ok(fragments) = serde_json::from_str::<SmallList<CallFragment<'_>>>(calls.get())
            else {
                return false;
            };
            for fragment in fragments.iter() {
                if self.calls.len() > MAX_PARTS {
                    // Whoever counts them says so.
                    break;
                }
                self.calls.take(fragment, out);
            }
        }
        if let Some(function) = delta.function_call {
            let Ok(function) = serde_json::from_str::<Function<'_>>(function.get()) else {
                return false;
            };
            self.calls.take(&CallFragment::single(function), out);
        }
        true
    }

    /// A piece of a content that is a list: text, or what Mistral's models think.
    fn content_piece(&mut self, piece: &Value, out: &mut Vec<StreamEvent>) {
        let text = |piece: &Value| -> String {
            let text = piece.get("text").and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        match piece.get("type").and_then(Value::as_str) {
            Some("thinking") => {
                let delta: String = match piece.get("thinking") {
                    Some(Value::Array(inner)) => inner.iter().map(text).collect(),
                    Some(Value::String(text)) => text.clone(),
                    _ => String::new(),
                };
                if !delta.is_empty() {
                    self.reasoning.push("content", &delta);
                    out.push(StreamEvent::Thinking { delta });
                }
            }
            Some("refusal") => {
                let refusal = piece.get("refusal").and_then(Value::as_str);
                let delta = refusal.unwrap_or_default().to_owned();
                self.refusal.push_str(&delta);
                out.push(StreamEvent::Content { delta });
            }
            _ => {
                let delta = text(piece);
                if !delta.is_empty() {
                    self.text.push_str(&delta);
                    out.push(StreamEvent::Content { delta });
                }
            }
        }
    }

    /// The parts: what was thought, what was said, and the calls.
    ///
    /// `whole` and `cut` as for [`ChatCalls::into_calls`].
    pub(super) fn into_parts(
        self,
        provider: &str,
        family: &str,
        whole: bool,
        cut: bool,
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        parts.extend(self.reasoning.into_part(provider, family));
        if !self.text.is_empty() {
            parts.push(Part::text(self.text));
        }
        if !self.refusal.is_empty() {
            parts.push(Part {
                content: Content::Text { text: self.refusal },
                sidecar: Some(Sidecar {
                    provider: provider.to_owned(),
                    model_family: family.to_owned(),
                    data: json!({"refusal": true}),
                }),
            });
        }
        for call in self.calls.into_calls(whole, cut) {
            let calls = unwrapped(&call).unwrap_or_else(|| vec![call]);
            parts.extend(
                calls
                    .into_iter()
                    .map(|call| Part::from(Content::FunctionCall(call))),
            );
        }
        parts
    }
}
