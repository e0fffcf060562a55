//! The beginning of a request stays what it was, on every wire, until a declared cause changes it.
//!
//! A provider's prompt cache knows a request by its first bytes: instructions and tools that are
//! written otherwise, for whatever reason, are paid for anew.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CompileSettings, compile};
use crate::chat::{Content, FunctionCall, FunctionCallOutput, Message, Role};
use crate::log::{
    CallEnd, Entry, EntryBody, NoticeReason, PluginChange, StateFate, StateHandover, StateMove,
    TableChange,
};
use crate::repair::RepairTarget;
use crate::routing::{Catalog, CatalogTool, EffectLevel, Naming, Prefix, RoutingTable};
use crate::wire::{Endpoint, Wire};

/// The fields that hold instructions and tools.
const FIXED: [&str; 7] = [
    "system",
    "instructions",
    "systemInstruction",
    "tools",
    "tool_choice",
    "toolConfig",
    "reasoning",
];

/// Rounds of a thread: questions, calls with results, answers, a failure.
const ROUNDS: u64 = 6;

fn table(version: u64, reversed: bool, description: &str) -> RoutingTable {
    let tool = |name: &str| {
        let mut tool = CatalogTool::new(name, "skill.execute", EffectLevel::Write);
        tool.description = description.to_owned();
        tool.input_schema = json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}},
            "required": ["path"]
        });
        Arc::new(tool)
    };
    let mut catalogs: Vec<Catalog> = ["local", "native"]
        .map(|backend| Catalog {
            backend: backend.to_owned(),
            kind: backend.to_owned(),
            naming: Prefix::Backend,
            tools: vec![tool("look"), tool("count")],
        })
        .into();
    if reversed {
        catalogs
            .iter_mut()
            .for_each(|catalog| catalog.tools.reverse());
    }
    RoutingTable::build(version, &catalogs, &Naming::default()).unwrap()
}

fn thread() -> Vec<Entry> {
    let said = |message| EntryBody::Message { message };
    let mut bodies = Vec::new();
    for round in 1..=ROUNDS {
        let call_id = format!("call_{round}");
        let call = Content::FunctionCall(FunctionCall {
            call_id: call_id.clone(),
            name: "local_look".to_owned(),
            arguments: json!({"path": format!("{round}.txt")}),
            arguments_text: None,
        });
        bodies.push(said(Message::user(format!("Look at {round}."))));
        bodies.push(said(Message::new(Role::Assistant, vec![call.into()])));
        bodies.push(EntryBody::CallEnded {
            output: FunctionCallOutput::text(call_id, "r", round % 2 == 0),
            end: CallEnd::Done,
            reason: None,
            duration_ms: round,
            meta: None,
        });
        bodies.push(said(Message::assistant(format!("It says {round}."))));
    }
    (1..)
        .zip(bodies)
        .map(|(seq, body)| Entry {
            seq,
            turn: seq / 4,
            at_ms: 1_000 * i64::try_from(seq).unwrap(),
            body,
        })
        .collect()
}

fn settings(wire: Wire) -> CompileSettings {
    CompileSettings {
        persona: Some("You look at files.".to_owned()),
        working_dir: Some("/work".to_owned()),
        notes: vec!["The local environment is Linux.".to_owned()],
        ..CompileSettings::new(RepairTarget::new("p", "m").with_wire(wire))
    }
}

/// The bytes of the fixed fields, in the order in which they stand in the body. Chat Completions
/// has its instructions in the first message.
fn fixed(
    wire: Wire,
    entries: &[Entry],
    table: &RoutingTable,
    settings: &CompileSettings,
) -> String {
    let request = compile(entries, table, settings);
    let body = wire.encode(&request, &Endpoint::new("p")).body;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let fields = body.as_object().unwrap().iter();
    let mut out: String = fields
        .filter(|(name, _)| FIXED.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let first = &body["messages"][0];
    if matches!(first["role"].as_str(), Some("system" | "developer")) {
        out.push_str(&first.to_string());
    }
    out
}

#[test]
fn instructions_and_tools_are_the_same_bytes_from_call_to_call_on_every_wire() {
    let entries = thread();
    let first = table(1, false, "Looks.");
    for wire in Wire::ALL {
        let settings = settings(wire);
        let before = fixed(wire, &entries[..1], &first, &settings);
        for words in ["You look at files.", "Linux", "local_look", "native_count"] {
            assert!(before.contains(words), "{wire} has no `{words}`: {before}");
        }
        for end in 2..=entries.len() {
            // Another table of the same tools, offered in another order, is no cause.
            let later = table(end as u64, end % 2 == 0, "Looks.");
            let now = fixed(wire, &entries[..end], &later, &settings);
            assert_eq!(now, before, "{wire}, {end} entries");
        }
    }
}

#[test]
fn what_was_said_stays_the_same_bytes_when_more_is_said() {
    let entries = thread();
    let table = table(1, false, "Looks.");
    for wire in Wire::ALL {
        let said = |end: usize| sent_messages(wire, &entries[..end], &table);
        for end in (1..entries.len()).filter(|end| end % 4 != 2 && end % 4 != 0) {
            let (before, now) = (said(end), said(end + 1));
            assert_eq!(now[..before.len()], before, "{wire}, {end} entries");
        }
    }
}

/// What a request of these entries has of what was said, on a wire.
fn sent_messages(wire: Wire, entries: &[Entry], table: &RoutingTable) -> Vec<Value> {
    let request = compile(entries, table, &settings(wire));
    let body = wire.encode(&request, &Endpoint::new("p")).body;
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    let list = ["messages", "input", "contents"]
        .iter()
        .find_map(|name| body.get_mut(*name).map(Value::take));
    let mut list = list.unwrap().as_array().cloned().unwrap();
    // Where to cache up to moves on, and is no part of what is cached.
    list.iter_mut().for_each(without_marks);
    list
}

#[test]
fn a_note_of_another_version_changes_nothing_that_was_sent_and_stays_on_every_wire() {
    let (plugin, from, to) = ("notes".to_owned(), "0.2.0".to_owned(), "0.3.0".to_owned());
    let change = PluginChange {
        plugin: plugin.clone(),
        from: from.clone(),
        to: to.clone(),
        state: StateHandover::Carried,
    };
    let changed = EntryBody::TableChanged(TableChange {
        plugins: vec![change],
        ..TableChange::default()
    });
    let moved = EntryBody::Notice {
        text: String::new(),
        reason: Some(NoticeReason::StateMoved(StateMove {
            plugin,
            from,
            to,
            fate: StateFate::Carried,
        })),
    };
    // Between the second question and its call, and before the result of that.
    let mut entries = thread();
    let noted = |body, like: &Entry| Entry {
        body,
        ..like.clone()
    };
    entries.insert(5, noted(changed, &entries[4]));
    entries.insert(7, noted(moved, &entries[4]));
    for (seq, entry) in (1..).zip(&mut entries) {
        entry.seq = seq;
    }
    let table = table(1, false, "Looks.");
    for wire in Wire::ALL {
        // A question with what is known by then, results, the next question.
        let requests = [6, 9, 11].map(|end| sent_messages(wire, &entries[..end], &table));
        for (before, now) in requests.iter().zip(&requests[1..]) {
            assert_eq!(now[..before.len()], *before, "{wire}");
        }
        let last = Value::from(requests[2].clone()).to_string();
        for words in [
            "notes 0.2.0 → 0.3.0, state to be",
            "0.3.0: state carried over",
        ] {
            assert_eq!(last.matches(words).count(), 1, "{wire}: {last}");
        }
        let unchanged = sent_messages(wire, &entries[..4], &table);
        assert_eq!(
            requests[0][..unchanged.len() - 1],
            unchanged[..unchanged.len() - 1],
            "{wire}"
        );
    }
}

fn without_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(without_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

#[test]
fn a_declared_cause_changes_them() {
    let entries = thread();
    for wire in Wire::ALL {
        let before = fixed(wire, &entries, &table(1, false, "Looks."), &settings(wire));
        let told_otherwise = fixed(wire, &entries, &table(2, false, "Sees."), &settings(wire));
        assert_ne!(told_otherwise, before, "{wire}");
        let persona = CompileSettings {
            persona: Some("You count words.".to_owned()),
            ..settings(wire)
        };
        let other = fixed(wire, &entries, &table(1, false, "Looks."), &persona);
        assert_ne!(other, before, "{wire}");
    }
}
