//! The subset of JSON Schema that OpenAI's strict mode takes.
//!
//! There every object is closed and every property required, every schema says its type or refers to
//! others that do, and only some keywords are known. A tool is strict when its schema is so already:
//! making an optional property required would change what the model sends, and the tool would refuse
//! it.

use serde_json::{Map, Value};

/// Keywords that strict mode knows, with those that only describe.
const KNOWN: [&str; 26] = [
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
const MOST_DEPTH: usize = 10;

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
    if depth > MOST_DEPTH || fields.keys().any(|name| !KNOWN.contains(&name.as_str())) {
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
/// where it says that an object is open.
pub(in crate::wire) fn closed(schema: &Value) -> Option<Value> {
    match schema {
        Value::Object(fields) => {
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
                match out.get("additionalProperties") {
                    None | Some(Value::Bool(false)) => {
                        out.insert("additionalProperties".to_owned(), false.into());
                    }
                    Some(_) => return None,
                }
            }
            Some(Value::Object(out))
        }
        other => Some(other.clone()),
    }
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
        assert_eq!(
            closed(&json!({"type": "object", "additionalProperties": {}})),
            None
        );
    }
}
