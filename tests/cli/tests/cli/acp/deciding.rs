//! Decisions about what runs: by the person, the rules that they make, and modes.

use agent_client_protocol::v1::schema::{
    ClientCapabilities, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest,
    StopReason, ToolCallContent, ToolCallStatus, ToolKind,
};
use conjure_kit::Model;
use conjure_mock_llm::Message;
use serde_json::{Value, json};

use super::editor::{Editor, with_editor};
use super::{acp, bash, stage, value};
use crate::session::show;

#[test]
fn what_the_person_decides_holds_as_far_as_they_say() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        for (number, choices) in [&["reject-once"][..], &["allow-always"], &[]]
            .iter()
            .enumerate()
        {
            let call = format!("c-{number}");
            model.calls(&call, "local_bash_tool", bash("echo ran"));
            model.says(Message::new().text("Done."));
            talk.editor.chooses(choices);
            let said = talk.says(&id, "Try.").await?;
            assert_eq!(said.stop_reason, StopReason::EndTurn);
        }
        talk.editor.chooses(&["reject-always"]);
        for number in [7, 8] {
            let file = json!({ "path": "a.txt", "file_text": "a", "description": "a" });
            model.calls(&format!("c-{number}"), "local_create_file", file);
            model.says(Message::new().text("Done."));
            talk.says(&id, "Write.").await?;
        }
        Ok(id)
    });
    assert_eq!(
        editor.statuses(&id),
        [
            ToolCallStatus::Failed,
            ToolCallStatus::Completed,
            ToolCallStatus::Completed,
            ToolCallStatus::Failed,
            ToolCallStatus::Failed,
        ]
    );
    // What was decided for good was not asked again, and stands in the session as it was told.
    let asked = editor.asked();
    assert_eq!(asked.len(), 3);
    let told = |question: usize, option: usize| asked[question].options[option].name.as_str();
    assert_eq!(
        told(1, 1),
        "Always allow `local_bash_tool(echo *)`, as a rule that stays in this session"
    );
    assert_eq!(
        told(2, 3),
        "Never allow every call of `local_create_file`, as a rule that stays in this session"
    );
    let policy = &show(&workspace, &id.0)["tools"]["policy"];
    assert_eq!(
        policy["allow"],
        json!(["local_bash_tool(echo *)"]),
        "{policy}"
    );
    assert_eq!(policy["deny"], json!(["local_create_file"]), "{policy}");
    assert!(!workspace.work().join("a.txt").exists());
}

#[test]
fn always_is_for_commands_like_the_one_that_was_asked_about() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        talk.editor
            .chooses(&["allow-always", "reject-once", "reject-once"]);
        for (number, command) in ["echo ran", "touch made.txt", "ls *.txt"]
            .iter()
            .enumerate()
        {
            model.calls(&format!("c-{number}"), "local_bash_tool", bash(command));
            model.says(Message::new().text("Done."));
            talk.says(&id, "Try.").await?;
        }
        Ok(())
    });
    let asked = editor.asked();
    assert_eq!(asked.len(), 3, "another program is asked about");
    assert!(!workspace.work().join("made.txt").exists());
    // No rule can say just this command, so none is offered.
    let last = asked.last().unwrap();
    let offered: Vec<&str> = last.options.iter().map(|one| &*one.option_id.0).collect();
    assert_eq!(offered, ["allow-once", "reject-once", "reject-always"]);
}

#[test]
fn a_mode_answers_for_the_person() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    workspace.write("old.txt", "one\n").unwrap();
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    let write = |path: &str| json!({ "path": path, "file_text": "two\n", "description": "d" });
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let mode = |mode: &str| SetSessionModeRequest::new(id.clone(), mode.to_owned());
        talk.agent
            .send_request(mode("accept-edits"))
            .block_task()
            .await?;
        // Plain files run; a hidden one, another directory and a command are asked about.
        talk.editor
            .chooses(&["reject-once", "reject-once", "reject-once"]);
        for (number, (tool, arguments)) in [
            ("local_create_file", write("old.txt")),
            (
                "local_str_replace",
                json!({ "path": "old.txt", "old_str": "two", "new_str": "three", "description": "d" }),
            ),
            ("local_create_file", write(".git/hooks/pre-commit")),
            ("local_create_file", write("../outside.txt")),
            ("local_bash_tool", bash("echo ran > ran.txt")),
        ]
        .into_iter()
        .enumerate()
        {
            model.calls(&format!("c-{number}"), tool, arguments);
            model.says(Message::new().text("Done."));
            talk.says(&id, "Go on.").await?;
        }
        talk.agent
            .send_request(mode("read-only"))
            .block_task()
            .await?;
        model.says(
            Message::new()
                .tool_use("r-1", "local_bash_tool", bash("echo ran > ran.txt"))
                .tool_use("r-2", "local_view", json!({ "path": "old.txt" })),
        );
        model.says(Message::new().text("Looked."));
        talk.says(&id, "Look.").await?;
        Ok(id)
    });
    assert_eq!(editor.asked().len(), 3);
    use ToolCallStatus::{Completed, Failed};
    assert_eq!(
        editor.statuses(&id),
        [
            Completed, Completed, Failed, Failed, Failed, Failed, Completed
        ]
    );
    assert_eq!(workspace.read("old.txt").unwrap(), "three\n");
    assert!(!workspace.work().join("ran.txt").exists());
    // Changes show themselves, with the file as it was.
    let calls = editor.calls(&id);
    let changes: Vec<Value> = calls[..2]
        .iter()
        .map(|call| match call.content.as_slice() {
            [ToolCallContent::Diff(diff)] => {
                assert_eq!(diff.path, workspace.work().join("old.txt"));
                json!([diff.old_text, diff.new_text])
            }
            other => panic!("{other:#?}"),
        })
        .collect();
    assert_eq!(
        changes,
        [json!(["one\n", "two\n"]), json!(["two", "three"])]
    );
    let look = calls.last().unwrap();
    assert_eq!(
        (look.kind, &*look.title),
        (ToolKind::Read, "Read `old.txt`")
    );
    let place = look.locations.first().unwrap();
    assert_eq!(place.path, workspace.work().join("old.txt"));
    // The rules of a mode are not saved.
    assert_eq!(show(&workspace, &id.0)["tools"]["policy"], Value::Null);
}

#[test]
fn a_question_shows_the_change_that_it_is_about() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    workspace.write("old.txt", "one\n").unwrap();
    let editor = Editor::default();
    editor.chooses(&["allow-once", "allow-once"]);
    let can = ClientCapabilities::new();
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let write = json!({ "path": "old.txt", "file_text": "two\n", "description": "d" });
        model.calls("c-1", "local_create_file", write);
        let replace =
            json!({ "path": "old.txt", "old_str": "two", "new_str": "three", "description": "d" });
        model.calls("c-2", "local_str_replace", replace);
        model.says(Message::new().text("Done."));
        talk.says(&id, "Change it.").await?;
        Ok(id)
    });
    let change = |content: &[ToolCallContent]| match content {
        [ToolCallContent::Diff(diff)] => json!([diff.old_text, diff.new_text]),
        other => panic!("{other:#?}"),
    };
    let changes = [json!(["one\n", "two\n"]), json!(["two", "three"])];
    let asked = editor.asked().into_iter();
    let asked = asked.map(|question| change(&question.tool_call.fields.content.unwrap()));
    assert_eq!(asked.collect::<Vec<_>>(), changes);
    // It is still shown when the call is over.
    let calls = editor.calls(&id).into_iter();
    let shown = calls.map(|call| change(&call.content));
    assert_eq!(shown.collect::<Vec<_>>(), changes);
}

#[test]
fn settings_change_in_the_middle_of_a_conversation() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let set = |option: &str, value: &str| {
            let request = SetSessionConfigOptionRequest::new(id.clone(), option.to_owned(), value);
            talk.agent.send_request(request).block_task()
        };
        let options = set("mode", "read-only").await?.config_options;
        assert_eq!(value(&options, "mode"), "read-only");
        let current = value(&options, "model").to_owned();
        let auth = current.strip_suffix("/a-model").unwrap();
        let options = set("model", &format!("{auth}/another"))
            .await?
            .config_options;
        assert!(value(&options, "model").ends_with("/another"));
        for (option, wrong) in [("model", "nothing"), ("mode", "yolo"), ("speed", "fast")] {
            let error = set(option, wrong).await.unwrap_err();
            assert_eq!(i32::from(error.code), -32602, "{error:?}");
        }
        model.says(Message::new().text("Hello."));
        talk.says(&id, "Hello?").await?;
        assert_eq!(model.last_request().model(), "another");
        let current = talk
            .editor
            .updates(&id)
            .into_iter()
            .find_map(|update| match update {
                SessionUpdate::CurrentModeUpdate(update) => Some(update.current_mode_id),
                _ => None,
            });
        assert_eq!(&*current.unwrap().0, "read-only");
        Ok(())
    });
}
