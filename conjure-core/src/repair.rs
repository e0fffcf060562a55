//! Repair: the one way from a conversation to something that can be sent.

use crate::chat::Message;

/// A conversation that has passed the repair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sendable(Vec<Message>);

impl Sendable {
    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.0
    }
}

/// Makes a conversation sendable.
pub fn repair(messages: Vec<Message>) -> Sendable {
    Sendable(messages)
}
