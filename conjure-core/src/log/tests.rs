//! Logs that end anywhere, and what is read out of them.

use proptest::prelude::*;
use serde_json::json;

use super::test_kit::log;
use super::*;
use crate::chat::{Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role, Usage};
use crate::turn::recover;
use crate::turn::tests::random::{any_log, check_results};
use crate::turn::tests::sendable;

fn call(id: &str) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: "t".to_owned(),
        arguments: json!({}),
        arguments_text: None,
    })
    .into()
}

fn message(message: Message) -> EntryBody {
    EntryBody::Message { message }
}

fn started(id: &str) -> EntryBody {
    EntryBody::CallStarted {
        call_id: id.to_owned(),
        backend: "native".to_owned(),
        plugin: None,
    }
}

fn ended(id: &str) -> EntryBody {
    EntryBody::CallEnded {
        output: FunctionCallOutput::text(id, "ok", false),
        end: CallEnd::Done,
        reason: None,
        duration_ms: 1,
        meta: None,
    }
}

#[test]
fn a_call_that_was_started_is_indeterminate_and_one_that_was_not_had_no_effect() {
    let usage = Usage {
        input: 3,
        output: 2,
        ..Usage::default()
    };
    let mut said = Message::new(Role::Assistant, vec![call("1"), call("2"), call("3")]);
    said.meta = Some(Meta {
        usage,
        ..Meta::default()
    });
    let closing = recover(&log(vec![
        EntryBody::TurnStarted {
            turn_id: "t".to_owned(),
        },
        message(Message::user("q")),
        message(said),
        started("1"),
        started("2"),
        ended("1"),
    ]));
    let shown: Vec<(&str, CallEnd, bool)> = closing
        .iter()
        .filter_map(|body| match body {
            EntryBody::CallEnded { output, end, .. } => {
                Some((output.call_id.as_str(), *end, output.is_error))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("2", CallEnd::Indeterminate, true),
            ("3", CallEnd::Refused, true)
        ]
    );
    assert_eq!(
        closing.last(),
        Some(&EntryBody::TurnEnded {
            turn_id: "t".to_owned(),
            outcome: TurnOutcome::Interrupted,
            usage,
            stop_reason: None,
        })
    );
}

/// What is told of a call that had not begun when the host ended after these entries.
fn told_of_unbegun(bodies: Vec<EntryBody>) -> String {
    let mut bodies = bodies;
    bodies.push(message(Message::new(Role::Assistant, vec![call("new")])));
    match recover(&log(bodies)).first() {
        Some(EntryBody::CallEnded { output, .. }) => output.joined_text(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_had_not_begun_is_told_its_backend_as_far_as_the_log_knows() {
    let before = || {
        let said = Message::new(Role::Assistant, vec![call("old")]);
        vec![message(said), started("old"), ended("old")]
    };
    let told = told_of_unbegun(before());
    assert!(
        told.starts_with("The call of `t` on backend `native` has no"),
        "{told}"
    );
    let moved = EntryBody::TableChanged(TableChange {
        changed: vec!["t".to_owned()],
        ..TableChange::default()
    });
    for bodies in [Vec::new(), [before(), vec![moved]].concat()] {
        let told = told_of_unbegun(bodies);
        assert!(told.starts_with("The call of `t` has no result."), "{told}");
    }
}

#[test]
fn a_log_with_nothing_open_needs_nothing() {
    assert_eq!(recover(&[]), []);
}

#[test]
fn a_compaction_hides_what_is_before_it_and_deletes_nothing() {
    let entries = log(vec![
        message(Message::user("old")),
        message(Message::user("new")),
        EntryBody::Compacted {
            upto: 2,
            summary: "so far".to_owned(),
            meta: None,
        },
        message(Message::user("newest")),
    ]);
    let folded = fold(&entries);
    assert_eq!(folded.summary, Some("so far"));
    let texts: Vec<String> = messages(folded.shown).iter().map(Message::text).collect();
    assert_eq!(texts, ["new", "newest"]);
}

#[test]
fn a_compaction_that_is_taken_back_leaves_the_one_before_it() {
    let compacted = |upto: u64, summary: &str| EntryBody::Compacted {
        upto,
        summary: summary.to_owned(),
        meta: None,
    };
    let mut entries = log(vec![
        message(Message::user("a")),
        message(Message::user("b")),
        message(Message::user("c")),
        compacted(2, "first"),
        compacted(3, "second"),
    ]);
    let states = |entries: &[Entry]| -> Vec<FoldState> {
        folds(entries).iter().map(|fold| fold.state).collect()
    };
    assert_eq!(
        states(&entries),
        [FoldState::Inside { outer: 5 }, FoldState::Standing]
    );
    assert_eq!(fold(&entries).summary, Some("second"));
    let unfolded = |entries: &mut Vec<Entry>, fold: u64| {
        let mut more = log(vec![EntryBody::Unfolded { fold }]).remove(0);
        more.seq = entries.len() as u64 + 1;
        entries.push(more);
    };
    unfolded(&mut entries, 5);
    assert_eq!(states(&entries), [FoldState::Standing, FoldState::Unfolded]);
    assert_eq!(fold(&entries).summary, Some("first"));
    assert_eq!(fold(&entries).shown.len(), 5);
    unfolded(&mut entries, 4);
    assert_eq!(states(&entries), [FoldState::Unfolded; 2]);
    assert_eq!(fold(&entries).summary, None);
    assert_eq!(fold(&entries).shown, entries);
}

#[test]
fn removed_tools_are_those_that_did_not_come_back() {
    let change = |added: &[&str], removed: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        EntryBody::TableChanged(TableChange {
            added: names(added),
            removed: names(removed),
            ..TableChange::default()
        })
    };
    let entries = log(vec![
        change(&[], &["a", "b"]),
        change(&["a"], &["c"]),
        change(&[], &["a"]),
        change(&["c"], &[]),
    ]);
    assert_eq!(Vec::from_iter(removed_tools(&entries)), ["a", "b"]);
}

#[test]
fn a_log_reads_back_as_it_was_written() {
    let entries = log(vec![
        message(Message::new(
            Role::Assistant,
            vec![Part::text("a"), call("1")],
        )),
        started("1"),
        ended("1"),
        EntryBody::TurnEnded {
            turn_id: "t".to_owned(),
            outcome: TurnOutcome::Limit {
                limit: "calls".to_owned(),
                value: 3,
            },
            usage: Usage::default(),
            stop_reason: None,
        },
    ]);
    let text = serde_json::to_string(&entries).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Entry>>(&text).unwrap(), entries);
}

#[test]
fn a_reason_that_only_a_later_version_knows_keeps_no_thread_from_being_read() {
    let read = |reason| -> Entry {
        let entry = json!({
            "seq": 1, "turn": 1, "entry": "call_ended", "end": "refused",
            "output": { "call_id": "1", "output": [], "is_error": true },
            "reason": reason,
        });
        serde_json::from_value(entry).unwrap()
    };
    let reason_of = |entry: Entry| match entry.body {
        EntryBody::CallEnded { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let later = json!({ "kind": "of_the_future", "more": [1] });
    assert_eq!(reason_of(read(later)), Some(NotRun::Other));
    let limit = json!({ "kind": "over_limit", "limit": "calls", "value": 5 });
    let over = NotRun::OverLimit {
        limit: "calls".to_owned(),
        value: 5,
    };
    assert_eq!(reason_of(read(limit)), Some(over));
    assert_eq!(reason_of(read(json!(null))), None);
    let notice = json!({ "seq": 1, "turn": 1, "entry": "notice", "text": "so it is",
        "reason": { "kind": "of_the_future" } });
    let notice: Entry = serde_json::from_value(notice).unwrap();
    let other = EntryBody::Notice {
        text: "so it is".to_owned(),
        reason: Some(NoticeReason::Other),
    };
    assert_eq!(notice.body, other);
}

#[test]
fn what_became_of_a_plugins_state_is_data_and_what_a_later_version_knows_of_it_is_read_over() {
    let read = |fate: serde_json::Value| -> EntryBody {
        let notice = json!({ "seq": 1, "turn": 1, "entry": "notice", "text": "so it is",
            "reason": { "kind": "state_moved", "plugin": "notes", "from": "0.2.0", "to": "0.3.0",
                "fate": fate } });
        serde_json::from_value::<Entry>(notice).unwrap().body
    };
    let moved = |fate| EntryBody::Notice {
        text: "so it is".to_owned(),
        reason: Some(NoticeReason::StateMoved(StateMove {
            plugin: "notes".to_owned(),
            from: "0.2.0".to_owned(),
            to: "0.3.0".to_owned(),
            fate,
        })),
    };
    let reason = "it cannot read that".to_owned();
    let refused = json!({ "kind": "refused", "reason": reason });
    assert_eq!(read(refused), moved(StateFate::Refused { reason }));
    let unknown = json!({ "kind": "of_the_future", "why": "so" });
    assert_eq!(read(unknown), moved(StateFate::Other));
    let written = serde_json::to_value(moved(StateFate::Carried)).unwrap();
    let back: EntryBody = serde_json::from_value(written).unwrap();
    assert_eq!(back, moved(StateFate::Carried));
}

#[test]
fn what_a_person_is_told_of_tools_and_files_is_data_in_these_forms() {
    let words = str::to_owned;
    let files = vec![
        (
            "a.heic",
            UnshownReason::MediaType {
                media_type: words("image/heic"),
            },
        ),
        ("b.png", UnshownReason::ManyImages { most: 20 }),
        ("c.gif", UnshownReason::NoGif),
    ];
    let unshown = |(name, reason)| UnshownFile {
        name: words(name),
        reason,
    };
    let lost = |name, reason| LostFile {
        name: words(name),
        reason,
    };
    for (form, reason) in [
        (
            json!({ "kind": "tools_excluded", "names": ["a", "b"], "error": "they clash" }),
            NoticeReason::ToolsExcluded {
                names: vec![words("a"), words("b")],
                error: words("they clash"),
            },
        ),
        (
            json!({ "kind": "not_loaded", "backend": "b", "error": "no plugin" }),
            NoticeReason::NotLoaded {
                backend: words("b"),
                error: words("no plugin"),
            },
        ),
        (
            json!({ "kind": "not_ready", "backend": "b", "error": "no engine" }),
            NoticeReason::NotReady {
                backend: words("b"),
                error: words("no engine"),
            },
        ),
        (
            json!({ "kind": "backend_kept", "backend": "b", "plugin": "k 0.2.0",
                "refused": "k 0.3.0", "error": "no engine" }),
            NoticeReason::BackendKept {
                backend: words("b"),
                plugin: words("k 0.2.0"),
                refused: words("k 0.3.0"),
                error: words("no engine"),
            },
        ),
        (
            json!({ "kind": "backend_renewed", "backend": "b" }),
            NoticeReason::BackendRenewed {
                backend: words("b"),
            },
        ),
        (
            json!({ "kind": "files_lost", "files": [
                { "name": "a", "reason": { "kind": "no_bytes" } },
                { "name": "b", "reason": { "kind": "failed", "error": "full" } },
            ] }),
            NoticeReason::FilesLost {
                files: vec![
                    lost("a", LossReason::NoBytes),
                    lost(
                        "b",
                        LossReason::Failed {
                            error: words("full"),
                        },
                    ),
                ],
            },
        ),
        (
            json!({ "kind": "files_unshown", "files": [
                { "name": "a.heic", "reason": { "kind": "media_type", "media_type": "image/heic" } },
                { "name": "b.png", "reason": { "kind": "many_images", "most": 20 } },
                { "name": "c.gif", "reason": { "kind": "no_gif" } },
            ] }),
            NoticeReason::FilesUnshown {
                files: files.into_iter().map(unshown).collect(),
            },
        ),
    ] {
        let body = EntryBody::Notice {
            text: words("so it is"),
            reason: Some(reason),
        };
        let written = json!({ "entry": "notice", "text": "so it is", "reason": form });
        assert_eq!(serde_json::to_value(&body).unwrap(), written);
        assert_eq!(serde_json::from_value::<EntryBody>(written).unwrap(), body);
    }
}

#[test]
fn what_only_a_later_version_knows_of_a_file_keeps_no_thread_from_being_read() {
    let later = json!({ "name": "a", "reason": { "kind": "of_the_future", "more": [1] } });
    let read = |kind: &str| -> Entry {
        let reason = json!({ "kind": kind, "files": [later] });
        let entry = json!({ "seq": 1, "turn": 1, "entry": "notice", "text": "so it is",
            "reason": reason });
        serde_json::from_value(entry).unwrap()
    };
    let name = || "a".to_owned();
    let lost = LostFile {
        name: name(),
        reason: LossReason::Other,
    };
    let unshown = UnshownFile {
        name: name(),
        reason: UnshownReason::Other,
    };
    for (kind, reason) in [
        ("files_lost", NoticeReason::FilesLost { files: vec![lost] }),
        (
            "files_unshown",
            NoticeReason::FilesUnshown {
                files: vec![unshown],
            },
        ),
    ] {
        let text = "so it is".to_owned();
        let reason = Some(reason);
        assert_eq!(read(kind).body, EntryBody::Notice { text, reason });
    }
}

proptest! {
    #[test]
    fn after_a_crash_at_any_entry_the_thread_can_go_on(entries in any_log()) {
        for end in 0..=entries.len() {
            let mut crashed = entries[..end].to_vec();
            for body in recover(&crashed) {
                crashed.push(Entry {
                    seq: crashed.len() as u64 + 1,
                    turn: crashed.last().map_or(0, |last| last.turn),
                    at_ms: 0,
                    body,
                });
            }
            prop_assert_eq!(recover(&crashed), []);
            check_results(&crashed);
            sendable(&crashed);
            let mut balance = 0i32;
            for entry in &crashed {
                balance += match entry.body {
                    EntryBody::TurnStarted { .. } => 1,
                    EntryBody::TurnEnded { .. } => -1,
                    _ => 0,
                };
            }
            prop_assert_eq!(balance, 0);
        }
    }

    #[test]
    fn any_log_reads_back_as_it_was_written(entries in any_log()) {
        let text = serde_json::to_string(&entries).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<Entry>>(&text).unwrap(), entries);
    }
}

#[test]
fn a_plugin_has_the_version_of_its_newest_call_or_of_a_change_since() {
    let called = |id: &str, plugin: &str| EntryBody::CallStarted {
        call_id: id.to_owned(),
        backend: "native".to_owned(),
        plugin: Some(plugin.to_owned()),
    };
    let changed = |plugin: &str, to: &str| {
        EntryBody::TableChanged(TableChange {
            plugins: vec![PluginChange {
                plugin: plugin.to_owned(),
                from: "1.0.0".to_owned(),
                to: to.to_owned(),
                state: StateHandover::None,
            }],
            ..TableChange::default()
        })
    };
    let versions = plugin_versions(&log(vec![
        called("1", "notes 1.0.0"),
        called("2", "cache 1.0.0"),
        changed("notes", "1.1.0"),
        changed("never-called", "2.0.0"),
        called("3", "cache 1.2.0"),
    ]));
    let expected = [("cache", "1.2.0"), ("notes", "1.1.0")];
    let expected = expected.map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(versions, expected.into());
}
