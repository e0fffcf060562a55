//! Thirty swaps of two plugins; `cargo xtask swaps` makes a thousand.

use conjure_chaos::swaps::{Options, run};

#[test]
fn no_call_notices_that_its_plugin_is_replaced() {
    let summary = run(&Options {
        count: 30,
        seed: 20,
    })
    .unwrap();
    assert!(summary.calls > 100, "{summary}");
    assert!(summary.moves > 100, "{summary}");
}
