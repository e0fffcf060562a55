//! A few swaps of two plugins, inside the host and in workers; `cargo xtask swaps` makes a thousand.

use conjure_chaos::swaps::{Options, run};
use conjure_host::plugin::Isolation;

#[test]
fn no_call_notices_that_its_plugin_is_replaced() {
    let summary = run(&Options {
        count: 30,
        seed: 20,
        isolation: Isolation::InProcess,
    })
    .unwrap();
    assert!(summary.calls > 100, "{summary}");
    assert!(summary.version_changes > 100, "{summary}");
}

#[test]
fn no_call_notices_that_its_plugin_is_replaced_in_another_worker() {
    let summary = run(&Options {
        count: 5,
        seed: 21,
        isolation: Isolation::Process,
    })
    .unwrap();
    assert!(summary.calls > 100, "{summary}");
    assert!(summary.version_changes > 0, "{summary}");
}
