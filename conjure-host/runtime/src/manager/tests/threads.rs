//! Threads of sessions: new ones, forks, one that two sessions want, and clearing.

use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::{ArtifactRef, Event, Message as Said};
use conjure_core::log::{Entry, EntryBody};
use conjure_mock_llm::{Message, Script, Step};

use super::stage::{Stage, always, held};
use crate::artifacts::{FileError, UNKNOWN_SOURCE};
use crate::manager::session_row::SessionRow;
use crate::manager::thread_watch::MarkState;
use crate::manager::{
    FetchError, NewSession, SessionChange, SessionState, ThreadChoice, TurnRequest, lock,
};
use crate::session::SessionError;
use conjure_config::SessionSpec;
use conjure_store::{Log, Record, RunState, StoreError, ThreadId};

#[tokio::test]
async fn files_of_a_thread_are_fetched_while_nobody_has_it_open_and_nobody_can() {
    let script = Script::new().reply(held("Nearly there", "middle"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage.manager.say(&session.id, Said::user("hello"), None);
    let turn = turn.await.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let fetch = || {
        let spec = SessionSpec::calls(&[], None);
        let host = stage.manager.host().clone();
        let thread = thread.clone();
        async move {
            host.fetch_files(spec, &thread, &["file-1".to_owned()])
                .await
        }
    };
    let error = fetch().await.unwrap_err();
    let is_busy = matches!(&error, SessionError::Store(StoreError::Busy { .. }));
    assert!(is_busy, "{error}");
    stage.model.release("middle");
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    stage.manager.shutdown(Duration::from_secs(10)).await;
    let fetched = fetch().await.unwrap();
    assert!(matches!(
        fetched["file-1"],
        Err(FileError::FileNotFound { .. })
    ));
    // It is free again.
    assert!(fetch().await.is_ok());
}

#[tokio::test]
async fn who_hands_a_file_out_is_asked_for_it_whoever_made_it() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let artifact = ArtifactRef {
        id: "file-1".to_owned(),
        name: "f.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: None,
    };
    let file = |seq, id: &str, holder: &str| {
        Record::Entry(Entry {
            seq,
            turn: 0,
            at_ms: 0,
            body: EntryBody::File {
                artifact: ArtifactRef {
                    id: id.to_owned(),
                    ..artifact.clone()
                },
                source: UNKNOWN_SOURCE.to_owned(),
                call_id: None,
                place: None,
                remote: Some("1:/w/f.txt".to_owned()),
                holder: Some(holder.to_owned()),
            },
        })
    };
    let mut open = Log::open(stage.manager.store(), &thread).await.unwrap();
    let entries = stage.manager.host().entries(&thread).await.unwrap();
    let seq = entries.last().map_or(0, |entry| entry.seq) + 1;
    let files = [
        file(seq, "file-1", "native"),
        file(seq + 1, "file-2", "pod"),
    ];
    open.append(&files, true).await.unwrap();
    drop(open);
    let fetch = |id| stage.manager.fetch_file(&thread, id, UNKNOWN_SOURCE, None);
    let error = fetch("file-1").await.err().unwrap();
    assert!(
        matches!(&error, FetchError::Backend { backend, .. } if backend == "native"),
        "{error}"
    );
    let error = fetch("file-2").await.err().unwrap();
    assert!(
        matches!(&error, FetchError::NoSession { backend, .. } if backend == "pod"),
        "{error}"
    );
}

#[tokio::test]
async fn who_comes_back_to_an_open_thread_needs_no_database() {
    let script = Script::new().reply(held("Nearly there", "middle"));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let mut events = stage.manager.events(&thread, None).await.unwrap();
    let said = stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await;
    said.unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let started = loop {
        let event = events.next().await.unwrap().unwrap();
        if matches!(event.event, Event::TurnStarted { .. }) {
            break event.id;
        }
    };
    let next = events.next().await.unwrap().unwrap().id;
    drop(events);
    stage.manager.store().close().await;
    let again = stage.manager.events(&thread, Some(started)).await;
    assert_eq!(again.unwrap().next().await.unwrap().unwrap().id, next);
    let other = stage.manager.events(&ThreadId::fresh(), None).await;
    assert!(other.is_err(), "of another one it is asked");
}

#[tokio::test]
async fn two_sessions_on_one_thread_take_turns() {
    let script = Script::new()
        .reply(held("The first session answers", "first"))
        .step(Step::new(Message::new().text("Second.")).always());
    let stage = Stage::new(script).await;
    let one = stage.session().await;
    let thread = one.thread.clone().unwrap().id;
    let two = NewSession {
        thread: ThreadChoice::Existing {
            thread: thread.clone(),
        },
        ..stage.new_session()
    };
    let two = stage.manager.create(two).await.unwrap();
    let first = stage
        .manager
        .say(&one.id, Said::user("one"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("first").await.unwrap();
    let mut changes = stage.manager.changes();
    let second = stage
        .manager
        .say(&two.id, Said::user("two"), None)
        .await
        .unwrap();
    // It asks for the thread.
    let asks = |change: &SessionChange| matches!(change, SessionChange::State { turn, .. } if turn.as_ref() == Some(&second.id));
    while !asks(&changes.next().await.unwrap()) {}
    assert_eq!(stage.said(&thread).await, ["User: one"]);
    stage.model.release("first");
    assert_eq!(stage.wait(&first.id).await.state, RunState::Completed);
    assert_eq!(stage.wait(&second.id).await.state, RunState::Completed);
    let said = stage.said(&thread).await;
    assert_eq!(
        said,
        [
            "User: one",
            "Assistant: The first session answers",
            "User: two",
            "Assistant: Second."
        ]
    );
}

#[tokio::test]
async fn a_turn_is_said_in_the_thread_that_it_names_and_the_session_goes_on_there() {
    let stage = Stage::new(always("Yes.")).await;
    let session = stage.session().await;
    let named = session.thread.clone().unwrap().id;
    let elsewhere = stage.manager.start_thread(&session.id).await.unwrap();
    let other = elsewhere.thread.unwrap().id;
    let say = async |text: &str, thread: &ThreadId| {
        let request = TurnRequest {
            message: Some(Said::user(text)),
            thread: Some(thread.clone()),
            ..TurnRequest::default()
        };
        stage.manager.begin(&session.id, request).await
    };
    let active = async || {
        let view = stage.manager.get(&session.id).await.unwrap();
        view.thread.unwrap().id
    };
    // One that is not there changes nothing.
    let error = say("nowhere", &ThreadId::fresh()).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(active().await, other);
    // Whatever else is chosen at the same time.
    let (turn, chosen) = tokio::join!(
        say("here", &named),
        stage.manager.choose_thread(&session.id, &other)
    );
    chosen.unwrap();
    let turn = turn.unwrap();
    assert_eq!(turn.thread, named);
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    assert_eq!(stage.said(&named).await, ["User: here", "Assistant: Yes."]);
    let turn = say("there", &other).await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    assert_eq!(active().await, other);
    assert_eq!(stage.said(&other).await, ["User: there", "Assistant: Yes."]);
}

#[tokio::test]
async fn both_branches_of_a_fork_go_on() {
    let script = Script::new().step(
        Step::answer(|request| {
            Message::new()
                .text(format!("to {}", request.last_text()))
                .into()
        })
        .always(),
    );
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    stage.say(&session, "root").await;
    let before = session.thread.clone().unwrap().id;
    let forked = stage
        .manager
        .fork_thread(&session.id, &before, None)
        .await
        .unwrap();
    let branch = forked.thread.clone().unwrap().id;
    assert_ne!(branch, before);
    stage.say(&forked, "left").await;
    let back = stage
        .manager
        .choose_thread(&session.id, &before)
        .await
        .unwrap();
    stage.say(&back, "right").await;
    assert_eq!(
        stage.said(&branch).await,
        [
            "User: root",
            "Assistant: to root",
            "User: left",
            "Assistant: to left"
        ]
    );
    assert_eq!(
        stage.said(&before).await,
        [
            "User: root",
            "Assistant: to root",
            "User: right",
            "Assistant: to right"
        ]
    );
    let lineage = stage.manager.store().thread(&branch).await.unwrap();
    assert_eq!(lineage.parent, Some(before.clone()));
    assert_eq!(
        stage.manager.store().forks(&before).await.unwrap()[0].id,
        branch
    );
}

#[tokio::test]
async fn clearing_a_thread_ends_its_run_and_keeps_the_thread() {
    let script = Script::new()
        .reply(held("A long answer", "middle"))
        .step(Step::new(Message::new().text("Fresh.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let turn = stage
        .manager
        .say(&session.id, Said::user("secret"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    stage.manager.clear_thread(&thread).await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Cancelled);
    assert_eq!(stage.said(&thread).await, [] as [&str; 0]);
    stage.say(&session, "hello").await;
    assert_eq!(
        stage.said(&thread).await,
        ["User: hello", "Assistant: Fresh."]
    );
    let asked = stage.model.requests().last().unwrap().messages().to_vec();
    assert!(!format!("{asked:?}").contains("secret"));
}

#[tokio::test]
async fn a_follower_sees_a_thread_that_opens_and_closes_without_a_gap() {
    let stage = Stage::with(
        always("An answer in several pieces"),
        crate::manager::ManagerOptions {
            idle: std::time::Duration::from_millis(50),
            ..super::stage::options()
        },
    )
    .await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let mut events = stage.manager.events(&thread, None).await.unwrap();
    let follower = tokio::spawn(async move {
        let mut seen = Vec::new();
        let mut over = 0;
        while over < 3 {
            let event = events.next().await.unwrap().unwrap();
            over += usize::from(matches!(event.event, Event::Done { .. }));
            seen.push(event.id);
        }
        seen
    });
    for text in ["one", "two", "three"] {
        stage.say(&session, text).await;
        let inner = &stage.manager.inner;
        let mut word = inner.thread_watches.follow(&thread, MarkState::Unread);
        let closed = async {
            while !lock(&inner.active_threads).is_empty() {
                word.changed().await;
            }
        };
        tokio::time::timeout(super::stage::PATIENCE, closed)
            .await
            .expect("it is closed when it was idle for a while");
    }
    let seen = tokio::time::timeout(super::stage::PATIENCE, follower)
        .await
        .unwrap()
        .unwrap();
    let stored = stage
        .manager
        .store()
        .events_after(&thread, None, 1000)
        .await
        .unwrap();
    let stored: Vec<_> = stored.into_iter().map(|(id, _)| id).collect();
    assert_eq!(seen, stored);
    assert_eq!(seen.last().unwrap().epoch, 3, "it was opened three times");
}

#[tokio::test]
async fn following_ends_with_the_thread() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    stage.say(&session, "hello").await;
    let thread = session.thread.unwrap().id;
    let mut events = stage.manager.events(&thread, None).await.unwrap();
    stage.manager.remove_thread(&thread).await.unwrap();
    let ended = async { while events.next().await.unwrap().is_some() {} };
    tokio::time::timeout(super::stage::PATIENCE, ended)
        .await
        .expect("it ends");
}

#[tokio::test]
async fn what_was_opened_and_is_not_wanted_holds_no_thread() {
    let stage = Stage::new(always("x")).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    let inner = &stage.manager.inner;
    let row = inner.row(&session.id).await.unwrap();
    drop(inner.open(&row, &thread).await.unwrap());
    assert!(lock(&inner.active_threads).is_empty());
    let run = stage.say(&session, "hello").await;
    assert_eq!(run.state, RunState::Completed, "{run:?}");
}

#[tokio::test]
async fn what_is_said_while_a_summary_is_written_waits_for_it() {
    let script = Script::new()
        .reply(Message::new().text("word ".repeat(40_000)))
        .reply(Message::new().text("Yes."))
        .reply(held("They wrote a lot of words.", "summary"))
        .reply(Message::new().text("Well."));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    for words in ["Write a lot", "Is that all?"] {
        assert_eq!(stage.say(&session, words).await.state, RunState::Completed);
    }
    let (manager, id) = (stage.manager.clone(), thread.clone());
    let compacted = tokio::spawn(async move { manager.compact(&id, None).await });
    stage.model.wait_for_gate("summary").await.unwrap();
    let turn = stage.manager.say(&session.id, Said::user("And now?"), None);
    let turn = turn.await.unwrap();
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!((view.state, view.queued), (SessionState::Idle, 1));
    let run = stage.manager.run(&turn.id).await.unwrap();
    assert_eq!(run.state, RunState::Queued);
    let again = stage.manager.compact(&thread, None).await.unwrap_err();
    assert!(again.to_string().contains("summar"), "{again}");
    stage.model.release("summary");
    compacted.await.unwrap().unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    let requests = stage.model.requests();
    let newest = requests.last().unwrap().body.to_string();
    assert!(newest.contains("They wrote a lot") && !newest.contains("word word"));
}

#[tokio::test]
async fn a_choice_is_taken_back_unless_somebody_chose_another_thread_since() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session().await.id;
    let store = stage.manager.store();
    let (wanted, since) = (ThreadId::fresh(), ThreadId::fresh());
    for thread in [&wanted, &since] {
        store.create_thread(thread, "").await.unwrap();
    }
    let before = store.session(&session).await.unwrap();
    let row = SessionRow::new(Arc::clone(&stage.manager.inner), &session);
    row.choose(&wanted).await.unwrap();
    row.restore_choice(&wanted, &before).await.unwrap();
    let now = store.session(&session).await.unwrap();
    assert_eq!(now.chat_thread_id, before.chat_thread_id);
    // Somebody chose another one meanwhile.
    row.choose(&since).await.unwrap();
    row.restore_choice(&wanted, &before).await.unwrap();
    let now = store.session(&session).await.unwrap();
    assert_eq!(now.chat_thread_id.as_deref(), Some(since.as_str()));
}
