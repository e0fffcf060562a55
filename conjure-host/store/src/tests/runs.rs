//! Runs: who owns them, what they sum up to, and what becomes of those whose owner is gone.

use std::sync::atomic::Ordering;

use conjure_core::chat::{Message, Usage};

use crate::{
    KeyStatus, Location, Run, RunFilter, RunState, RunUsage, SavedAuth, SavedSession, Store,
    StoreError,
};

use super::{Bed, cases, id, open};

cases! {
    a_run_begins_runs_and_ends_once
    a_run_needs_a_thread_a_session_and_an_id_of_its_own
    runs_are_listed_by_thread_and_session_the_newest_first
    runs_of_a_process_that_is_gone_end_as_interrupted_and_no_others
    what_a_run_says_is_kept_until_it_is_written_or_nobody_wants_it
    a_silent_writer_loses_its_runs_and_begins_none
    a_run_that_is_silent_is_found_and_one_that_beats_is_not
    the_totals_of_a_session_are_the_sums_of_its_runs
    runs_go_with_their_thread_and_outlive_their_session
    runs_go_into_an_export_and_are_interrupted_where_they_come_out
}

pub(super) async fn with_thread(bed: &Bed) -> Store {
    let store = bed.open().await;
    store.create_thread(&id("t"), "").await.unwrap();
    store
}

pub(super) async fn session(store: &Store) -> SavedSession {
    let auths = store.auths(None, 1).await.unwrap();
    let auth = match auths.into_iter().next() {
        Some(auth) => auth,
        None => {
            let auth = SavedAuth::new("openai", "api_key", "work", vec![1]);
            store.create_auth(auth).await.unwrap()
        }
    };
    let session = SavedSession::new(&auth.id, "gpt", "/home/me");
    store.create_session(session).await.unwrap()
}

pub(super) fn run(name: &str) -> Run {
    Run::new(name, None, id("t"))
}

fn spent(tokens: u64, usd: Option<f64>) -> RunUsage {
    RunUsage {
        usage: Usage {
            input: tokens,
            cache_read: 2,
            cache_write: 3,
            output: 4,
            reasoning: 1,
        },
        calls: 5,
        usd,
    }
}

/// Changes rows behind the store's back.
pub(super) async fn by_hand(store: &Store, sql: &str) {
    let tx = store.db().begin(true, "test").await.unwrap();
    assert!(tx.execute(sql, []).await.unwrap() > 0, "{sql}");
    tx.commit().await.unwrap();
}

async fn a_run_begins_runs_and_ends_once(bed: Bed) {
    let store = with_thread(&bed).await;
    let session = session(&store).await;
    let begun = Run::new("turn-1", Some(session.id.clone()), id("t"));
    let begun = store.begin_run(begun).await.unwrap();
    assert_eq!(begun.state, RunState::Queued);
    assert!(begun.queued_at_ms > 1_700_000_000_000, "{begun:?}");
    assert_eq!((begun.started_at_ms, begun.ended_at_ms), (None, None));
    assert_eq!(store.run("turn-1").await.unwrap(), begun);

    assert!(
        store
            .update_run("turn-1", RunState::Running, None)
            .await
            .unwrap()
    );
    let running = store.run("turn-1").await.unwrap();
    let started = running.started_at_ms.unwrap();
    assert!(started >= begun.queued_at_ms);
    let some = spent(1, None);
    let updated = store.update_run("turn-1", RunState::Running, Some(some));
    assert!(updated.await.unwrap());
    let updated = store.run("turn-1").await.unwrap();
    assert_eq!(
        (updated.spent, updated.started_at_ms),
        (some, Some(started))
    );

    let all = spent(10, Some(0.25));
    let (one, other) = tokio::join!(
        store.end_run("turn-1", RunState::Failed, Some(all), Some("no \0 answer")),
        store.end_run("turn-1", RunState::Cancelled, None, None),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one != other, "{one} {other}");
    let ended = store.run("turn-1").await.unwrap();
    let expected = if one {
        (RunState::Failed, all, Some("no  answer".to_owned()))
    } else {
        (RunState::Cancelled, some, None)
    };
    assert_eq!((ended.state, ended.spent, ended.error.clone()), expected);
    assert!(ended.ended_at_ms.unwrap() >= started);
    // What is over stays as it is.
    assert!(
        !store
            .update_run("turn-1", RunState::Running, None)
            .await
            .unwrap()
    );
    assert_eq!(store.beat_runs(&["turn-1"]).await.unwrap(), 0);
    assert_eq!(store.run("turn-1").await.unwrap(), ended);
    for unknown in ["turn-2", "nul \0"] {
        let over = store.end_run(unknown, RunState::Completed, None, None);
        assert!(!over.await.unwrap());
        let error = store.run(unknown).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
    let running = Run {
        state: RunState::Running,
        ..run("turn-3")
    };
    let running = store.begin_run(running).await.unwrap();
    assert_eq!(running.started_at_ms, Some(running.queued_at_ms));
}

async fn what_a_run_says_is_kept_until_it_is_written_or_nobody_wants_it(bed: Bed) {
    let store = with_thread(&bed).await;
    let other = bed.open().await;
    let said = |text: &str| Some(Message::user(text));
    let ends = [
        ("done", RunState::Completed),
        ("dropped", RunState::Cancelled),
        ("broke", RunState::Failed),
        ("lost", RunState::Lost),
    ];
    for (name, _) in ends {
        let begun = store.begin_run(run(name).with_message(said(name))).await;
        assert_eq!(begun.unwrap().message, said(name));
    }
    for (number, name) in ["first \0", "second"].into_iter().enumerate() {
        let waits = run(&format!("waits-{number}")).with_message(said(name));
        other.begin_run(waits).await.unwrap();
    }
    other.begin_run(run("goes-on")).await.unwrap();
    assert!(store.unwritten_runs(None, 9).await.unwrap().is_empty());
    for (name, end) in ends {
        assert!(store.end_run(name, end, None, None).await.unwrap());
    }
    other.close().await;
    store.take_over_runs().await.unwrap();
    let unwritten = async || {
        let runs = store.unwritten_runs(None, 9).await.unwrap();
        let said = runs.into_iter().map(|run| run.message.unwrap().text());
        said.collect::<Vec<_>>()
    };
    assert_eq!(unwritten().await, ["lost", "first \0", "second"]);
    assert_eq!(store.unwritten_runs(None, 1).await.unwrap().len(), 1);
    for name in ["lost", "waits-0", "nothing"] {
        store.mark_run_written(name).await.unwrap();
    }
    assert_eq!(unwritten().await, ["second"]);
    assert_eq!(store.run("lost").await.unwrap().state, RunState::Lost);
}

async fn a_run_needs_a_thread_a_session_and_an_id_of_its_own(bed: Bed) {
    let store = with_thread(&bed).await;
    let error = Run::new("r", None, id("nowhere"));
    let error = store.begin_run(error).await.unwrap_err();
    assert!(matches!(error, StoreError::NoThread { .. }), "{error}");
    let error = Run::new("r", Some("nobody".to_owned()), id("t"));
    let error = store.begin_run(error).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    for bad in ["", "a\0b", "a\nb", &"x".repeat(129)] {
        let error = store.begin_run(run(bad)).await.unwrap_err();
        assert!(matches!(error, StoreError::BadName { .. }), "{error}");
    }
    let first = store.begin_run(run("r")).await.unwrap();
    let error = store.begin_run(run("r")).await.unwrap_err();
    assert!(matches!(error, StoreError::NameTaken { .. }), "{error}");
    assert_eq!(store.run("r").await.unwrap(), first);
}

async fn runs_are_listed_by_thread_and_session_the_newest_first(bed: Bed) {
    let store = with_thread(&bed).await;
    store.create_thread(&id("u"), "").await.unwrap();
    let session = session(&store).await;
    for number in 0..6 {
        let mine = (number % 3 == 0).then(|| session.id.clone());
        let thread = if number % 2 == 0 { "t" } else { "u" };
        let run = Run::new(format!("r{number}"), mine, id(thread));
        store.begin_run(run).await.unwrap();
    }
    // Two of one time.
    for (number, at) in [(0, 5), (1, 10), (2, 20), (3, 20), (4, 40), (5, 50)] {
        let sql = format!("UPDATE runs SET queued_at_ms = {at} WHERE id = 'r{number}'");
        by_hand(&store, &sql).await;
    }
    let listed = async |of: RunFilter<'_>| {
        let mut ids = Vec::new();
        let mut after = None;
        loop {
            let page = store.runs(of, after.as_ref(), 1).await.unwrap();
            let Some(run) = page.into_iter().next() else {
                break ids;
            };
            after = Some(run.cursor());
            ids.push(run.id);
        }
    };
    assert_eq!(
        listed(RunFilter::All).await,
        ["r5", "r4", "r3", "r2", "r1", "r0"]
    );
    assert_eq!(
        listed(RunFilter::Thread(&id("t"))).await,
        ["r4", "r2", "r0"]
    );
    assert_eq!(listed(RunFilter::Session(&session.id)).await, ["r3", "r0"]);
    assert!(listed(RunFilter::Session("none")).await.is_empty());
    let two = store.runs(RunFilter::All, None, 2).await.unwrap();
    assert_eq!(two.len(), 2);
}

async fn runs_of_a_process_that_is_gone_end_as_interrupted_and_no_others(bed: Bed) {
    let store = with_thread(&bed).await;
    let other = bed.open().await;
    for (store, name) in [(&store, "mine"), (&other, "theirs"), (&other, "over")] {
        store.begin_run(run(name)).await.unwrap();
        let running = store.update_run(name, RunState::Running, Some(spent(7, None)));
        assert!(running.await.unwrap());
    }
    store.begin_run(run("waits")).await.unwrap();
    let over = other.end_run("over", RunState::Completed, None, None);
    assert!(over.await.unwrap());
    assert!(store.take_over_runs().await.unwrap().is_empty());

    other.close().await;
    let before = store.run("theirs").await.unwrap();
    let interrupted = Run {
        state: RunState::Interrupted,
        ended_at_ms: Some(before.beat_ms),
        error: Some(
            "the process that ran it is gone; what came so far is kept, and nothing of it is \
             repeated"
                .to_owned(),
        ),
        ..before.clone()
    };
    assert_eq!(store.abandoned_runs().await.unwrap(), [before]);
    let taken = store.take_over_runs().await.unwrap();
    assert_eq!(taken, std::slice::from_ref(&interrupted));
    assert!(store.abandoned_runs().await.unwrap().is_empty());
    assert_eq!(store.run("theirs").await.unwrap(), interrupted);
    assert!(store.take_over_runs().await.unwrap().is_empty());
    for (name, state) in [
        ("mine", RunState::Running),
        ("waits", RunState::Queued),
        ("over", RunState::Completed),
    ] {
        assert_eq!(store.run(name).await.unwrap().state, state);
    }
    // Whoever is told late that it is over has not ended it.
    let late = store.end_run("theirs", RunState::Completed, None, None);
    assert!(!late.await.unwrap());
}

async fn a_silent_writer_loses_its_runs_and_begins_none(bed: Bed) {
    let store = with_thread(&bed).await;
    let silent = bed.open().await;
    silent.db().is_mute.store(true, Ordering::SeqCst);
    let begun = silent.begin_run(run("r")).await.unwrap();
    let sql = format!(
        "UPDATE writers SET beat_ms = 0 WHERE id = '{}'",
        begun.owner
    );
    by_hand(&store, &sql).await;
    let taken = store.take_over_runs().await.unwrap();
    assert_eq!(taken.len(), 1);
    let error = silent.begin_run(run("r2")).await.unwrap_err();
    assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    // It finds out by its next beat, and is another writer then.
    silent.db().is_mute.store(false, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let again = loop {
        match silent.begin_run(run("r2")).await {
            Ok(run) => break run,
            Err(error) => {
                assert!(matches!(error, StoreError::Lost { .. }), "{error}");
                assert!(std::time::Instant::now() < deadline, "{error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    assert_ne!(again.owner, begun.owner);
    assert!(store.take_over_runs().await.unwrap().is_empty());
}

async fn a_run_that_is_silent_is_found_and_one_that_beats_is_not(bed: Bed) {
    let store = with_thread(&bed).await;
    for name in ["a", "b", "c", "over"] {
        store.begin_run(run(name)).await.unwrap();
    }
    let over = store.end_run("over", RunState::Completed, None, None);
    assert!(over.await.unwrap());
    by_hand(&store, "UPDATE runs SET beat_ms = beat_ms - 60000").await;
    by_hand(
        &store,
        "UPDATE runs SET beat_ms = beat_ms - 1000 WHERE id = 'c'",
    )
    .await;
    let silent = async || {
        let runs = store.silent_runs(30_000).await.unwrap();
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(silent().await, ["c", "a", "b"]);
    assert_eq!(store.beat_runs(&[]).await.unwrap(), 0);
    let beaten = store.beat_runs(&["a", "c", "over", "unknown"]).await;
    assert_eq!(beaten.unwrap(), 2);
    assert_eq!(silent().await, ["b"]);
    assert!(store.silent_runs(120_000).await.unwrap().is_empty());
}

async fn the_totals_of_a_session_are_the_sums_of_its_runs(bed: Bed) {
    let store = with_thread(&bed).await;
    let session = session(&store).await;
    let totals = async || store.session_totals(&session.id).await.unwrap();
    assert_eq!(totals().await, crate::SessionTotals::default());
    for (name, tokens, usd) in [("a", 10, Some(0.25)), ("b", 20, None), ("c", 30, Some(0.5))] {
        let run = Run::new(name, Some(session.id.clone()), id("t"));
        store.begin_run(run).await.unwrap();
        let end = store.end_run(name, RunState::Completed, Some(spent(tokens, usd)), None);
        assert!(end.await.unwrap());
        let sql =
            format!("UPDATE runs SET started_at_ms = 100, ended_at_ms = 350 WHERE id = '{name}'");
        by_hand(&store, &sql).await;
    }
    store.begin_run(run("of no session")).await.unwrap();
    // One that waits, and one that was refused before it asked anybody.
    for name in ["waits", "refused"] {
        let run = Run::new(name, Some(session.id.clone()), id("t"));
        store.begin_run(run).await.unwrap();
    }
    store
        .end_run("refused", RunState::Failed, None, None)
        .await
        .unwrap();
    let sums = totals().await;
    assert_eq!((sums.runs, sums.unpriced, sums.wall_ms), (5, 1, 750));
    let usage = Usage {
        input: 60,
        cache_read: 6,
        cache_write: 9,
        output: 12,
        reasoning: 3,
    };
    let expected = RunUsage {
        usage,
        calls: 15,
        usd: Some(0.75),
    };
    assert_eq!(sums.spent, expected);
    // One that runs counts up to now; a clock that was set back counts nothing.
    store
        .update_run("waits", RunState::Running, None)
        .await
        .unwrap();
    by_hand(
        &store,
        "UPDATE runs SET started_at_ms = started_at_ms - 5000 WHERE id = 'waits'",
    )
    .await;
    by_hand(&store, "UPDATE runs SET started_at_ms = 900 WHERE id = 'a'").await;
    let wall = totals().await.wall_ms;
    assert!((5_500..65_000).contains(&wall), "{wall}");
}

async fn runs_go_with_their_thread_and_outlive_their_session(bed: Bed) {
    let store = with_thread(&bed).await;
    let session = session(&store).await;
    drop(open(&store, "u").await);
    for (name, thread) in [("a", "t"), ("b", "u")] {
        let run = Run::new(name, Some(session.id.clone()), id(thread));
        store.begin_run(run).await.unwrap();
    }
    store.delete_session(&session.id).await.unwrap();
    assert_eq!(store.run("a").await.unwrap().session_id, None);
    // A thread that stays for its forks has no runs any more, either.
    let mut log = open(&store, "t").await;
    log.append(&[super::entry(1)], true).await.unwrap();
    drop(log);
    store.fork(&id("t"), 1, &id("f")).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = store.remove_thread(&id("t")).await {
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::task::yield_now().await;
    }
    assert!(store.run("a").await.is_err());
    store.remove_thread(&id("u")).await.unwrap();
    assert!(
        store
            .runs(RunFilter::All, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

async fn runs_go_into_an_export_and_are_interrupted_where_they_come_out(bed: Bed) {
    let store = with_thread(&bed).await;
    let session = SavedSession {
        name: Some("login".to_owned()),
        ..session(&store).await
    };
    let session = store.update_session(session).await.unwrap();
    for name in ["over", "runs"] {
        let run = Run::new(name, Some(session.id.clone()), id("t"));
        store.begin_run(run).await.unwrap();
    }
    store
        .update_run("runs", RunState::Running, None)
        .await
        .unwrap();
    let all = spent(9, Some(0.125));
    store
        .end_run("over", RunState::Completed, Some(all), None)
        .await
        .unwrap();
    store.idempotent_begin("k", "s", "00").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.jsonl");
    store.export(&path).await.unwrap();

    let place = Location::File(dir.path().join("other.db"));
    let other = Bed { place }.open().await;
    // Another session has the name already.
    let theirs = self::session(&other).await;
    let theirs = SavedSession {
        name: Some("login".to_owned()),
        ..theirs
    };
    other.update_session(theirs.clone()).await.unwrap();
    other.import(&path).await.unwrap();
    assert_eq!(other.session_named("login").await.unwrap().id, theirs.id);
    let mine = other.session_named("login 2").await.unwrap();
    assert_eq!(mine.id, session.id);
    let runs = async |store: &Store| {
        let of = RunFilter::Session(&session.id);
        store.runs(of, None, 9).await.unwrap()
    };
    assert_eq!(runs(&other).await, runs(&store).await);
    let taken = other.take_over_runs().await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].id, "runs");
    let begun = other.idempotent_begin("k", "s", "00").await.unwrap();
    assert_eq!(begun, KeyStatus::Fresh);
    assert!(other.check().await.unwrap().is_sound());
}
