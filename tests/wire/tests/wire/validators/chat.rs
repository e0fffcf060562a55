//! What Chat Completions and its dialects refuse.

use std::collections::HashSet;

use serde_json::Value;

use super::{Broken, is_blank, is_legal, is_object, list};

pub(super) fn check(body: &Value, provider: &str, broken: &mut Broken) {
    let messages = list(body, "messages");
    let talk: Vec<&Value> = messages.iter().filter(|m| m["role"] != "system").collect();
    broken.rule(
        "does not end with the model",
        talk.last().is_some_and(|m| m["role"] != "assistant"),
    );
    let thinks = body["thinking"]["type"] != "disabled";
    let mut ids = HashSet::new();
    let mut owed: Vec<&Value> = Vec::new();
    let mut before = &Value::Null;
    for message in talk {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let next = (!owed.is_empty()).then(|| owed.remove(0));
            broken.rule(
                "results follow their calls",
                next == Some(&message["tool_call_id"]),
            );
            broken.rule("results are text", message["content"].is_string());
            before = &message["role"];
            continue;
        }
        broken.rule("results follow their calls", owed.is_empty());
        let calls = list(message, "tool_calls");
        let content = &message["content"];
        match role {
            "assistant" => {
                broken.rule("the model does not speak twice", before != "assistant");
                broken.rule(
                    "content is null only beside calls",
                    !content.is_null() || !calls.is_empty(),
                );
                if provider == "deepseek" && thinks && !calls.is_empty() {
                    let echoed = message["reasoning_content"].is_string();
                    broken.rule("thoughts go back beside calls", echoed);
                }
            }
            _ => {
                broken.rule("known roles", role == "user");
                broken.rule("calls are the model's", calls.is_empty());
                let pieces = content.as_array().is_some_and(|pieces| !pieces.is_empty());
                broken.rule("no blank message", !is_blank(content) || pieces);
            }
        }
        for piece in content.as_array().into_iter().flatten() {
            broken.rule(
                "no blank text",
                piece["type"] != "text" || !is_blank(&piece["text"]),
            );
        }
        for call in calls {
            let id = &call["id"];
            // Recorded ids are redacted, and longer than those that Mistral takes.
            let redacted = id.as_str().is_some_and(|id| id.contains("REDACTED"));
            let fits = if provider == "mistral" && !redacted {
                id.as_str().is_some_and(|id| {
                    id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())
                })
            } else {
                is_legal(id, 40)
            };
            broken.rule("legal ids", fits);
            let once = ids.insert(id.to_string());
            broken.rule("ids are used once", once || redacted);
            broken.rule("legal names", is_legal(&call["function"]["name"], 64));
            broken.rule(
                "arguments are an object",
                is_object(&call["function"]["arguments"]),
            );
            owed.push(id);
        }
        before = &message["role"];
    }
    broken.rule("results follow their calls", owed.is_empty());
}
