//! `conjure run` on a terminal: the turn is drawn there, as a chat draws it, without anything to type.

use conjure_kit::{Cli, MockMcp, Model, Tmux, Workspace};
use conjure_mock_llm::Message;
use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{CACHE, LOCAL, asks, workspace};

const STORE: &str = "cache-manager_execute";

fn runs(workspace: &Workspace, model: &Model, args: &str) -> Cli {
    asks(workspace, model, &format!("run {args}"), "Go on.")
}

/// A screen without what differs from run to run: how long a call or a thought took, and so how much of
/// the thought has room behind that.
fn timeless(screen: &str) -> String {
    screen
        .lines()
        .map(timeless_line)
        .collect::<Vec<_>>()
        .join("\n")
}

fn timeless_line(line: &str) -> String {
    let (call, thought) = (line.rsplit_once(", "), line.split_once(": "));
    match (call, thought) {
        (Some((call, _)), _) if line.starts_with(['✓', '✗']) => format!("{call}, N ms"),
        (_, Some((head, thought))) if line.starts_with('∴') => {
            let head = head.split(" for ").next().unwrap_or(head);
            let begin: String = thought.chars().take(36).collect();
            format!("{head}: {begin}…")
        }
        _ => line.to_owned(),
    }
}

#[test]
fn how_long_a_thought_took_is_no_difference() {
    let thought = "The person wants the city to be kept, so that it is known later on";
    let quick = timeless_line(&format!("∴ Thought: {thought}.…"));
    assert_eq!(
        timeless_line(&format!("∴ Thought for 12 s: {thought}")),
        quick
    );
}

#[test]
fn a_run_is_drawn_in_80_columns() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let thought = "The person wants the city to be kept, so that it is known later on.";
    model.says(
        Message::new()
            .reasoning(thought.repeat(3))
            .text("I **store** it.")
            .tool_use("toolu_1", STORE, json!({ "command": "set city Lyon" })),
    );
    let answer = "# Stored\n\nThe city is *known* now, which took no more than a call of the cache \
                  manager and the [page](https://example.org) on it.\n\n- `city` is Lyon\n- that is all\n\n\
                  ```rust\nfn city() {}\n```";
    model.says(Message::new().text(answer).deltas(3));
    let cli = runs(&workspace, &model, "--allow cache-manager_*");
    let tmux = Tmux::start(cli, 80, 40).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    assert_snapshot!(timeless(&tmux.screen().unwrap()), @r"
    ∴ Thought: The person wants the city to be kept…

    I store it.

    ✓ cache-manager_execute set city Lyon  native, N ms
      stored

    Stored

    The city is known now, which took no more than a call of the cache manager and
    the page (https://example.org) on it.

    • city is Lyon
    • that is all

      fn city() {}
    20 tokens in, 10 out
    ");
}

#[test]
fn a_call_that_runs_shows_its_last_lines_and_control_c_takes_them_away() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let command = "for n in 1 2 3 4 5; do echo line $n; done; sleep 600";
    let call = json!({ "command": command, "description": "" });
    model.calls("toolu_1", "local_bash_tool", call);
    let cli = runs(&workspace, &model, "--executor local --allow local_*");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    let screen = tmux.wait_for("┊ line 5").unwrap();
    assert!(
        screen.contains("⠿ local_bash_tool for n in 1 2"),
        "{screen}"
    );
    assert!(
        !screen.contains("┊ line 2\n"),
        "only the last ones: {screen}"
    );
    tmux.press(&["C-c"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 130);
    let screen = tmux.screen().unwrap();
    assert!(!screen.contains('⠿') && !screen.contains('┊'), "{screen}");
    assert!(screen.contains("goes on with it."), "{screen}");
}

#[test]
fn what_is_typed_at_a_question_stays_while_another_call_ends() {
    let workspace = workspace(&[LOCAL, "conjure-backend-mcp"]);
    let model = Model::start().unwrap();
    let program = MockMcp::program().unwrap();
    let session = format!(
        "[[backend]]\nkind = \"local\"\n[[backend]]\nkind = \"mcp\"\n\
         [backend.config.servers.asker]\ncommand = {program:?}\nargs = [\"modern\"]\n"
    );
    workspace.write("session.toml", session).unwrap();
    let bash = |command: &str| json!({ "command": command, "description": "" });
    let waits = "until [ -e gate ]; do sleep 0.1; done; echo it waited";
    model.says(
        Message::new()
            .tool_use("toolu_1", "asker_ask", json!({}))
            .tool_use("toolu_2", "local_bash_tool", bash(waits))
            .tool_use("toolu_3", "local_bash_tool", bash("touch next")),
    );
    model.says(Message::new().text("Done."));
    let cli = runs(&workspace, &model, "--config session.toml --allow *");
    let tmux = Tmux::start(cli, 80, 40).unwrap();
    tmux.wait_for("sure (y or n, optional)").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_at_note = |screen: &str| screen.matches("\n  >").count() == 2;
    tmux.wait_until("the second field", is_at_note).unwrap();
    tmux.types("half an ans").unwrap();
    tmux.wait_for("  > half an ans").unwrap();
    workspace.write("gate", "").unwrap();
    // What the same backend runs next begins when the end of the call before it has been told.
    let is_next = |_: &str| workspace.work().join("next").exists();
    tmux.wait_until("the next call", is_next).unwrap();
    tmux.types("wer").unwrap();
    let screen = tmux.wait_for("  > half an answer").unwrap();
    assert!(screen.ends_with("  > half an answer"), "{screen}");
    tmux.press(&["Enter"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    let (_, below) = screen.split_once("  > half an answer\n").unwrap();
    for shown in ["✓ local_bash_tool until", "\nDone.\n"] {
        assert!(below.contains(shown), "{shown:?}: {screen}");
    }
    let got = model.last_request().tool_result_text("toolu_1").unwrap();
    assert!(got.contains("half an answer"), "{got}");
}

#[test]
fn a_difference_has_colours_unless_none_are_wanted() {
    for (no_color, is_colored) in [("", true), ("1", false)] {
        let workspace = workspace(&[LOCAL]);
        let model = Model::start().unwrap();
        let file = json!({ "path": "a.txt", "file_text": "one\n", "description": "" });
        model.calls("toolu_1", "local_create_file", file);
        model.says(Message::new().text("Made."));
        let cli = runs(&workspace, &model, "--executor local --allow local_*");
        let tmux = Tmux::start(cli.env("NO_COLOR", no_color), 80, 24).unwrap();
        assert_eq!(tmux.wait_for_exit().unwrap(), 0);
        let screen = tmux.screen().unwrap();
        assert!(screen.contains("\n  + one\n"), "{screen}");
        let colors = tmux.colors().unwrap();
        assert_eq!(colors.contains("\u{1b}[32m+ one"), is_colored, "{colors:?}");
    }
}

#[test]
fn a_terminal_that_is_read_aloud_gets_the_text_as_it_comes() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("It is **seven**."));
    let cli = runs(&workspace, &model, "").env("CONJURE_SCREEN_READER", "1");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    assert!(screen.contains("It is **seven**."), "{screen}");
}

#[test]
fn an_answer_is_drawn_where_the_question_is_piped_in_and_the_rest_goes_to_a_file() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let call = json!({ "command": "set city Lyon" });
    model.calls("toolu_1", STORE, call);
    model.says(Message::new().text("It is **stored**."));
    let conjure = conjure_kit::conjure_bin().unwrap();
    let run = format!(
        "'{}' run --provider anthropic --model a-model --allow '*'",
        conjure.display()
    );
    let script = format!("echo 'Go on.' | {run} 2> log.txt");
    let cli = Cli::program("sh", ["-c", &script]);
    let tmux = Tmux::start(cli.workspace(&workspace).model(&model), 80, 24).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    assert_eq!(tmux.screen().unwrap(), "It is stored.");
    let log = workspace.read("log.txt").unwrap();
    assert!(log.contains("✓ cache-manager_execute"), "{log}");
}
