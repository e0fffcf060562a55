//! Items of a provider's own tools, for people: the command, and what came of it.
//!
//! Each provider has its own shapes; what is not known here is shown as it came, cut short.

use serde_json::Value;

use super::output::{BOLD, CYAN, DIM, GREEN, RED, RESET, clean};
use super::transcript::{one_line, preview};

/// The lines that show an item.
pub(super) fn lines(provider: &str, item: &Value) -> Vec<String> {
    let kind = text(item, "type");
    if kind == "server_tool_use" {
        return used(provider, item);
    }
    match (kind.strip_suffix("_tool_result"), item.get("content")) {
        (Some(tool), Some(content)) => result(provider, tool, content),
        _ => {
            let rest = one_line(&item.to_string(), 100);
            vec![format!(
                "{DIM}[{} of {}] {rest}{RESET}",
                clean(kind),
                clean(provider)
            )]
        }
    }
}

/// What the provider's tool was asked to do.
fn used(provider: &str, item: &Value) -> Vec<String> {
    let name = clean(text(item, "name"));
    let input = item.get("input").unwrap_or(&Value::Null);
    let head = |rest: &str| {
        format!(
            "{CYAN}→{RESET} {BOLD}{name}{RESET} {DIM}(hosted by {}){RESET}{rest}",
            clean(provider)
        )
    };
    // A command or a program is read line by line.
    let command = ["command", "code"].into_iter().find_map(|field| {
        let text = input.get(field)?.as_str()?;
        let others = input.as_object()?.len() > 1;
        (!others).then_some(text)
    });
    let Some(command) = command else {
        return vec![head(&format!(" {}", one_line(&input.to_string(), 100)))];
    };
    let command = clean(command);
    let lines = command.trim_end().lines().map(|line| format!("  {line}"));
    std::iter::once(head("")).chain(lines).collect()
}

/// What it gave back.
fn result(provider: &str, tool: &str, content: &Value) -> Vec<String> {
    let code = content.get("return_code").and_then(Value::as_i64);
    let error = content.get("error_code").and_then(Value::as_str);
    let is_error = error.is_some() || code.is_some_and(|code| code != 0);
    let mark = if is_error {
        format!("{RED}✗{RESET}")
    } else {
        format!("{GREEN}✓{RESET}")
    };
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
    for said in said(content) {
        let shown = preview(&said, is_error);
        lines.extend(shown.iter().map(|line| format!("  {DIM}{line}{RESET}")));
    }
    lines
}

/// The texts of a result: its output, its errors, and what it lists.
fn said(content: &Value) -> Vec<String> {
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

    use super::*;

    fn plain(item: &Value) -> String {
        let mut shown = lines("anthropic", item).join("\n");
        for code in [BOLD, CYAN, DIM, GREEN, RED, RESET] {
            shown = shown.replace(code, "");
        }
        shown
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
