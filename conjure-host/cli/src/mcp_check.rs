//! `conjure mcp check`: what works, what does not, and what to do about it.

use std::time::Duration;

use conjure_core::context::quoted_word;
use conjure_runtime::backend::{HeldTool, NoAsker};
use conjure_runtime::mcp_status;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::mcp_held;
use super::mcp_list::as_json;
use super::mcp_servers::{ListedServer, ServerSourceArgs, Servers, servers_of};
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW, clean_line, duration};
use super::signals::Signals;

/// Starts MCP servers and says how they are.
#[derive(clap::Args)]
pub(crate) struct McpCheckArgs {
    /// The servers; all without it
    server: Vec<String>,
    #[command(flatten)]
    source: ServerSourceArgs,
}

pub(crate) async fn run(global: &Global, args: McpCheckArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let looking = async {
        let mut servers = Servers::open(global, &args.source, NoAsker).await?;
        if !args.server.is_empty() {
            servers.retain_only(&args.server)?;
        }
        let limit = start_all(&mut servers);
        let seen = servers.start_and_list(limit).await?;
        Ok((seen, servers.held_tools()?))
    };
    let (mut seen, held) = signals.unless(looking).await?;
    if !args.server.is_empty() {
        seen.retain(|server| args.server.contains(&server.name));
    }
    let well = seen
        .iter()
        .all(|server| matches!(server.state(), "ready" | "off"));
    if global.json {
        let servers: Vec<Value> = seen
            .iter()
            .map(|server| {
                let mut json = as_json(server, &held);
                json.insert("path".to_owned(), json!(path(server)));
                json.insert("remedy".to_owned(), json!(remedy(server)));
                json.into()
            })
            .collect();
        output::json(&json!({ "ok": well, "servers": servers }));
    } else {
        for server in &seen {
            print(server, &mcp_held::held_by_server(&held, &server.name));
        }
    }
    Ok(if well { Exit::Success } else { Exit::No })
}

/// All are to be started at once. Gives back how long that may take.
fn start_all(servers: &mut Servers) -> Duration {
    let each = servers.backends().filter_map(servers_of);
    each.map(mcp_status::start_all).max().unwrap_or_default()
}

fn print(server: &ListedServer, held: &[&HeldTool]) {
    let state = server.state();
    let colour = match server.last_state() {
        "ready" => GREEN,
        "off" | "idle" => DIM,
        "needs_auth" | "starting" => YELLOW,
        _ => RED,
    };
    output::line(format_args!(
        "{BOLD}{}{RESET}  {colour}{state}{RESET}",
        clean_line(&server.name)
    ));
    let field = |name: &str, text: &str| {
        if !text.is_empty() {
            output::line(format_args!("  {DIM}{name:<9}{RESET} {}", clean_line(text)));
        }
    };
    field("program", server.text("program"));
    if server.text("program").is_empty() && !has_no_program(server) {
        field("PATH", &path(server).unwrap_or_default());
    }
    let number = |name: &str| server.member(name).and_then(Value::as_u64);
    if let Some(ready) = number("ready_ms") {
        let process = number("pid").map(|pid| format!("process {pid}, "));
        let text = format!("{}after {}", process.unwrap_or_default(), duration(ready));
        field("ready", &text);
    }
    let era = server.text("era");
    if !era.is_empty() {
        field("protocol", &format!("{}, {era}", server.text("protocol")));
    }
    field(
        "login",
        match (server.text("auth"), state) {
            ("logged_in", _) => "yes",
            ("configured", _) => "credentials of the configuration",
            ("logged_out", "needs_auth") => "no",
            _ => "",
        },
    );
    if let Some(tools) = number("tools") {
        field("tools", &tools.to_string());
    }
    for (tool, why) in server.left_out() {
        field("left out", &format!("{tool}: {why}"));
    }
    if !held.is_empty() {
        field("held", &mcp_held::held_notice(held));
    }
    match number("skipped") {
        Some(pieces @ 1..) if server.text("transport") == "http" => {
            field(
                "noise",
                &format!("{pieces} answers held something that is no message"),
            );
        }
        Some(pieces @ 1..) => {
            field(
                "noise",
                &format!("{pieces} lines on standard output are no messages"),
            );
        }
        _ => {}
    }
    field("why", server.text("why"));
    field("why", server.text("list_error"));
    let lines = server.member("stderr").and_then(Value::as_array);
    for line in lines.into_iter().flatten().filter_map(Value::as_str) {
        field("stderr", line);
    }
    field("do", &remedy(server).unwrap_or_default());
}

/// Where its program is looked for first.
fn path(server: &ListedServer) -> Option<String> {
    let command = server.config.get("command")?.as_str()?;
    if command.contains('/') || server.status.is_none() {
        return None;
    }
    let own = server
        .config
        .get("env")
        .and_then(|env| env.get("PATH")?.as_str());
    own.map(str::to_owned)
        .or_else(|| std::env::var("PATH").ok())
}

/// Whether the server's program was not found; its reason says where it was looked for.
fn has_no_program(server: &ListedServer) -> bool {
    server.member("no_program").and_then(Value::as_bool) == Some(true)
}

/// Whether the server's credentials are good and only do not give a right that it wants.
fn lacks_right(server: &ListedServer) -> bool {
    server.member("lacks_right").and_then(Value::as_bool) == Some(true)
}

/// What a person can do; about the last failure where the server is tried again.
pub(super) fn remedy(server: &ListedServer) -> Option<String> {
    let told = server.text("remedy");
    if !told.is_empty() {
        return Some(told.to_owned());
    }
    let name = &server.name;
    let is_program = server.config.get("command").is_some();
    match server.last_state() {
        "needs_auth" if lacks_right(server) => Some(match server.text("auth") {
            "configured" => "the credentials in `headers` do not give the right that the reason \
                             names: set the secret to ones that do, or take the header away and \
                             log in"
                .to_owned(),
            _ => format!(
                "add what the reason names to `oauth.scopes` of the server, then: conjure mcp \
                 login {name}"
            ),
        }),
        "needs_auth" if server.text("auth") == "configured" => Some(
            "the credentials in `headers` are refused: set the secret anew, or take the header \
             away and log in"
                .to_owned(),
        ),
        "needs_auth" => Some(format!("conjure mcp login {name}")),
        "failed" if has_no_program(server) => Some(
            "install it, or write its whole path as `command`, or set `env.PATH` of the server"
                .to_owned(),
        ),
        "failed" => Some("change the session file as the reason says".to_owned()),
        "backoff" if is_program => Some(format!(
            "run it by hand to see more: {}",
            command_line(server)
        )),
        "backoff" => Some("see that the address is right and the server runs".to_owned()),
        "starting" => Some(
            "it is slow: run it by hand once, since it may be fetching itself, or set \
             `initialize_timeout_ms` of the server"
                .to_owned(),
        ),
        "ready" if server.member("list_error").is_some() => {
            Some("it is connected and does not list its tools: see its own log".to_owned())
        }
        _ => None,
    }
}

/// The command line of a server; secrets by their names.
fn command_line(server: &ListedServer) -> String {
    let command = server.config.get("command").and_then(Value::as_str);
    let args = server.config.get("args").and_then(Value::as_array);
    let mut words = vec![command.unwrap_or_default().to_owned()];
    for arg in args.into_iter().flatten() {
        words.push(
            match (arg.as_str(), arg.get("secret").and_then(Value::as_str)) {
                (Some(text), _) => quoted_word(text),
                (None, secret) => format!("\"$CONJURE_SECRET_{}\"", secret.unwrap_or_default()),
            },
        );
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(config: Value, status: Value) -> ListedServer {
        ListedServer {
            name: "s".to_owned(),
            backend: "mcp".to_owned(),
            config,
            status: Some(status),
        }
    }

    #[test]
    fn a_server_that_is_tried_again_has_the_remedy_of_its_last_failure() {
        let program = json!({ "command": "sh", "args": ["-c", "exit 3"] });
        let slow = server(program.clone(), json!({ "state": "starting" }));
        assert!(remedy(&slow).unwrap().starts_with("it is slow"));
        let again = |failed_as: &str| json!({ "state": "starting", "failed_as": failed_as });
        let crashing = server(program.clone(), again("backoff"));
        assert_eq!(
            remedy(&crashing).as_deref(),
            Some("run it by hand to see more: sh -c 'exit 3'")
        );
        let mut absent = again("failed");
        absent["no_program"] = json!(true);
        let absent = server(program, absent);
        assert!(remedy(&absent).unwrap().starts_with("install it"));
        let web = server(json!({ "url": "http://127.0.0.1:1" }), again("needs_auth"));
        assert_eq!(remedy(&web).as_deref(), Some("conjure mcp login s"));
    }

    #[test]
    fn a_right_that_is_missing_is_told_apart_from_credentials_that_are_refused() {
        let remedy = |auth: &str, lacks_right: bool| {
            let config = json!({ "url": "http://127.0.0.1:1" });
            let status = json!({ "state": "needs_auth", "auth": auth, "lacks_right": lacks_right });
            remedy(&server(config, status)).unwrap()
        };
        assert!(
            remedy("configured", false).starts_with("the credentials in `headers` are refused")
        );
        assert!(remedy("configured", true).contains("do not give the right"));
        assert_eq!(remedy("logged_in", false), "conjure mcp login s");
        let scopes = remedy("logged_in", true);
        assert!(scopes.contains("`oauth.scopes`"), "{scopes}");
        assert!(scopes.ends_with("conjure mcp login s"), "{scopes}");
    }
}
