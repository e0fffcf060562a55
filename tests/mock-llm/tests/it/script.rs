//! The reply that a request gets, in Rust and from JSON.

use conjure_mock_llm::{Matcher, Message, MockLlm, Reply, Script, Step};
use serde_json::{Value, json};

use crate::client::{ask, exchange};

fn texts(mock: &MockLlm, bodies: &[Value]) -> Vec<Value> {
    bodies
        .iter()
        .map(|body| {
            let answer = exchange(mock, body).json();
            answer["content"][0]["text"].clone()
        })
        .collect()
}

fn ask_model(model: &str) -> Value {
    let mut body = ask(false);
    body["model"] = json!(model);
    body
}

fn after_tool() -> Value {
    let mut body = ask(false);
    body["messages"] = json!([
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "12:00"}]}]},
    ]);
    body
}

#[test]
fn an_answer_takes_values_from_the_request() {
    let script = Script::new().answer(|request| {
        let time = request.tool_result_text("toolu_1").unwrap_or_default();
        Message::new().text(format!("It is {time}.")).into()
    });
    let mock = MockLlm::start_blocking(script).unwrap();
    assert_eq!(texts(&mock, &[after_tool()]), ["It is 12:00."]);
}

#[test]
fn matchers_choose_among_the_steps_that_are_left() {
    let script = Script::new()
        .step(
            Step::new(Reply::text("for b"))
                .when(Matcher::any().model("b"))
                .times(2),
        )
        .step(Step::new(Reply::text("after the tool")).when(Matcher::any().tool_result("toolu_1")))
        .step(
            Step::new(Reply::text("long"))
                .when(Matcher::predicate(|request| request.messages().len() > 2)),
        )
        .reply(Reply::text("next"))
        .fallback(Reply::text("fallback"));
    let mock = MockLlm::start_blocking(script).unwrap();
    let bodies = [
        ask_model("a"),
        ask_model("b"),
        after_tool(),
        after_tool(),
        ask_model("b"),
        ask_model("b"),
    ];
    assert_eq!(
        texts(&mock, &bodies),
        [
            "next",
            "for b",
            "after the tool",
            "long",
            "for b",
            "fallback"
        ]
    );
    assert_eq!(mock.unexpected(), []);
}

#[test]
fn an_exhausted_script_answers_500_and_records_the_request() {
    let mock = MockLlm::start_blocking(Script::new()).unwrap();
    let response = exchange(&mock, &ask(true));
    assert_eq!(response.status, 500);
    assert_eq!(
        response.json()["error"],
        json!({"type": "api_error", "message": "The script has no answer left for request 0 (POST /v1/messages)."})
    );
    assert_eq!(mock.unexpected(), mock.requests());
    assert_eq!(mock.unexpected().len(), 1);
}

#[test]
fn a_request_is_recorded_with_everything_that_was_sent() {
    let mock = MockLlm::start_blocking(Script::new().reply(Reply::text("Hi"))).unwrap();
    exchange(&mock, &ask(false));
    let requests = mock.requests();
    let request = requests[0].as_ref();
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/v1/messages")
    );
    assert_eq!(request.header("X-Api-Key"), Some("k"));
    assert_eq!(request.body, ask(false));
    assert_eq!(request.last_text(), "Hello");
}

#[test]
fn an_illegal_request_is_refused_unless_the_script_is_lenient() {
    let mut illegal = ask(false);
    illegal["messages"] = json!([{"role": "user", "content": ""}]);
    let strict = MockLlm::start_blocking(Script::new().reply(Reply::text("served"))).unwrap();
    let refused = exchange(&strict, &illegal);
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"],
        json!({"type": "invalid_request_error", "message": "messages.0: text content blocks must contain non-whitespace text"})
    );
    let served = exchange(&strict, &ask(false));
    assert_eq!(served.status, 200, "a refused request uses up no step");
    assert_eq!(strict.unexpected(), []);

    let lenient =
        MockLlm::start_blocking(Script::new().reply(Reply::text("served")).lenient()).unwrap();
    assert_eq!(texts(&lenient, &[illegal]), ["served"]);
    assert_eq!(lenient.violations(), strict.violations());
}

#[test]
fn a_script_is_read_from_json() {
    let script = Script::from_json(
        r#"{
            "steps": [
                {"when": {"text": "nobody says this"}, "raw": "HTTP/1.1 204 No Content\r\n\r\n"},
                {"message": {
                    "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "Hi"}],
                    "faults": {"pings": "none"}
                 }, "delivery": {"chunks": {"bytes": 5}, "cut": {"at": {"events": 2}, "how": "end"}}},
                {"times": "always", "when": {"model": "busy"}, "error": {"status": 529, "retry_after": "1"}}
            ],
            "fallback": {"http": {"status": 404, "headers": {"content-type": "text/plain"}, "body": "gone"}}
        }"#,
    )
    .unwrap();
    let mock = MockLlm::start_blocking(script).unwrap();
    assert_eq!(
        exchange(&mock, &ask(true)).kinds(),
        ["message_start", "content_block_start"]
    );
    let statuses = ["busy", "busy", "other"].map(|model| exchange(&mock, &ask_model(model)).status);
    assert_eq!(statuses, [529, 529, 404]);
}

#[test]
fn a_script_with_a_mistake_is_refused_with_its_place() {
    let errors = [
        r#"{"steps": [{"times": 2}]}"#,
        r#"{"steps": [{"raw": "a", "error": {}}]}"#,
        r#"{"steps": [], "fallbak": {}}"#,
        r#"{"steps": [{"mesage": {}}]}"#,
    ]
    .map(|text| Script::from_json(text).unwrap_err().to_string());
    assert_eq!(
        errors,
        [
            "step 0 of the script has 0 of `message`, `error`, `http` and `raw`; give it exactly one",
            "step 0 of the script has 2 of `message`, `error`, `http` and `raw`; give it exactly one",
            "the script is not valid: unknown field `fallbak`, expected one of `steps`, `fallback`, `lenient`, `models` at line 1 column 23; see the documentation of `Script` for its fields",
            "the script is not valid: unknown field `mesage`, expected one of `when`, `times`, `message`, `error`, `http`, `raw`, `delivery` at line 1 column 20; see the documentation of `Script` for its fields",
        ]
    );
}
