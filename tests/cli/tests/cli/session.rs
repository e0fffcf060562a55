//! Saved sessions from the command line.

use std::os::unix::fs::PermissionsExt as _;

use conjure_client::RemoteServer;
use conjure_core::chat::Event;
use conjure_core::turn::ApprovalDecision;
use conjure_host::manager::DecisionScope;
use conjure_host::store::ThreadId;
use conjure_kit::{Cli, MockMcp, Model, Output, Signal, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use conjure_skill_sdk::protocol::Elicited;
use serde_json::{Value, json};

use crate::session_waiting::until;
use crate::stage::{LOCAL, conjure, json as parsed, json_lines, workspace};

/// The directory of the data, below the home directory.
pub(crate) const DATA: &str = ".local/share/conjure";

/// Runs a verb and gives what it printed.
pub(crate) fn done(workspace: &Workspace, args: &str) -> Output {
    ok(conjure(workspace, args))
}

pub(crate) fn ok(cli: Cli) -> Output {
    let output = cli.run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

/// One that works with a saved auth for each of two providers.
pub(crate) fn stage(model: &Model) -> Workspace {
    let workspace = workspace(&[LOCAL]);
    for (name, provider) in [("open", "openai"), ("claude", "anthropic")] {
        let args = format!(
            "auth create {name} --provider {provider} --base-url {}",
            model.base_url()
        );
        ok(conjure(&workspace, &args).stdin("sk-a-key-of-a-test"));
    }
    workspace
}

pub(crate) fn asks(workspace: &Workspace, args: &[&str], question: &str) -> Cli {
    let args = ["run"].iter().chain(args).chain([&question]);
    conjure_kit::cli(args.copied()).workspace(workspace)
}

/// A turn of the session `work` at a terminal, once it asks the person there about a call.
pub(crate) fn asks_person(workspace: &Workspace, question: &str) -> conjure_kit::ProgramHandle {
    let running = asks(workspace, &["--session", "work"], question)
        .on_terminal()
        .start()
        .unwrap();
    running.wait_for_stdout("Allow it?").unwrap();
    running
}

pub(crate) fn show(workspace: &Workspace, session: &str) -> Value {
    parsed(&done(workspace, &format!("session show {session} --json")))
}

/// The section Acceptance of what was asked for, as the people who asked will try it.
#[test]
fn acceptance() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    workspace
        .write("notes.txt", "the lamp is broken\n")
        .unwrap();
    // A session with everything filled in.
    let create = [
        "session",
        "create",
        "work",
        "--auth",
        "open",
        "--model",
        "gpt-5",
        "--persona",
        "You keep a lighthouse.",
        "--memory",
        "{\"owner\": \"Ada\"}",
        "--tools",
    ];
    let tools = workspace
        .write(
            "tools.toml",
            "[[backend]]\nkind = \"local\"\n[policy]\nallow = [\"*\"]\n",
        )
        .unwrap();
    ok(
        conjure_kit::cli(create.iter().copied().chain([tools.to_str().unwrap()]))
            .workspace(&workspace),
    );
    // Ask for a plan, and watch tools run in the working directory.
    model.says(Message::new().text("I look first.").tool_use(
        "call_1",
        "local_bash_tool",
        json!({ "command": "cat notes.txt" }),
    ));
    model.says(Message::new().text("The plan: mend the lamp."));
    let plan = ok(asks(
        &workspace,
        &["--session", "work"],
        "Make a plan for the lighthouse lamp",
    ));
    assert!(plan.stdout.contains("The plan: mend the lamp."), "{plan:?}");
    assert!(plan.stderr.contains("the lamp is broken"), "{plan:?}");
    let first = model.requests()[0].body.to_string();
    assert!(
        first.contains("You keep a lighthouse.") && first.contains("Ada"),
        "{first}"
    );
    // Another vendor, with another auth and model: context and tool outputs are translated.
    done(
        &workspace,
        "session set work --auth claude --model claude-sonnet-4-5",
    );
    model.says(Message::new().text("I go on."));
    ok(asks(&workspace, &["--session", "work"], "Go on"));
    let request = model.last_request();
    assert_eq!(request.path, "/v1/messages");
    let asked = request.body.to_string();
    for said in ["the lamp is broken", "I look first.", "mend the lamp"] {
        assert!(asked.contains(said), "{said}: {asked}");
    }
    // Go to another session while the first streams, come back and see its progress.
    done(
        &workspace,
        "session create other --auth claude --model claude-sonnet-4-5",
    );
    model.says(
        Reply::from(Message::new().text("A long story of the sea").deltas(3))
            .hold(Position::Event(4), "middle"),
    );
    let running = asks(&workspace, &["--session", "work"], "Tell a story")
        .start()
        .unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    running.wait_for_stdout("A l").unwrap();
    model.says(Message::new().text("Meanwhile."));
    let other = ok(asks(&workspace, &["--session", "other"], "Are you there?"));
    assert_eq!(other.stdout, "Meanwhile.\n");
    assert_eq!(show(&workspace, "work")["state"], "running");
    let follower = conjure(&workspace, "session follow work").start().unwrap();
    follower.wait_for_stdout("A l").unwrap();
    model.mock().release("middle");
    let followed = follower.wait().unwrap();
    assert_eq!(followed.stdout, "A long story of the sea\n", "{followed:?}");
    assert_eq!(running.wait().unwrap().stdout, "A long story of the sea\n");
    // Fork it and try another way; both branches stay.
    let before = show(&workspace, "work");
    let thread = before["thread"]["id"].as_str().unwrap();
    let forked = parsed(&done(&workspace, "session fork work --json"));
    let fork = forked["thread"]["id"].as_str().unwrap();
    assert_ne!(fork, thread);
    model.says(Message::new().text("Another way."));
    ok(asks(&workspace, &["--session", "work"], "Try another way"));
    let of = |thread: &str| done(&workspace, &format!("thread show {thread}")).stdout;
    assert!(of(fork).contains("Another way.") && of(fork).contains("mend the lamp"));
    assert!(!of(thread).contains("Another way.") && of(thread).contains("mend the lamp"));
    // A new chat names itself; its name can be changed, and the thread before is still there.
    let fresh = parsed(&done(&workspace, "session new-chat work --json"));
    let chat = fresh["thread"]["id"].as_str().unwrap().to_owned();
    model.says(Message::new().text("Storms come from the west."));
    ok(asks(
        &workspace,
        &["--session", "work"],
        "Where do the winter storms come from?",
    ));
    assert_eq!(
        show(&workspace, "work")["thread"]["label"],
        "Winter Storms Come"
    );
    done(&workspace, &format!("thread rename {chat} Weather"));
    assert_eq!(show(&workspace, "work")["thread"]["label"], "Weather");
    let threads = parsed(&done(&workspace, "thread list --json"));
    let ids: Vec<&str> = threads["threads"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["id"].as_str())
        .collect();
    assert!(
        [thread, fork, &chat]
            .iter()
            .all(|thread| ids.contains(thread)),
        "{ids:?}"
    );
    done(&workspace, &format!("session use work {thread}"));
    model.says(Message::new().text("Here again."));
    ok(asks(&workspace, &["--session", "work"], "Back"));
    let turns = parsed(&done(&workspace, "session turns work --json"));
    let states: Vec<&Value> = turns["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| &turn["state"])
        .collect();
    assert_eq!(states.len(), 6);
    assert!(
        states.iter().all(|state| *state == "completed"),
        "{states:?}"
    );
}

#[test]
fn events_are_json_lines_and_a_thread_is_resumed() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    model.says(Message::new().text("One."));
    let first = json_lines(&ok(asks(
        &workspace,
        &["--session", "work", "--json"],
        "first",
    )));
    let kinds: Vec<&str> = first
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(kinds.first(), Some(&"turn_started"), "{kinds:?}");
    assert!(
        kinds.contains(&"content") && kinds.contains(&"done"),
        "{kinds:?}"
    );
    let result = first.last().unwrap();
    assert_eq!(
        (&result["text"], &result["state"]),
        (&json!("One."), &json!("completed"))
    );
    done(&workspace, "session new-chat work");
    model.says(Message::new().text("Two."));
    let thread = result["thread"].as_str().unwrap();
    let args = ["--session", "work", "--resume", thread, "--json"];
    let second = json_lines(&ok(asks(&workspace, &args, "second")));
    assert_eq!(second.last().unwrap()["thread"], result["thread"]);
    let asked = model.last_request().body.to_string();
    assert!(asked.contains("first") && asked.contains("One."), "{asked}");
}

#[test]
fn an_interrupt_ends_the_turn_and_keeps_what_came() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    model.says(
        Reply::from(Message::new().text("A long story").deltas(3))
            .hold(Position::Event(4), "middle"),
    );
    let running = asks(&workspace, &["--session", "work"], "Tell me")
        .start()
        .unwrap();
    running.wait_for_stdout("A l").unwrap();
    running.signal(Signal::INT);
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    let view = show(&workspace, "work");
    assert_eq!(view["state"], "idle");
    let thread = view["thread"]["id"].as_str().unwrap();
    let shown = done(&workspace, &format!("thread show {thread}")).stdout;
    assert!(shown.contains("A l"), "{shown}");
}

#[test]
fn wrong_usage_says_what_is_wrong() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    for (args, why) in [
        ("session create x --auth nobody --model m", "nobody"),
        (
            "session create x --auth claude --model m --working-dir /no/such",
            "/no/such",
        ),
        (
            "session create x --auth claude --model m --mcps []",
            "JSON object",
        ),
        ("session show nobody", "there is no session `nobody`"),
        (
            "session set nobody --model m",
            "there is no session `nobody`",
        ),
        (
            "session delete nobody --yes",
            "there is no session `nobody`",
        ),
        ("run --session nobody hello", "there is no session `nobody`"),
        ("run --session work --model m hello", "cannot be used with"),
    ] {
        let output = conjure(&workspace, args).run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        assert!(output.stderr.contains(why), "{args}: {}", output.stderr);
    }
    done(&workspace, "session create work --auth claude --model m");
    let nothing = conjure(&workspace, "session set work").run().unwrap();
    assert_eq!(nothing.code, Some(2));
    let unsaid = conjure(&workspace, "session delete work").run().unwrap();
    assert!(unsaid.stderr.contains("--yes"), "{unsaid:?}");
    done(&workspace, "session delete work --yes --with-chat");
    let all = parsed(&done(&workspace, "session list --json"));
    assert_eq!(all["sessions"], json!([]));
}

#[test]
fn a_conversation_in_a_session_goes_from_thread_to_thread() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    for text in ["One.", "Two.", "Three."] {
        model.says(Message::new().text(text));
    }
    let lines = "first\n/fork\nsecond\n/new\nthird\n/session\n/nonsense\n/quit\n";
    let output = ok(conjure(&workspace, "chat --session work").stdin(lines));
    for said in ["One.", "Two.", "Three.", "There is no /nonsense."] {
        let all = format!("{}{}", output.stdout, output.stderr);
        assert!(all.contains(said), "{said}: {output:?}");
    }
    let threads = parsed(&done(&workspace, "thread list --json"));
    assert_eq!(threads["threads"].as_array().unwrap().len(), 3);
    assert!(!model.last_request().body.to_string().contains("first"));
}

/// A server of this workspace.
pub(crate) fn server(workspace: &Workspace, args: &str) -> conjure_kit::ProgramHandle {
    let args = format!("serve --listen 127.0.0.1:0 {args}");
    let server = conjure(workspace, &args).start().unwrap();
    server
        .wait_for_stdout("Serving the page and the API at")
        .unwrap();
    server
}

#[test]
fn verbs_go_to_a_server_that_runs() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tokens = workspace.write("tokens", "a-token-of-a-test\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = server(&workspace, &format!("--token-file {}", tokens.display()));
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    // It is open in the server, and asked again and again from here.
    for text in ["One.", "Two."] {
        model.says(Message::new().text(text));
        let said = ok(asks(&workspace, &["--session", "work"], "Go"));
        assert_eq!(said.stdout, format!("{text}\n"));
    }
    let held = |text: &str, token: &str| {
        Reply::from(Message::new().text(text).deltas(3)).hold(Position::Event(4), token)
    };
    // Who is killed takes no turn with it.
    model.says(held("A long story of the sea", "sea"));
    let running = asks(&workspace, &["--session", "work"], "Tell")
        .start()
        .unwrap();
    running.wait_for_stdout("A l").unwrap();
    running.signal(Signal::KILL);
    running.wait().unwrap();
    assert_eq!(show(&workspace, "work")["state"], "running");
    let follower = conjure(&workspace, "session follow work").start().unwrap();
    follower.wait_for_stdout("A l").unwrap();
    model.mock().release("sea");
    assert_eq!(follower.wait().unwrap().stdout, "A long story of the sea\n");
    // An interrupt ends the turn there.
    model.says(held("Another long story", "never"));
    let running = asks(&workspace, &["--session", "work"], "Tell")
        .start()
        .unwrap();
    running.wait_for_stdout("Ano").unwrap();
    running.signal(Signal::INT);
    assert_eq!(running.wait().unwrap().code, Some(130));
    // Another vendor, at once, and a thread that is open there is cleared.
    done(
        &workspace,
        "session set work --auth open --model gpt-5 --now",
    );
    model.says(Message::new().text("Three."));
    ok(asks(&workspace, &["--session", "work"], "Go"));
    assert_eq!(model.last_request().path, "/v1/responses");
    let view = show(&workspace, "work");
    let thread = view["thread"]["id"].as_str().unwrap();
    done(&workspace, &format!("thread clear {thread} --yes"));
    let shown = done(&workspace, &format!("thread show {thread} --json")).stdout;
    assert!(!shown.contains("Three."), "{shown}");
    done(&workspace, "session delete work --yes");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().unwrap().code, Some(143));
    // Without a server the verbs do it themselves.
    done(&workspace, "session create again --auth claude --model m");
    model.says(Message::new().text("Alone."));
    let said = ok(asks(&workspace, &["--session", "again"], "Go"));
    assert_eq!(said.stdout, "Alone.\n");
}

#[test]
fn a_thread_that_another_conversation_has_open_is_cleared_from_here() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    model.says(Message::new().text("One."));
    let mut chat = conjure(&workspace, "chat --session work")
        .on_terminal()
        .start()
        .unwrap();
    chat.send_line("first").unwrap();
    chat.wait_for_stdout("One.").unwrap();
    until(|| show(&workspace, "work")["state"] == "idle");
    let view = show(&workspace, "work");
    let thread = view["thread"]["id"].as_str().unwrap();
    done(&workspace, &format!("thread clear {thread} --yes"));
    let shown = done(&workspace, &format!("thread show {thread} --json")).stdout;
    assert!(!shown.contains("One."), "{shown}");
    // The conversation goes on, with nothing before it.
    model.says(Message::new().text("Two."));
    chat.send_line("second").unwrap();
    chat.wait_for_stdout("Two.").unwrap();
    assert!(!model.last_request().body.to_string().contains("first"));
    chat.send_line("/quit").unwrap();
    chat.wait().unwrap();
}

#[test]
fn a_call_is_decided_about_on_the_terminal_wherever_it_runs() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let server = server(&workspace, "");
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
    model.calls(
        "call-1",
        "local_bash_tool",
        json!({ "command": "echo lit > lamp" }),
    );
    model.says(Message::new().text("Done."));
    let mut running = asks_person(&workspace, "Light the lamp");
    running.send_line("y").unwrap();
    let output = running.wait().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
    assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn a_prompt_goes_when_somebody_else_has_settled_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let server = server(&workspace, "");
    let program = MockMcp::program().unwrap();
    let mcps = json!({ "asker": { "command": program.display().to_string() } }).to_string();
    let create = [
        "session",
        "create",
        "work",
        "--auth",
        "claude",
        "--model",
        "claude-sonnet-4-5",
        "--mcps",
        &mcps,
    ];
    ok(conjure_kit::cli(create).workspace(&workspace));
    let thread = show(&workspace, "work")["thread"]["id"].take();
    let thread: ThreadId = serde_json::from_value(thread).unwrap();
    model.calls("call-1", "asker_ask", json!({}));
    model.calls(
        "call-2",
        "local_bash_tool",
        json!({ "command": "echo lit > lamp" }),
    );
    model.says(Message::new().text("Done."));
    let mut running = asks_person(&workspace, "Ask, and light it");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let elsewhere = RemoteServer::find(&workspace.home().join(DATA)).unwrap();
        let mut events = elsewhere.events(&thread, None, true);
        let allowed = elsewhere.decide(
            "work",
            "call-1",
            &ApprovalDecision::Allow,
            &DecisionScope::Once,
        );
        allowed.await.unwrap();
        let question = loop {
            if let Event::Question(question) = events.next().await.unwrap().event {
                break question.id;
            }
        };
        tokio::task::block_in_place(|| running.wait_for_stdout("Go on?").unwrap());
        let declined = Elicited {
            action: "decline".to_owned(),
            ..Elicited::default()
        };
        let answered = elsewhere.answer("work", &question, &declined);
        answered.await.unwrap();
    });
    // What is typed now is for the question that is still open.
    let asked = |said: &str| said.matches("Allow it?").count() == 2;
    running
        .wait_until_stdout("the next call asks", asked)
        .unwrap();
    running.send_line("y").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output
            .stdout
            .matches("No answer is needed any more.")
            .count(),
        2
    );
    assert!(output.stdout.contains("Done."), "{output:?}");
    assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn a_session_whose_script_is_not_there_is_refused_when_it_is_saved() {
    let workspace = workspace(&[]);
    done(
        &workspace,
        "auth create play --provider scripted --kind base-url",
    );
    workspace
        .write("bare.toml", "max_iterations = 3\n")
        .unwrap();
    workspace
        .write("tools.toml", "script = \"script.json\"\n")
        .unwrap();
    let create = "session create demo --auth play --model a-script --tools";
    for (tools, words) in [
        ("tools.toml", ["script.json", "cannot be read"]),
        (
            "bare.toml",
            ["`scripted` needs a script", "`tools` names none"],
        ),
    ] {
        let output = conjure(&workspace, &format!("{create} {tools}")).run();
        let output = output.unwrap();
        assert_eq!(output.code, Some(2), "{output:?}");
        for word in words {
            assert!(output.stderr.contains(word), "{output:?}");
        }
    }
    let script = json!({ "steps": [{ "text": "Hello." }] });
    let script = workspace.write("script.json", script.to_string()).unwrap();
    done(&workspace, &format!("{create} tools.toml"));
    // One that went away keeps nobody from changing something else, and is told where it is named.
    std::fs::remove_file(script).unwrap();
    done(&workspace, "session set demo --name renamed");
    workspace
        .write("other.toml", "script = \"other.json\"\n")
        .unwrap();
    let other = conjure(&workspace, "session set renamed --tools other.toml");
    let other = other.run().unwrap();
    assert!(other.stderr.contains("other.json"), "{other:?}");
}
