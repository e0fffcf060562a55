//! Keys of a chat on a terminal that take the terminal itself, or what it tells of a key: Ctrl-O, Ctrl-Z,
//! Shift-Enter; and Up at messages that wait.

use conjure_kit::{Cli, Model, Tmux, conjure_bin};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::json;

use crate::stage::{LOCAL, workspace};
use crate::terminal::{says, started};

#[test]
fn control_o_shows_all_that_a_call_said() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let input =
        json!({ "command": "for n in $(seq 1 30); do echo row-$n; done", "description": "" });
    model.calls("toolu_1", "local_bash_tool", input);
    model.says(Message::new().text("It said thirty rows."));
    let tmux = started(&workspace, &model, "--allow local_bash_tool", 100, 60);
    let screen = says(&tmux, "Count.", "It said thirty rows.");
    assert!(
        screen.contains("row-1\n") && !screen.contains("row-30\n"),
        "{screen}"
    );
    tmux.press(&["C-o"]).unwrap();
    let is_shown = |screen: &str| (1..=30).all(|n| screen.contains(&format!("row-{n}\n")));
    tmux.wait_until("all that the call said", is_shown).unwrap();
    tmux.press(&["C-o"]).unwrap();
    tmux.wait_for("No call before that has a result here.")
        .unwrap();
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_until_it_says_go_on() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Back again."));
    let shell = Cli::program("bash", ["--norc", "--noprofile", "-i"])
        .workspace(&workspace)
        .model(&model)
        .env("HOME", workspace.root().as_os_str())
        .env("PS1", "shell> ");
    let tmux = Tmux::start(shell, 100, 30).unwrap();
    tmux.wait_for("shell>").unwrap();
    let program = conjure_bin().unwrap();
    let chat = format!("{} chat --provider anthropic --model m", program.display());
    tmux.types(&chat).unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux.types("a draft").unwrap();
    tmux.wait_for("› a draft").unwrap();
    tmux.press(&["C-z"]).unwrap();
    let is_gone = |screen: &str| screen.contains("Stopped") && !screen.contains("› a draft");
    tmux.wait_until("the shell has the terminal", is_gone)
        .unwrap();
    tmux.types("echo the''shell").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("\ntheshell").unwrap();
    tmux.types("fg").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("› a draft").unwrap();
    says(&tmux, " that goes on", "Back again.");
    assert_eq!(model.last_request().last_text(), "a draft that goes on");
}

#[test]
fn shift_enter_is_a_new_line_where_the_terminal_tells_it_from_enter() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Two lines."));
    let tmux = started(&workspace, &model, "", 80, 24);
    tmux.types("one").unwrap();
    // tmux has been asked to tell it, and sends `CSI 13;2u`.
    tmux.press(&["S-Enter"]).unwrap();
    tmux.types("two").unwrap();
    tmux.wait_for("› one\n  two").unwrap();
    says(&tmux, "", "Two lines.");
    assert_eq!(model.last_request().last_text(), "one\ntwo");
}

#[test]
fn any_message_that_waits_is_changed_in_its_place() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new().text("Once upon a time.").deltas(4);
    model.says(Reply::from(story).hold(Position::Event(5), "middle"));
    for answer in ["One.", "Two.", "Three."] {
        model.says(Message::new().text(answer));
    }
    let tmux = started(&workspace, &model, "", 80, 30);
    tmux.types("Tell me.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    for text in ["first", "second", "third"] {
        tmux.types(text).unwrap();
        tmux.press(&["Enter"]).unwrap();
        tmux.wait_for(&format!("⧗ {text}")).unwrap();
    }
    tmux.press(&["Up", "Up"]).unwrap();
    let screen = tmux.wait_for("› second").unwrap();
    assert!(screen.contains("⧗ first\n✎ second\n⧗ third\n"), "{screen}");
    tmux.types("!").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("⧗ first\n⧗ second!\n⧗ third\n").unwrap();
    model.mock().release("middle");
    let is_over = |screen: &str| screen.contains("Three.") && screen.contains("/ for commands");
    tmux.wait_until("all answers", is_over).unwrap();
    let requests = model.requests();
    let said: Vec<String> = requests.iter().map(|request| request.last_text()).collect();
    assert_eq!(said, ["Tell me.", "first", "second!", "third"]);
}
