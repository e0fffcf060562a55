//! The parts of a result, and how one is read without a detour.
//!
//! What is written is a tagged enum of serde's. Reading one by derived code keeps every part in
//! serde's own form first, because of the kinds that this version does not know; most parts are
//! texts, and those cost one string here.

use std::fmt;

use serde::de::{self, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::FileRef;

/// One piece of content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = super::schemas::open_kinds))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text for the model.
    Text {
        /// The text.
        text: String,
    },
    /// An image in the message itself; a large one is a `file`.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// Base64 of its bytes.
        data: String,
    },
    /// A file, by reference.
    File {
        /// The file.
        file: FileRef,
    },
    /// Data that keeps the form in which a remote peer sent it.
    Raw {
        /// Whose form it is, such as `mcp`.
        source: String,
        /// The data, verbatim.
        value: Value,
    },
    /// A part of a kind that this version does not know, kept as it came.
    #[serde(untagged)]
    Other(Value),
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Whole)
    }
}

struct Whole;

impl<'de> de::Visitor<'de> for Whole {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a result")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let (mut kind, mut text): (Option<Value>, Option<Value>) = (None, None);
        let mut rest = Map::new();
        while let Some(key) = map.next_key::<PartKey>()? {
            match key {
                PartKey::Type => kind = Some(map.next_value()?),
                PartKey::Text => text = Some(map.next_value()?),
                PartKey::Other(key) => {
                    rest.insert(key, map.next_value()?);
                }
            }
        }
        if let (Some(Value::String(kind)), Some(Value::String(text))) = (&kind, &mut text) {
            if kind == "text" {
                return Ok(Part::Text {
                    text: std::mem::take(text),
                });
            }
        }
        let mut fields = Map::new();
        if let Some(kind) = kind {
            fields.insert("type".to_owned(), kind);
        }
        if let Some(text) = text {
            fields.insert("text".to_owned(), text);
        }
        fields.extend(rest);
        Ok(Part::of(fields))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Part, E> {
        Ok(Part::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Part, E> {
        Ok(Part::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Part, E> {
        Ok(Part::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Part, E> {
        Ok(Part::Other(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Part, E> {
        Ok(Part::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Part, E> {
        Ok(Part::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Part, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Part::Other(Value::Array(values)))
    }
}

impl Part {
    /// Any part but a text. What does not fit its kind is kept as it came.
    fn of(fields: Map<String, Value>) -> Self {
        let value = Value::Object(fields);
        match KnownPart::deserialize(&value) {
            Ok(KnownPart::Image { media_type, data }) => Self::Image { media_type, data },
            Ok(KnownPart::File { file }) => Self::File { file },
            Ok(KnownPart::Raw { source, value }) => Self::Raw { source, value },
            Err(_) => Self::Other(value),
        }
    }
}

/// The kinds beside text.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KnownPart {
    Image { media_type: String, data: String },
    File { file: FileRef },
    Raw { source: String, value: Value },
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum PartKey {
    Type,
    Text,
    Other(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Part {
        let part: Part = serde_json::from_str(&value.to_string()).unwrap();
        let same: Part = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(part, same);
        part
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let parts = [
            Part::Text {
                text: "a\n\u{e9}".to_owned(),
            },
            Part::Image {
                media_type: "image/png".to_owned(),
                data: "AA==".to_owned(),
            },
            Part::File {
                file: FileRef::lazy("1", "a.txt"),
            },
            Part::Raw {
                source: "mcp".to_owned(),
                value: json!({ "type": "audio" }),
            },
            Part::Other(json!({ "type": "video", "text": "t", "frames": [1] })),
        ];
        for part in parts {
            assert_eq!(read(&serde_json::to_value(&part).unwrap()), part);
        }
    }

    #[test]
    fn the_order_of_fields_and_fields_that_are_not_known_mean_nothing() {
        let text = Part::Text {
            text: "t".to_owned(),
        };
        assert_eq!(
            read(&json!({ "text": "t", "new": {}, "type": "text" })),
            text
        );
    }

    #[test]
    fn what_does_not_fit_is_kept_as_it_came() {
        for value in [
            json!({ "type": "text", "text": 1, "more": true }),
            json!({ "type": "text" }),
            json!({ "type": "image", "data": "x" }),
            json!({ "text": "t" }),
            json!({ "type": ["text"], "text": "t" }),
            json!({}),
            json!([1, { "type": "text" }]),
            json!("text"),
            json!(-1),
            json!(1.5),
            json!(true),
            json!(null),
        ] {
            assert_eq!(read(&value), Part::Other(value));
        }
    }
}
