//! What is read out of a log: messages, files, states, usage. Pure functions, all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::{Entry, EntryBody};
use crate::chat::{
    ArtifactRef, Content, FunctionCallOutput, Message, OutputPart, Part, Role, Usage,
};

/// The messages of these entries. The results of a step's calls make one tool message behind the
/// assistant's, in the order of the calls, whatever the order in which they came.
pub fn messages(entries: &[Entry]) -> Vec<Message> {
    noted_messages(entries, |_| None)
}

/// Like [`messages`], with notes: what `note` says beside an entry stands behind the words of the
/// person, or in the last result, that came before it. Where the model spoke last, the note waits for
/// what comes next. So nothing is put between a reply and what belongs to it, and what was sent before
/// stays as it was.
pub fn noted_messages(
    entries: &[Entry],
    note: impl Fn(&EntryBody) -> Option<String>,
) -> Vec<Message> {
    let outputs = first_outputs(entries);
    let mut messages = Vec::new();
    let (mut waiting, mut place) = (Vec::new(), None);
    for entry in entries {
        waiting.extend(note(&entry.body));
        if let EntryBody::Message { message } = &entry.body {
            messages.push(message.clone());
            let results: Vec<Part> = message
                .calls()
                .filter_map(|call| outputs.get(call.call_id.as_str()))
                .map(|output| Content::FunctionCallOutput((*output).clone()).into())
                .collect();
            let has_results = !results.is_empty();
            if has_results {
                messages.push(Message::new(Role::Tool, results));
            }
            let newest = messages.len().checked_sub(1);
            place = match message.role {
                // No model reads it, nor what came of it.
                _ if is_superseded(message) => place,
                Role::User => newest,
                Role::Assistant => newest.filter(|_| has_results),
                Role::System | Role::Tool => place,
            };
        }
        if let Some(message) = place.and_then(|at| messages.get_mut(at)) {
            waiting.drain(..).for_each(|text| add_note(message, text));
        }
    }
    messages
}

/// The result of each call; its first, where a log has several.
fn first_outputs(entries: &[Entry]) -> HashMap<&str, &FunctionCallOutput> {
    let mut outputs = HashMap::new();
    for entry in entries {
        if let EntryBody::CallEnded { output, .. } = &entry.body {
            outputs.entry(output.call_id.as_str()).or_insert(output);
        }
    }
    outputs
}

fn is_superseded(message: &Message) -> bool {
    message.meta.as_ref().is_some_and(|meta| meta.superseded)
}

/// Puts a note behind what a message says; into its last result, where it has results.
fn add_note(message: &mut Message, text: String) {
    let last = message.content.last_mut();
    if let Some(Content::FunctionCallOutput(output)) = last.map(|part| &mut part.content) {
        output.output.push(OutputPart::Text { text });
        return;
    }
    message.content.push(Part::text(text));
}

/// The files that were made, in order, with the backend instance that made each.
pub fn files(entries: &[Entry]) -> Vec<(&ArtifactRef, &str)> {
    entries
        .iter()
        .filter_map(|entry| match &entry.body {
            EntryBody::File {
                artifact, source, ..
            } => Some((artifact, source.as_str())),
            _ => None,
        })
        .collect()
}

/// The newest state of each backend.
pub fn last_backend_states(entries: &[Entry]) -> BTreeMap<&str, &Value> {
    entries
        .iter()
        .filter_map(|entry| match &entry.body {
            EntryBody::BackendState { backend, state } => Some((backend.as_str(), state)),
            _ => None,
        })
        .collect()
}

/// Every call id of the thread.
pub fn call_ids(entries: &[Entry]) -> impl Iterator<Item = &str> {
    entries.iter().flat_map(|entry| match &entry.body {
        EntryBody::Message { message } => message
            .calls()
            .map(|call| call.call_id.as_str())
            .collect::<Vec<_>>(),
        _ => Vec::new(),
    })
}

/// Public names of the tools that the thread once had and has no more.
pub fn removed_tools(entries: &[Entry]) -> BTreeSet<String> {
    let mut removed = BTreeSet::new();
    for entry in entries {
        if let EntryBody::TableChanged(change) = &entry.body {
            removed.extend(change.removed.iter().cloned());
            for name in &change.added {
                removed.remove(name);
            }
        }
    }
    removed
}

/// The version in which each plugin ran that a call of the thread needed, by its name: of its newest
/// call, or of a change since.
pub fn plugin_versions(entries: &[Entry]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for entry in entries {
        match &entry.body {
            EntryBody::CallStarted {
                plugin: Some(plugin),
                ..
            } => {
                if let Some((name, version)) = plugin.rsplit_once(' ') {
                    versions.insert(name.to_owned(), version.to_owned());
                }
            }
            EntryBody::TableChanged(change) => {
                for change in &change.plugins {
                    if let Some(version) = versions.get_mut(&change.plugin) {
                        version.clone_from(&change.to);
                    }
                }
            }
            _ => {}
        }
    }
    versions
}

/// Tokens of all rounds of these entries, also of those that no message shows.
pub fn turn_usage(entries: &[Entry]) -> Usage {
    let mut sum = Usage::default();
    for entry in entries {
        if let Some(meta) = entry.body.meta() {
            sum += meta.usage;
        }
    }
    sum
}
