//! `x-mcp-header`: arguments that a server over HTTP wants in headers too.
//!
//! rmcp puts them there. A tool whose marks are wrong must not be used at all, and only that tool.

use std::collections::HashSet;

use serde_json::{Map, Value};

const HEADER_KEYWORD: &str = "x-mcp-header";

/// Whether the marks of a tool's schema can be followed.
///
/// # Errors
/// Why they cannot.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    let Value::Object(root) = schema else {
        return Ok(());
    };
    if root.contains_key(HEADER_KEYWORD) {
        return Err(format!("its `{HEADER_KEYWORD}` marks no property"));
    }
    let mut names = HashSet::new();
    properties(root, &mut names)
}

/// The properties of an object and of the objects in it.
fn properties(schema: &Map<String, Value>, names: &mut HashSet<String>) -> Result<(), String> {
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                for (name, property) in all {
                    if let Value::Object(property) = property {
                        check_property(name, property, names)?;
                        properties(property, names)?;
                    }
                }
            }
            (
                HEADER_KEYWORD | "default" | "const" | "enum" | "examples" | "dependentRequired",
                _,
            ) => {}
            // The names in these are of properties, and may be any.
            (
                "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties",
                Value::Object(by_name),
            ) if !by_name.values().any(is_marked) => {}
            (_, other) if is_marked(other) => {
                return Err(format!("its `{HEADER_KEYWORD}` is where no argument is"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_property(
    name: &str,
    property: &Map<String, Value>,
    names: &mut HashSet<String>,
) -> Result<(), String> {
    let Some(mark) = property.get(HEADER_KEYWORD) else {
        return Ok(());
    };
    let Some(header) = mark.as_str().filter(|header| is_token(header)) else {
        return Err(format!(
            "the `{HEADER_KEYWORD}` of `{name}` is no name of a header"
        ));
    };
    if !names.insert(header.to_ascii_lowercase()) {
        return Err(format!(
            "two arguments have the `{HEADER_KEYWORD}` {header}"
        ));
    }
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(()),
        _ => Err(format!(
            "`{name}` has an `{HEADER_KEYWORD}` and is no string, integer or boolean"
        )),
    }
}

/// Whether there is a mark anywhere below.
fn is_marked(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key(HEADER_KEYWORD) || fields.values().any(is_marked)
        }
        Value::Array(values) => values.iter().any(is_marked),
        _ => false,
    }
}

/// A token of RFC 9110.
fn is_token(text: &str) -> bool {
    let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(properties: &Value) -> Result<(), String> {
        check(&json!({ "type": "object", "properties": properties }))
    }

    #[test]
    fn marks_that_can_be_followed() {
        let inner = json!({ "b": { "type": "integer", HEADER_KEYWORD: "B" } });
        let nested = json!({ "type": "object", "properties": inner });
        assert_eq!(
            of(&json!({ "a": { "type": "string", HEADER_KEYWORD: "A" }, "n": nested })),
            Ok(())
        );
        // A property may have the name of a mark, also where others depend on it.
        let named = json!({
            HEADER_KEYWORD: { "type": "string" },
            "a": { "type": "string", HEADER_KEYWORD: "A" },
        });
        for depending in ["dependentRequired", "dependencies"] {
            let schema = json!({ "properties": named, depending: { HEADER_KEYWORD: ["a"] } });
            assert_eq!(check(&schema), Ok(()), "{depending}");
        }
        // Data that looks like a mark is none.
        assert_eq!(
            of(&json!({ "a": { "default": { HEADER_KEYWORD: "" } } })),
            Ok(())
        );
    }

    #[test]
    fn marks_that_cannot() {
        let string = |mark: Value| json!({ "type": "string", HEADER_KEYWORD: mark });
        for bad in [
            json!({ "a": string(json!("")) }),
            json!({ "a": string(json!(7)) }),
            json!({ "a": string(json!("a b")) }),
            json!({ "a": string(json!("a:b")) }),
            json!({ "a": string(json!("\u{e9}")) }),
            json!({ "a": { "type": "number", HEADER_KEYWORD: "A" } }),
            json!({ "a": { "type": "object", HEADER_KEYWORD: "A" } }),
            json!({ "a": string(json!("A")), "b": string(json!("a")) }),
            json!({ "a": { "type": "array", "items": string(json!("A")) } }),
        ] {
            assert!(of(&bad).is_err(), "{bad}");
        }
        assert!(check(&json!({ HEADER_KEYWORD: "A" })).is_err());
        assert!(check(&json!({ "anyOf": [string(json!("A"))] })).is_err());
        let inner = json!({ "properties": { "b": string(json!("B")) } });
        assert!(check(&json!({ "dependentSchemas": { HEADER_KEYWORD: inner } })).is_err());
    }
}
