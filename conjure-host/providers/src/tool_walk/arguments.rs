//! Arguments out of a JSON Schema: the plainest value that fits.
//!
//! What the schema's author gave as `const`, `default`, `examples` or `enum` wins. Fits what schemas
//! of tools say; `pattern`, `not` and `if` are not looked at.

use serde_json::{Map, Value, json};

/// How deep a value may go; a schema that contains itself ends there.
const DEPTH: usize = 8;

/// An object that fits the schema of a tool's arguments: what is required, and what has a value of
/// its author's.
pub(super) fn generate(schema: &Value) -> Value {
    match value(schema, schema, DEPTH) {
        Value::Object(fields) => Value::Object(fields),
        _ => json!({}),
    }
}

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(given) = declared_value(schema) {
        return given;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Value::Null;
    };
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let found = target.strip_prefix('#').and_then(|path| root.pointer(path));
        return found.map_or(Value::Null, |found| value(found, root, depth));
    }
    if let Some(all) = schema.get("allOf").and_then(Value::as_array) {
        let mut fields = object(schema, root, depth);
        for part in all {
            match value(part, root, depth) {
                Value::Object(more) => fields.extend(more),
                other => return other,
            }
        }
        return Value::Object(fields);
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(ways) = schema.get(word).and_then(Value::as_array) {
            let is_null = |way: &&Value| way.get("type") == Some(&json!("null"));
            let way = ways.iter().find(|way| !is_null(way)).or(ways.first());
            let mut made = way.map_or(Value::Null, |way| value(way, root, depth));
            if let Value::Object(fields) = &mut made {
                let mut own = object(schema, root, depth);
                own.append(fields);
                made = Value::Object(own);
            }
            return made;
        }
    }
    match kind(schema) {
        "object" => Value::Object(object(schema, root, depth)),
        "array" => array(schema, root, depth),
        "string" => Value::String(text(schema)),
        "integer" => integer(schema),
        "number" => number(schema),
        "boolean" => Value::Bool(false),
        _ => Value::Null,
    }
}

/// A value that the schema's author wrote down.
fn declared_value(schema: &Value) -> Option<Value> {
    let first = |word| schema.get(word)?.as_array()?.first();
    schema
        .get("const")
        .or_else(|| schema.get("default"))
        .or_else(|| first("examples"))
        .or_else(|| first("enum"))
        .cloned()
}

fn kind(schema: &Value) -> &str {
    let named = match schema.get("type") {
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.find(|kind| *kind != "null")
        }
        _ => None,
    };
    named.unwrap_or_else(|| {
        if schema.get("properties").is_some() {
            "object"
        } else if schema.get("items").is_some() {
            "array"
        } else {
            // Anything fits, and a text is what most tools can say something about.
            "string"
        }
    })
}

fn object(schema: &Value, root: &Value, depth: usize) -> Map<String, Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut fields = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if required.contains(&name.as_str()) {
            fields.insert(name.clone(), value(property, root, depth));
        } else if let Some(given) = declared_value(property).filter(|given| !given.is_null()) {
            fields.insert(name.clone(), given);
        }
    }
    for name in required {
        fields
            .entry(name)
            .or_insert_with(|| Value::String("text".to_owned()));
    }
    fields
}

fn array(schema: &Value, root: &Value, depth: usize) -> Value {
    let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let fixed = schema.get("prefixItems").and_then(Value::as_array);
    let mut items: Vec<Value> = fixed
        .into_iter()
        .flatten()
        .map(|item| value(item, root, depth))
        .collect();
    let more = schema.get("items").unwrap_or(&Value::Null);
    let least = usize::try_from(least.min(64)).unwrap_or(64);
    while items.len() < least {
        items.push(value(more, root, depth));
    }
    Value::Array(items)
}

fn text(schema: &Value) -> String {
    let format = schema.get("format").and_then(Value::as_str);
    let plain = match format.unwrap_or_default() {
        "date-time" => "2000-01-01T00:00:00Z",
        "date" => "2000-01-01",
        "time" => "00:00:00Z",
        "duration" => "PT1S",
        "email" => "nobody@example.com",
        "hostname" => "example.com",
        "ipv4" => "127.0.0.1",
        "ipv6" => "::1",
        "uri" | "uri-reference" | "iri" => "https://example.com/",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        _ => "text",
    };
    let length = |word| schema.get(word).and_then(Value::as_u64);
    let mut text = plain.to_owned();
    let least = usize::try_from(length("minLength").unwrap_or(0).min(4096)).unwrap_or(0);
    while text.len() < least {
        text.push('x');
    }
    if let Some(most) = length("maxLength") {
        text.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    text
}

fn integer(schema: &Value) -> Value {
    let bound = |word| schema.get(word).and_then(Value::as_f64);
    let least = bound("minimum").map(f64::ceil);
    let above = bound("exclusiveMinimum").map(|bound| bound.floor() + 1.0);
    let most = bound("maximum").map(f64::floor);
    let below = bound("exclusiveMaximum").map(|bound| bound.ceil() - 1.0);
    let step = bound("multipleOf")
        .filter(|step| *step > 0.0)
        .unwrap_or(1.0);
    json!(nearest(least.or(above), most.or(below), step) as i64)
}

fn number(schema: &Value) -> Value {
    let bound = |word| schema.get(word).and_then(Value::as_f64);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|bound| bound + 0.5));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|bound| bound - 0.5));
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    match step {
        Some(step) => json!(nearest(least, most, step)),
        None => json!(
            1.0_f64
                .min(most.unwrap_or(1.0))
                .max(least.unwrap_or(f64::MIN))
        ),
    }
}

/// The multiple of `step` within bounds that is nearest to 1 from below, or the lowest.
fn nearest(least: Option<f64>, most: Option<f64>, step: f64) -> f64 {
    let wanted = step.max(1.0).min(most.unwrap_or(f64::MAX));
    let wanted = (wanted / step).floor() * step;
    match least {
        Some(least) if wanted < least => (least / step).ceil() * step,
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_there_and_fits() {
        for (schema, arguments) in [
            (json!({}), json!({})),
            (json!(true), json!({})),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                json!({}),
            ),
            (
                json!({"type": "object", "required": ["a", "b", "c", "d", "e", "f"], "properties": {
                    "a": {"type": "string", "minLength": 6}, "b": {"type": "integer", "minimum": 3},
                    "c": {"type": ["null", "boolean"]}, "d": {"enum": ["x", "y"]},
                    "e": {"type": "array", "minItems": 2, "items": {"type": "number", "maximum": 0.5}},
                    "f": {"type": "string", "format": "date"},
                }}),
                json!({"a": "textxx", "b": 3, "c": false, "d": "x", "e": [0.5, 0.5], "f": "2000-01-01"}),
            ),
            (
                json!({"properties": {"a": {"type": "integer", "default": 7}, "b": {"default": null}}}),
                json!({"a": 7}),
            ),
            (
                json!({"required": ["a"], "properties": {"a": {"$ref": "#/$defs/A"}},
                    "$defs": {"A": {"type": "object", "required": ["n"], "properties": {
                        "n": {"anyOf": [{"type": "null"}, {"type": "integer", "exclusiveMinimum": 4}]}}}}}),
                json!({"a": {"n": 5}}),
            ),
            (
                json!({"required": ["a"], "properties": {"a": {
                    "allOf": [{"required": ["x"], "properties": {"x": {"const": 1}}}],
                    "required": ["y"], "properties": {"y": {"type": "string", "maxLength": 2}}}}}),
                json!({"a": {"y": "te", "x": 1}}),
            ),
            (
                json!({"type": "object", "required": ["unknown"]}),
                json!({"unknown": "text"}),
            ),
        ] {
            let made = generate(&schema);
            assert_eq!(made, arguments, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let schema = json!({"type": "object", "required": ["next"],
            "properties": {"next": {"$ref": "#"}}});
        assert!(generate(&schema).to_string().len() < 200);
    }

    #[test]
    fn integers_keep_their_bounds_and_steps() {
        for (schema, fits) in [
            (json!({"type": "integer"}), 1),
            (json!({"type": "integer", "maximum": -2}), -2),
            (json!({"type": "integer", "minimum": 3, "multipleOf": 5}), 5),
            (json!({"type": "integer", "exclusiveMaximum": 1}), 0),
            (json!({"type": "integer", "minimum": 2.5}), 3),
        ] {
            assert_eq!(integer(&schema), json!(fits), "{schema}");
        }
    }
}
