//! Mutations for the rules of Chat Completions.

use conjure_mock_llm::{Request, Rule, Wire, signature, validate};
use serde_json::{Value, json};

use super::{Mutation, change, each_mutation_breaks_its_rule, push, remove, set, without};

/// A history with everything in it.
fn legal() -> Request {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "clock_read", "arguments": "{}"}});
    let body = json!({
        "model": "gpt-test",
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_tokens": 100,
        "thinking": {"type": "enabled"},
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": {
            "type": "object", "additionalProperties": false, "required": ["time"],
            "properties": {"time": {"type": "string"}},
        }}},
        "tools": [
            {"type": "function", "function": {"name": "clock_read", "strict": true, "parameters": {
                "type": "object", "additionalProperties": false, "required": ["zones"],
                "properties": {"zones": {"type": "array", "items": {"type": "string"}}},
            }}},
            {"type": "function", "function": {"name": "no_parameters"}},
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "What time is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call("call_1"), call("call_2")]},
            {"role": "tool", "tool_call_id": "call_2", "content": ""},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12:00"}]},
            {"role": "assistant", "content": "Noon."},
            {"role": "user", "content": "And tomorrow?"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
        ],
    });
    Request::to(Wire::Chat, "gpt-test", body)
}

#[test]
fn every_rule_has_a_mutation_that_breaks_it_alone() {
    each_mutation_breaks_its_rule(Wire::Chat, &legal(), mutations());
}

#[test]
fn w35_content_may_be_null_with_calls_and_only_then() {
    let body = |message: Value| json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}, message, {"role": "user", "content": "Go on."}]});
    let refused = body(json!({"role": "assistant", "refusal": "I cannot do that."}));
    let nothing = body(json!({"role": "assistant"}));
    let rules = |body| -> Vec<Rule> {
        validate(Wire::Chat, &Request::to(Wire::Chat, "m", body))
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    };
    assert_eq!(rules(refused), []);
    assert_eq!(rules(nothing), [Rule::Content]);
}

#[test]
fn w36_reasoning_is_wanted_back_in_a_tool_loop_and_not_after_it() {
    let mut later = legal();
    let messages = later.body["messages"].as_array_mut().unwrap();
    for message in messages.iter_mut() {
        message.as_object_mut().unwrap().remove("reasoning_content");
    }
    let rules = |request: &Request| -> Vec<Rule> {
        let violations = validate(Wire::Chat, request);
        violations.into_iter().map(|it| it.rule).collect()
    };
    assert_eq!(rules(&later), [Rule::ThinkingKept]);
    let messages = later.body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": "Thank you."}));
    assert_eq!(rules(&later), []);
}

#[test]
fn mistrals_models_take_ids_of_nine_letters_only() {
    let with = |model: &str, id: &str| -> Vec<Rule> {
        let body = json!({"model": model, "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "clock_read", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": id, "content": "12:00"},
        ]});
        let request = Request::to(Wire::Chat, model, body);
        let violations = validate(Wire::Chat, &request);
        violations.into_iter().map(|it| it.rule).collect()
    };
    assert_eq!(with("mistral-small-latest", "call_1"), [Rule::ToolId; 2]);
    assert_eq!(with("mistral-small-latest", "abcDEF123"), []);
    assert_eq!(with("mistralai/mistral-small", "call_1"), []);
}

fn mutations() -> Vec<Mutation> {
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "12:00"});
    vec![
        without(Rule::Authentication, "authorization"),
        (Rule::Body, Box::new(|request| request.body = json!([]))),
        set(Rule::UnknownField, "/sidecar", json!({})),
        remove(Rule::Model, "/model"),
        set(Rule::MaxTokens, "/max_tokens", json!(0)),
        set(Rule::MaxTokens, "/max_completion_tokens", json!(100)),
        remove(Rule::Messages, "/messages"),
        set(Rule::Messages, "/messages", json!([])),
        set(Rule::Role, "/messages/6/role", json!("human")),
        set(Rule::Content, "/messages/5/content", Value::Null),
        remove(Rule::Content, "/messages/6/content"),
        set(Rule::Content, "/messages/6/content", json!([])),
        set(
            Rule::Block,
            "/messages/1/content/0/type",
            json!("input_text"),
        ),
        remove(Rule::Block, "/messages/1/content/1/image_url"),
        set(Rule::Block, "/messages/2/tool_calls/0/type", json!("tool")),
        change(Rule::Block, |body| {
            body["messages"][5]["tool_calls"] = json!([]);
        }),
        set(
            Rule::BlockRole,
            "/messages/4/content/0",
            json!({"type": "image_url", "image_url": {"url": "u"}}),
        ),
        set(Rule::BlockRole, "/messages/6/tool_call_id", json!("call_1")),
        set(
            Rule::BlockField,
            "/messages/5/thinking_signature",
            json!("s"),
        ),
        set(Rule::BlockField, "/messages/1/content/0/id", json!("s")),
        set(
            Rule::BlockField,
            "/messages/2/tool_calls/0/thoughtSignature",
            json!("s"),
        ),
        set(Rule::EmptyText, "/messages/5/content", json!("")),
        set(Rule::EmptyText, "/messages/1/content/0/text", json!("\n")),
        remove(Rule::ThinkingKept, "/messages/7/reasoning_content"),
        set(
            Rule::ToolName,
            "/tools/0/function/name",
            json!("clock.read"),
        ),
        set(
            Rule::ToolName,
            "/messages/2/tool_calls/0/function/name",
            json!(""),
        ),
        set(
            Rule::ToolNameUnique,
            "/tools/1/function/name",
            json!("clock_read"),
        ),
        set(
            Rule::ToolSchema,
            "/tools/1/function/parameters",
            json!({"type": "string"}),
        ),
        set(
            Rule::ToolSchema,
            "/tools/1/function/parameters",
            json!({"type": "object", "oneOf": []}),
        ),
        remove(
            Rule::StrictSchema,
            "/tools/0/function/parameters/additionalProperties",
        ),
        remove(Rule::StrictSchema, "/tools/0/function/parameters/required"),
        change(Rule::Tools, |body| {
            body["tools"] = json!([]);
            body.as_object_mut().unwrap().remove("tool_choice");
            body.as_object_mut().unwrap().remove("parallel_tool_calls");
        }),
        change(Rule::Tools, |body| {
            body.as_object_mut().unwrap().remove("tools");
            body.as_object_mut().unwrap().remove("tool_choice");
        }),
        set(Rule::Tools, "/tools/1/type", json!("web_search")),
        set(Rule::ToolChoice, "/tool_choice", json!("sometimes")),
        set(
            Rule::ToolChoice,
            "/tool_choice",
            json!({"type": "function", "function": {"name": "nobody"}}),
        ),
        change(Rule::ToolChoice, |body| {
            body.as_object_mut().unwrap().remove("tools");
            body.as_object_mut().unwrap().remove("parallel_tool_calls");
        }),
        change(Rule::ToolId, |body| {
            body["messages"][7]["tool_calls"][0]["id"] = json!("c".repeat(41));
            body["messages"][8]["tool_call_id"] = json!("c".repeat(41));
        }),
        change(Rule::ToolId, |body| {
            body["messages"][7]["tool_calls"][0]["id"] = json!("");
            body["messages"][8]["tool_call_id"] = json!("");
        }),
        change(Rule::ToolIdUnique, |body| {
            body["messages"][2]["tool_calls"][1]["id"] = json!("call_1");
            body["messages"].as_array_mut().unwrap().remove(3);
        }),
        set(
            Rule::ToolInput,
            "/messages/2/tool_calls/0/function/arguments",
            json!({}),
        ),
        set(
            Rule::ToolInput,
            "/messages/2/tool_calls/0/function/arguments",
            json!("{\"a\":"),
        ),
        set(
            Rule::ToolInput,
            "/messages/2/tool_calls/0/function/arguments",
            json!(""),
        ),
        remove(Rule::ToolResultMissing, "/messages/3"),
        remove(Rule::ToolResultMissing, "/messages/8"),
        push(Rule::ToolResultOrphan, "/messages", result("call_9")),
        // The call is there, but the message behind its own is not the tool's.
        change(Rule::ToolResultOrphan, |body| {
            let messages = body["messages"].as_array_mut().unwrap();
            let late = json!({"role": "tool", "tool_call_id": "call_2", "content": "12:00"});
            messages.insert(7, late);
        }),
        push(Rule::ToolResultTwice, "/messages", result("call_1")),
        set(Rule::Format, "/response_format/type", json!("json")),
        remove(Rule::Format, "/response_format/json_schema/name"),
        remove(Rule::Format, "/response_format/json_schema/schema"),
        set(Rule::StreamOptions, "/stream", json!(false)),
        set(
            Rule::ForeignSidecar,
            "/messages/2/reasoning_details",
            json!([{"type": "reasoning.encrypted", "data": signature(Wire::Anthropic, "gpt-test", "hm")}]),
        ),
    ]
}
