//! What people save: auths, personas, MCP servers; and what the host has: providers, plugins.

use std::path::Path;

use conjure_kit::{Signal, Workspace, build_bin};
use conjure_mock_llm::{MockLlm, Script};
use serde_json::{Value, json};

use crate::server::{Reply, Server};

/// What nobody may see again.
const SECRET: &str = "sk-nobody-sees-this-again-0123456789";

fn id(reply: &Reply) -> String {
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_secret_goes_in_and_never_comes_out() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "", &[("CONJURE_LOG", "trace")]);
    let new = json!({
        "name": "work", "provider": "anthropic", "kind": "api_key", "secret": SECRET,
    });
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "auth-1"),
    ];
    let mut replies = vec![
        server
            .ask("POST", "/api/v1/auths", &headers, new.to_string())
            .is(201),
        server
            .ask("POST", "/api/v1/auths", &headers, new.to_string())
            .is(201),
        server.post("/api/v1/auths", &new).is(409),
    ];
    let auth = id(&replies[0]);
    let path = format!("/api/v1/auths/{auth}");
    assert_eq!(replies[0].header("location"), Some(path.as_str()));
    assert_eq!(replies[2].kind(), "name-taken");
    replies.push(server.get(&path).is(200));
    replies.push(server.get("/api/v1/auths").is(200));
    let another = json!({ "secret": format!("{SECRET}-2"), "name": "home" });
    replies.push(server.send("PATCH", &path, &another).is(200));
    assert_eq!(replies[5].json()["name"], "home");
    let wrong = json!({ "secret": format!("{SECRET}\nx") });
    replies.push(server.send("PATCH", &path, &wrong).is(422));
    let unknown = json!({ "secret": SECRET, "key": SECRET });
    replies.push(server.send("PATCH", &path, &unknown).is(422));
    assert!(
        replies[7].json()["detail"]
            .as_str()
            .unwrap()
            .contains("`key`")
    );
    for reply in &replies {
        let text = String::from_utf8_lossy(&reply.body);
        assert!(!text.contains(SECRET), "{text}");
    }
    let output = server.end(Signal::TERM);
    assert!(output.stderr.contains("answered"), "nothing was logged");
    assert!(!output.stderr.contains(SECRET), "{}", output.stderr);
    assert!(files_without(&workspace.home(), SECRET) > 0);
}

/// Looks through all files below a directory for a text. How many there were.
pub(crate) fn files_without(dir: &Path, text: &str) -> usize {
    let search = conjure_kit::search(dir, text).unwrap();
    assert!(search.found.is_empty(), "{search:?}");
    search.files
}

#[test]
fn auths_are_tested_asked_for_models_and_removed() {
    let names = ["model-a".to_owned(), "gpt-5".to_owned()];
    let mock = MockLlm::start_blocking(Script::new().models(names)).unwrap();
    let server = Server::start();
    let auth = |name: &str, base_url: String| {
        let new = json!({
            "name": name, "provider": "openai", "kind": "api_key", "secret": "k",
            "base_url": base_url,
        });
        id(&server.post("/api/v1/auths", &new).is(201))
    };
    let good = auth("good", mock.base_url());
    let gone = auth("gone", "http://127.0.0.1:1/v1".to_owned());
    let test = |auth: &str| server.post(&format!("/api/v1/auths/{auth}/test"), &json!({}));
    assert_eq!(
        test(&good).is(200).json(),
        json!({ "works": true, "models": 2 })
    );
    let failed = test(&gone).is(200).json();
    assert_eq!(
        (&failed["works"], &failed["kind"]),
        (&json!(false), &json!("network"))
    );
    let models = server
        .get(&format!("/api/v1/auths/{good}/models"))
        .is(200)
        .json();
    let models = models["items"].as_array().unwrap();
    let known = models
        .iter()
        .find(|model| model["model"] == "gpt-5")
        .unwrap();
    assert_eq!(models.len(), 2);
    assert!(known["context"].as_u64() > Some(100_000), "{known}");
    let new = json!({ "name": "walk", "provider": "tool-walk", "kind": "base_url" });
    let walk = id(&server.post("/api/v1/auths", &new).is(201));
    assert_eq!(
        test(&walk).is(200).json(),
        json!({ "works": true, "models": 1 })
    );
    let none = server.get(&format!("/api/v1/auths/{gone}/models")).is(502);
    assert_eq!(none.kind(), "provider");
    server.delete(&format!("/api/v1/auths/{gone}")).is(204);
    server.get(&format!("/api/v1/auths/{gone}")).is(404);
    server.delete(&format!("/api/v1/auths/{gone}")).is(404);
}

#[test]
fn a_list_comes_in_pages_without_a_gap() {
    let server = Server::start();
    for number in 0..7 {
        let persona = json!({ "name": format!("p{number}"), "persona_text": "Be brief." });
        server.post("/api/v1/personas", &persona).is(201);
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/personas?limit=3".to_owned();
    loop {
        let page = server.get(&path).is(200).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 3);
        names.extend(
            items
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/personas?limit=3&cursor={next}");
    }
    assert_eq!(names, ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    for query in [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=%00",
        "cursor=!",
        "page=2",
    ] {
        server.get(&format!("/api/v1/personas?{query}")).is(422);
    }
}

#[test]
fn personas_are_made_changed_and_removed() {
    let server = Server::start();
    let new = json!({ "name": "Ada", "version": "2", "persona_text": "Grüße\n" });
    let made = server.post("/api/v1/personas", &new).is(201);
    let path = made.header("location").unwrap().to_owned();
    assert_eq!(
        server.post("/api/v1/personas", &new).is(409).kind(),
        "name-taken"
    );
    let change = json!({ "persona_text": "Be brief.", "version": "3" });
    let changed = server.send("PATCH", &path, &change).is(200).json();
    assert_eq!(
        (
            &changed["name"],
            &changed["version"],
            &changed["persona_text"]
        ),
        (&json!("Ada"), &json!("3"), &json!("Be brief."))
    );
    for wrong in [
        json!({ "name": "" }),
        json!({ "name": "a\nb" }),
        json!({ "name": 5 }),
        json!({ "persona_text": "a\u{0}" }),
        json!([]),
    ] {
        server.send("PATCH", &path, &wrong).is(422);
    }
    server.delete(&path).is(204);
    server.get(&path).is(404);
    server.send("PATCH", &path, &change).is(404);
}

#[test]
fn mcp_servers_are_made_imported_switched_off_and_removed() {
    let server = Server::start();
    let all = "/api/v1/mcp-servers";
    let new = json!({ "name": "notes", "settings": { "command": "notes-server" } });
    let made = server.post(all, &new).is(201);
    let path = made.header("location").unwrap().to_owned();
    assert_eq!(made.json()["enabled"], true);
    let off = server
        .send("PATCH", &path, &json!({ "enabled": false }))
        .is(200);
    assert_eq!(off.json()["enabled"], false);
    assert_eq!(off.json()["settings"], new["settings"]);
    let neither = json!({ "settings": { "args": [] } });
    server.send("PATCH", &path, &neither).is(422);
    let imports = [
        "claude mcp add one -e API_TOKEN=abcdef -- one-server --quiet",
        "{\"mcpServers\": {\"two\": {\"url\": \"https://two.example/mcp\"}}}",
        "[mcp_servers.three]\ncommand = \"three-server\"\n",
    ];
    for text in imports {
        let import = json!({ "text": text });
        let imported = server.post("/api/v1/mcp-servers/import", &import).is(201);
        assert!(!String::from_utf8_lossy(&imported.body).contains("abcdef"));
        assert_eq!(imported.json()["servers"].as_array().unwrap().len(), 1);
    }
    let listed = server.get(all).is(200).json();
    let found = |name: &str| {
        let items = listed["items"].as_array().unwrap();
        items
            .iter()
            .find(|item| item["name"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        found("one")["settings"]["env"]["API_TOKEN"],
        json!({ "secret": "MCP_ONE_API_TOKEN" })
    );
    assert_eq!(found("two")["settings"]["url"], "https://two.example/mcp");
    assert_eq!(found("three")["settings"]["command"], "three-server");
    // All of an import or nothing of it.
    let both = "[mcp_servers.four]\ncommand = \"x\"\n[mcp_servers.one]\ncommand = \"x\"\n";
    server
        .post("/api/v1/mcp-servers/import", &json!({ "text": both }))
        .is(409);
    assert_eq!(server.get(all).json()["items"].as_array().unwrap().len(), 4);
    server
        .post("/api/v1/mcp-servers/import", &json!({ "text": "nonsense" }))
        .is(422);
    server.delete(&path).is(204);
    server.get(&path).is(404);
}

#[test]
fn an_mcp_server_is_tried() {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    let server = Server::with(&workspace, "", &[]);
    let tried = |server: &Server, name: &str, settings: Value, enabled: bool| {
        let new = json!({ "name": name, "settings": settings, "enabled": enabled });
        let made = server.post("/api/v1/mcp-servers", &new).is(201);
        let path = format!("{}/test", made.header("location").unwrap());
        server.post(&path, &json!({}))
    };
    let command = program.display().to_string();
    let good = tried(
        &server,
        "good",
        json!({ "command": command, "start": "lazy" }),
        false,
    );
    let good = good.is(200).json();
    assert_eq!(
        (&good["works"], &good["state"]),
        (&json!(true), &json!("ready"))
    );
    assert!(good["tools"].as_u64() > Some(0), "{good}");
    let gone = tried(
        &server,
        "gone",
        json!({ "command": "no-such-program" }),
        true,
    );
    let gone = gone.is(200).json();
    assert_eq!(
        (&gone["works"], &gone["state"]),
        (&json!(false), &json!("failed"))
    );
    assert!(
        gone["why"].as_str().unwrap().contains("no-such-program"),
        "{gone}"
    );
    let without = Server::start();
    let refused = tried(&without, "good", json!({ "command": command }), true);
    assert_eq!(refused.is(409).kind(), "tools");
}

#[test]
fn providers_plugins_and_figures_are_shown() {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-skill-cache-manager").unwrap();
    workspace.write("bad/libnothing.so", "no library").unwrap();
    let bad = workspace.work().join("bad");
    let args = format!("--plugin-dir {}", bad.display());
    let server = Server::with(&workspace, &args, &[]);
    let providers = server.get("/api/v1/providers").is(200).json();
    let named = |provider: &Value| provider["name"] == "anthropic";
    assert!(providers["items"].as_array().unwrap().iter().any(named));
    let plugins = server.get("/api/v1/plugins").is(200).json();
    assert_eq!(plugins["plugins"][0]["name"], "cache-manager");
    assert!(!plugins["failed"][0]["reason"].as_str().unwrap().is_empty());
    let figures = server.get("/metrics").is(200);
    let text = String::from_utf8(figures.body).unwrap();
    let counted = "conjure_http_requests_total{method=\"GET\",route=\"/api/v1/plugins\",\
                   status=\"200\"} 1\n";
    assert!(
        text.contains(counted) && text.ends_with("# EOF\n"),
        "{text}"
    );
}
