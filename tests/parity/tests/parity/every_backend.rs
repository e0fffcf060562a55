//! One conversation with every kind of backend, and one file that goes through all of them.
//!
//! The models are mocks; libraries, commands, the container engine and both MCP servers are real.

use conjure_host::session::BackendSpec;
use conjure_kit::build_bin;
use conjure_mock_llm::{Hosted, Matcher, Message, Reply, Script, Step, Wire};
use serde_json::{Value, json};

use crate::docker_stage::{DOCKER, docker, engine};
use crate::hosted_stage::{Place, made, xlsx};
use crate::stage::{FETCHER, bash, in_time, local};

/// What the hosted skill makes: one line of a log.
const MADE: &str = "2026-11-01T10:00:00Z ERROR made by a hosted skill\n";

fn says(reply: impl Into<Reply>) -> Step {
    Step::new(reply).when(Matcher::any().wire(Wire::Chat))
}

/// Two servers, one process each.
fn servers() -> BackendSpec {
    let program = build_bin("conjure-mock-mcp", "mock-mcp").unwrap();
    let server = json!({ "command": program, "args": ["files"] });
    BackendSpec {
        kind: "mcp".to_owned(),
        config: Some(json!({ "servers": { "sharer": server, "reader": server } })),
        ..BackendSpec::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h01_h12_h13_b24_a_file_goes_through_native_local_docker_hosted_and_two_mcp_servers() {
    let Some(engine) = engine() else { return };
    let fetch = json!({ "command": "fetch app.log --limit 10" });
    let steps: [(&str, Value); 8] = [
        ("log-fetcher_execute", fetch),
        ("local_bash_tool", bash("sed s/one/two/ file-1 >local.txt")),
        (
            "docker_bash_tool",
            bash("cat file-2 >docker.txt; echo docker >>docker.txt"),
        ),
        (
            "xlsx_code_execution",
            json!({ "task": "Make a log.", "files": ["file-3"] }),
        ),
        ("sharer_share_file", json!({ "path": "file-4" })),
        ("reader_read_file", json!({ "path": "file-5" })),
        (
            "log-fetcher_execute",
            json!({ "command": "fetch file-5 --level ERROR" }),
        ),
        ("docker_bash_tool", bash("wc -l <file-5")),
    ];
    let mut script = Script::new();
    for (number, (tool, input)) in steps.iter().enumerate() {
        let call = Message::new().tool_use(format!("call_{number}"), *tool, input.clone());
        script = script.step(says(call));
    }
    let hosted = Step::new(made("srvtoolu_1", &["file_made"]));
    let script = script
        .step(hosted.when(Matcher::any().wire(Wire::Anthropic)))
        .step(says(Message::new().text("Done.")))
        .hosted(Hosted::new().generated_file("file_made", "made.log", MADE));
    let place = Place::new(script, &[DOCKER, FETCHER, "conjure-backend-mcp"]).await;
    let elsewhere = BackendSpec {
        config: Some(json!({ "image": engine.image(), "files": "copy" })),
        ..docker(engine, [""; 0])
    };
    let session = place.another([
        BackendSpec::native(["log-fetcher"]),
        local(),
        elsewhere,
        place.hosted(xlsx()),
        servers(),
    ]);
    let session = in_time(Box::pin(session)).await;
    let log = "2026-11-01T09:00:00Z INFO number one\n";
    std::fs::write(place.workspace.work().join("app.log"), log).unwrap();
    let answer = in_time(session.chat("Pass it on.")).await.unwrap();
    assert_eq!(answer.text, "Done.");

    let request = place.mock.requests().pop().unwrap();
    let told = |number: usize| request.tool_result_text(&format!("call_{number}")).unwrap();
    // What the container and the hosted skill got is what the ones before them made.
    let hosted = place.mock.hosted();
    let uploaded = hosted.files().iter().find(|it| it.name == "docker.txt");
    let uploaded = String::from_utf8(uploaded.unwrap().bytes.clone().unwrap()).unwrap();
    assert!(uploaded.contains("number two"), "{uploaded}");
    assert!(uploaded.ends_with("docker\n"), "{uploaded}");
    assert!(told(4).contains("file-5 `shared-"), "{}", told(4));
    assert!(told(5).contains("made by a hosted skill"), "{}", told(5));
    assert!(told(6).contains('1'), "{}", told(6));
    assert_eq!(told(7).trim(), "1");
    let files = session.created_files();
    let sources: Vec<(&str, &str)> = files
        .iter()
        .map(|file| (file.id.as_str(), file.source.as_str()))
        .collect();
    assert_eq!(
        sources,
        [
            ("file-1", "native"),
            ("file-2", "local"),
            ("file-3", "docker"),
            ("file-4", "anthropic"),
            ("file-5", "mcp"),
            ("file-6", "native"),
        ]
    );
    // Each was fetched once, however many wanted it.
    assert_eq!(place.requests("/content"), 1);
    place.no_violations();
    session.close().await;
}
