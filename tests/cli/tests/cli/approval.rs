//! The decision about a call: by a rule, a person at the terminal, or nobody.

use conjure_kit::{Model, ProgramHandle};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::stage::{CACHE, asks, workspace};

const TOOL: &str = "cache-manager_execute";

fn set(value: &str) -> serde_json::Value {
    json!({ "command": format!("set k {value}") })
}

/// What the model got of a call.
fn got(model: &Model, id: &str) -> (String, bool) {
    let request = model.last_request();
    let is_error = request.tool_result(id).unwrap()["is_error"] == true;
    (request.tool_result_text(id).unwrap(), is_error)
}

#[test]
fn where_nobody_is_there_a_call_that_changes_something_is_denied_and_says_how_to_allow_it() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let message = Message::new().tool_use("toolu_1", TOOL, set("v")).tool_use(
        "toolu_2",
        "cache-manager_read",
        json!({ "path": "stats" }),
    );
    model.says(message);
    model.says(Message::new().text("I may not."));
    let output = asks(&workspace, &model, "run", "Go on.").run().unwrap();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "I may not.\n"),
        "{output:?}"
    );
    insta::assert_snapshot!(got(&model, "toolu_1").0, @"The call of `cache-manager_execute` on backend `native` was not run: a person would have to allow it (ask by default for a tool with effects `write`), and nobody is there to be asked. Whoever started this session can allow it with `--allow 'cache-manager_execute'`.");
    let (stats, is_error) = got(&model, "toolu_2");
    assert!(
        !is_error && stats.contains("\"entries\":0"),
        "reading needs no permission: {stats}"
    );
}

#[test]
fn patterns_allow_and_deny_and_deny_wins() {
    for (rules, runs) in [
        ("--allow cache-manager_execute", true),
        ("--allow cache-manager_*", true),
        ("--allow backend:native", true),
        ("--allow * --deny cache-manager_execute", false),
        ("--allow cache-manager_execute(get*)", false),
        ("--allow local_*", false),
        ("--ask * --allow cache-manager_execute", true),
    ] {
        let workspace = workspace(&[CACHE]);
        let model = Model::start().unwrap();
        model.calls("toolu_1", TOOL, set("v"));
        model.says(Message::new().text("Done."));
        asks(&workspace, &model, &format!("run {rules}"), "Go on.")
            .run()
            .unwrap();
        let (text, is_error) = got(&model, "toolu_1");
        assert_eq!(is_error, !runs, "{rules}: {text}");
    }
}

/// `conjure run` on a terminal, with two calls in two steps.
fn on_terminal(model: &Model, verb: &str) -> ProgramHandle {
    let workspace = workspace(&[CACHE]);
    model.calls("toolu_1", TOOL, set("one"));
    model.calls("toolu_2", TOOL, set("two"));
    model.says(Message::new().text("That is all."));
    let question = if verb == "run" { "Go on." } else { "" };
    asks(&workspace, model, verb, question)
        .on_terminal()
        .start()
        .unwrap()
}

/// Waits for the first question.
fn asked(running: &ProgramHandle) {
    running.wait_for_stdout("Allow it? y, s, a or n: ").unwrap();
}

#[test]
fn a_person_says_yes_to_each_call() {
    let model = Model::start().unwrap();
    let mut running = on_terminal(&model, "run");
    asked(&running);
    running.send_line("y").unwrap();
    running.wait_for_stdout("│ set k two\r\n").unwrap();
    running.send_line("yes").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(got(&model, "toolu_1"), ("stored".to_owned(), false));
    assert_eq!(got(&model, "toolu_2"), ("stored".to_owned(), false));
    let asked = output.stdout.matches("wants to run").count();
    assert_eq!(asked, 2, "{}", output.stdout);
}

#[test]
fn a_person_says_no_and_why() {
    let model = Model::start().unwrap();
    let mut running = on_terminal(&model, "run");
    asked(&running);
    running.send_line("n").unwrap();
    running
        .wait_for_stdout("Why not? The model reads it: ")
        .unwrap();
    running.send_line("").unwrap();
    running.wait_for_stdout("│ set k two\r\n").unwrap();
    running.send_line("no").unwrap();
    running
        .wait_until_stdout("the second reason", |out| {
            out.matches("Why not?").count() == 2
        })
        .unwrap();
    running.send_line("use the other cache").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let refused = |text: &str| (text.to_owned(), true);
    assert_eq!(
        got(&model, "toolu_1"),
        refused(
            "The call of `cache-manager_execute` on backend `native` was not run: the person did not \
             allow it. Do not call it again like this unless the person asks for it."
        )
    );
    assert_eq!(
        got(&model, "toolu_2"),
        refused(
            "The call of `cache-manager_execute` on backend `native` was not run: the person did not \
             allow it and said: use the other cache. Do not call it again like this unless the person \
             asks for it."
        )
    );
}

#[test]
fn what_is_no_answer_is_asked_about_again() {
    let model = Model::start().unwrap();
    let mut running = on_terminal(&model, "run");
    asked(&running);
    for (at, no_answer) in ["/help", "", "why", "ja"].into_iter().enumerate() {
        running.send_line(no_answer).unwrap();
        running
            .wait_until_stdout("the question again", |out| {
                out.matches("That is no answer: y, s, a or n.").count() == at + 1
                    && out.ends_with("Allow it? y, s, a or n: ")
            })
            .unwrap();
    }
    assert_eq!(model.requests().len(), 1, "nothing was decided");
    running.send_line("s").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(got(&model, "toolu_2"), ("stored".to_owned(), false));
    // The pattern holds for the second call.
    let asked = output.stdout.matches("wants to run").count();
    assert_eq!(asked, 1, "{}", output.stdout);
}

#[test]
fn of_two_calls_of_one_reply_the_one_that_a_new_rule_allows_is_not_asked_about() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    let both = Message::new()
        .tool_use("toolu_1", TOOL, set("one"))
        .tool_use("toolu_2", TOOL, set("two"));
    model.says(both);
    model.says(Message::new().text("That is all."));
    let mut running = asks(&workspace, &model, "run", "Go on.")
        .on_terminal()
        .start()
        .unwrap();
    asked(&running);
    running.send_line("s").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    for id in ["toolu_1", "toolu_2"] {
        assert_eq!(got(&model, id), ("stored".to_owned(), false), "{id}");
    }
    let asked = output.stdout.matches("wants to run").count();
    assert_eq!(asked, 1, "{}", output.stdout);
}

#[test]
fn always_writes_a_rule_and_shows_it() {
    let model = Model::start().unwrap();
    let workspace = workspace(&[CACHE]);
    for id in ["toolu_1", "toolu_2"] {
        model.calls(id, TOOL, set(id));
        model.says(Message::new().text("That is all."));
    }
    let run = || asks(&workspace, &model, "run", "Go on.").on_terminal();
    let mut running = run().start().unwrap();
    asked(&running);
    running.send_line("a").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let rule = "allow = [\"cache-manager_execute(set *)\"]";
    let shown = output.stdout.contains("Written to ") && output.stdout.contains(rule);
    assert!(shown, "{}", output.stdout);
    let output = run().start().unwrap().wait().unwrap();
    assert!(!output.stdout.contains("wants to run"), "{}", output.stdout);
    assert_eq!(got(&model, "toolu_2"), ("stored".to_owned(), false));
}

#[test]
fn a_chat_asks_too() {
    let model = Model::start().unwrap();
    let mut running = on_terminal(&model, "chat");
    running.wait_for_stdout("/help").unwrap();
    running.send_line("Go on.").unwrap();
    asked(&running);
    running.send_line("a").unwrap();
    running.wait_for_stdout("That is all.").unwrap();
    running.send_line("/quit").unwrap();
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(got(&model, "toolu_2"), ("stored".to_owned(), false));
}

#[test]
fn an_interrupt_at_the_question_ends_the_turn() {
    let model = Model::start().unwrap();
    let running = on_terminal(&model, "run");
    asked(&running);
    running.signal(conjure_kit::Signal::INT);
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(130), "{output:?}");
    assert_eq!(model.requests().len(), 1);
}
