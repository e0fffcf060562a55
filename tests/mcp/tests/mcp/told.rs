//! What a server says of its use, and a server that is slow to start, through the real program.

use conjure_kit::{MockMcp, Model, Output, Workspace, cli, thread_ids};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::own::{served, session_of};

const KEY: &str = "a-key-of-nobody";
/// What the server says.
const SAID: &str = "Be kind to it.";

fn workspace(more: &str) -> Workspace {
    let program = MockMcp::program().unwrap();
    session_of(&format!("command = {program:?}\nera = \"legacy\"\n{more}"))
}

fn conjure(workspace: &Workspace, args: &[&str]) -> Output {
    let running = cli(args).workspace(workspace);
    running.env("ANTHROPIC_API_KEY", KEY).run().unwrap()
}

fn json_of(output: &Output) -> Value {
    assert_eq!(output.code, Some(0), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

/// The beginnings of the requests of a turn with two steps and of one more, and their thread.
fn system(workspace: &Workspace, more: &[&str]) -> (Vec<Value>, String) {
    let mock = Model::start().unwrap();
    mock.says(Message::new().tool_use("toolu_a", "echo", json!({ "text": "a" })));
    mock.says(Message::new().text("Done."));
    mock.says(Message::new().text("Again."));
    let base = mock.base_url();
    let run = |words: &[&str]| {
        let args = ["run", "-c", "session.toml", "--base-url", &base];
        let model = ["--provider", "anthropic", "--model", "claude-sonnet-4-5"];
        let output = conjure(workspace, &[&args[..], &model, more, words].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    run(&["Say a."]);
    let thread = thread_ids(workspace).unwrap().remove(0);
    run(&["--thread", &thread, "Again."]);
    let requests = mock.requests();
    let system = requests
        .iter()
        .map(|request| request.body["system"].clone());
    (system.collect(), thread)
}

#[test]
fn the_model_is_told_what_a_server_says_of_its_use_and_the_thread_replays() {
    let workspace = workspace("");
    let (system, thread) = system(&workspace, &["--allow", "echo"]);
    assert_eq!(system.len(), 3);
    assert!(system[0].to_string().contains(SAID), "{}", system[0]);
    assert!(system.iter().all(|one| *one == system[0]), "{system:?}");

    let routes = conjure(&workspace, &["routes", "-c", "session.toml"]);
    assert!(routes.stdout.contains(SAID), "{routes:?}");
    let routes = conjure(&workspace, &["--json", "routes", "-c", "session.toml"]);
    let told = json!([{ "backend": "mcp", "server": "s", "text": SAID }]);
    assert_eq!(json_of(&routes)["instructions"], told);

    let export = ["thread", "export", &thread, "--cassette", "cassette.json"];
    let options = ["-c", "session.toml", "--provider", "anthropic"];
    let model = ["--model", "claude-sonnet-4-5", "--allow", "echo"];
    let exported = conjure(&workspace, &[&export[..], &options, &model].concat());
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let replayed = conjure(&workspace, &["replay", "cassette.json", "--json"]);
    assert_eq!(json_of(&replayed)["requests"], 3);
}

#[test]
fn nothing_is_told_of_a_server_that_is_not_to_be_heard_or_used() {
    let silent = workspace("instructions = false");
    let denied = workspace("");
    for (workspace, more) in [
        (silent, &["--allow", "echo"][..]),
        (denied, &["--deny", "*"]),
    ] {
        let (system, _) = system(&workspace, more);
        assert!(!system[0].to_string().contains("Be kind"), "{}", system[0]);
    }
}

#[test]
fn of_two_servers_the_one_whose_tools_are_left_out_or_denied_says_nothing() {
    let program = MockMcp::program().unwrap();
    let server = format!("command = {program:?}\nera = \"legacy\"\n");
    let servers = "[backend.config.servers";
    let session = |backend: &str, rules: &str| {
        let workspace = session_of(&server);
        let text = format!(
            "{rules}[[backend]]\nkind = \"mcp\"\n{backend}{servers}.good]\n{server}\
             {servers}.bad]\n{server}"
        );
        workspace.write("session.toml", text).unwrap();
        let routes = conjure(&workspace, &["--json", "routes", "-c", "session.toml"]);
        let told = json_of(&routes)["instructions"].clone();
        let told = told.as_array().unwrap().iter();
        told.map(|said| said["server"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut both = session("", "");
    both.sort_unstable();
    assert_eq!(both, ["bad", "good"]);
    assert_eq!(session("", "[policy]\ndeny = [\"bad_*\"]\n"), ["good"]);
    assert!(session("except = [\"*\"]\n", "").is_empty());
}

#[test]
fn a_client_is_told_of_a_server_that_is_there_after_its_session_opened() {
    let program = MockMcp::program().unwrap();
    let command = format!("sleep 2; exec {}", program.display());
    let workspace = session_of(&format!(
        "command = \"sh\"\nargs = [\"-c\", {command:?}]\nera = \"legacy\"\n\
         [backend.config]\ncatalog_wait_ms = 1"
    ));
    let client = served(&workspace);
    let told = client.info["instructions"].as_str().unwrap_or_default();
    assert!(told.contains(SAID), "{}", client.info);
}

#[test]
fn a_call_waits_for_a_server_that_is_slow_to_start() {
    let program = MockMcp::program().unwrap();
    let command = format!("sleep 7; exec {}", program.display());
    let workspace = session_of(&format!(
        "command = \"sh\"\nargs = [\"-c\", {command:?}]\nera = \"legacy\"\n\
         initialize_timeout_ms = 60000"
    ));
    let args = [
        "call",
        "echo",
        "-c",
        "session.toml",
        "--args",
        "{\"text\":\"late\"}",
    ];
    let output = conjure(&workspace, &args);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("late"), "{output:?}");
    // Of a tool that nobody has it is said as soon as everything is there.
    let output = conjure(&workspace, &["call", "none", "-c", "session.toml"]);
    assert!(
        output.stderr.contains("echo"),
        "it names those there are: {output:?}"
    );
}
