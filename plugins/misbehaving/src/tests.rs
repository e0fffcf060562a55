//! Every mode does what it is for. Those that end a process run in a child.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread;

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::ToolResult;
use serde_json::{Value, json};

use crate::load;
use crate::modes::MODES;
use crate::testing::{ObservedCall, create, execute, read};

/// Tells the child what to do.
const CHILD: &str = "MISBEHAVING_TEST_CHILD";

fn reply(command: &str) -> Value {
    let reply = execute(&create(), command, &ObservedCall::default()).unwrap();
    serde_json::from_slice(&reply).unwrap()
}

fn text(command: &str) -> String {
    let reply = reply(command);
    reply["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_polite_modes_are_polite() {
    assert_eq!(text("echo  hello  there "), "hello  there");
    assert_eq!(text("sleep 1"), "sleep: done");
    assert_eq!(text("leak-thread"), "leak-thread: done");
    let unknown = reply("dance");
    assert_eq!(unknown["is_error"], true);
}

#[test]
fn every_mode_is_listed() {
    let list = read(&create(), "modes");
    assert_eq!(list.lines().count(), MODES.len());
    assert!(list.contains("lie-json: replies with something that is not JSON"));
}

#[test]
fn panics_are_caught_by_the_sdk() {
    let plugin = create();
    for (command, message) in [
        ("panic over and out", "over and out"),
        ("panic", "asked to panic"),
        ("panic-nonstring", "(a panic without a message)"),
    ] {
        let fault = execute(&plugin, command, &ObservedCall::default()).unwrap_err();
        assert_eq!(fault.code, code::PANIC, "{command}");
        assert!(fault.text().ends_with(message), "{}", fault.text());
    }
    assert!(execute(&plugin, "echo on", &ObservedCall::default()).is_ok());
}

#[test]
fn hanging_politely_ends_with_a_cancel() {
    let plugin = create();
    let call = ObservedCall::default();
    let result = thread::scope(|scope| {
        let hanging = scope.spawn(|| execute(&plugin, "hang-politely", &call));
        call.end();
        hanging.join().unwrap()
    });
    let result: Value = serde_json::from_slice(&result.unwrap()).unwrap();
    assert_eq!(result["is_error"], true);
}

#[test]
fn floods_have_the_size_that_was_asked_for() {
    let size = |command| {
        let call = ObservedCall::default();
        execute(&create(), command, &call).unwrap();
        call.emitted().iter().map(|(_, b)| b.len()).sum::<usize>()
    };
    assert_eq!(size("flood 2"), 2 * 1024 * 1024);
    assert_eq!(size("flood-rudely 2"), 2 * 1024 * 1024);
    assert_eq!(text("flood-reply 2").len(), 2 * 1024 * 1024);
    let call = ObservedCall::default();
    execute(&create(), "log-flood 1000", &call).unwrap();
    assert_eq!(call.logged(), 1000);
}

#[test]
fn the_lies_are_lies() {
    let raw = |command| execute(&create(), command, &ObservedCall::default());
    assert!(serde_json::from_slice::<Value>(&raw("lie-json").unwrap()).is_err());
    assert!(std::str::from_utf8(&raw("invalid-utf8-reply").unwrap()).is_err());
    assert!(serde_json::from_value::<ToolResult>(reply("lie-schema")).is_err());
    let files: ToolResult = serde_json::from_value(reply("lie-files")).unwrap();
    assert_eq!(files.files.len(), 13);
    let fault = raw("lie-fault").unwrap_err();
    assert_eq!(fault.code, 4_000_000_000);
    assert!(std::str::from_utf8(&fault.message).is_err());
}

#[test]
fn what_is_emitted_is_wrong() {
    let call = ObservedCall::default();
    execute(&create(), "invalid-utf8", &call).unwrap();
    let kinds: Vec<u32> = call.emitted().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0, 1, 2, 2]);
    let call = ObservedCall::default();
    execute(&create(), "wrong-call", &call).unwrap();
    let kinds: Vec<u32> = call.emitted().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [77, 2]);
}

#[test]
fn any_host_operation_can_be_asked_for() {
    assert_eq!(
        reply("host-op kv.get {\"key\":\"k\"}")["structured"],
        json!({ "value": "{\"key\":\"k\"}" })
    );
    assert_eq!(
        text("host-op teleport"),
        format!("fault {}: no such operation", code::UNSUPPORTED)
    );
}

#[test]
fn what_comes_after_the_return_can_be_read() {
    for (command, outcome) in [
        ("host-op-after-return", "host-op: fault 9: the call is over"),
        ("emit-after-return", "emit: Cancelled"),
    ] {
        let plugin = create();
        let call = ObservedCall::default();
        execute(&plugin, command, &call).unwrap();
        assert_eq!(read(&plugin, "after-return"), "");
        call.end();
        // The thread has no other way to say that it is done.
        while read(&plugin, "after-return").is_empty() {
            thread::yield_now();
        }
        assert_eq!(read(&plugin, "after-return"), outcome);
    }
}

#[test]
fn an_orphan_keeps_the_context() {
    let call = ObservedCall::default();
    execute(&create(), "spawn-orphan", &call).unwrap();
    assert_eq!(call.references(), 2);
    let call = ObservedCall::default();
    execute(&create(), "leak-thread", &call).unwrap();
    assert_eq!(call.references(), 1);
}

#[test]
fn what_ends_the_process_ends_it() {
    assert_eq!(child("run:abort", &[]).signal(), Some(6));
    assert_eq!(child("run:exit 7", &[]).code(), Some(7));
    assert_eq!(child("run:segfault", &[]).signal(), Some(11));
    assert_eq!(child("run:stack-overflow", &[]).signal(), Some(6));
}

#[test]
fn the_manifest_is_honest_unless_it_is_told_otherwise() {
    let manifest: Value = serde_json::from_slice(&load::manifest()).unwrap();
    assert_eq!(manifest["name"], "misbehaving");
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    for (mode, pointer, value) in [
        ("wrong-version", "/version", json!("99.9.9")),
        ("wrong-name", "/name", json!("somebody-else")),
        ("wrong-kind", "/kind", json!("backend")),
        ("requires-unknown", "/requires/host/0", json!("teleport/9")),
        ("slow-load:1", "/name", json!("misbehaving")),
    ] {
        let expected = format!("manifest:{pointer}={value}");
        assert!(
            child(&expected, &[("CONJURE_MISBEHAVE", mode)]).success(),
            "{mode}"
        );
    }
    for (mode, expected) in [
        ("bad-manifest", "no-manifest"),
        ("panic-manifest", "manifest:/error=*"),
        ("unknown-capability", "capability:levitate/1"),
        ("panic-create", "create:3"),
        ("refuse-create", "create:6"),
    ] {
        assert!(
            child(expected, &[("CONJURE_MISBEHAVE", mode)]).success(),
            "{mode}"
        );
    }
}

#[test]
fn the_constructor_tells_that_code_ran() {
    let file = std::env::temp_dir().join(format!("misbehaving-{}", std::process::id()));
    let path = file.to_str().unwrap();
    assert!(child("nothing", &[("CONJURE_MISBEHAVE_TOUCH", path)]).success());
    assert!(file.exists());
    std::fs::remove_file(file).unwrap();
}

/// Runs [`in_the_child`] in a process of its own.
fn child(what: &str, env: &[(&str, &str)]) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::in_the_child"])
        .env(CHILD, what)
        .envs(env.iter().copied())
        .output()
        .unwrap()
        .status
}

/// Does what its parent asks; without one it has nothing to do.
#[test]
fn in_the_child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let (verb, argument) = what.split_once(':').unwrap_or((&what, ""));
    let manifest = || serde_json::from_slice::<Value>(&load::manifest());
    match verb {
        "nothing" => {}
        "run" => {
            let _ = execute(&create(), argument, &ObservedCall::default());
        }
        "manifest" => {
            let (pointer, value) = argument.split_once('=').unwrap();
            let manifest = manifest().unwrap();
            let found = manifest.pointer(pointer).unwrap().to_string();
            assert!(value == "*" || found == value, "{manifest}");
        }
        "no-manifest" => assert!(manifest().is_err()),
        "capability" => {
            let manifest = manifest().unwrap();
            let capabilities = manifest["capabilities"].as_array().unwrap();
            assert!(capabilities.contains(&json!(argument)));
        }
        "create" => {
            let config = json!({ "host": { "name": "test", "version": "1" } }).to_string();
            let made = load::create(config.as_bytes().into(), ObservedCall::default().context());
            let fault = made.into_result().err().unwrap();
            assert_eq!(fault.code.to_string(), argument);
        }
        other => panic!("{other}"),
    }
}
