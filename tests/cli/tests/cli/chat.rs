//! `conjure chat`: a conversation over pipes.

use conjure_kit::Model;
use conjure_mock_llm::{ErrorReply, Message};
use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{CACHE, LOCAL, asks, workspace};

#[test]
fn a_conversation_of_several_turns() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let mut chat = asks(&workspace, &model, "chat --allow *", "")
        .start()
        .unwrap();
    chat.wait_for_stderr("/help").unwrap();
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set city Lyon" }),
    );
    model.says(Message::new().text("I will remember."));
    chat.send_line("Remember Lyon.").unwrap();
    chat.wait_for_stdout("I will remember.\n").unwrap();
    model.calls(
        "toolu_2",
        "cache-manager_execute",
        json!({ "command": "get city" }),
    );
    model.says(Message::new().text("Lyon."));
    chat.send_line("").unwrap();
    chat.send_line("What was it?").unwrap();
    chat.wait_for_stdout("Lyon.\n").unwrap();
    chat.close_stdin();
    let output = chat.wait().unwrap();
    assert_snapshot!(output.snapshot(), @r#"
    exit code 0
    --- stdout
    I will remember.
    Lyon.
    --- stderr
    Thread [UUID]. `/help` shows what else there is.
    → cache-manager_execute {"command":"set city Lyon"}
    ✓ cache-manager_execute (on native, [DURATION])
      stored
    20 tokens in, 10 out
    → cache-manager_execute {"command":"get city"}
    ✓ cache-manager_execute (on native, [DURATION])
      Lyon
    20 tokens in, 10 out
    "#);
    let request = model.last_request();
    assert_eq!(request.tool_result_text("toolu_2").as_deref(), Some("Lyon"));
    assert_eq!(request.messages().len(), 7);
}

#[test]
fn lines_with_a_slash_are_for_the_host() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let input = json!({ "path": "a.txt", "file_text": "text", "description": "" });
    model.calls("toolu_1", "local_create_file", input);
    model.says(Message::new().text("Made."));
    let lines = "/tools\n/help\n/nonsense\nMake a file.\n/files\n/quit\nnever read\n";
    let output = asks(&workspace, &model, "chat --allow *", "")
        .stdin(lines)
        .run()
        .unwrap();
    assert_snapshot!(output.snapshot(), @r#"
    exit code 0
    --- stdout
    TOOL               BACKEND  SKILL  PLUGIN       MODE      TOKENS
    local_bash_tool    local    -      local 0.1.0  stateful  139
    local_create_file  local    -      local 0.1.0  stateful  122
    local_str_replace  local    -      local 0.1.0  stateful  163
    local_view         local    -      local 0.1.0  stateful  128
    Made.
    --- stderr
    Thread [UUID]. `/help` shows what else there is.
    /session                the settings, and what it came to
    /tools                  the routing table
    /files                  the files made so far
    /save FILE [DIR]        a copy of one of them
    /model [PROVIDER/MODEL] go on with another model, of any provider; at a terminal alone it lists them
    /auth NAME MODEL        go on with another saved auth and model
    /check PROVIDER/MODEL   what that model would get of this conversation
    /cost                   what it cost so far
    /compact                put a summary in place of the older part, as far as the model reads it
    /unfold [ENTRY]         let the model read again what a summary hides
    /new                    go on with a fresh thread; the one before stays
    /fork [ENTRY]           go on with a fork of this thread, behind an entry (its number, or text of it); at a terminal alone it lists what you said
    /resume [ID or WORDS]   go on with another thread; at a terminal alone it lists them, with words those that have them
    /rename NAME            name the thread
    /help                   this
    /quit                   end the conversation (or Ctrl-D)
    Ctrl-C                  end the turn that runs; what came so far is kept
    There is no /nonsense.
    /session                the settings, and what it came to
    /tools                  the routing table
    /files                  the files made so far
    /save FILE [DIR]        a copy of one of them
    /model [PROVIDER/MODEL] go on with another model, of any provider; at a terminal alone it lists them
    /auth NAME MODEL        go on with another saved auth and model
    /check PROVIDER/MODEL   what that model would get of this conversation
    /cost                   what it cost so far
    /compact                put a summary in place of the older part, as far as the model reads it
    /unfold [ENTRY]         let the model read again what a summary hides
    /new                    go on with a fresh thread; the one before stays
    /fork [ENTRY]           go on with a fork of this thread, behind an entry (its number, or text of it); at a terminal alone it lists what you said
    /resume [ID or WORDS]   go on with another thread; at a terminal alone it lists them, with words those that have them
    /rename NAME            name the thread
    /help                   this
    /quit                   end the conversation (or Ctrl-D)
    Ctrl-C                  end the turn that runs; what came so far is kept
    → local_create_file {"path":"a.txt","file_text":"text","description":""}
    ✓ local_create_file (on local, [DURATION])
      Created a.txt.
    20 tokens in, 10 out

    Files
      file-1  a.txt  4 bytes, text/plain, from local

    Files
      file-1  a.txt  4 bytes, text/plain, from local
    "#);
    assert_eq!(model.requests().len(), 2, "the model hears nothing of it");
}

#[test]
fn an_error_of_the_provider_ends_no_conversation() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(ErrorReply::new(400).message("not this"));
    model.says(Message::new().text("This is fine."));
    let output = asks(&workspace, &model, "chat", "")
        .stdin("one\ntwo\n")
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout, "This is fine.\n");
    assert_eq!(
        output.stderr.matches("not this").count(),
        1,
        "told once: {output:?}"
    );
}

#[test]
fn an_interrupt_ends_the_turn_and_not_the_conversation() {
    use conjure_mock_llm::{Position, Reply};
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new().text("Once upon a time").deltas(4);
    model.says(Reply::from(story).hold(Position::Event(5), "middle"));
    let mut chat = asks(&workspace, &model, "chat", "").start().unwrap();
    chat.send_line("Tell me.").unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    chat.wait_for_stdout("Once").unwrap();
    chat.signal(conjure_kit::Signal::INT);
    chat.wait_for_stderr("cancelled").unwrap();
    model.says(Message::new().text("Gladly."));
    chat.send_line("Something else.").unwrap();
    chat.wait_for_stdout("Gladly.\n").unwrap();
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
    let history = model.last_request().body["messages"].to_string();
    assert!(
        history.contains("Once") && history.contains("Something else."),
        "{history}"
    );
}

#[test]
fn a_conversation_can_be_taken_up_again() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello, Ada."));
    let first = asks(&workspace, &model, "chat", "")
        .stdin("I am Ada.\n")
        .run()
        .unwrap();
    let thread = first
        .stderr
        .split_whitespace()
        .nth(1)
        .unwrap()
        .trim_end_matches('.')
        .to_owned();
    model.says(Message::new().text("Ada."));
    let args = format!("chat --thread {thread}");
    let again = asks(&workspace, &model, &args, "")
        .stdin("Who am I?\n")
        .run()
        .unwrap();
    assert_eq!(again.stdout, "Ada.\n", "{again:?}");
    assert_eq!(model.last_request().messages().len(), 3);
}

#[test]
fn over_a_pipe_a_line_is_what_it_is() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Text."));
    model.says(Message::new().text("Text too."));
    workspace.write("notes.txt", "the notes\n").unwrap();
    let output = asks(&workspace, &model, "chat", "")
        .stdin("!touch made\nSee @notes.txt and @none.txt\n")
        .run()
        .unwrap();
    assert_eq!(output.stdout, "Text.\nText too.\n", "{output:?}");
    assert!(!output.stderr.contains("note"), "{output:?}");
    assert!(!workspace.work().join("made").exists());
    let said = model.last_request().body.to_string();
    assert!(said.contains("!touch made"), "{said}");
    assert!(!said.contains("the notes"), "{said}");
}

#[test]
fn without_a_terminal_a_conversation_is_not_searched_for() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let output = asks(&workspace, &model, "chat --resume hello", "")
        .run()
        .unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output
            .stderr
            .contains("there is no thread `hello`, and a conversation is picked on a terminal"),
        "{output:?}"
    );
}
