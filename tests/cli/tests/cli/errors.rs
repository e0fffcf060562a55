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
