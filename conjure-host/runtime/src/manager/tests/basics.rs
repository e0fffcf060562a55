//! A session from its making to its deletion.

use conjure_core::chat::Message as Said;
use conjure_mock_llm::{Message, Script, Step};
use serde_json::{Value, json};

use super::stage::{Stage, always, call, held, object};
use crate::manager::requests::ActorRequest;
use crate::manager::{
    ChatRetention, ManagerError, NewSession, SessionPatch, SessionState, ThreadChoice,
};
use conjure_core::turn::EffectiveFrom;
use conjure_store::{RunState, ThreadId};

#[tokio::test]
async fn a_session_is_made_asked_and_found_again() {
    let script = Script::new()
        .reply(call("1", "free_execute", "say hello"))
        .reply(Message::new().text("Done."));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    assert_eq!(session.state, SessionState::Idle);
    assert_eq!(session.auth.provider, "anthropic");
    let run = stage
        .say(&session, "Please greet the lighthouse keeper")
        .await;
    assert_eq!(run.state, RunState::Completed, "{run:?}");
    assert_eq!(run.session_id.as_deref(), Some(session.id.as_str()));
    assert_eq!(run.spent.calls, 1);
    assert!(run.spent.usage.total() > 0);
    let view = stage.manager.get(&session.id).await.unwrap();
    let thread = view.thread.unwrap();
    assert_eq!(thread.label, "Greet Lighthouse Keeper");
    assert_eq!((thread.turns, thread.replies), (1, 2));
    assert_eq!(
        view.latest_entry,
        Some(format!("{}/{}", thread.id, thread.last_seq))
    );
    assert_eq!(
        stage.said(&thread.id).await,
        [
            "User: Please greet the lighthouse keeper",
            "Assistant: ",
            "Tool: ",
            "Assistant: Done."
        ]
    );
    let stage = stage.again(super::stage::options()).await;
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(view.thread.unwrap().id, thread.id);
    assert_eq!(stage.manager.list(None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_next_request_is_measured_alike_whether_its_thread_is_open_or_not() {
    let stage = Stage::new(always("It is dark.")).await;
    let session = stage.session().await;
    stage.say(&session, "How dark is it?").await;
    let same = SessionPatch::default();
    let checked = stage.manager.check(&session.id, &same).await;
    let checked = checked.unwrap().tokens;
    assert!(checked > 0);
    let measured = stage.manager.measure(&session.id).await.unwrap();
    assert_eq!(measured.tokens, checked);
    // The open session answers that itself.
    let row = stage.manager.inner.row(&session.id).await.unwrap();
    let (_, made) = stage.manager.inner.spec_and_digest(&row).await.unwrap();
    let thread = ThreadId::parse(row.chat_thread_id.as_deref().unwrap()).unwrap();
    let ask = |done| ActorRequest::Measure {
        thread,
        settings_digest: made,
        done,
    };
    let answer = stage.manager.ask_running(&session.id, ask).await;
    let measured = answer.expect("the thread is open").unwrap();
    assert_eq!(measured.tokens, checked);
    let stage = stage.again(super::stage::options()).await;
    let measured = stage.manager.measure(&session.id).await.unwrap();
    assert_eq!(measured.tokens, checked);
    let nobody = stage.manager.measure("nobody").await.unwrap_err();
    assert!(matches!(nobody, ManagerError::NotFound { .. }), "{nobody}");
}

#[tokio::test]
async fn follow_ups_wait_and_run_in_order_and_a_turn_id_counts_once() {
    let script = Script::new()
        .reply(held("The first answer", "first"))
        .step(Step::answer(|request| Message::new().text(request.last_text()).into()).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let say = |text: &str, turn: &str| {
        let (manager, id) = (stage.manager.clone(), session.id.clone());
        let (said, turn) = (Said::user(text), turn.to_owned());
        async move { manager.say(&id, said, Some(turn)).await.unwrap() }
    };
    assert_eq!(say("one", "t1").await.before, 0);
    assert_eq!(say("two", "t2").await.before, 1);
    assert_eq!(say("three", "t3").await.before, 2);
    assert_eq!(say("three again", "t3").await.id, "t3");
    stage.model.wait_for_gate("first").await.unwrap();
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!((view.state, view.queued), (SessionState::Running, 2));
    assert_eq!(view.turn.as_deref(), Some("t1"));
    stage.model.release("first");
    assert_eq!(stage.wait("t3").await.state, RunState::Completed);
    let said = stage.said(&session.thread.unwrap().id).await;
    assert_eq!(
        said,
        [
            "User: one",
            "Assistant: The first answer",
            "User: two",
            "Assistant: two",
            "User: three",
            "Assistant: three"
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_is_said_and_nothing_is_saved() {
    let stage = Stage::new(always("x")).await;
    let wrong = |change: fn(&mut NewSession)| {
        let mut new = stage.new_session();
        change(&mut new);
        let manager = stage.manager.clone();
        async move { manager.create(new).await.unwrap_err().to_string() }
    };
    let error = wrong(|new| new.working_dir = "/no/such/place".into()).await;
    assert!(error.contains("/no/such/place"), "{error}");
    let error = wrong(|new| new.working_dir = "relative".into()).await;
    assert!(error.contains("absolute"), "{error}");
    let error = wrong(|new| new.auth = "nobody".to_owned()).await;
    assert!(error.contains("nobody") && error.contains("key"), "{error}");
    let error = wrong(|new| new.model = " ".to_owned()).await;
    assert!(error.contains("model"), "{error}");
    let error = wrong(|new| new.tools = object(json!({ "model": "m" }))).await;
    assert!(error.contains("`tools` takes no `model`"), "{error}");
    let error = wrong(|new| new.tools = object(json!({ "bakcend": [] }))).await;
    assert!(error.contains("bakcend"), "{error}");
    let error = wrong(|new| {
        new.thread = ThreadChoice::Existing {
            thread: ThreadId::fresh(),
        };
    });
    assert!(error.await.contains("thread"));
    assert_eq!(stage.manager.list(None, 10).await.unwrap(), []);
    let nobody = stage.manager.get("nobody").await.unwrap_err();
    assert!(matches!(nobody, ManagerError::NotFound { .. }), "{nobody}");
}

#[tokio::test]
async fn a_session_that_is_refused_leaves_no_thread_behind() {
    let stage = Stage::new(always("x")).await;
    let named = |name: &str, thread: ThreadChoice| NewSession {
        name: Some(name.to_owned()),
        thread,
        ..stage.new_session()
    };
    let first = named("site", ThreadChoice::New);
    let first = stage.manager.create(first).await.unwrap();
    stage.say(&first, "Hi.").await;
    let thread = first.thread.unwrap().id;
    let fork = ThreadChoice::Fork {
        thread: thread.clone(),
        upto: None,
    };
    let own = ThreadChoice::Existing {
        thread: thread.clone(),
    };
    let long = "x".repeat(200);
    for refused in [
        named("site", ThreadChoice::New),
        named("site", fork),
        named("site", own),
        named(&long, ThreadChoice::New),
    ] {
        stage.manager.create(refused).await.unwrap_err();
        let threads = stage.manager.store().thread_page(None, 10).await.unwrap();
        let threads: Vec<_> = threads.into_iter().map(|thread| thread.id).collect();
        assert_eq!(threads, std::slice::from_ref(&thread));
    }
}

#[tokio::test]
async fn what_a_session_grants_plugins_is_judged_when_it_is_set() {
    let stage = Stage::new(always("x")).await;
    let granting = |plugin: &str, permissions: Value| {
        let mut new = stage.new_session();
        let plugins = json!({ plugin: { "permissions": permissions } });
        new.tools.insert("plugins".to_owned(), plugins);
        new
    };
    let too_much = granting("free", json!({ "network": true }));
    let error = stage.manager.create(too_much).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("`plugins.free.permissions`"), "{said}");
    assert!(said.contains("connections of its own"), "{said}");
    let misspelt = stage.manager.create(granting("fre", json!({}))).await;
    let said = misspelt.unwrap_err().to_string();
    assert!(said.contains("no plugin is called `fre`"), "{said}");
    let nothing = granting("free", json!({}));
    let session = stage.manager.create(nothing).await.unwrap();
    let more = SessionPatch {
        tools: Some(granting("careful", json!({ "commands": true })).tools),
        ..SessionPatch::default()
    };
    let refused = stage
        .manager
        .update(&session.id, more, EffectiveFrom::Now)
        .await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("programs that it starts"), "{said}");
}

#[tokio::test]
async fn a_session_has_a_name_that_no_other_has() {
    let stage = Stage::new(always("x")).await;
    let named = NewSession {
        name: Some("work".to_owned()),
        ..stage.new_session()
    };
    let session = stage.manager.create(named.clone()).await.unwrap();
    assert_eq!(stage.manager.get("work").await.unwrap().id, session.id);
    let taken = stage.manager.create(named).await.unwrap_err();
    assert!(taken.to_string().contains("work"), "{taken}");
    let other = SessionPatch {
        name: Some("play".to_owned()),
        ..SessionPatch::default()
    };
    stage
        .manager
        .update("work", other, EffectiveFrom::Now)
        .await
        .unwrap();
    assert_eq!(stage.manager.get("play").await.unwrap().id, session.id);
}

#[tokio::test]
async fn deleting_a_session_keeps_its_chat_or_not() {
    let stage = Stage::new(always("x")).await;
    for (chat, is_kept) in [(ChatRetention::Keep, true), (ChatRetention::Delete, false)] {
        let session = stage.session().await;
        stage.say(&session, "hello").await;
        stage.manager.delete(&session.id, chat).await.unwrap();
        let gone = stage.manager.get(&session.id).await.unwrap_err();
        assert!(matches!(gone, ManagerError::NotFound { .. }));
        let thread = session.thread.unwrap().id;
        let found = stage.manager.store().thread(&thread).await;
        assert_eq!(found.is_ok(), is_kept);
    }
}

#[tokio::test]
async fn a_turn_that_cannot_begin_keeps_what_was_said_with_why() {
    let stage = Stage::new(always("Here again.")).await;
    let session = stage.session().await;
    std::fs::remove_dir(stage.work()).unwrap();
    let run = stage.say(&session, "hello").await;
    assert_eq!(run.state, RunState::Failed);
    let error = run.error.unwrap();
    assert!(
        error.contains("work") && error.contains("must exist"),
        "{error}"
    );
    let thread = session.thread.clone().unwrap().id;
    assert_eq!(stage.said(&thread).await, ["User: hello"]);
    stage
        .until(
            &thread,
            None,
            |event| matches!(event, conjure_core::chat::Event::Error(told) if told.error == error),
        )
        .await;
    std::fs::create_dir(stage.work()).unwrap();
    let run = stage.say(&session, "and now?").await;
    assert_eq!(run.state, RunState::Completed, "{run:?}");
}
