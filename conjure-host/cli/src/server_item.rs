//! Items of a provider's own tools, for people: the command, and what came of it.
//!
//! Each provider has its own shapes; what is not known here is shown as it came. Long texts are cut
//! unless all of them is wanted.

mod hosted_shapes;

use serde_json::Value;

use super::output::{BOLD, CYAN, DIM, RESET, clean, end_mark};
use super::shorten::{first_lines, one_line};

/// The length to which a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemDetail {
    /// The first lines, each cut to a terminal's width.
    Cut,
    /// All of it.
    Full,
}

/// The lines of a text that are shown of it where it is cut.
const LINES: usize = 12;

impl ItemDetail {
    /// The lines of a text, at most so many where it is cut.
    pub(super) fn lines(self, text: &str, most: usize) -> Vec<String> {
        match self {
            Self::Cut => first_lines(text, most),
            Self::Full => clean(text).lines().map(str::to_owned).collect(),
        }
    }

    /// A text on one line.
    pub(super) fn one_line(self, text: &str) -> String {
        match self {
            Self::Cut => one_line(text, 100),
            Self::Full => clean(text).into_owned(),
        }
    }
}

/// The lines that show an item.
pub(super) fn lines(provider: &str, item: &Value, shown: ItemDetail) -> Vec<String> {
    match hosted_shapes::normalize(item) {
        Some(items) => {
            let each = items.iter().map(|item| known_lines(provider, item, shown));
            each.flatten().collect()
        }
        None => known_lines(provider, item, shown),
    }
}

fn known_lines(provider: &str, item: &Value, shown: ItemDetail) -> Vec<String> {
    let kind = text(item, "type");
    if kind == "server_tool_use" {
        return tool_use_lines(provider, item, shown);
    }
    match (kind.strip_suffix("_tool_result"), item.get("content")) {
        (Some(tool), Some(content)) => {
            let is_error = item.get("is_error") == Some(&Value::Bool(true));
            result_lines(provider, tool, content, is_error, shown)
        }
        _ => {
            let rest = shown.one_line(&item.to_string());
            vec![format!(
                "{DIM}[{} of {}] {rest}{RESET}",
                clean(kind),
                clean(provider)
            )]
        }
    }
}

/// What the provider's tool was asked to do.
fn tool_use_lines(provider: &str, item: &Value, shown: ItemDetail) -> Vec<String> {
    let name = clean(text(item, "name"));
    let input = item.get("input").unwrap_or(&Value::Null);
    // A program, or what an editor writes, is read line by line; the rest stands beside the name.
    let mut rest = input.clone();
    let mut texts: Vec<(&str, String)> = Vec::new();
    if let Some(fields) = rest.as_object_mut() {
        for field in ["code", "file_text", "old_str", "new_str", "insert_text"] {
            if let Some(Value::String(text)) = fields.get(field) {
                texts.push((field, text.clone()));
                fields.remove(field);
            }
        }
        // An editor's command is a word beside others, a shell's is a program of its own.
        if let (1, Some(Value::String(command))) = (fields.len(), fields.get("command"))
            && texts.is_empty()
        {
            texts.push(("command", command.clone()));
            fields.remove("command");
        }
    }
    let beside = match rest.as_object() {
        Some(fields) if fields.is_empty() => String::new(),
        _ => format!(" {}", shown.one_line(&rest.to_string())),
    };
    let mut lines = vec![format!(
        "{CYAN}→{RESET} {BOLD}{name}{RESET} {DIM}(hosted by {}){RESET}{beside}",
        clean(provider)
    )];
    let is_one = texts.len() == 1;
    for (field, text) in texts {
        if !is_one {
            lines.push(format!("  {DIM}{field}:{RESET}"));
        }
        let text = shown.lines(text.trim_end(), LINES);
        lines.extend(text.iter().map(|line| format!("  {line}")));
    }
    lines
}

/// What it gave back; `is_error` where the item itself says that it failed, as a server's tool has no
/// code for that.
fn result_lines(
    provider: &str,
    tool: &str,
    content: &Value,
    is_error: bool,
    shown: ItemDetail,
) -> Vec<String> {
    let code = content.get("return_code").and_then(Value::as_i64);
    let error = content.get("error_code").and_then(Value::as_str);
    let is_error = is_error || error.is_some() || code.is_some_and(|code| code != 0);
    let mark = end_mark(is_error);
    let how = match (error, code) {
        (Some(error), _) => format!(", {}", clean(error)),
        (None, Some(code)) if code != 0 => format!(", it ended with {code}"),
        _ => String::new(),
    };
    let mut lines = vec![format!(
        "{mark} {DIM}{} (hosted by {}{how}){RESET}",
        clean(tool),
        clean(provider)
    )];
    for said in result_texts(content) {
        let said = shown.lines(&said, LINES);
        lines.extend(said.iter().map(|line| format!("  {DIM}{line}{RESET}")));
    }
    lines
}

/// The texts of a result: its output, its errors, and what it lists.
fn result_texts(content: &Value) -> Vec<String> {
    if let Value::String(text) = content {
        return vec![text.clone()];
    }
    if let Value::Array(items) = content {
        let listed = items.iter().map(|item| {
            let told = [text(item, "title"), text(item, "url"), text(item, "text")];
            let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty()).collect();
            match told.is_empty() {
                true => item.to_string(),
                false => told.join("  "),
            }
        });
        let listed: Vec<String> = listed.collect();
        return vec![listed.join("\n")];
    }
    let mut texts: Vec<String> = ["stdout", "stderr", "error_message"]
        .into_iter()
        .map(|field| text(content, field).to_owned())
        .collect();
    match content.get("content") {
        Some(Value::String(text)) => texts.push(text.clone()),
        Some(Value::Array(files)) => {
            let files = files.iter().map(|file| text(file, "file_id"));
            texts.extend(
                files
                    .filter(|id| !id.is_empty())
                    .map(|id| format!("file {id}")),
            );
        }
        _ => {}
    }
    if let Some(Value::Array(lines)) = content.get("lines") {
        let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
        texts.push(lines.join("\n"));
    }
    texts.retain(|text| !text.trim().is_empty());
    texts
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::output::{GREEN, RED};
    use super::*;

    fn plain(item: &Value) -> String {
        as_shown(item, ItemDetail::Cut)
    }

    fn as_shown(item: &Value, shown: ItemDetail) -> String {
        plain_of("anthropic", item, shown)
    }

    fn plain_of(provider: &str, item: &Value, shown: ItemDetail) -> String {
        let mut text = lines(provider, item, shown).join("\n");
        for code in [BOLD, CYAN, DIM, GREEN, RED, RESET] {
            text = text.replace(code, "");
        }
        text
    }

    #[test]
    fn what_an_editor_writes_is_shown_line_by_line_and_all_of_it_on_demand() {
        let file: Vec<String> = (1..=40).map(|number| format!("line {number}")).collect();
        let used = json!({ "type": "server_tool_use", "name": "text_editor_code_execution",
            "input": { "command": "create", "path": "report.md", "file_text": file.join("\n") } });
        let cut = plain(&used);
        assert!(
            cut.starts_with(
                "→ text_editor_code_execution (hosted by anthropic) \
             {\"command\":\"create\",\"path\":\"report.md\"}\n  line 1\n  line 2\n"
            ),
            "{cut}"
        );
        assert!(cut.ends_with("  line 12\n  … 28 more lines"), "{cut}");
        assert!(as_shown(&used, ItemDetail::Full).ends_with("  line 39\n  line 40"));
        let long = "x".repeat(500);
        let done = json!({ "type": "bash_code_execution_tool_result",
            "content": { "stdout": format!("{}\n{long}", file.join("\n")), "return_code": 0 } });
        assert!(plain(&done).ends_with("  line 12\n  … 29 more lines"));
        assert!(as_shown(&done, ItemDetail::Full).ends_with(&format!("  line 40\n  {long}")));
    }

    #[test]
    fn a_command_and_its_output_are_shown() {
        let used = json!({ "type": "server_tool_use", "id": "s", "name": "bash_code_execution",
            "input": { "command": "ls -l\nwc app.log" } });
        assert_eq!(
            plain(&used),
            "→ bash_code_execution (hosted by anthropic)\n  ls -l\n  wc app.log"
        );
        let done = json!({ "type": "bash_code_execution_tool_result", "tool_use_id": "s",
            "content": { "type": "bash_code_execution_result", "stdout": "12 app.log\n",
                "stderr": "", "return_code": 0,
                "content": [{ "type": "bash_code_execution_output", "file_id": "file_1" }] } });
        assert_eq!(
            plain(&done),
            "✓ bash_code_execution (hosted by anthropic)\n  12 app.log\n  file file_1"
        );
    }

    #[test]
    fn what_failed_says_how() {
        let failed = json!({ "type": "bash_code_execution_tool_result",
            "content": { "stdout": "", "stderr": "no such file", "return_code": 2 } });
        assert_eq!(
            plain(&failed),
            "✗ bash_code_execution (hosted by anthropic, it ended with 2)\n  no such file"
        );
        let refused = json!({ "type": "web_search_tool_result",
            "content": { "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded" } });
        assert_eq!(
            plain(&refused),
            "✗ web_search (hosted by anthropic, max_uses_exceeded)"
        );
    }

    /// As another vendor's item is shown.
    fn of(provider: &str, item: &Value) -> String {
        plain_of(provider, item, ItemDetail::Cut)
    }

    #[test]
    fn what_tools_of_openai_ran_and_said_is_shown() {
        let code = json!({ "type": "code_interpreter_call", "status": "completed",
            "code": "a = 1\nprint(a)", "outputs": [{ "type": "logs", "logs": "1\n" }] });
        assert_eq!(
            of("openai", &code),
            "→ code_interpreter (hosted by openai)\n  a = 1\n  print(a)\n\
             ✓ code_interpreter (hosted by openai)\n  1"
        );
        let shell = json!({ "type": "shell_call", "action": { "commands": ["ls", "pwd"] } });
        assert_eq!(
            of("openai", &shell),
            "→ shell (hosted by openai)\n  ls\n  pwd"
        );
        let failed = json!({ "type": "shell_call_output", "output": [{ "stdout": "", "stderr": "no",
            "outcome": { "type": "exit", "exit_code": 2 } }] });
        assert_eq!(
            of("openai", &failed),
            "✗ shell (hosted by openai, it ended with 2)\n  no"
        );
        let late = json!({ "type": "shell_call_output", "output": [{ "stdout": "", "stderr": "",
            "outcome": { "type": "timeout", "exit_code": null } }] });
        assert_eq!(of("openai", &late), "✗ shell (hosted by openai, timeout)");
        let running = json!({ "type": "code_interpreter_call", "status": "interpreting",
            "code": "a = 1", "outputs": null });
        assert_eq!(
            of("openai", &running),
            "→ code_interpreter (hosted by openai)\n  a = 1"
        );
        let search = json!({ "type": "web_search_call",
            "action": { "type": "search", "query": "lamps" } });
        assert_eq!(
            of("openai", &search),
            "→ web_search (hosted by openai) {\"query\":\"lamps\"}"
        );
        let mcp = json!({ "type": "mcp_call", "name": "roll", "arguments": "{\"dice\":2}",
            "output": "7", "error": null });
        assert_eq!(
            of("openai", &mcp),
            "→ roll (hosted by openai) {\"dice\":2}\n✓ roll (hosted by openai)\n  7"
        );
    }

    #[test]
    fn a_call_of_a_servers_tool_that_failed_is_no_success() {
        let used = json!({ "type": "mcp_tool_use", "name": "roll", "input": { "dice": 2 } });
        assert_eq!(plain(&used), "→ roll (hosted by anthropic) {\"dice\":2}");
        let said = |is_error: bool| {
            json!({ "type": "mcp_tool_result", "is_error": is_error,
                "content": [{ "type": "text", "text": "7" }] })
        };
        assert_eq!(plain(&said(false)), "✓ mcp (hosted by anthropic)\n  7");
        assert_eq!(plain(&said(true)), "✗ mcp (hosted by anthropic)\n  7");
        let text = json!({ "type": "mcp_tool_result", "is_error": true, "content": "no dice" });
        assert_eq!(plain(&text), "✗ mcp (hosted by anthropic)\n  no dice");
    }

    #[test]
    fn a_call_of_a_servers_tool_at_openai_has_a_result_once_it_is_over() {
        let call = |status: &str, output: Value, error: Value| {
            let item = json!({ "type": "mcp_call", "name": "roll", "arguments": "{\"dice\":2}",
                "status": status, "output": output, "error": error });
            of("openai", &item)
        };
        let used = "→ roll (hosted by openai) {\"dice\":2}";
        for status in ["in_progress", "calling"] {
            assert_eq!(call(status, Value::Null, Value::Null), used);
        }
        let done = format!("{used}\n✓ roll (hosted by openai)");
        assert_eq!(call("completed", Value::Null, Value::Null), done);
        for status in ["failed", "incomplete"] {
            let failed = format!("{used}\n✗ roll (hosted by openai, {status})");
            assert_eq!(call(status, Value::Null, Value::Null), failed);
        }
        let refused = format!("{used}\n✗ roll (hosted by openai, no dice)");
        assert_eq!(call("failed", Value::Null, json!("no dice")), refused);
    }

    #[test]
    fn what_gemini_ran_and_said_is_shown() {
        let code = json!({ "executableCode": { "language": "PYTHON", "code": "print(1)" } });
        assert_eq!(
            of("gemini", &code),
            "→ code_execution (hosted by gemini)\n  print(1)"
        );
        let done = json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "1\n" } });
        assert_eq!(
            of("gemini", &done),
            "✓ code_execution (hosted by gemini)\n  1"
        );
        let plain = json!({ "codeExecutionResult": { "output": "1\n" } });
        assert_eq!(
            of("gemini", &plain),
            "✓ code_execution (hosted by gemini)\n  1"
        );
        let late = json!({ "codeExecutionResult": { "outcome": "OUTCOME_DEADLINE_EXCEEDED" } });
        assert_eq!(
            of("gemini", &late),
            "✗ code_execution (hosted by gemini, OUTCOME_DEADLINE_EXCEEDED)"
        );
    }

    #[test]
    fn what_is_listed_and_what_is_not_known_is_shown_too() {
        let found = json!({ "type": "web_search_tool_result",
            "content": [{ "type": "web_search_result", "title": "Lamps", "url": "https://l.example" }] });
        assert_eq!(
            plain(&found),
            "✓ web_search (hosted by anthropic)\n  Lamps  https://l.example"
        );
        assert_eq!(
            plain(&json!({ "type": "new_item" })),
            "[new_item of anthropic] {\"type\":\"new_item\"}"
        );
    }
}
