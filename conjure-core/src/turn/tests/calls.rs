//! Calls: lanes, approval, results.

use super::*;

#[test]
fn h7_an_unknown_tool_is_an_error_result_and_the_others_run() {
    let mut bench = Bench::asked();
    let parts = vec![call("1", "a"), call("2", "gone"), call("3", "b")];
    assert_eq!(
        bench.reply(1, parts, "tool_use"),
        [run("1", "a"), run("3", "b")]
    );
    bench.done("3");
    assert_eq!(bench.done("1"), [request(2, 2)]);
    assert_eq!(
        bench.ends()[0],
        ("2", CallEnd::Refused, "There is no tool `gone`.".to_owned())
    );
    // In the order of the calls, whatever came first.
    let results = bench.sendable().pop().unwrap();
    let ids: Vec<&str> = results
        .content
        .iter()
        .map(|part| match &part.content {
            Content::FunctionCallOutput(output) => output.call_id.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, ["1", "2", "3"]);
}

#[test]
fn a_step_of_refused_calls_only_goes_straight_on() {
    let mut bench = Bench::asked();
    assert_eq!(
        bench.reply(1, vec![call("1", "gone")], "tool_use"),
        [request(2, 2)]
    );
}

#[test]
fn h9_lanes_run_beside_each_other_and_each_in_order() {
    let mut bench = Bench::asked();
    let parts = vec![
        call("1", "a1"),
        call("2", "a2"),
        call("3", "b1"),
        call("4", "free"),
        call("5", "a3"),
        call("6", "free"),
    ];
    assert_eq!(
        bench.reply(1, parts, "tool_use"),
        [
            run("1", "a1"),
            run("3", "b1"),
            run("4", "free"),
            run("6", "free")
        ]
    );
    assert_eq!(bench.done("3"), []);
    assert_eq!(bench.done("6"), []);
    assert_eq!(bench.done("1"), [run("2", "a2")]);
    assert_eq!(bench.done("4"), []);
    assert_eq!(bench.done("2"), [run("5", "a3")]);
    assert_eq!(bench.done("5"), [request(2, 2)]);
    bench.sendable();
}

#[test]
fn h8_one_call_times_out_and_the_others_keep_their_results() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a"), call("2", "b")], "tool_use");
    bench.done("2");
    assert_eq!(
        bench.ended("1", "took too long", CallEnd::TimedOut),
        [request(2, 2)]
    );
    assert_eq!(
        bench.ends(),
        [
            ("2", CallEnd::Done, "ok".to_owned()),
            ("1", CallEnd::TimedOut, "took too long".to_owned())
        ]
    );
}

#[test]
fn b5_malformed_arguments_are_an_error_result_that_shows_them() {
    let mut bench = Bench::asked();
    let mut bad = call("1", "a");
    let Content::FunctionCall(function_call) = &mut bad.content else {
        panic!("no call");
    };
    function_call.arguments_text = Some("{\"x\": ".to_owned());
    let mut array = call("2", "a");
    let Content::FunctionCall(function_call) = &mut array.content else {
        panic!("no call");
    };
    function_call.arguments = json!([1]);
    assert_eq!(
        bench.reply(1, vec![bad, array, call("3", "a")], "tool_use"),
        [run("3", "a")]
    );
    let ends = bench.ends();
    assert!(ends[0].2.contains("{\"x\":"), "{ends:?}");
    assert_eq!((ends[0].1, ends[1].1), (CallEnd::Refused, CallEnd::Refused));
}

#[test]
fn a_number_that_cannot_be_kept_refuses_its_call_and_says_what_to_do() {
    let too_long_for_any = format!("{{\"id\":{}}}", "123".repeat(110));
    for arguments in [
        "{\"id\":123456789012345678901}",
        // Pieces, as Gemini sends them.
        "[{\"jsonPath\":\"$.id\",\"numberValue\":123456789012345678901}]",
        &too_long_for_any,
    ] {
        let mut bench = Bench::asked();
        let mut bad = call("1", "a");
        let Content::FunctionCall(function_call) = &mut bad.content else {
            panic!("no call");
        };
        function_call.arguments_text = Some(arguments.to_owned());
        bench.reply(1, vec![bad], "tool_use");
        let ends = bench.ends();
        assert_eq!(ends[0].1, CallEnd::Refused);
        assert!(ends[0].2.contains("the number 123"), "{ends:?}");
        assert!(ends[0].2.contains("send it as a string"), "{ends:?}");
    }
}

#[test]
fn a_second_result_of_a_call_is_none() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a"), call("2", "b")], "tool_use");
    bench.done("1");
    assert_eq!(bench.ended("1", "again", CallEnd::Failed), []);
    assert_eq!(bench.done("unheard of"), []);
    assert_eq!(bench.ends(), [("1", CallEnd::Done, "ok".to_owned())]);
}

#[test]
fn a_result_of_a_call_that_does_not_run_yet_is_none() {
    let mut bench = Bench::asked();
    bench.reply(
        1,
        vec![call("1", "a"), call("2", "a"), call("3", "ask_b")],
        "tool_use",
    );
    assert_eq!(bench.done("2"), []);
    assert_eq!(bench.done("3"), []);
    assert_eq!(bench.ends(), []);
}

#[test]
fn w37_empty_and_repeated_ids_are_made_unique_in_the_thread() {
    let mut bench = Bench::asked();
    let actions = bench.reply(
        1,
        vec![
            call("", "free"),
            call("x", "free"),
            call("x", "free"),
            call("", "free"),
        ],
        "tool_use",
    );
    let ids = |actions: &[HostAction]| -> Vec<String> {
        actions
            .iter()
            .filter_map(|action| match action {
                HostAction::RunCall { call, .. } => Some(call.call_id.clone()),
                _ => None,
            })
            .collect()
    };
    assert_eq!(ids(&actions), ["call_1", "x", "x_1", "call_2"]);
    for id in ["call_1", "x", "x_1", "call_2"] {
        bench.done(id);
    }
    let actions = bench.reply(2, vec![call("x", "free")], "tool_use");
    assert_eq!(ids(&actions), ["x_2"]);
    bench.done("x_2");
    bench.sendable();
    // Also after the thread is opened again.
    let mut machine = Machine::new(settings(), 1, &bench.log);
    machine.handle(
        TurnInput::User {
            turn_id: "t".to_owned(),
            message: Message::user("q"),
        },
        &judge,
    );
    let actions = machine.handle(
        TurnInput::ModelDone {
            request: 1,
            response: response(vec![call("x", "free")], "tool_use"),
            meta: meta(),
        },
        &judge,
    );
    assert_eq!(ids(&actions), ["x_3"]);
}

#[test]
fn a_call_that_needs_a_person_waits_and_its_lane_waits_with_it() {
    let mut bench = Bench::asked();
    let parts = vec![
        call("1", "a"),
        call("2", "ask_a"),
        call("3", "a"),
        call("4", "b"),
    ];
    let Content::FunctionCall(asked) = call("2", "ask_a").content else {
        panic!("no call");
    };
    assert_eq!(
        bench.reply(1, parts, "tool_use"),
        [
            HostAction::AskPerson {
                call: asked,
                reason: "ask by default".to_owned()
            },
            run("1", "a"),
            run("4", "b"),
        ]
    );
    assert_eq!(bench.done("1"), []);
    assert_eq!(bench.done("4"), []);
    assert_eq!(
        bench.decide("2", ApprovalDecision::Allow),
        [run("2", "ask_a")]
    );
    assert_eq!(bench.decide("2", ApprovalDecision::Allow), []);
    assert_eq!(bench.done("2"), [run("3", "a")]);
    assert_eq!(bench.done("3"), [request(2, 2)]);
}

#[test]
fn an_allowed_call_waits_for_the_running_one_of_its_lane() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a"), call("2", "ask_a")], "tool_use");
    assert_eq!(bench.decide("2", ApprovalDecision::Allow), []);
    assert_eq!(bench.done("1"), [run("2", "ask_a")]);
}

#[test]
fn a_denied_call_has_its_result_and_its_lane_goes_on() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "ask_a"), call("2", "a")], "tool_use");
    let deny = |reason: &str| ApprovalDecision::Deny {
        reason: reason.to_owned(),
    };
    assert_eq!(bench.decide("1", deny("Not today.")), [run("2", "a")]);
    assert_eq!(bench.decide("1", ApprovalDecision::Allow), []);
    assert_eq!(
        bench.ends(),
        [(
            "1",
            CallEnd::Refused,
            "The call of `ask_a` on backend `backend` was not run: the person did not allow it and \
             said: Not today. Do not call it again like this unless the person asks for it."
                .to_owned()
        )]
    );
    assert_eq!(bench.done("2"), [request(2, 2)]);

    bench.reply(2, vec![call("3", "ask_b")], "tool_use");
    assert_eq!(bench.decide("3", deny(" ")), [request(3, 3)]);
    assert!(bench.ends()[2].2.contains("did not allow"));
    bench.sendable();
}

#[test]
fn what_is_told_about_a_call_comes_in_order() {
    let mut bench = Bench::asked();
    bench.reply(1, vec![call("1", "a")], "tool_use");
    bench.done("1");
    let kinds: Vec<String> = bench
        .told
        .iter()
        .map(|event| {
            serde_json::to_value(event).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "turn_started",
            "round",
            "usage",
            "function_call",
            "call_started",
            "function_call_output",
            "round"
        ]
    );
}
