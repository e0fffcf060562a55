//! For each rule of each validator one request that breaks it, and nothing else of note.

use conjure_core::wire::Wire;
use serde_json::{Value, json};

use super::broken;

/// A rule, where in the good request it is broken, and by what.
type Mutation = (&'static str, &'static str, Value);

#[test]
fn a_validator_rejects_one_mutation_for_each_of_its_rules() {
    for (wire, provider, model, good, mutations) in [
        (
            Wire::Anthropic,
            "anthropic",
            "m",
            anthropic(),
            anthropic_mutations(),
        ),
        (
            Wire::OpenaiResponses,
            "openai",
            "m",
            responses(),
            responses_mutations(),
        ),
        (Wire::OpenaiChat, "deepseek", "m", chat(), chat_mutations()),
        (
            Wire::Gemini,
            "gemini",
            "gemini-3-pro",
            gemini(),
            gemini_mutations(),
        ),
    ] {
        assert_eq!(
            broken(wire, provider, model, &good),
            [] as [&str; 0],
            "{wire}"
        );
        for (rule, at, value) in mutations {
            let mut bad = good.clone();
            let place = bad.pointer_mut(at);
            let place = place.unwrap_or_else(|| panic!("{wire} has no {at}"));
            *place = value;
            let found = broken(wire, provider, model, &bad);
            assert!(
                found.contains(&rule),
                "{wire}: {rule} is not among {found:?}"
            );
        }
    }
}

fn anthropic() -> Value {
    json!({"thinking": {"type": "enabled"}, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "tool_use", "id": "a", "name": "read", "input": {}},
            {"type": "tool_use", "id": "b", "name": "read", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a"},
            {"type": "tool_result", "tool_use_id": "b"},
            {"type": "text", "text": "more"},
        ]},
    ]})
}

fn anthropic_mutations() -> Vec<Mutation> {
    let use_of = |id: &str| json!({"type": "tool_use", "id": id, "name": "read", "input": {}});
    vec![
        ("roles alternate", "/messages/1/role", "user".into()),
        ("no empty message", "/messages/0/content", json!([])),
        (
            "results follow their calls",
            "/messages/2/content/1/tool_use_id",
            "c".into(),
        ),
        (
            "results come first",
            "/messages/2/content/0",
            json!({"type": "text", "text": "x"}),
        ),
        ("no blank text", "/messages/0/content/0/text", " ".into()),
        (
            "calls are the model's",
            "/messages/0/content/0",
            use_of("c"),
        ),
        ("legal ids", "/messages/1/content/3/id", "a.b".into()),
        ("ids are used once", "/messages/1/content/4/id", "a".into()),
        ("legal names", "/messages/1/content/3/name", "a/b".into()),
        (
            "input is an object",
            "/messages/1/content/3/input",
            "{}".into(),
        ),
        (
            "thoughts are signed",
            "/messages/1/content/0/signature",
            "".into(),
        ),
        (
            "server results have their use",
            "/messages/1/content/2/tool_use_id",
            "srv_2".into(),
        ),
        (
            "server uses have their result",
            "/messages/1/content/2",
            json!({"type": "text", "text": "x"}),
        ),
        (
            "a turn that thinks begins with a thought",
            "/messages/1/content/0",
            json!({"type": "text", "text": "x"}),
        ),
        (
            "a turn that does not think holds no thought",
            "/thinking/type",
            "disabled".into(),
        ),
        (
            "no message ends with a thought",
            "/messages/1/content",
            json!([{"type": "thinking", "thinking": "t", "signature": "s"}]),
        ),
    ]
}

fn responses() -> Value {
    json!({"previous": null, "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1_after_rs_1", "call_id": "a", "name": "read", "arguments": "{}"},
        {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "r"},
        {"type": "function_call_output", "call_id": "b", "output": "r"},
    ]})
}

fn responses_mutations() -> Vec<Mutation> {
    let mut referring = responses();
    referring["previous_response_id"] = "resp_1".into();
    vec![
        ("no reference to what is not stored", "", referring),
        (
            "thoughts have their proof",
            "/input/2/encrypted_content",
            Value::Null,
        ),
        (
            "thoughts are followed by their item",
            "/input/3",
            json!({"type": "message", "role": "user", "content": "x"}),
        ),
        ("legal call ids", "/input/3/call_id", "a.b".into()),
        ("call ids are used once", "/input/4/call_id", "a".into()),
        ("legal names", "/input/3/name", "a/b".into()),
        ("arguments are an object", "/input/3/arguments", "[1".into()),
        ("outputs have their call", "/input/5/call_id", "c".into()),
        (
            "calls have their output",
            "/input/6",
            json!({"type": "message", "role": "user", "content": "x"}),
        ),
        ("server items have their id", "/input/1/id", Value::Null),
        ("items follow their thought", "/input/2/id", "rs_9".into()),
        ("known roles", "/input/0/role", "tool".into()),
        ("no blank text", "/input/0/content/0/text", "".into()),
        ("no empty message", "/input/0/content", json!([])),
        (
            "pieces fit their role",
            "/input/0/content/0/type",
            "output_text".into(),
        ),
    ]
}

fn chat() -> Value {
    json!({"messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": null, "reasoning_content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
        {"role": "tool", "tool_call_id": "b", "content": "r"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "next"},
    ]})
}

fn chat_mutations() -> Vec<Mutation> {
    let calls = chat()["messages"][2]["tool_calls"].clone();
    vec![
        (
            "does not end with the model",
            "/messages/6/role",
            "assistant".into(),
        ),
        (
            "results follow their calls",
            "/messages/4/tool_call_id",
            "a".into(),
        ),
        ("results are text", "/messages/4/content", json!([])),
        (
            "the model does not speak twice",
            "/messages/6/role",
            "assistant".into(),
        ),
        (
            "content is null only beside calls",
            "/messages/5/content",
            Value::Null,
        ),
        (
            "thoughts go back beside calls",
            "/messages/2/reasoning_content",
            Value::Null,
        ),
        ("known roles", "/messages/6/role", "robot".into()),
        (
            "calls are the model's",
            "/messages/6",
            json!({"role": "user", "content": "x", "tool_calls": calls}),
        ),
        ("no blank message", "/messages/6/content", " ".into()),
        ("no blank text", "/messages/1/content/0/text", "".into()),
        ("legal ids", "/messages/2/tool_calls/0/id", "a.b".into()),
        (
            "ids are used once",
            "/messages/2/tool_calls/1/id",
            "a".into(),
        ),
        (
            "legal names",
            "/messages/2/tool_calls/0/function/name",
            "a/b".into(),
        ),
        (
            "arguments are an object",
            "/messages/2/tool_calls/0/function/arguments",
            "".into(),
        ),
    ]
}

fn gemini() -> Value {
    json!({"contents": [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [
            {"functionCall": {"id": "x", "name": "a", "args": {}}, "thoughtSignature": "s"},
            {"functionCall": {"name": "b", "args": {}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "x", "name": "a", "response": {}}},
            {"functionResponse": {"name": "b", "response": {}}},
        ]},
        {"role": "user", "parts": [{"text": "next"}]},
    ]})
}

fn gemini_mutations() -> Vec<Mutation> {
    let call = json!({"functionCall": {"name": "b", "args": {}}});
    vec![
        ("begins with the user", "/contents/0/role", "model".into()),
        ("ends with the user", "/contents/3/role", "model".into()),
        ("known roles", "/contents/3/role", "function".into()),
        (
            "the model does not speak twice",
            "/contents/0/role",
            "model".into(),
        ),
        ("no empty content", "/contents/3/parts", json!([])),
        (
            "as many responses as calls",
            "/contents/2/parts/1",
            json!({"text": "r"}),
        ),
        (
            "responses name their calls",
            "/contents/2/parts/1/functionResponse/name",
            "c".into(),
        ),
        (
            "real ids go back",
            "/contents/2/parts/0/functionResponse/id",
            "y".into(),
        ),
        ("calls are the model's", "/contents/3/parts/0", call),
        (
            "legal names",
            "/contents/1/parts/1/functionCall/name",
            "a/b".into(),
        ),
        (
            "arguments are an object",
            "/contents/1/parts/1/functionCall/args",
            "{}".into(),
        ),
        (
            "a response is an object",
            "/contents/2/parts/1/functionResponse/response",
            "r".into(),
        ),
        (
            "the first call is signed",
            "/contents/1/parts/0/thoughtSignature",
            Value::Null,
        ),
        ("no empty text", "/contents/3/parts/0/text", "".into()),
    ]
}
