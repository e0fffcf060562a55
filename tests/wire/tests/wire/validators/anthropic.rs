//! What the Messages API refuses.

use std::collections::HashSet;

use serde_json::Value;

use super::{Broken, is_blank, is_legal, list};

pub(super) fn check(body: &Value, model: &str, broken: &mut Broken) {
    thoughts(body, model, broken);
    let messages = list(body, "messages");
    let mut ids = HashSet::new();
    let mut before = &Value::Null;
    let mut owed: Vec<&Value> = Vec::new();
    // With the place of the message that they are in.
    let mut used: Vec<(usize, &Value)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = &message["role"];
        broken.rule("roles alternate", role != before);
        before = role;
        if message["content"].is_string() {
            broken.rule("results follow their calls", owed.is_empty());
            continue;
        }
        let content = list(message, "content");
        broken.rule("no empty message", !content.is_empty());
        let kinds: Vec<&str> = content
            .iter()
            .filter_map(|block| block["type"].as_str())
            .collect();
        let answers: Vec<&Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| &block["tool_use_id"])
            .collect();
        let same = owed.len() == answers.len() && owed.iter().all(|id| answers.contains(id));
        broken.rule("results follow their calls", same);
        let first = kinds
            .iter()
            .take_while(|kind| **kind == "tool_result")
            .count();
        broken.rule("results come first", first == answers.len());
        owed.clear();
        for block in content {
            match block["type"].as_str().unwrap_or_default() {
                "text" => broken.rule("no blank text", !is_blank(&block["text"])),
                "tool_use" => {
                    broken.rule("calls are the model's", role == "assistant");
                    broken.rule("legal ids", is_legal(&block["id"], 1_000));
                    broken.rule("ids are used once", ids.insert(block["id"].to_string()));
                    broken.rule("legal names", is_legal(&block["name"], 128));
                    broken.rule("input is an object", block["input"].is_object());
                    owed.push(&block["id"]);
                }
                "thinking" => {
                    let signed = role == "assistant" && !is_blank(&block["signature"]);
                    broken.rule("thoughts are signed", signed);
                }
                "server_tool_use" => used.push((at, &block["id"])),
                kind if kind.ends_with("_tool_result") => {
                    let known = used.iter().position(|(_, id)| **id == block["tool_use_id"]);
                    broken.rule("server results have their use", known.is_some());
                    if let Some(known) = known {
                        used.remove(known);
                    }
                }
                _ => {}
            }
        }
        let thinks = kinds.last().is_some_and(|kind| kind.ends_with("thinking"));
        let is_last = at + 1 == messages.len();
        broken.rule(
            "no message ends with a thought",
            role != "assistant" || !thinks || is_last,
        );
    }
    broken.rule("results follow their calls", owed.is_empty());
    // The provider still owes a result while it is given only the results of client calls.
    let deferred = messages.last().is_some_and(|last| {
        let results = |block: &Value| block["type"] == "tool_result";
        last["role"] == "assistant" || list(last, "content").iter().all(results)
    });
    let newest = messages
        .iter()
        .rposition(|message| message["role"] == "assistant");
    let owed = used.iter().all(|(at, _)| deferred && Some(*at) == newest);
    broken.rule("server uses have their result", owed);
}

/// One turn, one way of thinking: what models up to 4.5 hold requests to.
fn thoughts(body: &Value, model: &str, broken: &mut Broken) {
    let mut running: Vec<&Value> = Vec::new();
    for message in list(body, "messages") {
        let results = |block: &Value| block["type"] == "tool_result";
        if message["role"] == "assistant" {
            running.push(message);
        } else if !list(message, "content").iter().any(results) {
            running.clear();
        }
    }
    let thinks = |block: &Value| {
        let kind = block["type"].as_str();
        kind.is_some_and(|kind| kind.ends_with("thinking"))
    };
    match body["thinking"]["type"].as_str() {
        Some("enabled") => {
            let first = running.first().and_then(|it| list(it, "content").first());
            broken.rule(
                "a turn that thinks begins with a thought",
                running.is_empty() || first.is_some_and(thinks),
            );
        }
        Some("adaptive") => {}
        _ => {
            let later = ["-4-6", "-4-7", "-5"].iter().any(|it| model.contains(it))
                && !model.contains("-4-5");
            let none = !running
                .iter()
                .any(|it| list(it, "content").iter().any(thinks));
            broken.rule("a turn that does not think holds no thought", later || none);
        }
    }
}
