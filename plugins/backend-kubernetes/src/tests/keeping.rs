//! What stays and what goes: pods of sessions, and those that a killed host left behind.

use conjure_skill_sdk::protocol::BashOutput;
use serde_json::{Value, json};

use super::{host, until, world};

#[test]
fn the_pod_goes_with_its_session_and_everything_in_it() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let running = world.start("echo begun; sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    world.call("executor.cleanup", json!({})).reply.unwrap();
    running.wait();
    assert_eq!(world.api.cluster.names(), [""; 0]);
    until("its files are gone", || !world.path("pod/work").exists());
}

#[test]
fn a_session_that_ends_while_its_pod_starts_leaves_none() {
    let Some(world) = world(&json!({ "image": "slow" })) else {
        return;
    };
    let running = world.start("true");
    until("a pod is made", || world.api.cluster.made() == 1);
    world.call("executor.cleanup", json!({})).reply.unwrap();
    assert!(running.wait().code().is_some());
    until("it is deleted", || world.api.cluster.names().is_empty());
}

#[test]
fn what_a_killed_host_left_goes_at_the_next_start_and_nothing_of_another_host() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let own = world.pod();
    let labels =
        |name: &str| -> Value { world.api.cluster.pod(name)["metadata"]["labels"].clone() };
    let mut killed = labels(&own);
    killed["io.conjure/host"] = json!("0123456789abcdef");
    world.api.cluster.put("killed", &killed);
    // Of a host with other data, which may be on another machine.
    let mut elsewhere = killed.clone();
    elsewhere["io.conjure/data"] = json!("fedcba9876543210");
    world.api.cluster.put("elsewhere", &elsewhere);
    world.api.cluster.put("strange", &json!({ "app": "shop" }));
    let second = host(
        &world.dir,
        &json!({ "working_dir": world.path("pod2/work"),
        "agent_dir": world.path("pod2/agent") }),
    );
    let second = second.link(crate::plugin).unwrap();
    until("it is deleted", || {
        !world.api.cluster.names().contains(&"killed".to_owned())
    });
    let left = world.api.cluster.names();
    assert_eq!(left, [own, "elsewhere".to_owned(), "strange".to_owned()]);
    // Both hosts live, with a pod each.
    let init = json!({ "skills": [], "env": {} });
    second.call("executor.init", init).reply.unwrap();
    let ran = second.call("executor.bash", json!({ "command": "echo on" }));
    let ran: BashOutput = ran.parse().unwrap();
    assert_eq!(ran.stdout, "on\n");
    assert_eq!(world.bash("echo on").stdout, "on\n");
    second.call("executor.cleanup", json!({})).reply.unwrap();
}
