//! Rules for the declared tools and the choice among them.
//!
//! Calls of tools are in `history`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::request::array;
use crate::validate::{Findings, Rule, is_tool_name, non_null, schema, text};

pub(super) fn tools(body: &Value, findings: &mut Findings) {
    let tools = array(body, "tools");
    let mut names = BTreeSet::new();
    for (number, tool) in tools.iter().enumerate() {
        let place = format!("tools.{number}");
        let kind = text(tool, "type");
        // A server's toolset has a server in the place of a name.
        if kind == "mcp_toolset" {
            continue;
        }
        let name = text(tool, "name");
        findings.check(
            is_tool_name(name),
            Rule::ToolName,
            format_args!("{place}.name"),
            format_args!("`{name}` does not match ^[a-zA-Z0-9_-]{{1,64}}$"),
        );
        findings.check(
            names.insert(name),
            Rule::ToolNameUnique,
            &place,
            "tool names must be unique",
        );
        if matches!(kind, "" | "custom") {
            let schema = tool.get("input_schema").unwrap_or(&Value::Null);
            findings.check(
                text(schema, "type") == "object",
                Rule::ToolSchema,
                format_args!("{place}.input_schema.type"),
                "input should be 'object'",
            );
            if tool.get("strict") == Some(&Value::Bool(true)) {
                schema::anthropic_strict(&format!("{place}.input_schema"), schema, findings);
            }
        }
    }
    choice(body, &names, findings);
    format(body, findings);
}

/// The output's schema, in its place of today and in the one of the beta.
fn format(body: &Value, findings: &mut Findings) {
    let config = body
        .get("output_config")
        .and_then(|it| non_null(it, "format"));
    let Some(format) = config.or_else(|| non_null(body, "output_format")) else {
        return;
    };
    let schema = format.get("schema").unwrap_or(&Value::Null);
    findings.check(
        text(format, "type") == "json_schema" && schema.is_object(),
        Rule::Format,
        "output_config.format",
        "must be of type json_schema, with a schema",
    );
    schema::anthropic_strict("output_config.format.schema", schema, findings);
}

fn choice(body: &Value, names: &BTreeSet<&str>, findings: &mut Findings) {
    let Some(choice) = body.get("tool_choice").filter(|it| !it.is_null()) else {
        return;
    };
    let what = match text(choice, "type") {
        _ if array(body, "tools").is_empty() => "may only be specified while providing tools",
        "auto" | "any" | "none" => return,
        "tool" if names.contains(text(choice, "name")) => return,
        "tool" => "names a tool that is not there",
        _ => "must be of type auto, any, tool or none",
    };
    findings.add(Rule::ToolChoice, "tool_choice", what);
}
