//! Refusals of a cluster that pass, and how one is told that does not.

use serde_json::json;

use super::api::Refusal;
use super::{World, world};

/// A world whose cluster refuses once what needs this right.
fn refusing(right: &'static str, refusals: &[Refusal]) -> Option<World> {
    let world = world(&json!({}))?;
    for refusal in refusals {
        world.api.cluster.refuse_once(right, refusal.clone());
    }
    Some(world)
}

fn refusal(code: u16, reason: &'static str, message: &str) -> Refusal {
    (code, reason, message.to_owned())
}

#[test]
fn a_cluster_that_takes_no_more_requests_is_told_as_busy() {
    let busy = refusal(429, "TooManyRequests", "too many requests, try later");
    let Some(world) = refusing("create pods", &[busy]) else {
        return;
    };
    let text = world.bash_error();
    for word in ["is busy", "429", "try later", "Call again"] {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert!(!text.contains("does not answer"), "{text}");
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn a_pod_that_was_made_before_its_answer_was_lost_is_used() {
    let late = refusal(504, "Timeout", "request did not complete in time");
    let Some(world) = refusing("create pods", &[late]) else {
        return;
    };
    assert_eq!(world.bash("echo on").stdout, "on\n");
    assert_eq!(
        (world.api.cluster.made(), world.pod().is_empty()),
        (1, false)
    );
}

#[test]
fn a_quota_that_others_changed_meanwhile_is_asked_again() {
    let message =
        "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified";
    let conflict = refusal(409, "Conflict", message);
    let away = refusal(503, "ServiceUnavailable", "shutting down");
    let refusals = [conflict.clone(), away, conflict];
    let Some(world) = refusing("create pods", &refusals) else {
        return;
    };
    assert_eq!(world.bash("echo on").stdout, "on\n");
    assert_eq!(world.api.cluster.made(), 1);
}

#[test]
fn a_node_that_cannot_be_reached_yet_is_waited_for() {
    let message = "error dialing backend: remote error: tls: internal error";
    let unreached = refusal(500, "InternalError", message);
    let Some(world) = refusing("create pods/exec", &[unreached.clone(), unreached]) else {
        return;
    };
    assert_eq!(world.bash("echo on").stdout, "on\n");
    assert_eq!(world.api.cluster.made(), 1);
}
