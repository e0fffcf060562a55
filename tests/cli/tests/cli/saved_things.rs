//! Personas, memories and saved auths from the command line.

use conjure_kit::Model;
use serde_json::json;

use crate::session::{done, ok, show, stage};
use crate::stage::{conjure, json as parsed};

#[test]
fn a_persona_is_kept_and_chosen_by_its_name() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let create = ["persona", "create", "keeper", "You keep a lighthouse."];
    ok(conjure_kit::cli(create).workspace(&workspace));
    let text = workspace.write("second.md", "You keep two.").unwrap();
    let second = format!("@{}", text.display());
    let create = [
        "persona",
        "create",
        "keeper",
        &second,
        "--persona-version",
        "2",
    ];
    ok(conjure_kit::cli(create).workspace(&workspace));
    done(
        &workspace,
        "session create work --auth claude --model m --persona-name keeper@1",
    );
    let persona = show(&workspace, "work")["persona"].take();
    let first =
        json!({ "name": "keeper", "version": "1", "persona_text": "You keep a lighthouse." });
    assert_eq!(persona, first);
    // The newest of a name; sessions keep their copy.
    done(&workspace, "session set work --persona-name keeper");
    done(&workspace, "persona set keeper@2 --text Changed.");
    let unchanged = conjure(&workspace, "persona set keeper@2").run().unwrap();
    assert_eq!(unchanged.code, Some(2), "{unchanged:?}");
    let persona = show(&workspace, "work")["persona"].take();
    assert_eq!(persona["persona_text"], "You keep two.");
    let listed = parsed(&done(&workspace, "persona list --json"));
    assert_eq!(listed["personas"].as_array().unwrap().len(), 2);
    let shown = done(&workspace, "persona show keeper");
    assert!(shown.stdout.contains("Changed."), "{shown:?}");
    let unasked = conjure(&workspace, "persona delete keeper@1");
    let unasked = unasked.run().unwrap();
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(unasked.stderr.contains("`--yes`"), "{unasked:?}");
    done(&workspace, "persona delete keeper@1 --yes");
    let gone = conjure(&workspace, "persona show keeper@1").run().unwrap();
    assert_eq!(gone.code, Some(2), "{gone:?}");
}

#[test]
fn a_memory_is_shown_set_edited_and_cleared() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    done(&workspace, "session create work --auth claude --model m");
    let set = ["session", "memory", "work", "set", "The lamp is red."];
    ok(conjure_kit::cli(set).workspace(&workspace));
    let shown = done(&workspace, "session memory work");
    assert_eq!(shown.stdout, "The lamp is red.\n");
    let edit = conjure(&workspace, "session memory work edit")
        .env("EDITOR", "sed -i s/red/green/")
        .on_terminal()
        .run()
        .unwrap();
    assert_eq!(edit.code, Some(0), "{edit:?}");
    let remembered = parsed(&done(&workspace, "session memory work show --json"));
    assert_eq!(remembered, json!({ "memory_text": "The lamp is green." }));
    done(&workspace, "session memory work clear");
    assert_eq!(show(&workspace, "work")["memory"], json!({}));
}

#[test]
fn an_auth_that_is_there_says_how_to_replace_it_and_who_uses_it() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let again = format!(
        "auth create claude --provider anthropic --base-url {}",
        model.base_url()
    );
    let again = conjure(&workspace, &again)
        .stdin("sk-another")
        .run()
        .unwrap();
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(
        again
            .stderr
            .contains("conjure auth replace anthropic/api_key/claude"),
        "{again:?}"
    );
    ok(conjure(&workspace, "auth replace claude").stdin("sk-another"));
    let short = conjure(&workspace, "auth create w --provider anthropic")
        .run()
        .unwrap();
    assert!(short.stderr.contains("3 to 50 letters"), "{short:?}");
    done(
        &workspace,
        "session create lamp-room --auth claude --model m",
    );
    let used = conjure(&workspace, "auth delete claude --yes")
        .run()
        .unwrap();
    assert_eq!(used.code, Some(2), "{used:?}");
    assert!(used.stderr.contains("`lamp-room`"), "{used:?}");
    // Nobody is asked about what would be refused.
    let used = conjure(&workspace, "auth delete claude").run().unwrap();
    assert_eq!(used.code, Some(2), "{used:?}");
    assert!(used.stderr.contains("`lamp-room`"), "{used:?}");
    assert!(!used.stderr.contains("for good"), "{used:?}");
    // A login's token would be over in hours.
    let login = conjure(
        &workspace,
        "auth create login --provider anthropic --kind bearer-token",
    );
    let login = login.stdin("sk-ant-oat01-token").run().unwrap();
    assert_eq!(login.code, Some(2), "{login:?}");
    assert!(login.stderr.contains("nothing here renews it"), "{login:?}");
}
