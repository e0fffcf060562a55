//! Uses and results of a provider's own tools: sent back in pairs.
//!
//! A use without its result can be sent only while the provider still owes it: at the end of a
//! conversation, in a reply that it paused or whose client calls are just being answered. Once the
//! person has spoken again, what is left alone is told as text.

use std::collections::HashMap;

use serde_json::Value;

use super::{RepairTarget, is_paused, recast::belongs_to_tool};
use crate::chat::{Content, Message, Part, Role};
use crate::context::notes;
use crate::wire_name::Wire;

/// Recasts the items that have no partner. True when there were any.
pub(super) fn recast_unpaired(messages: &mut [Message], target: &RepairTarget) -> bool {
    let unpaired = match target.wire {
        Wire::OpenaiResponses => unanswered(messages),
        Wire::Anthropic | Wire::OpenaiChat | Wire::Gemini => unpaired_items(messages, target),
    };
    for (message, part) in &unpaired {
        let part = messages
            .get_mut(*message)
            .and_then(|message| message.content.get_mut(*part));
        if let Some(part) = part
            && let Content::ServerItem { provider, item } = &part.content
        {
            *part = Part::text(notes::server_item(provider, item));
        }
    }
    !unpaired.is_empty()
}

/// OpenAI's calls that the host was to run and did not, and outputs of calls that are not there.
/// Calls that OpenAI runs itself have no `call_id`, or their output behind them.
fn unanswered(messages: &[Message]) -> Vec<(usize, usize)> {
    let mut open: HashMap<(&str, &str), (usize, usize)> = HashMap::new();
    let mut alone = Vec::new();
    let parts = messages.iter().enumerate().flat_map(|(at, message)| {
        let parts = message.content.iter().enumerate();
        parts.map(move |(part_at, part)| ((at, part_at), part))
    });
    for (place, part) in parts {
        let Content::ServerItem { item, .. } = &part.content else {
            continue;
        };
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        let (Some(kind), Some(id)) = (text("type"), text("call_id")) else {
            continue;
        };
        match kind.strip_suffix("_output") {
            Some(kind) => {
                if open.remove(&(kind, id)).is_none() {
                    alone.push(place);
                }
            }
            None => alone.extend(open.insert((kind, id), place)),
        }
    }
    alone.extend(open.into_values());
    alone.sort_unstable();
    alone
}

/// The items without a partner, by message and part.
fn unpaired_items(messages: &[Message], target: &RepairTarget) -> Vec<(usize, usize)> {
    let still_owed = match messages.last() {
        Some(last) if last.role == Role::Tool => true,
        Some(last) if last.role == Role::Assistant => is_paused(last, target),
        _ => false,
    };
    let mut alone = Vec::new();
    // The uses since the person spoke last, by id; none once their result came.
    let mut uses: HashMap<&str, Option<(usize, usize)>> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        if message.role == Role::User {
            alone.extend(uses.drain().filter_map(|(_, place)| place));
            continue;
        }
        for (part_at, part) in message.content.iter().enumerate() {
            let place = (at, part_at);
            let Content::ServerItem { item, .. } = &part.content else {
                continue;
            };
            if !belongs_to_tool(item) {
                continue;
            }
            let text = |name: &str| item.get(name).and_then(Value::as_str);
            match (text("tool_use_id"), text("id")) {
                (Some(id), _) => match uses.get_mut(id) {
                    Some(open) if open.is_some() => *open = None,
                    _ => alone.push(place),
                },
                (None, Some(id)) if !uses.contains_key(id) => {
                    uses.insert(id, Some(place));
                }
                _ => alone.push(place),
            }
        }
    }
    // What it owes it gives at the beginning of its next reply; later it gives nothing any more.
    let newest = messages.iter().rposition(|m| m.role == Role::Assistant);
    alone.extend(uses.into_values().flatten().filter(|(at, _)| {
        let partial = messages
            .get(*at)
            .and_then(|message| message.meta.as_ref())
            .is_some_and(|meta| meta.partial);
        !still_owed || partial || Some(*at) != newest
    }));
    alone.sort_unstable();
    alone
}
