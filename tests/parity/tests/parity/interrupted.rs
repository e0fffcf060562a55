//! Going on after a host that was killed: the history sends, and a call whose result nobody saw
//! is told as such and never run again.

use conjure_kit::{Model, Output, Signal, Workspace, thread_ids, thread_log};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::conversation::lines;
use crate::processes::{end, family_left, run_with_family};
use crate::stage::{MISBEHAVING, bash, result, workspace};

/// Modes of the misbehaving plugin that no process survives.
pub(crate) const ENDS_THE_PROCESS: [&str; 4] = ["abort", "exit 7", "segfault", "stack-overflow"];

/// The only thread of a workspace.
fn thread(workspace: &Workspace) -> String {
    let ids = thread_ids(workspace).unwrap();
    let [id] = &ids[..] else { panic!("{ids:?}") };
    id.clone()
}

fn resume(workspace: &Workspace, model: &Model) -> Output {
    let thread = thread(workspace);
    conjure_kit::cli([
        "run",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "--thread",
        &thread,
        "What happened?",
    ])
    .workspace(workspace)
    .model(model)
    .run()
    .unwrap()
}

/// How the thread's calls ended, and its last turns.
fn endings(workspace: &Workspace) -> Vec<Value> {
    let text = thread_log(workspace, &thread(workspace)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|record| match record["entry"]["entry"].as_str()? {
            "call_ended" => Some(json!([
                record["entry"]["output"]["call_id"],
                record["entry"]["end"]
            ])),
            "turn_ended" => Some(record["entry"]["outcome"]["outcome"].clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_call_that_ran_when_the_host_was_killed_is_indeterminate() {
    let model = Model::start().unwrap();
    let (running, dir) = run_with_family(&model);
    running.signal(Signal::KILL);
    let workspace = running.workspace().clone();
    assert_eq!(running.wait().unwrap().signal, Some(9));
    end(&family_left(&dir));
    model.says(Message::new().text("I do not know."));
    let again = resume(&workspace, &model);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "I do not know.\n"),
        "{again:?}"
    );
    let seen = result(&model.last_request(), "toolu_1");
    assert!(
        seen.is_error && seen.text.contains("The host ended while this call ran"),
        "{seen:?}"
    );
    assert_eq!(model.requests().len(), 2, "it was not run again");
    assert_eq!(
        endings(&workspace),
        [
            json!(["toolu_1", "indeterminate"]),
            json!("interrupted"),
            json!("completed")
        ]
    );
}

#[test]
fn a_plugin_that_ends_the_process_loses_no_history() {
    for mode in ENDS_THE_PROCESS {
        let workspace = workspace(&[MISBEHAVING]);
        let model = Model::start().unwrap();
        let message = Message::new()
            .text("Trying.")
            .tool_use("toolu_1", "misbehaving_execute", json!({ "command": mode }))
            .tool_use(
                "toolu_2",
                "misbehaving_execute",
                json!({ "command": "echo never" }),
            );
        model.says(message);
        let ended = conjure_kit::cli([
            "run",
            "--provider",
            "anthropic",
            "--model",
            "m",
            "--allow",
            "*",
            "Do it.",
        ])
        .workspace(&workspace)
        .model(&model)
        .env("CONJURE_ISOLATION", "in-process")
        .run()
        .unwrap();
        assert!(
            ended.signal.is_some() || ended.code == Some(7),
            "{mode}: {ended:?}"
        );
        model.says(Message::new().text("It broke."));
        let again = resume(&workspace, &model);
        assert_eq!(again.code, Some(0), "{mode}: {again:?}");
        let request = model.last_request();
        let first = result(&request, "toolu_1");
        assert!(
            first.is_error && first.text.contains("while this call ran"),
            "{mode}: {first:?}"
        );
        let second = result(&request, "toolu_2");
        assert!(
            second.is_error && second.text.contains("before this call was begun"),
            "{mode}: {second:?}"
        );
    }
}

#[test]
fn what_was_shown_of_a_reply_that_was_on_its_way_is_kept_and_the_thread_goes_on() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let long = Message::new()
        .text("It was a dark and stormy night.")
        .deltas(8);
    model.says(Reply::from(long).hold(Position::Event(5), "middle"));
    let running = conjure_kit::cli(["run", "--provider", "anthropic", "--model", "m", "Tell me."])
        .workspace(&workspace)
        .model(&model)
        .start()
        .unwrap();
    let shown = running.wait_for_stdout("It was a dark").unwrap();
    running.signal(Signal::KILL);
    running.wait().unwrap();
    model.says(Message::new().text("Once more."));
    let again = resume(&workspace, &model);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "Once more.\n"),
        "{again:?}"
    );
    let texts: Vec<String> = model
        .last_request()
        .messages()
        .iter()
        .map(|message| message["content"].to_string())
        .collect();
    // What a person has read, the model knows that it said.
    for (text, of) in texts
        .iter()
        .zip(["Tell me.", shown.trim(), "What happened?"])
    {
        assert!(text.contains(of), "{of}: {texts:?}");
    }
}

#[test]
fn a_thread_that_is_open_elsewhere_is_not_written_twice() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Reply::text("A long story").hold(Position::Event(3), "middle"));
    let running = conjure_kit::cli(["run", "--provider", "anthropic", "--model", "m", "Tell me."])
        .workspace(&workspace)
        .model(&model)
        .start()
        .unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    let second = resume(&workspace, &model);
    assert_eq!(second.code, Some(5), "{second:?}");
    model.mock().release("middle");
    assert_eq!(running.wait().unwrap().stdout, "A long story\n");
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn what_programs_read_names_every_event_of_a_call() {
    let workspace = workspace(&[crate::stage::LOCAL]);
    let model = Model::start().unwrap();
    model.calls("toolu_1", "local_bash_tool", bash("echo hello"));
    model.says(Message::new().text("Done."));
    let output = conjure_kit::cli([
        "run",
        "--json",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "Go on.",
    ])
    .workspace(&workspace)
    .model(&model)
    .run()
    .unwrap();
    let mut kinds: Vec<String> = lines(&output)
        .iter()
        .map(|line| line["type"].as_str().unwrap().to_owned())
        .collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "turn_started",
            "round",
            "usage",
            "function_call",
            "call_started",
            "tool_output",
            "function_call_output",
            "round",
            "content",
            "usage",
            "cost",
            "done",
            "result",
        ]
    );
}
