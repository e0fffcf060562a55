//! `conjure mcp list`: the MCP servers of a session file.

use std::time::Duration;

use serde_json::{Map, Value, json};

use conjure_runtime::backend::{HeldTool, NoAsker};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::mcp_held;
use super::mcp_servers::{ListedServer, ServerSourceArgs, Servers};
use super::output::{self, Table, clean_line};
use super::signals::Signals;

/// How long is waited for servers that are starting.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Lists the MCP servers of a session file.
#[derive(clap::Args)]
pub(crate) struct McpListArgs {
    #[command(flatten)]
    source: ServerSourceArgs,
}

pub(crate) async fn run(global: &Global, args: McpListArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let looking = async {
        let servers = Servers::open(global, &args.source, NoAsker).await?;
        let seen = servers.start_and_list(START_TIMEOUT).await?;
        Ok((seen, servers.held_tools()?))
    };
    let (seen, held) = signals.unless(looking).await?;
    if global.json {
        let servers: Vec<_> = seen.iter().map(|server| as_json(server, &held)).collect();
        output::json(&json!({ "servers": servers }));
        return Ok(Exit::Success);
    }
    let mut rows = Table::new(["SERVER", "STATE", "ERA", "REVISION", "TOOLS", "LEFT OUT"]);
    for server in &seen {
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        let tools = server.member("tools").and_then(Value::as_u64);
        let left_out = server.left_out().len();
        rows.row([
            server.name.clone(),
            server.state().to_owned(),
            or_dash(server.text("era")),
            or_dash(server.text("protocol")),
            tools.map_or_else(|| "-".to_owned(), |tools| tools.to_string()),
            if left_out == 0 {
                "-".to_owned()
            } else {
                left_out.to_string()
            },
        ]);
    }
    rows.print();
    for server in &seen {
        print_problems(server, &mcp_held::held_by_server(&held, &server.name));
    }
    if seen
        .iter()
        .any(|server| !matches!(server.state(), "ready" | "off" | "idle"))
    {
        output::print_note("`conjure mcp check` says what to do.");
    }
    Ok(Exit::Success)
}

/// Tells why a server is not ready, and which of its tools no session offers.
fn print_problems(server: &ListedServer, held: &[&HeldTool]) {
    let name = clean_line(&server.name);
    let error = server.text("list_error");
    for why in [server.text("why"), error] {
        if !why.is_empty() && server.state() != "idle" {
            output::print_note(format_args!("{name}: {}", clean_line(why)));
        }
    }
    for (tool, why) in server.left_out() {
        output::print_note(format_args!(
            "{name}: {} is left out: {}",
            clean_line(tool),
            clean_line(why)
        ));
    }
    if !held.is_empty() {
        let told = mcp_held::held_notice(held);
        output::print_note(format_args!("{name}: held: {}", clean_line(&told)));
    }
}

/// A server for programs: what the plugin says, which backend has it, and what of it is held.
pub(super) fn as_json(server: &ListedServer, held: &[HeldTool]) -> Map<String, Value> {
    let said = server.status.as_ref().and_then(Value::as_object);
    let mut json = said.cloned().unwrap_or_default();
    json.insert("server".to_owned(), json!(server.name));
    json.insert("state".to_owned(), json!(server.state()));
    json.insert("backend".to_owned(), json!(server.backend));
    let held = mcp_held::held_by_server(held, &server.name).into_iter();
    let held = held.map(|held| json!({ "tool": held.tool, "changed": held.changed }));
    json.insert("held".to_owned(), held.collect());
    json
}
