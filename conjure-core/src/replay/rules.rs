//! What would keep a request from being sent: rules that every provider has, and those of a wire,
//! read from the request itself.
//!
//! Shares no code with what makes requests, so that it finds what that gets wrong.

use std::collections::BTreeSet;

use serde_json::Value;

use super::setup::Recipient;
use crate::chat::{Content, Message, Role};
use crate::repair::repair;
use crate::request::ModelRequest;
use crate::wire::Wire;

/// Everything that is wrong with a request to this recipient, whose body is this.
pub(super) fn problems(request: &ModelRequest, to: &Recipient, body: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let messages = request.messages.messages();
    if repair(messages.to_vec(), &to.target()) != request.messages {
        problems.push("the repair would change what it has repaired".to_owned());
    }
    conversation(messages, to, &mut problems);
    let (calls, results) = match to.wire {
        Wire::Anthropic => anthropic(body, &mut problems),
        Wire::OpenaiResponses => responses(body),
        Wire::OpenaiChat => chat(body, &mut problems),
        Wire::Gemini => gemini(body),
    };
    if calls != results {
        problems.push(format!(
            "the calls {calls:?} of the request and its results {results:?} do not belong together"
        ));
    }
    let unique: BTreeSet<&String> = calls.iter().collect();
    if to.wire != Wire::Gemini && unique.len() < calls.len() {
        problems.push(format!("an id of the calls {calls:?} is there twice"));
    }
    problems
}

/// What holds for a conversation, whoever reads it.
fn conversation(messages: &[Message], to: &Recipient, problems: &mut Vec<String>) {
    if messages.first().map(|message| message.role) != Some(Role::User) {
        problems.push("the conversation does not begin with the person".to_owned());
    }
    for (at, pair) in messages.windows(2).enumerate() {
        let [one, two] = pair else { continue };
        if one.role == two.role {
            problems.push(format!("messages {} and {} have one role", at + 1, at + 2));
        }
    }
    for (at, message) in messages.iter().enumerate() {
        let place = at + 1;
        if message.content.is_empty() {
            problems.push(format!("message {place} is empty"));
        }
        for part in &message.content {
            let foreign = part
                .sidecar
                .as_ref()
                .is_some_and(|sidecar| sidecar.provider != to.provider);
            if foreign {
                problems.push(format!("message {place} has a sidecar of another provider"));
            }
            match &part.content {
                Content::Text { text } if text.trim().is_empty() => {
                    problems.push(format!("message {place} has an empty text"));
                }
                Content::ServerItem { provider, .. } if *provider != to.provider => {
                    problems.push(format!("message {place} has an item of another provider"));
                }
                Content::Image { .. } if !to.images => {
                    problems.push(format!("message {place} has an image"));
                }
                // A text is told as text on every wire.
                Content::File { artifact } if !to.files && !artifact.is_text() => {
                    problems.push(format!("message {place} has a file"));
                }
                _ => {}
            }
        }
    }
}

fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

type CallAndResultIds = (Vec<String>, Vec<String>);

fn alternate(messages: &[Value], problems: &mut Vec<String>) {
    for (at, pair) in messages.windows(2).enumerate() {
        let [one, two] = pair else { continue };
        if text(one, "role") == text(two, "role") {
            let (one, two) = (at + 1, at + 2);
            problems.push(format!(
                "messages {one} and {two} of the body have one role"
            ));
        }
    }
}

/// Results stand in the message behind their calls.
fn anthropic(body: &Value, problems: &mut Vec<String>) -> CallAndResultIds {
    let messages = items(body, "messages");
    alternate(messages, problems);
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let ids = |message: &Value, kind: &str, field: &str| -> Vec<String> {
        let blocks = items(message, "content").iter();
        let blocks = blocks.filter(|block| text(block, "type") == kind);
        blocks.map(|block| text(block, field).to_owned()).collect()
    };
    for (at, message) in messages.iter().enumerate() {
        let asked = ids(message, "tool_use", "id");
        let answered = messages
            .get(at + 1)
            .map(|next| ids(next, "tool_result", "tool_use_id"))
            .unwrap_or_default();
        if !asked.is_empty() && asked != answered {
            problems.push(format!("the calls {asked:?} have no results behind them"));
        }
        let legal = |id: &String| {
            !id.is_empty()
                && id
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        };
        if let Some(id) = asked.iter().find(|id| !legal(id)) {
            problems.push(format!("the id {id:?} is not legal for this wire"));
        }
        calls.extend(asked);
        results.extend(ids(message, "tool_result", "tool_use_id"));
    }
    (calls, results)
}

fn responses(body: &Value) -> CallAndResultIds {
    let of_kind = |kind: &str| -> Vec<String> {
        let items = items(body, "input").iter();
        let items = items.filter(|item| text(item, "type") == kind);
        items.map(|item| text(item, "call_id").to_owned()).collect()
    };
    (of_kind("function_call"), of_kind("function_call_output"))
}

/// Results are messages of their own, right behind the one with their calls.
fn chat(body: &Value, problems: &mut Vec<String>) -> CallAndResultIds {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let mut open: Vec<String> = Vec::new();
    for message in items(body, "messages") {
        if text(message, "role") == "tool" {
            let id = text(message, "tool_call_id").to_owned();
            open.retain(|other| *other != id);
            results.push(id);
            continue;
        }
        if !open.is_empty() {
            problems.push(format!("the calls {open:?} have no results behind them"));
        }
        let asked = items(message, "tool_calls").iter();
        open = asked.map(|call| text(call, "id").to_owned()).collect();
        calls.extend(open.iter().cloned());
    }
    (calls, results)
}

/// Calls and results are paired by their places and names.
fn gemini(body: &Value) -> CallAndResultIds {
    let contents = items(body, "contents");
    let names = |kind: &str| -> Vec<String> {
        contents
            .iter()
            .flat_map(|content| items(content, "parts"))
            .filter_map(|part| part.get(kind))
            .map(|call| text(call, "name").to_owned())
            .collect()
    };
    (names("functionCall"), names("functionResponse"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ArtifactRef;

    fn of_body(wire: Wire, body: &Value) -> Vec<String> {
        let mut whom = Recipient::of_name("x", "m");
        whom.wire = wire;
        let messages = vec![Message::user("q")];
        let request = ModelRequest::bare(&whom.target(), messages);
        problems(&request, &whom, body)
    }

    #[test]
    fn calls_without_results_are_found_on_every_wire() {
        let bodies = [
            json!({"messages": [
                {"role": "user", "content": []},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
            ]}),
            json!({"input": [{"type": "function_call", "call_id": "a"}]}),
            json!({"messages": [
                {"role": "assistant", "tool_calls": [{"id": "a"}]},
                {"role": "user", "content": "x"},
            ]}),
            json!({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a"}}]}]}),
        ];
        for (wire, body) in Wire::ALL.into_iter().zip(bodies) {
            let found = of_body(wire, &body);
            assert!(
                found.iter().any(|problem| problem.contains("[\"a\"]")),
                "{wire}: {found:?}"
            );
        }
    }

    #[test]
    fn what_belongs_together_is_no_problem() {
        let bodies = [
            json!({"messages": [
                {"role": "user", "content": []},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            ]}),
            json!({"input": [
                {"type": "function_call", "call_id": "a"},
                {"type": "function_call_output", "call_id": "a"},
            ]}),
            json!({"messages": [
                {"role": "assistant", "tool_calls": [{"id": "a"}]},
                {"role": "tool", "tool_call_id": "a"},
            ]}),
            json!({"contents": [
                {"role": "model", "parts": [{"functionCall": {"name": "a"}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "a"}}]},
            ]}),
        ];
        for (wire, body) in Wire::ALL.into_iter().zip(bodies) {
            assert_eq!(of_body(wire, &body), [] as [&str; 0], "{wire}");
        }
    }

    #[test]
    fn a_file_is_a_problem_where_it_is_no_text_and_files_are_not_read() {
        let with_file = |name: &str, media_type: &str| {
            let artifact = ArtifactRef {
                id: "file-1".to_owned(),
                name: name.to_owned(),
                media_type: media_type.to_owned(),
                size: None,
            };
            Message::new(Role::User, vec![Content::File { artifact }.into()])
        };
        let mut whom = Recipient::of_name("deepseek", "m");
        whom.files = false;
        let mut found = Vec::new();
        conversation(&[with_file("n.txt", "text/plain")], &whom, &mut found);
        assert_eq!(found, [] as [&str; 0]);
        conversation(&[with_file("n.pdf", "application/pdf")], &whom, &mut found);
        assert_eq!(found, ["message 1 has a file"]);
    }

    #[test]
    fn an_id_that_a_wire_does_not_take_is_found() {
        let body = json!({"messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a.b"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a.b"}]},
        ]});
        let found = of_body(Wire::Anthropic, &body);
        assert!(found[0].contains("not legal"), "{found:?}");
    }
}
