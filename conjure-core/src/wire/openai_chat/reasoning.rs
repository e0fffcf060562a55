//! What a model thought, in the fields that servers use for it.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::chat::{Content, Part, Sidecar};
use crate::wire::scan::{Count, LooseString};

/// The thoughts of a message while they come in.
#[derive(Debug, Clone, Default)]
pub(super) struct Reasoning {
    text: String,
    /// The field that the text came in.
    field: &'static str,
    /// OpenRouter's `reasoning_details`, fragments of one joined.
    details: Vec<Value>,
}

impl Reasoning {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.details.is_empty()
    }

    /// Takes a piece of text in.
    pub(super) fn push(&mut self, field: &'static str, piece: &str) {
        self.field = field;
        self.text.push_str(piece);
    }

    /// Takes details in, which may be fragments of those that came before. Gives back their text
    /// when `told` says that no other field has it.
    pub(super) fn take_details(&mut self, details: &str, streams: bool, told: bool) -> String {
        let mut said = String::new();
        if streams && told && self.append(details) {
            return said;
        }
        let Ok(Value::Array(details)) = serde_json::from_str(details) else {
            return said;
        };
        for detail in details {
            let text = |name: &str| detail.get(name).and_then(Value::as_str);
            if !told {
                said.push_str(text("text").or_else(|| text("summary")).unwrap_or_default());
            }
            let known = self.details.last_mut().filter(|_| streams);
            match known.filter(|known| continues(known, &detail)) {
                Some(known) => join(known, detail),
                None => self.details.push(detail),
            }
        }
        self.text.push_str(&said);
        said
    }

    /// Appends the fragment that comes by the hundred: one text that goes on with the last detail.
    /// False when it is anything else.
    fn append(&mut self, details: &str) -> bool {
        let Ok([fragment]) = serde_json::from_str::<[ReasoningFragment<'_>; 1]>(details) else {
            return false;
        };
        let Some(known) = self.details.last_mut().and_then(Value::as_object_mut) else {
            return false;
        };
        let says = |name: &str, value: &str| known.get(name).is_some_and(|known| known == value);
        let index = fragment.index.map(|index| index.0);
        let fits = says("type", fragment.kind.str())
            && known.get("index").and_then(Value::as_u64) == index
            && fragment
                .format
                .as_str()
                .is_none_or(|format| says("format", format));
        let (name, piece) = match (fragment.text, fragment.summary) {
            (LooseString::Text(piece), LooseString::Absent) => ("text", piece),
            (LooseString::Absent, LooseString::Text(piece)) => ("summary", piece),
            _ => return false,
        };
        match known.get_mut(name) {
            Some(Value::String(text)) if fits => {
                text.push_str(&piece);
                true
            }
            _ => false,
        }
    }

    /// The canonical part; none when nothing was thought.
    pub(super) fn into_part(self, provider: &str, family: &str) -> Option<Part> {
        if self.is_empty() {
            return None;
        }
        let data = if self.details.is_empty() {
            json!({ "field": self.field })
        } else {
            json!({ "reasoning_details": self.details })
        };
        Some(Part {
            content: Content::Reasoning { text: self.text },
            sidecar: Some(Sidecar {
                provider: provider.to_owned(),
                model_family: family.to_owned(),
                data,
            }),
        })
    }
}

/// A detail without a signature, an id or data, read in place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningFragment<'a> {
    #[serde(borrow, rename = "type")]
    kind: LooseString<'a>,
    index: Option<Count>,
    #[serde(borrow, default)]
    format: LooseString<'a>,
    #[serde(borrow, default)]
    text: LooseString<'a>,
    #[serde(borrow, default)]
    summary: LooseString<'a>,
}

/// Whether a detail is the next fragment of the one before it.
fn continues(known: &Value, next: &Value) -> bool {
    let same = |name: &str| {
        let (known, next) = (known.get(name), next.get(name));
        known == next || next.is_none_or(Value::is_null) || known.is_none_or(Value::is_null)
    };
    known.get("type") == next.get("type") && same("index") && same("id")
}

fn join(known: &mut Value, next: Value) {
    let (Some(known), Value::Object(next)) = (known.as_object_mut(), next) else {
        return;
    };
    for (name, value) in next {
        if value.is_null() {
            continue;
        }
        let is_text = matches!(name.as_str(), "text" | "summary" | "data");
        match (known.get_mut(&name), &value) {
            (Some(Value::String(text)), Value::String(more)) if is_text => text.push_str(more),
            _ => {
                known.insert(name, value);
            }
        }
    }
}

/// The thoughts of a message that were given the field `field`, as one text; none when there are
/// none of them.
pub(super) fn text_of(parts: &[Part], field: &str) -> Option<String> {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match (&part.content, &part.sidecar) {
            (Content::Reasoning { text }, Some(own)) => {
                (own.data.get("field")? == field).then_some(text.as_str())
            }
            _ => None,
        })
        .collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// The details of a message's thoughts, as they came.
pub(super) fn details_of(parts: &[Part]) -> Vec<Value> {
    parts
        .iter()
        .filter(|part| matches!(part.content, Content::Reasoning { .. }))
        .filter_map(|part| {
            part.sidecar
                .as_ref()?
                .data
                .get("reasoning_details")?
                .as_array()
        })
        .flatten()
        .cloned()
        .collect()
}

/// Fields with what was thought, in the field that it came in.
pub(super) fn echoed(parts: &[Part]) -> Map<String, Value> {
    let mut fields = Map::new();
    let details = details_of(parts);
    if !details.is_empty() {
        fields.insert("reasoning_details".to_owned(), Value::Array(details));
    } else if let Some(text) = text_of(parts, "reasoning") {
        fields.insert("reasoning".to_owned(), text.into());
    }
    fields
}
