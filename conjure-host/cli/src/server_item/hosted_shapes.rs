//! Items of the tools of OpenAI and Gemini, in the shapes of Anthropic's: a use of a tool, and what
//! came of it. So that there is one way to show them; nothing recast is ever sent.

use serde::Serialize;
use serde_json::{Value, json};

use super::text;

/// What came of a use.
#[derive(Default, Serialize)]
struct ResultContent {
    stdout: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_code: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
}

impl ResultContent {
    fn of_stdout(stdout: impl Into<String>) -> Self {
        Self {
            stdout: stdout.into(),
            ..Self::default()
        }
    }
}

/// What an item tells of, in order; nothing where its shape is not known.
pub(super) fn normalize(item: &Value) -> Option<Vec<Value>> {
    // Gemini's parts have no type, but a member that is named so.
    if let Some(part) = item.get("executableCode") {
        return Some(vec![tool_use(
            "code_execution",
            &json!({ "code": text(part, "code") }),
        )]);
    }
    if let Some(part) = item.get("codeExecutionResult") {
        let outcome = text(part, "outcome");
        let content = ResultContent {
            error_code: (!matches!(outcome, "" | "OUTCOME_OK")).then(|| outcome.to_owned()),
            ..ResultContent::of_stdout(text(part, "output"))
        };
        return Some(vec![result("code_execution", &json!(content))]);
    }
    match text(item, "type") {
        "code_interpreter_call" => Some(code_interpreter(item)),
        "shell_call" | "local_shell_call" => Some(vec![tool_use("shell", &commands(item))]),
        "shell_call_output" | "local_shell_call_output" => Some(shell_outputs(item)),
        "web_search_call" => Some(vec![tool_use("web_search", &action(item))]),
        "file_search_call" => Some(file_search(item)),
        "mcp_call" => Some(mcp_call(item)),
        "mcp_tool_use" => Some(vec![tool_use(text(item, "name"), &item["input"])]),
        _ => None,
    }
}

fn tool_use(name: &str, input: &Value) -> Value {
    json!({ "type": "server_tool_use", "name": name, "input": input })
}

fn result(tool: &str, content: &Value) -> Value {
    json!({ "type": format!("{tool}_tool_result"), "content": content })
}

/// Code, and what it logged once it is over; an image is an address.
fn code_interpreter(item: &Value) -> Vec<Value> {
    const TOOL: &str = "code_interpreter";
    let outputs = item.get("outputs").and_then(Value::as_array);
    let logs = outputs.into_iter().flatten().map(|output| {
        let told = [text(output, "logs"), text(output, "url")];
        told.concat()
    });
    let logs: Vec<String> = logs.collect();
    let status = text(item, "status");
    let content = ResultContent {
        error_code: failure(status),
        ..ResultContent::of_stdout(logs.join("\n"))
    };
    let mut told = vec![tool_use(TOOL, &json!({ "code": text(item, "code") }))];
    if is_over(status) {
        told.push(result(TOOL, &json!(content)));
    }
    told
}

/// How a call failed, as its status has it.
fn failure(status: &str) -> Option<String> {
    matches!(status, "failed" | "incomplete").then(|| status.to_owned())
}

/// Whether a call of this status goes on no longer.
fn is_over(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "incomplete")
}

/// The commands of a shell: each on a line, or the words of one.
fn commands(item: &Value) -> Value {
    let action = &item["action"];
    let words = |field: &str, between: &str| {
        let words = action.get(field)?.as_array()?.iter();
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        Some(words.join(between))
    };
    let command = words("commands", "\n").or_else(|| words("command", " "));
    json!({ "command": command.unwrap_or_default() })
}

fn shell_outputs(item: &Value) -> Vec<Value> {
    const TOOL: &str = "shell";
    let output = item.get("output").unwrap_or(&Value::Null);
    let Some(outputs) = output.as_array() else {
        let content = ResultContent::of_stdout(text(item, "output"));
        return vec![result(TOOL, &json!(content))];
    };
    let each = outputs.iter().map(|output| {
        let outcome = output.get("outcome").unwrap_or(&Value::Null);
        let return_code = outcome.get("exit_code");
        let return_code = return_code.filter(|code| !code.is_null()).cloned();
        let kind = text(outcome, "type");
        let content = ResultContent {
            stdout: text(output, "stdout").to_owned(),
            stderr: text(output, "stderr").to_owned(),
            error_code: (return_code.is_none() && !kind.is_empty()).then(|| kind.to_owned()),
            return_code,
        };
        result(TOOL, &json!(content))
    });
    each.collect()
}

/// What was looked for, without what only says of which kind it is.
fn action(item: &Value) -> Value {
    let mut action = item.get("action").cloned().unwrap_or_default();
    if let Some(fields) = action.as_object_mut()
        && fields.len() > 1
    {
        fields.remove("type");
    }
    action
}

fn file_search(item: &Value) -> Vec<Value> {
    const TOOL: &str = "file_search";
    let queries = item.get("queries").cloned().unwrap_or_default();
    let found = item.get("results").and_then(Value::as_array);
    let found = found.map(|found| {
        let each = found.iter();
        let each =
            each.map(|one| json!({ "title": text(one, "filename"), "text": text(one, "text") }));
        result(TOOL, &each.collect::<Value>())
    });
    let mut told = vec![tool_use(TOOL, &json!({ "queries": queries }))];
    told.extend(found);
    told
}

fn mcp_call(item: &Value) -> Vec<Value> {
    let name = text(item, "name");
    let arguments = text(item, "arguments");
    let input = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
    let status = text(item, "status");
    let known = |field: &str| item.get(field).filter(|value| !value.is_null());
    let error = known("error").map(|error| match error.as_str() {
        Some(error) => error.to_owned(),
        None => error.to_string(),
    });
    // What has a result is over, whether a status says so or not.
    let has_result = error.is_some() || known("output").is_some() || is_over(status);
    let content = ResultContent {
        error_code: error.or_else(|| failure(status)),
        ..ResultContent::of_stdout(text(item, "output"))
    };
    let mut told = vec![tool_use(name, &input)];
    if has_result {
        told.push(result(name, &json!(content)));
    }
    told
}
