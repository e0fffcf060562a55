//! Pages on what waits for a person: a call of an MCP server, and then what that server asks.
//!
//! The person is at a terminal, and at a client of the API; the page's commands are those of another
//! terminal meanwhile.

use conjure_kit::Output;
use conjure_mock_llm::{Message, Position, Reply, Script};
use serde_json::json;

use super::blocks::Block;
use super::commands::{Place, commands, have};

/// What the person says, so that the model files a note.
pub(super) const FILE_NOTE: &str = "File my note.";
/// The tool that it calls then, and the call's id.
pub(super) const NOTE_TOOL: &str = "notes_file";
pub(super) const NOTE_CALL: &str = "toolu_2";

/// A server with one tool, which asks for a folder and answers with what it was told.
const NOTES_SERVER: &str = r#"#!/usr/bin/python3
import json
import sys

FORM = {"type": "object", "properties": {"folder": {"type": "string"}}}
TOOL = {"name": "file", "description": "Files a note", "inputSchema": {"type": "object"}}


def tell(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


call = None
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        server = {"name": "notes", "version": "1"}
        tell(id=number, result={
            "protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        tell(id=number, result={"tools": [TOOL]})
    elif method == "tools/call":
        call = number
        question = {"message": "Which folder?", "requestedSchema": FORM}
        tell(id="which", method="elicitation/create", params=question)
    elif method is None and number == "which":
        answer = json.dumps(message["result"])
        tell(id=call, result={"content": [{"type": "text", "text": answer}]})
    elif number is not None:
        tell(id=number, error={"code": -32601, "message": f"no {method}"})
"#;

/// Puts the server `notes-server` on the reader's path, and the plugin that speaks with it.
pub(super) fn add_notes_server(place: &Place) {
    place.workspace.add_plugin("conjure-backend-mcp").unwrap();
    place.add_program("notes-server", NOTES_SERVER);
}

/// The server got the folder that the page answers with.
pub(super) fn assert_note_is_filed(place: &Place) {
    let requests = place.model.requests();
    let mut results = requests
        .iter()
        .filter_map(|request| request.tool_result_text(NOTE_CALL));
    let got = results.next().unwrap();
    assert!(got.contains(r#""folder": "work""#), "{got}");
}

/// Begins a turn whose call asks, and waits for the question, whose id is `$question` then.
const ASKING: &str = r#"
curl -s -X PATCH -H "$token" "$api/sessions/demo" -H "$json" \
    -d '{"mcps": {"notes": {"command": "notes-server"}}}'
filing=$(curl -s -H "$token" "$api/sessions/demo/turns" -H "$json" \
    -d '{"text": "File my note.", "unattended": false, "policy": {"allow": ["*"]}}' | jq -r .turn)
for look in $(seq 300); do
    question=$(curl -s -H "$token" "$api/sessions/demo/questions" | jq -r '.items[0].id // empty')
    [ -z "$question" ] || break
    sleep 0.1
done
"#;
/// The question is settled, and the turn comes to its end.
const ANSWERED: &str = r#"
curl -s -H "$token" "$api/sessions/demo/questions" | jq -e '.items == []'
curl -s -H "$token" "$api/turns/$filing?wait=30" | jq -e '.state == "completed"'
"#;

/// Has a question wait when the block of the API's page runs that lists and answers questions.
pub(super) fn ask_ahead_of_questions(blocks: &mut [Block]) {
    let mut found = blocks
        .iter_mut()
        .filter(|block| block.text.contains("/questions"));
    let block = found.next().unwrap();
    block.text = format!("{ASKING}{}{ANSWERED}", block.text);
    assert!(found.next().is_none(), "{}", block.place());
}

const SESSIONS: &str = "conjure-host/docs/saved-sessions.md";
/// What the model tells when the note is filed, and when it is asked for another story. Each stops in
/// its middle until the gate of its name is open.
const STORIES: [&str; 2] = ["to be cancelled", "to be followed"];

/// A model that is asked what is in the directory, files a note, and tells stories.
fn stories() -> Script {
    let call = Message::new().tool_use(NOTE_CALL, NOTE_TOOL, json!({}));
    let script = Script::new().reply(Message::new().text("There are three files."));
    STORIES.iter().fold(script.reply(call), |script, gate| {
        let story = Message::new().text("A long story of the sea").deltas(3);
        script.reply(Reply::from(story).hold(Position::Event(4), *gate))
    })
}

#[test]
fn saved_sessions() {
    if !have(&["python3"]) {
        return;
    }
    let place = Place::with_model(stories());
    place
        .workspace
        .write("persona.md", "You are brief.\n")
        .unwrap();
    add_notes_server(&place);
    let [making, waiting]: [Block; 2] = commands(SESSIONS).try_into().unwrap();
    place.run_blocks(&[making], &[]);
    let servers = r#"'{"notes": {"command": "notes-server"}}'"#;
    place.make(&format!("conjure session set site --mcps {servers}"));
    let turn = place.begin_at_terminal(&format!("conjure run --session site '{FILE_NOTE}'"));
    turn.wait_for_stdout("Allow it?").unwrap();
    let verb = |line: &str| {
        line.split_whitespace()
            .nth(2)
            .unwrap_or_default()
            .to_owned()
    };
    let verbs: Vec<String> = waiting.text.lines().map(verb).collect();
    let all = ["waiting", "approve", "answer", "cancel", "follow"];
    assert_eq!(verbs, all, "{}", waiting.place());
    for (verb, line) in all.iter().zip(waiting.text.lines()) {
        match *verb {
            "answer" => drop(turn.wait_for_stdout("Which folder?").unwrap()),
            "cancel" => place.model.wait_for_gate_blocking(STORIES[0]).unwrap(),
            _ => {}
        }
        match *verb {
            "follow" => assert_is_followed(&place, line),
            "waiting" => assert_is_listed(&place.output_of(line)),
            _ => place.make(line),
        }
    }
    turn.wait_for_stdout("cancelled").unwrap();
    turn.wait().unwrap();
    assert_note_is_filed(&place);
}

fn assert_is_listed(output: &Output) {
    assert!(output.stdout.contains(NOTE_TOOL), "{}", output.snapshot());
}

/// Asserts that a follower sees the turn from its beginning, until it is over.
fn assert_is_followed(place: &Place, line: &str) {
    let turn = place.begin_at_terminal("conjure run --session site 'Tell me another one.'");
    place.model.wait_for_gate_blocking(STORIES[1]).unwrap();
    let follower = place.begin_at_terminal(line);
    follower.wait_for_stdout("A l").unwrap();
    place.model.release(STORIES[1]);
    for terminal in [turn, follower] {
        let output = terminal.wait().unwrap();
        assert_eq!(output.code, Some(0), "{}", output.snapshot());
        let told = output.stdout.contains("A long story of the sea");
        assert!(told, "{}", output.snapshot());
    }
}
