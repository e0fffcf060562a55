//! Calls and results: every call has its own, right behind it.
//!
//! Looks at client calls only. A provider's own tools are settled elsewhere.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::chat::{Content, FunctionCallOutput, Message, Part, Role};
use crate::context::notes;

/// Puts the results of each message's calls into one message behind it, in the order of the
/// calls. A result without a call and a second result of one call are left out; a call without a
/// result gets one that says so; an id that is empty or taken is replaced, in the call and in its
/// result.
pub(super) fn pair(messages: Vec<Message>) -> Vec<Message> {
    let mut ids = ConversationIds::of(&messages);
    let mut steps: Vec<PairedMessage> = Vec::with_capacity(messages.len());
    // By the id as it was: the calls that have no result yet, oldest first.
    let mut open: HashMap<String, VecDeque<(usize, usize)>> = HashMap::new();
    for mut message in messages {
        let mut results = Vec::new();
        let mut calls = Vec::new();
        message.content.retain_mut(|part| match &mut part.content {
            Content::FunctionCallOutput(output) => {
                results.push((output.clone(), part.sidecar.take()));
                false
            }
            Content::FunctionCall(call) => {
                let fresh = ids.unique(&call.call_id);
                let old = std::mem::replace(&mut call.call_id, fresh);
                let place = (steps.len(), calls.len());
                open.entry(old).or_default().push_back(place);
                calls.push((call.call_id.clone(), None));
                true
            }
            _ => true,
        });
        for (output, sidecar) in results {
            let waiting = open.get_mut(&output.call_id);
            let Some((step, call)) = waiting.and_then(VecDeque::pop_front) else {
                continue;
            };
            let part = Part {
                content: Content::FunctionCallOutput(output),
                sidecar,
            };
            // A result in the very message of its call belongs to it too.
            let calls = match steps.get_mut(step) {
                Some(step) => &mut step.calls,
                None => &mut calls,
            };
            if let Some((_, result)) = calls.get_mut(call) {
                *result = Some(part);
            }
        }
        if message.role == Role::Tool {
            message.role = Role::User;
        }
        steps.push(PairedMessage { message, calls });
    }
    steps
        .into_iter()
        .flat_map(PairedMessage::into_messages)
        .collect()
}

/// A message, its calls' ids and what is known of their results.
struct PairedMessage {
    message: Message,
    calls: Vec<(String, Option<Part>)>,
}

impl PairedMessage {
    fn into_messages(self) -> impl Iterator<Item = Message> {
        let results: Vec<Part> = self
            .calls
            .into_iter()
            .map(|(call_id, result)| match result {
                Some(mut part) => {
                    if let Content::FunctionCallOutput(output) = &mut part.content {
                        output.call_id = call_id;
                    }
                    part
                }
                None => Content::FunctionCallOutput(FunctionCallOutput::text(
                    call_id,
                    notes::NO_RESULT,
                    true,
                ))
                .into(),
            })
            .collect();
        let results = (!results.is_empty()).then(|| Message::new(Role::Tool, results));
        std::iter::once(self.message).chain(results)
    }
}

/// The ids of a conversation: those that are given out, and those that something had before.
struct ConversationIds {
    assigned: HashSet<String>,
    original: HashSet<String>,
}

impl ConversationIds {
    fn of(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(Message::calls);
        Self {
            assigned: HashSet::new(),
            original: calls.map(|call| call.call_id.clone()).collect(),
        }
    }

    /// The id itself the first time, then others that nothing has.
    fn unique(&mut self, id: &str) -> String {
        let mut unique = id.to_owned();
        if id.is_empty() || self.assigned.contains(id) {
            let stem = if id.is_empty() { "call" } else { id };
            let mut count = 2u64;
            unique = format!("{stem}_{count}");
            while self.original.contains(&unique) || self.assigned.contains(&unique) {
                count += 1;
                unique = format!("{stem}_{count}");
            }
        }
        self.assigned.insert(unique.clone());
        unique
    }
}
