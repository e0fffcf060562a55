//! The soak itself: that it runs at all, for a few seconds.

use std::time::Duration;

use conjure_chaos::soak::{self, Options};

#[test]
fn a_few_sessions_have_turns_with_calls_of_each_kind_and_none_fails() {
    let report = soak::run(&Options {
        sessions: 5,
        time: Duration::from_secs(4),
        max_time: None,
        poll_interval: Duration::from_millis(100),
        pace: Duration::from_millis(300),
        report: |_| {},
    })
    .unwrap();
    // Seconds say nothing of memory.
    let told = report.failures().into_iter();
    let of_turns: Vec<String> = told
        .filter(|failure| !failure.starts_with("memory"))
        .collect();
    assert!(of_turns.is_empty(), "{of_turns:?}\n{report}");
}
