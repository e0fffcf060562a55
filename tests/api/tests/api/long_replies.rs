//! Replies that are longer than a session takes are cut: the thread holds what came, the next
//! request is sent, and the server stays small.

use conjure_mock_llm::{Bulk, Faults, Message};
use serde_json::json;

use crate::events::{Came, Client};
use crate::stage::{Stage, text};

/// The most that a body may have, in bytes.
const LIMIT: u64 = 64 * 1024 * 1024;

fn bulky(bulk: Bulk) -> Message {
    let faults = Faults {
        bulk: Some(bulk),
        ..Faults::default()
    };
    Message::new().text("On and on ").faults(faults)
}

/// The most memory that a process has had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.unwrap().trim().trim_end_matches(" kB");
    kibibytes.trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_reply_that_is_too_long_is_cut_and_the_conversation_goes_on() {
    let stage = Stage::new();
    let session = stage.session(&json!({}));
    let id = text(&session["id"]);
    let thread = text(&session["thread"]["id"]);
    let events = format!("/api/v1/threads/{thread}/events");
    let mut follower = Client::follow(&stage.server, &events, None);
    let mut notices = 0;
    for bulk in [Bulk::Text(100_000_000), Bulk::Deltas(u64::MAX)] {
        stage.model.says(bulky(bulk));
        let turn = stage.over(&stage.say(&id, "Tell me all"));
        assert!(
            turn["state"] == "cut_short" || turn["state"] == "failed",
            "{turn}"
        );
        let shown = follower.until("done");
        let is_notice = |came: &&Came| came.data["text"].to_string().contains("The reply is cut");
        notices += shown.iter().filter(is_notice).count();
        stage.model.says(Message::new().text("Shorter."));
        stage.talk(&id, "Shorter, please");
        follower.until("done");
    }
    assert!(notices > 0);
    let pid = stage.server.running.pid().unwrap();
    let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
    let peak = peak(pid);
    assert!(peak <= 3 * LIMIT, "{} MiB", peak / 1024 / 1024);
}
