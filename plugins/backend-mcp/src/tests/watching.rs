//! Resources that are watched: nothing is missed between connections, streams and configurations.

use std::cell::Cell;
use std::path::Path;

use conjure_skill_sdk::testkit::Outcome;
use serde_json::{Value, json};

use super::listening::Listening;
use super::stage::{Stage, log, server, until, with};

/// A server of either era, and one that tells of nothing by itself.
const TELLING: [&[&str]; 2] = [&["watched"], &["watched", "modern"]];
const QUIET: [&[&str]; 2] = [&["watched", "quiet"], &["watched", "quiet", "modern"]];

/// A server of these traits that says which era it speaks, with a log.
fn logging(traits: &[&str], path: &Path) -> Value {
    let traits = [traits, &["--log", path.to_str().unwrap()]].concat();
    with(
        server(&traits),
        json!({ "era": "auto", "probe_timeout_ms": 700 }),
    )
}

fn auto(traits: &[&str]) -> Value {
    let era = json!({ "era": "auto", "probe_timeout_ms": 700 });
    with(server(traits), era)
}

fn ask(stage: &Stage, operation: &str, uri: &str) -> Outcome {
    stage.plugin.call(operation, json!({ "uri": uri }))
}

fn subscribe(stage: &Stage, uri: &str) -> Outcome {
    ask(stage, "resource.subscribe", uri)
}

/// How often it was told so far that a resource says something else.
fn told(stage: &Stage, uri: &str) -> usize {
    let event = json!({ "event": "resource_updated", "uri": uri });
    let times = Cell::new(0);
    stage.watched(|said| {
        times.set(said.events.iter().filter(|known| **known == event).count());
        true
    });
    times.get()
}

#[test]
fn what_is_watched_stays_watched_when_its_server_is_configured_anew() {
    for traits in TELLING {
        let stage = Stage::new(json!({ "s": auto(traits) }));
        subscribe(&stage, "mock://a").reply.unwrap();
        until("it is told of", || told(&stage, "mock://a") > 0);
        let before = told(&stage, "mock://a");
        let other = with(auto(traits), json!({ "env": { "CONFIGURED": "anew" } }));
        let options = json!({ "servers": { "s": other }, "catalog_wait_ms": 15_000 });
        let reopened = stage
            .plugin
            .call("backend.reopen", json!({ "options": options }));
        reopened.reply.unwrap();
        until("it is told of again", || told(&stage, "mock://a") > before);
    }
}

#[test]
fn what_may_have_changed_without_a_connection_is_told_of() {
    for traits in QUIET {
        let stage = Stage::new(json!({ "s": auto(traits) }));
        subscribe(&stage, "mock://a").reply.unwrap();
        assert_eq!(told(&stage, "mock://a"), 0, "{traits:?}");
        stage.call("crash", json!({}));
        until("it is told of", || told(&stage, "mock://a") > 0);
    }
}

#[test]
fn what_may_have_changed_without_a_stream_is_told_of() {
    let server = Listening::new(&["watched", "quiet", "modern"]);
    let stage = Stage::new(json!({ "s": server.config() }));
    subscribe(&stage, "mock://a").reply.unwrap();
    assert_eq!(told(&stage, "mock://a"), 0);
    server.ask("POST /cut");
    until("it is told of", || told(&stage, "mock://a") > 0);
}

#[test]
fn a_stream_for_more_resources_stands_before_the_one_before_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let traits = ["watched", "quiet", "modern"];
    let stage = Stage::new(json!({ "s": logging(&traits, &path) }));
    for uri in ["mock://a", "mock://b"] {
        subscribe(&stage, uri).reply.unwrap();
    }
    let cancelled = |log: &[Value], id: &Value| {
        log.iter().position(|line| {
            line["method"] == "notifications/cancelled" && line["params"]["requestId"] == *id
        })
    };
    let listening = |log: &[Value], uris: Value| {
        log.iter().position(|line| {
            let filter = &line["params"]["notifications"];
            line["method"] == "subscriptions/listen" && filter["resourceSubscriptions"] == uris
        })
    };
    let first = |log: &[Value]| listening(log, json!(["mock://a"])).unwrap();
    until("the first one ends", || {
        let log = log(&path);
        cancelled(&log, &log[first(&log)]["id"]).is_some()
    });
    let log = log(&path);
    let end = cancelled(&log, &log[first(&log)]["id"]).unwrap();
    let second = listening(&log, json!(["mock://a", "mock://b"])).unwrap();
    assert!(second < end, "{log:?}");
    // Lists are told of by one of their own, which goes on.
    let lists = listening(&log, Value::Null).unwrap();
    assert_eq!(cancelled(&log, &log[lists]["id"]), None);
}

#[test]
fn a_resource_that_is_refused_costs_no_other_and_no_list() {
    for traits in TELLING {
        let stage = Stage::new(json!({ "s": auto(traits) }));
        subscribe(&stage, "mock://a").reply.unwrap();
        let refused = subscribe(&stage, "mock://refused").reply.unwrap_err();
        let refused = refused.to_string();
        // It may be another source's.
        assert!(refused.contains("no MCP server lists"), "{refused}");
        stage.text("change", json!({}));
        until("it is listed", || stage.tool("newcomer").is_some());
        subscribe(&stage, "mock://b").reply.unwrap();
        until("it is told of", || told(&stage, "mock://b") > 0);
    }
}

#[test]
fn what_may_be_another_sources_is_no_reason_to_blame_the_only_server() {
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let refused = subscribe(&stage, "other://x")
        .reply
        .unwrap_err()
        .to_string();
    assert!(refused.contains("no MCP server lists"), "{refused}");
}

#[test]
fn a_server_hears_wishes_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let stage = Stage::new(json!({ "s": logging(&["watched"], &path) }));
    for _ in 0..10 {
        subscribe(&stage, "mock://a").reply.unwrap();
        ask(&stage, "resource.unsubscribe", "mock://a")
            .reply
            .unwrap();
    }
    subscribe(&stage, "mock://a").reply.unwrap();
    let log = log(&path);
    let mut methods = log.iter().filter_map(|line| line["method"].as_str());
    let last = methods.rfind(|method| method.ends_with("subscribe"));
    assert_eq!(last, Some("resources/subscribe"));
}

#[test]
fn an_update_waits_where_the_hosts_queue_is_full() {
    let servers = json!({ "s": server(&["watched"]) });
    let stage = Stage::with(servers, |host| host.capacity(1));
    let uris = ["mock://a", "mock://b", "mock://c", "mock://d"];
    for uri in uris {
        subscribe(&stage, uri).reply.unwrap();
    }
    for uri in uris {
        until("it is told of", || told(&stage, uri) > 0);
    }
}
