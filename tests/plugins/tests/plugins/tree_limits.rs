//! What a plugin in a worker may be and have, alone and together with all the programs that it started.

use std::time::Duration;

use conjure_host::plugin::{Isolation, LoaderOptions, WorkerLimits, WorkerOptions};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::Bench;

use super::confined::{instance, library, library_that_starts_programs};

fn bench(limits: WorkerLimits) -> Bench {
    let workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    Bench::with(LoaderOptions {
        worker: Some(WorkerOptions {
            isolation: Isolation::Process,
            limits,
            ..workers
        }),
        ..LoaderOptions::default()
    })
}

/// How a call ends that starts too much; the next one, in another worker, works.
async fn end_of(limits: WorkerLimits, script: &str) -> String {
    let bench = bench(limits);
    let plugin = bench.load(&library_that_starts_programs());
    let work = tempfile::tempdir().unwrap();
    let instance = instance(&plugin, work.path()).await;
    let modest = "shell for i in 1 2 3; do true & done; wait";
    assert_eq!(Bench::execute(&instance, modest).await.unwrap(), "done");
    let failure = Bench::execute(&instance, script).await.unwrap_err();
    assert_eq!(Bench::execute(&instance, modest).await.unwrap(), "done");
    failure.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_are_too_many_together_end_with_their_worker() {
    let limits = WorkerLimits {
        processes: 16,
        ..WorkerLimits::default()
    };
    let script = "shell for i in 1 2 3 4 5; do for k in 1 2 3 4 5; do sleep 600 & done; done; wait";
    let said = end_of(limits, script).await;
    for part in [
        "prober",
        "ended by the host",
        "processes, and a worker may have 16",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_have_too_much_memory_together_end_with_their_worker() {
    let limits = WorkerLimits {
        tree_memory: 200 << 20,
        ..WorkerLimits::default()
    };
    // Each keeps what it reads, since it has no line to write before the end.
    let script = "shell for i in 1 2 3 4; do \
                  head -c 100000000 /dev/zero | tail -n 1 | sleep 600 & done; wait";
    let said = end_of(limits, script).await;
    for part in [
        "prober",
        "ended by the host",
        "MiB of memory, and together they may have 200 MiB",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_compute_for_ever_end_with_their_worker() {
    let limits = WorkerLimits {
        processor_time: Duration::from_secs(1),
        ..WorkerLimits::default()
    };
    // What has ended counts as well: no loop takes long itself.
    let script = "shell while :; do (i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); done";
    let said = end_of(limits, script).await;
    for part in [
        "prober",
        "ended by the host",
        "more time of processors than a worker may (1 s beyond a quarter of one processor)",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_opens_no_more_files_than_it_may_and_its_next_call_works() {
    let limits = WorkerLimits {
        open_files: 200,
        ..WorkerLimits::default()
    };
    for (limits, few, many) in [
        (limits, "hold-open 100", "hold-open 200"),
        (WorkerLimits::default(), "hold-open 900", "hold-open 1024"),
    ] {
        let bench = bench(limits);
        let plugin = bench.load(&library());
        let work = tempfile::tempdir().unwrap();
        let instance = instance(&plugin, work.path()).await;
        for (attempt, outcome) in [(few, "done"), (many, "error 24"), (few, "done")] {
            assert_eq!(Bench::execute(&instance, attempt).await.unwrap(), outcome);
        }
    }
}
