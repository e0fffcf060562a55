//! What local commands are kept from: the host's data, its key, and what is in other processes.

use std::fs;

use crate::stage::{LOCAL, Stage, local};

/// What no command may find.
const KEY: &str = "the-key-that-nobody-sees";

#[tokio::test]
async fn a_local_command_finds_neither_the_key_of_the_vault_nor_the_hosts_data() {
    let stage = Stage::new(&[LOCAL]).await;
    let data = stage.workspace.root().join("data");
    fs::write(data.join("vault.key"), KEY).unwrap();
    let session = stage.session([local()]).await;
    let key = data.join("vault.key").display().to_string();
    let pid = std::process::id();
    let link = "ln -s ../data linked; cat linked/vault.key";
    for command in [
        format!("cat {key}"),
        "cat ../data/vault.key".to_owned(),
        link.to_owned(),
        format!("ln {key} hard; cat hard"),
        format!("cat /proc/self/root{key} /proc/$PPID/root{key} /proc/{pid}/root{key}"),
        format!("cat /proc/{pid}/cwd/{key} /proc/1/root{key}"),
        format!("umount {}; cat {key}", data.display()),
        format!("grep -r {KEY} {}", data.display()),
    ] {
        let seen = stage.bash(&session, &command).await;
        assert!(!seen.text.contains(KEY), "{command}: {seen:?}");
        assert!(seen.is_error, "{command}: {seen:?}");
    }
    assert_eq!(fs::read_to_string(&key).unwrap(), KEY);
    session.close().await;
}

#[tokio::test]
async fn a_session_whose_directories_are_in_the_hosts_data_works_there() {
    let stage = Stage::new(&[LOCAL]).await;
    let data = stage.workspace.root().join("data");
    fs::write(data.join("vault.key"), KEY).unwrap();
    let mut spec = stage.spec([local()]);
    spec.working_dir = None;
    let session = stage.open(spec).await;
    let seen = stage
        .bash(&session, "echo made >file; cat file; pwd -P")
        .await;
    assert!(!seen.is_error && seen.text.contains("made\n"), "{seen:?}");
    assert!(
        seen.text
            .contains(&data.canonicalize().unwrap().display().to_string())
    );
    let seen = stage.bash(&session, "cat file ../../../vault.key").await;
    assert!(
        seen.text.contains("made") && !seen.text.contains(KEY),
        "{seen:?}"
    );
    session.close().await;
}

#[tokio::test]
async fn a_local_command_reads_the_environment_of_no_process_of_the_hosts() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let pid = std::process::id();
    for command in [
        "cat /proc/$PPID/environ".to_owned(),
        format!("cat /proc/{pid}/environ"),
        format!("head -c 1 /proc/{pid}/mem"),
        format!("cat /proc/{pid}/maps"),
        format!("readlink /proc/{pid}/exe"),
        format!("kill -CONT {pid}"),
    ] {
        let seen = stage.bash(&session, &command).await;
        assert!(seen.is_error, "{command}: {seen:?}");
    }
    session.close().await;
}
