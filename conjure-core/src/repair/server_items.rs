//! Uses and results of a provider's own tools: sent back in pairs.
//!
//! A use without its result can be sent only while the provider still owes it: at the end of a
//! conversation, in a reply that it paused or whose client calls are just being answered. Once the
//! person has spoken again, what is left alone is told as text.

use std::collections::HashMap;

use serde_json::Value;

use super::{Target, is_paused, recast::belongs_to_tool};
use crate::chat::{Content, Message, Part, Role};
use crate::context::notes;

/// Recasts the items that have no partner. True when there were any.
pub(super) fn settle(messages: &mut [Message], target: &Target) -> bool {
    let alone = alone(messages, target);
    for (message, part) in &alone {
        let part = messages
            .get_mut(*message)
            .and_then(|message| message.content.get_mut(*part));
        if let Some(part) = part
            && let Content::ServerItem { provider, item } = &part.content
        {
            *part = Part::text(notes::server_item(provider, item));
        }
    }
    !alone.is_empty()
}

/// The items without a partner, by message and part.
fn alone(messages: &[Message], target: &Target) -> Vec<(usize, usize)> {
    let still_owed = match messages.last() {
        Some(last) if last.role == Role::Tool => true,
        Some(last) if last.role == Role::Assistant => is_paused(last, target),
        _ => false,
    };
    let last_user = messages.iter().rposition(|m| m.role == Role::User);
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
    let owed_from = last_user.map_or(0, |at| at + 1);
    alone.extend(uses.into_values().flatten().filter(|(at, _)| {
        let partial = messages
            .get(*at)
            .and_then(|message| message.meta.as_ref())
            .is_some_and(|meta| meta.partial);
        !still_owed || partial || *at < owed_from
    }));
    alone.sort_unstable();
    alone
}
