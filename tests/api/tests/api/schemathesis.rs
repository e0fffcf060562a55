//! Schemathesis, which makes requests of the description, the odd ones most of all.
//!
//! `tests/api/install.sh DIR` installs it, pinned; `CONJURE_API_PEERS=DIR` says where it is. Where
//! it is not the test is left out and says so, which fails CI.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conjure_kit::repo_root;
use conjure_mock_llm::{Message, MockLlm, Script, Step};
use serde_json::{Value, json};

use crate::server::{Server, authorization};
use crate::threads::{imported, notices};

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(280);
/// What is looked at of each answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance";
/// Operations whose answer is a stream.
const STREAMS: usize = 2;
/// Requests of an operation.
const EXAMPLES: &str = "25";

fn program() -> Option<PathBuf> {
    let why = match std::env::var_os("CONJURE_API_PEERS").map(PathBuf::from) {
        None => "CONJURE_API_PEERS is not set; tests/api/install.sh DIR installs it".to_owned(),
        Some(dir) => {
            let program = dir.join("python/bin/schemathesis");
            if dir.join("python/.stamp").is_file() && program.is_file() {
                return Some(program);
            }
            let dir = dir.display();
            format!("{dir} is not what tests/api/install.sh makes; run it again")
        }
    };
    let _ = writeln!(std::io::stderr(), "LEFT OUT: schemathesis: {why}");
    None
}

/// A configuration that gives operations ids of what is there; removing is tried with others.
fn given(server: &Server, base_url: &str) -> String {
    let id = |path: &str, body: &Value| -> String {
        let made = server.post(path, body).is(201).json();
        made["id"].as_str().unwrap().to_owned()
    };
    let auth = json!({
        "name": "one", "provider": "openai", "kind": "api_key", "secret": "k",
        "base_url": base_url,
    });
    let persona = json!({ "name": "one", "persona_text": "" });
    let mcp_server = json!({ "name": "one", "settings": { "command": "one" } });
    let thread = imported(server, &notices(3));
    let auth = id("/api/v1/auths", &auth);
    let session = json!({
        "auth": auth, "model": "m", "working_dir": server.workspace.work().display().to_string(),
    });
    let session = id("/api/v1/sessions", &session);
    let turns = format!("/api/v1/sessions/{session}/turns");
    let turn = server
        .post(&turns, &json!({ "text": "Hello" }))
        .is(202)
        .json();
    let ids = [
        ("auth", auth),
        ("session", session),
        ("turn", turn["turn"].as_str().unwrap().to_owned()),
        ("persona", id("/api/v1/personas", &persona)),
        ("server", id("/api/v1/mcp-servers", &mcp_server)),
        ("thread", thread.rsplit('/').next().unwrap().to_owned()),
    ];
    let described = server.get("/api/v1/openapi.json").json();
    let mut config = String::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let mut known = ids.iter();
            let known = known.find(|(name, _)| path.contains(&format!("{{{name}}}")));
            if let (true, Some((name, id))) = (method != "delete", known) {
                config.push_str(&format!(
                    "[[operations]]\ninclude-operation-id = {}\nparameters = {{ {name} = \"{id}\" }}\n",
                    operation["operationId"]
                ));
            }
        }
    }
    config
}

#[test]
fn no_request_that_schemathesis_makes_is_answered_in_a_way_that_is_not_described() {
    let Some(program) = program() else { return };
    let server = Server::start();
    let models = ["model-a".to_owned()];
    let answers = Step::new(Message::new().text("Hello.")).always();
    let script = Script::new().models(models).step(answers);
    let mock = MockLlm::start_blocking(script).unwrap();
    let config = given(&server, &mock.base_url());
    server.workspace.write("schemathesis.toml", config).unwrap();
    let url = format!("http://{}", server.address);
    let mut suite = Command::new(program)
        .arg("run")
        .arg(format!("{url}/api/v1/openapi.json"))
        .args([
            "--url",
            &url,
            "--header",
            authorization().trim_end(),
            "--checks",
            CHECKS,
            "--max-examples",
            EXAMPLES,
        ])
        .args([
            "--seed",
            "1",
            "--request-timeout",
            "20",
            "--generation-database",
            "none",
        ])
        // Streams have no end.
        .args(["--exclude-tag", "events"])
        .args([
            "--phases",
            "examples,coverage,fuzzing,stateful",
            "--no-color",
        ])
        .current_dir(server.workspace.work())
        .env("HOME", server.workspace.home())
        .env("PYTHONPATH", repo_root().join("tests/api/peers"))
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let output = suite.stdout.take().unwrap();
    let reading = std::thread::spawn(move || std::io::read_to_string(output).unwrap());
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = suite.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > until {
            suite.kill().unwrap();
            suite.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let said = reading.join().unwrap();
    let status = status.unwrap_or_else(|| panic!("not done within {LIMIT:?}:\n{said}"));
    assert!(status.success(), "{said}");
    // It looked at every operation but the streams.
    let described = server.get("/api/v1/openapi.json").json();
    let items = described["paths"].as_object().unwrap().values();
    let all = items
        .map(|item| item.as_object().unwrap().len())
        .sum::<usize>();
    let counted = format!("{} selected / {all} total", all - STREAMS);
    assert!(said.contains(&counted), "{counted}:\n{said}");
    server.get("/readyz").is(200);
}
