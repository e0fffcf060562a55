//! A connection that is cut: no call is lost, no output is lost or comes twice, nothing runs twice.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use conjure_skill_sdk::protocol::BashOutput;
use serde_json::json;

use super::{World, notices, world};

/// Says a line every few milliseconds, and once in a file that it began.
const COUNTS: &str = "echo begun >>runs; i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; \
                      sleep 0.01; done";

fn counted() -> String {
    (1..=400).map(|number| format!("line {number}\n")).collect()
}

/// Cuts the network in the middle of a command that goes on for longer than the cut.
fn cut_in_the_middle(world: &World, cut: impl Fn(), lasts: Duration) {
    world.bash("true");
    let running = world.start(COUNTS);
    assert!(running.until(|seen| seen.stdout.len() > 200));
    cut();
    sleep(lasts);
    world.network.restore();
    let outcome = running.wait();
    let ran: BashOutput = outcome.parse().unwrap();
    assert_eq!((ran.exit_code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout == counted(), "{}", ran.stdout);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), counted());
    assert_eq!(fs::read(world.work("runs")).unwrap(), b"begun\n");
    let notices = notices(&outcome);
    let tells = |text: &str| notices.iter().filter(|told| told.contains(text)).count();
    assert_eq!((tells("is lost"), tells("is back")), (1, 1), "{notices:?}");
    assert_eq!(world.bash("echo on").stdout, "on\n");
    assert_eq!(world.api.cluster.made(), 1);
}

#[test]
fn a_connection_that_is_ended_in_the_middle_of_a_call_loses_nothing() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    cut_in_the_middle(&world, || world.network.refuse(), Duration::from_secs(1));
}

#[test]
fn a_network_that_falls_silent_in_the_middle_of_a_call_loses_nothing() {
    let Some(world) = world(&json!({ "alive_ms": 300 })) else {
        return;
    };
    let silent = Duration::from_secs(4);
    cut_in_the_middle(&world, || world.network.stall(), silent);
}

#[test]
fn a_connection_that_says_nothing_for_long_and_carries_is_kept() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let outcome = world.bash_within("sleep 6; echo on", 30_000);
    assert_eq!(notices(&outcome), [""; 0]);
    assert_eq!(world.api.cluster.programs().len(), 3);
}
