//! The form of an answer: `output_config.format`, or words.
//!
//! The API compiles the schema into a grammar and rejects what the grammar cannot say. A constraint that
//! is taken out is written into the description beside it, so that the model still reads it. A schema
//! whose values the grammar cannot say, such as one of objects with any fields, is asked for in words.
//! Whoever asked checks the answer against the schema as it was.

use serde_json::{Map, Value, json};

use crate::context::notes as words;
use crate::request::OutputFormat;
use crate::wire::schema;

/// Keywords that the grammar does not know.
const UNSUPPORTED: [&str; 13] = [
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
];

/// Keywords that the grammar does not know and without which other values would be asked for.
const INEXPRESSIBLE: [&str; 14] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "dependentSchemas",
    "dependentRequired",
    "$dynamicRef",
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

/// How an answer of a form is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum FormRequest {
    /// In the `output_config` field.
    Config(Value),
    /// In words for the system: the API rejects the schema.
    Instruction(String),
}

/// Asks for a form, in words where the API would reject it.
pub(super) fn form_request(format: &OutputFormat, notes: &mut Vec<String>) -> FormRequest {
    let mut changed = false;
    let Some(schema) = grammar(&format.schema, &mut changed) else {
        notes.push(format!(
            "the form `{}` is asked for in words: this API takes no schema of such values",
            format.name
        ));
        return FormRequest::Instruction(words::answer_form(&format.schema));
    };
    if changed {
        notes.push(format!(
            "the form `{}` is sent without constraints that this API does not take",
            format.name
        ));
    }
    FormRequest::Config(json!({"format": {"type": "json_schema", "schema": schema}}))
}

/// The schema as the grammar takes it; nothing where it cannot say it.
fn grammar(schema: &Value, changed: &mut bool) -> Option<Value> {
    if !schema::is_expandable(schema) {
        return None;
    }
    schema::closed(&without_constraints(schema, changed)?)
}

/// The schema with constraints in descriptions; nothing where it has a keyword that is more than one.
fn without_constraints(schema: &Value, changed: &mut bool) -> Option<Value> {
    let Value::Object(fields) = schema else {
        return Some(schema.clone());
    };
    if INEXPRESSIBLE.iter().any(|name| fields.contains_key(*name)) {
        return None;
    }
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
                    .map(|(name, schema)| Some((name.clone(), inner(schema)?)))
                    .collect::<Option<_>>()?,
            ),
            ("anyOf" | "allOf" | "oneOf", Value::Array(schemas)) => {
                Value::Array(schemas.iter().map(inner).collect::<Option<_>>()?)
            }
            ("items", schema) => inner(schema)?,
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
    Some(Value::Object(out))
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
            form_request(&format, &mut notes),
            FormRequest::Config(json!({"format": {"type": "json_schema", "schema": {
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
            }}}))
        );
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn w18_what_the_grammar_cannot_say_is_asked_for_in_words() {
        let open = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        let part = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        let of = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for schema in [
            open.clone(),
            of(open.clone()),
            of(json!({"type": "array", "items": open})),
            json!({"type": "object"}),
            json!({"type": "object", "allOf": [part("a"), part("b")]}),
            of(json!({"type": "array", "items": {"$ref": "#"}})),
            of(json!({"type": "array", "prefixItems": [{"type": "string"}]})),
            json!({"type": "object", "properties": {}, "patternProperties": {"^a": {}}}),
        ] {
            let format = OutputFormat {
                name: "answer".to_owned(),
                schema,
            };
            let mut notes = Vec::new();
            let expected = FormRequest::Instruction(words::answer_form(&format.schema));
            assert_eq!(form_request(&format, &mut notes), expected);
            assert_eq!(notes.len(), 1, "{}", format.schema);
        }
        // Properties may be called as keywords are.
        let format = OutputFormat {
            name: "answer".to_owned(),
            schema: of(json!({"type": "object", "properties": {"not": {"type": "string"}}})),
        };
        assert!(matches!(
            form_request(&format, &mut Vec::new()),
            FormRequest::Config(_)
        ));
    }
}
