//! Items of the Responses API and the canonical parts that they are.
//!
//! Decoding keeps in a sidecar what the item has beside its neutral content, so that encoding makes
//! the item of it again. `after` in a sidecar is ours: the thought that stood right in front of the
//! item, without which the API takes neither of the two.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::chat::{Content, FunctionCall, Part, Sidecar};
use crate::wire::arguments;
use crate::wire::openai::unwrapped;

/// Provider and model family that sign a reply's parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Signer {
    pub(super) provider: String,
    pub(super) family: String,
}

impl Signer {
    fn sidecar(&self, data: Map<String, Value>) -> Option<Sidecar> {
        (!data.is_empty()).then(|| Sidecar {
            provider: self.provider.clone(),
            model_family: self.family.clone(),
            data: Value::Object(data),
        })
    }
}

/// The parts of a whole reply's items, in their order.
pub(super) fn parts(items: &[Value], signer: &Signer) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut thought: Option<Value> = None;
    for item in items {
        let after = thought.take();
        if kind(item) == "reasoning" {
            thought = item.get("id").cloned();
        }
        item_parts(item, after, signer, &mut parts);
    }
    parts
}

/// What kind of item it is.
pub(super) fn kind(item: &Value) -> &str {
    text(item, "type")
}

/// A string field, or an empty string.
pub(super) fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the item is a call that the host is to run.
pub(super) fn is_call(item: &Value) -> bool {
    matches!(kind(item), "function_call" | "custom_tool_call")
}

/// The field that holds what the model wrote for a call.
pub(super) fn arguments_field(call: &Value) -> &'static str {
    if kind(call) == "custom_tool_call" {
        "input"
    } else {
        "arguments"
    }
}

/// A field's text. Gateways send arguments as an object too, which must not be taken for nothing.
pub(super) fn field_text<'a>(item: &'a Value, field: &str) -> Cow<'a, str> {
    match item.get(field) {
        Some(Value::String(text)) => Cow::Borrowed(text),
        None | Some(Value::Null) => Cow::Borrowed(""),
        Some(other) => Cow::Owned(other.to_string()),
    }
}

/// Whether the item was cut off inside.
pub(super) fn is_cut(item: &Value) -> bool {
    matches!(text(item, "status"), "incomplete" | "in_progress")
}

fn item_parts(item: &Value, after: Option<Value>, signer: &Signer, parts: &mut Vec<Part>) {
    match kind(item) {
        "message" => message_parts(item, after, signer, parts),
        "reasoning" => {
            let said = thought_text(item);
            let mut data = without(item, &[]);
            // Given as an empty list by models that do not show their thoughts.
            data.retain(|name, value| name != "content" || *value != json!([]));
            // A thought that was cut off has no proof, and nobody takes it back.
            let sidecar = (!is_cut(item)).then(|| signer.sidecar(data)).flatten();
            if sidecar.is_some() || !said.is_empty() {
                parts.push(Part {
                    content: Content::Reasoning { text: said },
                    sidecar,
                });
            }
        }
        "function_call" | "custom_tool_call" => call_parts(item, after, signer, parts),
        _ => parts.push(Part {
            content: Content::ServerItem {
                provider: signer.provider.clone(),
                item: item.clone(),
            },
            sidecar: after
                .and_then(|after| signer.sidecar(Map::from_iter([("after".to_owned(), after)]))),
        }),
    }
}

fn message_parts(item: &Value, after: Option<Value>, signer: &Signer, parts: &mut Vec<Part>) {
    let mut common = Map::new();
    // A message that was cut off is no item that could be named again.
    if text(item, "status") != "in_progress" {
        common = without(item, &["type", "role", "content"]);
        common.extend(after.map(|after| ("after".to_owned(), after)));
    }
    let content = item.get("content").and_then(Value::as_array);
    for piece in content.into_iter().flatten() {
        let mut data = common.clone();
        let said = match kind(piece) {
            "output_text" | "text" => text(piece, "text"),
            "refusal" => {
                data.insert("refusal".to_owned(), true.into());
                text(piece, "refusal")
            }
            _ => continue,
        };
        if said.is_empty() {
            continue;
        }
        let annotations = piece.get("annotations").and_then(Value::as_array);
        if let Some(annotations) = annotations.filter(|list| !list.is_empty()) {
            data.insert("annotations".to_owned(), Value::Array(annotations.clone()));
        }
        parts.push(Part {
            content: Content::Text {
                text: said.to_owned(),
            },
            sidecar: signer.sidecar(data),
        });
    }
}

fn call_parts(item: &Value, after: Option<Value>, signer: &Signer, parts: &mut Vec<Part>) {
    let whole = !is_cut(item);
    let is_custom = kind(item) == "custom_tool_call";
    let written = field_text(item, arguments_field(item));
    let (arguments, arguments_text) = if is_custom {
        // Free text, not JSON.
        if whole {
            (json!({ "input": written }), None)
        } else {
            (json!({}), Some(written.into_owned()))
        }
    } else {
        arguments::parsed(&written, whole)
    };
    let call = FunctionCall {
        call_id: text(item, "call_id").to_owned(),
        name: text(item, "name").to_owned(),
        arguments,
        arguments_text,
    };
    if let Some(calls) = unwrapped(&call) {
        parts.extend(
            calls
                .into_iter()
                .map(|call| Part::from(Content::FunctionCall(call))),
        );
        return;
    }
    let mut data = Map::new();
    if whole {
        data = without(item, &["call_id", "name", "arguments", "input"]);
        if !is_custom {
            data.shift_remove("type");
        }
        data.extend(after.map(|after| ("after".to_owned(), after)));
    }
    parts.push(Part {
        content: Content::FunctionCall(call),
        sidecar: signer.sidecar(data),
    });
}

/// What is readable of a thought: its summary, or the thought itself where a model shows it.
pub(super) fn thought_text(item: &Value) -> String {
    let pieces = |name: &str| -> Vec<&str> {
        let list = item.get(name).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|piece| text(piece, "text"))
            .filter(|text| !text.is_empty())
            .collect()
    };
    let summary = pieces("summary");
    let shown = if summary.is_empty() {
        pieces("content")
    } else {
        summary
    };
    shown.join("\n\n")
}

/// What is readable of a message.
pub(super) fn message_text(item: &Value) -> String {
    let content = item.get("content").and_then(Value::as_array);
    content
        .into_iter()
        .flatten()
        .map(|piece| match kind(piece) {
            "refusal" => text(piece, "refusal"),
            _ => text(piece, "text"),
        })
        .collect()
}

/// The item's fields without these, and without those that are null: the API gives them, and does
/// not take them back.
fn without(item: &Value, names: &[&str]) -> Map<String, Value> {
    let fields = item.as_object().into_iter().flatten();
    fields
        .filter(|(name, value)| !names.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
