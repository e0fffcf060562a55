//! Reports of conversations with one of everything that cannot be sent everywhere.

use serde_json::json;

use super::*;
use crate::chat::{ArtifactRef, FunctionCall, Meta, Sidecar, Usage};
use crate::request::ToolDefinition;

fn artifact(name: &str, media_type: &str) -> ArtifactRef {
    ArtifactRef {
        id: "a1".to_owned(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        size: None,
    }
}

fn call(id: &str) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: "look".to_owned(),
        arguments: json!({}),
        arguments_text: None,
    })
    .into()
}

fn output(id: &str) -> Message {
    let output = FunctionCallOutput::text(id, "r", false);
    Message::new(Role::Tool, vec![Content::FunctionCallOutput(output).into()])
}

fn model(parts: Vec<Part>) -> Message {
    Message {
        meta: Some(Meta {
            provider: "anthropic".to_owned(),
            model: "claude-sonnet-4-5".to_owned(),
            usage: Usage {
                input: 10,
                cache_read: 90,
                ..Usage::default()
            },
            ..Meta::default()
        }),
        ..Message::new(Role::Assistant, parts)
    }
}

fn thought() -> Part {
    Part {
        content: Content::Reasoning {
            text: "hm".to_owned(),
        },
        sidecar: Some(Sidecar {
            provider: "anthropic".to_owned(),
            model_family: "claude-sonnet-4-5".to_owned(),
            data: json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"}),
        }),
    }
}

fn conversation() -> Vec<Message> {
    let image = Content::Image {
        artifact: artifact("a.png", "image/png"),
    };
    vec![
        Message::new(Role::User, vec![Part::text("see"), image.into()]),
        model(vec![thought(), call("toolu_0123456789")]),
        output("toolu_0123456789"),
        model(vec![Part::text("so")]),
        Message::user("more"),
    ]
}

fn report(messages: &[Message], target: &RepairTarget) -> SwitchReport {
    let endpoint = Endpoint::new(&target.provider).with_model(&target.model);
    check(messages, target, &endpoint, ModelRequest::empty(target))
}

#[test]
fn nothing_changes_for_who_said_it() {
    let home = RepairTarget::new("anthropic", "claude-sonnet-4-5");
    let report = report(&conversation(), &home);
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.cache, CacheFate::Kept);
    assert!(report.tokens > 1 && report.unsupported.is_empty());
}

#[test]
fn a_switch_tells_of_thoughts_ids_images_and_the_cache() {
    let away = RepairTarget {
        images: false,
        ..RepairTarget::new("mistral", "mistral-large-latest")
    };
    let report = report(&conversation(), &away);
    let change = |message, part, kind, fate| PartChange {
        message,
        part,
        kind,
        fate,
    };
    assert_eq!(
        report.parts,
        [
            change(0, 1, PartKind::Image, Fate::Recast),
            change(1, 0, PartKind::Reasoning, Fate::Dropped),
        ]
    );
    let [renamed] = report.ids.as_slice() else {
        unreachable!("one call: {:?}", report.ids)
    };
    assert_eq!(renamed.from, "toolu_0123456789");
    assert_eq!(renamed.to.len(), 9);
    assert_eq!(report.unsupported, [Modality::Images]);
    let last = "anthropic/claude-sonnet-4-5".to_owned();
    assert_eq!(report.cache, CacheFate::Lost { tokens: 100, last });
}

#[test]
fn the_renamed_ids_are_those_of_the_request() {
    for provider in ["anthropic", "openai", "mistral", "deepseek"] {
        let target = RepairTarget::new(provider, "m");
        let endpoint = Endpoint::new(provider);
        let id = "a call:1 of\u{fc} a very long kind that is more than forty characters long";
        let messages = [Message::user("q"), model(vec![call(id)]), output(id)];
        let report = report(&messages, &target);
        let [renamed] = report.ids.as_slice() else {
            unreachable!("{provider}: {:?}", report.ids)
        };
        let body = target
            .wire
            .encode(&ModelRequest::bare(&target, messages.to_vec()), &endpoint)
            .body;
        let body = String::from_utf8(body).unwrap();
        assert_eq!(
            body.matches(&format!("\"{}\"", renamed.to)).count(),
            2,
            "{body}"
        );
    }
}

#[test]
fn calls_and_results_that_are_alone_are_named() {
    let messages = [
        Message::user("q"),
        model(vec![call("one"), call("two")]),
        output("two"),
        output("three"),
        Message::user("r"),
    ];
    let report = report(&messages, &RepairTarget::new("openai", "gpt-5"));
    assert_eq!(report.results_added, ["one"]);
    assert_eq!(report.results_dropped, ["three"]);
    assert!(!report.is_clean());
}

#[test]
fn a_thought_that_has_lost_what_it_led_to_is_told_too() {
    let messages = [
        Message::user("q"),
        model(vec![thought()]),
        Message::user("r"),
    ];
    let report = report(
        &messages,
        &RepairTarget::new("anthropic", "claude-sonnet-4-5"),
    );
    assert_eq!(report.parts.len(), 1);
    assert_eq!(report.parts[0].fate, Fate::Dropped);
}

#[test]
fn a_tool_that_a_provider_does_not_take_is_named_with_the_reason() {
    let target = RepairTarget::new("openai", "gpt-5");
    let tool = |name: &str, input_schema| ToolDefinition {
        name: name.to_owned(),
        description: String::new(),
        input_schema,
    };
    let like = ModelRequest {
        tools: vec![
            tool("good", json!({"type": "object"})),
            tool("bad", json!({"type": "nothing"})),
        ],
        ..ModelRequest::empty(&target)
    };
    let report = check(
        &[Message::user("q")],
        &target,
        &Endpoint::new("openai"),
        like,
    );
    let [out] = report.tools_quarantined.as_slice() else {
        unreachable!("{:?}", report.tools_quarantined)
    };
    assert_eq!(out.tool, "bad");
    assert!(out.reason.contains("type"), "{}", out.reason);
    assert_eq!(report.cache, CacheFate::None);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<SwitchReport>(&text).unwrap(), report);
}
