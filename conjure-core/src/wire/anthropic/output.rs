//! The form of an answer: `output_config.format`.
//!
//! The API compiles the schema into a grammar and rejects what the grammar cannot say. What is
//! taken out is written into the description beside it, so that the model still reads it; whoever
//! asked checks the answer against the schema as it was.

use serde_json::{Map, Value, json};

use crate::request::OutputFormat;
use crate::wire::schema;

/// Keywords that the grammar does not know.
const UNSUPPORTED: [&str; 14] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "patternProperties",
];

/// Formats of texts that it knows.
const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv4",
    "ipv6",
];

/// The `output_config` field.
pub(super) fn config(format: &OutputFormat, notes: &mut Vec<String>) -> Value {
    let mut changed = false;
    let schema = without_constraints(&format.schema, &mut changed);
    if changed {
        notes.push(format!(
            "the form `{}` is sent without constraints that this API does not take",
            format.name
        ));
    }
    let schema = schema::closed(&schema).unwrap_or_else(|| {
        notes.push(format!(
            "the form `{}` has objects with open fields, which this API rejects",
            format.name
        ));
        schema
    });
    json!({"format": {"type": "json_schema", "schema": schema}})
}

fn without_constraints(schema: &Value, changed: &mut bool) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let mut out = Map::new();
    let mut told: Vec<String> = Vec::new();
    for (name, value) in fields {
        let least = value.as_u64().filter(|_| name == "minItems");
        let format = value.as_str().filter(|_| name == "format");
        let is_unsupported = UNSUPPORTED.contains(&name.as_str())
            || least.is_some_and(|least| least > 1)
            || format.is_some_and(|format| !FORMATS.contains(&format));
        if is_unsupported {
            told.push(format!("{name}: {value}"));
            continue;
        }
        let mut inner = |value: &Value| without_constraints(value, changed);
        let value = match (name.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => Value::Object(
                schemas
                    .iter()
                    .map(|(name, schema)| (name.clone(), inner(schema)))
                    .collect(),
            ),
            ("anyOf" | "allOf" | "oneOf", Value::Array(schemas)) => {
                Value::Array(schemas.iter().map(inner).collect())
            }
            ("items", schema) => inner(schema),
            _ => value.clone(),
        };
        // A choice of exactly one is, to the grammar, a choice.
        let name = if name == "oneOf" { "anyOf" } else { name };
        out.insert(name.to_owned(), value);
    }
    if !told.is_empty() {
        *changed = true;
        let told = format!("{{{}}}", told.join(", "));
        let description = match out.get("description").and_then(Value::as_str) {
            Some(description) => format!("{description}\n\n{told}"),
            None => told,
        };
        out.insert("description".to_owned(), description.into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w18_constraints_that_the_api_rejects_are_told_in_the_description() {
        let format = OutputFormat {
            name: "answer".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "A digit."},
                    "l": {"type": "array", "minItems": 3, "items": {"type": "string", "format": "color"}},
                    "one": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "date"}},
                    "minimum": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]}
                },
                "required": ["n"]
            }),
        };
        let mut notes = Vec::new();
        assert_eq!(
            config(&format, &mut notes),
            json!({"format": {"type": "json_schema", "schema": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "description": "A digit.\n\n{minimum: 1, maximum: 9}"},
                    "l": {"type": "array", "items": {"type": "string", "description": "{format: \"color\"}"},
                          "description": "{minItems: 3}"},
                    "one": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "date"}},
                    "minimum": {"anyOf": [{"type": "null"}, {"type": "string", "description": "{maxLength: 2}"}]}
                },
                "required": ["n"],
                "additionalProperties": false
            }}})
        );
        assert_eq!(notes.len(), 1);
    }
}
