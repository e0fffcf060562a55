//! `conjure routes`: the routing table of a session.

use conjure_config::SessionSpec;
use conjure_core::routing::{ExcludedTools, Route};
use conjure_runtime::describe::{mode, tool_preview_json};
use conjure_runtime::session::ToolPreview;
use serde_json::json;

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::mcp_servers::unavailable::{UnavailableServer, print_unavailable, unavailable};
use super::output::{self, Table, clean_line};
use super::run::SAVED;
use super::sessions::SavedSessions;

/// Shows which tools the model would see, and who runs each: public name, backend, skill, plugin
/// and version, mode, and what its definition costs in tokens. For the provider and model that the
/// session names, since what a backend offers may depend on them. Asks no model.
#[derive(clap::Args)]
pub(crate) struct RoutesArgs {
    /// A saved session (`conjure session list`), by its name or its id
    #[arg(long = "session", value_name = "NAME", conflicts_with_all = SAVED)]
    saved: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn run(global: &Global, args: RoutesArgs) -> Result<Exit, CliError> {
    let (tool_preview, spec) = preview(global, args.saved.as_deref(), args.session).await?;
    let unavailable = unavailable(tool_preview.server_states(), &spec);
    if global.json {
        let mut shown = tool_preview_json(&tool_preview);
        if let Some(members) = shown.as_object_mut() {
            members.insert("unavailable".to_owned(), json!(unavailable));
        }
        output::json(&shown);
    } else {
        print_with(&tool_preview, &unavailable);
        for said in tool_preview.instructions() {
            let text = said.text.replace('\n', "\n  ");
            let server = said.server.as_deref();
            let server = server.map(|server| format!(", server `{server}`"));
            output::line(format_args!(
                "\nThe model is told by `{}`{}:\n  {text}",
                said.backend,
                server.unwrap_or_default()
            ));
        }
    }
    Ok(Exit::Success)
}

/// The tools of the next request in a session, a saved one or the one that the options describe, and
/// what the session is opened with.
pub(crate) async fn preview(
    global: &Global,
    saved: Option<&str>,
    options: SessionArgs,
) -> Result<(ToolPreview, SessionSpec), CliError> {
    if let Some(session) = saved {
        return Box::pin(saved_preview(global, session, options)).await;
    }
    let host = options.plugins.named_host(global)?.build().await?;
    let spec = options.spec(&host, global).await?;
    Ok((Box::pin(host.tool_preview(spec.clone())).await?, spec))
}

/// The preview of a saved session's next turn, under the rules of the options beside its own, and what
/// the session is opened with.
async fn saved_preview(
    global: &Global,
    session: &str,
    options: SessionArgs,
) -> Result<(ToolPreview, SessionSpec), CliError> {
    let sessions = SavedSessions::with_plugins(global, &options.plugins).await?;
    let policy = options.policy();
    let manager = sessions.manager();
    let looking = async {
        let tool_preview = manager.tool_preview(session, &policy).await?;
        Ok((tool_preview, manager.spec(session).await?))
    };
    let looked = Box::pin(looking).await;
    sessions.close().await;
    looked
}

/// Prints the tools of a request for people.
pub(crate) fn print(tool_preview: &ToolPreview) {
    print_with(tool_preview, &[]);
}

/// Like [`print()`], for people who also read which servers give no tools now.
fn print_with(tool_preview: &ToolPreview, unavailable: &[UnavailableServer]) {
    let (table, server_tools) = (tool_preview.table(), tool_preview.server_tools());
    if table.routes().is_empty() && server_tools.is_empty() {
        output::line(match unavailable {
            [] => {
                "There are no tools. Put plugins into a plugin directory, or name one with \
                 `--plugin`."
            }
            [..] => "There are no tools.",
        });
    } else {
        let mut rows = Table::new(["TOOL", "BACKEND", "SKILL", "PLUGIN", "MODE", "TOKENS"]);
        for route in tool_preview.routes() {
            rows.row([
                route.name.as_str().to_owned(),
                route.backend.to_string(),
                route.skill().unwrap_or("-").to_owned(),
                plugin(route),
                mode(route).to_owned(),
                route.schema_tokens().to_string(),
            ]);
        }
        for tool in server_tools {
            rows.row([
                tool.name().to_owned(),
                tool.backend.clone(),
                "-".to_owned(),
                "-".to_owned(),
                "at the provider".to_owned(),
                "-".to_owned(),
            ]);
        }
        rows.print();
    }
    for shadowed in table.shadowed() {
        let told = format!("shadowed: {} ({})", shadowed.name, shadowed.source);
        output::print_note(clean_line(&told));
    }
    for kept_out in ExcludedTools::of(table.quarantined()) {
        output::print_note(kept_out);
    }
    report_unsent(tool_preview);
    print_unavailable(unavailable);
}

/// Says what a request goes without.
pub(crate) fn report_unsent(tool_preview: &ToolPreview) {
    for tool in tool_preview.omitted_tools() {
        let told = format!("the provider does not take: {}: {}", tool.tool, tool.reason);
        output::print_note(clean_line(&told));
    }
    for (backend, reason) in tool_preview.failed() {
        let told = format!("backend `{backend}` could not say what it adds to a request: {reason}");
        output::print_note(clean_line(&told));
    }
}

fn plugin(route: &Route) -> String {
    let origin = &route.definition.origin;
    match (&origin.plugin, &origin.version) {
        (Some(plugin), Some(version)) => format!("{plugin} {version}"),
        (Some(plugin), None) => plugin.clone(),
        _ => "-".to_owned(),
    }
}
