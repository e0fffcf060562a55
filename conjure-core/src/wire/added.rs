//! Where a conversation holds what backends add to its messages.
//!
//! What belongs to a call stands behind that call's result in every request, so that a longer
//! conversation begins like the shorter one and the provider's cache finds it again.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::chat::{Content, Message, Role};
use crate::request::ProviderFragments;

/// Parts to put behind a message's own, by the message's index.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AddedParts<'a>(BTreeMap<usize, Vec<&'a Value>>);

impl<'a> AddedParts<'a> {
    /// Finds the place of each part. `holds` says whether a message of results may hold anything
    /// else; what it may not hold waits for the next message that may.
    pub(super) fn for_messages(
        messages: &'a [Message],
        contribution: &'a ProviderFragments,
        holds: impl Fn(usize) -> bool,
    ) -> Self {
        let mut added = Self::default();
        let content = &contribution.call_content;
        let is_user = |message: &Message| message.role == Role::User;
        if !content.is_empty() {
            let shown: HashSet<&str> = messages.iter().flat_map(results).collect();
            let hidden = content
                .iter()
                .filter(|(call, _)| !shown.contains(call.as_str()));
            let first = messages.iter().position(is_user);
            added.insert(first, hidden.flat_map(|(_, parts)| parts));
            let mut waiting: Vec<&Value> = Vec::new();
            for (at, message) in messages.iter().enumerate() {
                let parts = results(message).filter_map(|call| content.get(call));
                waiting.extend(parts.flatten());
                if is_user(message) || (message.role == Role::Tool && holds(at)) {
                    added.insert(Some(at), waiting.drain(..));
                }
            }
        }
        let newest = messages.iter().rposition(is_user);
        added.insert(newest, &contribution.user_content);
        added
    }

    /// What stands behind the parts of this message.
    pub(super) fn after_message(&self, message: usize) -> impl Iterator<Item = Value> {
        self.0.get(&message).into_iter().flatten().copied().cloned()
    }

    fn insert(&mut self, at: Option<usize>, parts: impl IntoIterator<Item = &'a Value>) {
        let mut parts = parts.into_iter().peekable();
        if let Some(at) = at
            && parts.peek().is_some()
        {
            self.0.entry(at).or_default().extend(parts);
        }
    }
}

/// The ids of the calls whose results a message holds.
fn results(message: &Message) -> impl Iterator<Item = &str> {
    message
        .content
        .iter()
        .filter_map(|part| match &part.content {
            Content::FunctionCallOutput(output) => Some(output.call_id.as_str()),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{FunctionCallOutput, Part};

    fn conversation() -> Vec<Message> {
        let result = |id: &str| -> Part {
            Content::FunctionCallOutput(FunctionCallOutput::text(id, "r", false)).into()
        };
        vec![
            Message::user("q"),
            Message::assistant("calls"),
            Message::new(Role::Tool, vec![result("b"), result("a")]),
            Message::assistant("done"),
            Message::user("and now?"),
        ]
    }

    fn contribution() -> ProviderFragments {
        ProviderFragments {
            call_content: ["a", "b", "folded"]
                .map(|call| (call.to_owned(), vec![json!(call)]))
                .into(),
            user_content: vec![json!("newest")],
            ..ProviderFragments::default()
        }
    }

    fn places(messages: &[Message], holds: bool) -> Vec<Vec<Value>> {
        let contribution = contribution();
        let added = AddedParts::for_messages(messages, &contribution, |_| holds);
        (0..messages.len())
            .map(|at| added.after_message(at).collect())
            .collect()
    }

    #[test]
    fn what_belongs_to_a_call_stands_behind_its_result() {
        let none = Vec::<Value>::new;
        assert_eq!(
            places(&conversation(), true),
            [
                vec![json!("folded")],
                none(),
                vec![json!("b"), json!("a")],
                none(),
                vec![json!("newest")],
            ]
        );
    }

    #[test]
    fn what_a_message_of_results_may_not_hold_waits_for_the_next_message() {
        let all = conversation();
        let (short, long) = (places(&all[..3], false), places(&all, false));
        assert_eq!(short[0], [json!("folded"), json!("newest")]);
        assert_eq!(short[2], Vec::<Value>::new());
        assert_eq!(long[2], Vec::<Value>::new());
        assert_eq!(long[4], [json!("b"), json!("a"), json!("newest")]);
    }
}
