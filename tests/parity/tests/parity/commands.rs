//! Calls of command tools: what comes back of a command, and who runs it.

use std::sync::{Arc, Mutex};

use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_mock_llm::Message;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, FileRef, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Blocking, BlockingExecutor, Cx, Error, Result};
use serde_json::json;

use crate::stage::{CACHE, LOCAL, Seen, Stage, bash, in_time, local, result};

/// What the model gets of a command that failed.
fn failed(said: &str) -> Seen {
    Seen::error(&format!(
        "{said}\n[The call of `local_bash_tool` on backend `local` failed with what stands above. \
         Correct the command, or do it in another way.]"
    ))
}

#[tokio::test]
async fn p06_a_command_gives_output_exit_code_and_has_the_working_directory() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let work = stage.workspace.work();
    assert_eq!(
        stage.bash(&session, "echo hello").await,
        Seen::ok("hello\n")
    );
    assert_eq!(
        stage.bash(&session, "exit 1").await,
        failed("[exit code 1]")
    );
    let pwd = format!("{}\n", work.display());
    assert_eq!(stage.bash(&session, "pwd").await, Seen::ok(&pwd));
    session.close().await;
}

#[tokio::test]
async fn b01_a_failing_commands_output_reaches_the_model() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    assert_eq!(
        stage
            .bash(&session, "echo out; echo no such file >&2; exit 3")
            .await,
        failed("out\n[stderr]\nno such file\n[exit code 3]")
    );
    assert_eq!(
        stage.bash(&session, "echo last words; kill -9 $$").await,
        failed("last words\n[ended by signal 9]")
    );
    session.close().await;
}

#[tokio::test]
async fn b02_a_custom_executor_is_the_one_that_runs() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recording = Arc::clone(&seen);
    let stage = Stage::with(&[LOCAL], move |builder| {
        builder.executor("recorder", move |_setup| {
            Ok(Blocking::new(Recorder(Arc::clone(&recording))))
        })
    })
    .await;
    let session = stage
        .session([BackendSpec::executor("recorder", [] as [&str; 0])])
        .await;
    let touch = format!("touch {}", stage.path("made-by-a-shell"));
    let work = "recorder_bash_tool";
    assert_eq!(
        stage.call(&session, work, bash(&touch)).await,
        Seen::ok("recorded")
    );
    let failed = stage.call(&session, work, bash("fail")).await;
    assert!(
        failed.is_error && failed.text.contains("the recorder is full"),
        "{failed:?}"
    );
    assert_eq!(*seen.lock().unwrap(), [touch, "fail".to_owned()]);
    assert_eq!(
        stage.workspace.files().unwrap(),
        [] as [std::path::PathBuf; 0],
        "no shell of the host's ran"
    );
    session.close().await;
}

#[tokio::test]
async fn b02_an_executor_that_is_not_there_is_no_other_one() {
    let stage = Stage::new(&[LOCAL]).await;
    let error = stage
        .host
        .session(stage.spec([BackendSpec::executor("sandbox", [] as [&str; 0])]))
        .await
        .err()
        .expect("there is no such executor");
    let text = error.to_string();
    assert!(
        text.contains("`sandbox`") && text.contains("loaded are: local"),
        "{text}"
    );
    assert!(stage.model.requests().is_empty());
}

#[tokio::test]
async fn b03_a_call_that_times_out_keeps_its_id() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage
        .session([BackendSpec {
            call_timeout_ms: Some(400),
            ..local()
        }])
        .await;
    stage.model.calls(
        "toolu_slow",
        "local_bash_tool",
        bash("echo before; sleep 300"),
    );
    stage.model.says(Message::new().text("Too slow."));
    in_time(session.chat("Go on.")).await.unwrap();
    let seen = result(&stage.model.last_request(), "toolu_slow");
    assert_eq!(
        seen,
        Seen::error(
            "before\n[The call of `local_bash_tool` on backend `local` was ended by its time limit of \
             0.4 s, with everything that it had started. Do less at a time; the person can give the \
             tools of `local` more time with `[[timeout]]` in the session file.]"
        )
    );
    session.close().await;
}

#[tokio::test]
async fn b03_what_an_executor_says_when_its_time_is_over_is_what_the_model_reads() {
    let stage = Stage::with(&[LOCAL], |builder| {
        builder.executor("recorder", |_setup| Ok(Blocking::new(Recorder::default())))
    })
    .await;
    let session = stage
        .session([BackendSpec {
            call_timeout_ms: Some(200),
            ..BackendSpec::executor("recorder", [] as [&str; 0])
        }])
        .await;
    let work = "recorder_bash_tool";
    let seen = stage.call(&session, work, bash("stand still")).await;
    assert!(seen.is_error, "{seen:?}");
    assert!(
        seen.text.contains("the tape stands still. Call again"),
        "{seen:?}"
    );
    assert!(!seen.text.contains("Do less at a time"), "{seen:?}");
    session.close().await;
}

#[tokio::test]
async fn b05_a_call_without_a_required_argument_is_an_error_result() {
    let stage = Stage::new(&[LOCAL, CACHE]).await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("local_bash_tool", json!({ "description": "no command" })),
                ("local_view", json!({})),
                (
                    "local_create_file",
                    json!({ "path": "a.txt", "description": "no text" }),
                ),
                (
                    "local_str_replace",
                    json!({ "path": "a.txt", "description": "no passage" }),
                ),
                ("cache-manager_execute", json!({})),
                ("cache-manager_read", json!({ "path": 7 })),
            ],
        )
        .await;
    for (seen, missing) in seen.iter().zip([
        "command",
        "path",
        "file_text",
        "old_str",
        "command",
        "expected a string",
    ]) {
        assert!(
            seen.is_error && seen.text.contains(missing),
            "{missing}: {seen:?}"
        );
    }
    assert_eq!(
        stage.bash(&session, "echo alive").await,
        Seen::ok("alive\n")
    );
    session.close().await;
}

#[tokio::test]
async fn b06_a_call_without_any_input_still_gets_a_result() {
    let stage = Stage::with(&[LOCAL], |builder| builder.skill(crate::native::clock)).await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let message = Message::new()
        .tool_use_text("toolu_none", "clock_now", "")
        .tool_use_text("toolu_bash", "local_bash_tool", "")
        .tool_use("toolu_empty", "clock_now", json!({}));
    stage.model.says(message);
    stage.model.says(Message::new().text("Done."));
    in_time(session.chat("What time is it?")).await.unwrap();
    let request = stage.model.last_request();
    assert_eq!(result(&request, "toolu_none"), Seen::ok("noon"));
    assert_eq!(result(&request, "toolu_empty"), Seen::ok("noon"));
    let bash = result(&request, "toolu_bash");
    assert!(bash.is_error && bash.text.contains("command"), "{bash:?}");
    session.close().await;
}

#[tokio::test]
async fn a_commands_environment_has_no_key_of_the_hosts() {
    let workspace = crate::stage::workspace(&[LOCAL]);
    let args = json!({ "command": "env", "description": "" }).to_string();
    let output = crate::stage::conjure(
        &workspace,
        [
            "call",
            "local_bash_tool",
            "--executor",
            "local",
            "--args",
            &args,
        ],
    )
    .env("ANTHROPIC_API_KEY", "sk-secret")
    .env("CONJURE_SECRET_TOKEN", "sk-secret")
    .run()
    .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("PATH=") && !output.stdout.contains("sk-secret"));
}

#[tokio::test]
async fn one_call_without_a_model_goes_the_same_way() {
    let stage = Stage::new(&[LOCAL]).await;
    let call = |name: &str| conjure_core::chat::FunctionCall {
        call_id: "call-1".to_owned(),
        name: name.to_owned(),
        arguments: bash("echo hello"),
        arguments_text: None,
    };
    let execute = |executor| Box::pin(stage.host.execute(call("local_bash_tool"), &[], executor));
    let report = in_time(execute(Some("local"))).await.unwrap();
    assert_eq!(report.output.joined_text(), "hello\n");
    let error = in_time(execute(None)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("name one, such as `--executor local`"),
        "{error}"
    );
}

#[tokio::test]
async fn a_session_without_a_working_directory_has_one_of_its_own() {
    let stage = Stage::new(&[LOCAL]).await;
    let open = || async {
        let spec = SessionSpec {
            working_dir: None,
            ..stage.spec([local()])
        };
        stage.open(spec).await
    };
    let (one, two) = (open().await, open().await);
    stage.bash(&one, "echo 1 > mine.txt").await;
    assert_eq!(stage.bash(&two, "ls").await, Seen::ok("(no output)"));
    assert_eq!(stage.bash(&one, "cat mine.txt").await, Seen::ok("1\n"));
    one.close().await;
    two.close().await;
}

/// An executor that only writes down what it was asked.
#[derive(Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl BlockingExecutor for Recorder {
    fn bash(&self, cx: &Cx, request: Bash) -> Result<BashOutput> {
        self.0.lock().unwrap().push(request.command.clone());
        if request.command == "stand still" {
            while !cx.cancelled() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            return Err(Error::new("the tape stands still. Call again"));
        }
        if request.command == "fail" {
            return Err(Error::new("the recorder is full"));
        }
        Ok(BashOutput {
            exit_code: Some(0),
            stdout: "recorded".to_owned(),
            ..BashOutput::default()
        })
    }

    fn view(&self, _cx: &Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("there are no files"))
    }

    fn create_file(&self, _cx: &Cx, request: CreateFile) -> Result<Written> {
        Ok(Written {
            file: FileRef::at(request.path),
            replaced: false,
        })
    }

    fn str_replace(&self, _cx: &Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("there are no files"))
    }
}
