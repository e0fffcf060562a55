//! What was seen to go wrong elsewhere.

use std::time::{Duration, Instant};

use conjure_core::chat::{Event, Message as Said};
use conjure_mock_llm::{Matcher, Message, Script, Step};

use super::stage::{Stage, call, held, options};
use conjure_store::RunState;

#[tokio::test]
async fn a_tool_loop_without_a_bound_because_a_counter_was_written_to_a_copy() {
    let script =
        Script::new().step(Step::answer(|_| call("1", "free_execute", "say a").into()).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let run = stage.say(&session, "go on for ever").await;
    assert_eq!(run.state, RunState::Limit, "{run:?}");
    assert_eq!(stage.model.requests().len(), 25);
}

#[tokio::test]
async fn tools_run_inside_the_one_manager_process_so_every_session_stalls() {
    let script = Script::new()
        .step(Step::new(call("1", "free_execute", "wait 3000")).when(Matcher::any().text("slow")))
        .step(Step::new(Message::new().text("Quick.")).always());
    let stage = Stage::new(script).await;
    let (slow, quick) = (stage.session().await, stage.session().await);
    let turn = stage
        .manager
        .say(&slow.id, Said::user("slow"), None)
        .await
        .unwrap();
    let thread = slow.thread.clone().unwrap().id;
    stage
        .until(&thread, None, |event| {
            matches!(event, Event::CallStarted { .. })
        })
        .await;
    assert_eq!(stage.say(&quick, "hello").await.state, RunState::Completed);
    let run = stage.manager.run(&turn.id).await.unwrap();
    assert_eq!(
        run.state,
        RunState::Running,
        "the other one still waits for its tool"
    );
    stage.manager.cancel(&slow.id, true).await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Cancelled);
}

#[tokio::test]
async fn cancel_that_leaves_a_follow_up_running_and_loses_the_partial_text() {
    let stage = Stage::new(Script::new().reply(held("Partial text of an answer", "middle"))).await;
    let session = stage.session().await;
    let turn = stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await
        .unwrap();
    let next = stage
        .manager
        .say(&session.id, Said::user("more"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let thread = session.thread.clone().unwrap().id;
    stage
        .until(&thread, None, |event| {
            matches!(event, Event::Content { .. })
        })
        .await;
    stage.manager.cancel(&session.id, true).await.unwrap();
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Cancelled);
    assert_eq!(stage.wait(&next.id).await.state, RunState::Cancelled);
    let said = stage.said(&thread).await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].starts_with("Assistant: Part"), "{said:?}");
    assert_eq!(stage.model.requests().len(), 1);
}

#[tokio::test]
async fn text_before_a_tool_call_lost() {
    let script = Script::new()
        .reply(Message::new().text("Let me look.").tool_use(
            "1",
            "free_execute",
            serde_json::json!({ "command": "say a" }),
        ))
        .reply(Message::new().text("Done."));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    stage.say(&session, "go").await;
    let said = stage.said(&session.thread.unwrap().id).await;
    assert_eq!(said[1], "Assistant: Let me look.");
    let asked = serde_json::to_string(stage.model.requests()[1].messages()).unwrap();
    assert!(asked.contains("Let me look."), "{asked}");
}

#[tokio::test]
async fn usage_of_the_last_round_only() {
    let script = Script::new()
        .reply(call("1", "free_execute", "say a"))
        .reply(call("2", "free_execute", "say b"))
        .reply(Message::new().text("Done."));
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let run = stage.say(&session, "go").await;
    let thread = session.thread.unwrap().id;
    let entries = stage.manager.host().entries(&thread).await.unwrap();
    let rounds = entries.iter().filter_map(|entry| entry.body.meta());
    let rounds: Vec<u64> = rounds.map(|meta| meta.usage.total()).collect();
    assert_eq!(rounds.len(), 3);
    assert!(rounds.iter().all(|tokens| *tokens > 0));
    assert_eq!(run.spent.usage.total(), rounds.iter().sum::<u64>());
}

#[tokio::test]
async fn a_stream_that_a_returning_page_ignores() {
    let stage =
        Stage::new(Script::new().reply(held("It goes on while nobody looks", "middle"))).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await
        .unwrap();
    let seen = stage
        .until(&thread, None, |event| {
            matches!(event, Event::Content { .. })
        })
        .await;
    stage.model.wait_for_gate("middle").await.unwrap();
    stage.model.release("middle");
    // The page is back, with the last number that it saw.
    let mut events = stage.manager.events(&thread, Some(seen)).await.unwrap();
    let mut text = String::new();
    let answer = loop {
        let event = events.next().await.unwrap().unwrap();
        assert!(event.id > seen, "nothing is shown twice");
        match &event.event {
            Event::Content { delta } => text.push_str(delta),
            Event::Done { text, .. } => break text.clone(),
            _ => {}
        }
    };
    assert!(
        answer.ends_with(&text) && !text.is_empty(),
        "{text} of {answer}"
    );
}

#[tokio::test]
async fn a_delta_dropped_because_it_is_a_prefix_of_the_text_so_far() {
    let stage = Stage::new(super::stage::always("aaaa aaaa aa")).await;
    let session = stage.session().await;
    stage.say(&session, "hello").await;
    let thread = session.thread.unwrap().id;
    let events = stage
        .manager
        .store()
        .events_after(&thread, None, 1000)
        .await
        .unwrap();
    let text: String = events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Content { delta } => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "aaaa aaaa aa");
    assert_eq!(stage.said(&thread).await[1], "Assistant: aaaa aaaa aa");
}

#[tokio::test]
async fn the_answer_stored_in_the_wrong_thread_when_the_person_started_a_new_one_meanwhile() {
    let script = Script::new()
        .reply(held("The answer to the first", "middle"))
        .step(Step::new(Message::new().text("Something else.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let first = session.thread.clone().unwrap().id;
    let turn = stage
        .manager
        .say(&session.id, Said::user("one"), None)
        .await
        .unwrap();
    stage.model.wait_for_gate("middle").await.unwrap();
    let fresh = stage.manager.start_thread(&session.id).await.unwrap();
    let second = fresh.thread.clone().unwrap().id;
    let next = stage
        .manager
        .say(&session.id, Said::user("two"), None)
        .await
        .unwrap();
    assert_eq!((&turn.thread, &next.thread), (&first, &second));
    stage.model.release("middle");
    stage.wait(&next.id).await;
    assert_eq!(stage.wait(&turn.id).await.state, RunState::Completed);
    assert_eq!(
        stage.said(&first).await,
        ["User: one", "Assistant: The answer to the first"]
    );
    assert_eq!(
        stage.said(&second).await,
        ["User: two", "Assistant: Something else."]
    );
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(view.thread.unwrap().id, second);
}

#[tokio::test]
async fn restart_with_the_partial_answer_lost() {
    let script = Script::new()
        .reply(held("The partial answer is kept", "middle"))
        .step(Step::new(Message::new().text("Going on.")).always());
    let stage = Stage::new(script).await;
    let session = stage.session().await;
    let thread = session.thread.clone().unwrap().id;
    stage
        .manager
        .say(&session.id, Said::user("hello"), None)
        .await
        .unwrap();
    stage
        .until(&thread, None, |event| {
            matches!(event, Event::Content { .. })
        })
        .await;
    let stage = stage.again(options()).await;
    stage.say(&session, "go on").await;
    let said = stage.said(&thread).await;
    assert!(said[1].starts_with("Assistant: The "), "{said:?}");
    assert_eq!(said.last().unwrap(), "Assistant: Going on.");
    assert_eq!(stage.model.violations(), []);
}

#[tokio::test]
async fn credentials_stored_as_plain_json_while_the_documentation_said_encrypted() {
    let stage = Stage::new(super::stage::always("x")).await;
    let session = stage.session().await;
    stage.say(&session, "hello").await;
    let request = stage.model.requests()[0].clone();
    assert_eq!(request.header("x-api-key"), Some("sk-test"), "it was used");
    stage.manager.shutdown(Duration::ZERO).await;
    stage.manager.store().close().await;
    for file in std::fs::read_dir(stage.dir.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(7).any(|part| part == b"sk-test");
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_fork_that_copied_nothing() {
    let stage = Stage::new(super::stage::always("The answer")).await;
    let session = stage.session().await;
    stage.say(&session, "a question").await;
    let thread = session.thread.clone().unwrap().id;
    let fork = stage
        .manager
        .fork_thread(&session.id, &thread, None)
        .await
        .unwrap();
    stage.say(&fork, "and more?").await;
    let asked = serde_json::to_string(stage.model.requests()[1].messages()).unwrap();
    for said in ["a question", "The answer", "and more?"] {
        assert!(asked.contains(said), "{asked}");
    }
}

#[tokio::test]
async fn a_duplicate_continue_refused() {
    let stage = Stage::new(super::stage::always("More.")).await;
    let session = stage.session().await;
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(
            stage.say(&session, "continue").await.state,
            RunState::Completed
        );
    }
    assert!(begun.elapsed() < super::stage::PATIENCE);
    let said = stage.said(&session.thread.unwrap().id).await;
    let asked = said.iter().filter(|said| *said == "User: continue");
    assert_eq!(asked.count(), 3);
}
