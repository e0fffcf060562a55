//! What a model reads of a call that failed: its tool, its backend, what happened and what to do,
//! for every kind of failure, with the real plugins.

use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_skill_sdk::protocol::{Execute, ToolResult};
use conjure_skill_sdk::{Error, Skill};
use serde_json::{Value, json};

use crate::stage::{LOCAL, MISBEHAVING, Seen, Stage, bash, local};

/// A call that fails, and what its result has.
struct Row {
    tool: &'static str,
    input: Value,
    /// Nothing where no backend has the tool.
    backend: Option<&'static str>,
    /// What happened.
    what: &'static str,
    /// What to do.
    then: &'static str,
}

fn row(
    (tool, input): (&'static str, Value),
    backend: impl Into<Option<&'static str>>,
    what: &'static str,
    then: &'static str,
) -> Row {
    let backend = backend.into();
    Row {
        tool,
        input,
        backend,
        what,
        then,
    }
}

fn mode(text: &str) -> (&'static str, Value) {
    ("misbehaving_execute", json!({ "command": text }))
}

fn command(text: &str) -> (&'static str, Value) {
    ("local_bash_tool", bash(text))
}

fn rows() -> Vec<Row> {
    let mut rows = vec![
        row(
            ("nobodys_tool", json!({})),
            None,
            "no backend of this session has such a tool",
            "The tools are `",
        ),
        row(
            ("local_bash_tool", json!({})),
            "local",
            "was not run: missing field `command`.",
            "arguments that fit its schema",
        ),
        row(
            ("local_bash_tool", json!({ "command": ["ls"] })),
            "local",
            "was not run: invalid type: sequence, expected a string.",
            "arguments that fit its schema",
        ),
        row(
            command("echo some; exit 3"),
            "local",
            "some\n[exit code 3]\n",
            "Correct the command",
        ),
        row(
            command("echo some; kill -9 $$"),
            "local",
            "some\n[ended by signal 9]\n",
            "Correct the command",
        ),
        row(
            command("echo some; sleep 300"),
            "local",
            "was ended by its time limit of 1.5 s, with everything",
            "Do less at a time",
        ),
        row(
            ("local_view", json!({ "path": "none.txt" })),
            "local",
            "`none.txt`",
            "Go on as its reason says",
        ),
        row(
            (
                "local_str_replace",
                json!({ "path": "a.txt", "old_str": "b", "new_str": "c" }),
            ),
            "local",
            "0 times",
            "Go on as its reason says",
        ),
        row(
            (
                "local_create_file",
                json!({ "path": "denied.txt", "file_text": "" }),
            ),
            "local",
            "the session's policy does not allow it (deny by the rule `*(denied.txt)`)",
            "Do not try to reach the same in another way",
        ),
        row(
            ("refuses_execute", json!({ "command": "fail" })),
            "native",
            "The skill refused the task.\n",
            "Correct the arguments",
        ),
        row(
            ("refuses_execute", json!({ "command": "nothing" })),
            "native",
            "failed and gave no reason",
            "Correct the arguments",
        ),
        row(
            ("refuses_execute", json!({ "command": "stop" })),
            "native",
            "check it and the base URL.\n",
            "Correct the arguments",
        ),
    ];
    for (text, what) in [
        ("panic at the disco", "at the disco"),
        ("lie-json", "cannot be read: "),
        ("lie-schema", "cannot be read: "),
        ("invalid-utf8-reply", "cannot be read: "),
    ] {
        rows.push(row(mode(text), "native", what, "Try another way"));
    }
    rows.push(row(
        mode("lie-fault"),
        "native",
        "misbehaving",
        "Go on as its reason says",
    ));
    rows.push(row(
        mode("hang-politely"),
        "native",
        "stopped when it was told to",
        "Do less at a time",
    ));
    // The last: its plugin is not asked again.
    rows.push(row(
        mode("hang"),
        "native",
        "did not stop when it was told to",
        "check before you call it again",
    ));
    rows
}

fn refuses() -> Skill {
    Skill::new("refuses", "Refuses tasks").execute("how", |_cx, request: Execute| {
        match request.command.as_str() {
            "stop" => Err(Error::new("check it and the base URL.")),
            "nothing" => Ok(ToolResult {
                is_error: true,
                ..ToolResult::default()
            }),
            _ => Ok(ToolResult::error("The skill refused the task.")),
        }
    })
}

#[tokio::test]
async fn every_failed_call_names_its_tool_its_backend_and_what_to_do() {
    let stage = Stage::with(&[LOCAL, MISBEHAVING], |builder| builder.skill(refuses)).await;
    stage.workspace.write("a.txt", "a").unwrap();
    let mut spec = SessionSpec {
        call_timeout_ms: Some(1_500),
        ..stage.spec([BackendSpec::all_native(), local()])
    };
    spec.policy.deny = vec!["*(denied.txt)".parse().unwrap()];
    let session = stage.open(spec).await;
    for row in rows() {
        let Seen { text, is_error } = stage.call(&session, row.tool, row.input).await;
        let call = match row.backend {
            Some(backend) => format!("The call of `{}` on backend `{backend}` ", row.tool),
            None => format!("The call of `{}`, which came to no backend, ", row.tool),
        };
        assert!(is_error, "{}: {text}", row.what);
        for part in [&call, row.what, row.then] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert_eq!(text.matches("The call of").count(), 1, "{text}");
        for odd in ["..", ".)", "  ", "::", "struct ", "enum ", "].", ". ."] {
            assert!(!text.contains(odd), "{odd:?} is in {text:?}");
        }
    }
    session.close().await;
}
