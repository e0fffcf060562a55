//! Mutations for the rules of Responses.

use conjure_mock_llm::{Message, Request, Rule, Wire, signature, validate, verify};
use serde_json::{Value, json};

use super::{Mutation, change, each_mutation_breaks_its_rule, push, remove, set, without};
use crate::client::{Client, mock};

/// Reasoning and a call as the mock makes them.
fn made() -> Vec<Value> {
    let message = Message::new()
        .reasoning("hm")
        .tool_use("call_1", "clock_read", json!({}));
    let mock = mock(message);
    let mut client = Client::connect(mock.address());
    let body = json!({
        "model": "gpt-test",
        "input": "What time is it?",
        "include": ["reasoning.encrypted_content"],
    });
    client.ask(Wire::Responses, "gpt-test", &body);
    client.read_all().json()["output"]
        .as_array()
        .unwrap()
        .clone()
}

/// A history with everything in it.
fn legal() -> Request {
    let made = made();
    let body = json!({
        "model": "gpt-test",
        "stream": true,
        "store": false,
        "stream_options": {"include_obfuscation": false},
        "max_output_tokens": 16,
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": true, "schema": {
            "type": "object", "additionalProperties": false, "required": ["time"],
            "properties": {"time": {"type": "string"}},
        }}},
        "tools": [
            {"type": "function", "name": "clock_read", "strict": true, "parameters": {
                "type": "object", "additionalProperties": false, "required": ["zones"],
                "properties": {"zones": {"type": "array", "items": {"type": "string"}}},
            }},
            {"type": "custom", "name": "shell"},
            {"type": "web_search"},
        ],
        "input": [
            {"role": "developer", "content": "In English."},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "What time is it?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ]},
            made[0],
            made[1],
            {"type": "custom_tool_call", "call_id": "call_2", "name": "shell", "input": "date"},
            {"type": "function_call_output", "call_id": "call_1", "output": ""},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": [
                {"type": "input_text", "text": "12:00"},
            ]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final_answer",
             "content": [{"type": "output_text", "text": "Noon.", "annotations": []}]},
            {"type": "message", "role": "user", "content": "And tomorrow?"},
        ],
    });
    Request::to(Wire::Responses, "gpt-test", body)
}

#[test]
fn every_rule_has_a_mutation_that_breaks_it_alone() {
    each_mutation_breaks_its_rule(Wire::Responses, &legal(), mutations());
}

#[test]
fn a_text_a_continued_response_and_a_stored_history_pass() {
    let made = made();
    let text = json!({"model": "m", "input": "Hello"});
    let previous = json!({
        "model": "m",
        "previous_response_id": made_response_id(),
        "input": [{"type": "function_call_output", "call_id": "call_1", "output": "12:00"}],
    });
    let mut stored = legal().body;
    stored["store"] = json!(true);
    stored["input"][2]
        .as_object_mut()
        .unwrap()
        .remove("encrypted_content");
    let mut without_ids = legal().body;
    for item in [2, 3] {
        let item = without_ids["input"][item].as_object_mut().unwrap();
        item.remove("id");
    }
    assert_eq!(made.len(), 2);
    for body in [text, previous, stored, without_ids] {
        let request = Request::to(Wire::Responses, "m", body);
        assert_eq!(validate(Wire::Responses, &request), []);
        let foreign: Vec<_> = verify(Wire::Responses, &request)
            .into_iter()
            .filter(|violation| violation.rule != Rule::ForeignSidecar)
            .collect();
        assert_eq!(foreign, []);
    }
}

fn made_response_id() -> Value {
    let mock = mock(Message::new().text("Hello"));
    let mut client = Client::connect(mock.address());
    client.ask(
        Wire::Responses,
        "m",
        &json!({"model": "m", "input": "Hello"}),
    );
    client.read_all().json()["id"].clone()
}

fn mutations() -> Vec<Mutation> {
    let output =
        |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "12:00"});
    vec![
        without(Rule::Authentication, "authorization"),
        (Rule::Body, Box::new(|request| request.body = json!([]))),
        set(Rule::UnknownField, "/messages", json!([])),
        remove(Rule::Model, "/model"),
        set(Rule::MaxTokens, "/max_output_tokens", json!(15)),
        remove(Rule::Messages, "/input"),
        set(Rule::Messages, "/input", json!([])),
        set(Rule::System, "/instructions", json!(["Be brief."])),
        set(Rule::Role, "/input/8/role", json!("tool")),
        set(Rule::Content, "/input/8/content", json!([])),
        set(Rule::Content, "/input/8/content", Value::Null),
        set(Rule::Block, "/input/8/type", json!("tool_result")),
        set(Rule::Block, "/input/1/content/0/type", json!("text")),
        set(Rule::Block, "/input/5/output", json!({"exit": 1})),
        remove(Rule::Block, "/input/2/summary"),
        set(
            Rule::BlockRole,
            "/input/7/content/0",
            json!({"type": "input_text", "text": "Noon."}),
        ),
        set(
            Rule::BlockRole,
            "/input/1/content/0",
            json!({"type": "refusal", "refusal": "No."}),
        ),
        set(Rule::BlockField, "/input/3/sidecar", json!({})),
        set(
            Rule::BlockField,
            "/input/1/content/0/cache_control",
            json!({}),
        ),
        set(Rule::EmptyText, "/input/1/content/0/text", json!("")),
        set(Rule::EmptyText, "/input/8/content", json!(" \n")),
        set(Rule::ToolName, "/tools/0/name", json!("clock.read")),
        set(Rule::ToolName, "/input/3/name", json!("a".repeat(65))),
        set(Rule::ToolNameUnique, "/tools/1/name", json!("clock_read")),
        set(Rule::ToolSchema, "/tools/0/parameters", json!({})),
        remove(
            Rule::ToolSchema,
            "/tools/0/parameters/properties/zones/items",
        ),
        set(Rule::ToolSchema, "/tools/0/parameters/anyOf", json!([])),
        remove(
            Rule::StrictSchema,
            "/tools/0/parameters/additionalProperties",
        ),
        set(
            Rule::StrictSchema,
            "/tools/0/parameters/required",
            json!([]),
        ),
        set(
            Rule::StrictSchema,
            "/text/format/schema/required",
            json!([]),
        ),
        remove(Rule::Tools, "/tools/2/type"),
        set(Rule::ToolChoice, "/tool_choice", json!("any")),
        set(
            Rule::ToolChoice,
            "/tool_choice",
            json!({"type": "function", "name": "nobody"}),
        ),
        change(Rule::ToolChoice, |body| {
            body["tools"] = json!([]);
            body["tool_choice"] = json!("required");
        }),
        change(Rule::ToolId, |body| {
            body["input"][3]["call_id"] = json!("call|1");
            body["input"][5]["call_id"] = json!("call|1");
        }),
        change(Rule::ToolId, |body| {
            body["input"][3]["call_id"] = json!("c".repeat(65));
            body["input"][5]["call_id"] = json!("c".repeat(65));
        }),
        change(Rule::ToolIdUnique, |body| {
            body["input"].as_array_mut().unwrap().remove(6);
            body["input"][4]["call_id"] = json!("call_1");
        }),
        set(Rule::ToolInput, "/input/3/arguments", json!({})),
        set(Rule::ToolInput, "/input/3/arguments", json!("{\"a\": ")),
        remove(Rule::ToolInput, "/input/4/input"),
        remove(Rule::ToolResultMissing, "/input/5"),
        push(Rule::ToolResultOrphan, "/input", output("call_9")),
        push(Rule::ToolResultTwice, "/input", output("call_1")),
        set(Rule::ItemId, "/input/7/id", json!("toolu_1")),
        set(
            Rule::ItemId,
            "/input/7/id",
            json!(format!("msg_{}", "a".repeat(61))),
        ),
        set(Rule::ItemId, "/input/4/id", json!("fc_1")),
        change(Rule::ItemIdUnique, |body| {
            let again = body["input"][7].clone();
            body["input"].as_array_mut().unwrap().push(again);
        }),
        change(Rule::ReasoningFollowed, |body| {
            let items = body["input"].as_array_mut().unwrap();
            let reasoning = items.remove(2);
            // Without its id nothing asks where the call's reasoning is.
            items[2].as_object_mut().unwrap().remove("id");
            items.push(reasoning);
        }),
        remove(Rule::StoredItem, "/input/2/encrypted_content"),
        change(Rule::StoredItem, |body| {
            let id = body["input"][2]["id"].clone();
            let reference = json!({"type": "item_reference", "id": id});
            let items = body["input"].as_array_mut().unwrap();
            items[2].as_object_mut().unwrap().remove("id");
            items[3].as_object_mut().unwrap().remove("id");
            items.push(reference);
        }),
        change(Rule::PreviousResponse, |body| {
            body["previous_response_id"] = made_response_id();
        }),
        change(Rule::PreviousResponse, |body| {
            body["input"] = json!("Go on.");
            body["previous_response_id"] = made_response_id();
            body["conversation"] = json!("conv_1");
        }),
        set(Rule::Include, "/include/0", json!("reasoning")),
        set(Rule::Format, "/text/format/type", json!("json")),
        remove(Rule::Format, "/text/format/name"),
        remove(Rule::Format, "/text/format/schema"),
        set(Rule::StreamOptions, "/stream", json!(false)),
        set(
            Rule::ForeignSidecar,
            "/input/2/encrypted_content",
            json!(signature(Wire::Responses, "gpt-other", "")),
        ),
        set(
            Rule::ForeignSidecar,
            "/input/2/encrypted_content",
            json!("gAAAAABo"),
        ),
        change(Rule::UnknownItem, |body| {
            body["store"] = json!(true);
            let reference = json!({"type": "item_reference", "id": "rs_1"});
            body["input"].as_array_mut().unwrap().push(reference);
        }),
        change(Rule::UnknownItem, |body| {
            body["input"] = json!("Go on.");
            body["previous_response_id"] = json!("resp_1");
        }),
        remove(Rule::ReasoningDropped, "/input/2"),
    ]
}
