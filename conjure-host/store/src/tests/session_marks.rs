//! Sessions that other processes change and run turns in, as one that looks again and again reads them.

use crate::tests::runs::session;
use crate::tests::{Bed, cases, id};
use crate::{ForeignTurn, Run, RunState, SavedSession};

cases! {
    what_another_process_does_in_a_session_shows_in_its_mark
}

async fn what_another_process_does_in_a_session_shows_in_its_mark(bed: Bed) {
    let (one, two) = (bed.open().await, bed.open().await);
    one.create_thread(&id("t"), "").await.unwrap();
    let made = session(&one).await;
    let idle = one.session_marks().await.unwrap().remove(&made.id).unwrap();
    assert_eq!(idle.updated_at_ms, made.updated_at_ms);
    assert_eq!((idle.running.clone(), idle.queued), (None, 0));
    let run = Run {
        state: RunState::Running,
        ..Run::new("r", Some(made.id.clone()), id("t"))
    };
    two.begin_run(run).await.unwrap();
    let waiting = Run::new("q", Some(made.id.clone()), id("t"));
    two.begin_run(waiting).await.unwrap();
    two.set_run_waiting("r", true).await.unwrap();
    let mark = one.session_marks().await.unwrap().remove(&made.id).unwrap();
    let running = ForeignTurn {
        id: "r".to_owned(),
        thread: id("t"),
        is_waiting: true,
    };
    assert_eq!((mark.running, mark.queued), (Some(running), 1));
    // Whoever runs them knows that better.
    let own = two.session_marks().await.unwrap().remove(&made.id).unwrap();
    assert_eq!(own, idle);
    for turn in ["q", "r"] {
        let ended = two.end_run(turn, RunState::Completed, None, None);
        assert!(ended.await.unwrap());
    }
    let changed = SavedSession {
        model_id: "other".to_owned(),
        ..made.clone()
    };
    let changed = two.update_session(changed).await.unwrap();
    let mark = one.session_marks().await.unwrap().remove(&made.id).unwrap();
    assert_eq!(mark.updated_at_ms, changed.updated_at_ms);
    assert_eq!((mark.running, mark.queued), (None, 0));
    two.delete_session(&made.id).await.unwrap();
    assert_eq!(one.session_marks().await.unwrap().get(&made.id), None);
}
