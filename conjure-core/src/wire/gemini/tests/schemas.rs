//! Schemas in the subset that the API takes.

use super::super::schema::project;
use super::*;
use crate::chat::Message;
use crate::wire::test_kit::{json as body_of, tool};

#[test]
fn w54_what_the_subset_cannot_say_is_told_or_left_out() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "fixed": {"const": "a"},
            "number": {"const": 5, "description": "Five."},
            "maybe": {"type": ["string", "null"], "minLength": 1},
            "either": {"type": ["string", "integer"]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/point"}},
            "bare": {"type": "array"},
            "sizes": {"enum": [1, 2, null]},
            "when": {"type": "string", "format": "date", "description": "Day."},
            "choice": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/point"}]},
            "map": {"type": "object", "propertyNames": {"pattern": "x"}, "additionalProperties": {"type": "string"}},
            "all": {"allOf": [{"$ref": "#/$defs/point"}, {"properties": {"z": {"type": "number"}}, "required": ["z", "gone"]}]},
            "any": {}
        },
        "required": ["fixed", "list"],
        "additionalProperties": false,
        "$defs": {"point": {"type": "object", "properties": {"y": {"type": "number"}, "x": {"type": "number", "exclusiveMinimum": 0}}, "required": ["y"]}}
    });
    let point = json!({"type": "object", "properties": {"y": {"type": "number"}, "x": {"type": "number"}}, "required": ["y"]});
    let mut choice = point.clone();
    choice["nullable"] = true.into();
    let expected = json!({
        "type": "object",
        "properties": {
            "fixed": {"type": "string", "enum": ["a"]},
            "number": {"type": "integer", "description": "Five. (one of: 5)"},
            "maybe": {"type": "string", "minLength": 1, "nullable": true},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "list": {"type": "array", "items": point},
            "bare": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "integer", "nullable": true, "description": "one of: 1, 2"},
            "when": {"type": "string", "description": "Day. (format: date)"},
            "choice": choice,
            "map": {"type": "object"},
            "all": {"type": "object", "properties": {"y": {"type": "number"}, "x": {"type": "number"}, "z": {"type": "number"}}, "required": ["y", "z"]},
            "any": {"type": "string"}
        },
        "required": ["fixed", "list"]
    });
    let told = project(&schema).unwrap();
    assert_eq!(told, expected);
    for word in [
        "const",
        "$ref",
        "$schema",
        "additionalProperties",
        "propertyNames",
        "oneOf",
    ] {
        assert!(!told.to_string().contains(word), "{word}");
    }
}

#[test]
fn w54_a_schema_that_refers_to_itself_costs_one_tool() {
    let mut request = RIG.request(vec![Message::user("q")]);
    let tree = json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}}});
    let fine = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    request.tools = vec![tool("tree", tree), tool("fine", fine)];
    let encoded = RIG.encode(&request);
    let declared = &body_of(&encoded)["tools"][0]["functionDeclarations"];
    assert_eq!(declared.as_array().unwrap().len(), 1);
    assert_eq!(encoded.quarantined[0].tool, "tree");
    assert!(encoded.quarantined[0].reason.contains("refers to itself"));
}

#[test]
fn w55_properties_keep_their_order() {
    let properties: Vec<String> = (0..50).map(|n| format!("p{}", (n * 37) % 50)).collect();
    let fields = properties
        .iter()
        .map(|name| (name.clone(), json!({"type": "string"})));
    let schema = json!({"type": "object", "properties": serde_json::Map::from_iter(fields)});
    let told = project(&schema).unwrap();
    let order: Vec<&String> = told["properties"].as_object().unwrap().keys().collect();
    assert_eq!(order, properties.iter().collect::<Vec<_>>());
    assert_eq!(project(&schema).unwrap().to_string(), told.to_string());
}
