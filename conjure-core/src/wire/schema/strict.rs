//! The subset of JSON Schema that OpenAI's strict mode takes.
//!
//! There every object is closed and every property required, every schema says its type or refers to
//! others that do, and only some keywords are known. A tool is strict when its schema is so already:
//! making an optional property required would change what the model sends, and the tool would refuse
//! it.

use serde_json::{Map, Value};

/// Keywords that strict mode knows, with those that only describe.
const SUPPORTED_KEYWORDS: [&str; 26] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "description",
    "title",
    "pattern",
    "format",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "minItems",
    "maxItems",
    "default",
    "examples",
    "$id",
];

/// One of these is in every schema of strict mode.
const TYPING: [&str; 3] = ["type", "anyOf", "$ref"];

/// Objects may be nested so deep in strict mode.
const MAX_DEPTH: usize = 10;

/// Whether strict mode takes the schema as it is.
pub(in crate::wire) fn is_strict(schema: &Value) -> bool {
    let at_top = schema.as_object().is_some_and(|fields| {
        fields.get("type").is_some_and(|kind| kind == "object") && !fields.contains_key("anyOf")
    });
    at_top && fits(schema, 0)
}

fn fits(schema: &Value, depth: usize) -> bool {
    let Some(fields) = schema.as_object() else {
        return false;
    };
    if depth > MAX_DEPTH
        || fields
            .keys()
            .any(|name| !SUPPORTED_KEYWORDS.contains(&name.as_str()))
    {
        return false;
    }
    if !TYPING.iter().any(|keyword| fields.contains_key(*keyword)) {
        return false;
    }
    if is_object(fields) && !(is_closed(fields) && requires_all(fields)) {
        return false;
    }
    if is_array(fields) && !fields.contains_key("items") {
        return false;
    }
    children(fields).all(|child| fits(child, depth + 1))
}

/// The schema with every object closed that did not say whether it is, for an answer's form. None
/// where it says that an object is open, or where closed objects would be joined: nothing fits two of them
/// that have other properties.
pub(in crate::wire) fn closed(schema: &Value) -> Option<Value> {
    let Value::Object(fields) = schema else {
        return Some(schema.clone());
    };
    if joins_objects(fields) {
        return None;
    }
    let mut out = Map::new();
    for (name, value) in fields {
        let value = match name.as_str() {
            "properties" | "$defs" | "definitions" => Value::Object(
                value
                    .as_object()?
                    .iter()
                    .map(|(key, child)| Some((key.clone(), closed(child)?)))
                    .collect::<Option<_>>()?,
            ),
            "anyOf" | "oneOf" | "allOf" => Value::Array(
                value
                    .as_array()?
                    .iter()
                    .map(closed)
                    .collect::<Option<_>>()?,
            ),
            "items" => closed(value)?,
            _ => value.clone(),
        };
        out.insert(name.clone(), value);
    }
    if is_object(&out) {
        if is_open(&out) {
            return None;
        }
        out.insert("additionalProperties".to_owned(), false.into());
    }
    Some(Value::Object(out))
}

/// Whether an object may have properties that its schema does not name. One that names none may have any:
/// closed, it would be empty.
fn is_open(fields: &Map<String, Value>) -> bool {
    match fields.get("additionalProperties") {
        None => !fields.contains_key("properties"),
        Some(open) => *open != Value::Bool(false),
    }
}

/// Whether a value must fit several schemas at once of which one may be of an object that this changes.
fn joins_objects(fields: &Map<String, Value>) -> bool {
    let parts = |name: &str| {
        fields
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let is_changed = |part: &Value| {
        part.as_object().is_some_and(|fields| {
            let leads_on = ["$ref", "anyOf", "oneOf", "allOf"];
            is_object(fields) || leads_on.iter().any(|name| fields.contains_key(*name))
        })
    };
    let beside = || parts("anyOf").chain(parts("oneOf"));
    parts("allOf").any(is_changed)
        || (is_object(fields) && (fields.contains_key("$ref") || beside().any(is_changed)))
}

fn children(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let maps = ["properties", "$defs", "definitions"]
        .into_iter()
        .filter_map(|name| fields.get(name).and_then(Value::as_object))
        .flat_map(|map| map.values());
    let lists = fields.get("anyOf").and_then(Value::as_array);
    maps.chain(lists.into_iter().flatten())
        .chain(fields.get("items"))
}

fn is_object(fields: &Map<String, Value>) -> bool {
    is_a(fields, "object") || fields.contains_key("properties")
}

fn is_array(fields: &Map<String, Value>) -> bool {
    is_a(fields, "array")
}

fn is_a(fields: &Map<String, Value>, wanted: &str) -> bool {
    match fields.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        Some(kind) => kind == wanted,
        None => false,
    }
}

fn is_closed(fields: &Map<String, Value>) -> bool {
    fields.get("additionalProperties") == Some(&Value::Bool(false))
}

fn requires_all(fields: &Map<String, Value>) -> bool {
    let required = fields.get("required").and_then(Value::as_array);
    let properties = fields.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().all(|(name, _)| {
        required.is_some_and(|required| required.iter().any(|known| known == name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w42_only_closed_objects_that_require_everything_are_strict() {
        let strict = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"anyOf": [{"type": "null"}, {
                    "type": "object", "properties": {"c": {"type": "array", "items": {"type": "number"}}},
                    "required": ["c"], "additionalProperties": false
                }]}
            },
            "required": ["b", "a"],
            "additionalProperties": false
        });
        assert!(is_strict(&strict));
        for (pointer, value) in [
            ("/additionalProperties", json!(true)),
            ("/required", json!(["a"])),
            (
                "/properties/a",
                json!({"type": "string", "minLength": 1, "if": {}}),
            ),
            ("/properties/a", json!({"type": "array"})),
            ("/properties/b/anyOf/1/additionalProperties", json!({})),
            ("/properties/b/anyOf/1/required", json!([])),
            ("/type", json!("string")),
            ("/properties/a", json!(true)),
            ("/properties/a", json!({})),
            ("/properties/a", json!({"enum": ["x", "y"]})),
            ("/properties/a", json!({"description": "anything"})),
            ("/properties/b/anyOf/0", json!({"const": null})),
        ] {
            let mut other = strict.clone();
            *other.pointer_mut(pointer).unwrap() = value.clone();
            assert!(!is_strict(&other), "{pointer} {value}");
        }
    }

    #[test]
    fn objects_of_an_answer_are_closed_unless_they_say_that_they_are_open() {
        let schema = json!({
            "type": "object",
            "properties": {"list": {"type": "array", "items": {"type": "object", "properties": {}}}}
        });
        assert_eq!(
            closed(&schema),
            Some(json!({
                "type": "object",
                "properties": {"list": {"type": "array", "items": {
                    "type": "object", "properties": {}, "additionalProperties": false
                }}},
                "additionalProperties": false
            }))
        );
        for open in [
            json!({"type": "object", "additionalProperties": {}}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            // Whatever it has: closed, it would be empty.
            json!({"type": "object"}),
            json!({"type": "array", "items": {"type": ["object", "null"]}}),
        ] {
            assert_eq!(closed(&open), None, "{open}");
        }
        let empty = json!({"type": "object", "additionalProperties": false});
        assert_eq!(closed(&empty), Some(empty.clone()));
    }

    #[test]
    fn objects_that_a_value_must_fit_at_once_are_not_closed_one_by_one() {
        let part = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        let (one, two) = (part("a"), part("b"));
        for joined in [
            json!({"allOf": [one, two]}),
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"anyOf": [two]}], "$defs": {"a": one}}),
            json!({"type": "object", "properties": {"a": {}}, "anyOf": [one, two]}),
            json!({"type": "object", "properties": {"a": {}}, "$ref": "#/$defs/a"}),
            json!({"type": "array", "items": {"allOf": [one]}}),
        ] {
            assert_eq!(closed(&joined), None, "{joined}");
        }
        // A choice of objects has nothing beside it, and what is no object is not changed.
        let choice = json!({"anyOf": [one, two]});
        assert!(closed(&choice).is_some());
        let texts = json!({"allOf": [{"type": "string"}, {"pattern": "^a"}]});
        assert_eq!(closed(&texts), Some(texts.clone()));
        let required = json!({
            "type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false,
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}]
        });
        assert_eq!(closed(&required), Some(required.clone()));
    }
}
