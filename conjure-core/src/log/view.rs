//! What is read out of a log: messages, files, states, usage. Pure functions, all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::{Entry, EntryBody};
use crate::chat::{ArtifactRef, Content, FunctionCallOutput, Message, Part, Role, Usage};

/// The messages of these entries. The results of a step's calls make one tool message behind the
/// assistant's, in the order of the calls, whatever the order in which they came.
pub fn messages(entries: &[Entry]) -> Vec<Message> {
    let mut outputs: HashMap<&str, &FunctionCallOutput> = HashMap::new();
    for entry in entries {
        if let EntryBody::CallEnded { output, .. } = &entry.body {
            outputs.entry(&output.call_id).or_insert(output);
        }
    }
    let mut messages = Vec::new();
    for entry in entries {
        let EntryBody::Message { message } = &entry.body else {
            continue;
        };
        messages.push(message.clone());
        let results: Vec<Part> = message
            .calls()
            .filter_map(|call| outputs.get(call.call_id.as_str()))
            .map(|output| Content::FunctionCallOutput((*output).clone()).into())
            .collect();
        if !results.is_empty() {
            messages.push(Message::new(Role::Tool, results));
        }
    }
    messages
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
