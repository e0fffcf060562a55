//! Entries of threads: numbered, named by their text, summarised on demand, and read again.

use conjure_kit::{Model, Workspace};
use conjure_mock_llm::Message;
use serde_json::Value;

use crate::session::{asks, done, ok, show, stage};
use crate::stage::{conjure, json as parsed};

fn create(workspace: &Workspace) {
    done(
        workspace,
        "session create work --auth claude --model claude-sonnet-4-5",
    );
}

fn says(model: &Model, workspace: &Workspace, question: &str, answer: &str) {
    model.says(Message::new().text(answer));
    ok(asks(workspace, &["--session", "work"], question));
}

fn thread(workspace: &Workspace) -> String {
    let thread = show(workspace, "work")["thread"]["id"].take();
    thread.as_str().unwrap().to_owned()
}

#[test]
fn a_fork_begins_at_a_number_or_at_a_text_that_only_one_entry_has() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    says(&model, &workspace, "Light the lamp", "It is lit.");
    says(&model, &workspace, "Put the lamp out", "It is dark.");
    let id = thread(&workspace);
    let shown = done(&workspace, &format!("thread show {id}")).stdout;
    let number = |text: &str| -> u64 {
        let line = shown.lines().find(|line| line.contains(text)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let lit = number("It is lit.");
    for at in [lit.to_string(), "is lit".to_owned()] {
        let args = ["thread", "fork", &id, "--at", &at, "--json"];
        let forked = parsed(&ok(conjure_kit::cli(args).workspace(&workspace)));
        assert_eq!(forked["fork_from_seq"], lit, "{forked}");
    }
    let several = ["session", "fork", "work", "--at", "lamp"];
    let several = conjure_kit::cli(several)
        .workspace(&workspace)
        .run()
        .unwrap();
    assert_eq!(several.code, Some(2));
    let named = format!("{}  Put the lamp out", number("Put the lamp out"));
    assert!(several.stderr.contains(&named), "{several:?}");
}

#[test]
fn a_thread_with_little_in_it_has_a_name_and_a_cleared_one_counts_from_zero() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    says(&model, &workspace, "hi", "Hello!");
    let view = show(&workspace, "work");
    assert_eq!(view["thread"]["label"], "Hi");
    assert_eq!(view["thread"]["turns"], 1);
    done(
        &workspace,
        &format!("thread clear {} --yes", thread(&workspace)),
    );
    let cleared = show(&workspace, "work")["thread"].take();
    assert_eq!(
        (&cleared["turns"], &cleared["replies"]),
        (&0.into(), &0.into())
    );
    assert_eq!(cleared["usage"]["input"], 0);
    says(&model, &workspace, "hi again", "Hello again!");
    assert_eq!(show(&workspace, "work")["thread"]["turns"], 1);
}

#[test]
fn a_limit_is_told_as_it_was_set() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tools = workspace
        .write("tools.toml", "[budget]\nthread = { tokens = 1 }\n")
        .unwrap();
    let create = format!(
        "session create work --auth claude --model claude-sonnet-4-5 --tools {}",
        tools.display()
    );
    done(&workspace, &create);
    says(&model, &workspace, "One", "First.");
    let over = asks(&workspace, &["--session", "work"], "Two")
        .run()
        .unwrap();
    assert_eq!(over.code, Some(4), "{over:?}");
    assert!(
        over.stderr.contains("`budget.thread.tokens` = 1"),
        "{over:?}"
    );
}

#[test]
fn a_summary_on_demand_stands_until_it_is_taken_back_for_good() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tools = workspace
        .write("tools.toml", "compact_at = 40000\n")
        .unwrap();
    let create = format!(
        "session create work --auth claude --model claude-sonnet-4-5 --tools {}",
        tools.display()
    );
    done(&workspace, &create);
    let long = "word ".repeat(30_000);
    model.says(Message::new().text("Read."));
    ok(conjure(&workspace, "run --session work").stdin(long.as_bytes()));
    says(&model, &workspace, "And now?", "Now this.");
    let id = thread(&workspace);
    model.says(Message::new().text("A summary of words."));
    let compacted = parsed(&done(&workspace, &format!("thread compact {id} --json")));
    assert!(compacted["compacted"].as_u64() > Some(0), "{compacted}");
    says(&model, &workspace, "Go on", "On.");
    let asked = model.last_request().body.to_string();
    assert!(asked.contains("A summary of words.") && !asked.contains(&long));
    // Taken back it stays so, however long the conversation is.
    done(&workspace, &format!("thread unfold {id}"));
    for question in ["Go on", "And on"] {
        says(&model, &workspace, question, "On.");
        let asked = model.last_request().body.to_string();
        assert!(asked.contains(&long), "{question}");
    }
    let nothing = conjure(&workspace, "session set work --tools few.toml");
    workspace.write("few.toml", "compact_at = 500\n").unwrap();
    let nothing = nothing.run().unwrap();
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("can never apply"), "{nothing:?}");
}

#[test]
fn a_turns_cost_is_told_on_average_of_all_and_of_the_newest() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    create(&workspace);
    for question in ["One", "Two", "Three"] {
        says(&model, &workspace, question, "Yes.");
    }
    let cost = format!("thread cost {} --last 2 --json", thread(&workspace));
    let cost: Value = parsed(&done(&workspace, &cost));
    assert_eq!(cost["average"]["all"]["turns"], 3);
    assert_eq!(cost["average"]["newest"]["turns"], 2);
    assert!(
        cost["average"]["newest"]["tokens"].as_u64() > Some(0),
        "{cost}"
    );
}
