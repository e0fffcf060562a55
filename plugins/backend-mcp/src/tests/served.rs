//! A session with a program on the other side: servers hear at once what it can be asked, and it
//! gets what they say word for word.

use conjure_skill_sdk::protocol::ServedClient;
use conjure_skill_sdk::testkit::TestHostBuilder;
use serde_json::{Value, json};

use super::listening::Listening;
use super::stage::{Stage, log, server, with};

const NOTHING: ServedClient = ServedClient {
    form: false,
    url: false,
    sample: false,
    roots: false,
};

/// A host with a client on the other side.
fn of(client: ServedClient) -> impl FnOnce(TestHostBuilder) -> TestHostBuilder {
    move |host| host.client(client)
}

/// What a server of the older era was told in its handshake.
fn told(client: Option<ServedClient>, more: Value) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let config = with(server(&["--log", path.to_str().unwrap()]), more);
    let _stage = Stage::with(json!({ "s": config }), |host| match client {
        Some(client) => host.client(client),
        None => host,
    });
    let log = log(&path);
    let handshake = log.iter().find(|line| line["method"] == "initialize");
    handshake.unwrap()["params"]["capabilities"].clone()
}

#[test]
fn a_server_is_told_at_the_beginning_what_its_client_can_be_asked() {
    let form_and_model = ServedClient {
        form: true,
        sample: true,
        ..NOTHING
    };
    let directories = ServedClient {
        roots: true,
        url: true,
        ..NOTHING
    };
    let form = json!({ "form": {} });
    for (client, more, expected) in [
        (NOTHING, json!({}), json!({})),
        (
            form_and_model,
            json!({}),
            json!({ "elicitation": form, "sampling": {} }),
        ),
        (
            directories,
            json!({}),
            json!({ "elicitation": { "url": {} }, "roots": {} }),
        ),
        // What is configured holds for clients too.
        (
            form_and_model,
            json!({ "sampling": false }),
            json!({ "elicitation": form }),
        ),
        (
            form_and_model,
            json!({ "elicitation": false }),
            json!({ "sampling": {} }),
        ),
        (NOTHING, json!({ "sampling": true }), json!({})),
    ] {
        let told = told(Some(client), more.clone());
        assert_eq!(told, expected, "{client:?} {more}");
    }
    let person = json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} });
    assert_eq!(told(None, json!({})), person);
}

#[test]
fn every_call_of_the_newer_era_says_what_its_client_can_be_asked() {
    let form = ServedClient {
        form: true,
        ..NOTHING
    };
    let listening = Listening::new(&["modern"]);
    for config in [
        with(server(&["modern"]), json!({ "era": "modern" })),
        listening.config(),
    ] {
        let stage = Stage::with(json!({ "s": config }), of(form));
        let said = stage.call("meta", json!({})).result().unwrap();
        let said = &said.meta.unwrap()["mcp_result"]["structuredContent"];
        let capabilities = &said["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(*capabilities, json!({ "elicitation": { "form": {} } }));
    }
}

#[test]
fn a_question_that_the_client_cannot_answer_is_refused_unasked() {
    let config = with(server(&[]), json!({ "sampling": true }));
    let stage = Stage::with(json!({ "s": config }), of(NOTHING));
    for tool in ["ask", "sample", "roots"] {
        let said = stage.call(tool, json!({})).result().unwrap().meta.unwrap();
        let said = said["mcp_result"].to_string();
        assert!(said.contains("-32601"), "{tool}: {said}");
    }
}

#[test]
fn a_result_goes_to_the_client_as_the_server_sent_it() {
    let plain = Stage::new(json!({ "s": server(&[]) }));
    let stage = Stage::with(json!({ "s": server(&[]) }), of(NOTHING));
    let meta = |stage: &Stage| {
        stage
            .call("content", json!({}))
            .result()
            .unwrap()
            .meta
            .unwrap()
    };
    assert!(
        !meta(&plain).contains_key("mcp_result"),
        "nobody asked for it"
    );
    let whole = &meta(&stage)["mcp_result"];
    let blocks = json!([
        { "type": "text", "text": "words" },
        { "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" },
        { "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" },
        { "type": "resource_link", "uri": "mock://a", "name": "a.txt" },
        { "type": "resource", "resource": { "uri": "mock://e", "text": "embedded" } },
        { "type": "hologram", "depth": 3 },
        { "type": "text", "text": 5 },
    ]);
    let expected = json!({ "content": blocks, "structuredContent": { "answer": 42 } });
    assert_eq!(*whole, expected);
    let read = stage
        .plugin
        .call("resource.read", json!({ "uri": "mock://a" }));
    let contents = json!([{ "uri": "mock://a", "text": "what a says" }]);
    assert_eq!(
        read.result().unwrap().meta.unwrap()["mcp_result"],
        json!({ "contents": contents })
    );
    let prompt = stage.plugin.call("prompt.get", json!({ "name": "p" }));
    let message = json!({ "role": "user", "content": { "type": "text", "text": "p" } });
    assert_eq!(
        prompt.reply.unwrap()["meta"]["mcp_result"],
        json!({ "messages": [message] })
    );
}

#[test]
fn an_error_of_the_protocol_goes_to_the_client_as_the_server_sent_it() {
    let stage = Stage::with(json!({ "s": server(&["--name", "n"]) }), of(NOTHING));
    let refused = json!({ "code": -32002, "message": "n has no such thing" });
    let read = json!({ "uri": "other://none" });
    let prompt = stage.plugin.call("prompt.get", json!({ "name": "none" }));
    assert_eq!(prompt.reply.unwrap()["meta"]["mcp_error"], refused);
    let told = stage.plugin.call("resource.read", read.clone());
    assert_eq!(told.reply.unwrap()["meta"]["mcp_error"], refused);
    // Without one, another backend may have what no server is known to have.
    let plain = Stage::new(json!({ "s": server(&["--name", "n"]) }));
    let told = plain.plugin.call("resource.read", read).reply.unwrap_err();
    assert!(told.to_string().contains("n has no such thing"), "{told}");
    let odd = stage.call("odd", json!({ "kind": "error_string" }));
    let error = json!({ "code": -32603, "message": "just text" });
    assert_eq!(odd.result().unwrap().meta.unwrap()["mcp_error"], error);
}

#[test]
fn a_resource_that_is_watched_is_told_of_in_both_eras() {
    let subscribe = |stage: &Stage| {
        let plugin = stage.plugin.session("one");
        plugin.call("resource.subscribe", json!({ "uri": "mock://a" }))
    };
    for traits in [&["watched"][..], &["watched", "modern"]] {
        let era = json!({ "era": "auto", "probe_timeout_ms": 700 });
        let stage = Stage::new(json!({ "s": with(server(traits), era) }));
        subscribe(&stage).reply.unwrap();
        let updated = json!({ "event": "resource_updated", "uri": "mock://a" });
        let is_told = stage.watched(|said| said.events.contains(&updated));
        assert!(is_told, "{traits:?}");
    }
    let stage = Stage::new(json!({ "s": server(&[]) }));
    let refused = subscribe(&stage).reply.unwrap_err().to_string();
    assert!(refused.contains("does not tell of changes"), "{refused}");
}
