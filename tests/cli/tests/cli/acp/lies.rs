//! A client that sends what is no message, or what cannot be: it is told so, and what it says
//! rightly after that is done.

use conjure_kit::{Model, ProgramHandle};
use serde_json::{Value, json};

use super::{acp, stage};

/// Sends a line and gives the answer, which is the next line that is no update of a session.
fn told(running: &mut ProgramHandle, lines: &mut usize, line: &str) -> Value {
    running.send_line(line).unwrap();
    loop {
        *lines += 1;
        let all = running.wait_for_lines(*lines).unwrap();
        let line = all.lines().nth(*lines - 1).unwrap();
        let said: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if said["method"] != "session/update" {
            return said;
        }
    }
}

#[test]
fn a_client_that_lies_is_told_so() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let mut running = acp(&workspace).start().unwrap();
    let mut lines = 0;
    let mut ask = |line: &str| told(&mut running, &mut lines, line);
    let request = |id: u32, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": { "fs": "what?" } });
    let said = ask(&request(1, "initialize", hello));
    assert_eq!(said["result"]["protocolVersion"], 1, "{said}");
    assert_eq!(ask("this is no message")["error"]["code"], -32700);
    assert_eq!(ask("[1, 2]")["error"]["code"], -32600);
    assert_eq!(ask(&"[".repeat(100_000))["error"]["code"], -32700);
    let unknown = ask(&request(2, "session/fly", json!({})));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    for (method, params) in [
        ("session/new", json!({})),
        (
            "session/new",
            json!({ "cwd": "relative", "mcpServers": [] }),
        ),
        ("session/new", json!({ "cwd": 7, "mcpServers": "none" })),
        (
            "session/load",
            json!({ "sessionId": "../x", "cwd": "/", "mcpServers": [] }),
        ),
        (
            "session/prompt",
            json!({ "sessionId": "none", "prompt": [] }),
        ),
        (
            "session/set_mode",
            json!({ "sessionId": "none", "modeId": "ask" }),
        ),
        ("session/close", json!({ "sessionId": "none" })),
        ("session/delete", json!({ "sessionId": "none" })),
        ("session/list", json!({ "cursor": "what?" })),
        ("authenticate", json!({ "methodId": "magic" })),
    ] {
        let said = ask(&request(3, method, params));
        let code = said["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("{method}: {said}"));
        assert!([-32602, -32002].contains(&code), "{method}: {said}");
        assert!(
            said["error"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
    // A session still opens, and a prompt that has nothing in it is refused.
    let work = workspace.work().display().to_string();
    let new = ask(&request(
        4,
        "session/new",
        json!({ "cwd": work, "mcpServers": [] }),
    ));
    let id = new["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{new}"));
    let empty = ask(&request(
        5,
        "session/prompt",
        json!({ "sessionId": id, "prompt": [] }),
    ));
    assert_eq!(empty["error"]["message"], "the prompt is empty");
    let image = json!([{ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }]);
    let image = ask(&request(
        6,
        "session/prompt",
        json!({ "sessionId": id, "prompt": image }),
    ));
    assert_eq!(image["error"]["code"], -32602, "{image}");
    // What it answers to nothing, and what it cancels that does not run, changes nothing.
    running
        .send_line(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#)
        .unwrap();
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "x" } });
    running.send_line(&cancel.to_string()).unwrap();
    model.says(conjure_mock_llm::Message::new().text("Here."));
    let prompt = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "There?" }] });
    running
        .send_line(&request(7, "session/prompt", prompt))
        .unwrap();
    running
        .wait_for_stdout("\"stopReason\":\"end_turn\"")
        .unwrap();
    running.close_stdin();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn a_permission_that_was_no_option_allows_nothing() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let call = json!({ "command": "echo ran > ran.txt", "description": "d" });
    model.calls("c-1", "local_bash_tool", call);
    model.says(conjure_mock_llm::Message::new().text("Denied."));
    let editor = super::editor::Editor::default();
    editor.chooses(&["allow-everything"]);
    let can = agent_client_protocol::v1::schema::ClientCapabilities::new();
    super::editor::with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        talk.says(&id, "Run.").await?;
        Ok(())
    });
    assert!(!workspace.work().join("ran.txt").exists());
    let told = model.last_request().tool_result_text("c-1").unwrap();
    assert!(told.contains("`allow-everything`"), "{told}");
}
