//! Chats in a saved session on a terminal: what waits in turns that somebody else began, and what a call
//! would overwrite.

use conjure_kit::{Model, Signal, Tmux, Workspace};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::session::{asks, asks_person, done, stage};
use crate::stage::conjure;
use crate::terminal::decides;

/// A saved session, and a chat in it.
fn chat(workspace: &Workspace) -> Tmux {
    done(
        workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    let chat = conjure(workspace, "chat --session work");
    let tmux = Tmux::start(chat, 100, 40).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux
}

/// Has the model call for a file of this name.
fn lights(model: &Model, file: &str) {
    let command = json!({ "command": format!("echo lit > {file}"), "description": "" });
    model.calls(&format!("call-{file}"), "local_bash_tool", command);
    model.says(Message::new().text("Done."));
}

/// Waits until nothing waits for the person in the chat.
fn wait_until_free(tmux: &Tmux) {
    let is_free =
        |screen: &str| !screen.contains("It waits for you.") && screen.contains("/ for commands");
    tmux.wait_until("nothing that waits", is_free).unwrap();
}

#[test]
fn a_call_of_a_turn_that_somebody_else_began_is_shown_and_decided_in_the_chat() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    lights(&model, "lamp");
    // A person who could answer is there too, so that it waits whenever the chat sees it.
    let running = asks_person(&workspace, "Light the lamp");
    let screen = tmux.wait_for("It waits for you.").unwrap();
    for shown in [
        "In a turn that somebody else began:",
        "local_bash_tool wants to run",
        "│ echo lit > lamp",
    ] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    decides(&tmux, "y", "↳ yes, once");
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("Done."), "{output:?}");
    assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
    wait_until_free(&tmux);
}

#[test]
fn what_somebody_else_decided_waits_in_the_chat_no_longer() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    lights(&model, "lamp");
    let mut running = asks_person(&workspace, "Light the lamp");
    tmux.wait_for("It waits for you.").unwrap();
    running.send_line("y").unwrap();
    let output = running.wait().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
    wait_until_free(&tmux);
}

#[test]
fn what_waited_in_a_program_that_was_killed_waits_in_the_chat_no_longer() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    lights(&model, "lamp");
    let running = asks_person(&workspace, "Light the lamp");
    tmux.wait_for("It waits for you.").unwrap();
    running.signal(Signal::KILL);
    let output = running.wait().unwrap();
    assert!(output.signal.is_some(), "{output:?}");
    wait_until_free(&tmux);
}

#[test]
fn a_file_that_a_call_would_overwrite_is_compared_in_a_saved_session_too() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    workspace.write("a.txt", "one\nold\n").unwrap();
    let input = json!({ "path": "a.txt", "file_text": "one\nnew\n", "description": "" });
    model.calls("call-1", "local_create_file", input);
    model.says(Message::new().text("Written."));
    tmux.types("Write it.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let screen = tmux.wait_for("It waits for you.").unwrap();
    for line in [
        "│ It overwrites the file that is there:",
        "│   one",
        "│ - old",
        "│ + new",
    ] {
        assert!(screen.contains(line), "{line}: {screen}");
    }
    decides(&tmux, "y", "Written.");
    assert_eq!(workspace.read("a.txt").unwrap(), "one\nnew\n");
}

#[test]
fn a_run_with_nobody_at_it_waits_for_the_chat_as_long_as_that_is_open() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    // The chat is there when it has shown what waits.
    lights(&model, "seen");
    let mut running = asks_person(&workspace, "Light one");
    tmux.wait_for("It waits for you.").unwrap();
    running.send_line("y").unwrap();
    assert_eq!(running.wait().unwrap().code, Some(0));
    wait_until_free(&tmux);
    lights(&model, "decided");
    let args = ["--session", "work"];
    let running = asks(&workspace, &args, "Light two").start().unwrap();
    tmux.wait_for("It waits for you.").unwrap();
    decides(&tmux, "y", "↳ yes, once");
    let output = running.wait().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
    assert_eq!(workspace.read("decided").unwrap(), "lit\n");
    tmux.types("/quit").unwrap();
    tmux.press(&["Enter"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    lights(&model, "denied");
    let output = asks(&workspace, &args, "Light three").run().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
    assert!(workspace.read("denied").is_err());
}

#[test]
fn a_chat_is_told_where_its_session_is_also_where_it_speaks_first() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    model.says(Message::new().text("Heard there."));
    done(&workspace, "session new-chat work");
    tmux.types("Hello").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_told = |screen: &str| {
        screen.contains("took the session to another thread.")
            && screen.contains("Heard there.")
            && screen.contains("/ for commands")
            && !screen.contains("Esc stops")
    };
    let screen = tmux.wait_until("the move and the answer", is_told).unwrap();
    assert_eq!(screen.matches("Heard there.").count(), 1, "{screen}");
}

#[test]
fn a_chat_goes_where_somebody_else_takes_its_session() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    done(&workspace, "session new-chat work");
    let told = "Somebody else took the session to another thread.";
    tmux.wait_for(told).unwrap();
    lights(&model, "lamp");
    let running = asks_person(&workspace, "Light the lamp");
    tmux.wait_for("It waits for you.").unwrap();
    decides(&tmux, "y", "↳ yes, once");
    let output = running.wait().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
}

#[test]
fn what_somebody_else_said_and_the_answer_are_shown_in_the_chat() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tmux = chat(&workspace);
    // The chat follows the session when it has shown what waits.
    lights(&model, "lamp");
    let mut running = asks_person(&workspace, "Light the lamp");
    tmux.wait_for("It waits for you.").unwrap();
    running.send_line("y").unwrap();
    assert_eq!(running.wait().unwrap().code, Some(0));
    let is_shown = |screen: &str| {
        let said = "In a turn that somebody else began:\n\n› Light the lamp\n";
        screen.contains(said) && screen.contains("\nDone.\n") && screen.contains(" tokens")
    };
    tmux.wait_until("what was said elsewhere", is_shown)
        .unwrap();
    // What the person says here is shown once.
    model.says(Message::new().text("Heard."));
    tmux.types("Hello").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_over = |screen: &str| screen.contains("Heard.") && screen.contains("/ for commands");
    let screen = tmux.wait_until("the answer", is_over).unwrap();
    assert_eq!(screen.matches("› Hello").count(), 1, "{screen}");
}
