//! Files between a container and the rest of a session.

use std::fs;

use conjure_host::session::BackendSpec;
use serde_json::json;

use crate::docker_stage::{DOCKER, docker, engine};
use crate::stage::{LOCAL, Stage, bash, local};

#[tokio::test]
async fn h12_b24_files_made_in_a_container_are_the_sessions_with_their_source() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER, LOCAL]).await;
    let session = stage.session([docker(engine, [""; 0]), local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                (
                    "docker_bash_tool",
                    bash("mkdir out; printf abc >out/report.txt"),
                ),
                (
                    "docker_create_file",
                    json!({ "path": "notes.md", "file_text": "n", "description": "" }),
                ),
            ],
        )
        .await;
    assert!(seen[0].text.contains("out/report.txt"), "{seen:?}");
    // The other backend goes on with it, and the container with what that one makes.
    let local = stage
        .bash(&session, "cat out/report.txt; echo more >>out/report.txt")
        .await;
    assert!(local.text.starts_with("abc"), "{local:?}");
    let read = bash("cat out/report.txt");
    let seen = stage.call(&session, "docker_bash_tool", read).await;
    assert_eq!(seen.text, "abcmore\n");
    let files = session.created_files();
    let known = |name: &str| files.iter().find(|file| file.name == name).unwrap();
    assert_eq!(known("notes.md").source, "docker");
    assert_eq!(
        known("report.txt").source,
        "local",
        "who changed it last made it"
    );
    session.close().await;
}

#[tokio::test]
async fn h12_b23_files_on_an_engine_elsewhere_are_fetched_once_when_needed() {
    let Some(engine) = engine() else { return };
    let stage = Stage::new(&[DOCKER]).await;
    let elsewhere = BackendSpec {
        config: Some(json!({ "image": engine.image(), "files": "copy" })),
        ..docker(engine, [""; 0])
    };
    let session = stage.session([elsewhere]).await;
    let command = "printf abc >report.txt; ln -s /etc/passwd link; echo x >'..evil'";
    let seen = stage
        .call(&session, "docker_bash_tool", bash(command))
        .await;
    assert!(seen.text.contains("report.txt"), "{seen:?}");
    assert!(!stage.workspace.work().join("report.txt").exists());
    let files = session.created_files();
    let report = files.iter().find(|file| file.name == "report.txt").unwrap();
    assert_eq!((report.source.as_str(), &report.path), ("docker", &None));
    let first = session.resolve(&report.id).await.unwrap();
    assert_eq!(fs::read(&first).unwrap(), b"abc");
    // Fetched once: it is still there without the container.
    let again = session.resolve(&report.id).await.unwrap();
    assert_eq!(again, first);
    // Changed meanwhile it is another file.
    let change = bash("printf changed >report.txt");
    stage.call(&session, "docker_bash_tool", change).await;
    let changed = session.created_files();
    let changed = changed.iter().rev().find(|file| file.name == "report.txt");
    let changed = session.resolve(&changed.unwrap().id).await.unwrap();
    assert_eq!(fs::read(changed).unwrap(), b"changed");
    assert_eq!(fs::read(&first).unwrap(), b"abc");
    assert!(session.resolve("../../etc/passwd").await.is_err());
    for file in &files {
        assert!(!file.name.contains('/') && file.name != "link", "{file:?}");
    }
    session.close().await;
}
