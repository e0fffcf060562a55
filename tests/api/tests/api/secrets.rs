//! Secrets that are typed into settings of MCP servers: sealed, named in their place, given to the
//! server, and shown nowhere.

use conjure_kit::Signal;
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::mcp::{program, workspace};
use crate::saved::files_without;
use crate::server::Server;
use crate::stage::{Stage, text};

/// What nobody may see again.
const SECRET: &str = "nobody-sees-this-either-9876543210";

#[test]
fn a_secret_typed_into_settings_is_in_no_answer_file_or_line() {
    let workspace = workspace();
    let environment = [
        ("CONJURE_LOG", "trace"),
        // Of another server: what is typed gets another name.
        ("CONJURE_SECRET_MCP_FAR_X_OWN", "of-the-environment"),
    ];
    let server = Server::with(&workspace, "", &environment);
    let stage = Stage::on(server);
    let server = &stage.server;
    let typed = |number: u32| format!("{SECRET}-{number}");
    let mut settings = program(&["--token", &typed(1)]);
    settings["env"] = json!({ "API_TOKEN": typed(2), "PLAIN": typed(3) });
    let remote = json!({
        "url": format!("https://x.example/mcp?api_key={}", typed(4)),
        "headers": { "Authorization": format!("Bearer {}", typed(5)), "X-Own": typed(6) },
        "oauth": { "client_id": "me", "client_secret": typed(7) },
    });
    let all = "/api/v1/mcp-servers";
    let key = [
        ("content-type", "application/json"),
        ("idempotency-key", "k"),
    ];
    let new = json!({ "name": "notes", "settings": settings }).to_string();
    let mut replies = vec![
        server.ask("POST", all, &key, &new).is(201),
        server.ask("POST", all, &key, &new).is(201),
        server
            .post(all, &json!({ "name": "far", "settings": remote }))
            .is(201),
    ];
    let path = replies[0].header("location").unwrap().to_owned();
    let env = |reply: &Value| reply["settings"]["env"].clone();
    assert_eq!(
        env(&replies[0].json()),
        json!({
            "API_TOKEN": { "secret": "MCP_NOTES_API_TOKEN" }, "PLAIN": { "secret": "MCP_NOTES_PLAIN" },
        })
    );
    assert_eq!(
        replies[2].json()["settings"]["headers"]["Authorization"],
        json!({ "secret": "MCP_FAR_AUTHORIZATION", "prefix": "Bearer " })
    );
    assert_eq!(
        replies[2].json()["settings"]["headers"]["X-Own"],
        json!({ "secret": "MCP_FAR_X_OWN_2" })
    );
    // A name that is taken saves nothing.
    let saved = |server: &Server| server.get("/api/v1/auths?limit=200").is(200);
    let count = saved(server).json()["items"].as_array().unwrap().len();
    replies.push(
        server
            .post(all, &json!({ "name": "notes", "settings": settings }))
            .is(409),
    );
    // What was read may be sent back, with another secret.
    let mut settings = replies[0].json()["settings"].clone();
    settings["env"]["API_TOKEN"] = json!(typed(8));
    let patch = json!({ "settings": settings });
    replies.push(server.send("PATCH", &path, &patch).is(200));
    let env = env(&replies[4].json());
    assert_eq!(
        env["API_TOKEN"],
        json!({ "secret": "MCP_NOTES_API_TOKEN_2" })
    );
    assert_eq!(env["PLAIN"], json!({ "secret": "MCP_NOTES_PLAIN" }));
    replies.push(saved(server));
    assert_eq!(
        replies[5].json()["items"].as_array().unwrap().len(),
        count + 1
    );
    // Into a session too, in both places; its copy of a saved server says nothing new.
    let session = stage.session(&json!({
        "mcps": { "notes": replies[4].json()["settings"], "own": program(&["--key", &typed(9)]) },
        "tools": { "policy": { "allow": ["*"] }, "backend": [{
            "kind": "mcp", "name": "more",
            "config": { "servers": { "b": { "url": "https://b.example/mcp", "headers": { "K": typed(10) } } } },
        }] },
    }));
    assert_eq!(session["mcps"]["notes"], replies[4].json()["settings"]);
    let named = &session["tools"]["backend"][0]["config"]["servers"]["b"]["headers"]["K"];
    assert_eq!(named, &json!({ "secret": "MCP_B_K" }));
    let id = text(&session["id"]);
    let at = format!("/api/v1/sessions/{id}");
    let mut mcps = session["mcps"].clone();
    mcps["own"]["env"] = json!({ "TYPED": typed(11) });
    replies.push(server.send("PATCH", &at, &json!({ "mcps": mcps })).is(200));
    assert_eq!(
        replies[6].json()["mcps"]["own"]["env"]["TYPED"],
        json!({ "secret": "MCP_OWN_TYPED" })
    );
    replies.push(
        server
            .send(
                "PATCH",
                &at,
                &json!({ "mcps": { "x": { "env": { "T": typed(12) } } }, "model": "" }),
            )
            .is(422),
    );
    for path in [all, &at, "/api/v1/sessions"] {
        replies.push(server.get(path).is(200));
    }
    // The server gets what was typed: it starts with it.
    stage.model.calls("call_1", "notes_environment", json!({}));
    stage.model.says(Message::new().text("So be it."));
    stage.talk(&id, "Which variables?");
    assert!(
        stage
            .model
            .last_request()
            .body
            .to_string()
            .contains("API_TOKEN")
    );
    let tried = server.post(&format!("{path}/test"), &json!({})).is(200);
    assert_eq!(tried.json()["works"], true);
    replies.push(tried);
    let asked = stage.model.requests();
    let asked = asked.iter().map(|request| request.body.to_string());
    let shown = replies
        .iter()
        .map(|reply| String::from_utf8_lossy(&reply.body).into_owned());
    for text in shown.chain(asked).chain([session.to_string()]) {
        assert!(!text.contains(SECRET), "{text}");
    }
    let output = stage.server.end(Signal::TERM);
    assert!(output.stderr.contains("answered"), "nothing was logged");
    assert!(!output.stderr.contains(SECRET), "{}", output.stderr);
    assert!(files_without(&workspace.home(), SECRET) > 0);
}

#[test]
fn a_secret_that_an_import_names_is_saved_under_its_name_and_used() {
    let server = Server::with(&workspace(), "", &[]);
    let command = text(&program(&[])["command"]);
    let text = format!("claude mcp add one -e API_TOKEN=abcdef -- {command}");
    let imported = server
        .post("/api/v1/mcp-servers/import", &json!({ "text": text }))
        .is(201)
        .json();
    assert_eq!(imported["secrets"][0]["secret"], "MCP_ONE_API_TOKEN");
    let test = format!(
        "/api/v1/mcp-servers/{}/test",
        imported["servers"][0]["id"].as_str().unwrap()
    );
    let tried = server.post(&test, &json!({})).is(200).json();
    assert!(
        tried["why"].as_str().unwrap().contains("MCP_ONE_API_TOKEN"),
        "{tried}"
    );
    let auth = |name: &str, kind: &str| json!({ "name": name, "provider": "mcp", "kind": kind, "secret": "abcdef" });
    server
        .post("/api/v1/auths", &auth("ONE_TOKEN", "api_key"))
        .is(422);
    server
        .post("/api/v1/auths", &auth("MCP_ONE_API_TOKEN", "bearer_token"))
        .is(422);
    let saved = server
        .post("/api/v1/auths", &auth("MCP_ONE_API_TOKEN", "api_key"))
        .is(201);
    assert_eq!(server.post(&test, &json!({})).is(200).json()["works"], true);
    // It is no auth of a session, and no provider is asked with it.
    let auth = format!("/api/v1/auths/{}", saved.json()["id"].as_str().unwrap());
    server.post(&format!("{auth}/test"), &json!({})).is(422);
    server.get(&format!("{auth}/models")).is(422);
    let session = json!({ "auth": saved.json()["id"], "model": "m",
        "working_dir": server.workspace.work().display().to_string() });
    server.post("/api/v1/sessions", &session).is(422);
}

#[cfg(target_os = "linux")]
#[test]
fn a_variable_that_holds_a_token_is_in_no_environment() {
    let token = "a-token-of-somebody-else";
    let workspace = crate::mcp::workspace();
    let server = Server::with(
        &workspace,
        "--token-env MINE_ACCESS",
        &[("MINE_ACCESS", token)],
    );
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    server.ask("GET", "/api/v1/auths", &headers, "").is(200);
    let settings = json!({
        "command": "/bin/sh", "args": ["-c", "env >seen.new; mv seen.new seen"],
        "cwd": workspace.work().display().to_string(), "pass_env": ["MINE_ACCESS", "LANG"],
    });
    let path = crate::mcp::saved(&server, "notes", &settings);
    server.post(&format!("{path}/test"), &json!({})).is(200);
    let seen = workspace.read("seen").unwrap();
    assert!(seen.contains("LANG=") && !seen.contains(token), "{seen}");
}
