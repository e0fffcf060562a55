//! A session on a remote machine: what the model is told, files there and back, and a network that
//! is cut in the middle of a call.

use std::fs;
use std::time::Duration;

use conjure_host::session::BackendSpec;
use conjure_kit::{Network, Sshd};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::stage::{LOCAL, Stage, bash, in_time, local, system};

/// The package of the SSH executor.
const SSH: &str = "conjure-backend-ssh";

/// The SSH executor over a network, with these skill folders.
fn ssh<S: Into<String>>(
    sshd: &Sshd,
    network: &Network,
    skills: impl IntoIterator<Item = S>,
) -> BackendSpec {
    sshd.add_known_host(network.address()).unwrap();
    fs::create_dir_all(sshd.path("scratch")).unwrap();
    BackendSpec {
        config: Some(json!({
            "host": "127.0.0.1",
            "port": network.address().port(),
            "identity_file": sshd.path("user_key"),
            "known_hosts": sshd.path("known_hosts"),
            "config_file": sshd.path("config"),
            "scratch_dir": sshd.path("scratch"),
            "agent_dir": sshd.path("agent"),
        })),
        ..BackendSpec::executor("ssh", skills)
    }
}

#[tokio::test]
async fn calls_at_one_place_of_a_remote_machine_never_claim_each_others_files() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let network = Network::to(sshd.address()).unwrap();
    let stage = Stage::new(&[SSH]).await;
    for dir in ["work/deep", "far"] {
        fs::create_dir_all(sshd.path(dir)).unwrap();
    }
    let backend = |name: &str, dir: &str| {
        let mut spec = ssh(&sshd, &network, [""; 0]);
        if let Some(config) = &mut spec.config {
            config["working_dir"] = json!(sshd.path(dir));
        }
        spec.name = Some(name.to_owned());
        spec
    };
    let backends = [
        backend("one", "work"),
        backend("deep", "work/deep"),
        backend("far", "far"),
    ];
    let session = stage.session(backends).await;
    let alone = stage.call(&session, "one_bash_tool", bash("echo 1 >first.txt"));
    let alone = alone.await;
    assert!(alone.text.contains("first.txt"), "{alone:?}");
    // Each of the two waits for the other to have begun, and for what it makes.
    let until = |name: &str| format!("until test -e {name}; do sleep 0.01; done");
    let one = [
        "echo >one-begun".to_owned(),
        until("deep/deep-begun"),
        "echo one >deep/a.txt".to_owned(),
        until("deep/b.txt"),
    ];
    let deep = [
        "echo >deep-begun".to_owned(),
        until("../one-begun"),
        until("a.txt"),
        "echo deep >b.txt".to_owned(),
    ];
    let b_there = sshd.path("work/deep/b.txt").display().to_string();
    let far = [until(&b_there), "echo >f.txt".to_owned()];
    let calls = [
        ("one_bash_tool", bash(&one.join("; "))),
        ("deep_bash_tool", bash(&deep.join("; "))),
        ("far_bash_tool", bash(&far.join("; "))),
    ];
    let seen = stage.calls(&session, &calls).await;
    for call in &seen {
        assert!(!call.is_error, "{seen:?}");
        let claims = |name: &&str| call.text.contains(*name);
        assert!(!["a.txt", "b.txt", "begun"].iter().any(claims), "{seen:?}");
    }
    let files = session.created_files();
    let sources: Vec<_> = files
        .iter()
        .map(|file| (file.name.as_str(), file.source.as_str()))
        .collect();
    let mut sorted = sources.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            ("a.txt", "unknown"),
            ("b.txt", "unknown"),
            ("deep-begun", "unknown"),
            ("f.txt", "far"),
            ("first.txt", "one"),
            ("one-begun", "unknown"),
        ]
    );
    // Whoever found such a file hands it out, and a copy of it is nobody's work.
    let b = files.iter().find(|file| file.name == "b.txt").unwrap();
    let command = format!("cat {}; echo >g.txt", b.id);
    let read = stage.call(&session, "far_bash_tool", bash(&command)).await;
    assert!(read.text.starts_with("deep\n"), "{read:?}");
    let files = session.created_files();
    assert_eq!(files.len(), sorted.len() + 1, "{files:?}");
    session.close().await;
}

#[tokio::test]
async fn a_session_works_on_a_remote_machine_and_files_go_both_ways_through_a_cut() {
    let Some(sshd) = Sshd::find().unwrap() else {
        return;
    };
    let network = Network::to(sshd.address()).unwrap();
    let stage = Stage::new(&[SSH, LOCAL]).await;
    let skill = stage.where_am_i("analyzer");
    let spec = ssh(&sshd, &network, [skill]);
    let session = stage.session([spec, local()]).await;
    stage.model.says(Message::new().text("Hello."));
    in_time(session.chat("Hello?")).await.unwrap();
    let told = system(&stage.model.last_request());
    let scratch = sshd.path("scratch").display().to_string();
    assert!(
        told.contains(&format!("<location>{scratch}/conjure-")),
        "{told}"
    );
    // No call, no connection.
    assert!(!sshd.path("agent").exists());

    let command = "sh scripts/where.sh; pwd; printf abc >report.txt";
    let ran = stage.call(&session, "analyzer_bash_tool", bash(command));
    let ran = ran.await;
    assert!(
        ran.text.contains("on the host") && ran.text.contains(&scratch),
        "{ran:?}"
    );
    let files = session.created_files();
    let report = files.iter().find(|file| file.name == "report.txt").unwrap();
    assert_eq!((report.source.as_str(), &report.path), ("ssh", &None));
    let command = format!("cat {}; printf xyz >here.txt", report.id);
    let read = stage.bash(&session, &command).await;
    assert!(read.text.starts_with("abc"), "{read:?}");
    let files = session.created_files();
    let here = files.iter().find(|file| file.name == "here.txt").unwrap();
    let read = bash(&format!("cat {}", here.id));
    let read = stage.call(&session, "analyzer_bash_tool", read).await;
    assert!(read.text.starts_with("xyz"), "{read:?}");

    let runs = bash("echo once >>runs; sleep 2; echo through; cat runs");
    let cut = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        network.refuse();
        tokio::time::sleep(Duration::from_millis(500)).await;
        network.restore();
    };
    let (ran, ()) = tokio::join!(stage.call(&session, "analyzer_bash_tool", runs), cut);
    assert!(ran.text.starts_with("through\nonce\n"), "{ran:?}");
    assert!(!ran.is_error, "{ran:?}");
    session.close().await;
    assert_eq!(fs::read_dir(sshd.path("scratch")).unwrap().count(), 0);
}
