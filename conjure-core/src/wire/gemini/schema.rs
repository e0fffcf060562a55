//! Tool schemas as this API takes them: a subset of OpenAPI's, without references.
//!
//! What the subset cannot say is told in the description where that helps, and left out where it
//! does not. Properties keep their order: the provider's cache goes by it.

use serde_json::{Map, Value, json};

use crate::wire::schema::resolve;

/// Keywords that are taken over as they are.
const KEPT_KEYWORDS: [&str; 10] = [
    "title",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minProperties",
    "maxProperties",
    "pattern",
];

/// Formats that the subset knows.
const FORMATS: [&str; 6] = ["date-time", "enum", "float", "double", "int32", "int64"];

/// The schema in the subset.
///
/// # Errors
/// A sentence, when it refers to itself: that cannot be written out.
pub(super) fn project(schema: &Value) -> Result<Value, String> {
    Projection {
        root: schema,
        active: Vec::new(),
    }
    .schema(schema)
}

struct Projection<'a> {
    root: &'a Value,
    /// The references that are being written out.
    active: Vec<&'a str>,
}

impl<'a> Projection<'a> {
    fn schema(&mut self, schema: &'a Value) -> Result<Value, String> {
        let Some(fields) = schema.as_object() else {
            return Ok(any());
        };
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, fields);
        }
        let mut out = Map::new();
        let mut told: Vec<String> = Vec::new();
        let mut nullable = fields.get("nullable") == Some(&Value::Bool(true));
        let kinds = kinds(fields, &mut nullable);
        if let [kind] = kinds.as_slice() {
            out.insert("type".to_owned(), (*kind).into());
        }
        for name in KEPT_KEYWORDS {
            if let Some(value) = fields.get(name) {
                out.insert(name.to_owned(), value.clone());
            }
        }
        if let Some(format) = fields.get("format").and_then(Value::as_str) {
            if FORMATS.contains(&format) {
                out.insert("format".to_owned(), format.into());
            } else {
                told.push(format!("format: {format}"));
            }
        }
        self.values(fields, &mut out, &mut told, &mut nullable);
        self.members(fields, &mut out)?;
        self.choices(fields, &kinds, &mut out, &mut nullable)?;
        if nullable {
            out.insert("nullable".to_owned(), true.into());
        }
        if !out.contains_key("type") && !out.contains_key("anyOf") {
            out.insert("type".to_owned(), "string".into());
        }
        let description = fields.get("description").and_then(Value::as_str);
        let told = told.join(", ");
        let description = match (description, told.as_str()) {
            (Some(description), "") => description.to_owned(),
            (Some(description), told) => format!("{description} ({told})"),
            (None, told) => told.to_owned(),
        };
        if !description.is_empty() {
            out.insert("description".to_owned(), description.into());
        }
        Ok(Value::Object(out))
    }

    fn reference(
        &mut self,
        reference: &'a str,
        fields: &'a Map<String, Value>,
    ) -> Result<Value, String> {
        if self.active.contains(&reference) {
            return Err(format!(
                "its schema refers to itself (`{reference}`), which this API cannot be told"
            ));
        }
        let target = resolve(self.root, reference)
            .ok_or_else(|| format!("its schema names `{reference}`, which is not in it"))?;
        self.active.push(reference);
        let mut out = self.schema(target)?;
        self.active.pop();
        if let (Some(out), Some(description)) = (out.as_object_mut(), fields.get("description")) {
            out.insert("description".to_owned(), description.clone());
        }
        Ok(out)
    }

    /// `enum` and `const`: texts are kept, other values are told.
    #[expect(clippy::unused_self, reason = "beside its siblings")]
    fn values(
        &self,
        fields: &Map<String, Value>,
        out: &mut Map<String, Value>,
        told: &mut Vec<String>,
        nullable: &mut bool,
    ) {
        let constant = fields.get("const").map(std::slice::from_ref);
        let listed = fields.get("enum").and_then(Value::as_array);
        let Some(values) = constant.or(listed.map(Vec::as_slice)) else {
            return;
        };
        *nullable |= values.iter().any(Value::is_null);
        let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
        if values.is_empty() {
            return;
        }
        if values.iter().all(|value| value.is_string()) {
            out.insert("type".to_owned(), "string".into());
            out.insert("enum".to_owned(), json!(values));
        } else {
            let kind = match values.first() {
                Some(Value::Bool(_)) => "boolean",
                Some(Value::Number(number)) if number.is_f64() => "number",
                Some(Value::Number(_)) => "integer",
                _ => "string",
            };
            out.entry("type").or_insert_with(|| kind.into());
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            told.push(format!("one of: {}", values.join(", ")));
        }
    }

    /// Properties and items.
    fn members(
        &mut self,
        fields: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let mut properties = Map::new();
        let mut required: Vec<Value> = Vec::new();
        let all_of = fields.get("allOf").and_then(Value::as_array);
        let parts = all_of.into_iter().flatten();
        let mut parts: Vec<&'a Map<String, Value>> = parts.filter_map(Value::as_object).collect();
        // A part of `allOf` is often a reference.
        for part in &mut parts {
            let reference = part.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|reference| resolve(self.root, reference));
            if let Some(target) = target.and_then(Value::as_object) {
                *part = target;
            }
        }
        for part in parts.into_iter().chain([fields]) {
            let known = part.get("properties").and_then(Value::as_object);
            for (name, schema) in known.into_iter().flatten() {
                let schema = self.schema(schema)?;
                properties.insert(name.clone(), schema);
            }
            let names = part.get("required").and_then(Value::as_array);
            required.extend(names.into_iter().flatten().cloned());
        }
        required.retain(|name| {
            name.as_str()
                .is_some_and(|name| properties.contains_key(name))
        });
        let mut seen = std::collections::HashSet::new();
        required.retain(|name| seen.insert(name.to_string()));
        if !properties.is_empty() {
            out.insert("type".to_owned(), "object".into());
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        let first = fields.get("prefixItems").and_then(|items| items.get(0));
        if let Some(items) = fields.get("items").or(first) {
            let items = self.schema(items)?;
            out.entry("type").or_insert_with(|| "array".into());
            out.insert("items".to_owned(), items);
        } else if out.get("type").is_some_and(|kind| kind == "array") {
            out.insert("items".to_owned(), any());
        }
        Ok(())
    }

    /// `anyOf`, `oneOf` and lists of types.
    fn choices(
        &mut self,
        fields: &'a Map<String, Value>,
        kinds: &[&str],
        out: &mut Map<String, Value>,
        nullable: &mut bool,
    ) -> Result<(), String> {
        let mut choices: Vec<Value> = Vec::new();
        if kinds.len() > 1 {
            choices.extend(kinds.iter().map(|kind| match *kind {
                "array" => json!({"type": "array", "items": any()}),
                kind => json!({ "type": kind }),
            }));
        }
        for name in ["anyOf", "oneOf"] {
            let listed = fields.get(name).and_then(Value::as_array);
            for choice in listed.into_iter().flatten() {
                if choice.get("type").is_some_and(|kind| kind == "null") {
                    *nullable = true;
                } else {
                    choices.push(self.schema(choice)?);
                }
            }
        }
        let single = (choices.len() == 1).then(|| choices.swap_remove(0));
        match single {
            Some(Value::Object(only)) => {
                for (name, value) in only {
                    out.entry(name).or_insert(value);
                }
            }
            _ if choices.is_empty() => {}
            _ => {
                out.insert("anyOf".to_owned(), Value::Array(choices));
            }
        }
        Ok(())
    }
}

/// The types of a schema without `null`.
fn kinds<'a>(fields: &'a Map<String, Value>, nullable: &mut bool) -> Vec<&'a str> {
    let kinds: Vec<&str> = match fields.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    *nullable |= kinds.len() > 1 && kinds.contains(&"null");
    kinds.into_iter().filter(|kind| *kind != "null").collect()
}

/// Stands for any value: the subset wants a type everywhere, and a text fits what takes anything.
fn any() -> Value {
    json!({"type": "string"})
}
