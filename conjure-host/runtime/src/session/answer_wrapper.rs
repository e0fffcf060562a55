//! The object that an answer stands in where its schema is not one of an object: providers take only
//! objects at the top of a form.
//!
//! What is sent is a schema with the answer as its only property. Where the schema refers to itself it
//! is a definition of the wrapper, and references lead there.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The property that has the answer.
pub(super) const PROPERTY: &str = "value";
/// Keywords that stay at the top, so that references to what is in them stay as they are.
const AT_TOP: [&str; 4] = ["$schema", "$id", "$defs", "definitions"];

/// A schema of objects that have a value of this schema, and nothing else.
pub(super) fn wrap_schema(schema: &Value) -> Value {
    let mut moving = MovedSchema {
        definition_ref: format!("#/$defs/{}", free_name(schema)),
        refers_to_itself: false,
    };
    let mut wrapper = Map::new();
    let mut inner = Map::new();
    for (name, value) in schema.as_object().into_iter().flatten() {
        let part = match AT_TOP.contains(&name.as_str()) {
            true => &mut wrapper,
            false => &mut inner,
        };
        part.insert(name.clone(), moving.keyword(name, value));
    }
    let mut property = Value::Object(inner);
    if moving.refers_to_itself {
        let definitions = wrapper.entry("$defs").or_insert_with(|| json!({}));
        if let Some(definitions) = definitions.as_object_mut() {
            let reference = json!({ "$ref": moving.definition_ref });
            let inner = std::mem::replace(&mut property, reference);
            definitions.insert(free_name(schema), inner);
        }
    }
    wrapper.insert("type".to_owned(), json!("object"));
    wrapper.insert("properties".to_owned(), json!({ PROPERTY: property }));
    wrapper.insert("required".to_owned(), json!([PROPERTY]));
    wrapper.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(wrapper)
}

/// A name that no definition of the schema has.
fn free_name(schema: &Value) -> String {
    let mut name = "answer".to_owned();
    while schema
        .get("$defs")
        .is_some_and(|defs| defs.get(&name).is_some())
    {
        name.push('_');
    }
    name
}

/// The text of the value in a wrapper; nothing where the text is no wrapper.
pub(super) fn unwrap_value(answer: &str) -> Option<&str> {
    // A list of one value would be read as the wrapper, too.
    if !answer.trim_start().starts_with('{') {
        return None;
    }
    let wrapper: AnswerWrapper<'_> = serde_json::from_str(answer).ok()?;
    Some(wrapper.value.get())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerWrapper<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
}

/// A schema on its way into a wrapper.
struct MovedSchema {
    /// Reference to the schema as a definition of the wrapper, if it refers to itself: providers that
    /// take references take those to definitions.
    definition_ref: String,
    /// Whether it refers to the whole of itself, or to a place that is not in its definitions.
    refers_to_itself: bool,
}

impl MovedSchema {
    fn schema(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Object(keywords) => {
                let keywords = keywords.iter();
                let moved = keywords.map(|(name, value)| (name.clone(), self.keyword(name, value)));
                Value::Object(moved.collect())
            }
            Value::Array(schemas) => schemas.iter().map(|schema| self.schema(schema)).collect(),
            other => other.clone(),
        }
    }

    fn keyword(&mut self, name: &str, value: &Value) -> Value {
        match (name, value) {
            ("$ref", Value::String(reference)) => self.reference(reference).into(),
            ("const" | "enum" | "default" | "examples", _) => value.clone(),
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(schemas),
            ) => {
                let schemas = schemas.iter();
                let moved = schemas.map(|(name, schema)| (name.clone(), self.schema(schema)));
                Value::Object(moved.collect())
            }
            _ => self.schema(value),
        }
    }

    /// A reference, where it leads to a place that is moved, as it leads there then.
    fn reference(&mut self, reference: &str) -> String {
        let is_at_top =
            |place: &str| place.starts_with("/$defs/") || place.starts_with("/definitions/");
        match reference.strip_prefix('#') {
            Some(place) if place.is_empty() || (place.starts_with('/') && !is_at_top(place)) => {
                self.refers_to_itself = true;
                format!("{}{place}", self.definition_ref)
            }
            _ => reference.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_wrapped_and_its_references_lead_where_they_led() {
        let tree = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": { "name": { "type": "string" }, "all": { "$ref": "#" } },
            "type": "array",
            "items": { "anyOf": [{ "$ref": "#" }, { "$ref": "#/$defs/name" }, { "$ref": "#/items" }] },
            "default": [{ "$ref": "#" }],
        });
        assert_eq!(
            wrap_schema(&tree),
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$defs": {
                    "name": { "type": "string" },
                    "all": { "$ref": "#/$defs/answer" },
                    "answer": {
                        "type": "array",
                        "items": { "anyOf": [
                            { "$ref": "#/$defs/answer" },
                            { "$ref": "#/$defs/name" },
                            { "$ref": "#/$defs/answer/items" },
                        ] },
                        "default": [{ "$ref": "#" }],
                    },
                },
                "type": "object",
                "properties": { "value": { "$ref": "#/$defs/answer" } },
                "required": ["value"],
                "additionalProperties": false,
            })
        );
        let named = json!({
            "$defs": { "answer": { "type": "string" } },
            "type": "array", "items": { "$ref": "#" },
        });
        let named = wrap_schema(&named);
        assert_eq!(named["$defs"]["answer"], json!({ "type": "string" }));
        let reference = json!({ "$ref": "#/$defs/answer_" });
        assert_eq!(named["properties"]["value"], reference);
        assert_eq!(named["$defs"]["answer_"]["items"], reference);
        let plain = wrap_schema(&json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(plain["properties"]["value"]["type"], "array");
        assert_eq!(plain.get("$defs"), None);
        let any = wrap_schema(&json!(true));
        assert_eq!(any["properties"], json!({ "value": {} }));
    }

    #[test]
    fn a_value_is_taken_out_as_it_is_written() {
        for (answer, value) in [
            (" {\"value\": [1, 2.50]}\n", Some("[1, 2.50]")),
            (
                "{\"value\": 12345678901234567890123}",
                Some("12345678901234567890123"),
            ),
            ("{\"value\": null}", Some("null")),
            ("{\"value\": 1, \"note\": \"x\"}", None),
            ("{\"value\": 1", None),
            ("{}", None),
            ("[1]", None),
        ] {
            assert_eq!(unwrap_value(answer), value, "{answer}");
        }
    }
}
