//! Repair: the one way from a conversation to something that can be sent.
//!
//! Deterministic and idempotent. Removes, adds or recasts only what the target cannot take; what
//! can be sent stays as it is, byte for byte. Changes no log: a conversation that was recast for
//! one model comes back whole for the one that made it.

mod pairs;
mod recast;
mod server_items;
mod thoughts;

use crate::chat::{Message, Role};
use crate::context::notes;
use crate::model_family::model_family;
use crate::wire_name::Wire;

pub(crate) use recast::recast_part;

/// A conversation that has passed the repair.
///
/// What holds for it:
///
/// - It begins with the person and ends with the person, with results, or with a reply that its
///   provider paused and wants back as it is.
/// - Two messages in a row never have the same role, and none has the role `system`.
/// - A message with calls is followed by one message of role `tool` with exactly their results, in
///   the order of the calls. Call ids are unique and not empty. Arguments are objects.
/// - No message is empty, no text is white space only, no failed result says nothing.
/// - Sidecars, reasoning and server items are the target's own, and the uses and results of a
///   provider's own tools are paired.
/// - Reasoning stands where the target's wire wants it: before what it led to, and nowhere else.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sendable(Vec<Message>);

impl Sendable {
    /// The messages.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.0
    }
}

/// The provider, model and wire that a conversation is repaired for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairTarget {
    /// The provider, as sidecars name it.
    pub provider: String,
    /// The model, as the provider names it.
    pub model: String,
    /// The wire that it is spoken to over. Default: that of the provider's name, see
    /// [`Wire::of_provider`].
    pub wire: Wire,
    /// Whether it can look at images. Default: yes.
    pub images: bool,
    /// Whether it can read files that are attached. Default: yes.
    pub files: bool,
}

impl RepairTarget {
    /// A target that can look at images and files.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        let provider = provider.into();
        Self {
            wire: Wire::of_provider(&provider),
            provider,
            model: model.into(),
            images: true,
            files: true,
        }
    }

    /// Sets another wire than that of the provider's name.
    #[must_use]
    pub fn with_wire(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }
}

/// Makes a conversation sendable.
#[must_use]
pub fn repair(messages: Vec<Message>, target: &RepairTarget) -> Sendable {
    let family = model_family(&target.model);
    let shown = messages
        .into_iter()
        .filter(|message| !message.meta.as_ref().is_some_and(|meta| meta.superseded));
    let recast = shown
        .map(|message| recast::recast(message, target, &family))
        .collect();
    let mut messages = merged(pairs::pair(recast));
    // Each round takes something away, so this ends; what is taken away can make neighbours of
    // two messages, and a pair of server items incomplete.
    loop {
        let changed = server_items::recast_unpaired(&mut messages, target);
        if !thoughts::drop_misplaced(&mut messages, target) && !changed {
            break;
        }
        messages = merged(messages);
    }
    if messages
        .first()
        .is_none_or(|first| first.role != Role::User)
    {
        messages.insert(0, Message::user(notes::BEGINNING_MISSING));
    }
    let ends_open = messages
        .last()
        .is_some_and(|last| last.role == Role::Assistant && !is_paused(last, target));
    if ends_open {
        // No provider is asked to go on inside a model's own words: the newer ones refuse.
        messages.push(Message::user(notes::CONTINUE));
    }
    Sendable(messages)
}

/// Whether a reply was paused by this provider, which wants it back as it is.
fn is_paused(message: &Message, target: &RepairTarget) -> bool {
    message.meta.as_ref().is_some_and(|meta| {
        let stop = meta.stop_reason.as_deref();
        meta.provider == target.provider
            && !meta.partial
            && matches!(stop, Some("pause_turn" | "compaction"))
    })
}

/// Leaves empty messages out and joins neighbours of one role.
fn merged(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.content.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some(last) if last.role == message.role => {
                last.content.append(&mut message.content);
                last.meta = message.meta;
            }
            _ => out.push(message),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
