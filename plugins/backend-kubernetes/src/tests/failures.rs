//! What goes wrong: each failure is an error of its call, with words that say what to do.

use std::fs;

use serde_json::{Value, json};

use super::{World, kubeconfig, world, world_as};

/// What the first command says in a world with this configuration, which keeps no pod.
fn says(config: &Value, before: impl Fn(&World), words: &[&str]) -> Option<World> {
    let world = world(config)?;
    before(&world);
    let text = world.bash_error();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert_eq!(world.api.cluster.names(), [""; 0], "{text}");
    Some(world)
}

#[test]
fn a_kubeconfig_that_is_not_there_or_does_not_fit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other");
    let words = [
        "kubeconfig",
        "cannot be used",
        "kubectl config get-contexts",
    ];
    let Some(world) = says(&json!({ "kubeconfig": path }), |_| (), &words) else {
        return;
    };
    // The next call reads it again.
    fs::copy(world.path("kubeconfig"), path).unwrap();
    assert_eq!(world.bash("echo on").stdout, "on\n");
    let words = ["there", "cannot be used"];
    says(&json!({ "context": "there" }), |_| (), &words);
}

#[test]
fn a_login_that_is_refused_and_a_right_that_is_missing_are_told() {
    let Some(stranger) = world_as(&json!({}), "other") else {
        return;
    };
    let text = stranger.bash_error();
    for word in ["does not know who asks", "kubectl auth whoami"] {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    // The next call reads it again.
    kubeconfig(&stranger.dir, stranger.network.address(), super::TOKEN);
    assert_eq!(stranger.bash("echo on").stdout, "on\n");
    let forbid = |right: &'static str| move |world: &World| world.api.cluster.forbid(right);
    for right in ["create pods", "get pods", "create pods/exec"] {
        let Some(world) = world(&json!({})) else {
            return;
        };
        forbid(right)(&world);
        let text = world.bash_error();
        let right = right.replace("pods/exec", "pods --subresource=exec");
        let tries = format!("kubectl auth can-i {right} -n agents");
        assert!(text.contains("forbids") && text.contains(&tries), "{text}");
        // It asks the cluster that the configuration names.
        let path = world.path("kubeconfig").display().to_string();
        assert!(text.contains(&format!("--kubeconfig {path}")), "{text}");
    }
    let words = [
        "exceeded quota",
        "The quota of the namespace",
        "`memory_mb`",
    ];
    says(&json!({ "image": "too-large" }), |_| (), &words);
    let words = ["has no namespace other", "`namespace`"];
    says(&json!({ "namespace": "other" }), |_| (), &words);
}

#[test]
fn an_image_that_cannot_be_fetched_is_told_with_the_reason_that_was_said_first() {
    let words = [
        "no such manifest",
        "Back-off pulling image",
        "`image_pull_secrets`",
    ];
    says(&json!({ "image": "unknown" }), |_| (), &words);
}

#[test]
fn an_image_without_the_shell_is_told() {
    says(
        &json!({ "image": "broken" }),
        |_| (),
        &["no such file", "`shell`"],
    );
}

#[test]
fn a_pod_that_finds_no_node_or_does_not_come_in_time_is_told_and_deleted() {
    let config = json!({ "image": "large", "ready_timeout_ms": 400 });
    let words = ["3 Insufficient memory", "`memory_mb`", "`ready_timeout_ms`"];
    says(&config, |_| (), &words);
    let config = json!({ "image": "slow", "ready_timeout_ms": 400 });
    says(&config, |_| (), &["`ready_timeout_ms`", "`slow`"]);
}

#[test]
fn a_cluster_that_does_not_answer_is_told() {
    let away = |world: &World| world.network.refuse();
    let words = ["does not answer", "Other backends go on"];
    let Some(world) = says(&json!({}), away, &words) else {
        return;
    };
    world.network.restore();
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn a_pod_that_is_evicted_during_a_call_is_told_and_the_next_call_has_another() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo kept >file");
    let before = world.pod();
    let running = world.start("echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let status = json!({ "phase": "Failed", "reason": "Evicted",
        "message": "The node was low on resource: memory." });
    world.api.cluster.end(&before, status);
    let text = running.wait().text();
    for word in ["Evicted", "low on resource", "begins empty"] {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert_eq!(world.bash("ls; echo on").stdout, "on\n");
    assert_ne!(world.pod(), before);
}

#[test]
fn an_agent_that_is_killed_is_told_and_the_next_call_has_another_in_the_same_pod() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo kept >file");
    let pod = world.api.cluster.running(&world.pod()).unwrap();
    let running = world.start("echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let agents = pod.processes("serve-relayed");
    assert_eq!(agents.len(), 1);
    let kill = std::process::Command::new("kill")
        .args(["-9", &agents[0].to_string()])
        .status();
    assert!(kill.unwrap().success());
    let text = running.wait().text();
    assert!(text.contains("is still there"), "{text}");
    assert_eq!(world.bash("cat file").stdout, "kept\n");
    assert_eq!(world.api.cluster.made(), 1);
}
