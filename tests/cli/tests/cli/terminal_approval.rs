//! A call that waits for the person outside of a chat: `conjure run` on a terminal asks as a chat
//! does.

use std::time::Duration;

use conjure_kit::{Cli, Model, Tmux, Workspace};
use conjure_mock_llm::Message;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stage::{CACHE, LOCAL, asks, workspace};

const TOOL: &str = "cache-manager_execute";
/// What stands below the choices.
const WAITS: &str = "It waits for you. Ctrl-C stops the turn.";

fn runs(workspace: &Workspace, model: &Model, columns: u16) -> Tmux {
    Tmux::start(asks(workspace, model, "run", "Go on."), columns, 24).unwrap()
}

/// Waits until a question heeds keys: those that come right with it were meant for something else.
fn asked(tmux: &Tmux) -> String {
    asked_in(tmux, WAITS)
}

/// Like [`asked`], in a terminal in which the last line is cut behind this text.
fn asked_in(tmux: &Tmux, waits: &str) -> String {
    let screen = tmux.wait_for(waits).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    screen
}

fn calls(model: &Model, id: &str, arguments: Value) {
    model.calls(id, TOOL, arguments);
}

#[test]
fn a_run_shows_what_would_run_and_only_an_answer_is_an_answer() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    calls(&model, "toolu_1", json!({ "command": "set city Lyon" }));
    model.says(Message::new().text("It is stored."));
    let tmux = runs(&workspace, &model, 80);
    assert_snapshot!(asked(&tmux), @r#"

    ? cache-manager_execute wants to run (ask by default for a tool with effects
      `write`)
      │ set city Lyon
      y  yes, once
      s  yes, and in this session: cache-manager_execute(set *)
      a  yes, and always: writes the rule cache-manager_execute(set *)
      n  no, and why
    It waits for you. Ctrl-C stops the turn.
    "#);
    tmux.types("/help").unwrap();
    tmux.wait_for("That is no answer: y, s, a or n.").unwrap();
    assert_eq!(model.requests().len(), 1, "nothing was decided");
    tmux.types("y").unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    for shown in ["\n  ↳ yes, once\n", "\n  stored\n", "\nIt is stored.\n"] {
        assert!(screen.contains(shown), "{shown:?}: {screen}");
    }
    assert!(!screen.contains("no, and why"), "{screen}");
}

#[test]
fn enter_takes_what_is_marked_alone_and_every_choice_is_seen_in_a_small_terminal() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    calls(&model, "toolu_1", json!({ "command": "set city Lyon" }));
    model.says(Message::new().text("It is stored."));
    let tmux = Tmux::start(asks(&workspace, &model, "run", "Go on."), 40, 7).unwrap();
    let screen = asked_in(&tmux, "It waits for you.");
    for choice in [
        "  y  yes, once",
        "  s  yes, in this session by the rule",
        "  a  yes, and always: writes the rule",
        "  n  no, and why",
        "  Rule: cache-manager_execute(set *)",
    ] {
        assert!(screen.contains(choice), "{choice:?}: {screen}");
    }
    tmux.types("/help").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.types("n").unwrap();
    tmux.wait_for("Why not?").unwrap();
    tmux.press(&["Escape"]).unwrap();
    tmux.wait_for("It waits for you.").unwrap();
    assert_eq!(model.requests().len(), 1, "nothing was decided");
    tmux.press(&["Down"]).unwrap();
    tmux.wait_for("▸ y  yes, once").unwrap();
    tmux.press(&["Enter"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let all = tmux.scrollback().unwrap();
    assert!(all.contains("  ↳ yes, once"), "{all}");
}

#[test]
fn the_model_reads_why_and_a_rule_of_this_session_holds_for_the_next_call() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    for (id, value) in [("toolu_1", "one"), ("toolu_2", "two"), ("toolu_3", "three")] {
        calls(&model, id, json!({ "command": format!("set k {value}") }));
    }
    model.says(Message::new().text("That is all."));
    let tmux = runs(&workspace, &model, 100);
    asked(&tmux);
    tmux.types("n").unwrap();
    tmux.wait_for("Why not?").unwrap();
    tmux.types("y, but later").unwrap();
    tmux.wait_for("Why not? y, but later").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("│ set k two").unwrap();
    asked(&tmux);
    tmux.types("s").unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let result = |id: &str| model.last_request().tool_result_text(id).unwrap();
    assert!(result("toolu_1").contains("said: y, but later."));
    assert_eq!(result("toolu_2"), "stored");
    assert_eq!(result("toolu_3"), "stored");
    let screen = tmux.screen().unwrap();
    assert!(screen.contains("  ↳ no: y, but later"), "{screen}");
    assert_eq!(screen.matches("wants to run").count(), 2, "{screen}");
}

#[test]
fn always_writes_a_rule_that_a_chat_has_too() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    calls(&model, "toolu_1", json!({ "command": "set k one" }));
    model.says(Message::new().text("The first."));
    let tmux = runs(&workspace, &model, 100);
    asked(&tmux);
    tmux.types("a").unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    assert!(screen.contains("Written to"), "{screen}");
    assert!(
        screen.contains("allow = [\"cache-manager_execute(set *)\"]"),
        "{screen}"
    );
    calls(&model, "toolu_2", json!({ "command": "set k two" }));
    model.says(Message::new().text("The second."));
    let output = asks(&workspace, &model, "run", "Once more.").run().unwrap();
    assert_eq!(output.stdout, "The second.\n", "{output:?}");
}

#[test]
fn control_c_at_the_question_ends_the_turn_and_gives_the_terminal_back() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    calls(&model, "toolu_1", json!({ "command": "set k one" }));
    let tmux = runs(&workspace, &model, 80);
    asked(&tmux);
    tmux.press(&["C-c"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 130);
    let screen = tmux.screen().unwrap();
    assert!(!screen.contains("no, and why"), "{screen}");
    assert!(screen.contains("goes on with it."), "{screen}");
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn an_answer_that_goes_to_a_file_leaves_the_question_on_the_terminal() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    calls(&model, "toolu_1", json!({ "command": "set k one" }));
    model.says(Message::new().text("Just this."));
    let conjure = conjure_kit::conjure_bin().unwrap();
    let run = "run --provider anthropic --model a-model";
    let script = format!("exec '{}' {run} 'Go on.' > answer.txt", conjure.display());
    let run = Cli::program("sh", ["-c", &script]);
    let tmux = Tmux::start(run.workspace(&workspace).model(&model), 80, 24).unwrap();
    asked(&tmux);
    tmux.types("y").unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    assert_eq!(workspace.read("answer.txt").unwrap(), "Just this.\n");
}

#[test]
fn a_run_compares_a_file_that_a_call_would_overwrite_with_what_it_has() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    workspace.write("a.txt", "one\nold\n").unwrap();
    let input = json!({ "path": "a.txt", "file_text": "one\nnew\n", "description": "" });
    model.calls("toolu_1", "local_create_file", input);
    let run = asks(&workspace, &model, "run --executor local", "Go on.");
    let tmux = Tmux::start(run, 100, 30).unwrap();
    let screen = tmux.wait_for(WAITS).unwrap();
    for line in [
        "│ It overwrites the file that is there:",
        "│   one",
        "│ - old",
        "│ + new",
    ] {
        assert!(screen.contains(line), "{line}: {screen}");
    }
}
