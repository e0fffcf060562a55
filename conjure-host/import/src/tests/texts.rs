//! Texts as people have them: with comments, with the line ends of Windows, and with braces that are
//! closed nowhere.

use serde_json::json;

use super::{notes, settings};
use crate::read;

#[test]
fn the_form_is_that_of_the_first_line_that_is_no_comment() {
    let lines = "\u{feff}# What I use.\n\n  # Notes\n$ claude mcp add notes -- notes-server\n";
    assert_eq!(
        settings(lines),
        json!({ "notes": { "command": "notes-server" } })
    );
    let object = "# Mine.\n{ \"mcpServers\": { \"s\": { \"command\": \"run\" } } }";
    assert_eq!(settings(object), json!({ "s": { "command": "run" } }));
    let table = "# Mine.\n[mcp_servers.s]\ncommand = \"run\"\n";
    assert_eq!(settings(table), json!({ "s": { "command": "run" } }));
}

#[test]
fn a_line_of_windows_goes_on_in_the_next() {
    let text = "claude mcp add notes \\\r\n  -e PLACE=/srv \\\r\n  -- notes-server --quiet\r\n";
    let expected = json!({
        "notes": {
            "command": "notes-server", "args": ["--quiet"], "env": { "PLACE": "/srv" },
        }
    });
    assert_eq!(settings(text), expected);
}

#[test]
fn a_brace_that_is_closed_nowhere_stays_as_it_is_and_is_told() {
    let text = r#"{ "mcpServers": { "s": {
        "command": "${userHome}/${open", "args": ["--at=${workspaceFolder}/${file}/${open", "${open"]
    } } }"#;
    let kept = json!({
        "s": {
            "command": "${userHome}/${open",
            "args": ["--at=${workspaceFolder}/${file}/${open", "${open"],
        }
    });
    assert_eq!(settings(text), kept);
    let notes = notes(text);
    assert!(
        notes.contains("has a `${` that no brace closes; it is written down as it is"),
        "{notes}"
    );
    assert!(notes.contains("`${file}`, which only the other program knows, and a `${`"));
}

#[test]
fn what_a_note_leaves_out_is_not_repeated() {
    let text = "claude mcp add -t http -e hunter2 -H hunter2 s https://x.example/mcp -- hunter2";
    assert_eq!(read(text).unwrap().notes.len(), 3);
    assert!(!notes(text).contains("hunter2"));
    let open = read("claude mcp add s -e 'TOKEN=hunter2").unwrap_err();
    assert!(!open.contains("hunter2"), "{open}");
}

#[test]
fn an_error_in_json_names_its_line_of_the_file() {
    let text = "# mine\n\n{ // one\n/* two\nthree */\n\"a\": [1,\n],\n\"b\": x }";
    let error = read(text).unwrap_err();
    assert!(error.contains("line 8"), "{error}");
}
