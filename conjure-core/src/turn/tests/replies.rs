//! Replies: what ends a turn, what goes on, what is kept.

use super::*;
use crate::log::Spending;

#[test]
fn a_turn_of_one_reply() {
    let mut bench = Bench::asked();
    assert_eq!(
        bench.reply(1, vec![Part::text("hello")], "end_turn"),
        [over("q")]
    );
    assert!(!bench.machine.is_busy());
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
    assert_eq!(
        *bench.done_event(),
        Event::Done {
            turn_id: "turn-q".to_owned(),
            outcome: "completed".to_owned(),
            stop_reason: Some("end_turn".to_owned()),
            text: "hello".to_owned(),
        }
    );
    assert_eq!(
        bench.sendable().len(),
        3,
        "the last is for the model to go on"
    );
}

#[test]
fn p7_a_native_round_trip_is_four_messages_and_a_failing_tool_is_an_error() {
    for end in [CallEnd::Done, CallEnd::Failed] {
        let mut bench = Bench::asked();
        assert_eq!(
            bench.reply(1, vec![call("1", "a")], "tool_use"),
            [run("1", "a")]
        );
        assert_eq!(bench.ended("1", "result", end), [request(2, 2)]);
        assert_eq!(
            bench.reply(2, vec![Part::text("done")], "end_turn"),
            [over("q")]
        );
        let messages = messages(&bench.log);
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        assert_eq!(
            roles,
            [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
        );
        assert_eq!(
            messages[2].content,
            [Content::FunctionCallOutput(FunctionCallOutput::text(
                "1",
                "result",
                end == CallEnd::Failed
            ))
            .into()]
        );
    }
}

#[test]
fn w08_a_last_reply_without_content_keeps_the_text_before_it() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![Part::text("text"), call("1", "a")], "tool_use");
    bench.done("1");
    bench.reply(2, vec![], "end_turn");
    assert!(matches!(bench.done_event(), Event::Done { text, .. } if text == "text"));
    assert_eq!(messages(&bench.log).len(), 3);
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
}

#[test]
fn b13_the_stop_reason_is_the_providers() {
    for (stop, outcome) in [
        ("end_turn", TurnOutcome::Completed),
        ("something_new", TurnOutcome::Completed),
        ("max_tokens", TurnOutcome::CutShort),
        ("refusal", TurnOutcome::CutShort),
    ] {
        let mut bench = Bench::asked();
        bench.reply(1, vec![Part::text("text")], stop);
        assert_eq!(bench.outcomes(), [&outcome]);
        let said = &messages(&bench.log)[1];
        let kept = said.meta.as_ref().unwrap().stop_reason.as_deref();
        assert_eq!(kept, Some(stop));
        assert!(matches!(bench.done_event(), Event::Done { stop_reason, .. }
                if stop_reason.as_deref() == Some(stop)));
    }
}

#[test]
fn w58_calls_of_a_reply_that_was_cut_short_never_run() {
    for stop in ["max_tokens", "refusal"] {
        let mut bench = Bench::asked();
        let parts = vec![Part::text("I call"), call("1", "a"), call("2", "free")];
        assert_eq!(bench.reply(1, parts, stop), [over("q")]);
        let ends: Vec<CallEnd> = bench.ends().into_iter().map(|(_, end, _)| end).collect();
        assert_eq!(ends, [CallEnd::Refused, CallEnd::Refused]);
        assert_eq!(bench.outcomes(), [&TurnOutcome::CutShort]);
        bench.sendable();
    }
}

#[test]
fn b14_a_pause_never_ends_a_turn() {
    let mut bench = Bench::asked();
    assert_eq!(
        bench.reply(1, vec![server_use("x")], "pause_turn"),
        [
            HostAction::Observe {
                provider: "anthropic".to_owned(),
                model: "claude-test".to_owned(),
                server_items: vec![json!({"type": "server_tool_use", "id": "x"})],
                fields: Map::new(),
            },
            request(2, 1),
        ]
    );
    // What is sent ends with the reply as it came.
    let last = bench.sendable().pop().unwrap();
    assert_eq!(
        (last.role, last.content),
        (Role::Assistant, vec![server_use("x")])
    );
    assert_eq!(bench.observed(), []);
    assert_eq!(
        bench.reply(2, vec![Part::text("done")], "end_turn"),
        [over("q")]
    );
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
}

#[test]
fn a_turn_ends_when_the_backends_have_seen_its_replies() {
    let last = || vec![server_use("x"), Part::text("done")];
    let mut bench = Bench::asked();
    bench.reply(1, vec![server_use("x")], "pause_turn");
    assert!(matches!(
        bench.reply(2, last(), "end_turn")[..],
        [HostAction::Observe { .. }]
    ));
    assert_eq!(bench.observed(), []);
    assert_eq!(bench.user("more"), []);
    assert_eq!(bench.observed(), [over("q"), request(3, 1)]);

    // Whoever does not want to wait for them has the answer, and they are no business of the next
    // turn's.
    let mut bench = Bench::asked();
    bench.reply(1, last(), "end_turn");
    bench.user("more");
    assert_eq!(bench.cancel(), [over("q"), request(2, 1)]);
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
    assert_eq!(bench.observed(), []);
    assert_eq!(
        bench.reply(2, vec![Part::text("done")], "end_turn"),
        [over("more")]
    );
    bench.sendable();
}

#[test]
fn p11_pauses_are_continued_up_to_the_cap() {
    let mut bench = Bench::asked();
    for pause in 1..=10 {
        let actions = bench.reply(pause, vec![server_use("x")], "pause_turn");
        assert_eq!(
            actions.last(),
            Some(&request(pause + 1, 1)),
            "pause {pause}"
        );
        bench.observed();
    }
    bench.reply(11, vec![server_use("x")], "pause_turn");
    assert_eq!(bench.observed(), [over("q")]);
    assert_eq!(
        bench.outcomes(),
        [&TurnOutcome::Limit {
            limit: "max_pauses".to_owned(),
            value: 10
        }]
    );
    bench.user("next");
    bench.sendable();
}

#[test]
fn a_reply_with_calls_is_not_a_pause_whatever_it_says() {
    let mut bench = Bench::asked();
    let actions = bench.reply(1, vec![server_use("x"), call("1", "a")], "pause_turn");
    assert_eq!(actions.last(), Some(&run("1", "a")));
    assert_eq!(bench.done("1"), [request(2, 2)]);
}

#[test]
fn a_failed_request_ends_the_turn_and_keeps_what_came() {
    let mut bench = Bench::asked();
    assert_eq!(
        bench.fail(1, Some(vec![Part::text("Hal"), call("1", "a")])),
        [over("q")]
    );
    assert_eq!(bench.errors(), ["network"]);
    assert_eq!(
        bench.outcomes(),
        [&TurnOutcome::Failed {
            error: "The line is dead.".to_owned(),
            kind: "network".to_owned()
        }]
    );
    let said = &messages(&bench.log)[1];
    assert_eq!(said.text(), "Hal");
    assert!(said.meta.as_ref().unwrap().partial);
    assert_eq!(bench.ends()[0].1, CallEnd::Refused);
    bench.user("next");
    bench.sendable();
}

#[test]
fn w39_a_reply_that_just_stops_is_a_failure_with_what_came() {
    let mut bench = Bench::asked();
    bench.input(TurnInput::ModelDone {
        request: 1,
        response: Response {
            complete: false,
            ..response(vec![Part::text("Hal")], "end_turn")
        },
        meta: meta(),
    });
    assert_eq!(bench.errors(), ["cut"]);
    assert!(messages(&bench.log)[1].meta.as_ref().unwrap().partial);
}

#[test]
fn b27_an_error_keeps_the_history_so_far() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    bench.fail(2, None);
    assert_eq!(messages(&bench.log).len(), 3);
    assert_eq!(bench.user("again"), [request(3, 1)]);
    assert_eq!(bench.sendable().len(), 4);
}

#[test]
fn a_reply_to_another_request_is_not_looked_at() {
    let mut bench = Bench::asked();
    assert_eq!(bench.reply(7, vec![Part::text("late")], "end_turn"), []);
    assert_eq!(bench.fail(7, None), []);
    assert!(bench.machine.is_busy());
    bench.reply(1, vec![], "end_turn");
    let written = bench.log.len();
    assert_eq!(bench.reply(1, vec![Part::text("twice")], "end_turn"), []);
    assert_eq!(bench.log.len(), written);
}

#[test]
fn usage_of_a_turn_is_the_sum_of_its_rounds() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    bench.reply(2, vec![Part::text("x")], "end_turn");
    let usage = Usage {
        input: 200,
        output: 20,
        ..Usage::default()
    };
    assert!(matches!(
        &bench.log.last().unwrap().body,
        EntryBody::TurnEnded { usage: sum, .. } if *sum == usage
    ));
    assert_eq!(crate::log::turn_usage(&bench.log), usage);
}

#[test]
fn a_reply_that_says_nothing_is_paid_for_in_the_log() {
    for (stop, outcome) in [
        ("end_turn", TurnOutcome::Completed),
        ("max_tokens", TurnOutcome::CutShort),
    ] {
        let mut bench = Bench::asked();
        assert_eq!(bench.reply(1, vec![], stop), [over("q")]);
        let spent = EntryBody::Spent {
            on: Spending::Reply,
            meta: Meta {
                usage: response(vec![], stop).usage,
                stop_reason: Some(stop.to_owned()),
                ..meta()
            },
        };
        assert_eq!(bench.log[2].body, spent);
        assert_eq!(crate::log::turn_usage(&bench.log).total(), 110);
        assert_eq!(bench.outcomes(), [&outcome]);
        assert_eq!(messages(&bench.log), [Message::user("q")]);
    }
}

#[test]
fn what_came_of_a_failed_reply_without_content_is_paid_for_in_the_log() {
    let mut bench = Bench::asked();
    bench.fail(1, Some(vec![]));
    let Some(meta) = bench.log[2].body.meta() else {
        panic!("{:?}", bench.log[2]);
    };
    assert!(meta.partial);
    assert_eq!(crate::log::turn_usage(&bench.log).total(), 110);
}

#[test]
fn follow_ups_wait_and_run_in_order() {
    let mut bench = Bench::asked();
    assert_eq!(bench.user("second"), []);
    assert_eq!(bench.user("third"), []);
    assert_eq!(bench.machine.queued(), 2);
    assert_eq!(
        bench.reply(1, vec![Part::text("1")], "end_turn"),
        [over("q"), request(2, 1)]
    );
    assert_eq!(
        bench.reply(2, vec![Part::text("2")], "end_turn"),
        [over("second"), request(3, 1)]
    );
    assert_eq!(
        bench.reply(3, vec![Part::text("3")], "end_turn"),
        [over("third")]
    );
    let said: Vec<String> = messages(&bench.log).iter().map(Message::text).collect();
    assert_eq!(said, ["q", "1", "second", "2", "third", "3"]);
}
