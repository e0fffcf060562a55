//! Tool schemas that this API takes.
//!
//! It wants an object at the top, without a choice there. What is taken away is only what the
//! model is told: the host checks arguments against the schema as it was.

use serde_json::{Map, Value};

/// The schema as this API takes it, and what was changed.
pub(super) fn input_schema(schema: &Value) -> (Value, Option<&'static str>) {
    let Some(fields) = schema.as_object() else {
        return (
            serde_json::json!({"type": "object"}),
            Some("its schema is no object, so any arguments are taken"),
        );
    };
    let choices = ["anyOf", "oneOf", "allOf"];
    let has_choice = choices.iter().any(|choice| fields.contains_key(*choice));
    let is_object = fields.get("type").is_some_and(|kind| kind == "object");
    if is_object && !has_choice {
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
            let wants = list(branch, "required");
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
        .flat_map(|branch| list(branch, "required"))
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
        let done = choices.contains(&name.as_str());
        if !done && !out.contains_key(name) {
            out.insert(name.clone(), value.clone());
        }
    }
    let note = "its schema is told without the choice or type at its top, which this API rejects";
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

fn list(branch: &Map<String, Value>, name: &str) -> Vec<Value> {
    let list = branch.get(name).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ordinary_schema_is_sent_as_it_is() {
        let schema =
            json!({"$schema": "s", "type": "object", "properties": {"b": {"anyOf": []}, "a": {}}});
        assert_eq!(input_schema(&schema), (schema.clone(), None));
    }

    #[test]
    fn wire_18_what_the_api_rejects_at_the_top_is_taken_apart() {
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
        let (told, note) = input_schema(&schema);
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
        assert_eq!(input_schema(&json!(true)).0, json!({"type": "object"}));
        assert_eq!(input_schema(&json!({})).0, json!({"type": "object"}));
    }
}
