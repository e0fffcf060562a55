//! The fixtures through the real interface, with somebody who answers and with nobody.

use std::collections::BTreeMap;

use conjure_skill_sdk::protocol::{
    Completions, Elicit, Elicited, Manifest, PromptText, Prompts, Resources, Sampled, SkillTools,
    ToolMode, ToolResult,
};
use conjure_skill_sdk::testkit::{Plugin, TestHost, Transport};
use serde_json::{Value, json};

/// Every tool that the two requirement sets call, by its name there.
const TOOLS: [&str; 24] = [
    "json_schema_2020_12_tool",
    "test_audio_content",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_embedded_resource",
    "test_error_handling",
    "test_image_content",
    "test_input_required_result_capabilities",
    "test_input_required_result_elicitation",
    "test_input_required_result_list_roots",
    "test_input_required_result_multi_round",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_request_state",
    "test_input_required_result_sampling",
    "test_input_required_result_tampered_state",
    "test_logging_tool",
    "test_missing_capability",
    "test_multiple_content_types",
    "test_sampling",
    "test_simple_text",
    "test_streaming_elicitation",
    "test_tool_with_logging",
    "test_tool_with_progress",
];

/// A client that answers everything.
fn answered() -> Plugin {
    let answer = |asked: Elicit| {
        let schema = asked.schema.unwrap_or_default();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let content = fields.map(|(name, field)| {
            let value = match field["type"].as_str() {
                Some("boolean") => json!(true),
                _ => json!(format!("my {name}")),
            };
            (name.clone(), value)
        });
        Elicited {
            action: "accept".to_owned(),
            content: content.collect(),
        }
    };
    let sample = |asked: conjure_skill_sdk::protocol::Sample| {
        Ok(Sampled {
            text: format!("re: {} ({:?})", asked.messages[0].text, asked.max_tokens),
            ..Sampled::default()
        })
    };
    let host = TestHost::builder().transport(Transport::Pipe);
    let host = host.elicit(answer).sample(sample).root("file:///test/root");
    host.build().unwrap().link(crate::skill).unwrap()
}

fn call(plugin: &Plugin, tool: &str, arguments: Value) -> ToolResult {
    let outcome = plugin.call(&format!("skill.tool.{tool}"), arguments);
    outcome.result().unwrap()
}

fn text(plugin: &Plugin, tool: &str) -> String {
    let result = call(plugin, tool, json!({}));
    assert!(!result.is_error, "{tool}: {result:?}");
    result.joined_text()
}

#[test]
fn every_tool_that_the_suite_calls_is_there_and_blocks_no_other() {
    let plugin = Plugin::linked(crate::skill).unwrap();
    let Manifest { tools, .. } = plugin.manifest();
    for name in TOOLS {
        assert!(tools.iter().any(|tool| tool.name == name), "no {name}");
    }
    for tool in tools {
        assert_eq!(tool.mode, ToolMode::Stateless, "{}", tool.name);
        assert!(!tool.description.is_empty(), "{}", tool.name);
    }
}

#[test]
fn content_is_of_every_kind() {
    let plugin = Plugin::linked(crate::skill).unwrap();
    let parts = |tool: &str| serde_json::to_value(call(&plugin, tool, json!({})).content).unwrap();
    assert_eq!(parts("test_image_content")[0]["media_type"], "image/png");
    assert_eq!(
        parts("test_audio_content")[0]["value"]["mimeType"],
        "audio/wav"
    );
    let mixed = parts("test_multiple_content_types");
    assert_eq!(mixed[0]["text"], "Multiple content types test:");
    assert_eq!(mixed[1]["type"], "image");
    let embedded = &mixed[2]["value"]["resource"];
    assert_eq!(embedded["text"], r#"{"test":"data","value":123}"#);
    let failed = call(&plugin, "test_error_handling", json!({}));
    assert!(failed.is_error);
    assert_eq!(
        failed.joined_text(),
        "This tool intentionally returns an error for testing"
    );
}

#[test]
fn a_call_says_messages_and_progress_while_it_runs() {
    let plugin = Plugin::linked(crate::skill).unwrap();
    let events = |tool: &str| plugin.call(&format!("skill.tool.{tool}"), json!({})).events;
    let said = |event: &Value| (event["event"].clone(), event["data"].clone());
    let messages: Vec<_> = events("test_tool_with_logging").iter().map(said).collect();
    assert_eq!(
        messages,
        [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed"
        ]
        .map(|text| (json!("log"), json!(text)))
    );
    let progress = events("test_tool_with_progress");
    let done: Vec<&Value> = progress.iter().map(|event| &event["done"]).collect();
    assert_eq!(done, [&json!(0.0), &json!(50.0), &json!(100.0)]);
}

#[test]
fn answers_reach_the_tools_that_asked() {
    let plugin = answered();
    for (tool, expected) in [
        ("test_input_required_result_elicitation", "Hello, my name!"),
        (
            "test_input_required_result_sampling",
            "re: What is the capital of France? (Some(100))",
        ),
        (
            "test_input_required_result_list_roots",
            "The directories are: file:///test/root",
        ),
        ("test_input_required_result_request_state", "state-ok: true"),
        (
            "test_input_required_result_tampered_state",
            "Confirmed: true",
        ),
        (
            "test_input_required_result_multiple_inputs",
            r#"re: Generate a greeting (Some(50)) "my name", 1 directories"#,
        ),
        (
            "test_input_required_result_multi_round",
            "Hello, my name, who likes my color!",
        ),
        (
            "test_input_required_result_capabilities",
            "Answered: confirm, greeting",
        ),
        (
            "test_streaming_elicitation",
            r#"Elicitation completed: action=accept, content={"ok":true}"#,
        ),
    ] {
        assert_eq!(text(&plugin, tool), expected, "{tool}");
    }
    let said = call(&plugin, "test_sampling", json!({ "prompt": "Hi" })).joined_text();
    assert_eq!(said, "LLM response: re: Hi (Some(100))");
}

#[test]
fn what_nobody_answers_is_an_error_that_says_so() {
    let plugin = Plugin::linked(crate::skill).unwrap();
    for tool in [
        "test_missing_capability",
        "test_streaming_elicitation",
        "test_input_required_result_elicitation",
        "test_input_required_result_capabilities",
    ] {
        assert!(call(&plugin, tool, json!({})).is_error, "{tool}");
    }
}

#[test]
fn forms_have_the_defaults_and_choices_that_are_asked_for() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&asked);
    let host = TestHost::builder().elicit(move |elicit| {
        seen.lock().unwrap().push(elicit.schema.unwrap_or_default());
        Elicited {
            action: "decline".to_owned(),
            content: BTreeMap::new(),
        }
    });
    let plugin = host.build().unwrap().link(crate::skill).unwrap();
    for tool in [
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
    ] {
        let said = text(&plugin, tool);
        assert_eq!(said, "Elicitation completed: action=decline, content={}");
    }
    let asked = asked.lock().unwrap();
    let defaults = asked[0]["properties"].as_object().unwrap().iter();
    let defaults: Value = defaults
        .map(|(name, field)| (name.clone(), field["default"].clone()))
        .collect();
    assert_eq!(
        defaults,
        json!({ "name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": true })
    );
    let enums = &asked[1]["properties"];
    assert_eq!(enums["untitledSingle"]["enum"][0], "option1");
    assert_eq!(enums["titledSingle"]["oneOf"][0]["const"], "value1");
    assert_eq!(enums["legacyEnum"]["enumNames"][2], "Option Three");
    assert_eq!(enums["untitledMulti"]["items"]["enum"][1], "option2");
    assert_eq!(
        enums["titledMulti"]["items"]["anyOf"][2]["title"],
        "Third Choice"
    );
}

#[test]
fn resources_and_prompts_are_those_of_the_suite() {
    let plugin = answered();
    let list: Resources = plugin.call("resource.list", json!({})).parse().unwrap();
    let mut uris: Vec<&str> = list.resources.iter().map(|r| r.uri.as_str()).collect();
    uris.sort_unstable();
    assert_eq!(
        uris,
        [
            "test://static-binary",
            "test://static-text",
            "test://watched-resource"
        ]
    );
    let read = |uri: &str| {
        let read = plugin.call("resource.read", json!({ "uri": uri }));
        serde_json::to_value(read.result().unwrap().content).unwrap()[0]["value"]["resource"]
            .clone()
    };
    assert_eq!(read("test://static-text")["mimeType"], "text/plain");
    assert_eq!(read("test://static-binary")["blob"], crate::content::PNG);
    assert_eq!(
        read("test://template/123/data")["text"],
        r#"{"id":"123","templateTest":true,"data":"Data for ID: 123"}"#
    );
    let prompts: Prompts = plugin.call("prompt.list", json!({})).parse().unwrap();
    assert_eq!(prompts.prompts.len(), 5);
    let get = |name: &str, arguments: Value| -> PromptText {
        let got = plugin.call(
            "prompt.get",
            json!({ "name": name, "arguments": arguments }),
        );
        got.parse().unwrap()
    };
    let two = get(
        "test_prompt_with_arguments",
        json!({ "arg1": "a", "arg2": "b" }),
    );
    let expected = "Prompt with arguments: arg1='a', arg2='b'";
    assert_eq!(two.messages[0]["content"]["text"], expected);
    let embedded = get(
        "test_prompt_with_embedded_resource",
        json!({ "resourceUri": "x://y" }),
    );
    assert_eq!(embedded.messages[0]["content"]["resource"]["uri"], "x://y");
    assert_eq!(get("test_prompt_with_image", json!({})).messages.len(), 2);
    let asked = get("test_input_required_result_prompt", json!({}));
    let expected = "Use this context: my context";
    assert_eq!(asked.messages[0]["content"]["text"], expected);
    let asked = json!({
        "reference": { "type": "ref/prompt", "name": "test_prompt_with_arguments" },
        "argument": "arg1",
        "value": "par",
    });
    let completions: Completions = plugin.call("complete", asked).parse().unwrap();
    assert_eq!(completions.values, ["paris", "park", "party"]);
}

#[test]
fn what_comes_and_goes_is_told_and_really_does() {
    let plugin = answered();
    let tools = || {
        plugin
            .call("skill.tools", json!({}))
            .parse::<SkillTools>()
            .unwrap()
            .tools
            .len()
    };
    let changed = |tool: &str| plugin.call(&format!("skill.tool.{tool}"), json!({})).events;
    let what = |list: &str| json!({ "event": "catalog_changed", "sessions": [], "what": [list] });
    assert_eq!(tools(), 0);
    assert_eq!(changed("test_trigger_tool_change"), [what("tools")]);
    assert_eq!(tools(), 1);
    assert_eq!(text(&plugin, "test_dynamic_tool"), "I am here now");
    changed("test_trigger_tool_change");
    assert_eq!(tools(), 0);
    assert_eq!(changed("test_trigger_prompt_change"), [what("prompts")]);
    let prompts: Prompts = plugin.call("prompt.list", json!({})).parse().unwrap();
    assert_eq!(prompts.prompts.len(), 6);
    let updated = json!({ "event": "resource_updated", "uri": "test://watched-resource" });
    assert_eq!(changed("test_trigger_resource_update"), [updated]);
}

#[test]
fn a_cancelled_call_ends_and_is_counted() {
    for transport in Transport::BOTH {
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(crate::skill).unwrap();
        assert_eq!(text(&plugin, "test_cancellations"), "0");
        let running = plugin.background("skill.tool.test_cancellation", json!({}));
        assert!(running.until(|seen| seen.events.len() == 1));
        running.cancel();
        assert!(running.wait().result().unwrap().is_error);
        assert_eq!(text(&plugin, "test_cancellations"), "1");
    }
}
