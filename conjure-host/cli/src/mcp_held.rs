//! `conjure mcp held` and `conjure mcp approve`: tools that changed since they were approved.

use conjure_core::numerals::count;
use conjure_runtime::backend::{ApprovedTools, HeldTool, KnownDefinition};
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, GREEN, RED, RESET, clean_line};
use super::person;

/// Approves tools that changed.
#[derive(clap::Args)]
pub(crate) struct McpApproveArgs {
    /// The server whose tools are approved
    #[arg(required_unless_present = "all")]
    server: Option<String>,
    /// Only this tool, by its own name
    tool: Option<String>,
    /// Approve the tools of all servers
    #[arg(long, conflicts_with = "server")]
    all: bool,
    /// Ask nothing: what is held now is approved, seen or not
    #[arg(long)]
    yes: bool,
}

/// Shows what is held, and how it differs from what was approved.
pub(crate) fn list_held(global: &Global) -> Result<Exit, CliError> {
    let approved = ApprovedTools::for_data_dir(&global.data_dir());
    let held = approved.held_tools().map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "held": held }));
        return Ok(Exit::Success);
    }
    if held.is_empty() {
        output::line("Nothing is held.");
    }
    show(&held.iter().collect::<Vec<_>>());
    Ok(Exit::Success)
}

pub(crate) async fn approve(global: &Global, args: &McpApproveArgs) -> Result<Exit, CliError> {
    let approved = ApprovedTools::for_data_dir(&global.data_dir());
    let held = approved.held_tools().map_err(CliError::host_from)?;
    let is_meant = |held: &&HeldTool| {
        let is_server = args
            .server
            .as_ref()
            .is_none_or(|server| server == name(held));
        is_server && (args.tool.is_none() || args.tool == held.tool)
    };
    let meant: Vec<&HeldTool> = held.iter().filter(is_meant).collect();
    if meant.is_empty() {
        return Err(nothing_held(&held));
    }
    if !args.yes && !confirm(global, &meant).await? {
        return Err(CliError::new(Exit::No, "nothing was approved").hint("`--yes` approves it"));
    }
    // Just what was shown, whatever came since.
    let digests: Vec<String> = meant.iter().map(|held| held.digest.clone()).collect();
    let done = approved.approve(&digests).map_err(CliError::host_from)?;
    if global.json {
        output::json(&json!({ "approved": done }));
        return Ok(Exit::Success);
    }
    for held in &done {
        output::line(format_args!(
            "{GREEN}{}{RESET}: {} approved as shown",
            clean_line(name(held)),
            clean_line(&describe_held(held))
        ));
    }
    Ok(Exit::Success)
}

/// Whether the person at the terminal approves it, having seen it.
async fn confirm(global: &Global, meant: &[&HeldTool]) -> Result<bool, CliError> {
    if global.json {
        return Ok(false);
    }
    show(meant);
    person::ask_yes_no("Approve this?").await
}

/// What is held of a server.
pub(super) fn held_by_server<'a>(held: &'a [HeldTool], server: &str) -> Vec<&'a HeldTool> {
    held.iter().filter(|held| name(held) == server).collect()
}

/// How many tools of a server are held, which, and where more of it is said.
pub(super) fn held_notice(held: &[&HeldTool]) -> String {
    let mut tools: Vec<String> = held.iter().map(|held| describe_held(held)).collect();
    // Several sessions may have seen several definitions of one tool.
    tools.dedup();
    let number = u64::try_from(tools.len()).unwrap_or(u64::MAX);
    format!(
        "{}, changed after approval: {} (`conjure mcp held` shows how)",
        count(number, "tool"),
        tools.join(", ")
    )
}

fn nothing_held(others: &[HeldTool]) -> CliError {
    let names: Vec<String> = others
        .iter()
        .map(|held| {
            format!(
                "{}: {}",
                clean_line(name(held)),
                clean_line(&describe_held(held))
            )
        })
        .collect();
    let error = CliError::new(Exit::No, "no such tool is held");
    match names.is_empty() {
        true => error.hint("nothing is held"),
        false => error.hint(format!("held are {}", names.join("; "))),
    }
}

/// What commands call the server of a tool.
fn name(held: &HeldTool) -> &str {
    held.server.as_deref().unwrap_or(&held.backend)
}

/// What is held of a server, in words.
fn describe_held(held: &HeldTool) -> String {
    match &held.tool {
        Some(tool) => format!("`{tool}`"),
        None => "what it says about its use".to_owned(),
    }
}

fn show(held: &[&HeldTool]) {
    for (number, held) in held.iter().enumerate() {
        if number > 0 {
            output::line("");
        }
        print(held);
    }
}

fn print(held: &HeldTool) {
    output::line(format_args!(
        "{BOLD}{}{RESET}: {}: {}",
        clean_line(name(held)),
        clean_line(&describe_held(held)),
        clean_line(&held.changed.join(", "))
    ));
    let (before, after) = (parts(&held.approved), parts(&held.now));
    for ((part, before), (_, after)) in before.into_iter().zip(after) {
        let was_compared = part != FURTHER || held.approved.further.is_some();
        if before == after || !was_compared {
            continue;
        }
        output::line(format_args!("  {part}"));
        for (sign, colour, text) in [("-", RED, before), ("+", GREEN, after)] {
            for line in text.lines() {
                output::line(format_args!(
                    "    {colour}{sign} {}{RESET}",
                    clean_line(line)
                ));
            }
        }
    }
}

/// The part that a definition has which was approved since it is compared.
const FURTHER: &str = "further members";

/// The parts of a definition, as text.
fn parts(definition: &KnownDefinition) -> [(&'static str, String); 6] {
    let pretty = |value: &Value| {
        let mut value = value.clone();
        value.sort_all_objects();
        serde_json::to_string_pretty(&value).unwrap_or_default()
    };
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
        (FURTHER, definition.further.clone().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(server: &str, tool: Option<&str>) -> HeldTool {
        HeldTool {
            digest: String::new(),
            backend: "mcp".to_owned(),
            server: Some(server.to_owned()),
            tool: tool.map(str::to_owned),
            changed: vec!["description".to_owned()],
            approved: KnownDefinition::default(),
            now: KnownDefinition::default(),
        }
    }

    #[test]
    fn what_is_held_of_a_server_is_counted_and_named() {
        let all = [
            held("other", Some("add")),
            held("s", Some("echo")),
            held("s", Some("echo")),
            held("s", None),
        ];
        assert_eq!(
            held_notice(&held_by_server(&all, "s")),
            "2 tools, changed after approval: `echo`, what it says about its use (`conjure mcp held` \
             shows how)"
        );
        assert!(held_by_server(&all, "none").is_empty());
    }
}
