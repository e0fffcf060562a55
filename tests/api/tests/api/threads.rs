//! Threads: listed, looked at, named, forked, cleared, carried from one host to another.

use conjure_kit::{Model, Workspace, cli};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::server::Server;
use crate::stage::{Stage, text};

/// Lines of a thread with so many notices.
pub(crate) fn notices(count: u64) -> String {
    let line = |seq: u64| {
        let text = format!("notice {seq}");
        let entry = json!({ "seq": seq, "turn": 1, "at_ms": 5, "entry": "notice", "text": text });
        json!({ "entry": entry }).to_string() + "\n"
    };
    (1..=count).map(line).collect()
}

/// Imports lines; the path of the thread.
pub(crate) fn imported(server: &Server, lines: &str) -> String {
    let kind = [("content-type", "application/jsonl")];
    let made = server
        .ask("POST", "/api/v1/threads/import", &kind, lines)
        .is(201);
    let path = made.header("location").unwrap();
    assert_eq!(
        path,
        format!("/api/v1/threads/{}", made.json()["id"].as_str().unwrap())
    );
    path.to_owned()
}

fn numbers(page: &Value) -> Vec<u64> {
    let entries = page["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| entry["seq"].as_u64().unwrap())
        .collect()
}

#[test]
fn entries_come_in_pages_forwards_and_backwards() {
    let server = Server::start();
    let path = imported(&server, &notices(7));
    let page = |query: &str| {
        server
            .get(&format!("{path}/entries?{query}"))
            .is(200)
            .json()
    };
    let last = page("limit=3");
    assert_eq!(numbers(&last), [5, 6, 7]);
    assert_eq!(
        (&last["first_seq"], &last["last_seq"]),
        (&json!(1), &json!(7))
    );
    assert_eq!((&last["before"], last.get("after")), (&json!(5), None));
    assert_eq!(last["entries"][0]["text"], "notice 5");
    let earlier = page("before=5&limit=3");
    assert_eq!(numbers(&earlier), [2, 3, 4]);
    assert_eq!(
        (&earlier["before"], &earlier["after"]),
        (&json!(2), &json!(4))
    );
    let first = page("before=2&limit=3");
    assert_eq!((numbers(&first), first.get("before")), (vec![1], None));
    let mut seen = Vec::new();
    let mut after = json!(0);
    while let Some(number) = after.as_u64() {
        let page = page(&format!("after={number}&limit=2"));
        seen.extend(numbers(&page));
        after = page["after"].clone();
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
    for query in [
        "before=1&after=1",
        "limit=0",
        "before=-1",
        "after=9223372036854775808",
    ] {
        server.get(&format!("{path}/entries?{query}")).is(422);
    }
}

#[test]
fn threads_are_found_by_their_names_and_listed_the_newest_first() {
    let server = Server::start();
    let mut paths = Vec::new();
    for label in ["Login Page", "Billing", "The LOGIN bug", "Search"] {
        let path = imported(&server, &notices(1));
        let named = server
            .send("PATCH", &path, &json!({ "label": label }))
            .is(200);
        assert_eq!(named.json()["label"], label);
        paths.push(path);
    }
    let labels = |path: &str| -> (Vec<String>, Value) {
        let page = server.get(path).is(200).json();
        let items = page["items"].as_array().unwrap().iter();
        let labels = items.map(|item| item["label"].as_str().unwrap().to_owned());
        (labels.collect(), page["next"].clone())
    };
    let (found, next) = labels("/api/v1/threads?q=login&limit=1");
    assert_eq!(found, ["The LOGIN bug"]);
    let next = next.as_str().unwrap();
    let (found, next) = labels(&format!("/api/v1/threads?q=login&limit=1&cursor={next}"));
    assert_eq!((found, next), (vec!["Login Page".to_owned()], Value::Null));
    let (all, next) = labels("/api/v1/threads?limit=4");
    assert_eq!(all, ["Search", "The LOGIN bug", "Billing", "Login Page"]);
    assert_eq!(next, Value::Null);
    server.get("/api/v1/threads?cursor=bm90aGluZw").is(422);
    let long = "x".repeat(201);
    server.get(&format!("/api/v1/threads?q={long}")).is(422);
    for label in ["", "a\nb", &"x".repeat(201)] {
        server
            .send("PATCH", &paths[0], &json!({ "label": label }))
            .is(422);
    }
}

#[test]
fn a_fork_goes_on_for_itself_and_keeps_what_it_shows() {
    let server = Server::start();
    let path = imported(&server, &notices(5));
    let fork = json!({ "at": 3, "label": "Another way" });
    let fork = server.post(&format!("{path}/fork"), &fork).is(201);
    let forked = fork.header("location").unwrap().to_owned();
    assert_eq!(fork.json()["fork_from_seq"], 3);
    let entries = server.get(&format!("{forked}/entries")).is(200).json();
    assert_eq!(numbers(&entries), [1, 2, 3]);
    server
        .post(&format!("{path}/fork"), &json!({ "at": 6 }))
        .is(404);
    server
        .post(&format!("{path}/fork"), &json!({ "at": 0 }))
        .is(404);
    let detail = server.get(&path).is(200).json();
    let fork_id = fork.json()["id"].clone();
    assert_eq!(detail["forks"][0]["id"], fork_id);
    assert_eq!(detail["kept_by_forks"], json!([fork_id]));
    let cleared = server.delete(&format!("{path}/entries")).is(200).json();
    assert_eq!(cleared["kept_by_forks"], json!([fork_id]));
    assert_eq!(
        numbers(&server.get(&format!("{path}/entries")).json()),
        [0; 0]
    );
    let kept = server.get(&format!("{forked}/entries")).json();
    assert_eq!(numbers(&kept), [1, 2, 3]);
    server.delete(&path).is(204);
    server.get(&path).is(404);
    assert_eq!(
        numbers(&server.get(&format!("{forked}/entries")).json()),
        [1, 2, 3]
    );
}

#[test]
fn what_forks_keep_of_a_thread_that_is_removed_counts_once_in_what_replies_cost() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    for _ in 0..2 {
        stage.model.says(Message::new().text("Lit."));
        stage.talk(&text(&session["id"]), "Light the lamp");
    }
    let replies = || {
        let usage = stage.server.get("/api/v1/usage").is(200).json();
        usage["total"]["replies"].clone()
    };
    assert_eq!(replies(), 2);
    let path = format!("/api/v1/threads/{}", text(&session["thread"]["id"]));
    let last = stage.server.get(&path).is(200).json()["last_seq"].clone();
    for label in ["One way", "Another way"] {
        let fork = json!({ "at": last, "label": label });
        stage.server.post(&format!("{path}/fork"), &fork).is(201);
    }
    assert_eq!(replies(), 2);
    stage.server.delete(&path).is(204);
    assert_eq!(replies(), 2);
}

#[test]
fn what_is_exported_can_be_imported_and_damage_is_said() {
    let server = Server::start();
    let path = imported(&server, &notices(3));
    let exported = server.get(&format!("{path}/export")).is(200);
    assert_eq!(exported.header("content-type"), Some("application/jsonl"));
    let text = String::from_utf8(exported.body).unwrap();
    let shared = server.get(&format!("{path}/export/html")).is(200);
    let kind = shared.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    let policy = shared.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("sandbox;"), "{policy}");
    let shared = String::from_utf8(shared.body).unwrap();
    assert!(shared.contains("default-src") && !shared.contains("<script"));
    let again = imported(&server, &text);
    let copied = server.get(&format!("{again}/export")).is(200).body;
    assert_eq!(String::from_utf8(copied).unwrap(), text);
    assert_eq!(
        server.get(&format!("{again}/cost")).is(200).json()["turns"],
        json!([])
    );
    let import = |lines: &str| {
        let kind = [("content-type", "application/jsonl")];
        server.ask("POST", "/api/v1/threads/import", &kind, lines)
    };
    let damaged = import(&format!("{}nonsense\n", notices(2))).is(422);
    assert!(
        damaged.json()["detail"]
            .as_str()
            .unwrap()
            .contains("line 3")
    );
    import("\n").is(422);
    let whole = notices(3);
    let mut lines: Vec<&str> = whole.lines().collect();
    lines.remove(1);
    // The entry behind the one that is missing, by its line in what was sent.
    let gap = import(&format!("\n\n{}", lines.join("\n"))).is(422).json();
    let detail = gap["detail"].as_str().unwrap();
    assert!(detail.starts_with("line 4: "), "{detail}");
    // Nothing of what was refused stays.
    let listed = server.get("/api/v1/threads").is(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[test]
fn a_thread_that_another_program_writes_is_looked_at_and_not_changed() {
    let workspace = Workspace::new().unwrap();
    let server = Server::with(&workspace, "", &[]);
    let model = Model::start().unwrap();
    let reply = Message::new().text("A long answer.").deltas(2);
    model.says(Reply::from(reply).hold(Position::Event(5), "middle"));
    let args = ["run", "--provider", "anthropic", "--model", "m", "Go"];
    let run = cli(args)
        .workspace(&workspace)
        .model(&model)
        .start()
        .unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    let listed = server.get("/api/v1/threads").is(200).json();
    let thread = &listed["items"][0];
    assert_eq!(thread["is_open"], true);
    let path = format!("/api/v1/threads/{}", thread["id"].as_str().unwrap());
    server.get(&format!("{path}/entries")).is(200);
    assert_eq!(server.delete(&path).is(409).kind(), "busy");
    assert_eq!(
        server.delete(&format!("{path}/entries")).is(409).kind(),
        "busy"
    );
    model.mock().release("middle");
    assert_eq!(run.wait().unwrap().code, Some(0));
    server.delete(&path).is(204);
}
