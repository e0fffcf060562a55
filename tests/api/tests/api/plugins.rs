//! Plugins and MCP servers that are added, replaced and removed while a server and its sessions run.

use std::fs;

use conjure_kit::{Workspace, build_plugin};
use conjure_mock_llm::Message;
use conjure_plugin_tests::{Publisher, versioned};
use serde_json::{Value, json};

use crate::events::Client;
use crate::mcp::{program, workspace};
use crate::server::{Reply, Server};
use crate::stage::{Stage, text};

const CACHE: &str = "conjure-skill-cache-manager";

fn upload(server: &Server, bytes: &[u8]) -> Reply {
    let kind = [("content-type", "application/octet-stream")];
    server.ask("POST", "/api/v1/plugins", &kind, bytes)
}

/// As [`upload`], and allows what it asks for and shows.
fn upload_allowed(server: &Server, bytes: &[u8]) -> Reply {
    let kind = [("content-type", "application/octet-stream")];
    server.ask("POST", "/api/v1/plugins?yes=true", &kind, bytes)
}

fn names(server: &Server) -> Vec<String> {
    let listed = server.get("/api/v1/plugins").is(200).json();
    let plugins = listed["plugins"].as_array().unwrap().iter();
    plugins.map(|plugin| text(&plugin["name"])).collect()
}

#[test]
fn a_plugin_is_uploaded_removed_and_put_back_and_an_open_session_follows() {
    let server = Server::with(&Workspace::new().unwrap(), "", &[]);
    let stage = Stage::on(server);
    let server = &stage.server;
    let mut events = Client::follow(server, "/api/v1/plugins/events", None);
    assert_eq!(events.next().unwrap().kind, "missed");
    let tools = json!({ "backend": [{ "kind": "native" }], "policy": { "allow": ["*"] } });
    let session = text(&stage.session(&json!({ "tools": tools }))["id"]);
    stage.model.says(Message::new().text("nothing"));
    stage.talk(&session, "Hi.");
    assert_eq!(stage.model.last_request().tool_names(), [] as [&str; 0]);

    let library = fs::read(build_plugin(CACHE).unwrap()).unwrap();
    let added = upload(server, &library).is(200).json();
    assert_eq!(added["plugin"], "cache-manager");
    assert_eq!(added["change"]["action"], "add");
    assert_eq!(added["loaded"]["state"], "loaded");
    let event = events.next().unwrap();
    assert_eq!(
        (event.kind.as_str(), &event.data["plugin"]),
        ("added", &json!("cache-manager"))
    );
    assert_eq!(
        upload(server, &library).is(200).json()["change"],
        Value::Null
    );
    stage.model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    stage.model.says(Message::new().text("done"));
    stage.talk(&session, "Keep it.");
    assert_eq!(
        stage
            .model
            .last_request()
            .tool_result_text("toolu_1")
            .unwrap(),
        "stored"
    );

    let path = "/api/v1/plugins/cache-manager";
    server.post(&format!("{path}/reload"), &json!({})).is(200);
    let removed = server.delete(path).is(200).json();
    assert_eq!(removed["change"]["action"], "remove");
    assert!(names(server).is_empty());
    server.delete(path).is(404);
    server.post(&format!("{path}/reload"), &json!({})).is(404);
    server
        .post(&format!("{path}/rollback"), &json!({ "version": "9.0.0" }))
        .is(404);
    let back = server
        .post(&format!("{path}/rollback"), &json!({}))
        .is(200)
        .json();
    assert_eq!(back["loaded"]["name"], "cache-manager");
    assert_eq!(names(server), ["cache-manager"]);
    let history = server
        .get("/api/v1/plugins/history?plugin=cache-manager")
        .is(200)
        .json();
    let changes = history["changes"].as_array().unwrap().iter();
    let actions: Vec<&Value> = changes.map(|change| &change["action"]).collect();
    assert_eq!(actions, ["add", "remove", "rollback"]);
    let kinds: Vec<String> = (0..3).map(|_| events.next().unwrap().kind).collect();
    assert_eq!(kinds, ["reloaded", "removed", "added"]);
}

#[test]
fn a_plugin_that_is_loaded_again_is_so_at_every_server_of_the_directory() {
    let one = Server::with(&Workspace::new().unwrap(), "", &[]);
    let two = Server::with(&one.workspace, "", &[]);
    let mut events = Client::follow(&two, "/api/v1/plugins/events", None);
    assert_eq!(events.next().unwrap().kind, "missed");
    let library = fs::read(build_plugin(CACHE).unwrap()).unwrap();
    upload(&one, &library).is(200);
    assert_eq!(events.next().unwrap().kind, "added");
    let path = "/api/v1/plugins/cache-manager/reload";
    one.post(path, &json!({})).is(200);
    assert_eq!(events.next().unwrap().kind, "reloaded");
}

#[test]
fn a_plugin_that_must_be_configured_is_taken() {
    let server = Server::start();
    let library = fs::read(build_plugin("conjure-backend-ssh").unwrap()).unwrap();
    // It starts programs and has the network.
    upload(&server, &library).is(409);
    let added = upload_allowed(&server, &library).is(200).json();
    assert_eq!(added["loaded"]["name"], "ssh", "{added}");
    assert_eq!(names(&server), ["ssh"]);
}

#[test]
fn a_plugin_that_the_host_has_from_elsewhere_is_refused_and_leaves_nothing() {
    let workspace = Workspace::new().unwrap();
    let library = workspace.add_plugin(CACHE).unwrap();
    let server = Server::with(&workspace, "", &[]);
    let refused = upload(&server, &fs::read(library).unwrap());
    let detail = text(&refused.is(422).json()["detail"]);
    assert!(detail.contains("nothing was changed"), "{detail}");
    let history = server.get("/api/v1/plugins/history").is(200).json();
    assert_eq!(history["changes"], json!([]));
    server
        .post("/api/v1/plugins/cache-manager/rollback", &json!({}))
        .is(404);
}

#[test]
fn what_is_no_plugin_is_refused_and_leaves_nothing() {
    let server = Server::start();
    let refused = upload(&server, b"not a library").is(422).json();
    let detail = text(&refused["detail"]);
    assert!(detail.contains("the library: is a text file"), "{detail}");
    server
        .ask(
            "POST",
            "/api/v1/plugins",
            &[("content-type", "text/plain")],
            "x",
        )
        .is(415);
    assert!(names(&server).is_empty());
    let history = server.get("/api/v1/plugins/history").is(200).json();
    assert_eq!(history["changes"], json!([]));
    let files = server.workspace.files().unwrap();
    let left = files
        .iter()
        .find(|path| path.to_string_lossy().contains("plugin-"));
    assert_eq!(left, None);
}

#[test]
fn a_build_that_asks_for_more_is_taken_only_where_the_request_says_so() {
    let server = Server::start();
    let (asking, other) = (versioned("counter", "0.1.0"), versioned("counter", "0.2.0"));
    let first = upload(&server, &asking).is(409).json();
    assert_eq!(first["more"], json!(["connections of its own"]));
    assert!(names(&server).is_empty(), "nobody allowed it");
    upload_allowed(&server, &asking).is(200);
    // The very build was allowed.
    upload(&server, &asking).is(200);
    let upgraded = upload(&server, &other).is(200).json();
    let less = &upgraded["difference"]["permissions"]["less"];
    assert_eq!(*less, json!(["connections of its own"]));
    let refused = upload(&server, &asking).is(409).json();
    assert_eq!(
        refused["more"],
        json!(["connections of its own", "to go back to an older version"])
    );
    let rollback = "/api/v1/plugins/counter/rollback";
    server.post(rollback, &json!({})).is(409);
    let loaded = server.get("/api/v1/plugins").is(200).json();
    assert_eq!(
        loaded["plugins"][0]["version"], "0.2.0",
        "nothing was changed"
    );
    let back = server
        .post(rollback, &json!({ "yes": true }))
        .is(200)
        .json();
    assert_eq!(back["loaded"]["version"], "0.1.0");

    // What is known of a build goes some weeks after it was used last.
    for entry in fs::read_dir(server.workspace.data_dir().join("store")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".manifest.json") {
            fs::remove_file(path).unwrap();
        }
    }
    let unknown = server.post(rollback, &json!({})).is(409).json();
    let detail = text(&unknown["detail"]);
    assert!(detail.contains("is not known"), "{detail}");
    server.post(rollback, &json!({ "yes": true })).is(200);
}

#[test]
fn tools_that_look_otherwise_are_taken_only_where_the_request_says_so() {
    let server = Server::start();
    let (old, new) = (versioned("toucher", "0.1.0"), versioned("toucher", "0.2.0"));
    upload(&server, &old).is(200);
    let refused = upload(&server, &new).is(409).json();
    assert_eq!(
        refused["difference"]["tools"]["changed"],
        json!(["execute"])
    );
    let loaded = server.get("/api/v1/plugins").is(200).json();
    assert_eq!(
        loaded["plugins"][0]["version"], "0.1.0",
        "no session saw the other tools"
    );
    upload_allowed(&server, &new).is(200);
    let rollback = "/api/v1/plugins/toucher/rollback";
    server.post(rollback, &json!({})).is(409);
    let back = server.post(rollback, &json!({ "yes": true })).is(200);
    assert_eq!(
        back.json()["difference"]["tools"]["changed"],
        json!(["execute"])
    );
}

#[test]
fn a_package_is_sent_to_the_verb_that_takes_it() {
    let server = Server::start();
    let package = fs::read(Publisher::new().unsigned("0.1.0")).unwrap();
    let refused = upload(&server, &package).is(422).json();
    let detail = text(&refused["detail"]);
    assert!(detail.contains("`conjure plugin install`"), "{detail}");
    assert!(names(&server).is_empty());
}

#[test]
fn an_mcp_server_that_is_added_to_a_session_touches_no_other_and_no_backend() {
    let stage = Stage::on(Server::with(&workspace(), "", &[]));
    let log = |name: &str| stage.server.workspace.work().join(format!("{name}.log"));
    let settings = |name: &str| {
        let path = log(name).display().to_string();
        program(&["--name", name, "--log", &path])
    };
    let starts = |name: &str| {
        let log = fs::read_to_string(log(name)).unwrap_or_default();
        log.matches("\"start\"").count()
    };
    let tools = json!({ "policy": { "allow": ["*"] } });
    let session = stage.session(&json!({ "mcps": { "a": settings("a") }, "tools": tools }));
    let session = text(&session["id"]);
    let talk = || {
        stage.model.says(Message::new().text("fine"));
        stage.talk(&session, "Hi.");
        let request = stage.model.last_request();
        let names = request.tool_names().into_iter().map(str::to_owned);
        names.collect::<Vec<String>>()
    };
    let has = |names: &[String], server: &str| {
        names
            .iter()
            .any(|name| name.contains(&format!("{server}_")))
    };
    let before = talk();
    assert!(!before.is_empty() && starts("a") == 1, "{before:?}");
    let path = format!("/api/v1/sessions/{session}");
    let patch = |mcps: Value| {
        stage
            .server
            .send("PATCH", &path, &json!({ "mcps": mcps }))
            .is(200)
    };
    patch(json!({ "a": settings("a"), "b": settings("b") }));
    let both = talk();
    assert!(both.len() > before.len(), "{both:?}");
    assert_eq!((starts("a"), starts("b")), (1, 1));
    patch(json!({ "b": settings("b") }));
    let one = talk();
    assert_eq!(one.len(), before.len(), "{one:?}");
    assert!(has(&one, "b") && !has(&one, "a"), "{one:?}");
    assert_eq!((starts("a"), starts("b")), (1, 1));
}
