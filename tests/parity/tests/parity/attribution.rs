//! The source of a file when several calls ran while it was made: exactly one, the right one or
//! `unknown`, and in no result of a call that did not make it.

use std::collections::BTreeMap;
use std::fs;

use conjure_host::session::{BackendSpec, Session};
use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::{Execute, FileRef, ToolResult};
use serde_json::json;

use crate::docker_stage::{DOCKER, docker, engine};
use crate::stage::{LOCAL, Stage, bash, local};

/// The session's files: each with its source.
fn sources(session: &Session) -> BTreeMap<String, String> {
    let files = session.created_files();
    let count = files.len();
    let sources: BTreeMap<String, String> = files
        .into_iter()
        .map(|file| (file.name, file.source))
        .collect();
    assert_eq!(sources.len(), count, "each file is listed once");
    sources
}

fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, source)| ((*name).to_owned(), (*source).to_owned()))
        .collect()
}

/// A command that makes a file once all of these are there.
fn makes(file: &str, first: &[&str]) -> String {
    let waits: Vec<String> = first
        .iter()
        .map(|name| format!("until test -e {name}; do sleep 0.01; done; "))
        .collect();
    format!("{}echo {file} > {file}", waits.concat())
}

/// Writes `n.txt` and tells of it, or `silent.txt` and does not.
fn writer() -> Skill {
    Skill::new("writer", "Writes files").execute("told | silent", |cx, request: Execute| {
        let dir = cx.working_dir().ok_or("there is no working directory")?;
        let write = |name: &str| {
            let path = dir.join(name);
            fs::write(&path, name).map_err(|_| "it cannot be written")?;
            Ok::<_, &str>(path)
        };
        if request.command == "silent" {
            write("silent.txt")?;
            return Ok::<_, &str>(ToolResult::text("written"));
        }
        let path = write("n.txt")?;
        Ok(ToolResult::text("written").with_file(FileRef::at(path.display().to_string())))
    })
}

#[tokio::test]
async fn three_backends_at_once_never_claim_each_others_files() {
    let Some(engine) = engine() else { return };
    let stage = Stage::with(&[LOCAL, DOCKER], |builder| builder.skill(writer)).await;
    let backends = [BackendSpec::all_native(), local(), docker(engine, [""; 0])];
    let session = stage.session(backends).await;
    // A container takes its time to start: this is the first call's alone.
    let docker_alone = stage
        .call(&session, "docker_bash_tool", bash("echo 1 > first.txt"))
        .await;
    assert!(docker_alone.text.contains("first.txt"), "{docker_alone:?}");
    // Each waits for what the others make, so they all run when the files are made.
    let seen = stage
        .calls(
            &session,
            &[
                ("writer_execute", json!({ "command": "told" })),
                ("local_bash_tool", bash(&makes("l.txt", &["begun"]))),
                (
                    "docker_bash_tool",
                    bash(&format!(
                        "touch begun; {}; rm begun",
                        makes("d.txt", &["l.txt"])
                    )),
                ),
            ],
        )
        .await;
    assert!(seen[0].text.contains("n.txt"), "{seen:?}");
    for (seen, others) in [
        (&seen[0], ["l.txt", "d.txt"]),
        (&seen[1], ["n.txt", "d.txt"]),
        (&seen[2], ["n.txt", "l.txt"]),
    ] {
        assert!(!seen.is_error, "{seen:?}");
        assert!(
            others.iter().all(|name| !seen.text.contains(name)),
            "{seen:?}"
        );
    }
    let mut sources = sources(&session);
    // It may be gone before anybody looks.
    let begun = sources.remove("begun");
    assert!(
        begun.as_deref().is_none_or(|source| source == "unknown"),
        "{begun:?}"
    );
    for (name, source) in [("l.txt", "local"), ("d.txt", "docker")] {
        let found = sources.remove(name).expect(name);
        assert!(found == source || found == "unknown", "{name} of {found}");
    }
    assert_eq!(sources, of(&[("first.txt", "docker"), ("n.txt", "native")]));
    session.close().await;
}

#[tokio::test]
async fn a_file_that_nobody_tells_of_is_not_that_of_whoever_finds_it() {
    let stage = Stage::with(&[LOCAL], |builder| builder.skill(writer)).await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let seen = stage.bash(&session, "echo > alone.txt").await;
    assert!(seen.text.contains("alone.txt"), "{seen:?}");
    // A skill that tells nobody of its file, beside a command that makes none.
    let seen = stage
        .calls(
            &session,
            &[
                ("writer_execute", json!({ "command": "silent" })),
                (
                    "local_bash_tool",
                    bash("until test -e silent.txt; do sleep 0.01; done"),
                ),
            ],
        )
        .await;
    let told = seen.iter().any(|seen| seen.text.contains("silent.txt"));
    assert!(!told, "{seen:?}");
    let sources = sources(&session);
    let silent = sources.get("silent.txt");
    assert!(
        silent.is_none_or(|source| source == "unknown" || source == "native"),
        "{silent:?}"
    );
    assert_eq!(sources["alone.txt"], "local");
    session.close().await;
}
