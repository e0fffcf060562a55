//! Ten servers at once: each resource and each prompt is its own server's.

use conjure_skill_sdk::testkit::Outcome;
use serde_json::{Map, Value, json};

use super::stage::{Stage, runs, server, until, with};

/// Names of ten servers.
const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

fn ten(more: &[&str]) -> Map<String, Value> {
    let named = NAMES.iter().map(|name| {
        let traits = [&["--name", name], more].concat();
        ((*name).to_owned(), server(&traits))
    });
    named.collect()
}

fn read(stage: &Stage, uri: &str) -> Outcome {
    stage.plugin.call("resource.read", json!({ "uri": uri }))
}

fn prompt(stage: &Stage, name: &str) -> Value {
    let filled = stage.plugin.call("prompt.get", json!({ "name": name }));
    filled.reply.unwrap()["messages"][0]["content"]["text"].take()
}

#[test]
fn a_resource_is_read_from_the_server_that_lists_it_or_has_its_template() {
    let stage = Stage::new(ten(&[]).into());
    assert_eq!(stage.catalog().resource_templates.len(), 20);
    for name in NAMES {
        for what in ["listed", "7"] {
            let uri = format!("mock://{name}/{what}");
            assert_eq!(read(&stage, &uri).text(), format!("{name} has {uri}"));
        }
    }
}

#[test]
fn what_several_templates_fit_alike_is_refused_with_their_servers() {
    let stage = Stage::new(ten(&[]).into());
    let told = read(&stage, "mock://any/7").reply.unwrap_err().to_string();
    for part in [
        "10 MCP servers",
        "a (`mock://any/{id}`)",
        "j (`",
        "resources = false",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // As it says, so it works.
    let mut one = ten(&[]);
    for (name, server) in &mut one {
        server["resources"] = json!(name == "d");
    }
    let stage = Stage::new(one.into());
    assert_eq!(read(&stage, "mock://any/7").text(), "d has mock://any/7");
    assert_eq!(stage.catalog().resource_templates.len(), 2);
}

#[test]
fn what_no_server_has_is_not_found() {
    let stage = Stage::new(ten(&[]).into());
    let told = read(&stage, "other://x").reply.unwrap_err();
    assert!(told.to_string().contains("no MCP server lists `other://x`"));
}

#[test]
fn a_link_of_a_result_leads_to_the_server_that_gave_it() {
    let stage = Stage::new(ten(&[]).into());
    assert!(read(&stage, "mock://a").reply.is_err());
    stage.call_in("one", "g", "content", json!({}));
    assert_eq!(read(&stage, "mock://a").text(), "g has mock://a");
}

#[test]
fn a_server_that_is_slow_to_list_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    // Its first start is silent until it is asked in the other way.
    let slow = [
        "--name",
        "slow",
        "slow-first",
        "--log",
        log.to_str().unwrap(),
    ];
    let slow = with(
        server(&slow),
        json!({ "era": "auto", "probe_timeout_ms": 300 }),
    );
    let mut servers = ten(&[]);
    servers.insert("slow".to_owned(), slow);
    let stage = Stage::hurried(servers.into());
    assert_eq!(
        read(&stage, "mock://slow/7").text(),
        "slow has mock://slow/7"
    );
}

#[test]
fn lazy_servers_are_started_by_a_read_and_offer_what_they_had_before() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().to_str().unwrap();
    drop(Stage::with(ten(&[]).into(), |host| host.data_dir(dir)));
    let mut lazy = ten(&[]);
    for server in lazy.values_mut() {
        server["start"] = json!("lazy");
    }
    let stage = Stage::with(lazy.into(), |host| host.data_dir(dir));
    let catalog = stage.catalog();
    let counts = [
        catalog.resources.len(),
        catalog.resource_templates.len(),
        catalog.prompts.len(),
    ];
    assert_eq!(counts, [10, 20, 20]);
    assert_eq!(read(&stage, "mock://h/7").text(), "h has mock://h/7");
    let states = NAMES.map(|name| stage.status_of("one", name)["state"].clone());
    assert_eq!(states.iter().filter(|state| *state == "idle").count(), 9);
}

#[test]
fn a_prompt_that_several_have_is_each_ones_under_its_servers_name() {
    let stage = Stage::new(ten(&[]).into());
    let prompts = stage.catalog().prompts;
    assert_eq!(prompts.len(), 20);
    for name in NAMES {
        let own = format!("of-{name}");
        assert_eq!(prompt(&stage, &own), format!("{own} of {name}"));
        let shared = prompt(&stage, &format!("{name}_everybodys"));
        assert_eq!(shared, format!("everybodys of {name}"));
        let asked = json!({
            "reference": { "type": "ref/prompt", "name": format!("{name}_everybodys") },
            "argument": "x", "value": "",
        });
        let completed = stage.plugin.call("complete", asked).reply.unwrap();
        assert_eq!(
            completed["values"],
            json!([format!("\"everybodys\" of {name}")])
        );
    }
    assert!(
        stage
            .plugin
            .call("prompt.get", json!({ "name": "everybodys" }))
            .reply
            .is_err()
    );
}

#[test]
fn a_result_is_beside_its_text_as_the_server_sent_it() {
    let stage = Stage::new(ten(&[]).into());
    let result = read(&stage, "mock://c/7").result().unwrap();
    let content = json!({ "uri": "mock://c/7", "text": "c has mock://c/7", "vendor": 1 });
    assert_eq!(
        result.meta.unwrap()["mcp"],
        json!({ "contents": [content], "_meta": { "of": "c" } })
    );
}

#[test]
fn a_server_that_is_added_or_removed_touches_no_other() {
    let stage = Stage::new(json!({ "a": server(&["--name", "a"]), "b": server(&["--name", "b"]) }));
    let pid = |name: &str| stage.status_of("one", name)["pid"].as_u64().unwrap();
    let (a, b) = (pid("a"), pid("b"));
    let reopen = |servers: Value| {
        let options = json!({ "servers": servers, "catalog_wait_ms": 15_000 });
        let open = json!({ "options": options });
        stage.plugin.call("backend.reopen", open).reply
    };
    let more = json!({
        "a": server(&["--name", "a"]),
        "b": server(&["--name", "b"]),
        "c": server(&["--name", "c"]),
    });
    reopen(more).unwrap();
    let templates = stage.catalog().resource_templates.len();
    assert_eq!(templates, 6, "two of each of three");
    assert_eq!((pid("a"), pid("b")), (a, b));
    let c = pid("c");
    // Another configuration of one is another connection of that one.
    let other = json!({ "b": server(&["--name", "b"]), "c": server(&["--name", "other"]) });
    reopen(other).unwrap();
    stage.catalog();
    assert_eq!(pid("b"), b);
    assert_ne!(pid("c"), c);
    until("the others end", || !runs(a) && !runs(c));
    // Opened once more, as after the end of its worker, it has what it was given last.
    let options = json!({ "servers": { "b": server(&["--name", "b"]) } });
    stage
        .plugin
        .call("backend.open", json!({ "options": options }))
        .reply
        .unwrap();
    assert_eq!(stage.catalog().resource_templates.len(), 2);
    // What is no configuration changes nothing.
    assert!(reopen(json!(7)).is_err());
    assert_eq!(read(&stage, "mock://b/7").text(), "b has mock://b/7");
}
