//! Plugins that come, go and change while a conversation runs.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_kit::{Model, ProgramHandle, Workspace, build_plugin};
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::stage::{CACHE, asks, conjure, workspace};

const MISBEHAVING: &str = "conjure-misbehaving";

fn start(workspace: &Workspace, model: &Model) -> ProgramHandle {
    asks(workspace, model, "chat --json --allow *", "")
        .start()
        .unwrap()
}

/// Lets the model make a call, and gives back what it gets of it.
fn call(
    chat: &mut ProgramHandle,
    model: &Model,
    id: &str,
    tool: &str,
    command: &str,
) -> (String, bool) {
    model.calls(id, tool, json!({ "command": command }));
    model.says(Message::new().text(format!("after {id}")));
    chat.send_line("Go on.").unwrap();
    chat.wait_for_stdout(&format!("\"text\":\"after {id}\""))
        .unwrap();
    let request = model.last_request();
    let is_error = request.tool_result(id).unwrap()["is_error"] == true;
    (request.tool_result_text(id).unwrap(), is_error)
}

#[test]
fn a_plugin_that_is_dropped_in_is_announced_and_callable_in_the_next_step() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    model.says(Message::new().text("after nothing"));
    chat.send_line("Hi.").unwrap();
    chat.wait_for_stdout("\"text\":\"after nothing\"").unwrap();
    assert_eq!(model.last_request().tool_names(), [] as [&str; 0]);
    workspace.add_plugin(CACHE).unwrap();
    chat.wait_for_stdout("new: cache-manager_execute, cache-manager_read")
        .unwrap();
    let seen = call(
        &mut chat,
        &model,
        "toolu_1",
        "cache-manager_execute",
        "set k v",
    );
    assert_eq!(seen, ("stored".to_owned(), false));
    let offered = model.last_request();
    assert_eq!(
        offered.tool_names(),
        ["cache-manager_execute", "cache-manager_read"]
    );
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_plugin_that_is_dropped_in_during_a_turn_is_there_in_its_next_step() {
    use conjure_mock_llm::{Position, Reply};
    let workspace = workspace(&[MISBEHAVING]);
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    let first = Message::new().tool_use(
        "toolu_1",
        "misbehaving_execute",
        json!({ "command": "echo 1" }),
    );
    model.says(Reply::from(first).hold(Position::Event(1), "first step"));
    chat.send_line("Go on.").unwrap();
    model.mock().wait_for_gate_blocking("first step").unwrap();
    workspace.add_plugin(CACHE).unwrap();
    chat.wait_for_stdout("new: cache-manager_execute").unwrap();
    model.calls(
        "toolu_2",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(Message::new().text("after both"));
    model.mock().release("first step");
    chat.wait_for_stdout("\"text\":\"after both\"").unwrap();
    let requests = model.requests();
    let offered: Vec<bool> = requests
        .iter()
        .map(|request| request.tool_names().contains(&"cache-manager_execute"))
        .collect();
    assert_eq!(offered, [false, true, true]);
    let last = model.last_request();
    assert_eq!(last.tool_result_text("toolu_2").as_deref(), Some("stored"));
    chat.close_stdin();
    chat.wait().unwrap();
}

#[test]
fn removing_a_plugin_is_announced_and_lets_its_calls_end() {
    let workspace = workspace(&[MISBEHAVING, CACHE]);
    let file = workspace
        .plugins()
        .join(build_plugin(MISBEHAVING).unwrap().file_name().unwrap());
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    model.calls(
        "toolu_1",
        "misbehaving_execute",
        json!({ "command": "sleep 1500" }),
    );
    model.says(Message::new().text("after the long call"));
    chat.send_line("Go on.").unwrap();
    chat.wait_for_stdout("\"type\":\"call_started\"").unwrap();
    fs::remove_file(file).unwrap();
    let seen = chat
        .wait_for_stdout("gone: misbehaving_execute, misbehaving_read")
        .unwrap();
    assert!(
        !seen.contains("\"type\":\"function_call_output\""),
        "the call still runs"
    );
    chat.wait_for_stdout("\"text\":\"after the long call\"")
        .unwrap();
    let request = model.last_request();
    assert_eq!(
        request.tool_result_text("toolu_1").as_deref(),
        Some("sleep: done")
    );
    assert_eq!(
        request.tool_names(),
        ["cache-manager_execute", "cache-manager_read"]
    );
    // A model that goes on as before is told.
    let (text, is_error) = call(
        &mut chat,
        &model,
        "toolu_2",
        "misbehaving_execute",
        "echo x",
    );
    assert!(
        is_error
            && text.contains("`misbehaving_execute`")
            && text.contains("was removed while the session ran"),
        "{text}"
    );
    let (text, _) = call(
        &mut chat,
        &model,
        "toolu_3",
        "cache-manager_execute",
        "set k v",
    );
    assert_eq!(text, "stored");
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_plugin_that_is_replaced_under_use_answers_the_call_that_runs_and_the_new_one_the_next() {
    let workspace = workspace(&[MISBEHAVING]);
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    model.calls(
        "toolu_1",
        "misbehaving_execute",
        json!({ "command": "sleep 1500" }),
    );
    model.says(Message::new().text("after the long call"));
    chat.send_line("Go on.").unwrap();
    chat.wait_for_stdout("\"type\":\"call_started\"").unwrap();
    let newer = newer(&workspace, MISBEHAVING);
    workspace.add_library(&newer).unwrap();
    let seen = chat
        .wait_for_stdout("changed: misbehaving_execute")
        .unwrap();
    assert!(
        !seen.contains("\"type\":\"function_call_output\""),
        "the call still runs"
    );
    chat.wait_for_stdout("\"text\":\"after the long call\"")
        .unwrap();
    // The model that reads the result is told that its tool is another version's by now.
    let text = model.last_request().tool_result_text("toolu_1").unwrap();
    let told = format!(
        "sleep: done\n[note of the host] From here on other versions of plugins are behind your \
         tools: misbehaving {} → 0.1.1",
        env!("CARGO_PKG_VERSION")
    );
    assert!(text.starts_with(&told), "{text}");
    let (text, _) = call(
        &mut chat,
        &model,
        "toolu_2",
        "misbehaving_execute",
        "echo new",
    );
    assert_eq!(text, "new");
    // One that hands nothing on, and back.
    let older = build_plugin(MISBEHAVING).unwrap();
    workspace.add_library(&older).unwrap();
    chat.wait_for_stdout("a downgrade").unwrap();
    model.says(Message::new().text("after the downgrade"));
    chat.send_line("And now?").unwrap();
    chat.wait_for_stdout("\"text\":\"after the downgrade\"")
        .unwrap();
    let told = format!(
        "misbehaving 0.1.1 → {}, a downgrade, state not carried over.",
        env!("CARGO_PKG_VERSION")
    );
    let request = model.last_request();
    assert!(request.last_text().contains(&told), "{}", request.body);
    chat.close_stdin();
    let output = chat.wait().unwrap();
    let answered_by: Vec<Value> = crate::stage::json_lines(&output)
        .into_iter()
        .filter(|line| line["type"] == "call_started")
        .map(|line| line["plugin"].clone())
        .collect();
    assert_eq!(answered_by, ["misbehaving 0.1.0", "misbehaving 0.1.1"]);
}

#[test]
fn another_version_is_told_with_both_versions_and_what_becomes_of_the_state() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let older = workspace.root().join("older.so");
    fs::copy(build_plugin(CACHE).unwrap(), &older).unwrap();
    let mut chat = start(&workspace, &model);
    let stored = call(
        &mut chat,
        &model,
        "toolu_1",
        "cache-manager_execute",
        "set k v",
    );
    assert_eq!(stored.0, "stored");
    workspace.add_library(&newer(&workspace, CACHE)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let upgrade =
        format!("cache-manager {version} → 0.1.1; its state moves over at its next call.");
    chat.wait_for_stdout(&upgrade).unwrap();
    let kept = call(
        &mut chat,
        &model,
        "toolu_2",
        "cache-manager_execute",
        "get k",
    );
    let carried =
        format!("v\n[note of the host] cache-manager {version} → 0.1.1: state carried over.");
    assert_eq!(kept.0, carried);
    let asked = model.last_request().body.to_string();
    let told =
        format!("cache-manager {version} → 0.1.1, state to be carried over at its next call");
    assert_eq!(asked.matches(&told).count(), 1, "{asked}");
    // That it came over is said once it did.
    let moved = format!("cache-manager 0.1.1 has taken over the state of cache-manager {version}.");
    chat.wait_for_stdout(&moved).unwrap();
    let library = build_plugin(CACHE).unwrap();
    let name = library.file_name().unwrap();
    let ready = workspace.root().join(name);
    fs::rename(&older, &ready).unwrap();
    workspace.add_library(&ready).unwrap();
    let downgrade = format!("cache-manager 0.1.1 → {version}, a downgrade; its state");
    chat.wait_for_stdout(&downgrade).unwrap();
    model.says(Message::new().text("after the downgrade"));
    chat.send_line("And now?").unwrap();
    chat.wait_for_stdout("\"text\":\"after the downgrade\"")
        .unwrap();
    // What was told before stays where it was, and the newest stands behind the newest words.
    let request = model.last_request();
    assert_eq!(request.tool_result_text("toolu_2"), Some(carried));
    let told = format!("cache-manager 0.1.1 → {version}, a downgrade, state to be carried over");
    assert!(request.last_text().contains(&told), "{}", request.body);
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_thread_that_goes_on_says_which_plugins_are_there_in_another_version() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(Message::new().text("One."));
    let run = |args: &str| asks(&workspace, &model, args, "Go on.").run().unwrap();
    let first = run("run --allow *");
    assert_eq!(first.stdout, "One.\n", "{first:?}");
    let listed = crate::stage::json(&conjure(&workspace, "thread list --json").run().unwrap());
    let thread = listed["threads"][0]["id"].as_str().unwrap();

    workspace.add_library(&newer(&workspace, CACHE)).unwrap();
    model.says(Message::new().text("Two."));
    let second = run(&format!("run --allow * --thread {thread}"));
    assert_eq!(second.stdout, "Two.\n", "{second:?}");
    let told =
        format!("cache-manager {version} → 0.1.1; its state, if it held any in memory, was lost.");
    assert!(second.stderr.contains(&told), "{second:?}");
    let lost = format!("cache-manager {version} → 0.1.1, state not carried over.");
    let asked = model.last_request();
    assert!(asked.last_text().contains(&lost), "{}", asked.body);
    model.says(Message::new().text("Three."));
    let third = run(&format!("run --allow * --thread {thread}"));
    assert!(!third.stderr.contains("0.1.1"), "{third:?}");
    // It is told once, and still there in a later request.
    let asked = model.last_request();
    assert!(!asked.last_text().contains(&lost), "{}", asked.body);
    assert_eq!(asked.body.to_string().matches(&lost).count(), 1);

    let shown = conjure(&workspace, &format!("thread show {thread}"));
    let shown = shown.run().unwrap().stdout;
    let line = format!("tools: cache-manager {version} → 0.1.1, state lost");
    assert!(shown.contains(&line), "{shown}");
}

#[test]
fn a_state_that_the_newer_version_cannot_read_is_told_and_the_older_goes_on_with_it() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    let tool = "cache-manager_execute";
    assert_eq!(
        call(&mut chat, &model, "toolu_1", tool, "set k v").0,
        "stored"
    );
    let library = newer(&workspace, CACHE);
    // The field that its state must have.
    replace(&library, b"entries", b"entriez");
    workspace.add_library(&library).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    chat.wait_for_stdout(&format!("{version} → 0.1.1; its state moves over"))
        .unwrap();
    let (text, _) = call(&mut chat, &model, "toolu_2", tool, "get k");
    let refused = format!(
        "v\n[note of the host] cache-manager {version} → 0.1.1: state could not be carried over, so \
         {version} goes on with it."
    );
    assert_eq!(text, refused);
    let told = format!(
        "cache-manager 0.1.1 could not take over the state of cache-manager {version}, which goes on: "
    );
    let seen = chat.wait_for_stdout(&told).unwrap();
    assert!(!seen.contains("has taken over"), "{seen}");
    // The next one that cannot read it is told the version that has the state, which is the oldest.
    let library = of_version(&workspace, CACHE, b"0.1.2");
    replace(&library, b"entries", b"entriez");
    workspace.add_library(&library).unwrap();
    chat.wait_for_stdout(&format!("{version} → 0.1.2; its state moves over"))
        .unwrap();
    let (text, _) = call(&mut chat, &model, "toolu_3", tool, "get k");
    let refused = format!(
        "v\n[note of the host] cache-manager {version} → 0.1.2: state could not be carried over, so \
         {version} goes on with it."
    );
    assert_eq!(text, refused);
    let told = format!(
        "cache-manager 0.1.2 could not take over the state of cache-manager {version}, which goes on: "
    );
    chat.wait_for_stdout(&told).unwrap();
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

/// A plugin in the version after its own.
fn newer(workspace: &Workspace, package: &str) -> PathBuf {
    of_version(workspace, package, b"0.1.1")
}

/// A plugin with a version of the same length in the place of its own.
fn of_version(workspace: &Workspace, package: &str, version: &[u8]) -> PathBuf {
    let library = build_plugin(package).unwrap();
    let path = workspace.root().join(library.file_name().unwrap());
    fs::copy(&library, &path).unwrap();
    replace(&path, env!("CARGO_PKG_VERSION").as_bytes(), version);
    path
}

/// Replaces bytes wherever they stand in a file.
fn replace(file: &Path, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read(file).unwrap();
    let windows = bytes.windows(old.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == old);
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_file_that_is_no_plugin_is_told_and_changes_nothing() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let mut chat = start(&workspace, &model);
    let part = workspace.root().join("part");
    fs::write(&part, "no library").unwrap();
    fs::rename(&part, workspace.plugins().join("libnonsense.so")).unwrap();
    chat.wait_for_stderr("libnonsense.so").unwrap();
    let (text, _) = call(
        &mut chat,
        &model,
        "toolu_1",
        "cache-manager_execute",
        "set k v",
    );
    assert_eq!(text, "stored");
    chat.close_stdin();
    chat.wait().unwrap();
}

#[test]
fn a_person_is_told_in_words() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let mut chat = asks(&workspace, &model, "chat", "").start().unwrap();
    chat.wait_for_stderr("/help").unwrap();
    workspace.add_plugin(CACHE).unwrap();
    let said = chat.wait_for_stderr("cache-manager_read).\n").unwrap();
    assert!(
        said.ends_with(
            "note: The tools are other ones from the next step on (new: cache-manager_execute, \
             cache-manager_read).\n"
        ),
        "{said}"
    );
    chat.close_stdin();
    chat.wait().unwrap();
}
