//! What an MCP server asks the person at a terminal: line by line, and in a chat that is redrawn.

use conjure_kit::{MockMcp, Model, ProgramHandle, Workspace};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::stage::{asks, workspace};
use crate::terminal::started;

const ARGS: &str = "--config session.toml --allow *";
const CALL: &str = "toolu_1";

/// A workspace with a server, and a model that has it ask for `sure`, a yes or a no, and for
/// `note`, a text that is `none` by default.
fn stage(model: &Model) -> Workspace {
    let workspace = workspace(&["conjure-backend-mcp"]);
    let program = MockMcp::program().unwrap();
    let session = format!(
        "[[backend]]\nkind = \"mcp\"\n[backend.config.servers.asker]\ncommand = {program:?}\n\
         era = \"legacy\"\n"
    );
    workspace.write("session.toml", session).unwrap();
    model.calls(CALL, "asker_ask", json!({}));
    model.says(Message::new().text("Done."));
    workspace
}

/// `conjure run`, once it asks for the first field.
fn asked(model: &Model) -> ProgramHandle {
    let workspace = stage(model);
    let running = asks(&workspace, model, &format!("run {ARGS}"), "Ask.")
        .on_terminal()
        .start()
        .unwrap();
    running.wait_for_stdout("sure (y or n, optional)").unwrap();
    running
}

/// What the server got, as its tool tells it.
fn got(model: &Model) -> String {
    model.last_request().tool_result_text(CALL).unwrap()
}

#[test]
fn enter_leaves_a_field_out_or_takes_its_default_and_a_wrong_answer_is_asked_again() {
    let model = Model::start().unwrap();
    let mut running = asked(&model);
    running.send_line("maybe").unwrap();
    running.wait_for_stdout("It is y or n.").unwrap();
    running.send_line("").unwrap();
    running
        .wait_for_stdout("note (text, optional, [none])")
        .unwrap();
    running.send_line("").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let got = got(&model);
    assert!(got.contains(r#""content":{"note":"none"}"#), "{got}");
}

#[test]
fn a_form_is_declined_and_cancelled_by_what_its_head_says() {
    for (typed, action) in [("/decline", "decline"), ("/cancel", "cancel")] {
        let model = Model::start().unwrap();
        let mut running = asked(&model);
        running.send_line(typed).unwrap();
        let output = running.wait().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        let head = "/decline declines the form, /cancel cancels it.";
        assert!(output.stdout.contains(head), "{}", output.stdout);
        let got = got(&model);
        assert!(got.contains(&format!("\"action\":\"{action}\"")), "{got}");
    }
}

#[test]
fn a_chat_that_is_redrawn_leaves_a_field_out_too() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = started(&workspace, &model, ARGS, 80, 30);
    tmux.types("Ask.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("y or n, optional; Esc declines").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("text, optional, [none]; Esc declines")
        .unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Done.").unwrap();
    let got = got(&model);
    assert!(got.contains(r#""content":{"note":"none"}"#), "{got}");
}
