//! A server of the older era that behaves: catalog, calls, content, files, refreshing.

use conjure_skill_sdk::protocol::{Effects, Part, ToolMode};
use serde_json::{Value, json};

use super::stage::{Stage, server, with};

#[test]
fn a_catalog_has_the_servers_tools_as_they_are() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let catalog = stage.catalog();
    let echo = stage.tool("echo").unwrap();
    assert_eq!(echo.skill.as_deref(), Some("s"));
    assert_eq!(echo.description, "Says what it is told");
    assert_eq!(echo.input_schema, json!({ "type": "object" }));
    assert_eq!(echo.mode, ToolMode::Stateful);
    assert_eq!(echo.effects, Effects::Write, "a hint is not trusted");
    let said = catalog.server_instructions.iter();
    let said: Vec<_> = said.map(|one| (&*one.server, &*one.text)).collect();
    assert_eq!(said, [("s", "Be kind to it.")]);
    assert_eq!(catalog.resources[0].uri, "mock://a");
    assert_eq!(catalog.prompts.len(), 1, "a bad one is left out");
    let names: Vec<_> = catalog.tools.iter().map(|tool| &tool.name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
}

#[test]
fn annotations_count_when_they_are_trusted() {
    let trusted = with(server(&[]), json!({ "trust_annotations": true }));
    let stage = Stage::new(json!({ "s": trusted }));
    assert_eq!(stage.tool("echo").unwrap().effects, Effects::Read);
    assert_eq!(stage.tool("count").unwrap().effects, Effects::Write);
}

#[test]
fn a_call_gives_what_the_tool_says() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let outcome = stage.call("echo", json!({ "text": "hello" }));
    assert_eq!(outcome.text(), "hello");
    assert!(!outcome.result().unwrap().is_error);
    let failed = stage.call("fail", json!({})).result().unwrap();
    assert!(failed.is_error && failed.joined_text() == "no");
}

#[test]
fn content_becomes_parts_and_files() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let result = stage.call("content", json!({})).result().unwrap();
    assert_eq!(result.structured, Some(json!({ "answer": 42 })));
    let kinds: Vec<String> = result
        .content
        .iter()
        .map(|part| match part {
            Part::Text { text } => format!("text {text}"),
            Part::Image { media_type, .. } => media_type.clone(),
            Part::File { file } => format!("file {}", file.name),
            Part::Raw { value, .. } => format!("raw {}", value["type"]),
            Part::Other(value) => value.to_string(),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "text words",
            "image/png",
            "file audio.wav",
            "file a.txt",
            "text [resource mock://e]\nembedded",
            "file e",
            "raw \"hologram\"",
            "raw \"text\"",
        ]
    );
    let Some(Part::File { file }) = result.content.get(3) else {
        panic!("no link")
    };
    let to = stage.dir.path().join("fetched");
    let get = json!({ "id": file.id, "to": to });
    stage.plugin.call("files.get", get).reply.unwrap();
    assert_eq!(std::fs::read_to_string(to).unwrap(), "what a says");
}

#[test]
fn resources_and_prompts_are_read() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let read = stage
        .plugin
        .call("resource.read", json!({ "uri": "mock://a" }));
    assert_eq!(read.text(), "what a says");
    let prompt = stage
        .plugin
        .call("prompt.get", json!({ "name": "p" }))
        .reply;
    assert_eq!(prompt.unwrap()["messages"][0]["role"], "user");
}

#[test]
fn a_list_that_changed_is_listed_again() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    assert!(stage.tool("newcomer").is_none());
    assert_eq!(stage.text("change", json!({})), "changed");
    let event = json!({ "event": "catalog_changed", "sessions": ["one"] });
    assert!(stage.watched(|seen| seen.events.contains(&event)));
    assert!(stage.tool("newcomer").is_some());
    assert_eq!(stage.text("newcomer", json!({})), "hello");
}

#[test]
fn progress_is_shown() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let outcome = stage.call("progress", json!({ "steps": 3, "ms": 20 }));
    assert_eq!(outcome.text(), "arrived");
    let done: Vec<&Value> = outcome.events.iter().map(|event| &event["done"]).collect();
    assert!(done.contains(&&json!(1.0)), "{done:?}");
}

#[test]
fn a_server_that_does_not_fit_costs_only_itself() {
    let stage = Stage::new(json!({
        "s": server(&[]),
        "both": { "command": "x", "url": "http://x" },
        "odd": { "commnd": "x" },
        "absent": { "command": "no-such-program-at-all" },
        "off": with(server(&[]), json!({ "enabled": false })),
    }));
    assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    for (name, why) in [
        ("both", "a `command` and a `url`"),
        ("odd", "unknown field `commnd`"),
        ("absent", "there is no program `no-such-program-at-all`"),
    ] {
        let status = stage.status_of("one", name);
        assert_eq!(status["state"], "failed", "{status}");
        let told = status["why"].as_str().unwrap();
        assert!(told.contains(why), "{told}");
        let no_program = status["no_program"].as_bool().unwrap_or_default();
        assert_eq!(no_program, name == "absent", "{status}");
    }
    assert_eq!(stage.status_of("one", "off"), Value::Null);
}

#[test]
fn a_lazy_server_is_started_by_a_call_once_its_tools_are_known() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().to_str().unwrap();
    let path = data.path().join("log");
    let config = server(&["--log", path.to_str().unwrap()]);
    let starts = || {
        let log = super::stage::log(&path);
        log.iter()
            .filter(|line| line.get("start").is_some())
            .count()
    };
    let at_once = Stage::with(json!({ "s": config }), |host| host.data_dir(dir));
    assert_eq!((at_once.tool("echo").is_some(), starts()), (true, 1));
    drop(at_once);
    let lazy = with(config, json!({ "start": "lazy" }));
    // The way to start a server says nothing of what it lists.
    let stage = Stage::with(json!({ "s": lazy }), |host| host.data_dir(dir));
    assert_eq!((stage.tool("echo").is_some(), starts()), (true, 1));
    assert_eq!(stage.status()["state"], "idle");
    assert_eq!(stage.text("echo", json!({ "text": "awake" })), "awake");
    assert_eq!(starts(), 2);
}

#[test]
fn secrets_come_from_the_host_and_are_not_shown() {
    let config = with(
        server(&["no-start"]),
        json!({ "env": { "TOKEN": { "secret": "MCP_TOKEN" }, "PLAIN": "p" } }),
    );
    let stage = Stage::with(
        json!({ "s": with(config, json!({ "args": [] })) }),
        |host| host.secret("MCP_TOKEN", "hunter2"),
    );
    let names = stage.text("environment", json!({}));
    assert!(
        names.contains("TOKEN") && names.contains("PLAIN"),
        "{names}"
    );
    let told = with(
        server(&["no-start"]),
        json!({ "env": { "TOKEN": { "secret": "MCP_TOKEN" } } }),
    );
    let failing = Stage::with(json!({ "s": told }), |host| {
        host.secret("MCP_TOKEN", "hunter2")
    });
    super::stage::until("it is told", || {
        failing.status().to_string().contains("its key is [secret]")
    });
    assert!(!failing.status().to_string().contains("hunter2"));
    let without = Stage::with(
        json!({ "s": with(server(&[]), json!({ "env": { "T": { "secret": "MCP_NONE" } } })) }),
        |host| host.secret("MCP_TOKEN", "x"),
    );
    assert_eq!(without.status()["state"], "failed");
}

#[test]
fn variables_of_settings_have_their_values_in_each_session() {
    let program = super::stage::mock();
    let program = program.to_str().unwrap();
    let log = with(
        server(&[]),
        json!({
            "command": { "expand": format!("${{env:NO_SUCH_PROGRAM:-{program}}}") },
            "args": ["--log", { "expand": "${workspaceFolder}/its.log" }],
            "cwd": { "expand": "${workspaceFolder}" },
            "env": { "DIR": { "expand": "${env:NO_SUCH_DIR:-/tmp/c}" } },
        }),
    );
    let unset = with(
        server(&[]),
        json!({ "args": [{ "expand": "${env:NO_SUCH_DIR}" }] }),
    );
    let stage = Stage::new(json!({ "s": log, "unset": unset }));
    assert!(stage.text("environment", json!({})).contains("DIR"));
    assert!(stage.dir.path().join("its.log").exists());
    let status = stage.status_of("one", "unset");
    assert_eq!(status["state"], "failed");
    assert!(
        status["why"].to_string().contains("`NO_SUCH_DIR`"),
        "{status}"
    );
}
