//! Turns that wait: for a person, as another process reads it, and to begin.

use crate::tests::{Bed, cases, id};
use crate::{Run, RunFilter, RunState};

cases! {
    another_process_reads_whether_a_run_waits_for_a_person
    a_run_whose_process_ended_while_it_waited_waits_no_more
    a_run_that_waits_is_not_among_those_that_began
}

async fn a_run_that_waits_is_not_among_those_that_began(bed: Bed) {
    let store = bed.open().await;
    store.create_thread(&id("t"), "").await.unwrap();
    for (name, state) in [("runs", RunState::Running), ("waits", RunState::Queued)] {
        let run = Run {
            state,
            ..Run::new(name, None, id("t"))
        };
        store.begin_run(run).await.unwrap();
    }
    let listed = async |of: RunFilter<'_>| {
        let runs = store.runs(of, None, 9).await.unwrap();
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(RunFilter::Started(&id("t"))).await, ["runs"]);
    assert_eq!(listed(RunFilter::Thread(&id("t"))).await.len(), 2);
    let over = store.end_run("waits", RunState::Cancelled, None, None);
    assert!(over.await.unwrap());
    assert_eq!(listed(RunFilter::Started(&id("t"))).await, ["runs"]);
}

async fn another_process_reads_whether_a_run_waits_for_a_person(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    store.create_thread(&id("t"), "").await.unwrap();
    let run = Run {
        state: RunState::Running,
        ..Run::new("r", None, id("t"))
    };
    let begun = store.begin_run(run).await.unwrap();
    assert_eq!(begun.waiting_since_ms, None);
    store.set_run_waiting("r", true).await.unwrap();
    let since = other.run("r").await.unwrap().waiting_since_ms;
    assert!(since >= begun.started_at_ms, "{since:?}");
    store.set_run_waiting("r", false).await.unwrap();
    assert_eq!(other.run("r").await.unwrap().waiting_since_ms, None);
    // What is over waits for nobody, also where it ended while it waited.
    store.set_run_waiting("r", true).await.unwrap();
    let ended = store.end_run("r", RunState::Completed, None, None);
    assert!(ended.await.unwrap());
    assert_eq!(other.run("r").await.unwrap().waiting_since_ms, None);
    store.set_run_waiting("r", true).await.unwrap();
    assert_eq!(other.run("r").await.unwrap().waiting_since_ms, None);
}

async fn a_run_whose_process_ended_while_it_waited_waits_no_more(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    store.create_thread(&id("t"), "").await.unwrap();
    let run = Run {
        state: RunState::Running,
        ..Run::new("r", None, id("t"))
    };
    other.begin_run(run).await.unwrap();
    other.set_run_waiting("r", true).await.unwrap();
    other.close().await;
    let taken = store.take_over_runs().await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].waiting_since_ms, None);
    assert_eq!(store.run("r").await.unwrap(), taken[0]);
}
