//! A hundred calls that break a plugin; `cargo xtask crashes` makes ten thousand.

use conjure_chaos::crashes::{Options, run};

#[test]
fn nobody_notices_that_the_workers_of_a_plugin_end() {
    let summary = run(&Options {
        count: 100,
        seed: 20,
    })
    .unwrap();
    assert_eq!(summary.modes.values().sum::<u64>(), 100);
    assert!(summary.ends > 40, "{summary}");
    assert!(summary.answered > 0, "{summary}");
}
