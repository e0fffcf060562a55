//! Thoughts: sent back where the target's wire wants them, and nowhere else.
//!
//! Every wire that takes thoughts ties them to what they led to. A thought that has lost that is no
//! use, and some providers reject it.

use serde_json::Value;

use super::{RepairTarget, is_paused};
use crate::chat::{Content, Message, Part, Role};
use crate::wire_name::Wire;

/// Leaves out the thoughts that cannot stand where they are. True when there were any.
pub(super) fn drop_misplaced(messages: &mut [Message], target: &RepairTarget) -> bool {
    let last = messages.len().saturating_sub(1);
    let mut changed = false;
    for (at, message) in messages.iter_mut().enumerate() {
        if message.role != Role::Assistant || (at == last && is_paused(message, target)) {
            continue;
        }
        let before = message.content.len();
        match target.wire {
            Wire::Anthropic | Wire::OpenaiChat => drop_trailing(&mut message.content, |_| true),
            Wire::Gemini => {
                // A signature may come behind everything else, on a part without text.
                drop_trailing(&mut message.content, |part| {
                    data(part, "thoughtSignature").is_none()
                });
                if message.content.iter().all(is_thought) {
                    message.content.clear();
                }
            }
            Wire::OpenaiResponses => drop_unfollowed(&mut message.content),
        }
        changed |= message.content.len() != before;
    }
    changed
}

fn drop_trailing(parts: &mut Vec<Part>, goes: impl Fn(&Part) -> bool) {
    while parts
        .last()
        .is_some_and(|part| is_thought(part) && goes(part))
    {
        parts.pop();
    }
}

/// OpenAI takes a thought only with its proof, and right in front of the item that it led to.
fn drop_unfollowed(parts: &mut Vec<Part>) {
    let mut keep = vec![true; parts.len()];
    let mut next: Option<&Part> = None;
    for (part, keep) in parts.iter().zip(&mut keep).rev() {
        if is_thought(part) {
            let id = data(part, "id");
            let has_proof = data(part, "encrypted_content").is_some_and(Value::is_string);
            let follows = next.is_some_and(|next| {
                is_thought(next) || (id.is_some() && data(next, "after") == id)
            });
            *keep = has_proof && follows;
            if !*keep {
                // What is in front of it is not followed by its item either.
                continue;
            }
        }
        next = Some(part);
    }
    let mut keep = keep.into_iter();
    parts.retain(|_| keep.next().unwrap_or(true));
}

fn is_thought(part: &Part) -> bool {
    matches!(part.content, Content::Reasoning { .. })
}

fn data<'a>(part: &'a Part, name: &str) -> Option<&'a Value> {
    part.sidecar.as_ref()?.data.get(name)
}
