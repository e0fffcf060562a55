//! What is pure: names, ids, what stands in blocks.

use serde_json::json;

use crate::files::safe_name;
use crate::items;

#[test]
fn b10_files_are_found_where_the_api_puts_them_each_once() {
    let output = |kind: &str, id: &str| json!({"type": kind, "file_id": id});
    let found = items::files(&[
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "input": {"content": {"content": [output("x_output", "file_0")]}}}),
        json!({"type": "bash_code_execution_tool_result", "content": {
            "type": "bash_code_execution_result",
            "content": [output("bash_code_execution_output", "file_1"), output("bash_code_execution_output", "file_2")],
        }}),
        json!({"type": "code_execution_tool_result", "content": {
            "type": "code_execution_result",
            "content": [output("code_execution_output", "file_2"), output("code_execution_output", "../file_3")],
        }}),
        json!({"type": "bash_code_execution_tool_result", "content": {
            "type": "bash_code_execution_tool_result_error", "error_code": "unavailable",
        }}),
    ]);
    assert_eq!(found, ["file_1", "file_2"]);
}

#[test]
fn a_container_is_an_object_a_text_or_nothing() {
    let id = |value| items::container(Some(&value));
    assert_eq!(id(json!({"id": "c", "skills": null})).as_deref(), Some("c"));
    assert_eq!(id(json!("c")).as_deref(), Some("c"));
    assert_eq!(id(json!(null)), None);
    assert_eq!(items::container(None), None);
}

#[test]
fn b23_names_hold_nothing_of_a_path() {
    let long = "x".repeat(300);
    let names = [
        "../../a.csv",
        "C:\\a\\b.csv",
        "a?b*.csv",
        "a\nb",
        "",
        "..",
        &long,
    ];
    let safe = names.map(safe_name);
    assert_eq!(
        safe[..6],
        ["a.csv", "b.csv", "a_b_.csv", "a_b", "file", "file"]
    );
    assert_eq!(safe[6].len(), 255);
}

#[test]
fn only_an_error_about_a_container_is_one() {
    assert!(items::is_expired_container("container: `c` has expired"));
    assert!(items::is_expired_container("Container c was not found."));
    assert!(!items::is_expired_container("File not found: f"));
    assert!(!items::is_expired_container(
        "container.skills: at most 20 skills are allowed"
    ));
    for part in [
        "container.skills.0: skill",
        "messages.0.content.1.container_upload: file",
    ] {
        let message = format!("{part} was not found");
        assert!(!items::is_expired_container(&message), "{message}");
    }
}
