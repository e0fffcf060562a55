//! `conjure thread` and `conjure db`: what is kept, and what can be done with it.

use conjure_kit::{Model, Output, Workspace, cli, thread_ids, thread_log};
use conjure_mock_llm::Message;
use serde_json::Value;

fn conjure(workspace: &Workspace, args: &[&str]) -> Output {
    cli(args).workspace(workspace).run().unwrap()
}

fn done(workspace: &Workspace, args: &[&str]) -> String {
    let output = conjure(workspace, args);
    assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
    output.stdout
}

fn json(workspace: &Workspace, args: &[&str]) -> Value {
    serde_json::from_str(&done(workspace, &[args, &["--json"]].concat())).unwrap()
}

fn ask(workspace: &Workspace, model: &Model, more: &[&str], answer: &str) -> Output {
    model.says(Message::new().text(answer));
    let args = ["run", "--provider", "anthropic", "--model", "m"];
    let args = [&args, more].concat();
    let output = cli(args).workspace(workspace).model(model).run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    output
}

/// A workspace with one thread of two turns.
fn talked(model: &Model) -> (Workspace, String) {
    let workspace = Workspace::new().unwrap();
    ask(&workspace, model, &["Name a river."], "The Rhone.");
    let thread = thread_ids(&workspace).unwrap().swap_remove(0);
    ask(
        &workspace,
        model,
        &["--thread", &thread, "And a lake?"],
        "Lake Annecy.",
    );
    (workspace, thread)
}

#[test]
fn threads_are_listed_named_and_forked_and_both_branches_go_on() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    done(&workspace, &["thread", "rename", &thread, "Waters"]);
    let log = thread_log(&workspace, &thread).unwrap();
    let first_turn = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|record| record["entry"]["entry"] == "turn_ended")
        .unwrap()["entry"]["seq"]
        .clone();
    let at = first_turn.to_string();
    let fork = json(
        &workspace,
        &[
            "thread",
            "fork",
            &thread,
            "--at",
            &at,
            "--name",
            "Mountains",
        ],
    );
    let fork = fork["id"].as_str().unwrap().to_owned();
    ask(
        &workspace,
        &model,
        &["--thread", &fork, "And a mountain?"],
        "Mont Blanc.",
    );
    let told = model.last_request().body["messages"].to_string();
    assert!(
        told.contains("The Rhone.") && !told.contains("Annecy"),
        "{told}"
    );
    ask(
        &workspace,
        &model,
        &["--thread", &thread, "Which is deeper?"],
        "The lake.",
    );
    let told = model.last_request().body["messages"].to_string();
    assert!(
        told.contains("Lake Annecy.") && !told.contains("Blanc"),
        "{told}"
    );

    let listed = json(&workspace, &["thread", "list"]);
    let of = |id: &str| {
        let threads = listed["threads"].as_array().unwrap();
        threads.iter().find(|it| it["id"] == id).unwrap().clone()
    };
    assert_eq!(of(&thread)["label"], "Waters");
    assert_eq!(of(&thread)["turns"], 3);
    assert_eq!(of(&fork)["label"], "Mountains");
    assert_eq!(of(&fork)["parent_thread_id"], thread.as_str());
    assert_eq!(of(&fork)["fork_from_seq"], first_turn);
    assert_eq!(of(&fork)["turns"], 2);
    let shown = done(&workspace, &["thread", "list"]);
    assert!(
        shown.contains("Waters") && shown.contains("Mountains"),
        "{shown}"
    );

    let no_entry = conjure(&workspace, &["thread", "fork", &thread, "--at", "999"]);
    assert_eq!(no_entry.code, Some(2));
    assert!(no_entry.stderr.contains("999"), "{no_entry:?}");
}

#[test]
fn a_thread_is_named_after_what_is_said_in_it_and_a_name_of_ones_own_stays() {
    let model = Model::start().unwrap();
    let workspace = Workspace::new().unwrap();
    let labels = || {
        let listed = json(&workspace, &["thread", "list"]);
        let threads = listed["threads"].as_array().unwrap();
        let labels = threads
            .iter()
            .map(|it| it["label"].as_str().unwrap().to_owned());
        labels.collect::<Vec<_>>()
    };
    ask(&workspace, &model, &["Hi."], "Hello.");
    assert_eq!(labels(), ["Hi"]);
    let question = "Sort the invoices by date, my token is sk-aaaaaaaaaaaaaaaaaaaa";
    ask(&workspace, &model, &[question], "Done.");
    assert_eq!(labels(), ["Sort Invoices Date Token", "Hi"]);
    let thread = thread_ids(&workspace).unwrap().into_iter().max().unwrap();
    ask(&workspace, &model, &[question], "Done.");
    assert_eq!(
        labels(),
        [
            "Sort Invoices Date Token 2",
            "Sort Invoices Date Token",
            "Hi"
        ]
    );
    done(&workspace, &["thread", "rename", &thread, "Mine"]);
    ask(
        &workspace,
        &model,
        &["--thread", &thread, "Print all pages twice"],
        "Done.",
    );
    assert_eq!(labels(), ["Sort Invoices Date Token 2", "Mine", "Hi"]);
}

#[test]
fn clearing_asks_names_the_forks_and_leaves_them_what_they_show() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let fork = json(&workspace, &["thread", "fork", &thread]);
    let fork = fork["id"].as_str().unwrap().to_owned();
    let nobody = conjure(&workspace, &["thread", "clear", &thread]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.stderr.contains(&fork), "{nobody:?}");
    assert!(thread_log(&workspace, &thread).unwrap().contains("Rhone"));

    let cleared = json(&workspace, &["thread", "clear", &thread, "--yes"]);
    assert_eq!(cleared["kept_by_forks"][0], fork.as_str());
    assert!(!thread_log(&workspace, &thread).unwrap().contains("Rhone"));
    assert!(thread_log(&workspace, &fork).unwrap().contains("Rhone"));
    ask(&workspace, &model, &["--thread", &thread, "Anew."], "Here.");
    let told = model.last_request().body["messages"].to_string();
    assert!(told.contains("Anew.") && !told.contains("Rhone"), "{told}");
    ask(&workspace, &model, &["--thread", &fork, "Go on."], "There.");
    assert!(
        model.last_request().body["messages"]
            .to_string()
            .contains("Rhone")
    );
    let check = json(&workspace, &["db", "check"]);
    assert_eq!(check["sound"], true, "{check}");
}

#[test]
fn a_thread_that_is_exported_is_the_same_when_it_is_imported() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let file = workspace.root().join("talk.jsonl").display().to_string();
    done(&workspace, &["thread", "export", &thread, "--to", &file]);
    let again = conjure(&workspace, &["thread", "export", &thread, "--to", &file]);
    assert_eq!(again.code, Some(2), "nothing is written over: {again:?}");
    assert!(again.stderr.contains("name another file"), "{again:?}");
    let other = Workspace::new().unwrap();
    done(&other, &["thread", "import", &file, "--as", "talk"]);
    let (here, there) = (thread_log(&workspace, &thread), thread_log(&other, "talk"));
    assert_eq!(here.unwrap(), there.unwrap());
    let taken = conjure(&other, &["thread", "import", &file, "--as", "talk"]);
    assert_eq!(taken.code, Some(2), "{taken:?}");
    ask(
        &other,
        &model,
        &["--thread", "talk", "Still there?"],
        "Yes.",
    );
    assert!(
        model.last_request().body["messages"]
            .to_string()
            .contains("Lake Annecy.")
    );
}

#[test]
fn an_average_of_the_same_turns_is_told_once() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let averages = |args: &[&str]| done(&workspace, args).matches("on average of").count();
    assert_eq!(averages(&["thread", "cost", &thread]), 1);
    assert_eq!(averages(&["thread", "cost", &thread, "--last", "1"]), 2);
}

#[test]
fn what_is_no_thread_or_no_model_is_told_as_what_it_is() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let file = workspace.root().join("talk.json").display().to_string();
    done(
        &workspace,
        &["thread", "export", &thread, "--cassette", &file],
    );
    let imported = conjure(&workspace, &["thread", "import", &file]);
    assert_eq!(imported.code, Some(2), "{imported:?}");
    assert!(imported.stderr.contains("is a cassette"), "{imported:?}");
    for to in ["openai/", "/gpt-5", "gpt-5"] {
        let checked = conjure(&workspace, &["thread", "check", &thread, "--to", to]);
        assert_eq!(checked.code, Some(2), "{to}: {checked:?}");
        assert!(
            checked.stderr.contains("--to PROVIDER/MODEL"),
            "{checked:?}"
        );
    }
}

#[test]
fn threads_of_an_earlier_version_are_taken_over_once_and_their_files_are_kept() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let old = Workspace::new().unwrap();
    let data = old.home().join(".local/share/conjure");
    let threads = data.join("threads");
    std::fs::create_dir_all(&threads).unwrap();
    let log = thread_log(&workspace, &thread).unwrap();
    std::fs::write(threads.join("before.jsonl"), &log).unwrap();
    assert_eq!(thread_ids(&old).unwrap(), ["before"]);
    assert_eq!(thread_log(&old, "before").unwrap(), log);
    assert!(!threads.exists());
    let aside = std::fs::read_to_string(data.join("threads.imported/before.jsonl"));
    assert_eq!(aside.unwrap(), log);
}

#[test]
fn a_backup_can_be_put_in_the_databases_place_and_an_export_read_into_another() {
    let model = Model::start().unwrap();
    let (workspace, thread) = talked(&model);
    let path = |name: &str| workspace.root().join(name).display().to_string();
    done(&workspace, &["db", "backup", &path("copy.db")]);
    done(&workspace, &["db", "export", &path("all.jsonl")]);
    ask(
        &workspace,
        &model,
        &["--thread", &thread, "One more?"],
        "No.",
    );
    let with = |database: &str, args: &[&str]| {
        let run = cli(args)
            .workspace(&workspace)
            .env("CONJURE_DATABASE", database);
        let output = run.run().unwrap();
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output.stdout
    };
    with(&path("new.db"), &["db", "import", &path("all.jsonl")]);
    for database in ["copy.db", "new.db"] {
        let log = with(&path(database), &["thread", "export", &thread]);
        assert!(
            log.contains("Annecy") && !log.contains("One more?"),
            "{log}"
        );
        with(&path(database), &["db", "check"]);
    }
    let none = conjure(&workspace, &["db", "rollback", "--yes"]);
    assert_eq!(
        none.code,
        Some(2),
        "there is no earlier form to go back to: {none:?}"
    );
}
