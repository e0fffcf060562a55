//! A conversation as a whole: its limits, how it stops, and what is kept when it fails.

use conjure_host::session::{BackendSpec, ChatError, SessionSpec};
use conjure_kit::{Model, Workspace};
use conjure_mock_llm::{ErrorReply, Message};
use serde_json::{Value, json};

use crate::stage::{CACHE, LOCAL, Seen, Stage, bash, conjure, in_time, local, result, workspace};

/// `conjure run` against a model, everything allowed; `more` are more arguments.
fn run(workspace: &Workspace, model: &Model, more: &[&str]) -> conjure_kit::Output {
    let mut args = vec![
        "run",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
    ];
    args.extend(more);
    conjure_kit::cli(args)
        .workspace(workspace)
        .model(model)
        .run()
        .unwrap()
}

/// The JSON lines that a program printed.
pub(crate) fn lines(output: &conjure_kit::Output) -> Vec<Value> {
    output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test]
async fn p08_two_iterations_are_exactly_two_model_calls_then_a_typed_error() {
    let stage = Stage::new(&[LOCAL]).await;
    let spec = SessionSpec {
        max_iterations: Some(2),
        ..stage.spec([local()])
    };
    let session = stage.open(spec).await;
    for n in 0..3 {
        stage
            .model
            .calls(&format!("toolu_{n}"), "local_bash_tool", bash("echo again"));
    }
    let error = in_time(session.chat("Never end.")).await.unwrap_err();
    let limit = ChatError::Limit {
        limit: "max_iterations".to_owned(),
        value: 2,
    };
    assert_eq!(error, limit);
    assert_eq!(stage.model.requests().len(), 2);
    session.close().await;
}

#[test]
fn p08_the_limit_is_an_exit_code() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    for n in 0..3 {
        model.calls(&format!("toolu_{n}"), "local_bash_tool", bash("echo again"));
    }
    let output = run(&workspace, &model, &["--max-iterations", "2", "Never end."]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("`max_iterations` = 2"), "{output:?}");
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn b13_the_stop_reason_is_the_providers() {
    let stage = Stage::new(&[]).await;
    let session = stage.session([]).await;
    for reason in [
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "refusal",
        "a_reason_of_next_year",
    ] {
        stage
            .model
            .says(Message::new().text("So far.").stop_reason(reason));
        let answer = in_time(session.chat("Hi.")).await.unwrap();
        assert_eq!(answer.stop_reason.as_deref(), Some(reason));
        assert_eq!(answer.text, "So far.");
    }
    session.close().await;
}

#[test]
fn b13_the_stop_reason_is_in_what_programs_read() {
    let workspace = workspace(&[]);
    for (reason, code) in [("end_turn", 0), ("max_tokens", 4), ("refusal", 4)] {
        let model = Model::start().unwrap();
        model.says(Message::new().text("So far.").stop_reason(reason));
        let output = run(&workspace, &model, &["--json", "Hi."]);
        assert_eq!(output.code, Some(code), "{reason}: {output:?}");
        let lines = lines(&output);
        let result = lines.iter().find(|line| line["type"] == "result").unwrap();
        assert_eq!(result["stop_reason"], reason);
        assert_eq!(result["text"], "So far.");
    }
}

#[tokio::test]
async fn a_call_that_was_cut_short_never_runs() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let message = Message::new()
        .tool_use_text(
            "toolu_cut",
            "local_bash_tool",
            "{\"command\": \"touch ran\"",
        )
        .stop_reason("max_tokens");
    stage.model.says(message);
    in_time(session.chat("Go on.")).await.unwrap();
    assert_eq!(
        stage.workspace.files().unwrap(),
        [] as [std::path::PathBuf; 0]
    );
    stage.model.says(Message::new().text("Sorry."));
    in_time(session.chat("Again.")).await.unwrap();
    let seen = result(&stage.model.last_request(), "toolu_cut");
    assert!(seen.is_error && seen.text.contains("cut short"), "{seen:?}");
    session.close().await;
}

#[test]
fn b27_an_error_keeps_the_history_so_far() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let set = json!({ "command": "set city Lyon" });
    model.calls("toolu_1", "cache-manager_execute", set);
    model.says(ErrorReply::new(400).message("no more today"));
    let failed = run(&workspace, &model, &["--json", "Remember Lyon."]);
    assert_eq!(failed.code, Some(3), "{failed:?}");
    let failed = lines(&failed);
    let told = failed
        .iter()
        .find(|line| line["type"] == "result")
        .expect("the thread is told");
    let thread = told["thread"].as_str().unwrap();
    model.says(Message::new().text("Lyon it is."));
    let again = run(&workspace, &model, &["--thread", thread, "What was it?"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "Lyon it is.\n"),
        "{again:?}"
    );
    let request = model.last_request();
    assert_eq!(result(&request, "toolu_1"), Seen::ok("stored"));
    let first = &request.messages()[0];
    assert_eq!(first["role"], "user");
    assert!(
        first["content"].to_string().contains("Remember Lyon."),
        "{first}"
    );
    assert!(request.last_text().contains("What was it?"));
}

#[test]
fn b27_a_person_is_told_how_to_go_on_after_an_error() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(ErrorReply::new(400).message("no more today"));
    let failed = run(&workspace, &model, &["Hi."]);
    assert_eq!(failed.code, Some(3));
    let thread = conjure_kit::thread_ids(&workspace).unwrap().swap_remove(0);
    assert!(
        failed.stderr.contains(&thread),
        "the thread is named: {failed:?}"
    );
}

#[tokio::test]
async fn b27_an_error_in_the_middle_of_a_turn_keeps_its_results() {
    let stage = Stage::new(&[CACHE]).await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let set = json!({ "command": "set city Lyon" });
    stage.model.calls("toolu_1", "cache-manager_execute", set);
    stage.model.says(ErrorReply::new(401));
    let error = in_time(session.chat("Remember Lyon.")).await.unwrap_err();
    assert!(
        matches!(&error, ChatError::Provider { kind, .. } if kind == "auth"),
        "{error:?}"
    );
    assert_eq!(session.messages().await.len(), 3);
    stage.model.says(Message::new().text("Lyon."));
    assert_eq!(in_time(session.chat("And?")).await.unwrap().text, "Lyon.");
    session.close().await;
}

#[test]
fn a_session_file_says_the_same_as_the_options() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let file = format!(
        "provider = \"anthropic\"\nmodel = \"from-the-file\"\nbase_url = \"{}\"\n\
         [[backend]]\nkind = \"native\"\nskills = [\"cache-manager\"]\n\
         [policy]\nallow = [\"cache-manager_*\"]\n",
        model.base_url()
    );
    workspace.write("session.toml", file).unwrap();
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(Message::new().text("Stored."));
    let output = conjure(&workspace, ["run", "--config", "session.toml", "Remember."])
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
        .run()
        .unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "Stored.\n"),
        "{output:?}"
    );
    let request = model.last_request();
    assert_eq!(request.model(), "from-the-file");
    assert_eq!(result(&request, "toolu_1"), Seen::ok("stored"));
}
