//! Servers with resources of their own under one URI: none is read in the place of another.

use conjure_skill_sdk::testkit::Outcome;
use serde_json::{Value, json};

use super::stage::{Stage, server, with};

/// What the tool `content` of every server links to.
const URI: &str = "mock://a";

/// The servers `a` and `b`, with these traits.
fn two(a: &[&str], b: &[&str]) -> Value {
    let named = |name: &str, traits: &[&str]| server(&[&["--name", name], traits].concat());
    json!({ "a": named("a", a), "b": named("b", b) })
}

fn ask(stage: &Stage, operation: &str) -> Outcome {
    stage.plugin.call(operation, json!({ "uri": URI }))
}

fn read(stage: &Stage) -> Outcome {
    ask(stage, "resource.read")
}

fn link(stage: &Stage, server: &str) {
    stage.call_in("one", server, "content", json!({}));
}

#[test]
fn what_several_servers_list_is_refused_with_their_names() {
    let servers = two(&["lists-linked", "watched"], &["lists-linked", "watched"]);
    let stage = Stage::new(servers.clone());
    for operation in ["resource.read", "resource.subscribe"] {
        let told = ask(&stage, operation).reply.unwrap_err().to_string();
        for part in ["2 MCP servers", ": a, b.", "links to", "resources = false"] {
            assert!(told.contains(part), "{operation}: {told}");
        }
    }
    // As it says, so it works.
    for (out, expected) in [("a", "b has mock://a"), ("b", "a has mock://a")] {
        let mut servers = servers.clone();
        servers[out] = with(servers[out].take(), json!({ "resources": false }));
        assert_eq!(read(&Stage::new(servers)).text(), expected);
    }
}

#[test]
fn a_link_leads_to_the_server_that_gave_it_though_another_lists_its_uri() {
    let stage = Stage::new(two(&["lists-linked"], &["lists-linked"]));
    link(&stage, "b");
    assert_eq!(read(&stage).text(), "b has mock://a");
    link(&stage, "a");
    assert_eq!(read(&stage).text(), "a has mock://a");
    // A link alone is no claim to what another server lists, and is one to what nobody does.
    for (of_a, expected) in [
        (&["lists-linked"][..], "a has mock://a"),
        (&[], "b has mock://a"),
    ] {
        let stage = Stage::new(two(of_a, &[]));
        link(&stage, "b");
        assert_eq!(read(&stage).text(), expected, "{of_a:?}");
    }
}

#[test]
fn a_link_to_what_its_server_does_not_have_leads_to_the_one_that_lists_it() {
    for of_b in [["lacks-linked"], ["tools-only"]] {
        let stage = Stage::new(two(&["lists-linked"], &of_b));
        link(&stage, "b");
        assert_eq!(read(&stage).text(), "a has mock://a", "{of_b:?}");
    }
}

#[test]
fn what_its_server_lists_and_refuses_is_no_other_servers() {
    let stage = Stage::new(two(&["lists-linked"], &["lists-linked", "lacks-linked"]));
    link(&stage, "b");
    let read = read(&stage);
    assert!(read.result().unwrap().is_error);
    assert!(read.text().contains("b has no such thing"));
}

#[test]
fn changes_are_told_of_by_the_server_that_gave_the_link() {
    // With what each server is, and whether the changes of the resource are told of.
    for (a, b, is_told) in [
        (
            &["lists-linked"][..],
            &["lists-linked", "watched"][..],
            true,
        ),
        (&["lists-linked", "watched"], &["lists-linked"], false),
        (&["lists-linked", "watched"], &["tools-only"], true),
    ] {
        let stage = Stage::new(two(a, b));
        link(&stage, "b");
        let subscribed = ask(&stage, "resource.subscribe").reply;
        assert_eq!(subscribed.is_ok(), is_told, "{b:?}: {subscribed:?}");
        match subscribed {
            Ok(_) => {
                let event = json!({ "event": "resource_updated", "uri": URI });
                assert!(stage.watched(|said| said.events.contains(&event)), "{b:?}");
            }
            Err(why) => assert!(why.to_string().contains("`b` does not tell of changes")),
        }
    }
}

#[test]
fn a_resource_that_another_hides_is_told_with_its_server() {
    let stage = Stage::new(two(&["lists-linked"], &["lists-linked"]));
    assert_eq!(
        stage.status_of("one", "a").get("quarantined"),
        None,
        "its resource is listed"
    );
    let left_out = stage.status_of("one", "b")["quarantined"].take();
    assert_eq!(left_out[0]["name"], "`mock://a` of its resources");
    let why = left_out[0]["why"].as_str().unwrap();
    assert!(why.contains("`a` lists the same URI"), "{why}");
    assert_eq!(left_out.as_array().unwrap().len(), 1);
}
