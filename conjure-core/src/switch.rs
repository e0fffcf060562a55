//! What a switch of provider or model would change, told before anything is sent.
//!
//! Repairs and encodes the conversation as a request would be, and compares. Changes nothing: the
//! log keeps what one provider cannot take for the one that can.

mod description;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::chat::{Content, FunctionCallOutput, Message, OutputPart, Part, Role};
use crate::repair::{self, RepairTarget, repair};
use crate::request::ModelRequest;
use crate::request::request_tokens;
use crate::wire::{Endpoint, OmittedTool, model_family};

pub use description::describe;

/// What would be sent otherwise to a target than the conversation has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Parts that would be left out, told as text, or sent without what their maker signed; in the
    /// order of the conversation.
    pub parts: Vec<PartChange>,
    /// Calls that would have another id on the wire. The log keeps the ids.
    pub ids: Vec<RenamedId>,
    /// Calls whose result is not known: each would get a result that says so.
    pub results_added: Vec<String>,
    /// Results of calls that are not there, by call id: each would be left out.
    pub results_dropped: Vec<String>,
    /// What the target cannot look at and the conversation has.
    pub unsupported: Vec<Modality>,
    /// Tools that would be left out, with reasons.
    pub tools_quarantined: Vec<OmittedTool>,
    /// What else the wire would recast, in sentences.
    pub notes: Vec<String>,
    /// About how many tokens of input the request would be; see
    /// [`request_tokens`] for the error.
    pub tokens: u64,
    /// Whether the request would find nothing in the prompt cache that the last reply was made
    /// with, and why.
    pub cache: CacheFate,
}

/// What would become of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartChange {
    /// The message's place in the conversation, from 0.
    pub message: usize,
    /// The part's place in its message, from 0.
    pub part: usize,
    /// The part's kind: text, image, call and so on.
    pub kind: PartKind,
    /// What would become of the part.
    pub fate: Fate,
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A text.
    Text,
    /// A thought.
    Reasoning,
    /// A call.
    FunctionCall,
    /// A result.
    FunctionCallOutput,
    /// An image.
    Image,
    /// A file.
    File,
    /// An item of a provider's own tools.
    ServerItem,
}

/// What would become of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The part would not be sent.
    Dropped,
    /// The part would be sent in another form, mostly as a text that says what it was.
    Recast,
    /// The part would be sent without what its maker signed, which only the maker can read.
    Unsigned,
}

/// A call that would have another id on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenamedId {
    /// The id in the conversation.
    pub from: String,
    /// The id that the provider would see.
    pub to: String,
}

/// What a part shows, besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Modality {
    /// Images.
    Images,
    /// Files.
    Files,
}

/// What would become of the prompt cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "cache", rename_all = "snake_case")]
pub enum CacheFate {
    /// No model has answered yet: there is nothing to lose.
    #[default]
    None,
    /// Provider and model stay the same: what the model has read before may be in its cache.
    Kept,
    /// Another model reads everything anew.
    Lost {
        /// Input tokens of the last reply, all of which are read again at the full price.
        tokens: u64,
        /// Provider and model that answered last, as `provider/model`.
        last: String,
    },
}

impl SwitchReport {
    /// Whether the conversation itself would be sent as it is.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.parts.is_empty()
            && self.ids.is_empty()
            && self.results_added.is_empty()
            && self.results_dropped.is_empty()
    }
}

/// Looks at what sending a conversation to a target would change.
///
/// `like` holds all of the request but the conversation: instructions, tools, attachments, limits.
/// [`ModelRequest::empty`] where there are none. Its provider, model and messages are not looked at.
#[must_use]
pub fn check(
    messages: &[Message],
    target: &RepairTarget,
    endpoint: &Endpoint,
    like: ModelRequest,
) -> SwitchReport {
    let shown: Vec<(usize, &Message)> = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| !message.meta.as_ref().is_some_and(|meta| meta.superseded))
        .collect();
    let sendable = repair(messages.to_vec(), target);
    let ids = renamed_ids(&shown, sendable.messages(), target, endpoint);
    let mut parts = part_changes(&shown, target);
    add_context_changes(&shown, sendable.messages(), &mut parts);
    let request = ModelRequest {
        provider: target.provider.clone(),
        model: target.model.clone(),
        messages: sendable,
        ..like
    };
    let encoded = target.wire.encode(&request, endpoint);
    let (results_added, results_dropped) = unmatched_ids(&shown);
    SwitchReport {
        parts,
        ids,
        results_added,
        results_dropped,
        unsupported: unsupported(&shown, target),
        tools_quarantined: encoded.quarantined,
        notes: encoded.notes,
        tokens: request_tokens(target.wire, &encoded.body),
        cache: cache_fate(&shown, target),
    }
}

/// What the repair does to each part for itself.
fn part_changes(shown: &[(usize, &Message)], target: &RepairTarget) -> Vec<PartChange> {
    let family = model_family(&target.model);
    let mut changes = Vec::new();
    for (at, message) in shown {
        for (part_at, part) in message.content.iter().enumerate() {
            let sent = repair::recast_part(part.clone(), message.role, target, &family);
            let fate = match sent {
                None => Fate::Dropped,
                Some(sent) if sent.content != part.content => Fate::Recast,
                Some(sent) if sent.sidecar != part.sidecar => Fate::Unsigned,
                Some(_) => continue,
            };
            changes.push(PartChange {
                message: *at,
                part: part_at,
                kind: kind(part),
                fate,
            });
        }
    }
    changes
}

/// What the repair does to thoughts and items because of what stands around them: those that are
/// not in what is sent, and are not told of yet.
fn add_context_changes(
    shown: &[(usize, &Message)],
    sent: &[Message],
    changes: &mut Vec<PartChange>,
) {
    let reported: HashSet<(usize, usize)> = changes.iter().map(|c| (c.message, c.part)).collect();
    let mut remaining: Vec<&Part> = sent.iter().flat_map(|message| &message.content).collect();
    for (at, message) in shown {
        for (part_at, part) in message.content.iter().enumerate() {
            let fate = match part.content {
                Content::Reasoning { .. } => Fate::Dropped,
                Content::ServerItem { .. } => Fate::Recast,
                _ => continue,
            };
            if reported.contains(&(*at, part_at)) {
                continue;
            }
            match remaining.iter().position(|other| *other == part) {
                Some(found) => {
                    remaining.swap_remove(found);
                }
                None => changes.push(PartChange {
                    message: *at,
                    part: part_at,
                    kind: kind(part),
                    fate,
                }),
            }
        }
    }
    changes.sort_by_key(|change| (change.message, change.part));
}

fn kind(part: &Part) -> PartKind {
    match &part.content {
        Content::Text { .. } => PartKind::Text,
        Content::Reasoning { .. } => PartKind::Reasoning,
        Content::FunctionCall(_) => PartKind::FunctionCall,
        Content::FunctionCallOutput(_) => PartKind::FunctionCallOutput,
        Content::Image { .. } => PartKind::Image,
        Content::File { .. } => PartKind::File,
        Content::ServerItem { .. } => PartKind::ServerItem,
    }
}

/// The calls of a conversation and of what is sent are the same, in the same order.
fn renamed_ids(
    shown: &[(usize, &Message)],
    sent: &[Message],
    target: &RepairTarget,
    endpoint: &Endpoint,
) -> Vec<RenamedId> {
    let by_model = shown.iter().filter(|(_, m)| m.role == Role::Assistant);
    let before = by_model.flat_map(|(_, message)| message.calls());
    let after = sent.iter().flat_map(Message::calls);
    let pairs = before.zip(after).map(|(before, after)| RenamedId {
        from: before.call_id.clone(),
        to: target.wire.call_id(endpoint, &after.call_id).into_owned(),
    });
    pairs.filter(|pair| pair.from != pair.to).collect()
}

/// Calls without a result, and results without a call.
fn unmatched_ids(shown: &[(usize, &Message)]) -> (Vec<String>, Vec<String>) {
    let mut open: Vec<&str> = Vec::new();
    let mut orphans = Vec::new();
    for (_, message) in shown {
        for part in &message.content {
            match &part.content {
                Content::FunctionCall(call) if message.role == Role::Assistant => {
                    open.push(&call.call_id);
                }
                Content::FunctionCallOutput(FunctionCallOutput { call_id, .. }) => {
                    match open.iter().position(|id| id == call_id) {
                        Some(at) => {
                            open.remove(at);
                        }
                        None => orphans.push(call_id.clone()),
                    }
                }
                _ => {}
            }
        }
    }
    (open.into_iter().map(str::to_owned).collect(), orphans)
}

fn unsupported(shown: &[(usize, &Message)], target: &RepairTarget) -> Vec<Modality> {
    let has = |wanted: Modality| {
        let parts = shown.iter().flat_map(|(_, message)| &message.content);
        parts.into_iter().any(|part| match &part.content {
            Content::Image { .. } => wanted == Modality::Images,
            Content::File { artifact } => wanted == Modality::Files && !artifact.is_text(),
            Content::FunctionCallOutput(output) => output.output.iter().any(|part| match part {
                OutputPart::Image { .. } => wanted == Modality::Images,
                OutputPart::File { .. } => wanted == Modality::Files,
                OutputPart::Text { .. } => false,
            }),
            _ => false,
        })
    };
    [
        (Modality::Images, target.images),
        (Modality::Files, target.files),
    ]
    .into_iter()
    .filter(|(modality, taken)| !taken && has(*modality))
    .map(|(modality, _)| modality)
    .collect()
}

fn cache_fate(shown: &[(usize, &Message)], target: &RepairTarget) -> CacheFate {
    let last = shown.iter().rev().find_map(|(_, message)| {
        let meta = message.meta.as_ref();
        meta.filter(|_| message.role == Role::Assistant)
    });
    match last {
        None => CacheFate::None,
        Some(meta) if meta.provider == target.provider && meta.model == target.model => {
            CacheFate::Kept
        }
        Some(meta) => CacheFate::Lost {
            tokens: meta.usage.prompt_tokens(),
            last: format!("{}/{}", meta.provider, meta.model),
        },
    }
}

#[cfg(test)]
mod tests;
