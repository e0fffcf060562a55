//! What the Responses API refuses.

use std::collections::HashSet;

use serde_json::Value;

use super::{Broken, is_blank, is_legal, is_object, list};

pub(super) fn check(body: &Value, broken: &mut Broken) {
    let items = list(body, "input");
    let stored = body.get("previous_response_id").is_some();
    broken.rule("no reference to what is not stored", !stored);
    let mut calls: Vec<(&Value, bool)> = Vec::new();
    let mut ids = HashSet::new();
    let mut before = &Value::Null;
    for (at, item) in items.iter().enumerate() {
        let next = items.get(at + 1).unwrap_or(&Value::Null);
        match item["type"].as_str().unwrap_or("message") {
            "message" => message(item, broken),
            "reasoning" => {
                broken.rule(
                    "thoughts have their proof",
                    !is_blank(&item["encrypted_content"]),
                );
                let follower = next["role"] != "user" && next["role"] != "system";
                let is_item = !next.is_null() && !is_output(next) && follower;
                broken.rule(
                    "thoughts are followed by their item",
                    is_item && next.get("id").is_some(),
                );
            }
            kind @ ("function_call" | "custom_tool_call") => {
                broken.rule("legal call ids", is_legal(&item["call_id"], 64));
                broken.rule(
                    "call ids are used once",
                    ids.insert(item["call_id"].to_string()),
                );
                broken.rule("legal names", is_legal(&item["name"], 64));
                if kind == "function_call" {
                    broken.rule("arguments are an object", is_object(&item["arguments"]));
                }
                calls.push((&item["call_id"], false));
            }
            kind if kind.ends_with("_output") => {
                let call = calls.iter_mut().find(|(id, _)| **id == item["call_id"]);
                broken.rule(
                    "outputs have their call",
                    call.as_ref().is_some_and(|call| !call.1),
                );
                if let Some(call) = call {
                    call.1 = true;
                }
            }
            _ => broken.rule("server items have their id", !is_blank(&item["id"])),
        }
        // Ids of recorded items do not say what they follow; those that the tests make do.
        if let Some((_, thought)) = item["id"].as_str().and_then(|id| id.split_once("_after_")) {
            broken.rule("items follow their thought", before["id"] == thought);
        }
        before = item;
    }
    broken.rule(
        "calls have their output",
        calls.iter().all(|(_, answered)| *answered),
    );
}

fn is_output(item: &Value) -> bool {
    item["type"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("_output"))
}

fn message(item: &Value, broken: &mut Broken) {
    let role = item["role"].as_str().unwrap_or_default();
    broken.rule(
        "known roles",
        matches!(role, "user" | "assistant" | "system" | "developer"),
    );
    if let Some(text) = item["content"].as_str() {
        broken.rule("no blank text", !text.trim().is_empty());
        return;
    }
    let content = list(item, "content");
    broken.rule("no empty message", !content.is_empty());
    for piece in content {
        let kind = piece["type"].as_str().unwrap_or_default();
        let fits = if role == "assistant" {
            matches!(kind, "output_text" | "refusal")
        } else {
            matches!(kind, "input_text" | "input_image" | "input_file")
        };
        broken.rule("pieces fit their role", fits);
        if kind.ends_with("_text") {
            broken.rule("no blank text", !is_blank(&piece["text"]));
        }
    }
}
