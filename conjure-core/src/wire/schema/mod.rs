//! Schemas of tools and answers as providers take them.
//!
//! What is changed here is only what the model is told: the host checks arguments against the
//! schema as it was. A schema that no change makes acceptable costs one tool, never the request.

mod strict;
mod top;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub(super) use strict::{closed, is_strict};
pub(super) use top::object_at_top;

/// How deep schemas may be nested.
const MAX_DEPTH: usize = 64;

/// Whether every provider reads it as JSON Schema; the error says what is wrong, and where.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    walk(schema, schema, "", 0)
}

fn walk(schema: &Value, root: &Value, at: &str, depth: usize) -> Result<(), String> {
    let place = if at.is_empty() { "its top" } else { at };
    if depth > MAX_DEPTH {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(_) => return Ok(()),
        _ => return Err(format!("{place} is no schema")),
    };
    for (name, value) in fields {
        let here = || format!("{at}/{name}");
        let wrong = |what: &str| Err(format!("`{}` {what}", here()));
        match name.as_str() {
            "type" if !is_type(value) => return wrong("is no type of JSON Schema"),
            "properties" | "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                let Some(schemas) = value.as_object() else {
                    return wrong("is no object");
                };
                for (key, schema) in schemas {
                    walk(schema, root, &format!("{}/{key}", here()), depth + 1)?;
                }
            }
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "additionalItems"
            | "unevaluatedProperties" => {
                walk(value, root, &here(), depth + 1)?;
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let Some(schemas) = value.as_array().filter(|list| !list.is_empty()) else {
                    return wrong("is no list of schemas");
                };
                for (key, schema) in schemas.iter().enumerate() {
                    walk(schema, root, &format!("{}/{key}", here()), depth + 1)?;
                }
            }
            "required"
                if !value
                    .as_array()
                    .is_some_and(|l| l.iter().all(Value::is_string)) =>
            {
                return wrong("is no list of names");
            }
            "enum" if !value.is_array() => return wrong("is no list"),
            "description" | "title" | "format" | "pattern" if !value.is_string() => {
                return wrong("is no text");
            }
            "$ref" => {
                let target = value.as_str().and_then(|path| resolve(root, path));
                if target.is_none() {
                    return wrong("names nothing in the schema");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_type(value: &Value) -> bool {
    const TYPES: [&str; 7] = [
        "object", "array", "string", "number", "integer", "boolean", "null",
    ];
    let known = |value: &Value| value.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        _ => known(value),
    }
}

/// The schema with every list saying what is in it: some servers reject one that does not.
pub(super) fn with_items(mut schema: Value) -> Value {
    fill_items(&mut schema);
    schema
}

fn fill_items(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let is_list = fields.get("type").is_some_and(|kind| kind == "array");
    if is_list && !fields.contains_key("items") && !fields.contains_key("prefixItems") {
        fields.insert("items".to_owned(), Value::Object(Map::new()));
    }
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.values_mut().for_each(fill_items);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(fill_items);
            }
            ("items" | "additionalProperties", schema) => fill_items(schema),
            _ => {}
        }
    }
}

/// What a local reference such as `#/$defs/a` names.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Whether all references can be written out: each leads to a schema in this one, and none to where it
/// stands itself.
pub(super) fn is_expandable(schema: &Value) -> bool {
    Expansion {
        root: schema,
        active: Vec::new(),
        visited: BTreeSet::new(),
    }
    .can_expand(schema)
}

/// A walk along the references of a schema.
struct Expansion<'a> {
    root: &'a Value,
    /// References that the walk is in.
    active: Vec<&'a str>,
    /// References that were followed to their end.
    visited: BTreeSet<&'a str>,
}

impl<'a> Expansion<'a> {
    fn can_expand(&mut self, schema: &'a Value) -> bool {
        match schema {
            Value::Object(fields) => {
                let reference = fields.get("$ref").and_then(Value::as_str);
                let inner = reference.is_none_or(|reference| self.can_follow(reference));
                inner && fields.values().all(|value| self.can_expand(value))
            }
            Value::Array(values) => values.iter().all(|value| self.can_expand(value)),
            _ => true,
        }
    }

    fn can_follow(&mut self, reference: &'a str) -> bool {
        if self.visited.contains(reference) {
            return true;
        }
        if self.active.contains(&reference) || self.active.len() == MAX_DEPTH {
            return false;
        }
        let Some(target) = resolve(self.root, reference) else {
            return false;
        };
        self.active.push(reference);
        let can_expand = self.can_expand(target);
        self.active.pop();
        self.visited.insert(reference);
        can_expand
    }
}

/// The list of names in a field.
pub(super) fn names(fields: &Map<String, Value>, name: &str) -> Vec<Value> {
    let list = fields.get(name).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_json_schema_is_told_with_its_place() {
        let told = [
            json!([]),
            json!({"type": "text"}),
            json!({"properties": []}),
            json!({"properties": {"a": {"type": ["string", 1]}}}),
            json!({"properties": {"a": {"items": [{"type": "string"}]}}}),
            json!({"required": true}),
            json!({"anyOf": []}),
            json!({"properties": {"a": {"$ref": "#/$defs/b"}}}),
            json!({"description": 1}),
        ]
        .map(|schema| check(&schema).unwrap_err());
        insta::assert_snapshot!(told.join("\n"), @r"
        its top is no schema
        `/type` is no type of JSON Schema
        `/properties` is no object
        `/properties/a/type` is no type of JSON Schema
        /properties/a/items is no schema
        `/required` is no list of names
        `/anyOf` is no list of schemas
        `/properties/a/$ref` names nothing in the schema
        `/description` is no text
        ");
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        assert!(check(&deep).unwrap_err().contains("64 levels"));
    }

    #[test]
    fn references_are_written_out_unless_they_lead_back_or_nowhere() {
        let shared = json!({
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/a"}, "$ref": {}},
            "$defs": {"a": {"items": {"$ref": "#/$defs/c"}}, "c": {"type": "string"}}
        });
        assert!(is_expandable(&shared));
        for schema in [
            json!({"properties": {"next": {"$ref": "#"}}}),
            json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"items": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}
            }}),
            json!({"$ref": "#/$defs/a"}),
            json!({"$ref": "https://example.com/a"}),
        ] {
            assert!(!is_expandable(&schema), "{schema}");
        }
    }

    #[test]
    fn a_list_says_what_is_in_it() {
        let schema = json!({"properties": {"a": {"type": "array"}, "items": {"type": "string"}}});
        assert_eq!(
            with_items(schema),
            json!({"properties": {"a": {"type": "array", "items": {}}, "items": {"type": "string"}}})
        );
    }

    #[test]
    fn ordinary_schemas_pass() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["a"]},
                "n": {"type": ["integer", "null"], "minimum": 1, "x-own": []},
                "r": {"$ref": "#/$defs/node"},
                "any": true
            },
            "required": ["n"],
            "additionalProperties": {"anyOf": [{"const": 1}, {"type": "array", "items": {}}]},
            "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}
        });
        assert_eq!(check(&schema), Ok(()));
    }
}
