//! Released versions of the protocol: what each said of every message still holds.
//!
//! A release is a list of facts, one a line: what a field is, which fields are required, which
//! operations there are. The protocol grows by fields and operations; none of its facts ever goes,
//! and what was optional is not required later. A release that has no list yet gets one from
//! `UPDATE_SCHEMAS=1 cargo test -p conjure-skill-sdk --test it frozen`; a list that is there is
//! never written again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conjure_skill_sdk::protocol::{host_op, op, schemas};
use serde_json::{Value, json};

/// The releases.
const RELEASES: [&str; 1] = ["1.0.0"];

/// What holds schemas of its own.
const NESTED: [&str; 7] = [
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$defs",
    "required",
];
/// What says nothing about which messages fit.
const WORDS: [&str; 5] = ["description", "title", "default", "$schema", "examples"];

fn list(release: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/protocol");
    dir.join(format!("{release}.txt"))
}

/// The facts of today.
fn facts() -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for (name, schema) in schemas() {
        walk(name, &schema, &mut facts);
    }
    facts.extend(op::ALL.iter().map(|name| format!("operation {name}")));
    let served = host_op::ALL.iter();
    facts.extend(served.map(|name| format!("host operation {name}")));
    facts
}

fn walk(place: &str, schema: &Value, facts: &mut BTreeSet<String>) {
    let Some(fields) = schema.as_object() else {
        facts.insert(format!("{place} is {schema}"));
        return;
    };
    for (name, value) in fields {
        let nested = NESTED.contains(&name.as_str()) || value.is_object();
        if !nested && !WORDS.contains(&name.as_str()) {
            facts.insert(format!("{place} {name} {value}"));
        }
    }
    for name in fields
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        facts.insert(format!("{place} requires {name}"));
    }
    for kind in ["properties", "$defs"] {
        let named = fields.get(kind).and_then(Value::as_object);
        for (name, inner) in named.into_iter().flatten() {
            walk(&format!("{place} {kind} {name}"), inner, facts);
        }
    }
    for kind in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get(kind).filter(|inner| inner.is_object()) {
            walk(&format!("{place} {kind}"), inner, facts);
        }
    }
    for kind in ["anyOf", "oneOf", "allOf"] {
        let choices = fields.get(kind).and_then(Value::as_array);
        for (number, inner) in choices.into_iter().flatten().enumerate() {
            let name = tag(inner).unwrap_or_else(|| number.to_string());
            walk(&format!("{place} {kind} {name}"), inner, facts);
        }
    }
}

/// What tells a choice from the others: the value of its constant field, or the type that it
/// refers to. So a choice keeps its name when another one comes before it.
fn tag(choice: &Value) -> Option<String> {
    if let Some(name) = choice.get("$ref") {
        return Some(name.to_string());
    }
    let fields = choice.get("properties")?.as_object()?;
    fields
        .values()
        .find_map(|field| Some(field.get("const")?.to_string()))
}

/// What no longer holds, and what was not asked of anybody before.
fn broken(frozen: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<String> {
    let gone = frozen.difference(now).map(|fact| format!("gone: {fact}"));
    let places: BTreeSet<&str> = frozen.iter().filter_map(|fact| place(fact)).collect();
    let asked = now.difference(frozen).filter(|fact| {
        let place = fact.split_once(" requires ").map(|(place, _)| place);
        place.is_some_and(|place| places.contains(place))
    });
    gone.chain(asked.map(|fact| format!("new: {fact}")))
        .collect()
}

/// The object that a fact is about.
fn place(fact: &str) -> Option<&str> {
    fact.strip_suffix(" type \"object\"")
}

#[test]
fn what_a_release_said_still_holds() {
    let now = facts();
    for release in RELEASES {
        let path = list(release);
        if std::env::var_os("UPDATE_SCHEMAS").is_some() && !path.exists() {
            let lines: Vec<&str> = now.iter().map(String::as_str).collect();
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let frozen: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert!(frozen.len() > 500, "{} is no list of facts", path.display());
        let broken = broken(&frozen, &now);
        assert!(
            broken.is_empty(),
            "version {release} of the protocol said otherwise: {broken:#?}"
        );
    }
}

#[test]
fn growing_is_no_break_and_everything_else_is() {
    let facts = |schema: Value| {
        let mut facts = BTreeSet::new();
        walk("m", &schema, &mut facts);
        facts
    };
    let object = |fields: Value, required: Value| json!({ "type": "object", "properties": fields, "required": required });
    let text = json!({ "type": "string" });
    let before = facts(object(json!({ "a": text }), json!(["a"])));
    let grown = object(json!({ "a": text, "b": text }), json!(["a"]));
    assert_eq!(broken(&before, &facts(grown.clone())), [""; 0]);
    // A field of a new object may be required.
    let inner = object(json!({ "x": text }), json!(["x"]));
    let deeper = object(json!({ "a": text, "c": inner }), json!(["a"]));
    assert_eq!(broken(&before, &facts(deeper)), [""; 0]);
    for changed in [
        object(json!({}), json!([])),
        object(json!({ "a": { "type": "integer" } }), json!(["a"])),
        object(json!({ "a": text, "b": text }), json!(["a", "b"])),
        object(json!({ "a": text }), json!([])),
    ] {
        assert_ne!(
            broken(&before, &facts(changed.clone())),
            [""; 0],
            "{changed}"
        );
    }
    // Another choice before one that was there does not change it.
    let choice = |tag: &str| object(json!({ "t": { "const": tag } }), json!(["t"]));
    let one = facts(json!({ "anyOf": [choice("one")] }));
    let two = facts(json!({ "anyOf": [choice("two"), choice("one")] }));
    assert_eq!(broken(&one, &two), [""; 0]);
    assert_ne!(broken(&two, &one), [""; 0]);
}
