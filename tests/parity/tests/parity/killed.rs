//! `kill -9` of the real program after each event that it shows: the thread sends from there, to
//! whichever provider, and what took effect took effect once.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_kit::{Cli, KitError, Model, Output, Signal, Workspace, cli, thread_ids, thread_log};
use conjure_mock_llm::{Message, Reply, Request};
use serde_json::{Value, json};

use crate::stage::{CACHE, LOCAL, workspace};

/// A provider and a model for each wire.
pub(crate) const STOPS: [(&str, &str); 4] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5"),
    ("deepseek", "deepseek-chat"),
    ("gemini", "gemini-2.5-pro"),
];

/// What the model is told of a call that ran, and of one that did not.
pub(crate) const RAN: &str = "The host ended while this call ran";
pub(crate) const NOT_BEGUN: &str = "The host ended before this call was begun";

/// Calls whose effects can be counted: each appends its name to the file `effects`.
pub(crate) const EFFECTS: [&str; 3] = ["1a", "1c", "2a"];

/// The turn that is interrupted: two rounds with thoughts, text and parallel calls on two backends,
/// and an answer.
pub(crate) fn turn() -> [Message; 3] {
    let shell = |name: &str, then: &str| {
        let command = format!("echo {name} >> effects; echo 'output of {name}'; {then}");
        json!({ "command": command, "description": "a test" })
    };
    let set = |name: &str| json!({ "command": format!("set {name} 1") });
    [
        Message::new()
            .reasoning("Thought 1.")
            .text("This is step 1. ")
            .tool_use("toolu_1a", "local_bash_tool", shell("1a", "sleep 0.05"))
            .tool_use("toolu_1b", "cache-manager_execute", set("1b"))
            .tool_use("toolu_1c", "local_bash_tool", shell("1c", "true")),
        Message::new()
            .reasoning("Thought 2.")
            .text("This is step 2. ")
            .tool_use("toolu_2a", "local_bash_tool", shell("2a", "true"))
            .tool_use("toolu_2b", "cache-manager_execute", set("2b")),
        Message::new().text("This is the answer to everything."),
    ]
}

/// `conjure run` with every provider at this model's place.
fn run(workspace: &Workspace, model: &Model, stop: (&str, &str), more: &[&str]) -> Cli {
    let mut args = vec!["run", "--json", "--allow", "*"];
    args.extend(["--provider", stop.0, "--model", stop.1]);
    args.extend(more);
    let mut run = cli(args).workspace(workspace);
    for name in ["ANTHROPIC", "OPENAI", "DEEPSEEK", "GEMINI"] {
        run = run
            .env(format!("{name}_API_KEY"), "a-key-of-nobody")
            .env(format!("{name}_BASE_URL"), model.base_url());
    }
    run
}

/// The workspace's newest thread.
fn newest(workspace: &Workspace) -> String {
    thread_ids(workspace).unwrap().swap_remove(0)
}

fn logged(workspace: &Workspace) -> Logged {
    let log = thread_log(workspace, &newest(workspace)).unwrap();
    Logged::read(log.as_bytes())
}

/// Kills the program after it has shown so many events. Nothing when it showed no more than that.
fn killed_after(events: usize, run: Cli) -> Option<()> {
    let running = run.start().unwrap();
    match running.wait_for_lines(events) {
        Ok(_) => running.signal(Signal::KILL),
        Err(KitError::Ended { .. }) => return None,
        Err(error) => panic!("{error}"),
    }
    let ended = running.wait().unwrap();
    // Its last line is told when everything is done.
    (ended.signal == Some(9)).then_some(())
}

/// How often each call took effect.
fn effects(workspace: &Workspace) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for line in workspace.read("effects").unwrap_or_default().lines() {
        *effects.entry(line.to_owned()).or_default() += 1;
    }
    effects
}

/// What stands in a log.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// How each call ended, by its name in [`turn`]; `None`: it did not.
    pub(crate) calls: BTreeMap<String, Option<String>>,
    /// The names, by the ids that the wire gave.
    names: BTreeMap<String, String>,
    /// The calls that were begun.
    pub(crate) started: Vec<String>,
    /// What person and model said.
    pub(crate) texts: Vec<String>,
    /// What came of the calls.
    pub(crate) outputs: Vec<String>,
}

impl Logged {
    /// Reads whole lines; the last one may be cut.
    pub(crate) fn read(log: &[u8]) -> Self {
        let whole = log.iter().rposition(|byte| *byte == b'\n');
        let text = std::str::from_utf8(&log[..whole.map_or(0, |at| at + 1)]).unwrap();
        let mut logged = Self::default();
        for line in text.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            logged.entry(&record["entry"]);
        }
        logged
    }

    fn entry(&mut self, entry: &Value) {
        let id = |value: &Value| value["call_id"].as_str().unwrap().to_owned();
        match entry["entry"].as_str() {
            Some("message") => {
                for part in entry["message"]["content"].as_array().unwrap() {
                    match part["type"].as_str() {
                        Some("function_call") => {
                            let command = part["arguments"]["command"].as_str().unwrap();
                            let name = command.split(' ').nth(1).unwrap().to_owned();
                            self.names.insert(id(part), name.clone());
                            self.calls.insert(name, None);
                        }
                        Some("text") => self.texts.push(part["text"].as_str().unwrap().to_owned()),
                        _ => {}
                    }
                }
            }
            Some("call_started") => self.started.push(self.names[&id(entry)].clone()),
            Some("call_ended") => {
                let output = &entry["output"];
                let end = entry["end"].as_str().unwrap().to_owned();
                let name = self.names[&id(output)].clone();
                let before = self.calls.insert(name, Some(end));
                assert_eq!(before, Some(None), "one call, one result: {entry}");
                let text = output["output"][0]["text"].as_str().unwrap();
                self.outputs.push(text.trim().to_owned());
            }
            _ => {}
        }
    }

    /// How many calls ended so.
    pub(crate) fn ended(&self, how: &str) -> usize {
        let ends = self.calls.values();
        ends.filter(|end| end.as_deref() == Some(how)).count()
    }
}

/// What a request tells, as far as no wire changes it.
pub(crate) fn told(request: &Request) -> String {
    // Texts with quotes or line ends are written in another way inside JSON.
    request.body.to_string().replace("\\n", "\n")
}

/// Checks a thread that was gone on with: each call has one result, of which log, model and file
/// system tell the same.
fn check(workspace: &Workspace, model: &Model, again: &Output, asked: &str, place: &str) {
    assert_eq!(again.code, Some(0), "{place}: {again:?}");
    assert!(again.stdout.contains("Here again."), "{place}: {again:?}");
    let logged = logged(workspace);
    let effects = effects(workspace);
    for (name, end) in &logged.calls {
        let counted = effects.get(name).copied().unwrap_or_default();
        let possible = match end.as_deref() {
            _ if !EFFECTS.contains(&name.as_str()) => 0..=0,
            Some("done") => 1..=1,
            Some("refused") => 0..=0,
            Some("indeterminate") => 0..=1,
            end => panic!("{place}: {name} ended {end:?}"),
        };
        assert!(possible.contains(&counted), "{place}: {name}: {effects:?}");
    }
    for name in effects.keys() {
        let known = logged.calls.contains_key(name);
        assert!(known, "{place}: {name} took effect and is not in the log");
    }
    assert_eq!(model.mock().violations(), [], "{place}");
    let requests = model.mock().requests();
    assert_eq!(requests.len(), 1, "{place}");
    let told = told(&requests[0]);
    assert!(told.contains(asked), "{place}: {told}");
    for text in logged.texts.iter().filter(|text| *text != "Here again.") {
        assert!(told.contains(text.trim()), "{place}: `{text}` in {told}");
    }
    let of = |words: &str| told.matches(words).count();
    assert_eq!(of(RAN), logged.ended("indeterminate"), "{place}: {told}");
    assert_eq!(of(NOT_BEGUN), logged.ended("refused"), "{place}: {told}");
}

#[test]
fn a_thread_sends_after_kill_9_at_each_event_that_was_shown() {
    let mut ends = BTreeMap::new();
    let workspace = workspace(&[LOCAL, CACHE]);
    for events in 1.. {
        let from = STOPS[events % STOPS.len()];
        let to = STOPS[events / STOPS.len() % STOPS.len()];
        workspace.write("effects", "").unwrap();
        let model = Model::start().unwrap();
        for message in turn() {
            // Pieces that come one by one are shown one by one.
            model.says(Reply::from(message.deltas(40)).delay(Duration::from_millis(1)));
        }
        let place = format!("after event {events}, {} to {}", from.0, to.0);
        if killed_after(events, run(&workspace, &model, from, &["Go on."])).is_none() {
            assert!(events > 25, "{events} are not all events");
            break;
        }
        assert_eq!(model.mock().violations(), [], "{place}");
        let model = Model::start().unwrap();
        model.says(Message::new().text("Here again."));
        let thread = newest(&workspace);
        let more = ["--thread", &thread, "What happened?"];
        let again = run(&workspace, &model, to, &more).run().unwrap();
        check(&workspace, &model, &again, "What happened?", &place);
        for end in logged(&workspace).calls.into_values().flatten() {
            *ends.entry(end).or_insert(0) += 1;
        }
    }
    for end in ["done", "indeterminate", "refused"] {
        assert!(ends.contains_key(end), "{end} was never seen: {ends:?}");
    }
}
