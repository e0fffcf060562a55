//! Commands in a prompt, files that the editor has not saved, and a message that is too long.

use agent_client_protocol::v1::schema::{
    AvailableCommandInput, CancelNotification, ClientCapabilities, ContentBlock,
    FileSystemCapabilities, LoadSessionRequest, PromptRequest, ResourceLink, SessionUpdate,
    StopReason, TextContent,
};
use conjure_kit::Model;
use conjure_mock_llm::{Message, Position, Reply};

use super::editor::{Editor, with_editor};
use super::{acp, conjure, stage};

#[test]
fn an_editor_is_offered_the_commands_of_a_chat_and_runs_them() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    let offered = |editor: &Editor, id: &_| {
        editor
            .updates(id)
            .into_iter()
            .find_map(|update| match update {
                SessionUpdate::AvailableCommandsUpdate(offered) => Some(offered.available_commands),
                _ => None,
            })
    };
    let id = with_editor(acp(&workspace), &editor, can.clone(), async |talk| {
        let id = talk.session(&workspace.work()).await?;
        talk.editor
            .until("the commands", |now| offered(now, &id).is_some())
            .await;
        let commands = offered(&talk.editor, &id).unwrap();
        let names: Vec<&str> = commands.iter().map(|one| one.name.as_str()).collect();
        for name in ["cost", "tools", "model", "compact", "fork", "rename"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"quit"), "{names:?}");
        let rename = commands.iter().find(|one| one.name == "rename").unwrap();
        let Some(AvailableCommandInput::Unstructured(input)) = &rename.input else {
            panic!("{rename:?}")
        };
        assert_eq!(input.hint, "NAME");
        // None of them is for the model, which says nothing here.
        let said = talk.says(&id, "/cost").await?;
        assert_eq!(said.stop_reason, StopReason::EndTurn);
        assert_eq!(talk.editor.answer(&id), "Nothing was spent yet.");
        talk.says(&id, "/model nonsense").await?;
        let answer = talk.editor.answer(&id);
        assert!(answer.contains("Write `/model PROVIDER/MODEL`"), "{answer}");
        talk.says(&id, "/tools").await?;
        let answer = talk.editor.answer(&id);
        assert!(answer.contains("local_bash_tool"), "{answer}");
        assert!(!answer.contains('\u{1b}'), "{answer:?}");
        // What only looks like one is.
        model.says(Message::new().text("A directory."));
        talk.says(&id, "/usr/bin is what?").await?;
        assert!(talk.editor.answer(&id).ends_with("A directory."));
        talk.says(&id, "/rename Directories").await?;
        Ok(id)
    });
    assert_eq!(model.requests().len(), 1);
    // The next editor is offered them too, and finds the name.
    let other = Editor::default();
    with_editor(acp(&workspace), &other, can, async |talk| {
        let load = LoadSessionRequest::new(id.clone(), workspace.work());
        talk.agent.send_request(load).block_task().await?;
        talk.editor
            .until("the commands", |now| offered(now, &id).is_some())
            .await;
        talk.says(&id, "/session").await?;
        let answer = talk.editor.answer(&id);
        assert!(answer.contains("Directories"), "{answer}");
        Ok(())
    });
}

#[test]
fn resume_alone_tells_the_conversations_there_are() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &editor, can, async |talk| {
        let first = talk.session(&workspace.work()).await?;
        talk.says(&first, "/resume").await?;
        let none = "There is no other conversation to go on with.";
        assert_eq!(talk.editor.answer(&first), none);
        model.says(Message::new().text("Lamps."));
        talk.says(&first, "What is here?").await?;
        let second = talk.session(&workspace.work()).await?;
        talk.says(&second, "/resume").await?;
        let answer = talk.editor.answer(&second);
        let mut lines = answer
            .lines()
            .skip_while(|line| !line.contains("`/resume ID`"));
        assert!(lines.next().is_some(), "{answer}");
        let thread = lines.next().unwrap_or_default();
        let thread = thread.split_whitespace().next().unwrap_or_default();
        talk.says(&second, &format!("/resume {thread}")).await?;
        let answer = talk.editor.answer(&second);
        assert!(answer.ends_with("Now that thread goes on."), "{answer}");
        Ok(())
    });
}

#[test]
fn a_command_that_takes_its_time_is_cancelled() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let file = workspace.write("tools.toml", "compact_at = 40000\n");
    let args = format!(
        "acp --auth work --model claude-sonnet-4-5 --tools {}",
        file.unwrap().display()
    );
    let cli = conjure(&workspace, &args);
    let editor = Editor::default();
    with_editor(cli, &editor, ClientCapabilities::new(), async |talk| {
        let id = talk.session(&workspace.work()).await?;
        for (question, answer) in [("word ".repeat(30_000), "Read."), ("And?".into(), "So.")] {
            model.says(Message::new().text(answer));
            talk.says(&id, &question).await?;
        }
        let summary = Reply::from(Message::new().text("A summary of words."));
        model.says(summary.hold(Position::Event(1), "summary"));
        let (said, ()) = futures_util::future::join(talk.says(&id, "/compact"), async {
            model.mock().wait_for_gate("summary").await.unwrap();
            let cancel = CancelNotification::new(id.clone());
            talk.agent.send_notification(cancel).unwrap();
        })
        .await;
        assert_eq!(said?.stop_reason, StopReason::Cancelled);
        model.mock().release("summary");
        model.says(Message::new().text("Here."));
        let said = talk.says(&id, "Still there?").await?;
        assert_eq!(said.stop_reason, StopReason::EndTurn);
        assert_eq!(talk.editor.answer(&id), "Read.So.Here.");
        Ok(())
    });
    // The summary came to nothing.
    let asked = model.last_request().body.to_string();
    assert!(!asked.contains("A summary of words."), "{asked}");
}

#[test]
fn the_model_reads_a_file_as_the_editor_shows_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let saved = workspace.work().join("saved.rs");
    let changed = workspace.work().join("changed.rs");
    for file in [&saved, &changed] {
        std::fs::write(file, "fn old() {}\n").unwrap();
    }
    let editor = Editor::default();
    {
        let mut shown = editor.shown.lock().unwrap();
        shown.insert(saved.clone(), "fn old() {}\n".to_owned());
        shown.insert(changed.clone(), "fn new() {}\n".to_owned());
    }
    let prompt = |id: &_| {
        let link = |name: &str| {
            let uri = format!("file://{}", workspace.work().join(name).display());
            ContentBlock::ResourceLink(ResourceLink::new(name, uri))
        };
        let said = ContentBlock::Text(TextContent::new("Compare: "));
        let links = ["saved.rs", "changed.rs", "none.rs"].map(link);
        PromptRequest::new(Clone::clone(id), [vec![said], links.to_vec()].concat())
    };
    let text = || model.last_request().body["messages"].to_string();
    let can = ClientCapabilities::new().fs(FileSystemCapabilities::new().read_text_file(true));
    model.says(Message::new().text("One differs."));
    with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        talk.agent.send_request(prompt(&id)).block_task().await?;
        Ok(())
    });
    assert!(text().contains("fn new() {}"), "{}", text());
    assert!(text().contains("changed.rs` is not saved in the editor"));
    assert!(!text().contains("fn old() {}"), "{}", text());
    // An editor that does not offer it is not asked.
    model.says(Message::new().text("I cannot see."));
    with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let id = talk.session(&workspace.work()).await?;
            talk.agent.send_request(prompt(&id)).block_task().await?;
            Ok(())
        },
    );
    assert!(!text().contains("fn new() {}"), "{}", text());
}

#[test]
fn a_message_that_is_too_long_is_answered_with_that() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    with_editor(
        acp(&workspace),
        &editor,
        ClientCapabilities::new(),
        async |talk| {
            let id = talk.session(&workspace.work()).await?;
            let long = "x".repeat(33 * 1024 * 1024);
            let error = talk.says(&id, &long).await.unwrap_err();
            assert!(
                error.message.contains("has more than 33554432 bytes"),
                "{error:?}"
            );
            model.says(Message::new().text("Shorter."));
            talk.says(&id, "Hello?").await?;
            assert_eq!(talk.editor.answer(&id), "Shorter.");
            Ok(())
        },
    );
    assert_eq!(model.requests().len(), 1);
}
