//! `conjure run` against a provider that fails in every way that a wire can.

use std::time::Duration;

use conjure_kit::Model;
use conjure_mock_llm::{Chunks, CutAt, CutHow, ErrorReply, Faults, Message, Reply, StreamError};
use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{CACHE, asks, workspace};

/// What a person sees when the model is asked once and these are its replies.
fn story(replies: Vec<Reply>) -> (String, usize) {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    for reply in replies {
        model.says(reply);
    }
    let output = asks(&workspace, &model, "run", "Hi.").run().unwrap();
    let wait = conjure_kit::Redactor::default().pattern(r"in \d+\.\d s", "in [DURATION]");
    (wait.apply(&output.snapshot()), model.requests().len())
}

#[test]
fn a_busy_provider_is_asked_again_and_it_is_said() {
    let (story, requests) = story(vec![
        ErrorReply::new(429).retry_after("0").into(),
        ErrorReply::new(529).into(),
        Reply::text("At last."),
    ]);
    assert_snapshot!(story, @"
    exit code 0
    --- stdout
    At last.
    --- stderr
    note: Anthropic gave no reply (HTTP status 429, rate_limit_error). The script answers with status 429. The account's rate limit is reached; wait, or send less at a time. (request req_mock_0) Attempt 2 of 4 in [DURATION].
    note: Anthropic gave no reply (HTTP status 529, overloaded_error). The script answers with status 529. The service is overloaded; try again in a while or use another model. (request req_mock_1) Attempt 3 of 4 in [DURATION].
    10 tokens in, 5 out; 2 requests made again
    ");
    assert_eq!(requests, 3);
}

#[test]
fn what_the_provider_asks_to_wait_is_told_when_it_is_too_long() {
    let (story, requests) = story(vec![ErrorReply::new(429).retry_after("120").into()]);
    assert_snapshot!(story, @"
    exit code 3
    --- stdout
    --- stderr
    error: anthropic: Anthropic gave no reply (HTTP status 429, rate_limit_error). The script answers with status 429. The account's rate limit is reached; wait, or send less at a time. (request req_mock_0) It asks to wait [DURATION], which is longer than the [DURATION] that a request waits; try again then.
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
    assert_eq!(requests, 1);
}

#[test]
fn a_provider_that_stays_busy_is_given_up_after_four_attempts() {
    let busy = || ErrorReply::new(529).retry_after("0").into();
    let (story, requests) = story(vec![busy(), busy(), busy(), busy(), busy()]);
    assert_snapshot!(story, @"
    exit code 3
    --- stdout
    --- stderr
    note: Anthropic gave no reply (HTTP status 529, overloaded_error). The script answers with status 529. The service is overloaded; try again in a while or use another model. (request req_mock_0) Attempt 2 of 4 in [DURATION].
    note: Anthropic gave no reply (HTTP status 529, overloaded_error). The script answers with status 529. The service is overloaded; try again in a while or use another model. (request req_mock_1) Attempt 3 of 4 in [DURATION].
    note: Anthropic gave no reply (HTTP status 529, overloaded_error). The script answers with status 529. The service is overloaded; try again in a while or use another model. (request req_mock_2) Attempt 4 of 4 in [DURATION].
    error: anthropic: Anthropic gave no reply (HTTP status 529, overloaded_error). The script answers with status 529. The service is overloaded; try again in a while or use another model. (request req_mock_3)
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
    assert_eq!(requests, 4);
}

#[test]
fn an_error_in_the_middle_of_a_stream_keeps_the_text_and_is_not_tried_again() {
    let error = StreamError {
        after: 6,
        kind: "overloaded_error".to_owned(),
        message: "Overloaded".to_owned(),
    };
    let faults = Faults {
        error: Some(error),
        ..Faults::default()
    };
    let message = Message::new()
        .text("Half of a long answer")
        .deltas(4)
        .faults(faults);
    let (story, requests) = story(vec![message.into(), Reply::text("never")]);
    assert_snapshot!(story, @"
    exit code 3
    --- stdout
    Half of a lo
    --- stderr
    error: anthropic: Anthropic broke its reply off with an error: Overloaded. The service is overloaded; try again in a while or use another model.
    10 tokens in, 1 out; 11 tokens of replies that broke off or were begun again
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
    assert_eq!(requests, 1);
}

#[test]
fn bad_json_in_a_stream_is_an_error_that_keeps_the_text() {
    let faults = Faults {
        bad_json_at: Some(6),
        ..Faults::default()
    };
    let message = Message::new()
        .text("Half of a long answer")
        .deltas(4)
        .faults(faults);
    let (story, requests) = story(vec![message.into()]);
    assert_snapshot!(story, @r#"
    exit code 3
    --- stdout
    Half of a lo
    --- stderr
    error: anthropic: Anthropic's reply cannot be read: an event that is not JSON: {"type":"content_block_delta","index":0,"d. Check the base URL and any proxy on the way.
    10 tokens in, 1 out; 11 tokens of replies that broke off or were begun again
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    "#);
    assert_eq!(requests, 1);
}

#[test]
fn a_connection_that_is_cut_keeps_the_text() {
    for how in [CutHow::Reset, CutHow::Eof, CutHow::End] {
        let message = Message::new().text("Half of a long answer").deltas(4);
        let reply = Reply::from(message).cut(CutAt::Events(6), how);
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(reply);
        let output = asks(&workspace, &model, "run", "Hi.").run().unwrap();
        assert_eq!(output.code, Some(3), "{how:?}: {output:?}");
        assert!(output.stdout.starts_with("Half of "), "{how:?}: {output:?}");
        // It can go on: what came is part of the history.
        let thread = conjure_kit::thread_ids(&workspace).unwrap().swap_remove(0);
        model.says(Message::new().text("And the other half."));
        let args = format!("run --thread {thread}");
        let again = asks(&workspace, &model, &args, "Go on.").run().unwrap();
        assert_eq!(again.stdout, "And the other half.\n", "{how:?}: {again:?}");
        let request = model.last_request();
        let history = request.body["messages"].to_string();
        assert!(history.contains("Half of "), "{how:?}: {history}");
    }
}

#[test]
fn chunks_of_one_byte_change_nothing() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let call = Message::new().text("Grüße. ").tool_use(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set größe 日本" }),
    );
    model.says(Reply::from(call).chunks(Chunks::Bytes(1)));
    model.says(Reply::text("Fertig. ✓").chunks(Chunks::Bytes(1)));
    let output = asks(&workspace, &model, "run --allow *", "Los.")
        .run()
        .unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "Grüße. \nFertig. ✓\n")
    );
    let stored = model.last_request().tool_result_text("toolu_1");
    assert_eq!(stored.as_deref(), Some("stored"));
}

#[test]
fn a_page_of_a_proxy_is_told_as_one() {
    let (story, _) = story(vec![Reply::html(
        403,
        "<html><body>Forbidden by proxy</body></html>",
    )]);
    assert_snapshot!(story, @"
    exit code 3
    --- stdout
    --- stderr
    error: anthropic: Anthropic gave no reply (HTTP status 403). What it sent is not this API's error: <html><body>Forbidden by proxy</body></html>. Check the API key that the session uses, and that its account may use this model.
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
}

#[test]
fn a_redirect_is_not_followed_with_the_key() {
    let (story, requests) = story(vec![Reply::redirect(302, "http://127.0.0.1:9/elsewhere")]);
    assert_snapshot!(story, @"
    exit code 3
    --- stdout
    --- stderr
    error: anthropic: http://127.0.0.1:[PORT] answers with a redirect (302 Found), which is not followed because the key would go along. Give the right address with `--base-url`.
    The conversation so far is kept: `--thread [UUID]` goes on with it.
    ");
    assert_eq!(requests, 1);
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let workspace = workspace(&[]);
    // Bound and never accepting would hang; a port that was just given back refuses.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let output = conjure_kit::cli([
        "run",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--base-url",
        &format!("http://{free}"),
        "Hi.",
    ])
    .workspace(&workspace)
    .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
    .deadline(Duration::from_secs(30))
    .run()
    .unwrap();
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("cannot be reached"), "{output:?}");
    assert!(!output.stderr.contains("a-key-of-nobody"));
}
