//! Skills, Files and containers: what a client that does it right gets, and for each rule of the
//! memory a request that breaks it alone.

use conjure_mock_llm::{Hosted, Message, MockLlm, Request, Rule, Script, StoredFile, StoredSkill};
use serde_json::{Value, json};

use crate::client::exchange_of as send;

const HEADERS: [(&str, &str); 2] = [("x-api-key", "key"), ("anthropic-version", "2023-06-01")];

/// A request to an API, with the headers that it needs.
fn api(method: &str, path: &str) -> Request {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: HEADERS
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..Request::default()
    }
}

fn old(mut request: Request) -> Request {
    let beta = ("anthropic-beta", "skills-2025-10-02");
    request.headers.push((beta.0.to_owned(), beta.1.to_owned()));
    request
}

/// A form; each field is a name, a file's name and a content.
fn form(path: &str, fields: &[(&str, Option<&str>, &str)]) -> Request {
    let mut request = api("POST", path);
    let media_type = "multipart/form-data; boundary=xyz";
    let header = ("content-type".to_owned(), media_type.to_owned());
    request.headers.push(header);
    let mut body = String::new();
    for (name, file, content) in fields {
        let file = file.map(|it| format!("; filename=\"{it}\"\r\ncontent-type: text/plain"));
        let file = file.unwrap_or_default();
        body.push_str(&format!(
            "--xyz\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n"
        ));
    }
    body.push_str("--xyz--\r\n");
    request.raw_body = body.into_bytes();
    request
}

const SKILL: &str = "---\nname: my-skill\ndescription: Mine.\n---\n";

fn skill(path: &str) -> Request {
    form(
        path,
        &[
            ("display_name", None, "Mine"),
            ("files[]", Some("my-skill/SKILL.md"), SKILL),
            ("files[]", Some("my-skill/scripts/a.py"), "print(1)"),
        ],
    )
}

fn file(name: &str) -> Request {
    form("/v1/files", &[("file", Some(name), "a,b")])
}

#[expect(clippy::needless_pass_by_value, reason = "tests write them in place")]
fn ask(container: Value, messages: Value) -> Request {
    let body = json!({
        "model": "claude-test",
        "max_tokens": 100,
        "container": container,
        "tools": [{"type": "code_execution_20250825", "name": "code_execution"}],
        "messages": messages,
    });
    Request::to(conjure_mock_llm::Wire::Anthropic, "claude-test", body)
}

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello."}])
}

fn paused() -> Message {
    Message::new()
        .server_tool_use(
            "srvtoolu_1",
            "bash_code_execution",
            json!({"command": "ls"}),
        )
        .stop_reason("pause_turn")
        .container(
            json!({"id": "container_1", "expires_at": "2026-09-01T00:00:00Z", "skills": null}),
        )
}

fn block() -> Value {
    json!({
        "type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution",
        "input": {"command": "ls"}, "caller": {"type": "direct"},
    })
}

fn continuation() -> Request {
    ask(
        json!({"id": "container_1"}),
        json!([
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": [block()]},
        ]),
    )
}

fn start(hosted: Hosted) -> MockLlm {
    let script = Script::new()
        .reply(paused())
        .fallback(Message::new().text("Yes."));
    MockLlm::start_blocking(script.hosted(hosted)).unwrap()
}

fn rules(mock: &MockLlm) -> Vec<Rule> {
    mock.violations().iter().map(|it| it.rule).collect()
}

#[test]
fn a_skill_is_made_listed_given_a_version_and_deleted() {
    let mock = start(Hosted::new());
    let made = send(&mock, &skill("/v1/skills"));
    assert_eq!(made.status, 200, "{made:?}");
    let made = made.json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["source"], json!({"type": "custom"}));
    assert!(
        made["latest_version_id"]
            .as_str()
            .unwrap()
            .starts_with("skver_")
    );
    let versions = format!("/v1/skills/{id}/versions");
    assert_eq!(send(&mock, &skill(&versions)).status, 200);
    let listed = send(&mock, &api("GET", &versions)).json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    let first = send(&mock, &api("GET", "/v1/skills?limit=3")).json();
    assert_eq!(first["data"].as_array().unwrap().len(), 3);
    let next = first["next_page"].as_str().unwrap();
    let rest = format!("/v1/skills?limit=3&page={next}");
    let rest = send(&mock, &api("GET", &rest)).json();
    assert_eq!(rest["data"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next_page"], Value::Null);
    let gone = send(&mock, &api("DELETE", &format!("/v1/skills/{id}"))).json();
    assert_eq!(gone["type"], "skill_deleted");
    assert_eq!(
        send(&mock, &api("GET", &format!("/v1/skills/{id}"))).status,
        404
    );
    assert_eq!(rules(&mock), []);
}

#[test]
fn the_beta_has_other_shapes_and_wants_versions_deleted_first() {
    let mock = start(Hosted::new().skill(StoredSkill::custom("skill_1", "mine", "Mine.")));
    let listed = send(&mock, &old(api("GET", "/v1/skills?source=custom"))).json();
    let skill = &listed["data"][0];
    assert_eq!(listed["has_more"], false);
    assert_eq!(skill["source"], "custom");
    let version = skill["latest_version"].as_str().unwrap();
    let whole = old(api("DELETE", "/v1/skills/skill_1"));
    assert_eq!(send(&mock, &whole).status, 400);
    let path = format!("/v1/skills/skill_1/versions/{version}");
    assert_eq!(send(&mock, &old(api("DELETE", &path))).status, 200);
    assert_eq!(send(&mock, &whole).status, 200);
    assert_eq!(rules(&mock), []);
}

#[test]
fn a_file_goes_up_and_what_a_skill_made_comes_down() {
    let mock = start(Hosted::new().generated_file("file_made", "a.xlsx", "PK\0!"));
    let up = send(&mock, &file("a.csv")).json();
    assert_eq!(
        (&up["filename"], &up["size_bytes"]),
        (&json!("a.csv"), &json!(3))
    );
    let id = up["id"].as_str().unwrap();
    let content = |id: &str| send(&mock, &api("GET", &format!("/v1/files/{id}/content")));
    assert_eq!(content(id).status, 400);
    let made = content("file_made");
    assert_eq!((made.status, made.body().as_str()), (200, "PK\0!"));
    let expired = StoredFile {
        bytes: None,
        ..StoredFile::new("file_old", "b", "", true)
    };
    let mock = start(Hosted::new().file(expired));
    assert_eq!(send(&mock, &api("GET", "/v1/files/file_old")).status, 200);
    let gone = send(&mock, &api("GET", "/v1/files/file_old/content"));
    assert_eq!(gone.status, 404);
    assert_eq!(rules(&mock), []);
}

#[test]
fn a_paused_turn_goes_on_in_its_container() {
    let mock = start(Hosted::new());
    let skills =
        json!({"skills": [{"type": "anthropic", "skill_id": "xlsx", "version": "latest"}]});
    assert_eq!(send(&mock, &ask(skills, hello())).status, 200);
    assert_eq!(send(&mock, &continuation()).status, 200);
    // Over, it need not be named; another conversation may have none.
    mock.expire_container("container_1");
    let mut fresh = continuation();
    fresh.body["container"] = json!({});
    fresh.body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": "On."}));
    assert_eq!(send(&mock, &fresh).status, 200);
    assert_eq!(send(&mock, &ask(json!({}), hello())).status, 200);
    assert_eq!(rules(&mock), []);
}

#[test]
fn a_conversation_does_not_go_on_in_the_container_of_another() {
    let other = Message::new()
        .text("Yes.")
        .container(json!({"id": "container_2", "skills": null}));
    let done = paused().stop_reason("end_turn");
    let mock = MockLlm::start_blocking(
        Script::new()
            .reply(done)
            .reply(other)
            .fallback(Message::new().text("Yes."))
            .hosted(Hosted::new()),
    )
    .unwrap();
    for _ in 0..2 {
        assert_eq!(send(&mock, &ask(json!({}), hello())).status, 200);
    }
    let mut request = continuation();
    let on = json!({"role": "user", "content": "On."});
    request.body["messages"].as_array_mut().unwrap().push(on);
    assert_eq!(send(&mock, &request).status, 200);
    request.body["container"] = json!({"id": "container_2"});
    assert_eq!(send(&mock, &request).status, 400);
    assert_eq!(rules(&mock), [Rule::ContainerOmitted]);
}

#[test]
fn each_rule_of_the_memory_refuses_what_breaks_it() {
    let long = "x".repeat(256);
    let changed = |change: fn(&mut Value)| {
        let mut request = continuation();
        change(&mut request.body);
        request
    };
    let cases: Vec<(Rule, Request)> = vec![
        (
            Rule::ContainerUnknown,
            ask(json!({"id": "container_9"}), hello()),
        ),
        (Rule::ContainerUnknown, ask(json!("container_9"), hello())),
        (Rule::ContainerExpired, ask(json!("container_old"), hello())),
        (
            Rule::ContainerOmitted,
            changed(|body| {
                body["container"] = Value::Null;
                let messages = body["messages"].as_array_mut().unwrap();
                messages[1]["content"] = json!([
                    {"type": "server_tool_use", "id": "srvtoolu_0", "name": "bash_code_execution", "input": {}},
                    {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_0", "content": {}},
                ]);
                messages.push(json!({"role": "user", "content": "Go on."}));
            }),
        ),
        (
            Rule::SkillUnknown,
            ask(
                json!({"skills": [{"type": "custom", "skill_id": "skill_9"}]}),
                hello(),
            ),
        ),
        (
            Rule::SkillUnknown,
            ask(
                json!({"skills": [{"type": "custom", "skill_id": "xlsx"}]}),
                hello(),
            ),
        ),
        (
            Rule::SkillUnknown,
            ask(
                json!({"skills": [{"type": "anthropic", "skill_id": "xlsx", "version": "7"}]}),
                hello(),
            ),
        ),
        (
            Rule::UploadUnknown,
            ask(
                json!({}),
                json!([{"role": "user", "content": [{"type": "container_upload", "file_id": "file_9"}]}]),
            ),
        ),
        (
            Rule::PausedChanged,
            changed(|body| {
                let messages = body["messages"].as_array_mut().unwrap();
                messages.push(json!({"role": "user", "content": "Continue."}));
            }),
        ),
        (
            Rule::PausedChanged,
            changed(|body| body["messages"][1]["content"][0]["input"] = json!({})),
        ),
        (
            Rule::PausedChanged,
            changed(|body| body["tools"][0]["name"] = json!("other")),
        ),
        (
            Rule::PausedChanged,
            changed(|body| body["container"] = json!("container_2")),
        ),
        (Rule::Multipart, api("POST", "/v1/files")),
        (
            Rule::Multipart,
            form("/v1/files", &[("file", Some("a"), "")]),
        ),
        (
            Rule::Multipart,
            form("/v1/files", &[("files", Some("a"), "b")]),
        ),
        (
            Rule::Multipart,
            form("/v1/files", &[("purpose", None, "x")]),
        ),
        (
            Rule::Multipart,
            form("/v1/skills", &[("files", Some("a/SKILL.md"), SKILL)]),
        ),
        (
            Rule::SkillFiles,
            form("/v1/skills", &[("files[]", Some("a/b.md"), "x")]),
        ),
        (
            Rule::SkillFiles,
            form("/v1/skills", &[("files[]", Some("../SKILL.md"), SKILL)]),
        ),
        (
            Rule::SkillFiles,
            form("/v1/skills", &[("files[]", Some("/SKILL.md"), SKILL)]),
        ),
        (
            Rule::SkillFiles,
            form(
                "/v1/skills",
                &[
                    ("files[]", Some("my-skill/SKILL.md"), SKILL),
                    ("files[]", Some("b/c"), "x"),
                ],
            ),
        ),
        (
            Rule::SkillName,
            form("/v1/skills", &[("files[]", Some("other/SKILL.md"), SKILL)]),
        ),
        (
            Rule::SkillName,
            form(
                "/v1/skills",
                &[
                    ("files[]", Some("my-skill/SKILL.md"), SKILL),
                    ("display_name", None, &long),
                ],
            ),
        ),
        (Rule::SkillName, skill("/v1/skills/skill_1/versions")),
        (Rule::FileName, file("a/b.csv")),
        (Rule::FileName, file("a?.csv")),
        (Rule::FileName, file(&long)),
        (Rule::Paging, api("GET", "/v1/skills?limit=0")),
        (Rule::Paging, api("GET", "/v1/skills?limit=1001")),
        (Rule::Paging, old(api("GET", "/v1/skills?limit=101"))),
        (Rule::Paging, api("GET", "/v1/files?page=7")),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (rule, request) in cases {
        let ran = Message::new()
            .server_tool_use("srvtoolu_0", "bash_code_execution", json!({}))
            .container(json!({"id": "container_2"}));
        let script = Script::new().reply(ran).reply(paused());
        let hosted = Hosted::new().skill(StoredSkill::custom("skill_1", "mine", "Mine."));
        let mock = MockLlm::start_blocking(script.hosted(hosted)).unwrap();
        assert_eq!(send(&mock, &ask(json!({}), hello())).status, 200);
        assert_eq!(send(&mock, &ask(json!({}), hello())).status, 200);
        mock.expire_container("container_old");
        let answer = send(&mock, &request);
        assert_eq!(answer.status, 400, "{rule:?}: {answer:?}");
        assert_eq!(rules(&mock), [rule], "{:?}", mock.violations());
        seen.insert(rule);
    }
    assert_eq!(seen, Hosted::RULES.into_iter().collect());
}

#[test]
fn without_key_or_version_nothing_is_served() {
    for (left_out, status) in [("x-api-key", 401), ("anthropic-version", 400)] {
        let mock = start(Hosted::new());
        let mut request = api("GET", "/v1/skills");
        request.headers.retain(|(name, _)| name != left_out);
        assert_eq!(send(&mock, &request).status, status);
        assert_eq!(rules(&mock).len(), 1);
    }
}
