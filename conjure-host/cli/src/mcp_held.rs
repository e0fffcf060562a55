//! `conjure mcp held` and `conjure mcp approve`: tools that changed since they were approved.

use conjure_runtime::backend::{ApprovedTools, HeldTool, ToolDefinition};
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, GREEN, RED, RESET, clean};

/// Approves tools that changed.
#[derive(clap::Args)]
pub(crate) struct McpApproveArgs {
    /// The server whose tools are approved
    #[arg(required_unless_present = "all")]
    server: Option<String>,
    /// Only this one, by its own name
    tool: Option<String>,
    /// Those of all servers
    #[arg(long, conflicts_with = "server")]
    all: bool,
}

/// Shows what is held, and how it differs from what was approved.
pub(crate) fn held(global: &Global) -> Result<Exit, CliError> {
    let approved = ApprovedTools::below(&global.data_dir());
    let held = approved.held().map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "held": held }));
        return Ok(Exit::Fine);
    }
    if held.is_empty() {
        output::line("Nothing is held.");
    }
    for (number, tool) in held.iter().enumerate() {
        if number > 0 {
            output::line("");
        }
        print(tool);
    }
    Ok(Exit::Fine)
}

pub(crate) fn approve(global: &Global, args: &McpApproveArgs) -> Result<Exit, CliError> {
    let approved = ApprovedTools::below(&global.data_dir());
    let done = approved
        .approve(args.server.as_deref(), args.tool.as_deref())
        .map_err(CliError::host_from)?;
    if done.is_empty() {
        let held = approved.held().map_err(CliError::host_from)?;
        return Err(nothing_held(&held));
    }
    if global.json {
        output::json(&json!({ "approved": done }));
        return Ok(Exit::Fine);
    }
    for tool in &done {
        output::line(format_args!(
            "{GREEN}{}{RESET} {} is approved as it is now",
            clean(name(tool)),
            clean(&tool.tool)
        ));
    }
    Ok(Exit::Fine)
}

fn nothing_held(others: &[HeldTool]) -> CliError {
    let names: Vec<String> = others
        .iter()
        .map(|tool| format!("{} {}", clean(name(tool)), clean(&tool.tool)))
        .collect();
    let error = CliError::new(Exit::No, "no such tool is held");
    match names.is_empty() {
        true => error.hint("`conjure mcp held` shows what is held: nothing is, for now"),
        false => error.hint(format!("held are: {}", names.join(", "))),
    }
}

/// What commands call the server of a tool.
fn name(tool: &HeldTool) -> &str {
    tool.server.as_deref().unwrap_or(&tool.backend)
}

fn print(tool: &HeldTool) {
    output::line(format_args!(
        "{BOLD}{} {}{RESET}: {}",
        clean(name(tool)),
        clean(&tool.tool),
        clean(&tool.changed.join(", "))
    ));
    let (before, after) = (parts(&tool.approved), parts(&tool.now));
    for ((part, before), (_, after)) in before.into_iter().zip(after) {
        if before == after {
            continue;
        }
        output::line(format_args!("  {part}"));
        for (sign, colour, text) in [("-", RED, before), ("+", GREEN, after)] {
            for line in text.lines() {
                output::line(format_args!("    {colour}{sign} {}{RESET}", clean(line)));
            }
        }
    }
}

/// The parts of a definition, as text.
fn parts(definition: &ToolDefinition) -> [(&'static str, String); 5] {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let effects = json!({ "effects": definition.effects, "annotations": definition.annotations });
    [
        ("title", definition.title.clone().unwrap_or_default()),
        ("description", definition.description.clone()),
        ("arguments", pretty(&definition.input_schema)),
        (
            "results",
            definition
                .output_schema
                .as_ref()
                .map(pretty)
                .unwrap_or_default(),
        ),
        ("annotations", pretty(&effects)),
    ]
}
