//! `conjure run`: one question.

use conjure_kit::Model;
use conjure_mock_llm::{ErrorReply, Message};
use insta::assert_snapshot;
use serde_json::json;

use crate::session::{self, done};
use crate::stage::{CACHE, LOCAL, asks, conjure, json as parsed, json_lines, workspace};

#[test]
fn the_answer_is_on_standard_output_and_what_happens_on_the_way_is_not() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let call = Message::new()
        .text("I write it down.")
        .tool_use(
            "toolu_1",
            "cache-manager_execute",
            json!({ "command": "set city Lyon" }),
        )
        .tool_use(
            "toolu_2",
            "cache-manager_execute",
            json!({ "command": "get river" }),
        );
    model.says(call);
    model.says(Message::new().text("Done.\nThere is no river."));
    let output = asks(
        &workspace,
        &model,
        "run --allow cache-manager_*",
        "Remember Lyon.",
    )
    .run();
    assert_snapshot!(output.unwrap().snapshot(), @r#"
    exit code 0
    --- stdout
    I write it down.
    Done.
    There is no river.
    --- stderr
    → cache-manager_execute {"command":"set city Lyon"}
    → cache-manager_execute {"command":"get river"}
    ✓ cache-manager_execute (on native, [DURATION])
      stored
    ✗ cache-manager_execute (on native, [DURATION])
      `river` is not in the cache. `list` shows what is.
      [The call of `cache-manager_execute` on backend `native` failed with what stands above. Correct the arguments …
    20 tokens in, 10 out
    "#);
}

#[test]
fn the_last_conversation_of_the_directory_goes_on() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let nothing = conjure(&workspace, "run --continue Hello?").model(&model);
    let nothing = nothing.run().unwrap();
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(
        nothing.stderr.contains("no conversation to go on with"),
        "{nothing:?}"
    );
    model.says(Message::new().text("Ada."));
    let first = asks(&workspace, &model, "run", "Who are you?").run();
    assert_eq!(first.unwrap().code, Some(0));
    // Whoever answered last answers again.
    model.says(Message::new().text("Still Ada."));
    let again = conjure(&workspace, "run --continue And-now?").model(&model);
    assert_eq!(again.run().unwrap().stdout, "Still Ada.\n");
    let request = model.last_request();
    assert_eq!(request.body["model"], "a-model");
    assert_eq!(request.messages().len(), 3);
    // Elsewhere there is none.
    std::fs::create_dir(workspace.work().join("other")).unwrap();
    let elsewhere = conjure(&workspace, "run --continue --working-dir other Hello?");
    let elsewhere = elsewhere.model(&model).run().unwrap();
    assert_eq!(elsewhere.code, Some(2), "{elsewhere:?}");
    // A thread is named by its id as ever, under both names.
    let listed = parsed(&conjure(&workspace, "thread list --json").run().unwrap());
    let thread = listed["threads"][0]["id"].as_str().unwrap();
    for option in ["--thread", "--resume"] {
        model.says(Message::new().text("Ada as ever."));
        let args = format!("run {option} {thread}");
        let output = asks(&workspace, &model, &args, "Now?").run().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    assert_eq!(model.last_request().messages().len(), 7);
}

#[test]
fn a_conversation_of_a_saved_session_goes_on_without_what_the_session_says_itself() {
    let model = Model::start().unwrap();
    let workspace = session::stage(&model);
    done(&workspace, "session create work --auth claude --model m");
    model.says(Message::new().text("Ada."));
    done(&workspace, "run --session work Who?");
    let asked = model.requests().len();
    for (args, option) in [
        ("run --continue --model other Hello?", "--model"),
        ("run --continue --sandbox none Hello?", "--sandbox"),
        ("chat --continue --allow-network", "--allow-network"),
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        let why = format!("the saved session `work`, which cannot be used with {option}");
        assert!(output.stderr.contains(&why), "{args}: {output:?}");
    }
    assert_eq!(model.requests().len(), asked);
    model.says(Message::new().text("Still Ada."));
    let again = done(&workspace, "run --continue And-now?");
    assert_eq!(again.stdout, "Still Ada.\n");
    assert_eq!(model.last_request().body["model"], "m");
}

#[test]
fn files_that_were_made_are_listed() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let input = json!({ "path": "out/table.csv", "file_text": "a,b\n", "description": "a table" });
    model.calls("toolu_1", "local_create_file", input);
    model.says(Message::new().text("There it is."));
    let output = asks(
        &workspace,
        &model,
        "run --allow local_create_file",
        "Make a table.",
    )
    .run();
    assert_snapshot!(output.unwrap().snapshot(), @r#"
    exit code 0
    --- stdout
    There it is.
    --- stderr
    → local_create_file {"path":"out/table.csv","file_text":"a,b\n","description":"a table"}
    ✓ local_create_file (on local, [DURATION])
      Created out/table.csv.
    20 tokens in, 10 out

    Files
      file-1  out/table.csv  4 bytes, text/csv, from local
    "#);
    assert_eq!(workspace.read("out/table.csv").unwrap(), "a,b\n");
}

#[test]
fn programs_read_events_as_json_lines() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(Message::new().text("Done."));
    let output = asks(&workspace, &model, "run --json --allow *", "Remember.")
        .run()
        .unwrap();
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let redact = conjure_kit::Redactor::for_workspace(&workspace)
        .pattern(r#""duration_ms":\d+"#, r#""duration_ms":0"#);
    assert_snapshot!(redact.apply(&output.stdout), @r#"
    {"type":"turn_started","turn_id":"[UUID]"}
    {"type":"round","round":1,"provider":"anthropic","model":"a-model","table":1}
    {"type":"usage","prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"input":10,"cache_read":0,"cache_write":0,"output":5,"reasoning":0}
    {"type":"function_call","calls":[{"id":"toolu_1","name":"cache-manager_execute","arguments":{"command":"set k v"}}]}
    {"type":"call_started","call_id":"toolu_1","backend":"native","plugin":"cache-manager 0.1.0"}
    {"type":"function_call_output","call_id":"toolu_1","name":"cache-manager_execute","backend":"native","output":"stored","is_error":false,"duration_ms":0}
    {"type":"round","round":2,"provider":"anthropic","model":"a-model","table":1}
    {"type":"content","delta":"Done."}
    {"type":"usage","prompt_tokens":20,"completion_tokens":10,"total_tokens":30,"input":20,"cache_read":0,"cache_write":0,"output":10,"reasoning":0}
    {"type":"cost","turn":{"turn":1,"replies":2,"input":20,"cache_read":0,"cache_write":0,"output":10,"reasoning":0,"usd":0.0,"unpriced_tokens":30,"causes":[{"cause":"schemas","times":2,"tokens":20,"usd":0.0}]},"thread":{"turn":0,"replies":2,"input":20,"cache_read":0,"cache_write":0,"output":10,"reasoning":0,"usd":0.0,"unpriced_tokens":30,"causes":[{"cause":"schemas","times":2,"tokens":20,"usd":0.0}]}}
    {"type":"done","turn_id":"[UUID]","outcome":"completed","stop_reason":"end_turn","text":"Done."}
    {"type":"result","text":"Done.","stop_reason":"end_turn","thread":"[UUID]","files":[]}
    "#);
}

#[test]
fn the_question_comes_from_standard_input() {
    for args in ["run", "run -"] {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().text("Two lines."));
        let output = asks(&workspace, &model, args, "")
            .stdin("one\ntwo\n")
            .run()
            .unwrap();
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "Two lines.\n"),
            "{output:?}"
        );
        assert!(model.last_request().last_text().contains("one\ntwo"));
    }
}

#[test]
fn without_a_question_it_is_wrong_usage() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let output = asks(&workspace, &model, "run", "").run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: the question is empty
    ");
}

#[test]
fn exit_0_for_an_answer() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello."));
    let output = asks(&workspace, &model, "run", "Hi.").run().unwrap();
    assert_snapshot!(output.snapshot(), @"
    exit code 0
    --- stdout
    Hello.
    --- stderr
    10 tokens in, 5 out
    ");
}

#[test]
fn exit_1_for_an_answer_that_is_no() {
    let workspace = workspace(&[CACHE]);
    let output = conjure_kit::cli([
        "call",
        "cache-manager_execute",
        "--args",
        "{\"command\": \"get nothing\"}",
    ])
    .workspace(&workspace)
    .run()
    .unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 1
    --- stdout
    `nothing` is not in the cache. `list` shows what is.
    [The call of `cache-manager_execute` on backend `native` failed with what stands above. Correct the arguments or do it in another way; the same call may fail again.]
    --- stderr
    ");
}

#[test]
fn exit_2_for_wrong_usage_and_each_says_what_to_do() {
    let workspace = workspace(&[]);
    workspace.write("bad.toml", "provider = 7\n").unwrap();
    let mut story = String::new();
    for args in [
        "run Hi.",
        "run --provider nobody Hi.",
        "run --provider anthropic --model m Hi.",
        "run --config bad.toml Hi.",
        "run --config none.toml Hi.",
        "run --provider scripted Hi.",
        "run --provider anthropic --model m --allow ( Hi.",
        "run --provider scripted --script none.json Hi.",
        "run --provider anthropic --model m --thread ../x Hi.",
        "run --provider anthropic --model m --skill nowhere Hi.",
        "run --provider anthropic --model m --working-dir nowhere Hi.",
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        story.push_str(&format!("$ conjure {args}\n{}", output.snapshot()));
    }
    assert_snapshot!(story, @r#"
    $ conjure run Hi.
    exit code 2
    --- stdout
    --- stderr
    error: no provider is named: `--provider NAME`, or `provider = "NAME"` in the session file; there are: anthropic, openai, gemini, deepseek, mistral, openrouter, llamacpp, ollama, openai-compatible, scripted, tool-walk
    $ conjure run --provider nobody Hi.
    exit code 2
    --- stdout
    --- stderr
    error: there is no provider `nobody`; there are: anthropic, openai, gemini, deepseek, mistral, openrouter, llamacpp, ollama, openai-compatible, scripted, tool-walk
    $ conjure run --provider anthropic --model m Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the provider `anthropic` needs a key: set ANTHROPIC_API_KEY
    $ conjure run --config bad.toml Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the session file `bad.toml` is not right: TOML parse error at line 1, column 12
      |
    1 | provider = 7
      |            ^
    invalid type: integer `7`, expected a string
    $ conjure run --config none.toml Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the session file cannot be used: cannot read none.toml: No such file or directory (os error 2)
    $ conjure run --provider scripted Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the provider `scripted` needs a script: `script = "FILE"` in the session file, or `--script FILE`
    $ conjure run --provider anthropic --model m --allow ( Hi.
    exit code 2
    --- stdout
    --- stderr
    error: invalid value '(' for '--allow <PATTERN>': "(" is no pattern: the parenthesis is not closed at the end. Write `TOOL`, `backend:NAME` or `TOOL(ARGUMENTS)`, with `*` for any text.

    For more information, try '--help'.
    $ conjure run --provider scripted --script none.json Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the script `none.json` cannot be read: cannot read none.json: No such file or directory (os error 2)
    $ conjure run --provider anthropic --model m --thread ../x Hi.
    exit code 2
    --- stdout
    --- stderr
    error: `../x` is not a thread's id: 1 to 64 letters, digits, `-` and `_`
    $ conjure run --provider anthropic --model m --skill nowhere Hi.
    exit code 2
    --- stdout
    --- stderr
    error: a skill folder needs an executor
    hint: name one with `--executor`, or put the plugin `local` into a plugin directory (`conjure plugin list` shows them)
    $ conjure run --provider anthropic --model m --working-dir nowhere Hi.
    exit code 2
    --- stdout
    --- stderr
    error: the working directory `nowhere` cannot be used: cannot look at nowhere: No such file or directory (os error 2)
    "#);
}

#[test]
fn exit_3_when_the_provider_fails() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(ErrorReply::new(401).message("invalid x-api-key"));
    let output = asks(&workspace, &model, "run", "Hi.").run().unwrap();
    assert_snapshot!(output.snapshot(), @"
    exit code 3
    --- stdout
    --- stderr
    error: anthropic: Anthropic gave no reply (HTTP status 401, authentication_error). invalid x-api-key. Check the API key that the session uses, and that its account may use this model. (request req_mock_0)
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
    assert_eq!(model.requests().len(), 1, "a wrong key is not tried again");
}

#[test]
fn exit_4_when_a_limit_ends_the_turn() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    for n in 0..2 {
        let input = json!({ "command": "set k v" });
        model.calls(&format!("toolu_{n}"), "cache-manager_execute", input);
    }
    let output = asks(
        &workspace,
        &model,
        "run --allow * --max-iterations 2",
        "Go on.",
    )
    .run();
    assert_snapshot!(output.unwrap().snapshot(), @r#"
    exit code 4
    --- stdout
    --- stderr
    → cache-manager_execute {"command":"set k v"}
    ✓ cache-manager_execute (on native, [DURATION])
      stored
    → cache-manager_execute {"command":"set k v"}
    ✗ cache-manager_execute (not run)
      The call of `cache-manager_execute` on backend `native` was not run: the limit `max_iterations` = 2 is reached…
    error: The turn was ended: the limit `max_iterations` = 2 is reached.
    20 tokens in, 10 out
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    "#);
}

#[test]
fn exit_5_when_the_disk_says_no() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    workspace.write("file", "").unwrap();
    let output = asks(&workspace, &model, "run --data-dir file", "Hi.")
        .run()
        .unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 5
    --- stdout
    --- stderr
    error: the store cannot make the directory `[WORKSPACE]/work/file`: File exists (os error 17)
    hint: see that the data directory can be made and belongs to this user, or name another with `--data-dir`
    ");
}

#[test]
fn exit_130_when_it_is_interrupted_and_what_came_is_kept() {
    use conjure_mock_llm::{Position, Reply};
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new().text("Once upon a time there was").deltas(4);
    model.says(Reply::from(story).hold(Position::Event(6), "middle"));
    let running = asks(&workspace, &model, "run", "Tell me.").start().unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    running.wait_for_stdout("Once upon").unwrap();
    running.signal(conjure_kit::Signal::INT);
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    assert!(output.stdout.starts_with("Once upon"), "{output:?}");
}

#[test]
fn a_script_can_play_the_model_and_says_so() {
    let workspace = workspace(&[CACHE]);
    let script = json!({ "steps": [
        { "calls": [{
            "as": "set", "tool": "cache-manager_execute",
            "arguments": { "command": "set name {{vars.name}}" },
        }] },
        { "text": "It said: {{set.text}}" },
    ] });
    workspace.write("script.json", script.to_string()).unwrap();
    let args = "run --script script.json --set name=Ada --allow * Go.";
    assert_snapshot!(conjure(&workspace, args).run().unwrap().snapshot(), @r#"
    exit code 0
    --- stdout
    It said: stored
    --- stderr
    note: A script plays the model: no provider is asked and nothing is generated.
    → cache-manager_execute {"command":"set name Ada"}
    ✓ cache-manager_execute (on native, [DURATION])
      stored
    "#);
}

#[test]
fn a_thread_goes_on() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello, Ada."));
    let first = asks(&workspace, &model, "run --json", "I am Ada.")
        .run()
        .unwrap();
    let thread = json_lines(&first).pop().unwrap()["thread"]
        .as_str()
        .unwrap()
        .to_owned();
    model.says(Message::new().text("Ada."));
    let args = format!("run --thread {thread}");
    let again = asks(&workspace, &model, &args, "Who am I?").run().unwrap();
    assert_eq!(again.stdout, "Ada.\n");
    let said: Vec<String> = model
        .last_request()
        .messages()
        .iter()
        .map(|message| format!("{}: {}", message["role"], message["content"][0]["text"]))
        .collect();
    assert_snapshot!(said.join("\n"), @r#"
    "user": "I am Ada."
    "assistant": "Hello, Ada."
    "user": "Who am I?"
    "#);
}
