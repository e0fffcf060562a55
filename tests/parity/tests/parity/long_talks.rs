//! Conversations that become too long for their model: summaries, what they cost, and the way back.

use std::time::Duration;

use conjure_core::cost::Cause;
use conjure_core::log::{FoldState, folds};
use conjure_core::request::entry_tokens;
use conjure_host::session::{CompactAt, SessionSpec, UnfoldError};
use conjure_kit::Output;
use conjure_mock_llm::{ErrorReply, Message, Reply, Request, Usage};
use serde_json::Value;

use crate::stage::{LOCAL, Stage, bash, in_time, local, result_ids, system, workspace};

/// A result of about 900 tokens.
const MANY_WORDS: &str = "yes word | head -n 900 | tr '\\n' ' '";

fn spec(stage: &Stage) -> SessionSpec {
    SessionSpec {
        compact_at: Some(CompactAt::Tokens(2_500)),
        ..stage.spec([local()])
    }
}

/// A call that looks at them, in a reply to a request of so many tokens.
fn looks(id: &str, input_tokens: u64) -> Message {
    let usage = Usage {
        input_tokens,
        ..Usage::default()
    };
    Message::new()
        .tool_use(id, "local_bash_tool", bash(MANY_WORDS))
        .usage(usage)
}

/// Three looks, of which the last one makes the conversation too long.
const LOOKS: [(&str, u64); 3] = [("toolu_1", 100), ("toolu_2", 1_000), ("toolu_3", 1_700)];

fn refused() -> Reply {
    let error = ErrorReply::new(400).message("prompt is too long: 250000 tokens > 200000 maximum");
    Reply::from(error)
}

/// All text of a request's conversation.
fn told(request: &Request) -> String {
    Value::from(request.messages().to_vec()).to_string()
}

fn words(text: &str) -> usize {
    text.matches("word ").count()
}

#[tokio::test]
async fn a_conversation_is_summarised_inside_a_tool_loop_by_its_own_model_and_goes_on() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.open(spec(&stage)).await;
    for (id, input_tokens) in LOOKS {
        stage.model.says(looks(id, input_tokens));
    }
    stage
        .model
        .says(Message::new().text("Two of three are counted."));
    stage.model.says(Message::new().text("2700 words."));
    let answer = in_time(session.chat("Count the words of all three."))
        .await
        .unwrap();
    assert_eq!(answer.text, "2700 words.");
    let requests = stage.model.requests();
    let [_, _, third, summary, last] = requests.as_slice() else {
        panic!("{} requests", requests.len());
    };
    // The summary is asked of the same model, with the same beginning: a prompt cache has it.
    assert_eq!(summary.body["model"], third.body["model"]);
    assert_eq!(summary.body["tools"], third.body["tools"]);
    assert_eq!(system(summary), system(third));
    assert!(told(summary).contains("Write the summary"));
    assert!(!told(summary).contains("toolu_3"), "it stays as it is");
    // The question stands word for word, the newest call with its result, and nothing is orphaned.
    let text = told(last);
    assert!(text.contains("[summary of the conversation so far]"));
    assert!(text.contains("Two of three are counted."));
    assert!(text.contains("Count the words of all three."));
    assert!(!text.contains("toolu_1") && text.contains("toolu_3"));
    assert_eq!(result_ids(last), ["toolu_3"]);
    // Nothing is deleted: the log has every word, and says what stands for them.
    let entries = session.entries().await;
    let logged: u64 = entries.iter().map(|entry| entry_tokens(&entry.body)).sum();
    assert!(logged > 2_700, "{logged}");
    assert_eq!(folds(&entries)[0].state, FoldState::Standing);
    let cost = session.cost().await;
    let causes: Vec<&Cause> = cost.total.causes.iter().map(|cost| &cost.cause).collect();
    assert!(causes.contains(&&Cause::Summary), "{causes:?}");
    assert!(causes.contains(&&Cause::Schemas), "{causes:?}");
    session.close().await;
}

#[tokio::test]
async fn a_summary_that_calls_a_tool_is_asked_for_again_without_the_choice() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.open(spec(&stage)).await;
    for (id, input_tokens) in LOOKS.into_iter().chain([("toolu_4", 2_600)]) {
        stage.model.says(looks(id, input_tokens));
    }
    stage.model.says(Message::new().text("Two of three."));
    stage.model.says(Message::new().text("Done."));
    let answer = in_time(session.chat("Count.")).await.unwrap();
    assert_eq!(answer.text, "Done.");
    let requests = stage.model.requests();
    assert_eq!(requests[4].body["tool_choice"]["type"], "none");
    assert!(
        !told(requests.last().unwrap()).contains("toolu_4"),
        "it never ran"
    );
    // Both requests for a summary are paid, in the log and in the turn.
    let cost = session.cost().await;
    let summaries = cost
        .total
        .causes
        .iter()
        .find(|it| it.cause == Cause::Summary);
    assert_eq!(summaries.unwrap().times, 2);
    assert_eq!(answer.usage, cost.total.cost.usage);
    session.close().await;
}

#[tokio::test]
async fn a_reply_that_goes_on_with_the_work_is_no_summary() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.open(spec(&stage)).await;
    for (id, input_tokens) in LOOKS {
        stage.model.says(looks(id, input_tokens));
    }
    let works = Message::new().text("Let me look at one more.");
    let works = works.tool_use("toolu_4", "local_bash_tool", bash(MANY_WORDS));
    stage.model.says(works);
    stage
        .model
        .says(Message::new().text("I cannot.").stop_reason("refusal"));
    stage.model.says(Message::new().text("2700 words."));
    let answer = in_time(session.chat("Count.")).await.unwrap();
    assert_eq!(answer.text, "2700 words.");
    // Neither stands for the conversation: the model reads all of it.
    let last = told(&stage.model.last_request());
    assert!(
        !last.contains("[summary") && last.contains("toolu_1"),
        "{last}"
    );
    assert_eq!(folds(&session.entries().await), []);
    session.close().await;
}

#[tokio::test]
async fn what_the_provider_calls_too_long_is_summarised_and_asked_again() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    stage.model.says(looks("toolu_1", 100));
    stage.model.says(Message::new().text("900 words."));
    in_time(session.chat("Count the words.")).await.unwrap();
    stage.model.says(refused());
    stage
        .model
        .says(Message::new().text("There were 900 words."));
    stage.model.says(Message::new().text("You are welcome."));
    let answer = in_time(session.chat("Thank you.")).await.unwrap();
    assert_eq!(answer.text, "You are welcome.");
    let last = told(&stage.model.last_request());
    assert!(last.contains("There were 900 words.") && last.contains("Thank you."));
    assert!(words(&last) < 100, "{last}");

    // A person takes it back, and the model reads all of it again.
    assert_eq!(
        session.unfold(Some(1)).await,
        Err(UnfoldError::NoFold {
            fold: 1,
            known: vec![folds(&session.entries().await)[0].seq]
        })
    );
    let (fold, tokens) = session.unfold(None).await.unwrap();
    assert!(tokens > 900, "{tokens}");
    assert_eq!(
        session.unfold(Some(fold)).await,
        Err(UnfoldError::AlreadyUnfolded { fold })
    );
    stage.model.says(Message::new().text("Still here."));
    in_time(session.chat("And now?")).await.unwrap();
    let last = told(&stage.model.last_request());
    assert!(words(&last) > 800 && !last.contains("[summary"));

    // Refused again, and never twice in a turn: the turn fails and everything is kept.
    stage.model.says(refused());
    stage.model.says(Message::new().text("All was counted."));
    stage.model.says(refused());
    let error = in_time(session.chat("More?"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("too long"), "{error}");
    stage.model.says(Message::new().text("Fine."));
    in_time(session.chat("Again.")).await.unwrap();
    assert!(told(&stage.model.last_request()).contains("All was counted."));
    session.close().await;
}

#[tokio::test]
async fn a_session_that_never_compacts_fails_with_the_providers_word() {
    let stage = Stage::new(&[]).await;
    let session = stage
        .open(SessionSpec {
            compact_at: Some(CompactAt::Never),
            ..stage.spec([])
        })
        .await;
    stage.model.says(refused());
    let error = in_time(session.chat("Hello."))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("prompt is too long"), "{error}");
    assert_eq!(stage.model.requests().len(), 1);
    session.close().await;
}

#[test]
fn a_thread_is_looked_at_counted_checked_and_unfolded_from_the_command_line() {
    let workspace = workspace(&[LOCAL]);
    let model = conjure_kit::Model::start().unwrap();
    let json_lines = |output: &Output| -> Vec<Value> {
        let lines = output.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let local = workspace.plugins().join("libconjure_backend_local.so");
    workspace
        .trust(&workspace.work().join("data"), &local)
        .unwrap();
    let run = |args: &[&str]| {
        let args = args.iter().copied().chain(["--data-dir", "data"]);
        let cli = conjure_kit::cli(args).workspace(&workspace).model(&model);
        cli.deadline(Duration::from_secs(40)).run().unwrap()
    };
    // A model of a small window, as a person's own file describes it.
    workspace
        .write(
            "data/models.toml",
            "[anthropic.small]\ncontext = 4000\nprice = { input = 3.0, cache_read = 0.3, output = 15.0 }\n",
        )
        .unwrap();
    for (id, input_tokens) in LOOKS {
        model.says(looks(id, input_tokens));
    }
    model.says(Message::new().text("Two are counted."));
    model.says(Message::new().text("2700 words."));
    let asked = run(&[
        "run",
        "--provider",
        "anthropic",
        "--model",
        "small",
        "--allow",
        "*",
        "--json",
        "Count.",
    ]);
    assert_eq!(asked.code, Some(0), "{asked:?}");
    let events: Vec<Value> = json_lines(&asked);
    let thread = events.last().unwrap()["thread"]
        .as_str()
        .unwrap()
        .to_owned();
    let cost = events.iter().find(|event| event["type"] == "cost").unwrap();
    assert!(cost["turn"]["usd"].as_f64().unwrap() > 0.0);
    assert_eq!(cost["thread"]["replies"], 5);

    let shown = run(&["thread", "show", &thread]).stdout;
    assert!(
        shown.contains("you: Count.") && shown.contains("2700 words."),
        "{shown}"
    );
    assert!(
        shown.contains("reads what is above as a summary") && shown.contains("Two are counted.")
    );
    let folded = json_lines(&run(&["thread", "show", &thread, "--folded", "--json"]));
    assert!(
        folded
            .iter()
            .any(|entry| entry.to_string().contains("toolu_1"))
    );
    assert!(
        !folded
            .iter()
            .any(|entry| entry.to_string().contains("2700 words."))
    );

    let counted = run(&["thread", "cost", &thread]).stdout;
    assert!(
        counted.contains("turn 1:") && counted.contains("for 1 summary"),
        "{counted}"
    );

    let checked = run(&[
        "thread",
        "check",
        &thread,
        "--to",
        "mistral/mistral-large-latest",
    ]);
    assert!(checked.stdout.contains("under another id"), "{checked:?}");
    assert!(
        checked.stdout.contains("the prompt cache is lost"),
        "{checked:?}"
    );
    let report = run(&["thread", "check", &thread, "--to", "openai/gpt-5", "--json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert!(
        report["report"]["tokens"].as_u64().unwrap() > 100,
        "{report}"
    );
    assert_eq!(
        run(&["thread", "check", &thread, "--to", "openai"]).code,
        Some(2)
    );
    assert_eq!(
        run(&["thread", "check", "none", "--to", "openai/gpt-5"]).code,
        Some(2)
    );
    assert_eq!(model.requests().len(), 5, "a check sends nothing");

    assert_eq!(run(&["thread", "unfold", &thread]).code, Some(0));
    assert_eq!(run(&["thread", "unfold", &thread]).code, Some(2));
    let shown = run(&["thread", "show", &thread, "--folded"]).stdout;
    assert!(shown.contains("Nothing is folded"), "{shown}");
}
