//! Calls of a saved session that wait for a person: denied where nobody can come, waited for where
//! somebody may, and decided about from another terminal.

use std::time::{Duration, Instant};

use conjure_client::RemoteServer;
use conjure_host::store::ThreadId;
use conjure_kit::{Model, Signal, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::session::{DATA, asks, asks_person, done, ok, server, show, stage};
use crate::stage::{conjure, json as parsed};

const TOOL: &str = "local_bash_tool";

fn create(workspace: &Workspace) {
    done(
        workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
}

/// Waits for something that another process does.
pub(crate) fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The model lights the lamp and is done.
fn lights(model: &Model) {
    let command = json!({ "command": "echo lit > lamp" });
    model.calls("call-1", TOOL, command);
    model.says(Message::new().text("Done."));
}

fn result(model: &Model) -> String {
    model.last_request().tool_result_text("call-1").unwrap()
}

#[test]
fn where_nobody_can_answer_a_call_is_denied_at_once_and_says_how_to_allow_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    for serves in [false, true] {
        let server = serves.then(|| server(&workspace, ""));
        lights(&model);
        let output = ok(asks(&workspace, &["--session", "work"], "Light the lamp"));
        assert!(
            result(&model).contains("--allow 'local_bash_tool'"),
            "{}",
            result(&model)
        );
        assert!(output.stderr.contains("was not run"), "{output:?}");
        assert!(workspace.read("lamp").is_err());
        // A rule for this turn, which is not saved.
        lights(&model);
        let allowed = ["--session", "work", "--allow", TOOL];
        ok(asks(&workspace, &allowed, "Light the lamp"));
        assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
        std::fs::remove_file(workspace.work().join("lamp")).unwrap();
        assert_eq!(show(&workspace, "work")["tools"], json!({}));
        if let Some(server) = server {
            server.signal(Signal::TERM);
            server.wait().unwrap();
        }
    }
}

#[test]
fn what_could_ask_in_a_saved_session_is_known_before() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    let asking = conjure(&workspace, "policy check --session work")
        .run()
        .unwrap();
    assert_eq!(asking.code, Some(1), "{asking:?}");
    assert!(asking.stdout.contains(TOOL), "{asking:?}");
    let allowed = done(&workspace, "policy check --session work --allow * --all");
    assert!(allowed.stdout.contains("allow"), "{allowed:?}");
}

#[test]
fn a_person_who_may_come_is_waited_for_and_decides_from_another_terminal() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    let server = server(&workspace, "");
    let thread = show(&workspace, "work")["thread"]["id"].take();
    let thread: ThreadId = serde_json::from_value(thread).unwrap();
    // A page that somebody looks at.
    let page = RemoteServer::find(&workspace.home().join(DATA)).unwrap();
    let (looks, looking) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut events = page.events(&thread, None, true);
            while events.next().await.is_ok() {
                let _ = looks.send(());
            }
        });
    });
    model.says(Message::new().text("Hello."));
    ok(asks(&workspace, &["--session", "work"], "Hello"));
    looking.recv().unwrap();
    lights(&model);
    let running = asks(&workspace, &["--session", "work"], "Light the lamp")
        .start()
        .unwrap();
    running.wait_for_stderr("waits for a person").unwrap();
    let waiting = parsed(&done(&workspace, "session waiting work --json"));
    assert_eq!(waiting["calls"][0]["call"]["id"], "call-1");
    done(&workspace, "session approve work");
    let output = running.wait().unwrap();
    assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
    assert!(
        output
            .stderr
            .contains("is denied in 10 min, or half a minute after nobody follows the session any more: `conjure session approve work call-1`"),
        "{output:?}"
    );
    // And not: why is told to the model.
    lights(&model);
    let running = asks(&workspace, &["--session", "work"], "Again")
        .start()
        .unwrap();
    running.wait_for_stderr("waits for a person").unwrap();
    let deny = ["session", "deny", "work", "--because", "It is day"];
    ok(conjure_kit::cli(deny).workspace(&workspace));
    running.wait().unwrap();
    let told = model.last_request().body.to_string();
    assert!(told.contains("It is day"), "{told}");
    let nothing = conjure(&workspace, "session approve work").run().unwrap();
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn who_follows_at_a_terminal_is_asked_and_cancels_from_another_one() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    let server = server(&workspace, "");
    model.calls("call-1", TOOL, json!({ "command": "echo lit > lamp" }));
    model.says(
        Reply::from(Message::new().text("A long story of the sea").deltas(3))
            .hold(Position::Event(4), "never"),
    );
    let mut running = asks_person(&workspace, "Go");
    let mut follower = conjure(&workspace, "session follow work")
        .on_terminal()
        .start()
        .unwrap();
    follower.wait_for_stdout("Allow it?").unwrap();
    follower.send_line("y").unwrap();
    running
        .wait_for_stdout("No answer is needed any more.")
        .unwrap();
    follower.wait_for_stdout("A l").unwrap();
    let cancelled = done(&workspace, "session cancel work --json");
    assert_eq!(parsed(&cancelled)["state"], "cancelled");
    for terminal in [&mut running, &mut follower] {
        terminal.wait_for_stdout("cancelled").unwrap();
    }
    running.wait().unwrap();
    follower.wait().unwrap();
    assert_eq!(workspace.read("lamp").unwrap(), "lit\n");
    let state: Value = show(&workspace, "work")["state"].take();
    assert_eq!(state, "idle");
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn a_turn_that_waits_is_dropped_from_another_terminal_and_its_own_ends() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    let server = server(&workspace, "");
    model.says(
        Reply::from(Message::new().text("A long story of the sea").deltas(3))
            .hold(Position::Event(4), "never"),
    );
    let say = |text: &str| asks(&workspace, &["--session", "work"], text).start();
    let first = say("one").unwrap();
    first.wait_for_stdout("A l").unwrap();
    let second = say("two").unwrap();
    // A turn runs, and one waits behind it.
    let waits = || show(&workspace, "work")["queued"] == json!(1);
    until(waits);
    assert_eq!(show(&workspace, "work")["state"], json!("running"));
    second.signal(Signal::INT);
    let left = second.wait().unwrap();
    assert_ne!(left.code, Some(0), "{left:?}");
    assert_eq!(
        show(&workspace, "work")["state"],
        json!("running"),
        "only its own"
    );
    let third = say("three").unwrap();
    until(waits);
    done(&workspace, "session cancel work --queued");
    for run in [first, third] {
        let ended = run.wait().unwrap();
        assert_ne!(ended.code, Some(0), "{ended:?}");
    }
    server.signal(Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn words_that_wait_behind_a_command_line_that_is_killed_are_answered_to_those_that_said_them() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    model.says(
        Reply::from(Message::new().text("A long story of the sea").deltas(3))
            .hold(Position::Event(4), "never"),
    );
    let say = |text: &str| asks(&workspace, &["--session", "work"], text).start();
    let first = say("one").unwrap();
    first.wait_for_stdout("A l").unwrap();
    let mut waiting = Vec::new();
    for text in ["two", "three", "four"] {
        waiting.push(say(text).unwrap());
        until(|| show(&workspace, "work")["queued"] == json!(waiting.len()));
        model.says(Message::new().text("Answered."));
    }
    first.signal(Signal::KILL);
    first.wait().unwrap();
    for run in waiting {
        let ended = run.wait().unwrap();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("Answered."), "{ended:?}");
    }
}

#[test]
fn words_said_in_many_command_lines_at_once_are_all_answered() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    let mut running = Vec::new();
    for number in 0..4 {
        model.says(Message::new().text("Answered."));
        let said = format!("words {number}");
        running.push(
            asks(&workspace, &["--session", "work"], &said)
                .start()
                .unwrap(),
        );
    }
    for run in running {
        let ended = run.wait().unwrap();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("Answered."), "{ended:?}");
    }
}
