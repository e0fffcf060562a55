//! From a thread's log to a cassette.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::cassette::{CallOf, Cassette, CassetteStep, Judged, VERSION};
use super::drive::{Fact, drive};
use super::exchange::exchange;
use super::lookahead::has_answer_form;
use super::old_sentences::with_reasons;
use super::setup::ReplaySetup;
use crate::chat::{Content, FunctionCall, OutputPart};
use crate::log::{Entry, EntryBody, messages};

/// Records a thread. `hashes` are the SHA-256 of its files by their handles, where they are at
/// hand. The same input gives the same cassette.
#[must_use]
pub fn record(
    thread: &str,
    entries: &[Entry],
    setup: ReplaySetup,
    hashes: &HashMap<String, String>,
) -> Cassette {
    let entries = &with_reasons(entries.to_vec());
    let mut steps = steps(entries, hashes);
    let tables = setup.tables(entries);
    let mut unreplayed = 0;
    drive(&setup, entries, &tables, &mut |fact| {
        match fact {
            Fact::Requested { at, request } => {
                let meta = entries.get(at).and_then(|entry| entry.body.meta());
                let (provider, model) = request.settings.provider_and_model(meta);
                let whom = setup.recipient(&provider, &model);
                if let Some(step) = steps.get_mut(at) {
                    step.exchange = Some(exchange(&request, entries, &whom));
                }
            }
            Fact::Judged { at, verdicts } => {
                if let Some(step) = steps.get_mut(at) {
                    step.judged = judged_calls(verdicts);
                }
            }
            Fact::Mismatch { at, stuck } => {
                unreplayed += 1;
                if let Some(step) = steps.get_mut(at) {
                    step.unreplayed = Some(stuck.reason);
                }
            }
        }
        true
    });
    let mut notes = notes(entries, &setup);
    for (table, unknown) in &tables {
        if !unknown.is_empty() {
            notes.push(format!(
                "The tools of table {} that are not there any more are not told to the model: {}.",
                table.version(),
                unknown.join(", ")
            ));
        }
    }
    if unreplayed > 0 {
        notes.push(format!(
            "{unreplayed} place(s) of the thread cannot be driven through the turn machine; the \
             step where each begins says why."
        ));
    }
    Cassette {
        cassette: VERSION,
        conjure: env!("CARGO_PKG_VERSION").to_owned(),
        thread: thread.to_owned(),
        setup,
        steps,
        notes,
    }
}

pub(super) fn judged_calls(
    verdicts: impl IntoIterator<Item = (String, crate::turn::CallVerdict)>,
) -> Vec<Judged> {
    let of_call = |(call_id, verdict)| Judged { call_id, verdict };
    verdicts.into_iter().map(of_call).collect()
}

fn steps(entries: &[Entry], hashes: &HashMap<String, String>) -> Vec<CassetteStep> {
    let mut calls: HashMap<&str, &FunctionCall> = HashMap::new();
    let mut steps = Vec::with_capacity(entries.len());
    for entry in entries {
        if let EntryBody::Message { message } = &entry.body {
            calls.extend(message.calls().map(|call| (call.call_id.as_str(), call)));
        }
        let call = match &entry.body {
            EntryBody::CallEnded { output, .. } => {
                calls.get(output.call_id.as_str()).map(|call| call_of(call))
            }
            _ => None,
        };
        let mut body = entry.body.clone();
        let mut sha256 = None;
        if let EntryBody::File {
            artifact,
            place,
            remote,
            holder,
            ..
        } = &mut body
        {
            // Where a file was concerns the machine that it was on.
            (*place, *remote, *holder) = (None, None, None);
            sha256 = hashes.get(&artifact.id).cloned();
        }
        if let EntryBody::BackendState { state, .. } = &mut body {
            // A backend's own, which may open something of its: a session, a container.
            *state = Value::Null;
        }
        steps.push(CassetteStep {
            seq: entry.seq,
            turn: entry.turn,
            exchange: None,
            judged: Vec::new(),
            call,
            sha256,
            unreplayed: None,
            body,
        });
    }
    steps
}

pub(super) fn call_of(call: &FunctionCall) -> CallOf {
    let text = match &call.arguments_text {
        Some(text) => text.clone(),
        None => call.arguments.to_string(),
    };
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(hash, "{byte:02x}");
    }
    CallOf {
        name: call.name.clone(),
        arguments_sha256: hash,
    }
}

/// What a request had besides what is compiled again.
fn notes(entries: &[Entry], setup: &ReplaySetup) -> Vec<String> {
    let mut notes = Vec::new();
    let changed: BTreeSet<&str> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            EntryBody::TableChanged(change) => Some(&change.changed),
            _ => None,
        })
        .flatten()
        .map(String::as_str)
        .collect();
    if !changed.is_empty() {
        let names: Vec<&str> = changed.into_iter().collect();
        notes.push(format!(
            "Tools that changed on the way are told as they are now: {}.",
            names.join(", ")
        ));
    }
    let unknown: BTreeSet<String> = setup
        .requested_models(entries)
        .into_iter()
        .filter(|(provider, model)| {
            let known =
                |whom: &&super::Recipient| whom.provider == *provider && whom.model == *model;
            setup.recipients.iter().find(known).is_none()
        })
        .map(|(provider, model)| format!("{provider}/{model}"))
        .collect();
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.into_iter().collect();
        notes.push(format!(
            "How these are spoken to is not known, so it is what their names imply: {}.",
            names.join(", ")
        ));
    }
    if has_answer_form(entries) {
        notes.push(
            "Answers had to fit a schema. No entry has it, so requests are without it.".to_owned(),
        );
    }
    let (mut looks, mut hosted) = (false, false);
    for message in messages(entries) {
        for part in &message.content {
            match &part.content {
                Content::Image { .. } | Content::File { .. } => looks = true,
                Content::ServerItem { .. } => hosted = true,
                Content::FunctionCallOutput(output) => {
                    let text = |part: &OutputPart| matches!(part, OutputPart::Text { .. });
                    looks |= !output.output.iter().all(text);
                }
                _ => {}
            }
        }
    }
    if looks {
        notes
            .push("Pictures and files are named in requests; their bytes are not here.".to_owned());
    }
    if hosted {
        notes.push(
            "What backends add to requests, such as a provider's own tools, is not here."
                .to_owned(),
        );
    }
    notes
}
