//! What a run spent whose process is gone.

use conjure_core::chat::Usage;

use crate::tests::{Bed, cases, id};
use crate::{Run, RunState, RunUsage};

cases! {
    what_a_run_left_behind_spent_is_noted_unless_it_came_to_its_own_end
}

async fn what_a_run_left_behind_spent_is_noted_unless_it_came_to_its_own_end(bed: Bed) {
    let store = bed.open().await;
    store.create_thread(&id("t"), "").await.unwrap();
    let spent = RunUsage {
        usage: Usage {
            input: 10,
            output: 2,
            ..Usage::default()
        },
        calls: 3,
        usd: Some(0.5),
    };
    let run = |name: &str| Run {
        state: RunState::Running,
        ..Run::new(name, None, id("t"))
    };
    let begun = store.begin_run(run("left")).await.unwrap();
    let heard = begun.beat_ms;
    // From a clock that is ahead, and from one that is behind.
    for seen in [i64::MAX, heard - 1] {
        store
            .record_abandoned_usage("left", spent, seen)
            .await
            .unwrap();
        let left = store.run("left").await.unwrap();
        assert_eq!((left.spent, left.beat_ms), (spent, heard));
        assert_eq!((left.state, left.ended_at_ms), (RunState::Running, None));
    }
    // What is known already is not lost to a log that tells of less.
    let less = RunUsage {
        usage: Usage {
            input: 4,
            ..Usage::default()
        },
        calls: 5,
        usd: None,
    };
    store.record_abandoned_usage("left", less, 0).await.unwrap();
    let left = store.run("left").await.unwrap();
    assert_eq!(left.spent, RunUsage { calls: 5, ..spent });
    store.begin_run(run("over")).await.unwrap();
    let over = store.end_run("over", RunState::Completed, None, None);
    assert!(over.await.unwrap());
    store
        .record_abandoned_usage("over", spent, 0)
        .await
        .unwrap();
    let over = store.run("over").await.unwrap();
    assert_eq!(over.spent, RunUsage::default());
}
