//! Chats on a terminal that go on with something: a saved session, a thread, the model that answered
//! last; and what else a person has around them.

use conjure_kit::{Model, Tmux, Workspace};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::mcp::place;
use crate::stage::{LOCAL, asks, workspace};
use crate::terminal::{chat, says, started};

#[test]
fn a_screen_reader_gets_lines_that_nobody_redraws() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("**Plain** words."));
    let cli = chat(&workspace, &model, "").env("CONJURE_SCREEN_READER", "1");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    tmux.wait_for("`/help` shows what else there is.").unwrap();
    tmux.types("Hello").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("**Plain** words.").unwrap();
    let is_asked = |screen: &str| {
        let last = screen.trim_end().lines().last();
        last.is_some_and(|line| line.trim() == "›")
    };
    tmux.wait_until("the next line is asked for", is_asked)
        .unwrap();
    tmux.press(&["C-d"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    assert!(
        screen.contains("Go on with it: conjure chat --thread "),
        "{screen}"
    );
    drop(tmux);
    let cli = chat(&workspace, &model, "--continue").env("CONJURE_SCREEN_READER", "1");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    let is_told = |screen: &str| {
        let question = screen.lines().any(|line| line.trim_end() == "› Hello");
        question && screen.contains("**Plain** words.")
    };
    tmux.wait_until("what was said before", is_told).unwrap();
    // Who looked only is told the way back too.
    tmux.wait_until("the next line is asked for", is_asked)
        .unwrap();
    tmux.press(&["C-d"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    assert!(
        screen.contains("Go on with it: conjure chat --thread "),
        "{screen}"
    );
}

#[test]
fn a_chat_line_by_line_runs_commands_and_attaches_files_too() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("I see both."));
    workspace.write("notes.txt", "the notes\n").unwrap();
    let cli = chat(&workspace, &model, "").env("CONJURE_SCREEN_READER", "1");
    let tmux = Tmux::start(cli, 100, 30).unwrap();
    tmux.wait_for("`/help` shows what else there is.").unwrap();
    tmux.types("!echo own $((40 + 2))").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let screen = tmux.wait_for("exit code 0").unwrap();
    assert!(screen.contains("own 42"), "{screen}");
    assert_eq!(model.requests().len(), 0);
    tmux.types("Read @notes.txt and @none.txt").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let screen = tmux.wait_for("I see both.").unwrap();
    assert!(screen.contains("there is no file `none.txt`"), "{screen}");
    let said = model.last_request().body.to_string();
    assert!(
        said.contains("own 42") && said.contains("the notes"),
        "{said}"
    );
}

#[test]
fn no_command_of_the_persons_own_holds_up_the_chat() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let tmux = started(&workspace, &model, "", 100, 40);
    // It has no terminal to read from.
    says(&tmux, "!read x </dev/tty; exit 7", "exit code 7");
    // What it leaves running holds its output.
    says(
        &tmux,
        "!sleep 300 & echo $! > pid",
        "what it started runs on",
    );
    says(&tmux, "!kill $(cat pid); exit 9", "exit code 9");
    // It takes no notice of being asked to end.
    tmux.types("!trap '' TERM; echo be''gun; sleep 300")
        .unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("\nbegun\n").unwrap();
    tmux.press(&["Escape"]).unwrap();
    let is_over =
        |screen: &str| screen.contains("stopped; the model") && screen.contains("/ for commands");
    tmux.wait_until("the end of the command", is_over).unwrap();
}

#[test]
fn the_persons_own_editor_has_the_text() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Read."));
    let cli = chat(&workspace, &model, "").env("EDITOR", "sed -i s/draft/edited/");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux.types("a draft").unwrap();
    tmux.press(&["C-g"]).unwrap();
    tmux.wait_for("› a edited").unwrap();
    says(&tmux, "", "Read.");
    assert!(model.last_request().body.to_string().contains("a edited"));
}

#[test]
fn control_c_does_not_end_the_chat_while_an_editor_has_the_text() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let editor = "echo be''gun\nuntil [ -e done ]; do sleep 0.1; done\necho edited > \"$1\"\n";
    workspace.write("editor.sh", editor).unwrap();
    let cli = chat(&workspace, &model, "").env("EDITOR", "sh editor.sh");
    let tmux = Tmux::start(cli, 80, 24).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux.press(&["C-g"]).unwrap();
    tmux.wait_for("begun").unwrap();
    tmux.press(&["C-c"]).unwrap();
    workspace.write("done", "").unwrap();
    tmux.wait_for("› edited").unwrap();
}

/// A saved session on the mock, which a key opens.
fn saved(workspace: &Workspace, model: &Model) {
    let with_key = |args: &str| {
        crate::stage::conjure(workspace, args)
            .env("ANTHROPIC_BASE_URL", model.base_url())
            .env(
                "CONJURE_KEY",
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            )
    };
    for args in [
        &format!(
            "auth create key --provider anthropic --base-url {}",
            model.base_url()
        ),
        "session create work --auth key --model a-model",
    ] {
        let output = with_key(args).stdin("a-key-of-nobody\n").run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    }
}

#[test]
fn a_saved_session_has_the_same_face_and_the_same_commands() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    saved(&workspace, &model);
    model.says(Message::new().text("**Hello**, Ada."));
    let start = |args: &str| {
        let cli = crate::stage::conjure(&workspace, args)
            .env("ANTHROPIC_BASE_URL", model.base_url())
            .env(
                "CONJURE_KEY",
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            );
        let tmux = Tmux::start(cli, 90, 40).unwrap();
        tmux.wait_for("/ for commands").unwrap();
        tmux
    };
    let tmux = start("chat --session work");
    says(&tmux, "I am Ada.", "Hello, Ada.");
    for (command, shown) in [
        ("/session", "anthropic/api_key/key"),
        ("/check anthropic/another", "about"),
        ("/cost", "tokens in"),
        ("/model anthropic/another", "Now anthropic/another answers."),
        ("/rename Meeting Ada", "It is named Meeting Ada."),
        ("/new", "A fresh thread."),
    ] {
        let screen = says(&tmux, command, shown);
        assert!(!screen.contains("There is no"), "{command}: {screen}");
    }
    tmux.types("/resume").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("▸ Meeting Ada").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("› I am Ada.").unwrap();
}

#[test]
fn a_conversation_is_read_and_written_on_while_its_session_is_still_opened() {
    let waits = "command = \"sh\"\nargs = [\"-c\", \"until [ -e open ]; do sleep 0.1; done; exit 3\"]\n\
                 initialize_timeout_ms = 600000";
    let workspace = place(&[("slow", waits.to_owned())]);
    let open = workspace.root().join("open");
    let model = Model::start().unwrap();
    model.says(Message::new().text("The first answer."));
    model.says(Message::new().text("The second answer."));
    let tmux = started(&workspace, &model, "", 90, 30);
    says(&tmux, "First question.", "The first answer.");
    drop(tmux);
    let slow = "--continue --config session.toml";
    let tmux = Tmux::start(chat(&workspace, &model, slow), 90, 30).unwrap();
    tmux.wait_for("The first answer.").unwrap();
    tmux.types("Taken back.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Esc stops").unwrap();
    tmux.press(&["Escape"]).unwrap();
    let is_free = |screen: &str| !screen.contains("Esc stops");
    tmux.wait_until("nothing that waits", is_free).unwrap();
    tmux.types("Second question.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Esc stops").unwrap();
    assert_eq!(model.requests().len(), 1);
    std::fs::write(&open, "").unwrap();
    let screen = tmux.wait_for("The second answer.").unwrap();
    let shown = screen.matches("The first answer.").count();
    assert_eq!(shown, 1, "{screen}");
    let sent = model.last_request().body.to_string();
    assert!(!sent.contains("Taken back."), "{sent}");

    // It can also be left.
    std::fs::remove_file(&open).unwrap();
    drop(tmux);
    let tmux = Tmux::start(chat(&workspace, &model, slow), 90, 30).unwrap();
    tmux.wait_for("The second answer.").unwrap();
    tmux.press(&["C-d"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
}

#[test]
fn conjure_alone_goes_on_with_the_model_that_answered_last() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("The first answer."));
    model.says(Message::new().text("The second answer."));
    model.says(Message::new().text("The third answer."));
    let tmux = started(&workspace, &model, "", 90, 30);
    says(&tmux, "First question.", "The first answer.");
    drop(tmux);
    let alone = |args: &[&str]| {
        let cli = conjure_kit::cli(args.iter().copied())
            .workspace(&workspace)
            .model(&model);
        Tmux::start(cli, 90, 30).unwrap()
    };
    let tmux = alone(&[]);
    tmux.wait_for("anthropic/a-model").unwrap();
    let screen = says(&tmux, "Second question.", "The second answer.");
    assert!(
        !screen.contains("First question."),
        "it is another thread: {screen}"
    );
    drop(tmux);
    let tmux = alone(&["--continue"]);
    tmux.wait_for("The second answer.").unwrap();
    drop(tmux);
    let tmux = alone(&["--resume", "second answer"]);
    let screen = tmux.wait_for("Go on with").unwrap();
    assert!(screen.contains("1 of 1;"), "texts are searched: {screen}");
    tmux.press(&["Escape"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    drop(tmux);
    let tmux = alone(&["--resume", "second"]);
    let screen = tmux.wait_for("Go on with").unwrap();
    assert!(
        screen.contains("1 of 1;"),
        "a word is no thread's id: {screen}"
    );
    tmux.press(&["Escape"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    drop(tmux);
    let tmux = alone(&["--resume"]);
    tmux.wait_for("Go on with:").unwrap();
    tmux.press(&["Down", "Enter"]).unwrap();
    tmux.wait_for("The first answer.").unwrap();
    tmux.types("/fork").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("▸ First question.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_edited = |screen: &str| screen.lines().rev().nth(1) == Some("› First question.");
    tmux.wait_until("the message, to be changed", is_edited)
        .unwrap();
    says(&tmux, " Again?", "The third answer.");
    assert_eq!(model.last_request().last_text(), "First question. Again?");
    assert_eq!(
        model.last_request().messages().len(),
        1,
        "in a fork that ends before it"
    );
}

#[test]
fn the_models_that_a_server_lists_can_be_picked() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let start = |base_url: &str| {
        let args = format!("chat --provider openai-compatible --model m --base-url {base_url}");
        let cli = crate::stage::conjure(&workspace, &args)
            .env("OPENAI_COMPATIBLE_API_KEY", "a-key-of-nobody");
        let tmux = Tmux::start(cli, 100, 30).unwrap();
        tmux.wait_for("/ for commands").unwrap();
        tmux.types("/model").unwrap();
        tmux.press(&["Enter"]).unwrap();
        tmux
    };
    let tmux = start(&model.base_url());
    tmux.wait_for("▸ openai-compatible/claude-mock").unwrap();
    tmux.types("gpt").unwrap();
    tmux.wait_for("▸ openai-compatible/gpt-mock").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("▸ go on with openai-compatible/gpt-mock")
        .unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Now openai-compatible/gpt-mock answers.")
        .unwrap();
    drop(tmux);
    // Of one that lists none nothing is known, and that is said.
    let tmux = start("http://127.0.0.1:9");
    let screen = tmux.wait_for("Write `/model PROVIDER/MODEL`").unwrap();
    let told = "no list of the models of openai-compatible";
    assert!(screen.contains(told), "{screen}");
}

#[test]
fn conversations_are_found_by_what_was_said_in_them() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    for (question, answer) in [
        ("First question.", "About lamps."),
        ("Another one.", "About doors."),
    ] {
        model.says(Message::new().text(answer));
        let tmux = started(&workspace, &model, "", 90, 30);
        says(&tmux, question, answer);
    }
    let tmux = started(&workspace, &model, "", 90, 30);
    tmux.types("/resume").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("type to search").unwrap();
    tmux.types("lamps").unwrap();
    let is_found = |screen: &str| screen.contains("About lamps.") && screen.contains("1 of 1;");
    tmux.wait_until("the conversation", is_found).unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("› First question.").unwrap();
    tmux.types("/resume doors").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("(those with `doors`)").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("› Another one.").unwrap();
    says(&tmux, "/resume windows", "no conversation has `windows`");
}

#[test]
fn the_line_that_says_how_to_come_back_works_as_it_is() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("An answer."));
    let options = format!("--executor none --base-url {}", model.base_url());
    let tmux = started(&workspace, &model, &options, 180, 24);
    says(&tmux, "A question.", "An answer.");
    tmux.press(&["C-c"]).unwrap();
    tmux.wait_for("Ctrl-C once more leaves").unwrap();
    tmux.press(&["C-c"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    let (_, again) = screen.split_once("Go on with it: conjure ").unwrap();
    let again = again.lines().next().unwrap().trim_end().to_owned();
    assert!(again.ends_with(&options), "{again}");
    drop(tmux);
    let cli = conjure_kit::cli(again.split_whitespace())
        .workspace(&workspace)
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody");
    let tmux = Tmux::start(cli, 100, 24).unwrap();
    tmux.wait_for("› A question.").unwrap();
}

#[test]
fn conjure_alone_lets_a_model_be_picked_where_none_has_answered() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("An answer."));
    let none: [&str; 0] = [];
    let alone = || conjure_kit::cli(none).workspace(&workspace);
    let tmux = Tmux::start(alone().model(&model), 90, 30).unwrap();
    tmux.wait_for("Which model is to answer?").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    let screen = says(&tmux, "A question.", "An answer.");
    assert!(screen.contains("anthropic/"), "{screen}");
    drop(tmux);
    // Without a credential it is said how to have one.
    let other = crate::stage::workspace(&[]);
    let tmux = Tmux::start(conjure_kit::cli(none).workspace(&other), 110, 30).unwrap();
    tmux.wait_for("`conjure auth create` saves a key").unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 2);
}

#[test]
fn a_chat_line_by_line_outlives_control_c_keeps_what_was_typed_and_numbers_its_lists() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("The first answer."));
    model.says(Message::new().text("The second answer."));
    let start = || {
        let cli = chat(&workspace, &model, "").env("CONJURE_SCREEN_READER", "1");
        let tmux = Tmux::start(cli, 100, 40).unwrap();
        tmux.wait_for("`/help` shows what else there is.").unwrap();
        tmux
    };
    let tmux = start();
    tmux.types("a draft").unwrap();
    tmux.wait_for("› a draft").unwrap();
    tmux.press(&["C-c"]).unwrap();
    tmux.wait_for("Ctrl-C once more leaves.").unwrap();
    tmux.types("Hello").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("The first answer.").unwrap();
    drop(tmux);
    let tmux = start();
    tmux.press(&["Up"]).unwrap();
    tmux.wait_for("› Hello").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("The second answer.").unwrap();
    assert_eq!(model.last_request().last_text(), "Hello");
    tmux.types("/resume first answer").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Type a number, or nothing to leave the list.")
        .unwrap();
    tmux.types("1").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Now that thread goes on.").unwrap();
    // The number means nothing later.
    tmux.press(&["Up"]).unwrap();
    let recalls = |screen: &str| {
        let last = screen.trim_end().lines().last();
        last.map(str::trim_end) == Some("› /resume first answer")
    };
    tmux.wait_until("the command", recalls).unwrap();
}

#[test]
fn a_file_that_a_call_would_overwrite_is_compared_with_what_it_has() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    workspace.write("a.txt", "one\nold\n").unwrap();
    let input = json!({ "path": "a.txt", "file_text": "one\nnew\n", "description": "" });
    model.calls("toolu_1", "local_create_file", input);
    let tmux = started(&workspace, &model, "--ask *", 100, 30);
    tmux.types("Write it.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let screen = tmux.wait_for("It waits for you").unwrap();
    for line in [
        "│ It overwrites the file that is there:",
        "│   one",
        "│ - old",
        "│ + new",
    ] {
        assert!(screen.contains(line), "{line}: {screen}");
    }
}

#[test]
fn the_conversation_that_goes_on_is_one_of_this_directory() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let other = workspace.root().join("other");
    std::fs::create_dir(&other).unwrap();
    model.says(Message::new().text("About here."));
    let tmux = started(&workspace, &model, "", 100, 30);
    says(&tmux, "Here.", "About here.");
    drop(tmux);
    model.says(Message::new().text("About there."));
    let there = format!("run --working-dir {}", other.display());
    let run = asks(&workspace, &model, &there, "There.").env("HOME", workspace.root());
    assert_eq!(run.run().unwrap().code, Some(0));
    let tmux = started(&workspace, &model, "--continue", 100, 30);
    tmux.wait_for("About here.").unwrap();
    tmux.types("/resume").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let screen = tmux.wait_for("1 of 2;").unwrap();
    let line = |label: &str| screen.lines().position(|line| line.starts_with(label));
    let (near, far) = (line("▸ Here"), line("  There"));
    assert!(near.is_some() && near < far, "{screen}");
    let far = screen.lines().nth(far.unwrap()).unwrap();
    assert!(far.contains("in ~/other, "), "{screen}");
    drop(tmux);
    let there = format!("--continue --working-dir {}", other.display());
    let tmux = started(&workspace, &model, &there, 100, 30);
    tmux.wait_for("About there.").unwrap();
    drop(tmux);
    let none = format!("--continue --working-dir {}", workspace.home().display());
    let output = chat(&workspace, &model, &none).run().unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output
            .stderr
            .contains("there is no conversation of ~/home to go on with"),
        "{output:?}"
    );
}

#[test]
fn a_conversation_in_which_nothing_was_said_is_none_to_go_on_with() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("I heard it."));
    model.says(Message::new().text("It was Lyon."));
    for (args, said) in [
        ("chat", "Remember Lyon.\n"),
        ("chat", "/quit\n"),
        ("chat --continue", "What was it?\n"),
    ] {
        let output = asks(&workspace, &model, args, "")
            .stdin(said)
            .run()
            .unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    let said = model.last_request().body.to_string();
    assert!(said.contains("Remember Lyon."), "{said}");
}
