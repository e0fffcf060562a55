//! How an error is told: to people with a line for what can be done, to programs as data.

use serde_json::json;

use crate::stage::{conjure, workspace};

#[test]
fn an_error_has_its_hint_on_a_line_of_its_own_and_as_data() {
    let workspace = workspace(&[]);
    let output = conjure(&workspace, "persona show nobody --json")
        .run()
        .unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
    let error = "there is no persona `nobody`";
    let hint = "`conjure persona list` lists them";
    let told: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let expected = json!({ "type": "error", "error": error, "hints": [hint] });
    assert_eq!(told, expected);
    assert_eq!(output.stderr, format!("error: {error}\nhint: {hint}\n"));
}

#[test]
fn what_can_be_done_is_told_apart_from_what_failed() {
    let workspace = workspace(&[]);
    for (args, error, hint) in [
        (
            "thread show nope",
            "there is no thread nope",
            "`conjure thread list` lists them",
        ),
        (
            "session show nope",
            "there is no session `nope`",
            "`conjure session list` lists them",
        ),
        (
            "auth check nope",
            "there is no saved auth `nope`",
            "there is none yet: `conjure auth create NAME --provider PROVIDER` saves one",
        ),
        (
            "persona show nope",
            "there is no persona `nope`",
            "`conjure persona list` lists them",
        ),
    ] {
        let output = conjure(&workspace, &format!("{args} --json"));
        let output = output.run().unwrap();
        assert_eq!(output.code, Some(2), "{args}: {output:?}");
        let told: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let expected = json!({ "type": "error", "error": error, "hints": [hint] });
        assert_eq!(told, expected, "{args}");
    }
}

#[test]
fn what_nobody_sees_of_a_wrong_word_is_not_printed() {
    let workspace = workspace(&[]);
    for word in ["--no\u{200b}nsense", "--nonsense\u{e0041}", "ru\u{202e}n"] {
        let output = conjure_kit::cli([word])
            .workspace(&workspace)
            .run()
            .unwrap();
        assert_eq!(output.code, Some(2), "{output:?}");
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains("error: "), "{said:?}");
        let unseen = ['\u{200b}', '\u{e0041}', '\u{202e}'];
        assert!(!said.contains(unseen), "{said:?}");
    }
}
