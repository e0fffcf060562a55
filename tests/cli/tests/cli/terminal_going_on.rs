//! Chats on a terminal that go on with something: a saved session, a thread, the model that answered
//! last; and what else a person has around them.

use conjure_kit::{Model, Tmux, Workspace};
use conjure_mock_llm::Message;

use crate::mcp::place;
use crate::stage::workspace;
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
    assert_eq!(tmux.ended().unwrap(), 0);
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
    assert_eq!(tmux.ended().unwrap(), 0);
    drop(tmux);
    let tmux = alone(&["--resume", "second"]);
    let screen = tmux.wait_for("Go on with").unwrap();
    assert!(
        screen.contains("1 of 1;"),
        "a word is no thread's id: {screen}"
    );
    tmux.press(&["Escape"]).unwrap();
    assert_eq!(tmux.ended().unwrap(), 0);
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
