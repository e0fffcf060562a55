//! Content blocks of the Messages API and the canonical parts that they are.
//!
//! Both directions stand side by side here, because what a block's sidecar keeps is what the
//! block is made of again. Blocks of kinds that are not known are server items, verbatim.

use serde_json::{Map, Value, json};

use super::MAX_ID_LENGTH;
use crate::chat::{Content, FunctionCall, Part, Sidecar};
use crate::exact_numbers::inexact_number;
use crate::wire::arguments::as_object;
use crate::wire::ids::{legal_id, legal_name};

/// A block while it comes in.
#[derive(Debug, Clone, Default)]
pub(super) struct Block {
    /// The block's index in the stream; none for a block that came inside `message_start`.
    pub(super) index: Option<u64>,
    /// Whether the block's end came.
    pub(super) is_complete: bool,
    fields: Map<String, Value>,
    /// The pieces of `input`, which are JSON only when all of them are there.
    input: Option<String>,
}

impl Block {
    pub(super) fn new(index: Option<u64>, block: Value) -> Self {
        let fields = match block {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self {
            index,
            is_complete: false,
            fields,
            input: None,
        }
    }

    pub(super) fn kind(&self) -> &str {
        self.text("type")
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let value = self.fields.get(name);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Takes a piece of text or of an input in: the deltas that come by the hundred.
    pub(super) fn push(&mut self, kind: &str, piece: &str) {
        if kind == "input_json_delta" {
            self.input.get_or_insert_default().push_str(piece);
            return;
        }
        let name = kind.strip_suffix("_delta").unwrap_or(kind);
        match self.fields.get_mut(name) {
            Some(Value::String(text)) => text.push_str(piece),
            _ => {
                self.fields.insert(name.to_owned(), piece.into());
            }
        }
    }

    /// Takes any other delta in.
    pub(super) fn apply(&mut self, delta: &Value) {
        let Some(delta) = delta.as_object() else {
            return;
        };
        let kind = delta.get("type").and_then(Value::as_str);
        match kind.unwrap_or_default() {
            "citations_delta" => {
                let Some(citation) = delta.get("citation") else {
                    return;
                };
                match self.fields.get_mut("citations") {
                    Some(Value::Array(citations)) => citations.push(citation.clone()),
                    _ => {
                        let citations = Value::Array(vec![citation.clone()]);
                        self.fields.insert("citations".to_owned(), citations);
                    }
                }
            }
            "signature_delta" => {
                if let Some(signature) = delta.get("signature") {
                    let signature = signature.clone();
                    self.fields.insert("signature".to_owned(), signature);
                }
            }
            // Kinds that are not known: text is appended, anything else replaces.
            _ => {
                for (name, piece) in delta.iter().filter(|(name, _)| *name != "type") {
                    match (self.fields.get_mut(name), piece) {
                        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                        _ => {
                            self.fields.insert(name.clone(), piece.clone());
                        }
                    }
                }
            }
        }
    }

    /// The canonical part, signed by this provider and model family; none for a text block without
    /// text.
    pub(super) fn part(&self, provider: &str, family: &str) -> Option<Part> {
        let sidecar = |data: Value| Sidecar {
            provider: provider.to_owned(),
            model_family: family.to_owned(),
            data,
        };
        match self.kind() {
            "text" => {
                let text = self.text("text");
                if text.is_empty() {
                    return None;
                }
                let citations = self.fields.get("citations").filter(|citations| {
                    citations
                        .as_array()
                        .is_none_or(|citations| !citations.is_empty())
                        && !citations.is_null()
                });
                Some(Part {
                    content: Content::Text {
                        text: text.to_owned(),
                    },
                    sidecar: citations.map(|citations| sidecar(json!({ "citations": citations }))),
                })
            }
            "thinking" => {
                let mut data = self.fields.clone();
                data.shift_remove("thinking");
                Some(Part {
                    content: Content::Reasoning {
                        text: self.text("thinking").to_owned(),
                    },
                    // Without its end a thought has no signature, and nobody takes it back.
                    sidecar: self.is_complete.then(|| sidecar(Value::Object(data))),
                })
            }
            "redacted_thinking" => Some(Part {
                content: Content::Reasoning {
                    text: String::new(),
                },
                sidecar: Some(sidecar(Value::Object(self.fields.clone()))),
            }),
            "tool_use" => {
                let (arguments, arguments_text) = self.arguments();
                let caller = self
                    .fields
                    .get("caller")
                    .filter(|caller| caller.get("type").is_some_and(|kind| kind != "direct"));
                Some(Part {
                    content: Content::FunctionCall(FunctionCall {
                        call_id: self.text("id").to_owned(),
                        name: self.text("name").to_owned(),
                        arguments,
                        arguments_text,
                    }),
                    sidecar: caller.map(|caller| sidecar(json!({ "caller": caller }))),
                })
            }
            _ => Some(
                Content::ServerItem {
                    provider: provider.to_owned(),
                    item: self.item(),
                }
                .into(),
            ),
        }
    }

    /// The block as an opaque item.
    pub(super) fn item(&self) -> Value {
        let mut fields = self.fields.clone();
        if self.input.is_some() {
            let (arguments, text) = self.arguments();
            fields.insert("input".to_owned(), as_object(&arguments, text.as_deref()));
        }
        Value::Object(fields)
    }

    /// The input, and its text where it is not a JSON object or not whole, or has a number that
    /// would be another one here.
    fn arguments(&self) -> (Value, Option<String>) {
        let empty = || Value::Object(Map::new());
        let text = match self.input.as_deref() {
            // No pieces, or empty ones only: what the block began with stands.
            None | Some("") if self.is_complete => {
                return match self.fields.get("input") {
                    Some(input @ Value::Object(_)) => (input.clone(), None),
                    None | Some(Value::Null) => (empty(), None),
                    Some(other) => (empty(), Some(other.to_string())),
                };
            }
            text => text.unwrap_or_default(),
        };
        match serde_json::from_str(text) {
            Ok(input @ Value::Object(_)) if self.is_complete && inexact_number(text).is_none() => {
                (input, None)
            }
            _ => (empty(), Some(text.to_owned())),
        }
    }
}

/// The block that a part of an assistant's message was made of, or is to this API. None for what
/// it has no block for.
pub(super) fn assistant_block(part: &Part) -> Option<Value> {
    let data = |name: &str| part.sidecar.as_ref().and_then(|own| own.data.get(name));
    match &part.content {
        Content::Text { text } => {
            let mut block = json!({"type": "text", "text": text});
            if let (Some(citations), Some(fields)) = (data("citations"), block.as_object_mut()) {
                fields.insert("citations".to_owned(), citations.clone());
            }
            Some(block)
        }
        Content::Reasoning { text } => {
            let own = part.sidecar.as_ref()?.data.as_object()?;
            if own
                .get("type")
                .is_some_and(|kind| kind == "redacted_thinking")
            {
                return Some(Value::Object(own.clone()));
            }
            let mut block = Map::new();
            block.insert("type".to_owned(), "thinking".into());
            block.insert("thinking".to_owned(), text.as_str().into());
            for (name, value) in own {
                block.insert(name.clone(), value.clone());
            }
            Some(Value::Object(block))
        }
        Content::FunctionCall(call) => {
            let mut block = json!({
                "type": "tool_use",
                "id": legal_id(&call.call_id, MAX_ID_LENGTH),
                "name": legal_name(&call.name),
                "input": as_object(&call.arguments, call.arguments_text.as_deref()),
            });
            if let (Some(caller), Some(fields)) = (data("caller"), block.as_object_mut()) {
                fields.insert("caller".to_owned(), caller.clone());
            }
            Some(block)
        }
        Content::ServerItem { item, .. } => Some(item.clone()),
        Content::FunctionCallOutput(_) | Content::Image { .. } | Content::File { .. } => None,
    }
}
