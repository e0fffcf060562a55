//! `conjure routes`: the routing table.

use insta::assert_snapshot;

use crate::stage::{CACHE, LOCAL, conjure, json, workspace};

#[test]
fn the_table_shows_who_runs_what() {
    let workspace = workspace(&[CACHE, LOCAL]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let output = conjure(&workspace, "routes --skill notes").run().unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace).pattern(r"\d+\n", "[N]\n");
    assert_snapshot!(redact.apply(&output.snapshot()), @"");
}

#[test]
fn without_plugins_it_says_what_to_do() {
    let workspace = workspace(&[]);
    assert_snapshot!(conjure(&workspace, "routes").run().unwrap().snapshot(), @"");
}

#[test]
fn a_skill_folder_needs_an_executor() {
    let workspace = workspace(&[]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let output = conjure(&workspace, "routes --skill notes").run().unwrap();
    assert_snapshot!(output.snapshot(), @"");
}

#[test]
fn a_clash_names_both_and_the_way_out() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let file = "[[backend]]\nkind = \"local\"\nskills = [\"notes\"]\nonly = [\"view\"]\n\
                [[backend]]\nkind = \"local\"\nname = \"second\"\nskills = [\"notes\"]\n\
                only = [\"view\"]\n";
    workspace.write("session.toml", file).unwrap();
    let output = conjure(&workspace, "routes --config session.toml")
        .run()
        .unwrap();
    assert_snapshot!(output.snapshot(), @"");
    let alias = "[[routing.aliases]]\nbackend = \"second\"\nskill = \"notes\"\nname = \"again\"\n";
    workspace
        .write("session.toml", format!("{file}{alias}"))
        .unwrap();
    let output = conjure(&workspace, "routes --config session.toml --json")
        .run()
        .unwrap();
    let printed = json(&output);
    let routes: Vec<String> = printed["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| format!("{} on {}", route["name"], route["backend"]))
        .collect();
    assert_eq!(
        routes,
        [
            "\"notes_view\" on \"local\"",
            "\"again_view\" on \"second\""
        ]
    );
}

#[test]
fn programs_get_everything_as_json() {
    let workspace = workspace(&[CACHE]);
    let output = conjure(&workspace, "routes --json").run().unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace)
        .pattern(r#""schema_tokens": \d+"#, r#""schema_tokens": 0"#);
    assert_snapshot!(redact.apply(&output.snapshot()), @"");
}
