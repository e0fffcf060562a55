//! Tool schemas with an object at the top.
//!
//! Providers want one there, without a choice beside it. What is taken away is only what the
//! model is told: the host checks arguments against the schema as it was.

use serde_json::{Map, Value};

use super::names;

/// The schema with an object at its top, and what was changed.
pub(in crate::wire) fn object_at_top(schema: &Value) -> (Value, Option<&'static str>) {
    let Some(fields) = schema.as_object() else {
        return (
            serde_json::json!({"type": "object"}),
            Some("its schema is no object, so any arguments are taken"),
        );
    };
    let choices = ["anyOf", "oneOf", "allOf"];
    let refused = ["not", "enum", "const", "if", "then", "else"];
    let has_choice = choices.iter().any(|choice| fields.contains_key(*choice));
    let is_object = fields.get("type").is_some_and(|kind| kind == "object");
    let is_refused = refused.iter().any(|name| fields.contains_key(*name));
    if is_object && !has_choice && !is_refused {
        return (schema.clone(), None);
    }
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    let mut properties = Map::new();
    let mut required: Option<Vec<Value>> = None;
    add_properties(&mut properties, fields);
    for choice in choices {
        let branches = fields.get(choice).and_then(Value::as_array);
        for branch in branches.into_iter().flatten().filter_map(Value::as_object) {
            add_properties(&mut properties, branch);
            if choice == "allOf" {
                continue;
            }
            // Only what every branch requires is required.
            let wants = names(branch, "required");
            required = Some(match required {
                None => wants,
                Some(all) => all.into_iter().filter(|one| wants.contains(one)).collect(),
            });
        }
    }
    let mut required = required.unwrap_or_default();
    let all_of = fields.get("allOf").and_then(Value::as_array);
    let always = all_of.into_iter().flatten().filter_map(Value::as_object);
    for name in always
        .chain([fields])
        .flat_map(|branch| names(branch, "required"))
    {
        if !required.contains(&name) {
            required.push(name);
        }
    }
    if !properties.is_empty() {
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if !required.is_empty() {
        out.insert("required".to_owned(), Value::Array(required));
    }
    for (name, value) in fields {
        let done = choices.contains(&name.as_str()) || refused.contains(&name.as_str());
        if !done && !out.contains_key(name) {
            out.insert(name.clone(), value.clone());
        }
    }
    let note = "its schema is told without the choice or type at its top, which providers reject";
    (Value::Object(out), Some(note))
}

fn add_properties(all: &mut Map<String, Value>, branch: &Map<String, Value>) {
    let properties = branch.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        if !all.contains_key(name) {
            all.insert(name.clone(), schema.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ordinary_schema_is_sent_as_it_is() {
        let schema =
            json!({"$schema": "s", "type": "object", "properties": {"b": {"anyOf": []}, "a": {}}});
        assert_eq!(object_at_top(&schema), (schema.clone(), None));
    }

    #[test]
    fn w18_what_providers_reject_at_the_top_is_taken_apart() {
        let schema = json!({
            "description": "d",
            "required": ["x"],
            "properties": {"x": {"type": "string"}},
            "anyOf": [
                {"properties": {"a": {"type": "string"}, "c": {}}, "required": ["c", "a"]},
                {"properties": {"b": {"type": "integer"}, "c": {}}, "required": ["b", "c"]}
            ],
            "$defs": {"d": {}}
        });
        let (told, note) = object_at_top(&schema);
        assert_eq!(
            told,
            json!({
                "type": "object",
                "properties": {
                    "x": {"type": "string"}, "a": {"type": "string"}, "c": {},
                    "b": {"type": "integer"}
                },
                "required": ["c", "x"],
                "description": "d",
                "$defs": {"d": {}}
            })
        );
        assert!(note.is_some());
        assert_eq!(object_at_top(&json!(true)).0, json!({"type": "object"}));
        assert_eq!(object_at_top(&json!({})).0, json!({"type": "object"}));
    }
}
