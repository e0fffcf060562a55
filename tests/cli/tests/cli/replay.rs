//! `conjure thread export --cassette` and `conjure replay`: threads that real runs made.

use conjure_kit::{Model, Output, Workspace, cli, thread_ids};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::stage::{CACHE, json, workspace};

const KEY: &str = "a-key-of-nobody";

/// Provider, the variable of its key, model, wire.
const PROVIDERS: [(&str, &str, &str, &str); 4] = [
    (
        "anthropic",
        "ANTHROPIC_API_KEY",
        "claude-sonnet-4-5",
        "anthropic",
    ),
    ("openai", "OPENAI_API_KEY", "gpt-5", "openai-responses"),
    (
        "deepseek",
        "DEEPSEEK_API_KEY",
        "deepseek-chat",
        "openai-chat",
    ),
    ("gemini", "GEMINI_API_KEY", "gemini-2.5-pro", "gemini"),
];

fn conjure(workspace: &Workspace, args: &[&str]) -> Output {
    cli(args).workspace(workspace).run().unwrap()
}

/// A step that thinks, asks for two calls, of which one is not allowed, and one that is no tool.
fn step() -> Message {
    let call = |command: &str| json!({ "command": command });
    Message::new()
        .reasoning("Two at once.")
        .text("I look. ")
        .tool_use("toolu_a", "cache-manager_execute", call("set k v"))
        .tool_use("toolu_b", "cache-manager_read", json!({ "path": "stats" }))
        .tool_use("toolu_c", "no_such_tool", json!({}))
}

/// The options of a run and of its export.
fn options<'a>(provider: &'a str, model: &'a str, rules: &[&'a str]) -> Vec<&'a str> {
    let mut options = vec!["--provider", provider, "--model", model];
    options.extend(["--executor", "none", "--persona", "You are careful."]);
    options.extend_from_slice(rules);
    options
}

/// A thread of two turns with a provider, and what the provider got.
fn talked(workspace: &Workspace, at: usize, rules: &[&str]) -> (String, Vec<Value>) {
    let (provider, key, model, _) = PROVIDERS[at];
    let mock = Model::start().unwrap();
    mock.says(step());
    mock.says(Message::new().text("It is set."));
    mock.says(Message::new().text("You are welcome."));
    let base = mock.base_url();
    let known = thread_ids(workspace).unwrap();
    let run = |more: &[&str]| {
        let options = options(provider, model, rules);
        let args = [&["run", "--base-url", &base], &options[..], more].concat();
        let output = cli(args).workspace(workspace).env(key, KEY).run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    run(&["Set k."]);
    let new = thread_ids(workspace).unwrap();
    let thread = new.into_iter().find(|id| !known.contains(id)).unwrap();
    run(&["--thread", &thread, "Thanks."]);
    let requests = mock.requests();
    let sent = requests.iter().map(|request| request.body.clone());
    (thread, sent.collect())
}

/// The text of a thread's cassette.
fn export(workspace: &Workspace, thread: &str, name: &str, options: &[&str]) -> String {
    let to = workspace.root().join(name);
    let to = to.to_str().unwrap();
    let args = ["thread", "export", thread, "--cassette", to];
    let output = conjure(workspace, &[&args, options].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    workspace.read(to).unwrap()
}

fn replay(workspace: &Workspace, text: &str, more: &[&str]) -> Output {
    let file = workspace.write("replayed.json", text).unwrap();
    let args = ["replay", file.to_str().unwrap(), "--json"];
    conjure(workspace, &[&args, more].concat())
}

#[test]
fn a_thread_of_every_wire_is_recorded_as_it_was_sent_and_replays() {
    let workspace = workspace(&[CACHE]);
    for (at, (provider, _, model, wire)) in PROVIDERS.into_iter().enumerate() {
        let rules = ["--deny", "cache-manager_execute"];
        let (thread, sent) = talked(&workspace, at, &rules);
        let options = options(provider, model, &rules);
        let text = export(&workspace, &thread, &format!("{provider}-1.json"), &options);
        let again = export(&workspace, &thread, &format!("{provider}-2.json"), &options);
        assert!(text == again, "{provider}: two exports are not the same");
        assert!(
            !text.contains(KEY),
            "{provider}: the key is in the cassette"
        );
        let cassette: Value = serde_json::from_str(&text).unwrap();
        let steps = cassette["steps"].as_array().unwrap();
        let exchanges: Vec<&Value> = steps
            .iter()
            .map(|step| &step["exchange"])
            .filter(|exchange| !exchange.is_null())
            .collect();
        assert_eq!(exchanges.len(), sent.len(), "{provider}");
        for (exchange, sent) in exchanges.iter().zip(&sent) {
            assert_eq!(exchange["wire"], wire);
            assert_eq!(&exchange["body"], sent, "{provider}");
        }
        let results: Vec<&Value> = steps
            .iter()
            .filter(|step| step["entry"] == "call_ended")
            .collect();
        let hash = results[0]["call"]["arguments_sha256"].as_str().unwrap();
        assert_eq!((results.len(), hash.len()), (3, 64));

        let output = replay(&workspace, &text, &[]);
        assert_eq!(output.code, Some(0), "{provider}: {output:?}");
        let report = json(&output);
        assert_eq!(report["requests"], 3);
        assert_eq!(report.get("unreplayed"), None, "{report}");
        for (other, _, model, wire) in PROVIDERS {
            for more in [
                vec!["--provider", other, "--model", model],
                vec!["--wire", wire],
            ] {
                let output = replay(&workspace, &text, &more);
                assert_eq!(output.code, Some(0), "{provider} to {other}: {output:?}");
                let report = json(&output);
                assert_eq!(report["elsewhere"]["requests"], 3, "{report}");
                assert_eq!(report["elsewhere"]["wire"], wire);
            }
        }
    }
}

#[test]
fn what_is_otherwise_is_named_with_its_step_and_ends_with_1() {
    let workspace = workspace(&[CACHE]);
    let rules = ["--allow", "cache-manager_execute"];
    let (thread, _) = talked(&workspace, 0, &rules);
    let options = options("anthropic", "claude-sonnet-4-5", &rules);
    let text = export(&workspace, &thread, "talk.json", &options);
    assert_eq!(replay(&workspace, &text, &[]).code, Some(0));

    let mut cassette: Value = serde_json::from_str(&text).unwrap();
    let tools = cassette["setup"]["tools"].as_array_mut().unwrap();
    tools[0]["definition"]["description"] = "Does something else.".into();
    let output = replay(&workspace, &cassette.to_string(), &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let report = json(&output);
    let steps = cassette["steps"].as_array().unwrap();
    let first = steps.iter().find(|step| !step["exchange"].is_null());
    let divergence = &report["divergence"];
    assert_eq!(divergence["step"], first.unwrap()["seq"]);
    assert_eq!(divergence["what"], "request");
    assert_eq!(divergence["changes"][0]["path"], "tools[0].description");

    let file = workspace
        .write("otherwise.json", cassette.to_string())
        .unwrap();
    let output = conjure(&workspace, &["replay", file.to_str().unwrap()]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stdout.contains("tools[0].description: recorded \"")
            && output.stdout.contains("now \"Does something else.\""),
        "{}",
        output.stdout
    );
    assert!(
        output
            .stdout
            .contains("It may be because of: a tool's definition")
    );
}

#[test]
fn without_the_options_of_its_session_a_thread_still_replays() {
    let workspace = workspace(&[CACHE]);
    let (thread, _) = talked(&workspace, 0, &["--allow", "*"]);
    let text = export(&workspace, &thread, "bare.json", &["--executor", "none"]);
    let output = replay(&workspace, &text, &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!(report.get("unreplayed"), None, "{report}");
}

#[test]
fn a_fork_and_a_failed_request_replay() {
    let workspace = workspace(&[CACHE]);
    let (thread, _) = talked(&workspace, 0, &["--allow", "*"]);
    let told = conjure(&workspace, &["thread", "show", &thread, "--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    // In the middle of the first turn: what was open there is closed when the fork goes on.
    let fork = conjure(
        &workspace,
        &["thread", "fork", &thread, "--at", "4", "--json"],
    );
    let fork = json(&fork)["id"].as_str().unwrap().to_owned();
    let output = cli([
        "run",
        "--provider",
        "anthropic",
        "--model",
        "claude-sonnet-4-5",
        "--base-url",
        "http://127.0.0.1:9",
        "--thread",
        &fork,
        "Go on.",
    ])
    .workspace(&workspace)
    .env("ANTHROPIC_API_KEY", KEY)
    .run()
    .unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    let text = export(&workspace, &fork, "fork.json", &["--executor", "none"]);
    let cassette: Value = serde_json::from_str(&text).unwrap();
    let steps = cassette["steps"].as_array().unwrap();
    let last = steps.last().unwrap();
    assert_eq!(last["outcome"]["outcome"], "failed", "{last}");
    assert!(last["exchange"]["body"].is_object(), "{last}");
    let output = replay(&workspace, &text, &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(json(&output).get("unreplayed"), None, "{output:?}");
}

#[test]
fn what_is_no_cassette_is_wrong_usage() {
    let workspace = workspace(&[]);
    for text in ["", "{}", "{\"cassette\": 7}"] {
        let output = replay(&workspace, text, &[]);
        assert_eq!(output.code, Some(2), "{text:?}: {output:?}");
    }
    let output = conjure(
        &workspace,
        &["thread", "export", "x", "--to", "a", "--cassette", "b"],
    );
    assert_eq!(output.code, Some(2), "{output:?}");
}
