//! The parts of a candidate while they come in.
//!
//! Texts are joined as long as no signature stands on them: a signed part is kept apart, as it
//! came. What is neither text nor a call is a server item, verbatim.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::partial;
use crate::chat::{Content, FunctionCall, Part, Sidecar, StreamEvent};
use crate::wire::scan::Loose;

/// A part, read in place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(borrow, default)]
    text: Loose<'a>,
    thought: Option<bool>,
    #[serde(borrow, default)]
    thought_signature: Loose<'a>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

impl Head<'_> {
    /// Whether the part is neither text nor a call, so that it is kept as it came.
    pub(super) fn is_item(&self) -> bool {
        self.function_call.is_none() && !matches!(self.text, Loose::Text(_))
    }
}

/// A part as a response holds it.
pub(super) trait Form {
    /// Takes the part in; false when it is none, or is nested too deeply to be read.
    fn join(self, pieces: &mut Pieces, out: &mut Vec<StreamEvent>) -> bool;
}

impl Form for Head<'_> {
    fn join(self, pieces: &mut Pieces, out: &mut Vec<StreamEvent>) -> bool {
        pieces.take(self, None, out)
    }
}

impl Form for &RawValue {
    fn join(self, pieces: &mut Pieces, out: &mut Vec<StreamEvent>) -> bool {
        match serde_json::from_str::<Head<'_>>(self.get()) {
            Ok(head) => pieces.take(head, Some(self), out),
            Err(_) => false,
        }
    }
}

/// The parts of a candidate.
#[derive(Debug, Clone)]
pub(super) struct Pieces(Vec<Piece>);

impl Default for Pieces {
    fn default() -> Self {
        Self(Vec::with_capacity(USUAL))
    }
}

/// Room for as many parts as most replies have.
const USUAL: usize = 4;

/// The least room of a text: most come in several pieces.
const TEXT: usize = 256;

#[derive(Debug, Clone)]
enum Piece {
    Text {
        text: String,
        thought: bool,
        signature: Option<String>,
    },
    Call(Call),
    Item(Value),
}

/// A call; its arguments may come in pieces.
#[derive(Debug, Clone, Default)]
struct Call {
    /// The provider's own id; several models give none.
    id: Option<String>,
    name: String,
    arguments: Map<String, Value>,
    /// What is no object, or could not be put together.
    odd: Option<String>,
    /// Whether more of the arguments is to come.
    open: bool,
    signature: Option<String>,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has_calls(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Call(_)))
    }

    /// Takes a part in; `raw` is all of it, for one that is kept as it came.
    fn take(&mut self, head: Head<'_>, raw: Option<&RawValue>, out: &mut Vec<StreamEvent>) -> bool {
        let signature = match head.thought_signature {
            Loose::Text(text) => Some(text.into_owned()),
            Loose::Absent | Loose::Other(_) => None,
        };
        if let Some(call) = head.function_call {
            let Ok(call) = serde_json::from_str::<Value>(call.get()) else {
                return false;
            };
            self.take_call(call, signature, out);
        } else if let Loose::Text(text) = head.text {
            let thought = head.thought.unwrap_or_default();
            self.take_text(&text, thought, signature);
            if !text.is_empty() {
                let delta = text.into_owned();
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
                self.0.push(Piece::Item(item));
            }
        }
        true
    }

    fn take_text(&mut self, more: &str, is_thought: bool, signed: Option<String>) {
        if more.is_empty() && signed.is_none() {
            return;
        }
        if signed.is_none()
            && let Some(Piece::Text {
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
            text.reserve(more.len().max(TEXT));
            text.push_str(more);
        }
        self.0.push(Piece::Text {
            text,
            thought: is_thought,
            signature: signed,
        });
    }

    fn take_call(
        &mut self,
        mut call: Value,
        signature: Option<String>,
        out: &mut Vec<StreamEvent>,
    ) {
        let args = call.get_mut("args").map(Value::take);
        let text = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
        let continues = call.get("willContinue").and_then(Value::as_bool);
        let name = text("name");
        let count = self
            .0
            .iter()
            .filter(|piece| matches!(piece, Piece::Call(_)))
            .count();
        if !name.is_empty() {
            self.close(out);
            let id = text("id");
            let begun = Call {
                id: (!id.is_empty()).then(|| id.to_owned()),
                name: name.to_owned(),
                signature,
                ..Call::default()
            };
            out.push(StreamEvent::CallStarted {
                call_id: begun.call_id(count),
                name: name.to_owned(),
            });
            self.0.push(Piece::Call(begun));
        }
        let Some(Piece::Call(known)) = self.0.last_mut() else {
            return;
        };
        if name.is_empty() && !known.open {
            return;
        }
        known.open = continues.unwrap_or_default();
        match args {
            Some(Value::Object(arguments)) if known.arguments.is_empty() => {
                known.arguments = arguments;
            }
            Some(Value::Object(arguments)) => known.arguments.extend(arguments),
            None | Some(Value::Null) => {}
            Some(other) => known.odd = Some(other.to_string()),
        }
        let pieces = call.get("partialArgs").and_then(Value::as_array);
        for piece in pieces.into_iter().flatten() {
            if !partial::apply(&mut known.arguments, piece) {
                known.odd = Some(piece.to_string());
            }
        }
        if !known.open {
            let count = if name.is_empty() { count - 1 } else { count };
            out.push(StreamEvent::Call {
                call_id: known.call_id(count),
            });
        }
    }

    /// Ends a call whose last piece did not come: the next part, or the end, says that it is whole.
    pub(super) fn close(&mut self, out: &mut Vec<StreamEvent>) {
        let mut count = 0;
        for piece in &mut self.0 {
            if let Piece::Call(call) = piece {
                if std::mem::take(&mut call.open) {
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
                Piece::Text {
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
                Piece::Call(call) => {
                    let call_id = call.call_id(calls);
                    calls += 1;
                    let mut data = Map::new();
                    data.extend(call.id.map(|id| ("id".to_owned(), Value::String(id))));
                    data.extend(signed(call.signature));
                    let arguments = Value::Object(call.arguments);
                    let odd = if call.open {
                        Some(arguments.to_string())
                    } else {
                        call.odd
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
                Piece::Item(item) => Content::ServerItem {
                    provider: provider.to_owned(),
                    item,
                }
                .into(),
            })
            .collect()
    }
}

impl Call {
    /// The provider's id, or one for a call that has none. Whoever keeps the thread makes it
    /// unique there.
    fn call_id(&self, at: usize) -> String {
        self.id
            .clone()
            .unwrap_or_else(|| format!("call_{}", at + 1))
    }
}
