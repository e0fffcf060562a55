//! The container backend in a session: what the model is told, what it gets back, and where its
//! calls run.

use std::time::{Duration, Instant};

use conjure_core::routing::Alias;
use conjure_host::session::BackendSpec;
use conjure_mock_llm::Message;
use serde_json::json;

use crate::docker_stage::{DOCKER, containers, docker, engine};
use crate::stage::{LOCAL, Seen, Stage, bash, in_time, local, system};

#[tokio::test]
async fn p03_b26_the_tools_and_the_prompt_are_those_of_a_container() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let skill = stage.where_am_i("analyzer");
    let session = stage.session([docker(engine, [skill])]).await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hello?")).await.unwrap();
    let request = stage.model.last_request();
    let names: Vec<&str> = request.body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let expected = [
        "analyzer_bash_tool",
        "analyzer_create_file",
        "analyzer_str_replace",
        "analyzer_view",
    ];
    assert_eq!(names, expected);
    let told = system(&request);
    assert!(
        told.contains("<location>/mnt/skills/analyzer/SKILL.md</location>"),
        "{told}"
    );
    assert!(told.contains("working directory is /workspace."), "{told}");
    assert!(!told.contains(&stage.path("")), "{told}");
    // No call, no container.
    assert_eq!(containers(engine, &stage.workspace), [""; 0]);
    session.close().await;
}

#[tokio::test]
async fn p06_b01_a_command_that_fails_is_an_error_with_all_that_it_said() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let session = stage.session([docker(engine, [""; 0])]).await;
    let seen = stage
        .calls(
            &session,
            &[
                (
                    "docker_bash_tool",
                    bash("pwd; echo out; echo err >&2; exit 3"),
                ),
                ("docker_bash_tool", bash("echo fine")),
                ("docker_view", json!({ "path": "/etc/passwd" })),
                ("docker_bash_tool", json!({ "description": "no command" })),
            ],
        )
        .await;
    assert!(seen[0].is_error);
    for word in ["/workspace", "out", "err", "3"] {
        assert!(seen[0].text.contains(word), "{seen:?}");
    }
    assert_eq!(seen[1], Seen::ok("fine\n"));
    assert!(
        seen[2].is_error && seen[2].text.contains("/workspace"),
        "{seen:?}"
    );
    assert!(seen[3].is_error, "{seen:?}");
    assert_eq!(containers(engine, &stage.workspace).len(), 1);
    session.close().await;
}

#[tokio::test]
async fn a_container_that_stands_still_takes_along_neither_output_nor_reason() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let session = stage
        .session([BackendSpec {
            call_timeout_ms: Some(8_000),
            ..docker(engine, [""; 0])
        }])
        .await;
    let work = "docker_bash_tool";
    assert!(!stage.call(&session, work, bash("true")).await.is_error);
    let begun = stage.workspace.work().join("begun");
    let pausing = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for container in containers(engine, &stage.workspace) {
            engine.docker(["pause", &container]).unwrap();
        }
    };
    let running = stage.call(
        &session,
        work,
        bash("echo first words; touch begun; sleep 1000"),
    );
    let (seen, ()) = Box::pin(in_time(async { tokio::join!(running, pausing) })).await;
    assert!(seen.is_error, "{seen:?}");
    for word in ["first words", "did not answer in time", "Call again"] {
        assert!(seen.text.contains(word), "`{word}` is not in: {seen:?}");
    }
    let next = stage.call(&session, work, bash("ls")).await;
    assert!(!next.is_error && next.text.contains("begun"), "{next:?}");
    session.close().await;
}

#[tokio::test]
async fn h11_b08_a_docker_skill_runs_in_its_container_and_never_on_the_host() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER, LOCAL]).await;
    let skill = stage.where_am_i("analyzer");
    let spec = docker(engine, [skill.clone()]);
    let session = stage.session([spec, local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("analyzer_bash_tool", bash("sh scripts/where.sh")),
                (
                    "local_bash_tool",
                    bash(&format!("sh {skill}/scripts/where.sh")),
                ),
            ],
        )
        .await;
    assert_eq!(seen, ["in a container\n", "on the host\n"].map(Seen::ok));
    session.close().await;

    // Without an engine the call fails; nothing runs it in the engine's place.
    let nowhere = BackendSpec {
        config: Some(json!({ "engine": "unix:///nowhere/docker.sock" })),
        ..BackendSpec::docker([skill])
    };
    let session = stage.session([nowhere, local()]).await;
    let command = bash("touch ran; sh scripts/where.sh");
    let seen = stage.call(&session, "analyzer_bash_tool", command).await;
    assert!(
        seen.is_error && seen.text.contains("/nowhere/docker.sock"),
        "{seen:?}"
    );
    assert!(!stage.workspace.work().join("ran").exists());
    session.close().await;
}

#[tokio::test]
async fn h10_one_skill_on_two_backends_needs_an_alias_and_is_two_tools_with_it() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER, LOCAL]).await;
    let skill = stage.where_am_i("analyzer");
    let both = [docker(engine, [skill.clone()]), BackendSpec::local([skill])];
    let error = stage
        .host
        .session(stage.spec(both.clone()))
        .await
        .err()
        .expect("the names clash");
    let text = error.to_string();
    for word in ["analyzer_", "docker", "local", "alias"] {
        assert!(text.contains(word), "{text}");
    }
    let mut spec = stage.spec(both);
    spec.routing.aliases = vec![Alias {
        backend: Some("docker".to_owned()),
        skill: Some("analyzer".to_owned()),
        tool: None,
        name: "contained".to_owned(),
    }];
    let session = stage.open(spec).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("contained_bash_tool", bash("sh scripts/where.sh")),
                ("analyzer_bash_tool", bash("sh scripts/where.sh")),
            ],
        )
        .await;
    assert_eq!(seen, ["in a container\n", "on the host\n"].map(Seen::ok));
    session.close().await;
}

#[tokio::test]
async fn h09_calls_in_a_container_and_on_the_host_run_at_the_same_time() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER, LOCAL]).await;
    let session = stage.session([docker(engine, [""; 0]), local()]).await;
    // Each waits for the other; one after the other they would wait for ever.
    let meet = |own: &str, other: &str| {
        bash(&format!(
            "touch {own}; until test -e {other}; do sleep 0.02; done; echo {own}"
        ))
    };
    let begun = Instant::now();
    let seen = stage
        .calls(
            &session,
            &[
                ("docker_bash_tool", meet("here", "there")),
                ("local_bash_tool", meet("there", "here")),
            ],
        )
        .await;
    let texts: Vec<&str> = seen
        .iter()
        .map(|seen| seen.text.lines().next().unwrap())
        .collect();
    assert_eq!(texts, ["here", "there"], "{seen:?}");
    assert!(begun.elapsed() < Duration::from_secs(25));
    session.close().await;
}

#[tokio::test]
async fn h08_a_container_that_times_out_leaves_the_others_results() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER, LOCAL]).await;
    let limited = BackendSpec {
        call_timeout_ms: Some(2_500),
        ..docker(engine, [""; 0])
    };
    let session = stage.session([limited, local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("docker_bash_tool", bash("echo begun; sleep 60")),
                ("local_bash_tool", bash("echo local")),
                ("docker_bash_tool", bash("echo next")),
            ],
        )
        .await;
    assert!(
        seen[0].is_error && seen[0].text.starts_with("begun\n"),
        "{seen:?}"
    );
    assert!(seen[0].text.contains("time limit"), "{seen:?}");
    assert_eq!(seen[1..], ["local\n", "next\n"].map(Seen::ok));
    session.close().await;
}
