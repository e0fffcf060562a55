//! Resources of servers behind `conjure mcp serve`: who is asked for one, and whose changes a client
//! hears of.

use std::fs;

use conjure_kit::{MockMcp, Workspace, cli};
use serde_json::{Value, json};

use crate::notices::{ask, client};
use crate::own::{served, served_in};
use crate::wire::{OverStdio, Wire as _};

/// A gateway in front of servers with these arguments, each in a backend of its own.
fn gateway(workspace: &Workspace, servers: &[&[&str]]) -> OverStdio {
    configure(workspace, servers);
    served(workspace)
}

/// The session file of such a gateway.
fn configure(workspace: &Workspace, servers: &[&[&str]]) {
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let program = MockMcp::program().unwrap();
    let backends = servers.iter().enumerate().map(|(number, args)| {
        format!(
            "[[backend]]\nkind = \"mcp\"\nname = \"m{number}\"\n[backend.config.servers.s{number}]\n\
             command = {program:?}\nargs = {args:?}\nera = \"legacy\"\n"
        )
    });
    workspace
        .write("session.toml", backends.collect::<String>())
        .unwrap();
}

#[test]
fn of_two_backends_with_one_template_the_one_that_has_the_resource_is_read() {
    let workspace = Workspace::new().unwrap();
    let mut gateway = gateway(&workspace, &[&["--name", "a"], &["--name", "b"]]);
    for name in ["a", "b"] {
        let uri = format!("mock://any/of-{name}");
        let read = gateway.ask("resources/read", &json!({ "uri": uri }));
        let text = format!("{name} has {uri}");
        assert_eq!(read["contents"][0]["text"], text, "{read}");
    }
    let nobodys = json!({ "uri": "mock://any/of-c" });
    let refused = gateway.ask("resources/read", &nobodys);
    assert!(refused["error"]["message"].is_string(), "{refused}");
}

#[test]
fn of_two_servers_that_list_one_uri_neither_is_read_for_the_other() {
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let program = MockMcp::program().unwrap();
    let servers = ["db-a", "db-b"].map(|name| {
        format!(
            "[backend.config.servers.{name}]\ncommand = {program:?}\nera = \"legacy\"\n\
             args = [\"--name\", \"{name}\", \"lists-linked\"]\n"
        )
    });
    let session = format!("[[backend]]\nkind = \"mcp\"\n{}", servers.concat());
    workspace.write("session.toml", session).unwrap();
    let mut client = client(&workspace);
    let listed = ask(&mut client, 10, "resources/list", &json!({}));
    let listed = listed["result"]["resources"].as_array().unwrap().iter();
    let names = listed.filter(|resource| resource["uri"] == "mock://a");
    let names: Vec<&Value> = names.map(|resource| &resource["name"]).collect();
    assert_eq!(names, ["a of db-a"]);
    let hidden = "resources of `db-b` are not listed, since `db-a` lists the same URIs: `mock://a`";
    client.wait_for_stderr(hidden).unwrap();
    let uri = json!({ "uri": "mock://a" });
    let refused = ask(&mut client, 11, "resources/read", &uri);
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains(": db-a, db-b."), "{told}");
    for (id, name) in [(20, "db-b"), (30, "db-a")] {
        let call = json!({ "name": format!("{name}_content"), "arguments": {} });
        let called = ask(&mut client, id, "tools/call", &call);
        assert_eq!(
            called["result"]["content"][3]["uri"], "mock://a",
            "{called}"
        );
        let read = ask(&mut client, id + 1, "resources/read", &uri);
        let text = format!("{name} has mock://a");
        assert_eq!(read["result"]["contents"][0]["text"], text, "{read}");
    }
    for verb in ["list", "check"] {
        let told = cli(["mcp", verb, "--config", "session.toml"]);
        let told = told.workspace(&workspace).run().unwrap().snapshot();
        assert!(told.contains("`mock://a` of its resources"), "{told}");
        assert!(told.contains("`db-a` lists the same URI"), "{told}");
    }
}

/// Calls the tool of a server whose result links to `mock://a`.
fn follow_link_of(gateway: &mut OverStdio, server: &str) {
    let call = json!({ "name": format!("{server}_content"), "arguments": {} });
    let called = gateway.ask("tools/call", &call);
    assert_eq!(called["content"][3]["uri"], "mock://a", "{called}");
}

#[test]
fn of_two_backends_that_list_one_uri_neither_is_read_for_the_other() {
    let workspace = Workspace::new().unwrap();
    let backends = ["a", "b", "c"].map(|name| ["--name", name, "lists-linked"]);
    let lists_another: &[&str] = &backends[2][..2];
    let mut gateway = gateway(&workspace, &[&backends[0], &backends[1], lists_another]);
    let uri = json!({ "uri": "mock://a" });
    let refused = gateway.ask("resources/read", &uri);
    let told = refused["error"]["message"].as_str().unwrap();
    for part in [
        ": backend `m0`, backend `m1`.",
        "links to it",
        "resources = false",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // A link of one that does not list it counts for nothing beside that of one that does.
    follow_link_of(&mut gateway, "s2");
    let refused = gateway.ask("resources/read", &uri);
    assert!(refused["error"]["message"].is_string(), "{refused}");
    for server in ["s1", "s2"] {
        follow_link_of(&mut gateway, server);
        let read = gateway.ask("resources/read", &uri);
        assert_eq!(read["contents"][0]["text"], "b has mock://a", "{read}");
    }
    follow_link_of(&mut gateway, "s0");
    let refused = gateway.ask("resources/read", &uri);
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains("linked to by results of 2 sources"), "{told}");
}

#[test]
fn a_link_takes_no_resource_from_the_backend_that_lists_it() {
    let workspace = Workspace::new().unwrap();
    let listing = ["--name", "a", "lists-linked"];
    let linking = ["--name", "b"];
    let mut gateway = gateway(&workspace, &[&listing, &linking]);
    follow_link_of(&mut gateway, "s1");
    let read = gateway.ask("resources/read", &json!({ "uri": "mock://a" }));
    assert_eq!(read["contents"][0]["text"], "a has mock://a", "{read}");
}

#[test]
fn a_client_hears_of_changes_of_the_backend_that_gave_the_link() {
    let silent = ["--name", "a", "lists-linked"];
    let telling = ["--name", "b", "lists-linked", "watched"];
    let begin = |workspace: &Workspace| gateway(workspace, &[&silent, &telling]);
    let subscribe = |gateway: &mut OverStdio, server: Option<&str>| {
        if let Some(server) = server {
            follow_link_of(gateway, server);
        }
        let uri = json!({ "uri": "mock://a" });
        let answer = gateway.ask("resources/subscribe", &uri);
        answer["error"]["message"].as_str().map(str::to_owned)
    };
    let workspace = Workspace::new().unwrap();
    let mut gateway = begin(&workspace);
    let several = subscribe(&mut gateway, None).unwrap();
    assert!(several.contains("backend `m0`, backend `m1`"), "{several}");
    let refused = subscribe(&mut gateway, Some("s0")).unwrap();
    assert!(
        refused.contains("`s0` does not tell of changes"),
        "{refused}"
    );
    let workspace = Workspace::new().unwrap();
    let mut gateway = begin(&workspace);
    assert_eq!(subscribe(&mut gateway, Some("s1")), None);
    let told = gateway.until_told("notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "mock://a");
}

#[test]
fn a_client_hears_of_changes_of_a_resource_or_that_it_cannot() {
    let workspace = Workspace::new().unwrap();
    let uri = json!({ "uri": "mock://a" });
    let mut telling = gateway(&workspace, &[&["watched"]]);
    let subscribed = telling.ask("resources/subscribe", &uri);
    assert_eq!(subscribed.get("error"), None, "{subscribed}");
    let told = telling.until_told("notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "mock://a");
    let workspace = Workspace::new().unwrap();
    let mut silent = gateway(&workspace, &[&[]]);
    let refused = silent.ask("resources/subscribe", &uri)["error"]["message"].to_string();
    assert!(refused.contains("does not tell of changes"), "{refused}");
    // What is no server's is no reason to refuse: a file of a call, or what another source may have.
    for others in ["conjure://artifact/file-1", "skill://notes"] {
        let taken = silent.ask("resources/subscribe", &json!({ "uri": others }));
        assert_eq!(taken.get("error"), None, "{taken}");
    }
}

#[test]
fn a_client_that_subscribes_again_is_subscribed_once() {
    let workspace = Workspace::new().unwrap();
    let uri = json!({ "uri": "mock://a" });
    let log = workspace.root().join("log");
    let args = ["watched", "--log", log.to_str().unwrap()];
    let mut telling = gateway(&workspace, &[&args]);
    let ask = |telling: &mut OverStdio, method: &str| {
        let said = telling.ask(&format!("resources/{method}"), &uri);
        assert_eq!(said.get("error"), None, "{method}: {said}");
    };
    ask(&mut telling, "subscribe");
    ask(&mut telling, "subscribe");
    let told = telling.until_told("notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "mock://a");
    // What is told from here on is of the last one.
    ask(&mut telling, "unsubscribe");
    ask(&mut telling, "subscribe");
    let told = telling.until_told("notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "mock://a");
    let heard = fs::read_to_string(&log).unwrap();
    let heard = heard
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let subscribed = heard.filter(|line: &Value| line["method"] == "resources/subscribe");
    assert_eq!(subscribed.count(), 2, "the second one is no request");
}

#[test]
fn a_stream_tells_of_lists_while_a_server_answers_none_of_its_resources() {
    let workspace = Workspace::new().unwrap();
    configure(&workspace, &[&["watched"]]);
    let mut gateway = served_in(&workspace, true);
    let tools = gateway.list("tools/list", "tools");
    let mut names = tools.iter().filter_map(|tool| tool["name"].as_str());
    let change = names.find(|name| name.ends_with("_change")).unwrap();
    let uris = (0..20).map(|number| format!("mock://unanswered/{number}"));
    let uris: Vec<String> = uris.collect();
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": uris });
    gateway.begin("subscriptions/listen", &json!({ "notifications": wanted }));
    gateway.until_told("notifications/subscriptions/acknowledged");
    let call = json!({ "name": change, "arguments": {} });
    let changed = gateway.ask("tools/call", &call);
    assert_eq!(changed["content"][0]["text"], "changed", "{changed}");
    gateway.until_told("notifications/tools/list_changed");
}
