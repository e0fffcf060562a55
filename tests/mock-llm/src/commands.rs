//! Commands to the program on its standard input, for tests that are written in another language: one
//! JSON object a line, each answered by a line.
//!
//! | command | answer |
//! |---|---|
//! | `{"steps": […]}` | `{}`; the steps are behind those that there are |
//! | `{"reached": "gate"}` | `{}` once an answer stands at that gate |
//! | `{"release": "gate"}` | `{}`; answers pass that gate from now on |
//! | `{"requests": 2}` | `{"requests": [{"path", "body"}, …]}`: those from this index on |
//!
//! What cannot be done is answered `{"error": "why"}`.

use std::io::{BufRead, Write};

use conjure_mock_llm::{MockLlm, Script};
use serde_json::{Value, json};

/// Does what the lines say until there are no more.
pub(crate) fn serve_commands(
    mock: &MockLlm,
    input: impl BufRead,
    mut out: impl Write,
) -> anyhow::Result<()> {
    for line in input.lines() {
        let said = answer(mock, &line?).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{said}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(mock: &MockLlm, line: &str) -> Result<Value, String> {
    let command: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |name: &str| command.get(name).and_then(Value::as_str);
    if let Some(token) = text("release") {
        mock.release(token);
    } else if let Some(token) = text("reached") {
        mock.wait_for_gate_blocking(token)
            .map_err(|error| error.to_string())?;
    } else if let Some(from) = command.get("requests").and_then(Value::as_u64) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let requests = mock.requests().into_iter().skip(from);
        let requests: Vec<Value> = requests
            .map(|request| json!({ "path": request.path, "body": request.body }))
            .collect();
        return Ok(json!({ "requests": requests }));
    } else if command.get("steps").is_some() {
        mock.append(Script::from_json(line).map_err(|error| error.to_string())?);
    } else {
        return Err("no such command; there are steps, reached, release and requests".to_owned());
    }
    Ok(json!({}))
}
