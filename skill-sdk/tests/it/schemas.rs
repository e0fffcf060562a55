//! The schemas of the protocol are pinned, and what the SDK and the test kit really send fits.
//!
//! `UPDATE_SCHEMAS=1 cargo test -p conjure-skill-sdk --test it schemas` rewrites the files and
//! the table of operations. A released version of the protocol only ever gains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use conjure_skill_sdk::protocol::{Part, PluginEvent, host_op, op, schemas};
use conjure_skill_sdk::testkit::{Message, Transport};
use serde_json::{Value, json};

use crate::every_operation;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn updating() -> bool {
    std::env::var_os("UPDATE_SCHEMAS").is_some()
}

fn pinned(path: &Path, expected: &str) {
    if updating() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not what the types say; when the protocol was meant to grow, run this test with \
         UPDATE_SCHEMAS=1",
        path.display()
    );
}

#[test]
fn every_schema_is_pinned() {
    let dir = here("abi/protocol/1");
    let mut names = BTreeSet::new();
    for (name, schema) in schemas() {
        let file = format!("{name}.json");
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        pinned(&dir.join(&file), &text);
        assert!(names.insert(file), "{name} is there twice");
    }
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&file), "{file} is of no message");
    }
}

/// The table of operations in `docs/abi.md`.
fn table() -> String {
    let names: BTreeSet<&str> = schemas().into_iter().map(|(name, _)| name).collect();
    let link = |name: String| {
        assert!(names.contains(name.as_str()), "{name}");
        format!("[{name}](../abi/protocol/1/{name}.json)")
    };
    let mut table = String::from("| operation | request | reply |\n|---|---|---|\n");
    for operation in op::ALL {
        let family = operation.trim_end_matches('.');
        let shown = if *operation == op::SKILL_TOOL {
            "skill.tool.<name>"
        } else {
            operation
        };
        writeln!(
            table,
            "| `{shown}` | {} | {} |",
            link(format!("{family}.request")),
            link(format!("{family}.reply")),
        )
        .unwrap();
    }
    table.push_str("\n| host operation | request | reply |\n|---|---|---|\n");
    for operation in host_op::ALL {
        writeln!(
            table,
            "| `{operation}` | {} | {} |",
            link(format!("host.{operation}.request")),
            link(format!("host.{operation}.reply")),
        )
        .unwrap();
    }
    table
}

#[test]
fn the_table_of_operations_in_the_docs_is_complete() {
    let path = here("docs/abi.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- operations -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    pinned(
        &path,
        &format!(
            "{before}<!-- operations -->\n{}<!-- end -->\n{after}",
            table()
        ),
    );
}

#[test]
fn every_message_that_is_really_sent_fits_its_schema() {
    let schemas: BTreeMap<&str, Value> = schemas().into_iter().collect();
    let mut seen = BTreeSet::new();
    for transport in Transport::BOTH {
        for Message { schema, json } in every_operation::run(transport).messages {
            let validator = jsonschema::validator_for(&schemas[schema.as_str()]).unwrap();
            let errors: Vec<String> = validator
                .iter_errors(&json)
                .map(|error| format!("{} at {}", error, error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{schema}: {errors:?} in {json}");
            seen.insert(schema);
        }
    }
    for message in [
        "create",
        "envelope",
        "event",
        "manifest",
        "host.elicit.reply",
        "host.ask.request",
        "host.ask.reply",
        "skill.tools.reply",
    ] {
        assert!(seen.contains(message), "no {message} was sent");
    }
    for operation in op::ALL {
        let request = format!("{}.request", operation.trim_end_matches('.'));
        assert!(seen.contains(&request), "no {request} was sent");
    }
    let count = seen.iter().filter(|name| name.ends_with(".reply")).count();
    assert!(count > 30, "only {count} kinds of replies were seen");
}

fn valid(name: &str, value: &Value) -> bool {
    let schemas = schemas();
    let (_, schema) = schemas.iter().find(|(found, _)| *found == name).unwrap();
    jsonschema::is_valid(schema, value)
}

#[test]
fn a_kind_of_a_later_version_is_kept_and_a_known_one_must_be_right() {
    let later = json!({ "type": "hologram", "frames": [1, 2] });
    let part: Part = serde_json::from_value(later.clone()).unwrap();
    assert_eq!(part, Part::Other(later.clone()));
    assert_eq!(serde_json::to_value(part).unwrap(), later);
    assert!(valid("tool_result", &json!({ "content": [later] })));
    for wrong in [
        json!({ "type": "text" }),
        json!({}),
        json!("text"),
        json!(7),
    ] {
        assert!(
            !valid("tool_result", &json!({ "content": [wrong] })),
            "{wrong}"
        );
    }

    let later = json!({ "event": "weather", "warm": true });
    let event: PluginEvent = serde_json::from_value(later.clone()).unwrap();
    assert_eq!(event, PluginEvent::Other(later.clone()));
    assert!(valid("event", &later));
    assert!(valid("event", &json!({ "event": "progress", "done": 1 })));
    for wrong in [
        json!({ "event": "progress" }),
        json!({ "done": 1 }),
        json!([]),
    ] {
        assert!(!valid("event", &wrong), "{wrong}");
    }
}

#[test]
fn a_word_of_a_later_version_counts_as_the_careful_one() {
    let tool = |effects: &str, mode: &str| {
        json!({ "tools": [{
            "op": "backend.call", "name": "a", "input_schema": {}, "effects": effects, "mode": mode,
        }] })
    };
    let catalog = tool("irradiates", "quantum");
    assert!(valid("backend.catalog.reply", &catalog));
    let read: conjure_skill_sdk::protocol::CatalogReply = serde_json::from_value(catalog).unwrap();
    assert_eq!(
        serde_json::to_value(read).unwrap()["tools"][0],
        tool("write", "stateful")["tools"][0]
            .as_object()
            .map(|fields| {
                let mut fields = fields.clone();
                fields.insert("description".into(), json!(""));
                Value::Object(fields)
            })
            .unwrap()
    );
    assert!(!valid(
        "backend.catalog.reply",
        &json!({ "tools": [{ "op": "x", "name": "a" }] })
    ));
}
