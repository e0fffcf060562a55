//! Where a request says that its prefix is worth keeping.
//!
//! At most four marks a request: on the last tool of the routing table, the last system block, the
//! newest message and the one that was newest before, so that each request finds what the one
//! before it wrote.

use serde_json::{Map, Value, json};

/// The most marks that a request may have.
const MAX_MARKS: usize = 4;

/// Marks the body; `own_tools` is how many tools at the front are the routing table's.
pub(super) fn mark(body: &mut Map<String, Value>, own_tools: usize) {
    let mut left = MAX_MARKS.saturating_sub(count_fields(body, 0));
    let mut spend = |block: Option<&mut Value>| {
        let marked = left > 0 && block.is_some_and(mark_block);
        if marked {
            left -= 1;
        }
        marked
    };
    if let Some(Value::Array(messages)) = body.get_mut("messages") {
        let mut marked = 0;
        for message in messages.iter_mut().rev() {
            let is_user = message.get("role").is_some_and(|role| role == "user");
            if is_user && marked < 2 {
                let content = message.get_mut("content").and_then(Value::as_array_mut);
                let blocks = content.into_iter().flatten();
                marked += usize::from(spend(blocks.rev().find(|block| takes_mark(block))));
            }
        }
    }
    if let Some(Value::Array(system)) = body.get_mut("system") {
        spend(system.last_mut());
    }
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        spend(
            own_tools
                .checked_sub(1)
                .and_then(|last| tools.get_mut(last)),
        );
    }
}

/// Whether a message's block is of a kind that surely takes a mark.
fn takes_mark(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str);
    matches!(kind, Some("text" | "tool_result" | "image" | "document"))
}

/// Marks a block, unless it is marked already.
fn mark_block(block: &mut Value) -> bool {
    let fields = block.as_object_mut();
    let Some(fields) = fields.filter(|fields| !fields.contains_key("cache_control")) else {
        return false;
    };
    fields.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    true
}

/// How many marks a backend's contribution has brought along. Only where the API looks for them:
/// a tool's arguments may have a field of that name.
fn count(value: &Value, depth: usize) -> usize {
    if depth > 4 {
        return 0;
    }
    match value {
        Value::Array(items) => items.iter().map(|item| count(item, depth + 1)).sum(),
        Value::Object(fields) => count_fields(fields, depth),
        _ => 0,
    }
}

fn count_fields(fields: &Map<String, Value>, depth: usize) -> usize {
    let counts = fields.iter().map(|(name, value)| match name.as_str() {
        "cache_control" => 1,
        "system" | "tools" | "messages" | "content" => count(value, depth + 1),
        _ => 0,
    });
    counts.sum()
}
