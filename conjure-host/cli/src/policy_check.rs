//! `conjure policy check`: what could ask a person, told before a run.

use conjure_core::routing::{PolicyDecision, Rule, ToolPolicy};
use conjure_runtime::describe::server_tools_json;
use conjure_runtime::session::ServerTool;
use conjure_runtime::session::ToolPreview;
use serde_json::{Value, json};

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::mcp_servers::unavailable::{UnavailableServer, hinted, print_unavailable, unavailable};
use super::output::{self, Table, clean, clean_line, line, print_note};
use super::routes::preview;
use super::run::SAVED;

/// Says what could ask.
#[derive(clap::Args)]
pub(crate) struct PolicyCheckArgs {
    /// List what is always allowed and always denied too
    #[arg(long)]
    all: bool,
    /// Say what one call would get: the tool's public name, and its arguments as a JSON object
    #[arg(long, num_args = 2, value_names = ["NAME", "JSON"], conflicts_with = "all")]
    call: Vec<String>,
    /// A saved session (`conjure session list`), by its name or its id
    #[arg(long = "session", value_name = "NAME", conflicts_with_all = SAVED)]
    saved: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn run(global: &Global, args: PolicyCheckArgs) -> Result<Exit, CliError> {
    let call = match args.call.as_slice() {
        [name, arguments] => Some((name.clone(), object(arguments)?)),
        _ => None,
    };
    let (tool_preview, spec) = preview(global, args.saved.as_deref(), args.session).await?;
    let unavailable = unavailable(tool_preview.server_states(), &spec);
    if let Some((name, arguments)) = call {
        let Some(verdict) = tool_preview.of_call(&name, &arguments) else {
            return Err(not_offered_error(&tool_preview, &name, &unavailable));
        };
        if global.json {
            output::json(&json!({ "name": name, "arguments": arguments, "verdict": verdict }));
        } else {
            line(clean(&verdict.to_string()));
        }
        return Ok(exit_code(verdict.decision == PolicyDecision::Ask));
    }
    let tools = tool_preview.tools();
    let asks = tools.iter().any(|tool| tool.reaches(PolicyDecision::Ask));
    let shown: Vec<&ToolPolicy> = tools
        .iter()
        .filter(|tool| args.all || tool.reaches(PolicyDecision::Ask))
        .collect();
    if global.json {
        output::json(&json!({
            "could_ask": asks,
            "tools": shown.iter().map(|tool| as_json(tool)).collect::<Vec<_>>(),
            "server_tools": server_tools_json(&tool_preview),
            "unavailable": unavailable,
        }));
    } else {
        let server_tools = if args.all {
            tool_preview.server_tools()
        } else {
            &[]
        };
        print(&shown, server_tools);
        print_note(summary(asks, &unavailable));
        super::routes::report_unsent(&tool_preview);
        print_unavailable(&unavailable);
    }
    Ok(exit_code(asks))
}

/// Why nothing is said of a call.
fn not_offered_error(
    tool_preview: &ToolPreview,
    name: &str,
    unavailable: &[UnavailableServer],
) -> CliError {
    if let Some(kept_out) = tool_preview.table().find_quarantined(name) {
        let why = &kept_out.error;
        return CliError::usage(format!("the tool `{name}` is not offered: {why}"));
    }
    let mut left_out = tool_preview.omitted_tools().iter();
    if let Some(left_out) = left_out.find(|tool| tool.tool == name) {
        let why = clean_line(&left_out.reason);
        return CliError::usage(format!(
            "no request has the tool `{name}`: the provider does not take it: {why}"
        ));
    }
    let error = CliError::usage(format!("there is no tool `{name}`"));
    hinted(error.hint("`conjure routes` lists the tools"), unavailable)
}

fn exit_code(asks: bool) -> Exit {
    if asks { Exit::No } else { Exit::Success }
}

fn object(text: &str) -> Result<Value, CliError> {
    let wrong = "the arguments of `--call` are no JSON object";
    let value: Value =
        serde_json::from_str(text).map_err(|error| CliError::usage_from(error).context(wrong))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(CliError::usage(wrong).hint("write them as {\"name\": value}"))
    }
}

fn as_json(tool: &ToolPolicy) -> Value {
    let mut value = serde_json::to_value(tool).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        let asks = tool.reaches(PolicyDecision::Ask);
        fields.insert("could_ask".to_owned(), asks.into());
    }
    value
}

fn print(tools: &[&ToolPolicy], server_tools: &[ServerTool]) {
    if !tools.is_empty() || !server_tools.is_empty() {
        let mut table = Table::new(["TOOL", "BACKEND", "DECISION", "BECAUSE OF", "OTHERWISE FOR"]);
        for tool in tools {
            let because = match &tool.rule {
                Some(rule) => rule.pattern.to_string(),
                None => format!("effects `{}`", tool.effects),
            };
            let decision = if tool.depends_on.is_empty() {
                tool.decision.to_string()
            } else {
                format!("{}, depends on its arguments", tool.decision)
            };
            let otherwise: Vec<String> = tool.depends_on.iter().map(rule_text).collect();
            table.row([
                tool.name.clone(),
                tool.backend.clone(),
                decision,
                because,
                otherwise.join(", "),
            ]);
        }
        for tool in server_tools {
            table.row([
                tool.name().to_owned(),
                tool.backend.clone(),
                "at the provider".to_owned(),
                "no rule is asked".to_owned(),
                String::new(),
            ]);
        }
        table.print();
    }
}

/// Whether calls could ask, in words. Of servers that give no tools nobody knows it.
fn summary(asks: bool, unavailable: &[UnavailableServer]) -> &'static str {
    match (asks, unavailable) {
        (true, _) => {
            "Calls could ask a person. With nobody there they are denied: `--allow PATTERN` lets \
             them run, `--deny PATTERN` says that they never do."
        }
        (false, []) => "No call can ask a person.",
        (false, [..]) => {
            "No call of the tools that are there can ask a person. Nothing is known of the tools of \
             servers that are not there."
        }
    }
}

fn rule_text(rule: &Rule) -> String {
    format!("{} {}", rule.decision, rule.pattern)
}
