//! Questions of a saved session that are answered from another terminal: of a turn that a server runs,
//! and of one that a process runs which nobody can connect to.

use conjure_kit::{MockMcp, Model, Output, ProgramHandle, Signal, Workspace};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::session::{asks, done, ok, server, stage};
use crate::session_waiting::until;
use crate::stage::{conjure, json as parsed};

const TOOL: &str = "asker_ask";
const SETTLED: &str = "No answer is needed any more.";

/// A workspace with a session whose MCP server asks for `sure`, a yes or a no, and for `note`.
fn asker(model: &Model) -> Workspace {
    let workspace = stage(model);
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let program = MockMcp::program().unwrap();
    let tools = format!(
        "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.asker]\ncommand = {program:?}\n\
         args = [\"modern\"]\n[policy]\nallow = [\"*\"]\n"
    );
    let tools = workspace.write("tools.toml", tools).unwrap();
    let create = "session create work --auth claude --model claude-sonnet-4-5 --tools";
    let create = create.split(' ').chain([tools.to_str().unwrap()]);
    ok(conjure_kit::cli(create).workspace(&workspace));
    workspace
}

/// A turn at a terminal, once it asks the person there.
fn asked(workspace: &Workspace) -> ProgramHandle {
    let running = asks(workspace, &["--session", "work"], "Ask me")
        .on_terminal()
        .start()
        .unwrap();
    running.wait_for_stdout("sure (y or n, optional)").unwrap();
    running
}

fn waiting(workspace: &Workspace) -> Vec<Value> {
    let mut listed = parsed(&done(workspace, "session waiting work --json"));
    match listed["questions"].take() {
        Value::Array(questions) => questions,
        other => panic!("no list: {other}"),
    }
}

fn answer(workspace: &Workspace, args: &str) -> Output {
    let answered = conjure(workspace, &format!("session answer work {args}"));
    answered.run().unwrap()
}

#[test]
fn a_question_is_answered_from_another_terminal_whoever_runs_the_turn() {
    let model = Model::start().unwrap();
    let workspace = asker(&model);
    for serves in [false, true] {
        let server = serves.then(|| server(&workspace, ""));
        model.calls("call-1", TOOL, json!({}));
        model.says(Message::new().text("I see."));
        let running = asked(&workspace);
        assert_eq!(waiting(&workspace).len(), 1);
        // What does not fit is refused, and the question stays.
        let unfit = answer(&workspace, "sure=perhaps");
        assert_eq!(unfit.code, Some(2), "{unfit:?}");
        assert!(unfit.stderr.contains("content.sure"), "{unfit:?}");
        let empty = answer(&workspace, "");
        assert_eq!(empty.code, Some(2), "{empty:?}");
        let taken = answer(&workspace, "sure=yes note=7 --json");
        assert_eq!(taken.code, Some(0), "{taken:?}");
        assert_eq!(parsed(&taken)["action"], "accept");
        running.wait_for_stdout(SETTLED).unwrap();
        assert_eq!(running.wait().unwrap().code, Some(0));
        // Each has the type of its field.
        let got = model.last_request().tool_result_text("call-1").unwrap();
        assert!(
            got.contains("\"sure\":true") && got.contains("\"note\":\"7\""),
            "{got}"
        );
        let late = answer(&workspace, "sure=yes");
        assert_eq!(late.code, Some(2), "{late:?}");
        if let Some(server) = server {
            server.signal(Signal::TERM);
            server.wait().unwrap();
        }
    }
}

#[test]
fn of_several_questions_the_one_that_is_named_is_answered() {
    let model = Model::start().unwrap();
    let workspace = asker(&model);
    for serves in [false, true] {
        let server = serves.then(|| server(&workspace, ""));
        let call = |id: &str| (id.to_owned(), TOOL, json!({}));
        let [first, second] = ["call-1", "call-2"].map(call);
        model.says(
            Message::new()
                .tool_use(&first.0, first.1, first.2)
                .tool_use(&second.0, second.1, second.2),
        );
        model.says(Message::new().text("I see."));
        let running = asked(&workspace);
        until(|| waiting(&workspace).len() == 2);
        let unnamed = answer(&workspace, "sure=yes");
        assert_eq!(unnamed.code, Some(2), "{unnamed:?}");
        assert!(unnamed.stderr.contains("--question"), "{unnamed:?}");
        for question in waiting(&workspace) {
            let (id, call) = (&question["id"], &question["call_id"]);
            let sure = if *call == "call-1" { "yes" } else { "no" };
            let named = format!("--question {} sure={sure}", id.as_str().unwrap());
            let taken = answer(&workspace, &named);
            assert_eq!(taken.code, Some(0), "{taken:?}");
        }
        assert_eq!(running.wait().unwrap().code, Some(0));
        let request = model.last_request();
        for (call, sure) in [("call-1", "\"sure\":true"), ("call-2", "\"sure\":false")] {
            let got = request.tool_result_text(call).unwrap();
            assert!(got.contains(sure), "{got}");
        }
        if let Some(server) = server {
            server.signal(Signal::TERM);
            server.wait().unwrap();
        }
    }
}

#[test]
fn who_follows_a_turn_of_another_process_fills_in_its_form() {
    let model = Model::start().unwrap();
    let workspace = asker(&model);
    model.calls("call-1", TOOL, json!({}));
    model.says(Message::new().text("I see."));
    let running = asked(&workspace);
    let mut follower = conjure(&workspace, "session follow work")
        .on_terminal()
        .start()
        .unwrap();
    follower.wait_for_stdout("sure (y or n, optional)").unwrap();
    follower.send_line("y").unwrap();
    follower.wait_for_stdout("note (").unwrap();
    follower.send_line("by hand").unwrap();
    running.wait_for_stdout(SETTLED).unwrap();
    for terminal in [running, follower] {
        let output = terminal.wait().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("I see."), "{output:?}");
    }
    let got = model.last_request().tool_result_text("call-1").unwrap();
    assert!(got.contains("by hand"), "{got}");
}

#[test]
fn an_answer_that_is_not_taken_is_said_and_following_goes_on() {
    let model = Model::start().unwrap();
    let workspace = asker(&model);
    model.calls("call-1", TOOL, json!({}));
    model.says(Message::new().text("I see."));
    let running = asked(&workspace);
    let mut follower = conjure(&workspace, "session follow work")
        .on_terminal()
        .start()
        .unwrap();
    follower.wait_for_stdout("sure (y or n, optional)").unwrap();
    running.signal(Signal::STOP);
    follower.send_line("y").unwrap();
    follower.wait_for_stdout("note (").unwrap();
    follower.send_line("").unwrap();
    let said = follower.wait_for_stdout("To say it again:").unwrap();
    assert!(said.contains("it does not answer"), "{said}");
    running.signal(Signal::CONT);
    let taken = answer(&workspace, "sure=no");
    assert_eq!(taken.code, Some(0), "{taken:?}");
    for terminal in [running, follower] {
        let output = terminal.wait().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("I see."), "{output:?}");
    }
    let got = model.last_request().tool_result_text("call-1").unwrap();
    assert!(got.contains("\"sure\":false"), "{got}");
}
