//! How containers end: with their session, with a call that is cancelled, with a killed host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_core::chat::Event;
use conjure_host::session::ChatError;
use conjure_kit::{Engine, Model, Signal, Workspace};
use conjure_mock_llm::Message;

use crate::docker_stage::{DOCKER, containers, docker, engine};
use crate::stage::{Stage, bash, conjure, in_time, workspace};

/// Waits until there are so many containers.
fn wait_for(engine: Engine, workspace: &Workspace, count: usize) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let found = containers(engine, workspace);
        if found.len() == count {
            return;
        }
        assert!(
            Instant::now() < until,
            "{count} expected, there are {found:?}"
        );
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn h15_the_end_of_a_session_removes_its_container_and_no_others() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let one = stage.session([docker(engine, [""; 0])]).await;
    let two = stage.session([docker(engine, [""; 0])]).await;
    for session in [&one, &two] {
        let seen = stage
            .call(session, "docker_bash_tool", bash("echo a >/tmp/own"))
            .await;
        assert!(!seen.is_error, "{seen:?}");
    }
    assert_eq!(containers(engine, &stage.workspace).len(), 2);
    one.close().await;
    assert_eq!(containers(engine, &stage.workspace).len(), 1);
    let seen = stage
        .call(&two, "docker_bash_tool", bash("cat /tmp/own"))
        .await;
    assert_eq!(seen.text, "a\n");
    two.close().await;
    assert_eq!(containers(engine, &stage.workspace), [""; 0]);
}

#[tokio::test]
async fn b04_a_cancelled_turn_ends_its_command_and_the_session_goes_on() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let session = Arc::new(stage.session([docker(engine, [""; 0])]).await);
    let command = bash("echo begun; setsid sleep 99 & sleep 99");
    stage.model.calls("toolu_1", "docker_bash_tool", command);
    let mut events = session.events_from_now();
    let chatting = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.chat("Go on.").await }
    });
    in_time(async {
        loop {
            if let Event::ToolOutput { chunk, .. } = &events.next().await.event
                && chunk.contains("begun")
            {
                return;
            }
        }
    })
    .await;
    session.cancel(true).await;
    let error = in_time(chatting).await.unwrap().unwrap_err();
    assert_eq!(error, ChatError::Cancelled);
    let count = bash("ps | grep -c '[s]leep 99'; true");
    let seen = stage.call(&session, "docker_bash_tool", count).await;
    assert_eq!(seen.text, "0\n");
    in_time(Arc::into_inner(session).unwrap().close()).await;
    assert_eq!(containers(engine, &stage.workspace), [""; 0]);
}

#[test]
fn h15_a_killed_host_leaves_no_container_after_the_next_start() {
    let Some(engine) = engine() else { return };
    let workspace = workspace(&[DOCKER]);
    let model = Model::start().unwrap();
    let session = format!(
        "provider = \"anthropic\"\nmodel = \"m\"\n\n[[backend]]\nkind = \"docker\"\nskills = []\n\
         config = {{ image = \"{}\" }}\n",
        engine.image()
    );
    workspace.write("session.toml", &session).unwrap();
    let run = |question: &str| {
        let run = conjure(
            &workspace,
            ["run", "--config", "session.toml", "--allow", "*", question],
        )
        .env("ANTHROPIC_BASE_URL", model.base_url())
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody");
        // The one engine that the test looks at.
        match std::env::var_os("DOCKER_HOST") {
            Some(host) => run.env("DOCKER_HOST", host),
            None => run,
        }
    };
    model.calls("toolu_1", "docker_bash_tool", bash("echo begun; sleep 99"));
    let running = run("Wait.").start().unwrap();
    wait_for(engine, &workspace, 1);
    running.signal(Signal::KILL);
    let _ = running.wait();
    model.calls("toolu_2", "docker_bash_tool", bash("echo again"));
    model.says(Message::new().text("Done."));
    let output = run("Go on.").run().unwrap();
    assert!(output.stdout.contains("Done."), "{output:?}");
    wait_for(engine, &workspace, 0);
}
