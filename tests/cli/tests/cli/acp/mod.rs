//! `conjure acp`: an editor that speaks the Agent Client Protocol.

mod commands;
mod deciding;
mod editor;
mod faults;
mod lies;
mod listing;
mod order;

use agent_client_protocol::v1::schema::{
    AuthenticateRequest, CancelNotification, ClientCapabilities, CloseSessionRequest, ContentBlock,
    DeleteSessionRequest, ElicitationCapabilities, ElicitationFormCapabilities, EmbeddedResource,
    EmbeddedResourceResource, ImageContent, ListSessionsRequest, LoadSessionRequest, LogoutRequest,
    McpServer, McpServerStdio, NewSessionRequest, PermissionOptionKind, PromptRequest,
    ResourceLink, ResumeSessionRequest, SessionConfigKind, SessionConfigOption, SessionId,
    SessionUpdate, StopReason, SystemPrompt, TextContent, TextResourceContents, ToolCallStatus,
    ToolKind,
};
use conjure_kit::{Cli, MockMcp, Model, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::{Value, json};

use crate::session::{done, ok, show};
use crate::stage::{LOCAL, conjure, json as parsed, workspace};
use editor::{Editor, with_editor};

/// A PNG of one pixel.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A workspace with the local executor and one saved auth, and `conjure acp` in it.
fn stage(model: &Model) -> Workspace {
    let workspace = workspace(&[LOCAL]);
    save_auth(&workspace, model);
    workspace
}

fn save_auth(workspace: &Workspace, model: &Model) {
    let args = format!(
        "auth create work --provider anthropic --base-url {}",
        model.base_url()
    );
    ok(conjure(workspace, &args).stdin("sk-a-key-of-a-test"));
}

fn acp(workspace: &Workspace) -> Cli {
    conjure(workspace, "acp --auth work --model a-model")
}

fn bash(command: &str) -> Value {
    json!({ "command": command, "description": "a try" })
}

fn value<'a>(options: &'a [SessionConfigOption], id: &str) -> &'a str {
    let mut options = options.iter();
    let option = options.find(|option| &*option.id.0 == id).unwrap();
    match &option.kind {
        SessionConfigKind::Select(select) => &select.current_value.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_editor_opens_a_session_and_a_terminal_goes_on_with_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let work = workspace.work();
    model.says(
        Message::new()
            .reasoning("I should look.")
            .text("I look first.")
            .tool_use(
                "c-1",
                "local_bash_tool",
                bash("echo seen; echo made > made.txt"),
            ),
    );
    model.says(Message::new().text("It says: seen."));
    let editor = Editor::default();
    editor.chooses(&["allow-once"]);
    let can = ClientCapabilities::new();
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        assert!(talk.said.agent_capabilities.load_session);
        assert!(
            talk.said
                .agent_capabilities
                .prompt_capabilities
                .embedded_context
        );
        assert_eq!(talk.said.agent_info.as_ref().unwrap().name, "conjure");
        let method = talk.said.auth_methods.first().unwrap().id().clone();
        let request = AuthenticateRequest::new(method);
        talk.agent.send_request(request).block_task().await?;
        let new = NewSessionRequest::new(&work).system_prompt(SystemPrompt::new(vec![
            ContentBlock::Text(TextContent::new("You keep a lighthouse.")),
        ]));
        let new = talk.agent.send_request(new).block_task().await?;
        let modes = new.modes.unwrap();
        assert_eq!(&*modes.current_mode_id.0, "ask");
        assert_eq!(modes.available_modes.len(), 3);
        let options = new.config_options.unwrap();
        assert_eq!(value(&options, "mode"), "ask");
        assert!(value(&options, "model").ends_with("/a-model"));
        let id = new.session_id;
        let contents = TextResourceContents::new("lamp: broken\n", "file:///w/notes.txt");
        let contents = EmbeddedResourceResource::TextResourceContents(contents);
        let prompt = vec![
            ContentBlock::Text(TextContent::new("Compare ")),
            ContentBlock::ResourceLink(ResourceLink::new("a.txt", "file:///w/a.txt")),
            ContentBlock::Text(TextContent::new(" with ")),
            ContentBlock::Resource(EmbeddedResource::new(contents)),
        ];
        let prompt = PromptRequest::new(id.clone(), prompt);
        let said = talk.agent.send_request(prompt).block_task().await?;
        assert_eq!(said.stop_reason, StopReason::EndTurn);
        Ok(id)
    });
    // What the model was told.
    let requests = model.requests();
    let first = &requests.first().unwrap().body;
    assert!(
        first["system"]
            .to_string()
            .contains("You keep a lighthouse.")
    );
    assert!(first["messages"].to_string().contains(
        "Compare `a.txt` (at `/w/a.txt`) with `/w/notes.txt`\\n\\nContents of \
         `/w/notes.txt`:\\n```\\nlamp: broken\\n```"
    ));
    // What the editor was told.
    assert_eq!(editor.answer(&id), "I look first.It says: seen.");
    assert_eq!(editor.thought(&id), "I should look.");
    let asked = editor.asked();
    let [question] = asked.as_slice() else {
        panic!("{asked:#?}")
    };
    let kinds: Vec<PermissionOptionKind> = question.options.iter().map(|one| one.kind).collect();
    assert_eq!(
        kinds,
        [
            PermissionOptionKind::AllowOnce,
            PermissionOptionKind::AllowAlways,
            PermissionOptionKind::RejectOnce,
            PermissionOptionKind::RejectAlways,
        ]
    );
    let calls = editor.calls(&id);
    let [call] = calls.as_slice() else {
        panic!("{calls:#?}")
    };
    assert_eq!(call.title, "`echo seen; echo made > made.txt`");
    assert_eq!(call.name.as_deref(), Some("local_bash_tool"));
    assert_eq!(call.kind, ToolKind::Execute);
    assert_eq!(call.status, ToolCallStatus::Completed);
    assert_eq!(
        call.raw_input,
        Some(bash("echo seen; echo made > made.txt"))
    );
    let output = call.raw_output.as_ref().unwrap();
    assert_eq!(output["is_error"], false);
    assert!(output["output"].to_string().contains("seen"), "{output}");
    let updates = editor.updates(&id);
    let usage = updates
        .iter()
        .any(|update| matches!(update, SessionUpdate::SessionInfoUpdate(_)));
    assert!(usage, "{updates:#?}");

    // A terminal goes on with it.
    assert_eq!(show(&workspace, &id.0)["model"], "a-model");
    model.says(Message::new().text("From the terminal."));
    let run = ["run", "--session", &*id.0, "And now?"];
    ok(conjure_kit::cli(run).workspace(&workspace));

    // Another editor finds all of it.
    let other = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &other, can, async |talk| {
        let listed = talk
            .agent
            .send_request(ListSessionsRequest::new().cwd(work.clone()));
        let listed = listed.block_task().await?.sessions;
        let [listed] = listed.as_slice() else {
            panic!("{listed:#?}")
        };
        assert_eq!(listed.session_id, id);
        assert!(
            listed.title.is_some() && listed.updated_at.is_some(),
            "{listed:?}"
        );
        let elsewhere = ListSessionsRequest::new().cwd(std::path::PathBuf::from("/none"));
        let elsewhere = talk.agent.send_request(elsewhere).block_task().await?;
        assert!(elsewhere.sessions.is_empty());
        let load = LoadSessionRequest::new(id.clone(), &work);
        let loaded = talk.agent.send_request(load).block_task().await?;
        assert!(loaded.modes.is_some() && loaded.config_options.is_some());
        Ok(())
    });
    assert!(
        other.question(&id).ends_with("And now?"),
        "{}",
        other.question(&id)
    );
    assert_eq!(
        other.answer(&id),
        "I look first.It says: seen.From the terminal."
    );
    assert_eq!(other.thought(&id), "I should look.");
    assert_eq!(other.statuses(&id), [ToolCallStatus::Completed]);
    assert_eq!(other.calls(&id).first().unwrap().kind, ToolKind::Execute);
}

#[test]
fn a_turn_is_cancelled_in_the_middle_and_the_next_one_runs() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let cancel = || {
            talk.agent
                .send_notification(CancelNotification::new(id.clone()))
        };
        // Before there is a turn: whether the model was asked by then or not.
        let slow = || Reply::from(Message::new().text("It begins and")).hang(Position::Event(4));
        model.says(slow());
        let said = async { talk.says(&id, "At once.").await };
        let (said, ()) = futures_util::future::join(said, async { cancel().unwrap() }).await;
        assert_eq!(said?.stop_reason, StopReason::Cancelled);
        // While the model speaks.
        if !model.requests().is_empty() {
            model.says(slow());
        }
        let (said, ()) = futures_util::future::join(talk.says(&id, "Slow."), async {
            talk.editor
                .until("it speaks", |now| !now.answer(&id).is_empty())
                .await;
            cancel().unwrap();
        })
        .await;
        assert_eq!(said?.stop_reason, StopReason::Cancelled);
        // While a call runs.
        talk.editor.chooses(&["allow-once"]);
        model.calls("c-1", "local_bash_tool", bash("echo begun; sleep 600"));
        let (said, ()) = futures_util::future::join(talk.says(&id, "Run."), async {
            let live = |now: &Editor| format!("{:?}", now.calls(&id)).contains("begun\\n");
            talk.editor.until("it runs, and is seen to", live).await;
            cancel().unwrap();
        })
        .await;
        assert_eq!(said?.stop_reason, StopReason::Cancelled);
        // While the person is asked.
        model.calls("c-2", "local_bash_tool", bash("echo never"));
        let (said, ()) = futures_util::future::join(talk.says(&id, "Ask."), async {
            talk.editor
                .until("it asks", |now| now.asked().len() == 2)
                .await;
            cancel().unwrap();
        })
        .await;
        assert_eq!(said?.stop_reason, StopReason::Cancelled);
        model.says(Message::new().text("Here I am."));
        let said = talk.says(&id, "Still there?").await?;
        assert_eq!(said.stop_reason, StopReason::EndTurn);
        Ok(id)
    });
    assert!(
        editor.answer(&id).ends_with("Here I am."),
        "{}",
        editor.answer(&id)
    );
    assert_eq!(
        editor.statuses(&id),
        [ToolCallStatus::Failed, ToolCallStatus::Failed]
    );
}

#[test]
fn sessions_of_one_connection_do_not_wait_for_each_other() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &editor, can, async |talk| {
        let slow = talk.session(&workspace.work()).await?;
        let quick = talk.session(&workspace.work()).await?;
        let held =
            Reply::from(Message::new().text("Slow but sure.")).hold(Position::Headers, "gate");
        model.says(held);
        let (one, two) = futures_util::future::join(talk.says(&slow, "One."), async {
            talk.editor
                .until("the model is asked", |_| model.requests().len() == 1)
                .await;
            model.says(Message::new().text("Quick."));
            let said = talk.says(&quick, "Two.").await;
            model.mock().release("gate");
            said
        })
        .await;
        assert_eq!(one?.stop_reason, StopReason::EndTurn);
        assert_eq!(two?.stop_reason, StopReason::EndTurn);
        assert_eq!(talk.editor.answer(&slow), "Slow but sure.");
        assert_eq!(talk.editor.answer(&quick), "Quick.");
        // Closed and deleted ones are gone for this connection; a resumed one tells nothing again.
        talk.agent
            .send_request(CloseSessionRequest::new(slow.clone()))
            .block_task()
            .await?;
        let error = talk.says(&slow, "There?").await.unwrap_err();
        assert_eq!(i32::from(error.code), -32002, "{error:?}");
        let told = |editor: &Editor| {
            let updates = editor.updates(&slow).into_iter();
            let is_told = |update: &SessionUpdate| {
                !matches!(update, SessionUpdate::AvailableCommandsUpdate(_))
            };
            updates.filter(is_told).count()
        };
        let before = told(&talk.editor);
        let resume = ResumeSessionRequest::new(slow.clone(), workspace.work());
        talk.agent.send_request(resume).block_task().await?;
        assert_eq!(told(&talk.editor), before);
        model.says(Message::new().text("Yes."));
        talk.says(&slow, "There?").await?;
        talk.agent
            .send_request(DeleteSessionRequest::new(quick.clone()))
            .block_task()
            .await?;
        let listed = talk
            .agent
            .send_request(ListSessionsRequest::new())
            .block_task()
            .await?;
        let listed: Vec<SessionId> = listed
            .sessions
            .into_iter()
            .map(|one| one.session_id)
            .collect();
        assert_eq!(listed, [slow]);
        Ok(())
    });
}

#[test]
fn servers_of_the_editor_are_used_and_ask_the_person_in_it() {
    let model = Model::start().unwrap();
    let workspace = workspace(&[LOCAL, "conjure-backend-mcp"]);
    save_auth(&workspace, &model);
    let program = MockMcp::program().unwrap();
    let editor = Editor::default();
    editor.chooses(&["allow-once", "allow-once"]);
    *editor.form_answer.lock().unwrap() =
        Some(json!({ "action": "accept", "content": { "sure": true, "note": "yes" } }));
    let forms = ElicitationCapabilities::new().form(ElicitationFormCapabilities::new());
    let can = ClientCapabilities::new().elicitation(forms);
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let server = McpServerStdio::new("mock", &program).args(vec!["stdio".to_owned()]);
        let new = NewSessionRequest::new(workspace.work());
        let new = new.mcp_servers(vec![McpServer::Stdio(server)]);
        let id = talk.agent.send_request(new).block_task().await?.session_id;
        model.calls("c-1", "mock_ask", json!({}));
        model.says(Message::new().text("Asked."));
        talk.says(&id, "Ask me.").await?;
        Ok(id)
    });
    assert_eq!(
        editor.statuses(&id),
        [ToolCallStatus::Completed],
        "{:#?}",
        editor.calls(&id)
    );
    let forms = editor.forms.lock().unwrap().clone();
    assert_eq!(forms.len(), 1, "{forms:#?}");
    assert_eq!(forms[0]["toolCallId"], "c-1");
    assert_eq!(
        show(&workspace, &id.0)["mcps"]["mock"]["args"],
        json!(["stdio"])
    );
}

#[test]
fn a_client_that_signed_out_opens_no_session_until_it_signs_in_again() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &editor, can, async |talk| {
        assert!(talk.said.agent_capabilities.auth.logout.is_some());
        let work = workspace.work();
        let open = talk.session(&work).await?;
        let out = LogoutRequest::new();
        talk.agent.send_request(out).block_task().await?;
        let error = talk.session(&work).await.unwrap_err();
        assert_eq!(i32::from(error.code), -32000, "{error:?}");
        let load = LoadSessionRequest::new(open.clone(), &work);
        let loaded = talk.agent.send_request(load).block_task().await;
        assert_eq!(i32::from(loaded.unwrap_err().code), -32000);
        // What is open goes on.
        model.says(Message::new().text("Still here."));
        talk.says(&open, "There?").await?;
        let method = talk.said.auth_methods.first().unwrap().id().clone();
        let request = AuthenticateRequest::new(method);
        talk.agent.send_request(request).block_task().await?;
        talk.session(&work).await?;
        Ok(())
    });
    let auths = done(&workspace, "auth list --json");
    assert!(auths.stdout.contains("work"), "it stays: {auths:?}");
}

#[test]
fn an_editor_that_goes_away_leaves_a_session_that_goes_on() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    model.says(Reply::from(Message::new().text("It begins and")).hang(Position::Event(4)));
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        let id = talk.session(&workspace.work()).await?;
        let prompt = vec![ContentBlock::Text(TextContent::new("Slow."))];
        let prompt = PromptRequest::new(id.clone(), prompt);
        talk.agent.send_request(prompt).detach();
        talk.editor
            .until("it speaks", |now| !now.answer(&id).is_empty())
            .await;
        Ok(id)
    });
    let turns = parsed(&done(&workspace, &format!("session turns {} --json", id.0)));
    assert_eq!(turns["turns"][0]["state"], "cancelled", "{turns}");
    model.says(Message::new().text("Back again."));
    let run = ["run", "--session", &*id.0, "There?"];
    let run = ok(conjure_kit::cli(run).workspace(&workspace));
    assert!(run.stdout.contains("Back again."), "{run:?}");
}

#[test]
fn an_image_is_looked_at_by_the_model() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let editor = Editor::default();
    let can = ClientCapabilities::new();
    let id = with_editor(acp(&workspace), &editor, can, async |talk| {
        assert!(talk.said.agent_capabilities.prompt_capabilities.image);
        let id = talk.session(&workspace.work()).await?;
        model.says(Message::new().text("A dot."));
        let prompt = vec![
            ContentBlock::Text(TextContent::new("What is this?")),
            ContentBlock::Image(ImageContent::new(DOT, "image/png")),
        ];
        let prompt = PromptRequest::new(id.clone(), prompt);
        talk.agent.send_request(prompt).block_task().await?;
        Ok(id)
    });
    assert_eq!(editor.answer(&id), "A dot.");
    let body = model.last_request().body.to_string();
    assert!(
        body.contains(DOT) && body.contains("What is this?"),
        "{body}"
    );
    // It is told again to whoever opens the session.
    let other = Editor::default();
    let can = ClientCapabilities::new();
    with_editor(acp(&workspace), &other, can, async |talk| {
        let load = LoadSessionRequest::new(id.clone(), workspace.work());
        talk.agent.send_request(load).block_task().await?;
        Ok(())
    });
    assert!(
        other.question(&id).contains("What is this?"),
        "{}",
        other.question(&id)
    );
    assert!(
        other.question(&id).contains("`image`"),
        "{}",
        other.question(&id)
    );
}
