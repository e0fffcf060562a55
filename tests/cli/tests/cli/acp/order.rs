//! What is asked in a session takes effect in the order in which it comes, whatever runs meanwhile.

use std::sync::atomic::Ordering;

use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, FileSystemCapabilities,
    LoadSessionRequest, PromptRequest, ResourceLink, SessionId, SetSessionModeRequest, StopReason,
    ToolCallStatus,
};
use conjure_kit::Model;
use conjure_mock_llm::{Message, Position, Reply};
use futures_util::future::join_all;
use serde_json::json;

use super::editor::{Editor, with_editor};
use super::{acp, bash, stage};
use crate::session::done;
use crate::stage::json as parsed;

fn mode(session: &SessionId, mode: &str) -> SetSessionModeRequest {
    SetSessionModeRequest::new(session.clone(), mode.to_owned())
}

/// The questions of a test that asks several at once.
const QUESTIONS: [&str; 6] = ["One?", "Two?", "Three?", "Four?", "Five?", "Six?"];

#[test]
fn prompts_that_are_sent_at_once_run_in_their_order() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            for _ in 0..3 {
                let id = talk.session(&workspace.work()).await?;
                for question in QUESTIONS {
                    model.says(Message::new().text(format!("To {question}")));
                }
                let said = join_all(QUESTIONS.map(|question| talk.sends(&id, question))).await;
                for said in said {
                    assert_eq!(said?.stop_reason, StopReason::EndTurn);
                }
            }
            Ok(())
        },
    );
    let asked: Vec<String> = model.requests().iter().map(|one| one.last_text()).collect();
    assert_eq!(asked.len(), 3 * QUESTIONS.len(), "{asked:?}");
    for (asked, question) in asked.iter().zip(QUESTIONS.iter().cycle()) {
        assert!(asked.contains(question), "{asked}");
    }
}

#[test]
fn a_command_holds_for_the_prompt_behind_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let id = talk.session(&workspace.work()).await?;
            model.says(Message::new().text("As another one."));
            let change = talk.sends(&id, "/model anthropic/another");
            let said = talk.sends(&id, "Who are you?");
            assert_eq!(change.await?.stop_reason, StopReason::EndTurn);
            assert_eq!(said.await?.stop_reason, StopReason::EndTurn);
            assert_eq!(model.last_request().model(), "another");
            Ok(())
        },
    );
}

#[test]
fn a_cancellation_is_not_for_the_prompt_behind_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            for _ in 0..8 {
                let id = talk.session(&workspace.work()).await?;
                // One for each, where the first one gets as far as that.
                model.says(Message::new().text("Here."));
                model.says(Message::new().text("Here."));
                let first = talk.sends(&id, "Never mind.");
                let cancel = CancelNotification::new(id.clone());
                talk.agent.send_notification(cancel)?;
                let second = talk.sends(&id, "Are you there?");
                first.await?;
                assert_eq!(second.await?.stop_reason, StopReason::EndTurn);
                assert!(talk.editor.answer(&id).ends_with("Here."));
            }
            Ok(())
        },
    );
}

#[test]
fn a_prompt_is_cancelled_while_the_editor_owes_a_file() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    editor.withholds_files.store(true, Ordering::SeqCst);
    let can = ClientCapabilities::new().fs(FileSystemCapabilities::new().read_text_file(true));
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let link = ResourceLink::new("a.rs", "file:///w/a.rs");
        let prompt = PromptRequest::new(id.clone(), vec![ContentBlock::ResourceLink(link)]);
        let said = talk.agent.send_request(prompt).block_task();
        talk.editor
            .until("it is asked for the file", Editor::owes_a_file)
            .await;
        talk.agent
            .send_notification(CancelNotification::new(id.clone()))?;
        assert_eq!(said.await?.stop_reason, StopReason::Cancelled);
        Ok(id)
    });
    // It did not come as far as a turn: nobody waited for the answer.
    let turns = parsed(&done(&workspace, &format!("session turns {} --json", id.0)));
    assert_eq!(turns["turns"], json!([]), "{turns}");
    assert!(model.requests().is_empty());
}

#[test]
fn a_session_that_is_loaded_in_a_turn_keeps_its_mode_and_the_turn_has_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let id = with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let id = talk.session(&workspace.work()).await?;
            let edits = talk.agent.send_request(mode(&id, "accept-edits"));
            edits.block_task().await?;
            let call = Message::new().tool_use("c-1", "local_bash_tool", bash("echo ran > ran"));
            model.says(Reply::from(call).hold(Position::Headers, "gate"));
            model.says(Message::new().text("It may not run."));
            let said = talk.sends(&id, "Run it.");
            model.mock().wait_for_gate("gate").await.unwrap();
            let load = LoadSessionRequest::new(id.clone(), workspace.work());
            let loaded = talk.agent.send_request(load).block_task().await?;
            let current = loaded.modes.unwrap().current_mode_id;
            assert_eq!(&*current.0, "accept-edits");
            let read_only = talk.agent.send_request(mode(&id, "read-only"));
            read_only.block_task().await?;
            talk.editor.chooses(&["allow-once"]);
            model.mock().release("gate");
            assert_eq!(said.await?.stop_reason, StopReason::EndTurn);
            Ok(id)
        },
    );
    assert_eq!(editor.statuses(&id), [ToolCallStatus::Failed]);
    assert!(editor.asked().is_empty(), "the mode decides");
    assert!(!workspace.work().join("ran").exists());
}
