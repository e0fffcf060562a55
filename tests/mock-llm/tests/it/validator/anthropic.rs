//! Mutations for the rules of Anthropic's wire.

use conjure_mock_llm::{Request, Rule, Violation, Wire, signature, validate, verify};
use serde_json::{Value, json};

use super::{Mutation, each_mutation_breaks_its_rule, push, remove, set, without};

fn request(body: Value) -> Request {
    Request::to(Wire::Anthropic, "claude-test", body)
}

fn signed(thinking: &str) -> String {
    signature(Wire::Anthropic, "claude-test", thinking)
}

/// A history with everything in it: thinking, parallel calls, a mixed turn and its deferred result.
fn legal() -> Value {
    json!({
        "model": "claude-test",
        "max_tokens": 4096,
        "stream": true,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"format": {"type": "json_schema", "schema": {
            "type": "object", "additionalProperties": false, "properties": {"time": {"type": "string"}},
        }}},
        "tool_choice": {"type": "auto"},
        "container": {"id": "container_1", "skills": [{"type": "anthropic", "skill_id": "xlsx"}]},
        "tools": [
            {"name": "clock_read", "description": "", "strict": true, "input_schema": {
                "type": "object", "additionalProperties": false,
                "properties": {"zone": {"type": "string", "description": "optional"}},
            }},
            {"name": "code_execution", "type": "code_execution_20250825", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What time is it?"},
                {"type": "container_upload", "file_id": "file_1"},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": signed("hm")},
                {"type": "redacted_thinking", "data": signed("")},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "clock_read", "input": {}, "caller": {"type": "direct"}},
                {"type": "tool_use", "id": "toolu_2", "name": "clock_read", "input": {"zone": "UTC"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "\n"}], "is_error": true},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": ""},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "", "signature": signed("")},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_3", "name": "clock_read", "input": {}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_3"}]},
            {"role": "assistant", "content": [
                {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "bash_code_execution_result"}},
                {"type": "text", "text": "Noon."},
            ]},
            {"role": "user", "content": "Thank you."},
            {"role": "user", "content": "And tomorrow?"},
        ],
    })
}

#[test]
fn a_legal_history_with_everything_in_it_passes() {
    assert_eq!(validate(Wire::Anthropic, &request(legal())), []);
    assert_eq!(verify(Wire::Anthropic, &request(legal())), []);
}

#[test]
fn a_paused_turn_a_prefill_and_a_system_message_pass() {
    let mut paused = legal();
    paused["thinking"] = json!({"type": "disabled"});
    paused["messages"] = json!([
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}]},
    ]);
    let mut prefill = legal();
    prefill["thinking"] = json!({"type": "disabled"});
    prefill["messages"] = json!([
        {"role": "user", "content": "Count."},
        {"role": "system", "content": "In Latin."},
        {"role": "assistant", "content": "Unus,"},
    ]);
    for body in [paused, prefill] {
        assert_eq!(validate(Wire::Anthropic, &request(body)), []);
    }
}

/// What a turn of this model's would be refused for; each reply begins with a thought or does not,
/// and calls a tool.
fn refused(model: &str, thinking: &Value, replies: &[bool], then: &[Value]) -> Vec<String> {
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    for (at, thinks) in replies.iter().enumerate() {
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let call = json!({"type": "tool_use", "id": format!("c{at}"), "name": "t", "input": {}});
        let content: Vec<Value> = thinks
            .then_some(thought)
            .into_iter()
            .chain([call])
            .collect();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("c{at}")},
        ]}));
    }
    messages.extend(then.iter().cloned());
    let body =
        json!({"model": model, "max_tokens": 4096, "thinking": thinking, "messages": messages});
    let found = validate(Wire::Anthropic, &Request::to(Wire::Anthropic, model, body));
    let place = |violation: Violation| {
        let place = violation.message.split(": ").next().unwrap_or_default();
        format!("{:?} {place}", violation.rule)
    };
    found.into_iter().map(place).collect()
}

#[test]
fn a_turn_thinks_from_its_first_word_or_not_at_all() {
    let on = json!({"type": "enabled", "budget_tokens": 1024});
    let off = json!({"type": "disabled"});
    let absent = Value::Null;
    let adaptive = json!({"type": "adaptive"});
    let model = "claude-sonnet-4-5-20250929";
    let none: [&str; 0] = [];
    let kept = ["ThinkingKept messages.1.content.0.type"];
    // Replies to results may do without a thought, whoever made them.
    assert_eq!(refused(model, &on, &[true, false, true, false], &[]), none);
    assert_eq!(refused(model, &on, &[false, true], &[]), kept);
    // Words beside results do not end the turn, words alone do.
    let words = json!({"role": "user", "content": "and?"});
    let said = json!({"role": "assistant", "content": "It is."});
    assert_eq!(
        refused(model, &on, &[false], std::slice::from_ref(&words)),
        kept
    );
    assert_eq!(
        refused(model, &on, &[false], &[said.clone(), words.clone()]),
        none
    );
    let both = [
        "ThinkingOff messages.1.content.0",
        "ThinkingOff messages.5.content.0",
    ];
    for thinking in [&off, &absent] {
        assert_eq!(refused(model, thinking, &[true, false, true], &[]), both);
        assert_eq!(
            refused(model, thinking, &[true], &[said.clone(), words.clone()]),
            none
        );
        assert_eq!(refused(model, thinking, &[false, false], &[]), none);
        assert_eq!(
            refused("claude-opus-4-7", thinking, &[true, false], &[]),
            none
        );
    }
    assert_eq!(
        refused("claude-opus-4-7", &adaptive, &[false, true], &[]),
        none
    );
}

#[test]
fn a_message_says_where_and_what() {
    let mut body = legal();
    body["messages"][1]["content"][4]["id"] = json!("toolu_1");
    let messages: Vec<String> = validate(Wire::Anthropic, &request(body))
        .into_iter()
        .map(|violation| violation.message)
        .collect();
    assert_eq!(
        messages,
        [
            "messages.1.content.4: tool_use ids must be unique",
            "messages.2.content.0: unexpected tool_use_id `toolu_2`: no such call in the previous message",
        ]
    );
}

#[test]
fn every_rule_has_a_mutation_that_breaks_it_alone() {
    each_mutation_breaks_its_rule(Wire::Anthropic, &request(legal()), mutations());
}

fn mutations() -> Vec<Mutation> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id});
    let mark = json!({"type": "ephemeral"});
    vec![
        without(Rule::Authentication, "x-api-key"),
        without(Rule::Version, "anthropic-version"),
        (Rule::Body, Box::new(|request| request.body = json!([]))),
        set(Rule::UnknownField, "/sidecar", json!({})),
        remove(Rule::Model, "/model"),
        set(Rule::Model, "/model", json!("")),
        remove(Rule::MaxTokens, "/max_tokens"),
        (
            Rule::MaxTokens,
            Box::new(|request| {
                request.body["max_tokens"] = json!(0);
                request.body["thinking"] = json!({"type": "disabled"});
            }),
        ),
        remove(Rule::Messages, "/messages"),
        set(Rule::Messages, "/messages", json!([])),
        set(Rule::System, "/system", json!(7)),
        set(Rule::System, "/system/0/type", json!("image")),
        set(Rule::Role, "/messages/7/role", json!("tool")),
        set(
            Rule::FirstIsUser,
            "/messages",
            json!([{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Hello."}]),
        ),
        set(Rule::Content, "/messages/6/content", json!([])),
        remove(Rule::Content, "/messages/6/content"),
        set(
            Rule::Block,
            "/messages/6/content",
            json!([{"type": "reasoning"}]),
        ),
        set(Rule::Block, "/messages/2/content/0/is_error", json!("yes")),
        set(
            Rule::Block,
            "/messages/2/content/0/content",
            json!({"exit": 1}),
        ),
        set(
            Rule::Block,
            "/messages/2/content/0/content/0",
            json!({"type": "thinking"}),
        ),
        remove(Rule::Block, "/messages/0/content/1/file_id"),
        push(
            Rule::BlockRole,
            "/messages/0/content",
            json!({"type": "thinking", "thinking": "hm", "signature": signed("hm")}),
        ),
        push(
            Rule::BlockRole,
            "/messages/5/content",
            json!({"type": "container_upload", "file_id": "file_2"}),
        ),
        set(Rule::BlockField, "/messages/1/content/2/sidecar", json!({})),
        set(Rule::EmptyText, "/messages/6/content", json!("")),
        set(Rule::EmptyText, "/messages/5/content/1/text", json!(" \n")),
        set(Rule::EmptyText, "/system/0/text", json!("")),
        set(
            Rule::EmptyText,
            "/messages/2/content/0/content/0/text",
            json!(""),
        ),
        (
            Rule::TrailingSpace,
            Box::new(|request| {
                // A turn that thinks cannot be begun by the client.
                request.body["thinking"] = json!({"type": "disabled"});
                let messages = request.body["messages"].as_array_mut().unwrap();
                messages.push(json!({"role": "assistant", "content": "Noon, "}));
            }),
        ),
        remove(Rule::Signature, "/messages/1/content/0/signature"),
        set(
            Rule::Signature,
            "/messages/1/content/0/signature",
            json!(""),
        ),
        remove(Rule::Signature, "/messages/1/content/1/data"),
        (
            Rule::ThinkingKept,
            Box::new(|request| {
                let messages = request.body["messages"].as_array_mut().unwrap();
                messages.truncate(3);
                let content = messages[1]["content"].as_array_mut().unwrap();
                content.drain(..2);
            }),
        ),
        (
            Rule::ThinkingOff,
            Box::new(|request| {
                request.body["model"] = json!("claude-sonnet-4-5");
                request.body["thinking"] = json!({"type": "disabled"});
                let messages = request.body["messages"].as_array_mut().unwrap();
                messages.truncate(3);
                let own =
                    |thinking: &str| signature(Wire::Anthropic, "claude-sonnet-4-5", thinking);
                messages[1]["content"][0]["signature"] = own("hm").into();
                messages[1]["content"][1]["data"] = own("").into();
            }),
        ),
        set(
            Rule::ForeignSidecar,
            "/messages/1/content/0/signature",
            json!(signature(Wire::Anthropic, "claude-other", "hm")),
        ),
        set(
            Rule::ForeignSidecar,
            "/messages/1/content/0/signature",
            json!(signature(Wire::Gemini, "claude-test", "hm")),
        ),
        set(
            Rule::ForeignSidecar,
            "/messages/1/content/1/data",
            json!("ZGF0YQ=="),
        ),
        set(
            Rule::EditedSidecar,
            "/messages/1/content/0/thinking",
            json!("hmm"),
        ),
        set(Rule::ThinkingBudget, "/thinking/budget_tokens", json!(4096)),
        set(Rule::ThinkingBudget, "/thinking/budget_tokens", json!(1023)),
        set(Rule::ThinkingChoice, "/tool_choice", json!({"type": "any"})),
        set(Rule::ToolName, "/tools/0/name", json!("clock.read")),
        set(Rule::ToolName, "/tools/0/name", json!("a".repeat(65))),
        set(Rule::ToolName, "/messages/1/content/3/name", json!("")),
        set(
            Rule::ToolNameUnique,
            "/tools/0/name",
            json!("code_execution"),
        ),
        remove(Rule::ToolSchema, "/tools/0/input_schema"),
        set(
            Rule::ToolSchema,
            "/tools/0/input_schema/type",
            json!("string"),
        ),
        remove(
            Rule::StrictSchema,
            "/tools/0/input_schema/additionalProperties",
        ),
        set(
            Rule::StrictSchema,
            "/tools/0/input_schema/properties/zone/minLength",
            json!(1),
        ),
        set(
            Rule::StrictSchema,
            "/output_config/format/schema/properties/time",
            json!({"type": "array", "items": {}, "minItems": 2}),
        ),
        remove(Rule::Format, "/output_config/format/schema"),
        set(Rule::Format, "/output_config/format/type", json!("json")),
        set(
            Rule::ToolChoice,
            "/tool_choice",
            json!({"type": "sometimes"}),
        ),
        (
            Rule::ToolChoice,
            Box::new(|request| {
                request.body["tool_choice"] = json!({"type": "tool", "name": "nobody"});
                request.body["thinking"] = json!({"type": "disabled"});
            }),
        ),
        (
            Rule::ToolChoice,
            Box::new(|request| {
                request.body["tools"] = json!([]);
                request.body["container"] = json!("container_1");
            }),
        ),
        (
            Rule::ToolId,
            Box::new(|request| {
                request.body["messages"][1]["content"][3]["id"] = json!("call|1");
                request.body["messages"][2]["content"][1]["tool_use_id"] = json!("call|1");
            }),
        ),
        (
            Rule::ToolIdUnique,
            Box::new(|request| {
                request.body["messages"][3]["content"][2]["id"] = json!("toolu_1");
                request.body["messages"][4]["content"][0]["tool_use_id"] = json!("toolu_1");
            }),
        ),
        set(Rule::ToolInput, "/messages/1/content/3/input", json!("{}")),
        remove(Rule::ToolInput, "/messages/1/content/3/input"),
        remove(Rule::ToolResultMissing, "/messages/2/content/0"),
        push(
            Rule::ToolResultMissing,
            "/messages",
            json!({"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": signed("")},
                {"type": "tool_use", "id": "toolu_9", "name": "clock_read", "input": {}},
            ]}),
        ),
        (
            Rule::ToolResultOrphan,
            Box::new(move |request| {
                request.body["messages"][6]["content"] = json!([result("toolu_1")]);
            }),
        ),
        (
            Rule::ToolResultTwice,
            Box::new(move |request| {
                let content = request.body["messages"][2]["content"]
                    .as_array_mut()
                    .unwrap();
                content.insert(1, result("toolu_1"));
            }),
        ),
        (
            Rule::ToolResultFirst,
            Box::new(move |request| {
                let content = request.body["messages"][2]["content"]
                    .as_array_mut()
                    .unwrap();
                content.insert(1, text("First this."));
            }),
        ),
        push(Rule::MixedTurn, "/messages/4/content", text("Go on.")),
        set(
            Rule::ServerResultOrphan,
            "/messages/5/content/0/tool_use_id",
            json!("srvtoolu_9"),
        ),
        (
            Rule::CacheControl,
            Box::new(move |request| {
                request.body["cache_control"] = mark.clone();
                request.body["messages"][2]["content"][0]["content"][0]["cache_control"] =
                    mark.clone();
            }),
        ),
        set(
            Rule::Container,
            "/container/skills",
            json!(vec![json!({"type": "custom", "skill_id": "s"}); 21]),
        ),
        set(Rule::Container, "/container/name", json!("c")),
        remove(Rule::Container, "/tools/1"),
    ]
}
