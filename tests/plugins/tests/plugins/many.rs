//! Many loads in one process.

use std::time::{Duration, Instant};

use conjure_host::plugin::{LIBRARY_LIMIT, Loader, LoaderOptions, PluginError};
use conjure_plugin_tests::{Bench, Versions, run_child};

use super::sources::marked;

/// Kilobytes that a load may keep: the system's share of about 50, and what the host remembers of a
/// plugin. Keeping the library's bytes would be several times as much.
const GROWTH_LIMIT: u64 = 200;

/// Kilobytes that are the process's own: resident and not backed by a file.
fn own_memory() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

#[test]
#[ignore = "runs in a child"]
fn three_hundred_child() {
    const LOADS: u64 = 300;
    let bench = Bench::new();
    let versions = Versions::of_header(&marked());
    let path = bench.put("libmarked.so", versions.original());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let registry = bench.registry();
        registry.add(&path, false).unwrap();
        let before = own_memory();
        let begun = Instant::now();
        let mut loading = Duration::ZERO;
        for number in 1..=LOADS {
            bench.put("libmarked.so", &versions.number(number));
            let begun = Instant::now();
            let plugin = registry.add(&path, false).unwrap();
            loading += begun.elapsed();
            let instance = bench.instance(&plugin).await;
            assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
        }
        let growth = own_memory().saturating_sub(before) / LOADS;
        println!(
            "FIGURES {LOADS} loads of changed versions in {:?}, {:?} a load; memory growth a load {growth} KiB",
            begun.elapsed(),
            loading / u32::try_from(LOADS).unwrap(),
        );
        assert!(before > 0, "the memory was not read");
        assert!(
            growth < GROWTH_LIMIT,
            "{growth} KiB a load; about 50 KiB is what the system costs"
        );
        assert_eq!(Loader::opened(), usize::try_from(LOADS).unwrap() + 1);
        assert_eq!(registry.snapshot().plugins().len(), 1);
    });
}

#[test]
fn three_hundred_changed_versions_are_loaded_and_called() {
    let exit = run_child("many::three_hundred_child", &[]);
    println!("{}", exit.output);
    assert!(exit.success, "{}", exit.output);
}

#[test]
#[ignore = "runs in a child"]
fn guard_child() {
    let limit = 5;
    let bench = Bench::with(LoaderOptions {
        library_limit: limit,
        ..LoaderOptions::default()
    });
    fill(&bench, limit);
}

#[test]
#[ignore = "runs in a child"]
fn real_guard_child() {
    fill(&Bench::new(), LIBRARY_LIMIT);
}

/// Loads up to the limit, and expects a refusal then which leaves everything as it was.
fn fill(bench: &Bench, limit: usize) {
    let versions = Versions::of_header(&marked());
    for number in 0..limit {
        let path = bench.put("plugin.so", &versions.number(number as u64));
        bench.loader.load(&path, false).unwrap();
    }
    let path = bench.put("plugin.so", &versions.number(u64::MAX));
    let error = bench.loader.load(&path, false).unwrap_err();
    assert!(
        matches!(error, PluginError::TooMany { opened, .. } if opened == limit),
        "{error}"
    );
    assert!(error.to_string().contains("Restart the host"), "{error}");
    // What is open already is not opened again.
    let path = bench.put("plugin.so", &versions.number(0));
    let plugin = std::sync::Arc::new(bench.loader.load(&path, false).unwrap());
    assert_eq!(Loader::opened(), limit);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let instance = bench.instance(&plugin).await;
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    });
}

#[test]
fn more_libraries_than_the_limit_are_refused() {
    let exit = run_child("many::guard_child", &[]);
    assert!(exit.success, "{}", exit.output);
}

#[test]
fn the_real_limit_is_reached_before_the_system_has_no_keys_left() {
    let exit = run_child("many::real_guard_child", &[]);
    assert!(exit.success, "{:?}\n{}", exit.signal, exit.output);
}
