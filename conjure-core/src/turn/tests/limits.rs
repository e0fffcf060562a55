//! Limits: a turn ends, with a word for programs, and leaves nothing open.

use super::*;
use crate::log::Spending;

fn is_limit(bench: &Bench, name: &str, value: u64) {
    assert_eq!(
        bench.outcomes(),
        [&TurnOutcome::Limit {
            limit: name.to_owned(),
            value
        }]
    );
    assert_eq!(bench.errors(), [name]);
    bench.sendable();
}

fn budget(budget: TurnBudget) -> TurnSettings {
    TurnSettings {
        budget,
        ..settings()
    }
}

#[test]
fn p8_two_iterations_are_two_model_calls_and_then_a_typed_limit() {
    let mut bench = Bench::asked_with(TurnSettings {
        max_iterations: 2,
        ..settings()
    });
    bench.reply(1, vec![call("1", "a")], "tool_use");
    assert_eq!(bench.done("1"), [request(2, 2)]);
    assert_eq!(
        bench.reply(2, vec![call("2", "a")], "tool_use"),
        [over("q")]
    );
    assert_eq!(
        bench.ends()[1],
        (
            "2",
            CallEnd::Refused,
            "The call of `a`, which came to no backend, was not run: the limit `max_iterations` = 2 \
              is reached. Say what is done and what is left, so that the person can go on."
                .to_owned()
        )
    );
    is_limit(&bench, "max_iterations", 2);
}

#[test]
fn the_last_iteration_may_give_the_answer() {
    let mut bench = Bench::asked_with(TurnSettings {
        max_iterations: 1,
        ..settings()
    });
    bench.reply(1, vec![Part::text("x")], "end_turn");
    assert_eq!(bench.outcomes(), [&TurnOutcome::Completed]);
}

#[test]
fn a_budget_of_calls_refuses_the_step_that_would_break_it() {
    let mut bench = Bench::asked_with(budget(TurnBudget {
        calls: Some(2),
        ..TurnBudget::default()
    }));
    bench.reply(1, vec![call("1", "a"), call("x", "gone")], "tool_use");
    bench.done("1");
    bench.reply(2, vec![call("2", "a"), call("3", "a")], "tool_use");
    is_limit(&bench, "calls", 2);
}

#[test]
fn a_budget_of_tokens_ends_a_turn_that_wants_calls_or_pauses() {
    for (parts, stop) in [
        (vec![call("1", "a")], "tool_use"),
        (vec![server_use("x")], "pause_turn"),
    ] {
        let mut bench = Bench::asked_with(budget(TurnBudget {
            tokens: Some(110),
            ..TurnBudget::default()
        }));
        bench.reply(1, parts, stop);
        bench.observed();
        is_limit(&bench, "tokens", 110);
    }
}

#[test]
fn the_wall_time_stops_what_runs() {
    let out_of_time = || TurnInput::Exhausted {
        limit: "wall_time_ms".to_owned(),
        value: 1000,
    };
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a"), call("2", "a")], "tool_use");
    assert_eq!(
        bench.input(out_of_time()),
        [HostAction::StopCall {
            call_id: "1".to_owned()
        }]
    );
    // A cancel in between changes nothing any more.
    assert_eq!(bench.cancel(), []);
    assert_eq!(bench.ended("1", "stopped", CallEnd::Cancelled), [over("q")]);
    is_limit(&bench, "wall_time_ms", 1000);
    assert_eq!(bench.input(out_of_time()), []);
}

#[test]
fn what_plugins_ask_the_model_counts_in_the_budget() {
    let mut bench = Bench::asked_with(budget(TurnBudget {
        tokens: Some(250),
        ..TurnBudget::default()
    }));
    bench.reply(1, vec![call("1", "a")], "tool_use");
    let sampled = Meta {
        usage: Usage {
            input: 100,
            ..Usage::default()
        },
        ..meta()
    };
    bench.input(TurnInput::Spent {
        purpose: Spending::Sample {
            plugin: "p".to_owned(),
        },
        meta: sampled,
    });
    bench.done("1");
    assert_eq!(
        bench.reply(2, vec![call("2", "a")], "tool_use").last(),
        Some(&over("q"))
    );
    is_limit(&bench, "tokens", 250);
}
