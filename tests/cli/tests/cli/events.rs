//! The lines of `--json`, against the schema that the program prints.

use std::collections::BTreeSet;

use conjure_kit::{Model, Output, Workspace};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::session::{done, ok};
use crate::stage::{LOCAL, asks, conjure, json as parsed, json_lines, workspace};

/// The file that programs have.
const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../conjure-host/docs/events.schema.json"
);

fn schema(workspace: &Workspace) -> Value {
    parsed(&done(workspace, "schema events"))
}

/// The types of lines, all of which fit the schema.
fn fitting(validator: &jsonschema::Validator, output: &Output) -> BTreeSet<String> {
    let lines = json_lines(output);
    for line in &lines {
        let errors: Vec<String> = validator
            .iter_errors(line)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{line}\n{errors:#?}");
    }
    let types = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap().to_owned());
    types.collect()
}

#[test]
fn every_line_fits_the_schema_that_the_program_prints() {
    let model = Model::start().unwrap();
    let workspace = workspace(&[LOCAL, "conjure-backend-mcp"]);
    let validator = jsonschema::validator_for(&schema(&workspace)).unwrap();
    assert!(!validator.is_valid(&json!({ "type": "content" })));
    assert!(
        !validator.is_valid(&json!({ "type": "done", "turn_id": 7, "outcome": "", "text": "" }))
    );

    let bash = |command: &str| json!({ "command": command, "description": "d" });
    model.says(
        Message::new()
            .reasoning("I should look.")
            .text("I look.")
            .tool_use(
                "c-1",
                "local_bash_tool",
                bash("echo seen; echo made > made.txt"),
            )
            .tool_use(
                "c-2",
                "local_create_file",
                json!({ "path": "x", "file_text": "", "description": "d" }),
            )
            .tool_use("c-3", "no_such_tool", json!({})),
    );
    model.says(Message::new().text("Done."));
    let run = asks(
        &workspace,
        &model,
        "run --json --allow local_bash_tool --deny local_create_file",
        "Look.",
    );
    let mut types = fitting(&validator, &ok(run));

    // A provider that fails, and one that is not there.
    let failed = asks(&workspace, &model, "run --json", "Hello?")
        .run()
        .unwrap();
    assert_eq!(failed.code, Some(3), "{failed:?}");
    types.extend(fitting(&validator, &failed));
    let wrong = conjure(&workspace, "run --json --provider nobody Hello?")
        .run()
        .unwrap();
    types.extend(fitting(&validator, &wrong));

    // A saved session, with a server that asks.
    let auth = format!(
        "auth create work --provider anthropic --base-url {}",
        model.base_url()
    );
    ok(conjure(&workspace, &auth).stdin("sk-a-key-of-a-test"));
    let program = conjure_kit::MockMcp::program().unwrap();
    let servers = json!({ "mock": { "command": program } }).to_string();
    let create = [
        "session", "create", "site", "--auth", "work", "--model", "m", "--mcps", &servers,
    ];
    ok(conjure_kit::cli(create).workspace(&workspace));
    model.calls("c-4", "mock_ask", json!({}));
    model.calls("c-5", "local_bash_tool", bash("echo never"));
    model.says(Message::new().text("Asked."));
    let run = "run --json --session site --allow mock_ask Ask.";
    types.extend(fitting(&validator, &ok(conjure(&workspace, run))));
    for known in [
        "turn_started",
        "round",
        "thinking",
        "content",
        "function_call",
        "call_started",
        "tool_output",
        "function_call_output",
        "file",
        "usage",
        "cost",
        "error",
        "done",
        "result",
    ] {
        assert!(types.contains(known), "no `{known}` came: {types:?}");
    }
}

#[test]
fn the_schema_is_the_one_that_programs_have() {
    let workspace = workspace(&[]);
    let printed = done(&workspace, "schema events").stdout;
    if std::env::var("CONJURE_WRITE_FIXTURES").is_ok_and(|value| value == "1") {
        std::fs::write(FILE, &printed).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(FILE).unwrap();
    assert!(
        kept == printed,
        "conjure-host/docs/events.schema.json is not what `conjure schema events` prints; programs read \
         it, so fields may come and not go. CONJURE_WRITE_FIXTURES=1 writes it anew"
    );
}

#[test]
fn the_protocol_of_plugins_is_printed_by_name() {
    let workspace = workspace(&[]);
    let names = parsed(&done(&workspace, "schema protocol --json"));
    let names: Vec<&str> = names
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(names.len() > 90, "{names:?}");
    for name in names.iter().filter(|name| **name != "guide") {
        let printed = parsed(&done(&workspace, &format!("schema protocol {name}")));
        assert!(printed.is_object() || printed.is_array(), "{name}");
    }
    let manifest = parsed(&done(&workspace, "schema protocol manifest"));
    assert!(manifest["properties"]["tools"].is_object(), "{manifest}");
    let guide = done(&workspace, "schema protocol guide").stdout;
    assert!(guide.contains("## The stream"), "{guide}");
    let unknown = conjure(&workspace, "schema protocol skill.count")
        .run()
        .unwrap();
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(
        unknown.stderr.contains("`conjure schema protocol`"),
        "{unknown:?}"
    );
}
