//! Threads that are recorded and replayed.

mod answer_forms;
mod failed_summaries;

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::chat::{Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role, Usage};
use crate::log::{CallEnd, Entry, EntryBody, Spending, TurnOutcome, test_kit, turn_usage};
use crate::routing::{
    CallMode, Catalog, CatalogTool, EffectLevel, Naming, Policy, PolicyDecision, Prefix, Rule,
};
use crate::routing::{Origin, RoutingTable};
use crate::turn::TurnSettings;
use crate::turn::recover;
use crate::turn::tests::random::any_log;
use crate::wire::Wire;

fn closed(mut entries: Vec<Entry>) -> Vec<Entry> {
    for body in recover(&entries) {
        entries.push(Entry {
            seq: entries.len() as u64 + 1,
            turn: entries.last().map_or(0, |last| last.turn),
            at_ms: 0,
            body,
        });
    }
    entries
}

/// The tools that random threads have, with the lanes that their judge knows.
fn random_tools() -> ReplaySetup {
    let tool = |name: &str, mode| {
        let mut tool = CatalogTool::new(name, "x", EffectLevel::Write).of_skill(name, None);
        if let Some(lane) = name.strip_prefix("ask_").unwrap_or(name).get(..1) {
            tool.skill = Some(lane.to_owned());
        }
        tool.mode = mode;
        if !name.starts_with("ask_") && name != "free" {
            tool.origin = Origin {
                plugin: Some("skill".to_owned()),
                version: Some("1.0.0".to_owned()),
                ..Origin::default()
            };
        }
        (name.to_owned(), tool)
    };
    let tools = [
        tool("a", CallMode::Stateful),
        tool("a2", CallMode::Stateful),
        tool("b", CallMode::Stateful),
        tool("ask_a", CallMode::Stateful),
        tool("ask_b", CallMode::Stateful),
        tool("free", CallMode::Stateless),
    ];
    let rule = |pattern: &str, decision| Rule {
        pattern: pattern.parse().unwrap(),
        decision,
    };
    let mut setup = ReplaySetup::new(TurnSettings::new("anthropic", "claude-x"));
    setup.policy = Policy {
        rules: ["a", "a2", "b", "free"]
            .map(|name| rule(name, PolicyDecision::Allow))
            .to_vec(),
        ..Policy::default()
    };
    setup.tools = tools
        .into_iter()
        .map(|(name, definition)| RecordedTool {
            name: crate::routing::ToolName::new(&name).unwrap(),
            backend: "backend".to_owned(),
            kind: "native".to_owned(),
            definition,
        })
        .collect();
    setup
}

/// Whether the entries of the turn that a step belongs to tell all that was in it. They do not tell
/// that backends still looked at a reply with items of theirs when settings changed or the host
/// ended.
fn tells_all(entries: &[Entry], turn: u64) -> bool {
    let of_turn = entries.iter().filter(|entry| entry.turn == turn);
    let of_turn: Vec<Entry> = of_turn.cloned().collect();
    let all = turn_usage(&of_turn);
    let is_item = |part: &Part| matches!(part.content, Content::ServerItem { .. });
    let looked = entries.iter().any(|entry| {
        matches!(&entry.body, EntryBody::Message { message } if message.content.iter().any(is_item))
    });
    let meanwhile = of_turn.iter().any(|entry| match &entry.body {
        EntryBody::TurnEnded { outcome, .. } => *outcome == TurnOutcome::Interrupted,
        EntryBody::SettingsChanged { .. } => true,
        _ => false,
    });
    if looked && meanwhile {
        return false;
    }
    of_turn
        .iter()
        .any(|entry| matches!(&entry.body, EntryBody::TurnEnded { usage, .. } if *usage == all))
}

fn replays(entries: Vec<Entry>, setup: ReplaySetup) -> Result<(), TestCaseError> {
    let entries = closed(entries);
    let cassette = record("t", &entries, setup.clone(), &HashMap::new());
    prop_assert_eq!(&record("t", &entries, setup, &HashMap::new()), &cassette);
    for step in &cassette.steps {
        let stuck = step.unreplayed.is_some() && tells_all(&entries, step.turn);
        prop_assert!(!stuck, "{step:#?}");
    }
    let read = Cassette::read(cassette.to_text().unwrap().as_bytes()).unwrap();
    prop_assert_eq!(&read, &cassette);
    let report = replay(&read, None);
    prop_assert!(report.is_clean(), "{report:#?}");
    for wire in Wire::ALL {
        let mut to = Recipient::of_name("elsewhere", "m");
        to.wire = wire;
        let report = replay(&read, Some(&to));
        prop_assert!(report.is_clean(), "{report:#?}");
    }
    Ok(())
}

/// The thread as older versions wrote it: reasons in words only.
fn without_reasons(mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &mut entries {
        match &mut entry.body {
            EntryBody::CallEnded { reason, .. } => *reason = None,
            EntryBody::Notice { reason, .. } => *reason = None,
            _ => {}
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_random_thread_replays_as_it_was(entries in any_log()) {
        replays(entries, random_tools())?;
    }

    #[test]
    fn a_random_thread_of_an_older_version_replays_too(entries in any_log()) {
        replays(without_reasons(entries), random_tools())?;
    }

    #[test]
    fn a_random_thread_of_which_only_the_log_is_known_replays_too(entries in any_log()) {
        replays(entries, ReplaySetup::new(TurnSettings::new("anthropic", "claude-x")))?;
    }
}

/// A thread of one turn: a question, two calls of which a person denied one, and the answer.
fn talked() -> (Vec<Entry>, ReplaySetup) {
    let meta = |stop: &str| Meta {
        provider: "anthropic".to_owned(),
        model: "claude-x".to_owned(),
        usage: Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        },
        stop_reason: Some(stop.to_owned()),
        ..Meta::default()
    };
    let call = |id: &str, name: &str| -> Part {
        Content::FunctionCall(FunctionCall {
            call_id: id.to_owned(),
            name: name.to_owned(),
            arguments: json!({"path": "notes"}),
            arguments_text: None,
        })
        .into()
    };
    let said = |content, stop| EntryBody::Message {
        message: Message {
            role: Role::Assistant,
            content,
            meta: Some(meta(stop)),
        },
    };
    let ended = |id: &str, text: &str, end: CallEnd| EntryBody::CallEnded {
        output: FunctionCallOutput::text(id, text, end != CallEnd::Done),
        end,
        reason: None,
        duration_ms: if end == CallEnd::Done { 7 } else { 0 },
        meta: None,
    };
    let bodies = vec![
        EntryBody::TurnStarted {
            turn_id: "t1".to_owned(),
        },
        EntryBody::Message {
            message: Message::user("Tidy up."),
        },
        said(
            vec![call("c1", "desk_look"), call("c2", "desk_drop")],
            "tool_use",
        ),
        EntryBody::CallStarted {
            call_id: "c1".to_owned(),
            backend: "desk".to_owned(),
            plugin: None,
        },
        ended("c2", "Not that.", CallEnd::Refused),
        ended("c1", "three notes", CallEnd::Done),
        said(vec![Part::text("Three notes are left.")], "end_turn"),
        EntryBody::TurnEnded {
            turn_id: "t1".to_owned(),
            outcome: TurnOutcome::Completed,
            usage: Usage {
                input: 20,
                output: 10,
                ..Usage::default()
            },
            stop_reason: Some("end_turn".to_owned()),
        },
    ];
    let entries = test_kit::log(bodies);
    let tool = |name: &str, effects| Arc::new(CatalogTool::new(name, "x", effects));
    let catalog = Catalog {
        backend: "desk".to_owned(),
        kind: "local".to_owned(),
        naming: Prefix::Backend,
        tools: vec![
            tool("look", EffectLevel::Read),
            tool("drop", EffectLevel::Destructive),
        ],
    };
    let table = RoutingTable::build(1, &[catalog], &Naming::default()).unwrap();
    let mut setup = ReplaySetup::new(TurnSettings::new("anthropic", "claude-x"));
    setup.persona = Some("You are careful.".to_owned());
    setup.tools = table.routes().iter().map(RecordedTool::of).collect();
    // Two lanes, so that one call waits for a person while the other runs.
    for tool in &mut setup.tools {
        tool.definition.mode = CallMode::Stateless;
    }
    (entries, setup)
}

fn recorded() -> Cassette {
    let (entries, setup) = talked();
    let cassette = record("talk", &entries, setup, &HashMap::new());
    assert!(replay(&cassette, None).is_clean());
    cassette
}

fn divergence(cassette: &Cassette) -> Divergence {
    let report = replay(cassette, None);
    assert!(!report.is_clean());
    report.divergence.unwrap()
}

#[test]
fn a_cassette_holds_requests_verdicts_and_the_hashes_of_arguments() {
    let cassette = recorded();
    assert_eq!(
        cassette.notes,
        [
            "How these are spoken to is not known, so it is what their names imply: anthropic/claude-x."
        ]
    );
    let asked: Vec<u64> = cassette
        .steps
        .iter()
        .filter(|step| step.exchange.is_some())
        .map(|step| step.seq)
        .collect();
    assert_eq!(asked, [3, 7]);
    let first = cassette.steps[2].exchange.as_ref().unwrap();
    assert_eq!(
        (first.wire, first.resource.as_str()),
        (Wire::Anthropic, "messages")
    );
    assert_eq!(first.body["system"][0]["text"], "You are careful.");
    assert_eq!(first.body["tools"][1]["name"], "desk_look");
    let verdicts = serde_json::to_value(&cassette.steps[2].judged).unwrap();
    assert_eq!(
        verdicts,
        json!([
            {"call_id": "c1", "verdict": "run", "backend": "desk"},
            {"call_id": "c2", "verdict": "ask", "backend": "desk",
             "reason": "ask by default for a tool with effects `destructive`"},
        ])
    );
    let call = cassette.steps[5].call.as_ref().unwrap();
    assert_eq!(call.name, "desk_look");
    assert_eq!(
        call.arguments_sha256,
        "4e05d41d8176a0033aecdf78005b8f0d4718692db89dc733291d2a2c1967a5a4"
    );
}

/// A turn whose one reply says nothing. An older version wrote no entry of it.
fn said_nothing(is_logged: bool) -> Vec<Entry> {
    let (entries, _) = talked();
    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let meta = entries[6].body.meta().unwrap().clone();
    let spent = EntryBody::Spent {
        on: Spending::Reply,
        meta,
    };
    let ended = EntryBody::TurnEnded {
        turn_id: "t1".to_owned(),
        outcome: TurnOutcome::Completed,
        usage,
        stop_reason: Some("end_turn".to_owned()),
    };
    let begun = entries.iter().take(2).map(|entry| entry.body.clone());
    let bodies = begun.chain(is_logged.then_some(spent)).chain([ended]);
    let entry = |(seq, body)| Entry {
        seq,
        turn: 1,
        at_ms: 0,
        body,
    };
    (1..).zip(bodies).map(entry).collect()
}

#[test]
fn a_reply_that_says_nothing_replays_also_where_no_entry_tells_of_it() {
    for is_logged in [true, false] {
        let setup = ReplaySetup::new(TurnSettings::new("anthropic", "claude-x"));
        let entries = said_nothing(is_logged);
        let cassette = record("quiet", &entries, setup, &HashMap::new());
        let asked: Vec<u64> = cassette
            .steps
            .iter()
            .filter(|step| step.exchange.is_some())
            .map(|step| step.seq)
            .collect();
        assert_eq!(asked, [3], "logged: {is_logged}");
        let stuck = cassette.steps.iter().find(|step| step.unreplayed.is_some());
        assert_eq!(stuck, None, "logged: {is_logged}");
        let report = replay(&cassette, None);
        assert!(report.is_clean(), "{report:#?}");
    }
}

#[test]
fn settings_that_name_nobody_are_no_recipient() {
    let (entries, _) = talked();
    for (provider, model) in [("", ""), ("anthropic", "")] {
        let setup = ReplaySetup::new(TurnSettings::new(provider, model));
        let asked: Vec<(String, String)> = setup.requested_models(&entries).into_iter().collect();
        assert_eq!(asked, [("anthropic".to_owned(), "claude-x".to_owned())]);
    }
}

#[test]
fn another_schema_of_a_tool_is_found_at_the_first_request_that_tells_it() {
    let mut cassette = recorded();
    cassette.setup.tools[1].definition.input_schema = json!({"type": "object", "title": "New"});
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (3, DivergenceKind::Request));
    assert_eq!(found.changes[0].path, "tools[1].input_schema.title");
    assert_eq!(found.changes[0].now, Some(json!("New")));
    assert!(found.why[0].contains("a tool's definition"), "{found:?}");
}

#[test]
fn another_persona_is_found() {
    let mut cassette = recorded();
    cassette.setup.persona = Some("You are quick.".to_owned());
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (3, DivergenceKind::Request));
    assert_eq!(found.changes[0].path, "system[0].text");
    assert!(found.why[0].contains("persona"), "{found:?}");
}

#[test]
fn a_repair_that_sends_something_else_is_found_where_it_does() {
    // As a version recorded it that told a failed call's result in another way.
    let mut cassette = recorded();
    let exchange = cassette.steps[6].exchange.as_mut().unwrap();
    let block = &mut exchange.body["messages"][2]["content"][1];
    assert_eq!(block["tool_use_id"], "c2");
    block.as_object_mut().unwrap().shift_remove("is_error");
    cassette.conjure = "0.0.9".to_owned();
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (7, DivergenceKind::Request));
    assert_eq!(found.changes.len(), 1);
    assert_eq!(found.changes[0].path, "messages[2].content[1].is_error");
    assert!(found.why[0].contains("recorded by Conjure 0.0.9"));
    assert!(found.why[1].contains("repaired"), "{found:?}");
}

#[test]
fn another_rule_is_found_where_a_call_would_have_met_it() {
    let mut cassette = recorded();
    cassette.setup.policy.rules.push(Rule {
        pattern: "desk_look".parse().unwrap(),
        decision: PolicyDecision::Deny,
    });
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (3, DivergenceKind::Verdict));
    assert_eq!(found.changes[0].path, "[0].verdict");
}

#[test]
fn what_the_machine_would_not_write_is_found() {
    let mut cassette = recorded();
    let EntryBody::TurnEnded { turn_id, .. } = &mut cassette.steps[7].body else {
        panic!("{:?}", cassette.steps[7]);
    };
    *turn_id = "t2".to_owned();
    let found = divergence(&cassette);
    assert_eq!(
        (found.step, found.what),
        (8, DivergenceKind::Entry),
        "{found:?}"
    );

    let mut cassette = recorded();
    cassette.steps.remove(3);
    let found = divergence(&cassette);
    assert_eq!(
        (found.step, found.what),
        (5, DivergenceKind::Entry),
        "{found:?}"
    );
}

#[test]
fn a_result_of_another_call_and_a_request_that_is_not_made_are_found() {
    let mut cassette = recorded();
    cassette.steps[5].call.as_mut().unwrap().arguments_sha256 = "0".to_owned();
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (6, DivergenceKind::Call));

    let mut cassette = recorded();
    cassette.steps[5].exchange = cassette.steps[6].exchange.clone();
    let found = divergence(&cassette);
    assert_eq!((found.step, found.what), (6, DivergenceKind::Request));
}

#[test]
fn a_cassette_of_another_version_or_none_is_refused() {
    let mut cassette = recorded();
    cassette.cassette = 2;
    let error = Cassette::read(cassette.to_text().unwrap().as_bytes()).unwrap_err();
    assert!(matches!(error, CassetteError::Version { found: 2 }));
    let error = Cassette::read(b"{}").unwrap_err();
    assert!(error.to_string().contains("this is no cassette"), "{error}");
}

#[test]
fn tools_that_came_and_went_are_told_as_the_log_knows_them() {
    let (mut entries, setup) = talked();
    let change = crate::log::TableChange {
        version: 2,
        added: vec!["desk_drop".to_owned()],
        removed: vec!["desk_shred".to_owned()],
        changed: Vec::new(),
        ..crate::log::TableChange::default()
    };
    let second = |body, seq| Entry {
        seq,
        turn: 2,
        at_ms: 0,
        body,
    };
    let first = entries.clone();
    entries.push(second(first[0].body.clone(), 9));
    entries.push(second(first[1].body.clone(), 10));
    entries.push(second(EntryBody::TableChanged(change), 11));
    entries.push(second(first[6].body.clone(), 12));
    let EntryBody::TurnEnded {
        turn_id,
        outcome,
        stop_reason,
        ..
    } = first[7].body.clone()
    else {
        panic!("{:?}", first[7]);
    };
    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let end = EntryBody::TurnEnded {
        turn_id,
        outcome,
        usage,
        stop_reason,
    };
    entries.push(second(end, 13));
    let cassette = record("talk", &entries, setup, &HashMap::new());
    assert!(
        cassette
            .notes
            .iter()
            .any(|note| note.contains("table 1 that are not there any more")
                && note.contains("desk_shred")),
        "{:?}",
        cassette.notes
    );
    let tools = |at: usize| -> Vec<String> {
        let body = &cassette.steps[at].exchange.as_ref().unwrap().body;
        let tools = body["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(tools(2), ["desk_look"]);
    assert_eq!(tools(11), ["desk_drop", "desk_look"]);
    let report = replay(&cassette, None);
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.unreplayed.is_empty(), "{report:#?}");
}

#[test]
fn where_files_are_and_what_opens_a_backend_is_left_out() {
    let (mut entries, setup) = talked();
    let artifact = crate::chat::ArtifactRef {
        id: "file-1".to_owned(),
        name: "notes.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        size: Some(3),
    };
    let bodies = [
        EntryBody::File {
            artifact,
            source: "desk".to_owned(),
            call_id: Some("c1".to_owned()),
            place: Some("/home/ada/notes.txt".to_owned()),
            remote: Some("remote-notes".to_owned()),
            holder: Some("attic".to_owned()),
        },
        EntryBody::BackendState {
            backend: "desk".to_owned(),
            state: json!({"session": "opens-it"}),
        },
    ];
    for (at, body) in (5..).zip(bodies) {
        entries.insert(
            at,
            Entry {
                seq: 0,
                turn: 1,
                at_ms: 0,
                body,
            },
        );
    }
    for (seq, entry) in (1..).zip(&mut entries) {
        entry.seq = seq;
    }
    let hashes = HashMap::from([("file-1".to_owned(), "abc".to_owned())]);
    let cassette = record("talk", &entries, setup, &hashes);
    assert_eq!(cassette.steps[5].sha256.as_deref(), Some("abc"));
    let text = cassette.to_text().unwrap();
    for left_out in ["/home/ada", "remote-notes", "opens-it"] {
        assert!(!text.contains(left_out), "{left_out}: {text}");
    }
    let report = replay(&cassette, None);
    assert!(
        report.is_clean() && report.unreplayed.is_empty(),
        "{report:#?}"
    );
}

#[test]
fn over_another_wire_every_request_is_looked_at() {
    let cassette = recorded();
    let report = replay(&cassette, Some(&Recipient::of_name("gemini", "gemini-x")));
    assert!(report.is_clean(), "{report:#?}");
    let elsewhere = report.elsewhere.unwrap();
    assert_eq!((elsewhere.wire, elsewhere.requests), (Wire::Gemini, 2));
}
