//! What the providers take as a JSON Schema: `OpenAI`'s functions, its strict mode and Anthropic's,
//! Gemini's subset.
//!
//! Looks at the schema's form; whether it is a sensible one is the tool's affair.

use serde_json::Value;

use super::{Findings, Rule, keys, non_null, text};
use crate::request::array;

/// A function's parameters as `OpenAI` takes them.
pub(super) fn openai(place: &str, schema: Option<&Value>, strict: bool, findings: &mut Findings) {
    let Some(schema) = schema else { return };
    findings.check(
        text(schema, "type") == "object",
        Rule::ToolSchema,
        place,
        "schema must be a JSON Schema of 'type: \"object\"'",
    );
    for word in ["oneOf", "anyOf", "allOf", "enum", "not"] {
        findings.check(
            schema.get(word).is_none(),
            Rule::ToolSchema,
            place,
            format_args!("schema must not have '{word}' at the top level"),
        );
    }
    visit_subschemas(place, schema, &mut |place, schema| {
        findings.check(
            text(schema, "type") != "array" || schema.get("items").is_some(),
            Rule::ToolSchema,
            place,
            "array schema missing items",
        );
        if strict {
            self::strict(place, schema, findings);
        }
    });
}

/// A schema of strict mode that is not a function's.
pub(super) fn openai_strict(place: &str, schema: &Value, findings: &mut Findings) {
    visit_subschemas(place, schema, &mut |place, schema| {
        strict(place, schema, findings);
    });
}

fn strict(place: &str, schema: &Value, findings: &mut Findings) {
    if text(schema, "type") != "object" {
        return;
    }
    findings.check(
        schema.get("additionalProperties") == Some(&Value::Bool(false)),
        Rule::StrictSchema,
        place,
        "'additionalProperties' is required to be supplied and to be false",
    );
    let required = array(schema, "required");
    let properties = schema.get("properties").unwrap_or(&Value::Null);
    for name in keys(properties) {
        findings.check(
            required.iter().any(|it| it == name),
            Rule::StrictSchema,
            place,
            format_args!("'required' must include every key in properties; '{name}' is missing"),
        );
    }
}

/// What Anthropic's strict mode cannot compile.
const ANTHROPIC_UNSUPPORTED: &[&str] = &[
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "uniqueItems",
];

/// A schema of Anthropic's strict mode: of a strict tool, or of an output. Unlike `OpenAI`'s, it may
/// have properties that are not required.
pub(super) fn anthropic_strict(place: &str, schema: &Value, findings: &mut Findings) {
    visit_subschemas(place, schema, &mut |place, schema| {
        let kind = text(schema, "type");
        findings.check(
            kind != "object" || schema.get("additionalProperties") == Some(&Value::Bool(false)),
            Rule::StrictSchema,
            place,
            "For 'object' type, 'additionalProperties' must be explicitly set to false",
        );
        for word in keys(schema).filter(|word| ANTHROPIC_UNSUPPORTED.contains(&word.as_str())) {
            findings.add(
                Rule::StrictSchema,
                place,
                format_args!("For '{kind}' type, property '{word}' is not supported"),
            );
        }
        findings.check(
            non_null(schema, "minItems").is_none_or(|it| it.as_u64() <= Some(1)),
            Rule::StrictSchema,
            place,
            "For 'array' type, 'minItems' values other than 0 or 1 are not supported",
        );
    });
}

/// Visits a schema and all within it.
fn visit_subschemas(place: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    if !schema.is_object() {
        return;
    }
    visit(place, schema);
    for word in ["properties", "$defs", "definitions"] {
        let inner = schema.get(word).and_then(Value::as_object);
        for (name, inner) in inner.into_iter().flatten() {
            visit_subschemas(&format!("{place}.{word}.{name}"), inner, visit);
        }
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(word) {
            visit_subschemas(&format!("{place}.{word}"), inner, visit);
        }
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        for (number, inner) in array(schema, word).iter().enumerate() {
            visit_subschemas(&format!("{place}.{word}.{number}"), inner, visit);
        }
    }
}

/// The words of Gemini's subset of the `OpenAPI` schema.
const GEMINI_KEYWORDS: &[&str] = &[
    "anyOf",
    "default",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "propertyOrdering",
    "required",
    "title",
    "type",
];

/// A schema in Gemini's subset. `rule` is what a schema outside of it breaks.
pub(super) fn gemini(place: &str, schema: &Value, rule: Rule, findings: &mut Findings) {
    if !schema.is_object() {
        findings.add(rule, place, "must be a schema");
        return;
    }
    for word in keys(schema) {
        findings.check(
            GEMINI_KEYWORDS.contains(&word.as_str()),
            rule,
            place,
            format_args!("Unknown name \"{word}\": Cannot find field."),
        );
    }
    let kind = text(schema, "type").to_ascii_uppercase();
    let known = [
        "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL",
    ];
    findings.check(
        known.contains(&kind.as_str()) || (kind.is_empty() && schema.get("anyOf").is_some()),
        rule,
        format_args!("{place}.type"),
        "must be one type",
    );
    let formats: &[&str] = match kind.as_str() {
        "STRING" => &["enum", "date-time"],
        "NUMBER" => &["float", "double"],
        "INTEGER" => &["int32", "int64"],
        _ => &[],
    };
    findings.check(
        non_null(schema, "format").is_none_or(|it| formats.iter().any(|format| it == format)),
        rule,
        format_args!("{place}.format"),
        "is not supported for this type",
    );
    let is_text = |value: &Value| value.is_string();
    findings.check(
        non_null(schema, "enum").is_none() || array(schema, "enum").iter().all(is_text),
        rule,
        format_args!("{place}.enum"),
        "only texts are allowed",
    );
    findings.check(
        kind != "ARRAY" || schema.get("items").is_some(),
        rule,
        format_args!("{place}.items"),
        "missing field.",
    );
    let properties = schema.get("properties").unwrap_or(&Value::Null);
    for name in array(schema, "required") {
        let name = name.as_str().unwrap_or_default();
        findings.check(
            properties.get(name).is_some(),
            rule,
            format_args!("{place}.required"),
            format_args!("property `{name}` is not defined"),
        );
    }
    for (name, inner) in properties.as_object().into_iter().flatten() {
        // Only parameters themselves may be an object of nothing.
        findings.check(
            inner
                .get("properties")
                .is_none_or(|it| keys(it).next().is_some()),
            rule,
            format_args!("{place}.properties.{name}.properties"),
            "should be non-empty for OBJECT type",
        );
        gemini(&format!("{place}.properties.{name}"), inner, rule, findings);
    }
    if let Some(inner) = schema.get("items") {
        gemini(&format!("{place}.items"), inner, rule, findings);
    }
    for (number, inner) in array(schema, "anyOf").iter().enumerate() {
        gemini(&format!("{place}.anyOf.{number}"), inner, rule, findings);
    }
}
