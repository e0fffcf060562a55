//! Sessions: made, configured, switched, deleted.

use conjure_kit::Workspace;
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use crate::page::page;
use crate::server::Server;
use crate::stage::{Stage, auth, text};

#[test]
fn a_session_is_made_listed_changed_and_deleted() {
    let stage = Stage::new();
    let server = &stage.server;
    let more = json!({
        "name": "Site plan",
        "persona": { "name": "Ada", "version": "1", "persona_text": "Be brief." },
        "memory": { "likes": ["short answers"] },
    });
    let made = stage.session(&more);
    let path = format!("/api/v1/sessions/{}", text(&made["id"]));
    assert_eq!(
        (&made["state"], &made["queued"]),
        (&json!("idle"), &json!(0))
    );
    assert_eq!(made["auth"]["provider"], "anthropic");
    assert_eq!(made["memory"], more["memory"]);
    assert_eq!(made["thread"]["turns"], 0);
    // Its name stands for its id.
    assert_eq!(
        server.get("/api/v1/sessions/Site%20plan").is(200).json(),
        made
    );
    assert_eq!(
        server.get("/api/v1/sessions").is(200).json()["items"],
        json!([made])
    );
    let twice = json!({
        "auth": "work", "model": "m", "name": "Site plan",
        "working_dir": server.workspace.work().display().to_string(),
    });
    assert_eq!(
        server.post("/api/v1/sessions", &twice).is(409).kind(),
        "name-taken"
    );
    let change = json!({ "name": "", "model": "another", "memory": {} });
    let changed = server.send("PATCH", &path, &change).is(200).json();
    assert_eq!(
        (&changed["name"], &changed["model"], &changed["memory"]),
        (&json!(null), &json!("another"), &json!({}))
    );
    assert_eq!(changed["persona"], made["persona"]);
    let thread = format!("/api/v1/threads/{}", text(&made["thread"]["id"]));
    server.delete(&path).is(204);
    server.get(&path).is(404);
    server.get(&thread).is(200);
    let other = stage.session(&json!({}));
    let thread = format!("/api/v1/threads/{}", text(&other["thread"]["id"]));
    let path = format!("/api/v1/sessions/{}?chat=delete", text(&other["id"]));
    server.delete(&path).is(204);
    server.get(&thread).is(404);
}

#[test]
fn a_rule_that_cannot_keep_what_it_suggests_is_told_to_whoever_writes_it() {
    let stage = Stage::new();
    let allow = |pattern: &str| json!({ "allow": [pattern] });
    let tools = |pattern: &str| json!({ "tools": { "policy": allow(pattern) } });
    let (weak, good) = ("local_bash_tool(git *)", "local_bash_tool(git status *)");
    let is_told = |answer: &Value| {
        let told = answer["warnings"].as_array().unwrap();
        told.iter().any(|told| text(told).contains(good))
    };
    let made = stage.session(&tools(weak));
    assert!(is_told(&made), "{made}");
    let path = format!("/api/v1/sessions/{}", text(&made["id"]));
    for (pattern, expected) in [(good, false), (weak, true)] {
        let changed = stage.server.send("PATCH", &path, &tools(pattern));
        let changed = changed.is(200).json();
        assert_eq!(is_told(&changed), expected, "{changed}");
    }
    for (pattern, expected) in [(good, false), (weak, true)] {
        stage.model.says(Message::new().text("Done."));
        let turn = json!({ "text": "Go", "policy": allow(pattern) });
        let begun = stage.server.post(&format!("{path}/turns"), &turn);
        let begun = begun.is(202).json();
        assert_eq!(is_told(&begun), expected, "{begun}");
        stage.over(&begun);
    }
}

#[test]
fn what_was_used_last_comes_first_and_words_find_it() {
    let stage = Stage::new();
    let server = &stage.server;
    let names = ["north pier", "south pier", "lamp"];
    let made = names.map(|name| stage.session(&json!({ "name": name })));
    let listed = |query: &str| -> Vec<String> {
        let mut names = Vec::new();
        let mut path = format!("/api/v1/sessions?order=used&limit=1{query}");
        loop {
            let page = server.get(&path).is(200).json();
            let items = page["items"].as_array().unwrap().iter();
            names.extend(items.map(|item| text(&item["name"])));
            let Some(next) = page["next"].as_str() else {
                return names;
            };
            path = format!("/api/v1/sessions?order=used&limit=1{query}&cursor={next}");
        }
    };
    assert_eq!(listed(""), ["lamp", "south pier", "north pier"]);
    let path = format!("/api/v1/sessions/{}", text(&made[0]["id"]));
    let change = json!({ "model": "another" });
    server.send("PATCH", &path, &change).is(200);
    assert_eq!(listed(""), ["north pier", "lamp", "south pier"]);
    // A turn is use as well.
    stage.model.says(Message::new().text("It burns."));
    stage.talk(&text(&made[1]["id"]), "Does it burn?");
    assert_eq!(listed(""), ["south pier", "north pier", "lamp"]);
    assert_eq!(listed("&q=PIER"), ["south pier", "north pier"]);
    assert_eq!(listed("&q=pier%20another"), ["north pier"]);
    assert_eq!(listed("&q=nothing"), [""; 0]);
    for wrong in ["q=pier", "order=used&cursor=b3k", "order=name"] {
        let path = format!("/api/v1/sessions?{wrong}");
        server.get(&path).is(422);
    }
}

#[test]
fn what_cannot_be_is_said_and_changes_nothing() {
    let stage = Stage::new();
    let server = &stage.server;
    let made = stage.session(&json!({}));
    let path = format!("/api/v1/sessions/{}", text(&made["id"]));
    for (change, status) in [
        (json!({ "auth": "nobody" }), 404),
        (json!({ "model": "" }), 422),
        (json!({ "working_dir": "relative" }), 422),
        (json!({ "working_dir": "/nowhere/at/all" }), 422),
        (json!({ "tools": { "provider": "openai" } }), 422),
        (json!({ "tools": { "colour": 1 } }), 422),
        (json!({ "memory": [] }), 422),
        (json!({ "provider": "openai" }), 422),
        (json!({ "name": "a\nb" }), 422),
        (
            json!({ "name": "0199c6a1-0000-7000-8000-000000000000" }),
            422,
        ),
        (json!({ "name": "site\u{202e}nalp" }), 422),
    ] {
        server.send("PATCH", &path, &change).is(status);
    }
    server
        .send("PATCH", &format!("{path}?apply=later"), &json!({}))
        .is(422);
    server
        .ask("DELETE", &format!("{path}?chat=no"), &[], "")
        .is(422);
    assert_eq!(server.get(&path).is(200).json(), made);
    let existing = json!({
        "auth": stage.auth, "model": "m", "working_dir": made["working_dir"],
        "thread": { "kind": "existing", "thread": "nothing" },
    });
    server.post("/api/v1/sessions", &existing).is(404);
}

#[test]
fn an_auth_in_use_stays_and_names_its_sessions() {
    let stage = Stage::new();
    let made = stage.session(&json!({}));
    let path = format!("/api/v1/auths/{}", stage.auth);
    let refused = stage.server.delete(&path).is(409);
    assert_eq!(refused.kind(), "in-use");
    assert_eq!(refused.json()["sessions"], json!([made["id"]]));
    stage
        .server
        .delete(&format!("/api/v1/sessions/{}", text(&made["id"])))
        .is(204);
    stage.server.delete(&path).is(204);
}

#[test]
fn a_conversation_goes_on_with_another_provider_in_a_fork_and_in_a_new_chat() {
    let stage = Stage::new();
    let server = &stage.server;
    let made = stage.session(&json!({}));
    let id = text(&made["id"]);
    stage.model.says(Message::new().text("First answer."));
    stage.talk(&id, "Plan a login page with tests");
    let other = conjure_kit::Model::start().unwrap();
    let openai = auth(server, "other", "openai", &other.base_url());
    let patch = json!({ "auth": openai, "model": "gpt-5" });
    let report = server
        .post(&format!("/api/v1/sessions/{id}/check"), &patch)
        .is(200)
        .json();
    assert!(report["tokens"].as_u64() > Some(0), "{report}");
    let path = format!("/api/v1/sessions/{id}");
    let changed = server.send("PATCH", &path, &patch).is(200).json();
    assert_eq!(changed["auth"]["provider"], "openai");
    other.says(Message::new().text("Second answer."));
    stage.talk(&id, "Go on");
    let asked = other.last_request().body.to_string();
    assert!(
        asked.contains("First answer.") && asked.contains("Plan a login page"),
        "{asked}"
    );
    let thread = text(&changed["thread"]["id"]);
    let now = stage.now(&id);
    assert_eq!(
        (&now["thread"]["turns"], &now["thread"]["replies"]),
        (&json!(2), &json!(2))
    );
    assert!(now["thread"]["usage"]["total"].as_u64() > Some(0));

    let go = |body| {
        server
            .post(&format!("/api/v1/sessions/{id}/thread"), &body)
            .is(200)
            .json()
    };
    let entries = server
        .get(&format!("/api/v1/threads/{thread}/entries?after=0"))
        .json();
    let first_turn = entries["entries"].as_array().unwrap();
    let upto = first_turn.iter().rfind(|entry| entry["turn"] == 1).unwrap();
    let fork = go(json!({ "kind": "fork", "thread": thread, "upto": upto["seq"] }));
    let forked = text(&fork["thread"]["id"]);
    assert_eq!(fork["thread"]["turns"], 1);
    other.says(Message::new().text("Another way."));
    stage.talk(&id, "Try another way");
    let asked = other.last_request().body.to_string();
    assert!(
        asked.contains("First answer.") && !asked.contains("Second answer."),
        "{asked}"
    );
    let fresh = go(json!({ "kind": "new" }));
    assert_eq!(fresh["thread"]["turns"], 0);
    let back = go(json!({ "kind": "existing", "thread": thread }));
    assert_eq!(back["thread"]["turns"], 2);
    for (thread, label) in [(&thread, "Login"), (&forked, "")] {
        let detail = server
            .get(&format!("/api/v1/threads/{thread}"))
            .is(200)
            .json();
        assert!(text(&detail["label"]).contains(label), "{detail}");
    }
    go(json!({ "kind": "existing", "thread": thread }));
    server
        .post(
            &format!("/api/v1/sessions/{id}/thread"),
            &json!({ "kind": "x" }),
        )
        .is(422);
    server
        .post(
            &format!("/api/v1/sessions/{id}/thread"),
            &json!({ "kind": "existing", "thread": "x" }),
        )
        .is(404);
}

#[test]
fn the_tools_of_a_session_are_listed() {
    let stage = Stage::new();
    let made = stage.session(&json!({ "tools": { "backend": [{ "kind": "local" }] } }));
    let path = format!("/api/v1/sessions/{}/tools", text(&made["id"]));
    let tools = stage.server.get(&path).is(200).json();
    let routes = tools["routes"].as_array().unwrap();
    assert!(
        routes
            .iter()
            .any(|route| route["name"] == "local_bash_tool"),
        "{tools}"
    );
    let none = stage.session(&json!({ "tools": { "backend": [{ "kind": "nothing" }] } }));
    let path = format!("/api/v1/sessions/{}/tools", text(&none["id"]));
    assert_eq!(stage.server.get(&path).is(409).kind(), "tools");
}

#[test]
fn a_session_on_a_server_without_plugins_is_served() {
    let stage = Stage::on(Server::start());
    let made = stage.session(&json!({}));
    stage.model.says(Message::new().text("Hello."));
    stage.talk(&text(&made["id"]), "Hello");
}

#[test]
fn the_tools_of_a_session_are_those_of_its_requests_open_or_not() {
    let workspace = Workspace::new().unwrap();
    for plugin in ["conjure-backend-local", "conjure-backend-anthropic"] {
        workspace.add_plugin(plugin).unwrap();
    }
    let key = ("ANTHROPIC_API_KEY", "a-key-of-nobody");
    let stage = Stage::on(Server::with(&workspace, "", &[key]));
    let base_url = stage.model.base_url();
    let other = auth(&stage.server, "other", "openai", &base_url);
    let skill = json!({ "skill_id": "xlsx", "name": "xlsx" });
    for auth in [&stage.auth, &other] {
        let made = stage.session(&json!({ "auth": auth, "tools": { "backend": [
            { "kind": "local" },
            { "kind": "anthropic", "config": { "skills": [skill], "base_url": base_url } },
        ] } }));
        let id = text(&made["id"]);
        let path = format!("/api/v1/sessions/{id}/tools");
        let listed = || -> Vec<String> {
            let tools = stage.server.get(&path).is(200).json();
            let lists = ["routes", "server_tools"].map(|list| tools[list].clone());
            let all = lists.iter().flat_map(|list| list.as_array().unwrap());
            all.map(|tool| text(&tool["name"])).collect()
        };
        let before = listed();
        stage.model.says(Message::new().text("Hello."));
        stage.talk(&id, "Hello");
        let request = stage.model.last_request();
        assert_eq!(before, request.tool_names());
        // The session is open now, and answers for itself.
        assert_eq!(listed(), request.tool_names());
        let is_inline = before.iter().any(|name| name == "code_execution");
        assert_eq!(is_inline, *auth == stage.auth, "{before:?}");
    }
}

#[test]
fn however_many_chats_were_only_named_the_forks_of_a_session_are_beside_it() {
    let stage = Stage::new();
    let server = &stage.server;
    stage.session(&json!({ "name": "site" }));
    stage.model.says(Message::new().text("It is lit."));
    let begun = stage.say("site", "Light the lamp");
    stage.over(&begun);
    let told = text(&begun["thread"]);
    let choose = |choice: Value| {
        let session = server.post("/api/v1/sessions/site/thread", &choice);
        text(&session.is(200).json()["thread"]["id"])
    };
    let fork = choose(json!({ "kind": "fork", "thread": told }));
    for _ in 0..61 {
        let named = choose(json!({ "kind": "new" }));
        let label = json!({ "label": "Plans" });
        let path = format!("/api/v1/threads/{named}");
        server.send("PATCH", &path, &label).is(200);
    }
    choose(json!({ "kind": "existing", "thread": told }));
    let shown = page(server, "/sessions/site");
    assert!(shown.contains(&format!("id=\"thread-{fork}\"")), "{shown}");
}
