//! The parts of a candidate while they come in.
//!
//! Texts are joined as long as no signature stands on them: a signed part is kept apart, as it
//! came. What is neither text nor a call is a server item, verbatim.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::partial;
use crate::chat::{Content, FunctionCall, Part, Sidecar, StreamEvent};
use crate::exact_numbers::inexact_number;
use crate::wire::fill::{FieldReader, Fill, fill, set, skip};
use crate::wire::scan::LooseString;

/// A part, read in place.
#[derive(Default)]
pub(super) struct PartHead<'a> {
    text: LooseString<'a>,
    thought: Option<bool>,
    thought_signature: LooseString<'a>,
    function_call: Option<&'a RawValue>,
}

impl<'de> PartHead<'de> {
    /// Reads a field of a text or of a call. False when it is another.
    fn read_known_field<A: MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        match name {
            "text" => set(&mut self.text, map)?,
            "thought" => set(&mut self.thought, map)?,
            "thoughtSignature" => set(&mut self.thought_signature, map)?,
            "functionCall" => set(&mut self.function_call, map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Fails at any other field, so that an event with an item in it is not read to its end twice.
impl<'de> FieldReader<'de> for PartHead<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if self.read_known_field(name, map)? {
            return Ok(());
        }
        Err(A::Error::custom("a part that may be an item"))
    }
}

/// Like [`PartHead`], for a part that is kept as it came, which may have any field.
#[derive(Default)]
struct TolerantHead<'a>(PartHead<'a>);

impl<'de> FieldReader<'de> for TolerantHead<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if self.0.read_known_field(name, map)? {
            return Ok(());
        }
        skip(map)
    }
}

/// A part as it came.
#[derive(Default)]
pub(super) struct RawPart<'a>(Option<&'a RawValue>);

impl<'de> Fill<'de> for RawPart<'de> {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        self.0 = Some(Deserialize::deserialize(from)?);
        Ok(())
    }
}

impl PartHead<'_> {
    /// Whether the part is neither text nor a call, so that it is kept as it came.
    pub(super) fn is_item(&self) -> bool {
        self.function_call.is_none() && !matches!(self.text, LooseString::Text(_))
    }
}

/// A part as a response holds it.
pub(super) trait PartForm {
    /// Takes the part in; false when it is none, or is nested too deeply to be read.
    fn append_to(&mut self, pieces: &mut CandidateParts, out: &mut Vec<StreamEvent>) -> bool;
}

impl PartForm for PartHead<'_> {
    fn append_to(&mut self, pieces: &mut CandidateParts, out: &mut Vec<StreamEvent>) -> bool {
        pieces.take(self, None, out)
    }
}

impl PartForm for RawPart<'_> {
    fn append_to(&mut self, pieces: &mut CandidateParts, out: &mut Vec<StreamEvent>) -> bool {
        let mut part = TolerantHead::default();
        self.0.is_some_and(|raw| {
            fill(&mut part, raw.get()).is_ok() && pieces.take(&mut part.0, Some(raw), out)
        })
    }
}

/// A call, read in place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Called<'a> {
    #[serde(borrow, default)]
    id: LooseString<'a>,
    #[serde(borrow, default)]
    name: LooseString<'a>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    partial_args: Option<&'a RawValue>,
    #[serde(borrow)]
    will_continue: Option<&'a RawValue>,
}

/// A field's value; null where there is none.
fn read(field: Option<&RawValue>) -> serde_json::Result<Value> {
    field.map_or(Ok(Value::Null), |raw| serde_json::from_str(raw.get()))
}

/// What a call without arguments has in the place of them: an object under another name, as a model
/// writes that has other APIs in mind. It is not known to be meant as arguments, so nothing runs with it.
fn misnamed_arguments(call: &str) -> Option<String> {
    const KNOWN_FIELDS: [&str; 5] = ["id", "name", "args", "partialArgs", "willContinue"];
    let members: Map<String, Value> = serde_json::from_str(call).ok()?;
    let holds_some = |value: &Value| value.as_object().is_some_and(|fields| !fields.is_empty());
    let mut others = members
        .iter()
        .filter(|(name, _)| !KNOWN_FIELDS.contains(&name.as_str()));
    let (_, found) = others.find(|(_, value)| holds_some(value))?;
    Some(found.to_string())
}

/// The parts of a candidate.
#[derive(Debug, Clone)]
pub(super) struct CandidateParts(Vec<PartPiece>);

impl Default for CandidateParts {
    fn default() -> Self {
        Self(Vec::with_capacity(PARTS_CAPACITY))
    }
}

/// Room for as many parts as most replies have.
const PARTS_CAPACITY: usize = 4;

/// The least room of a text: most come in several pieces.
const TEXT_CAPACITY: usize = 256;

#[derive(Debug, Clone)]
enum PartPiece {
    Text {
        text: String,
        thought: bool,
        signature: Option<String>,
    },
    Call(GeminiCall),
    Item(Value),
}

/// A call; its arguments may come in pieces.
#[derive(Debug, Clone, Default)]
struct GeminiCall {
    /// The provider's own id; several models give none.
    id: Option<String>,
    name: String,
    arguments: Map<String, Value>,
    /// What is no object, could not be put together, or has a number that a value cannot hold.
    unparsed: Option<String>,
    /// Whether something of the arguments has come.
    has_arguments: bool,
    /// Whether more of the arguments is to come.
    expects_more: bool,
    signature: Option<String>,
}

impl CandidateParts {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a person has seen something of it. A call is not shown before the end.
    pub(super) fn has_shown(&self) -> bool {
        self.0.iter().any(|piece| match piece {
            PartPiece::Text { text, .. } => !text.is_empty(),
            PartPiece::Item(_) => true,
            PartPiece::Call(_) => false,
        })
    }

    pub(super) fn has_calls(&self) -> bool {
        self.0
            .iter()
            .any(|piece| matches!(piece, PartPiece::Call(_)))
    }

    /// Takes a part in; `raw` is all of it, for one that is kept as it came.
    fn take(
        &mut self,
        head: &mut PartHead<'_>,
        raw: Option<&RawValue>,
        out: &mut Vec<StreamEvent>,
    ) -> bool {
        let signature = head.thought_signature.take();
        if let Some(call) = head.function_call {
            return self.take_call(call.get(), signature, out);
        } else if let LooseString::Text(text) = &head.text {
            let thought = head.thought.unwrap_or_default();
            self.take_text(text, thought, signature);
            if let Some(delta) = head.text.take().filter(|text| !text.is_empty()) {
                out.push(if thought {
                    StreamEvent::Thinking { delta }
                } else {
                    StreamEvent::Content { delta }
                });
            }
        } else {
            let item = raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
            let Some(item) = item else {
                return false;
            };
            if !item.as_object().is_some_and(Map::is_empty) {
                out.push(StreamEvent::ServerItem { item: item.clone() });
                self.0.push(PartPiece::Item(item));
            }
        }
        true
    }

    fn take_text(&mut self, more: &str, is_thought: bool, signed: Option<String>) {
        if more.is_empty() && signed.is_none() {
            return;
        }
        if signed.is_none()
            && let Some(PartPiece::Text {
                text,
                thought,
                signature: None,
            }) = self.0.last_mut()
            && *thought == is_thought
        {
            text.push_str(more);
            return;
        }
        let mut text = String::new();
        if !more.is_empty() {
            text.reserve(more.len().max(TEXT_CAPACITY));
            text.push_str(more);
        }
        self.0.push(PartPiece::Text {
            text,
            thought: is_thought,
            signature: signed,
        });
    }

    /// Takes a call in, or more of its arguments; false when they are nested too deeply to be read.
    fn take_call(
        &mut self,
        raw: &str,
        signature: Option<String>,
        out: &mut Vec<StreamEvent>,
    ) -> bool {
        let Ok(call) = serde_json::from_str::<Called<'_>>(raw) else {
            // What is no object says nothing of a call.
            return serde_json::from_str::<Value>(raw).is_ok_and(|other| !other.is_object());
        };
        let (Ok(args), Ok(pieces)) = (read(call.args), read(call.partial_args)) else {
            return false;
        };
        let name = call.name.str();
        let calls = self
            .0
            .iter()
            .filter(|piece| matches!(piece, PartPiece::Call(_)));
        let count = calls.count();
        if !name.is_empty() {
            self.close(out);
            let id = call.id.as_str().filter(|id| !id.is_empty());
            let begun = GeminiCall {
                id: id.map(str::to_owned),
                name: name.to_owned(),
                signature,
                ..GeminiCall::default()
            };
            out.push(StreamEvent::CallStarted {
                call_id: begun.call_id(count),
                name: name.to_owned(),
            });
            self.0.push(PartPiece::Call(begun));
        }
        let Some(PartPiece::Call(known)) = self.0.last_mut() else {
            return true;
        };
        if name.is_empty() && !known.expects_more {
            return true;
        }
        known.expects_more = call.will_continue.is_some_and(|raw| raw.get() == "true");
        if call.args.is_none() && call.partial_args.is_none() {
            known.unparsed = known.unparsed.take().or_else(|| misnamed_arguments(raw));
        }
        known.take_arguments(&call, args, pieces);
        if !known.expects_more {
            let count = if name.is_empty() { count - 1 } else { count };
            out.push(StreamEvent::Call {
                call_id: known.call_id(count),
            });
        }
        true
    }

    /// Ends a call whose last piece did not come: the next part, or the end, says that it is whole.
    /// One that promised arguments of which none came stays open, and so does not run without them.
    pub(super) fn close(&mut self, out: &mut Vec<StreamEvent>) {
        let mut count = 0;
        for piece in &mut self.0 {
            if let PartPiece::Call(call) = piece {
                if call.has_arguments && std::mem::take(&mut call.expects_more) {
                    out.push(StreamEvent::Call {
                        call_id: call.call_id(count),
                    });
                }
                count += 1;
            }
        }
    }

    /// The canonical parts.
    pub(super) fn into_parts(self, provider: &str, family: &str) -> Vec<Part> {
        let sidecar = |data: Map<String, Value>| {
            (!data.is_empty()).then(|| Sidecar {
                provider: provider.to_owned(),
                model_family: family.to_owned(),
                data: Value::Object(data),
            })
        };
        let signed = |signature: Option<String>| {
            signature.map(|signature| ("thoughtSignature".to_owned(), Value::String(signature)))
        };
        let mut calls = 0;
        self.0
            .into_iter()
            .map(|piece| match piece {
                PartPiece::Text {
                    text,
                    thought,
                    signature,
                } => {
                    let mut data = Map::new();
                    if thought {
                        data.insert("thought".to_owned(), true.into());
                    }
                    data.extend(signed(signature));
                    // A signature alone is nothing that anybody reads.
                    let content = if thought || text.trim().is_empty() {
                        if !thought {
                            data.insert("text".to_owned(), text.as_str().into());
                        }
                        let text = if thought { text } else { String::new() };
                        Content::Reasoning { text }
                    } else {
                        Content::Text { text }
                    };
                    Part {
                        content,
                        sidecar: sidecar(data),
                    }
                }
                PartPiece::Call(call) => {
                    let call_id = call.call_id(calls);
                    calls += 1;
                    let mut data = Map::new();
                    data.extend(call.id.map(|id| ("id".to_owned(), Value::String(id))));
                    data.extend(signed(call.signature));
                    let arguments = Value::Object(call.arguments);
                    let odd = if call.expects_more {
                        Some(arguments.to_string())
                    } else {
                        call.unparsed
                    };
                    Part {
                        content: Content::FunctionCall(FunctionCall {
                            call_id,
                            name: call.name,
                            arguments: if odd.is_some() { json!({}) } else { arguments },
                            arguments_text: odd,
                        }),
                        sidecar: sidecar(data),
                    }
                }
                PartPiece::Item(item) => Content::ServerItem {
                    provider: provider.to_owned(),
                    item,
                }
                .into(),
            })
            .collect()
    }
}

impl GeminiCall {
    /// Takes arguments in, whole ones and pieces of them.
    fn take_arguments(&mut self, call: &Called<'_>, args: Value, pieces: Value) {
        match args {
            Value::Object(arguments) => {
                self.has_arguments = true;
                self.keep_inexact_numbers(call.args);
                if self.arguments.is_empty() {
                    self.arguments = arguments;
                } else {
                    self.arguments.extend(arguments);
                }
            }
            Value::Null => {}
            other => self.unparsed = Some(other.to_string()),
        }
        match pieces {
            Value::Array(pieces) => {
                self.keep_inexact_numbers(call.partial_args);
                for piece in &pieces {
                    self.has_arguments = true;
                    if !partial::apply(&mut self.arguments, piece) {
                        self.unparsed = Some(piece.to_string());
                    }
                }
            }
            Value::Null => {}
            other => self.unparsed = Some(other.to_string()),
        }
    }

    /// Keeps the text of arguments with a number that a value cannot hold.
    fn keep_inexact_numbers(&mut self, raw: Option<&RawValue>) {
        if let Some(raw) = raw.filter(|raw| inexact_number(raw.get()).is_some()) {
            self.unparsed = Some(raw.get().to_owned());
        }
    }

    /// The provider's id, or one for a call that has none. Whoever keeps the thread makes it
    /// unique there.
    fn call_id(&self, at: usize) -> String {
        self.id
            .clone()
            .unwrap_or_else(|| format!("call_{}", at + 1))
    }
}
