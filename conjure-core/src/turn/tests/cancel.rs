//! Cancelling: in every phase it stops what runs, keeps what came and leaves a history that can
//! be sent.

use super::*;

fn is_cancelled(bench: &Bench) {
    assert_eq!(bench.outcomes(), [&TurnOutcome::Cancelled]);
    assert!(!bench.machine.is_busy());
}

#[test]
fn while_the_model_speaks_the_partial_text_is_kept() {
    let mut bench = Bench::asked();
    assert_eq!(bench.cancel(), [HostAction::StopModel { request: 1 }]);
    assert_eq!(bench.cancel(), []);
    assert_eq!(bench.fail(1, Some(vec![Part::text("Hal")])), [over("q")]);
    is_cancelled(&bench);
    assert_eq!(bench.errors(), [] as [&str; 0]);
    let said = &messages(&bench.log)[1];
    assert_eq!(said.text(), "Hal");
    assert!(said.meta.as_ref().unwrap().partial);
    bench.user("next");
    bench.sendable();
}

#[test]
fn going_on_begins_a_turn_without_a_message() {
    let mut bench = Bench::asked();
    bench.cancel();
    bench.fail(1, Some(vec![Part::text("Hal")]));
    let actions = bench.input(TurnInput::Continue {
        turn_id: "again".to_owned(),
    });
    assert_eq!(
        actions,
        [HostAction::Request {
            request: 2,
            round: 1
        }]
    );
    let said: Vec<String> = messages(&bench.log).iter().map(Message::text).collect();
    assert_eq!(said, ["q", "Hal"], "nothing is said for the person");
    bench.reply(2, vec![Part::text("lo")], "end_turn");
    bench.observed();
    assert_eq!(bench.outcomes().len(), 2);
    bench.sendable();
}

#[test]
fn a_reply_that_was_whole_by_then_is_kept_and_its_calls_do_not_run() {
    let mut bench = Bench::asked();
    bench.cancel();
    assert_eq!(
        bench.reply(1, vec![Part::text("x"), call("1", "a")], "tool_use"),
        [over("q")]
    );
    assert_eq!(bench.ends()[0].1, CallEnd::Refused);
    is_cancelled(&bench);
    bench.sendable();
}

#[test]
fn while_calls_run_they_are_stopped_and_those_that_wait_never_run() {
    let mut bench = Bench::asked();
    let parts = vec![
        call("1", "a"),
        call("2", "a"),
        call("3", "ask_b"),
        call("4", "free"),
        call("5", "free"),
    ];
    bench.reply(1, parts, "tool_use");
    bench.done("5");
    assert_eq!(
        bench.cancel(),
        [
            HostAction::WithdrawApproval {
                call_id: "3".to_owned()
            },
            HostAction::StopCall {
                call_id: "1".to_owned()
            },
            HostAction::StopCall {
                call_id: "4".to_owned()
            },
        ]
    );
    // Too late to decide.
    assert_eq!(bench.decide("3", ApprovalDecision::Allow), []);
    assert_eq!(bench.ended("4", "stopped", CallEnd::Cancelled), []);
    assert_eq!(bench.done("1"), [over("q")]);
    let ends: Vec<(&str, CallEnd)> = bench
        .ends()
        .into_iter()
        .map(|(id, end, _)| (id, end))
        .collect();
    assert_eq!(
        ends,
        [
            ("5", CallEnd::Done),
            ("2", CallEnd::Cancelled),
            ("3", CallEnd::Cancelled),
            ("4", CallEnd::Cancelled),
            ("1", CallEnd::Done),
        ]
    );
    is_cancelled(&bench);
    bench.user("next");
    bench.sendable();
}

#[test]
fn while_only_a_person_is_asked_it_is_over_at_once() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "ask_a")], "tool_use");
    assert_eq!(
        bench.cancel(),
        [
            HostAction::WithdrawApproval {
                call_id: "1".to_owned()
            },
            over("q")
        ]
    );
    is_cancelled(&bench);
}

#[test]
fn while_the_log_is_compacted_it_is_over_at_once() {
    let mut bench = Bench::asked_with(TurnSettings {
        compaction: CompactionTrigger::At(50),
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    assert_eq!(
        bench.done("1"),
        [HostAction::Compact {
            after_refusal: false
        }]
    );
    assert_eq!(bench.cancel(), [HostAction::StopCompaction, over("q")]);
    is_cancelled(&bench);
    let late = TurnInput::Compacted {
        visible_from: 1,
        summary: "s".to_owned(),
        meta: meta(),
        tokens: 5,
    };
    assert_eq!(bench.input(late), []);
}

#[test]
fn a_cancel_wins_over_settings_that_wait_for_the_same_reply() {
    let mut bench = Bench::asked();
    let other = TurnSettings::new("openai", "gpt-5");
    bench.input(TurnInput::Settings {
        settings: Box::new(other.clone()),
        entry: note("other model"),
        when: EffectiveFrom::Now,
    });
    bench.cancel();
    assert_eq!(
        bench.fail(1, None),
        [HostAction::UseSettings(Box::new(other.clone())), over("q")]
    );
    is_cancelled(&bench);
    assert_eq!(*bench.machine.settings(), other);
}

#[test]
fn follow_ups_run_after_a_cancel_or_are_dropped_on_request() {
    let mut bench = Bench::asked();
    bench.user("second");
    bench.cancel();
    assert_eq!(bench.fail(1, None), [over("q"), request(2, 1)]);

    bench.user("third");
    bench.input(TurnInput::Cancel { drop_queued: true });
    assert_eq!(bench.machine.queued(), 0);
    assert_eq!(bench.fail(2, None), [over("second")]);
    assert!(bench.told.contains(&Event::Notice {
        text: "1 waiting message(s) dropped.".to_owned()
    }));
}

#[test]
fn without_a_turn_there_is_nothing_to_cancel() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.cancel(), []);
    assert_eq!(bench.log, []);
}
