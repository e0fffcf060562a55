//! What a conversation is made of, as it is shown: what was said, what was thought, calls with all
//! that belongs to them. Made of a thread's entries; `live.rs` makes the same of a turn's events.

use std::collections::HashMap;

use conjure_core::chat::{
    ArtifactRef, Content, FunctionCallOutput, Message, Meta, OutputPart, Role, Usage,
};
use conjure_core::log::{CallEnd, Entry, EntryBody, NotRun, TableChange, TurnOutcome};
use conjure_core::turn::notice_text;
use conjure_runtime::uploads;
use serde_json::Value;

/// An item of the conversation, and the entry that it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConversationItem {
    /// The entry that it comes from.
    pub(crate) seq: u64,
    /// When that was written, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    pub(crate) content: ItemContent,
}

/// What an item shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemContent {
    /// The person said something.
    Person {
        text: String,
        files: Vec<ArtifactRef>,
    },
    /// The host said something to the model in the person's place.
    Host(String),
    /// The model said something.
    Model(Box<ModelMessage>),
    Call(Box<CallCard>),
    File(ArtifactRef),
    Notice(String),
    Settings(String),
    Tools(TableChange),
    Compacted {
        summary: String,
        /// Whether the model reads it now; `folds::mark_standing` says it.
        is_standing: bool,
    },
    Unfolded,
    End {
        outcome: TurnOutcome,
        usage: Usage,
        stop_reason: Option<String>,
    },
}

/// What the model said in one reply, its calls apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ModelMessage {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) files: Vec<ArtifactRef>,
    /// Work of the provider's own tools.
    pub(crate) server_items: Vec<Value>,
    pub(crate) meta: Meta,
    /// The turn, and which of its replies this is; nothing where the turn begins on an earlier page.
    pub(crate) reply: Option<(String, usize)>,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallProgress {
    /// The model asks for it.
    Announced,
    /// A person is asked.
    Asks {
        reason: String,
    },
    /// Somebody decided, and calls before it are not decided about.
    Decided {
        allowed: bool,
    },
    Runs,
    Over(CallEnd),
}

/// A call, with all that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallCard {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    /// What the model wrote that is no JSON.
    pub(crate) arguments_text: Option<String>,
    pub(crate) backend: Option<String>,
    pub(crate) plugin: Option<String>,
    pub(crate) state: CallProgress,
    /// What it said while it ran.
    pub(crate) live: String,
    /// What the model reads of it.
    pub(crate) output: String,
    pub(crate) is_error: bool,
    pub(crate) reason: Option<NotRun>,
    pub(crate) duration_ms: u64,
    pub(crate) files: Vec<ArtifactRef>,
    /// The entry with its result.
    pub(crate) ended_seq: Option<u64>,
}

impl CallCard {
    pub(crate) fn new(id: &str, name: &str, arguments: Value) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
            arguments_text: None,
            backend: None,
            plugin: None,
            state: CallProgress::Announced,
            live: String::new(),
            output: String::new(),
            is_error: false,
            reason: None,
            duration_ms: 0,
            files: Vec::new(),
            ended_seq: None,
        }
    }

    /// Takes its result in.
    pub(crate) fn end(&mut self, output: &FunctionCallOutput, end: CallEnd) {
        self.state = CallProgress::Over(end);
        self.output = output.joined_text();
        self.is_error = output.is_error;
        for part in &output.output {
            match part {
                OutputPart::Image { artifact } | OutputPart::File { artifact } => {
                    self.add_file(artifact);
                }
                OutputPart::Text { .. } => {}
            }
        }
    }

    /// Nobody runs it any more.
    pub(crate) fn abandon(&mut self) {
        self.state = match &self.state {
            CallProgress::Over(end) => CallProgress::Over(*end),
            CallProgress::Runs => CallProgress::Over(CallEnd::Indeterminate),
            CallProgress::Announced | CallProgress::Asks { .. } | CallProgress::Decided { .. } => {
                CallProgress::Over(CallEnd::Cancelled)
            }
        };
    }

    /// Adds a file, once.
    pub(crate) fn add_file(&mut self, artifact: &ArtifactRef) {
        if !self.files.iter().any(|known| known.id == artifact.id) {
            self.files.push(artifact.clone());
        }
    }
}

/// The pieces that these entries make, which follow one another.
pub(crate) fn items(entries: &[Entry]) -> Vec<ConversationItem> {
    let mut making = ItemBuilder::default();
    for entry in entries {
        making.take(entry);
    }
    making.items
}

#[derive(Default)]
struct ItemBuilder {
    items: Vec<ConversationItem>,
    /// Where each call is.
    calls: HashMap<String, usize>,
    /// The turn, and how many replies there were in it.
    turn: Option<(String, usize)>,
}

impl ItemBuilder {
    fn take(&mut self, entry: &Entry) {
        let shown = match &entry.body {
            EntryBody::Message { message } => return self.message(entry, message),
            EntryBody::CallStarted {
                call_id,
                backend,
                plugin,
            } => {
                if let Some(call) = self.call(call_id) {
                    call.state = CallProgress::Runs;
                    call.backend = Some(backend.clone());
                    call.plugin.clone_from(plugin);
                }
                return;
            }
            EntryBody::CallEnded {
                output,
                end,
                reason,
                duration_ms,
                ..
            } => {
                if self.call(&output.call_id).is_none() {
                    // What asked for it is on an earlier page.
                    self.add_call(entry, CallCard::new(&output.call_id, "call", Value::Null));
                }
                if let Some(call) = self.call(&output.call_id) {
                    call.end(output, *end);
                    call.reason.clone_from(reason);
                    call.duration_ms = *duration_ms;
                    call.ended_seq = Some(entry.seq);
                }
                return;
            }
            // The message that attaches it shows it.
            EntryBody::File { source, .. } if source == uploads::SOURCE => return,
            EntryBody::File {
                artifact, call_id, ..
            } => {
                let call = call_id.as_deref().and_then(|id| self.call(id));
                if let Some(call) = call {
                    return call.add_file(artifact);
                }
                ItemContent::File(artifact.clone())
            }
            EntryBody::TableChanged(change) => ItemContent::Tools(change.clone()),
            EntryBody::SettingsChanged { summary, .. } => ItemContent::Settings(summary.clone()),
            EntryBody::Compacted { summary, .. } => ItemContent::Compacted {
                summary: summary.clone(),
                is_standing: false,
            },
            EntryBody::Unfolded { .. } => ItemContent::Unfolded,
            EntryBody::Notice { text, reason } => {
                ItemContent::Notice(notice_text(text, reason.as_ref()))
            }
            EntryBody::TurnEnded {
                outcome,
                usage,
                stop_reason,
                ..
            } => ItemContent::End {
                outcome: outcome.clone(),
                usage: *usage,
                stop_reason: stop_reason.clone(),
            },
            EntryBody::TurnStarted { turn_id } => {
                self.turn = Some((turn_id.clone(), 0));
                return;
            }
            EntryBody::BackendState { .. } | EntryBody::Spent { .. } => return,
        };
        self.add(entry, shown);
    }

    fn message(&mut self, entry: &Entry, message: &Message) {
        if message.role == Role::Tool {
            return;
        }
        let mut said = ModelMessage {
            meta: message.meta.clone().unwrap_or_default(),
            ..ModelMessage::default()
        };
        let mut calls = Vec::new();
        for part in &message.content {
            match &part.content {
                Content::Text { text } => said.text.push_str(text),
                Content::Reasoning { text } => said.reasoning.push_str(text),
                Content::FunctionCall(call) => {
                    let mut shown =
                        CallCard::new(&call.call_id, &call.name, call.arguments.clone());
                    shown.arguments_text.clone_from(&call.arguments_text);
                    calls.push(shown);
                }
                Content::Image { artifact } | Content::File { artifact } => {
                    said.files.push(artifact.clone());
                }
                Content::ServerItem { item, .. } => said.server_items.push(item.clone()),
                Content::FunctionCallOutput(_) => {}
            }
        }
        match message.role {
            Role::User => {
                let (text, files) = (said.text, said.files);
                self.add(entry, ItemContent::Person { text, files });
            }
            Role::System => self.add(entry, ItemContent::Host(said.text)),
            Role::Assistant | Role::Tool => {
                if let Some((_, replies)) = &mut self.turn {
                    *replies += 1;
                }
                said.reply.clone_from(&self.turn);
                let is_empty = said.text.trim().is_empty()
                    && said.reasoning.trim().is_empty()
                    && said.files.is_empty()
                    && said.server_items.is_empty();
                if !is_empty {
                    self.add(entry, ItemContent::Model(Box::new(said)));
                }
            }
        }
        for call in calls {
            self.add_call(entry, call);
        }
    }

    fn add(&mut self, entry: &Entry, shown: ItemContent) {
        self.items.push(ConversationItem {
            seq: entry.seq,
            at_ms: entry.at_ms,
            content: shown,
        });
    }

    fn add_call(&mut self, entry: &Entry, call: CallCard) {
        self.calls.insert(call.id.clone(), self.items.len());
        self.add(entry, ItemContent::Call(Box::new(call)));
    }

    fn call(&mut self, id: &str) -> Option<&mut CallCard> {
        match &mut self.items.get_mut(*self.calls.get(id)?)?.content {
            ItemContent::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// Like [`items`], for a turn that nobody runs any more: what became of its calls nobody knows.
pub(crate) fn abandoned_items(entries: &[Entry]) -> Vec<ConversationItem> {
    let mut items = items(entries);
    for item in &mut items {
        if let ItemContent::Call(call) = &mut item.content {
            call.abandon();
        }
    }
    items
}

/// The last turn that these entries begin and do not end: where its entries begin among them.
pub(crate) fn open_turn(entries: &[Entry]) -> Option<usize> {
    let begun = entries
        .iter()
        .rposition(|entry| matches!(entry.body, EntryBody::TurnStarted { .. }))?;
    let mut behind = entries.get(begun..)?.iter();
    let is_over = behind.any(|entry| matches!(entry.body, EntryBody::TurnEnded { .. }));
    (!is_over).then_some(begun)
}

#[cfg(test)]
mod tests {
    use conjure_core::log::NoticeReason;

    use super::*;

    #[test]
    fn a_notice_is_shown_in_the_words_of_its_reason_and_else_as_it_was_written() {
        let dropped = NoticeReason::Dropped { messages: 2 };
        for (reason, words) in [
            (Some(dropped), "2 waiting message(s) dropped."),
            (Some(NoticeReason::Other), "as it was written"),
            (None, "as it was written"),
        ] {
            let text = "as it was written".to_owned();
            let entry = Entry {
                seq: 1,
                turn: 1,
                at_ms: 0,
                body: EntryBody::Notice { text, reason },
            };
            let items = items(&[entry]);
            let shown: Vec<&ItemContent> = items.iter().map(|item| &item.content).collect();
            assert_eq!(shown, [&ItemContent::Notice(words.to_owned())]);
        }
    }
}
