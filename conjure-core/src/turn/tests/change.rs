//! What changes while a turn runs: settings, the routing table, the log's beginning.

use super::*;

fn other() -> TurnSettings {
    TurnSettings::new("openai", "gpt-5")
}

fn change(bench: &mut Bench, settings: TurnSettings, when: EffectiveFrom) -> Vec<HostAction> {
    bench.input(TurnInput::Settings {
        entry: note(&settings.model),
        settings: Box::new(settings),
        when,
    })
}

fn use_settings(settings: TurnSettings) -> HostAction {
    HostAction::UseSettings(Box::new(settings))
}

#[test]
fn settings_now_stop_the_reply_and_ask_again_and_the_partial_text_stays_for_people() {
    let mut bench = Bench::asked();
    assert_eq!(
        change(&mut bench, other(), EffectiveFrom::Now),
        [HostAction::StopModel { request: 1 }]
    );
    assert_eq!(
        bench.fail(1, Some(vec![Part::text("Hal"), call("1", "a")])),
        [use_settings(other()), request(2, 1)]
    );
    let said = messages(&bench.log);
    let meta = said[1].meta.as_ref().unwrap();
    assert!(meta.superseded && meta.partial);
    assert_eq!(said[1].text(), "Hal");
    assert_eq!(bench.ends()[0].1, CallEnd::Refused);
    assert_eq!(bench.sendable(), [Message::user("q")]);
    bench.reply(2, vec![], "end_turn");
    // Text that was begun again is no answer.
    assert!(matches!(bench.done_event(), Event::Done { text, .. } if text.is_empty()));
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
}

#[test]
fn settings_now_ask_again_also_when_the_reply_was_whole_by_then() {
    let mut bench = Bench::asked();
    change(&mut bench, other(), EffectiveFrom::Now);
    assert_eq!(
        bench.reply(1, vec![Part::text("x"), call("1", "a")], "tool_use"),
        [use_settings(other()), request(2, 1)]
    );
    assert_eq!(bench.sendable(), [Message::user("q")]);
}

#[test]
fn the_newest_settings_now_win_and_the_model_is_stopped_once() {
    let mut bench = Bench::asked();
    change(&mut bench, other(), EffectiveFrom::Now);
    let third = TurnSettings::new("gemini", "g");
    assert_eq!(change(&mut bench, third.clone(), EffectiveFrom::Now), []);
    assert_eq!(bench.fail(1, None), [use_settings(third), request(2, 1)]);
}

#[test]
fn settings_now_while_calls_run_let_them_finish() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a")], "tool_use");
    assert_eq!(
        change(&mut bench, other(), EffectiveFrom::Now),
        [use_settings(other())]
    );
    assert_eq!(bench.done("1"), [request(2, 2)]);
}

#[test]
fn settings_for_the_next_turn_wait_for_it() {
    let mut bench = Bench::asked();
    assert_eq!(change(&mut bench, other(), EffectiveFrom::NextTurn), []);
    bench.reply(1, vec![call("1", "a")], "tool_use");
    assert_eq!(bench.done("1"), [request(2, 2)]);
    assert_eq!(bench.reply(2, vec![], "end_turn"), [over("q")]);
    assert_eq!(bench.user("next"), [use_settings(other()), request(3, 1)]);
    // The entry stands before the turn that it is about.
    let at = |find: fn(&EntryBody) -> bool| bench.log.iter().rposition(|e| find(&e.body)).unwrap();
    assert!(
        at(|body| matches!(body, EntryBody::SettingsChanged { .. }))
            < at(|body| matches!(body, EntryBody::TurnStarted { .. }))
    );
}

#[test]
fn settings_for_the_next_turn_do_not_take_the_place_of_those_for_now() {
    let mut bench = Bench::asked();
    change(&mut bench, other(), EffectiveFrom::Now);
    let third = TurnSettings::new("gemini", "g");
    assert_eq!(
        change(&mut bench, third.clone(), EffectiveFrom::NextTurn),
        []
    );
    assert_eq!(bench.fail(1, None), [use_settings(other()), request(2, 1)]);
    bench.reply(2, vec![], "end_turn");
    assert_eq!(bench.user("next"), [use_settings(third), request(3, 1)]);
}

#[test]
fn without_a_turn_settings_hold_at_once() {
    let mut bench = Bench::new(settings());
    assert_eq!(
        change(&mut bench, other(), EffectiveFrom::NextTurn),
        [use_settings(other())]
    );
}

#[test]
fn a_new_table_is_used_from_the_next_step_on() {
    let mut bench = Bench::asked();
    assert_eq!(bench.input(TurnInput::Table(changed(2))), []);
    assert_eq!(
        bench.reply(1, vec![call("1", "a")], "tool_use"),
        [run("1", "a")]
    );
    bench.input(TurnInput::Table(changed(3)));
    assert_eq!(
        bench.done("1"),
        [HostAction::UseTable { version: 3 }, request(2, 2)]
    );
    let versions: Vec<u64> = bench
        .told
        .iter()
        .filter_map(|event| match event {
            Event::Round { table, .. } => Some(*table),
            _ => None,
        })
        .collect();
    assert_eq!(versions, [1, 3]);
    let written = |body: &EntryBody| matches!(body, EntryBody::TableChanged(_));
    assert_eq!(bench.log.iter().filter(|e| written(&e.body)).count(), 1);
}

#[test]
fn b14_a_paused_reply_is_continued_with_the_table_that_it_began_with() {
    let mut bench = Bench::asked();
    bench.input(TurnInput::Table(changed(2)));
    let actions = bench.reply(1, vec![server_use("x")], "pause_turn");
    assert_eq!(actions.last(), Some(&request(2, 1)));
    assert!(!actions.contains(&HostAction::UseTable { version: 2 }));
    bench.observed();
    bench.reply(2, vec![], "end_turn");
    assert_eq!(
        bench.user("next"),
        [HostAction::UseTable { version: 2 }, request(3, 1)]
    );
}

#[test]
fn changes_of_the_table_between_two_steps_are_one() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let first = TableChange {
        version: 2,
        added: names(&["new", "brief"]),
        removed: names(&["old", "back"]),
        changed: names(&["x", "old2"]),
        ..TableChange::default()
    };
    let second = TableChange {
        version: 3,
        added: names(&["back", "more"]),
        removed: names(&["brief", "old2"]),
        changed: names(&["new", "x"]),
        ..TableChange::default()
    };
    assert_eq!(
        first.followed_by(&second),
        TableChange {
            version: 3,
            added: names(&["new", "more"]),
            removed: names(&["old", "old2"]),
            changed: names(&["x", "back"]),
            ..TableChange::default()
        }
    );
}

#[test]
fn the_log_is_compacted_before_a_request_that_would_be_too_long() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(100),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    assert_eq!(
        bench.done("1"),
        [HostAction::Compact {
            after_refusal: false
        }]
    );
    let compacted = TurnInput::Compacted {
        visible_from: 3,
        summary: "so far".to_owned(),
        meta: Meta {
            usage: Usage {
                input: 60,
                output: 7,
                ..Usage::default()
            },
            ..meta()
        },
        tokens: 40,
    };
    assert_eq!(bench.input(compacted.clone()), [request(2, 2)]);
    // What it cost is a part of what the turn cost.
    assert_eq!(crate::log::turn_usage(&bench.log).total(), 110 + 67);
    assert_eq!(crate::log::fold(&bench.log).summary, Some("so far"));
    assert_eq!(bench.input(compacted), []);
    // Again when the log has grown again, also in another turn.
    bench.reply(2, vec![], "end_turn");
    assert_eq!(
        bench.user("next"),
        [HostAction::Compact {
            after_refusal: false
        }]
    );
}

/// A reply to a request of a thousand tokens.
fn long_reply(bench: &mut Bench, request: u64, parts: Vec<Part>, stop: &str) {
    let mut response = response(parts, stop);
    response.usage.input = 1_000;
    bench.input(TurnInput::ModelDone {
        request,
        response,
        meta: meta(),
    });
}

/// A thread with a summary, of which a reply says that most of its input is no part of the conversation.
fn mostly_fixed(full_at: Option<u64>) -> Bench {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(900),
        full_at,
        ..settings()
    });
    long_reply(&mut bench, 1, vec![call("1", "a")], "tool_use");
    assert_eq!(
        bench.done("1"),
        [HostAction::Compact {
            after_refusal: false
        }]
    );
    bench.input(TurnInput::Compacted {
        visible_from: 3,
        summary: "so far".to_owned(),
        meta: meta(),
        tokens: 25,
    });
    long_reply(&mut bench, 2, vec![Part::text("x")], "end_turn");
    bench
}

#[test]
fn a_summary_is_worth_its_price_only_where_it_can_take_something_away() {
    let mut bench = mostly_fixed(None);
    let mut again = Bench {
        machine: Machine::new(bench.machine.settings().clone(), 1, &bench.log),
        log: bench.log.clone(),
        told: Vec::new(),
        turn: bench.turn,
    };
    assert_eq!(bench.user("next"), [request(3, 1)]);
    assert_eq!(again.user("next"), [request(1, 1)]);
    long_reply(&mut bench, 3, vec![Part::text("x")], "end_turn");
    long_reply(&mut again, 1, vec![Part::text("x")], "end_turn");
    let compact = [HostAction::Compact {
        after_refusal: false,
    }];
    assert_eq!(bench.user(&"word ".repeat(600)), compact);
    // With other settings there may be less beside the conversation.
    again.input(TurnInput::Settings {
        settings: Box::new(bench.machine.settings().clone()),
        entry: note("other model"),
        when: EffectiveFrom::Now,
    });
    assert_eq!(again.user("later"), compact);
    // A window that is full does not wait.
    assert_eq!(mostly_fixed(Some(1_000)).user("next"), compact);
}

#[test]
fn a_failed_compaction_is_told_and_the_turn_goes_on_without() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(100),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    let failed = TurnInput::CompactionFailed {
        error: "no".to_owned(),
    };
    assert_eq!(bench.input(failed), [request(2, 2)]);
    assert!(bench.told.contains(&Event::Notice {
        text: "The conversation could not be summarised: no".to_owned()
    }));
    // Not again in this turn.
    bench.reply(2, vec![call("2", "a")], "tool_use");
    assert_eq!(bench.done("2"), [request(3, 3)]);
}

#[test]
fn a_summary_that_failed_is_made_again_when_more_was_said_or_settings_changed() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(100),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    bench.input(TurnInput::CompactionFailed {
        error: "no".to_owned(),
    });
    bench.reply(2, vec![], "end_turn");
    // The next turn has hardly more.
    assert_eq!(bench.user("next"), [request(3, 1)]);
    bench.reply(3, vec![], "end_turn");
    let reopened = |bench: &Bench| Bench {
        machine: Machine::new(bench.machine.settings().clone(), 1, &bench.log),
        log: bench.log.clone(),
        told: Vec::new(),
        turn: bench.turn,
    };
    let mut again = reopened(&bench);
    assert_eq!(again.user("later"), [request(1, 1)]);
    let mut changed = reopened(&bench);
    changed.input(TurnInput::Settings {
        settings: Box::new(bench.machine.settings().clone()),
        entry: note("other model"),
        when: EffectiveFrom::Now,
    });
    let mut changed_before = reopened(&changed);
    let compact = [HostAction::Compact {
        after_refusal: false,
    }];
    for bench in [&mut changed, &mut changed_before] {
        assert_eq!(bench.user("later"), compact);
    }
    assert_eq!(bench.user(&"word ".repeat(600)), compact);
}

#[test]
fn results_that_came_since_the_last_count_are_counted_too() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(1_000),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a"), call("2", "b")], "tool_use");
    assert_eq!(bench.ended("1", &"word ".repeat(600), CallEnd::Done), []);
    assert_eq!(
        bench.ended("2", &"word ".repeat(600), CallEnd::Done),
        [HostAction::Compact {
            after_refusal: false
        }]
    );
    // A machine for the thread as it stands knows as much.
    let again = Machine::new(bench.machine.settings().clone(), 1, &bench.log);
    assert_eq!(again.next_input(), bench.machine.next_input());
}

#[test]
fn a_conversation_that_the_provider_calls_too_long_is_compacted_and_asked_again_once() {
    let too_long = |request| TurnInput::ModelFailed {
        request,
        failure: ModelFailure {
            error: "It has too many tokens.".to_owned(),
            kind: "too_large".to_owned(),
        },
        partial: None,
    };
    let compacted = TurnInput::Compacted {
        visible_from: 2,
        summary: "so far".to_owned(),
        meta: meta(),
        tokens: 40,
    };
    let mut bench = Bench::asked();
    assert_eq!(
        bench.input(too_long(1)),
        [HostAction::Compact {
            after_refusal: true
        }]
    );
    assert_eq!(bench.input(compacted), [request(2, 1)]);
    assert_eq!(bench.errors(), [] as [&str; 0]);
    assert_eq!(bench.input(too_long(2)), [over("q")]);
    assert_eq!(bench.errors(), ["too_large"]);

    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::Never,
        ..settings()
    });
    assert_eq!(bench.input(too_long(1)), [over("q")]);
}

#[test]
fn what_a_person_unfolds_is_read_again() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(100),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    bench.input(TurnInput::Compacted {
        visible_from: 3,
        summary: "so far".to_owned(),
        meta: meta(),
        tokens: 40,
    });
    bench.reply(2, vec![], "end_turn");
    let seq = bench
        .log
        .iter()
        .find(|entry| matches!(entry.body, EntryBody::Compacted { .. }));
    let fold = seq.unwrap().seq;
    bench.told.clear();
    assert_eq!(bench.input(TurnInput::Unfold { fold, tokens: 60 }), []);
    let text =
        "The summary is taken back: the model now reads about 60 tokens of the conversation.";
    let text = text.to_owned();
    assert_eq!(bench.told, [Event::Notice { text }]);
    assert_eq!(crate::log::fold(&bench.log).summary, None);
    assert_eq!(bench.user("next"), [request(3, 1)]);
}

#[test]
fn a_reply_is_observed_as_its_makers_also_when_another_provider_is_next() {
    let mut bench = Bench::asked();
    bench.input(TurnInput::Settings {
        settings: Box::new(TurnSettings::new("openai", "gpt-5")),
        entry: note("other model"),
        when: EffectiveFrom::Now,
    });
    let actions = bench.fail(1, Some(vec![server_use("x")]));
    let by = actions.iter().find_map(|action| match action {
        HostAction::Observe {
            provider, model, ..
        } => Some((provider.as_str(), model.as_str())),
        _ => None,
    });
    assert_eq!(by, Some(("anthropic", "claude-test")));
    assert!(actions.contains(&request(2, 1)), "{actions:?}");
}
