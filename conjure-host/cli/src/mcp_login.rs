//! `conjure mcp login` and `conjure mcp logout`.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;

use conjure_config::SessionSpec;
use conjure_runtime::backend::{Asker, NoAsker};
use conjure_skill_sdk::protocol::{BackendCall, Elicit, Elicited};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::mcp_servers::{ServerSourceArgs, Servers};
use super::output::{self, BOLD, GREEN, RESET, clean, print_note};
use super::person::prompt;
use super::signals::Signals;

/// Logs in to an MCP server over HTTP.
#[derive(clap::Args)]
pub(crate) struct McpLoginArgs {
    /// The server
    server: String,
    /// Open no browser
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    source: ServerSourceArgs,
}

/// Forgets the login to an MCP server.
#[derive(clap::Args)]
pub(crate) struct McpLogoutArgs {
    /// The server
    server: String,
    #[command(flatten)]
    source: ServerSourceArgs,
}

pub(crate) async fn run(global: &Global, args: McpLoginArgs) -> Result<Exit, CliError> {
    let person = TerminalLoginPrompt {
        browser: !args.no_browser,
        session: Arc::new(args.source.spec()?),
    };
    manage(global, &args.source, &args.server, "login", person).await
}

pub(crate) async fn logout(global: &Global, args: McpLogoutArgs) -> Result<Exit, CliError> {
    manage(global, &args.source, &args.server, "logout", NoAsker).await
}

/// Lets the plugin do something to one server; the others are left alone.
async fn manage(
    global: &Global,
    source: &ServerSourceArgs,
    server: &str,
    what: &str,
    asker: impl Asker,
) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let managing = async {
        let mut servers = Servers::open(global, source, asker).await?;
        servers.retain_only(&[server.to_owned()])?;
        let Some(backend) = servers.backend_of(server) else {
            return Err(CliError::usage(format!(
                "there is no MCP server `{server}`"
            )));
        };
        let alone = servers.open_standalone(backend).await?;
        let done = alone
            .call(BackendCall {
                name: what.to_owned(),
                skill: None,
                arguments: json!({ "server": server }),
                files: Vec::new(),
            })
            .await;
        alone.close().await;
        done.map_err(|error| CliError::from_source(Exit::No, error))
    };
    let result = signals.unless(managing).await?;
    if what == "login" {
        // The cursor may stand behind a question.
        print_note("");
    }
    let text = result.joined_text();
    if global.json {
        output::json(&json!({ "server": server, "done": text }));
    } else {
        output::line(format_args!(
            "{GREEN}{}{RESET} {}",
            clean(server),
            clean(&text)
        ));
    }
    Ok(Exit::Success)
}

/// Asks the person who logs in, at this terminal and in a browser.
struct TerminalLoginPrompt {
    browser: bool,
    /// The session file, which says what a browser does not get.
    session: Arc<SessionSpec>,
}

impl Asker for TerminalLoginPrompt {
    fn elicit(&self, _plugin: String, question: Elicit) -> BoxFuture<'static, Elicited> {
        let browser = self.browser;
        let session = Arc::clone(&self.session);
        Box::pin(async move {
            let url = question.url.unwrap_or_default();
            print_note(format_args!(
                "{}\n\n  {BOLD}{}{RESET}\n",
                clean(&question.message),
                clean(&url)
            ));
            if browser && open(&url, &session) {
                print_note("A browser was asked to open it.");
            }
            print_note(
                "If the browser is on another machine, paste the address at which it ended:",
            );
            let Some(line) = prompt("> ").await else {
                // Nobody types; the browser may still come.
                return std::future::pending().await;
            };
            let address = line.trim();
            let content = if address.is_empty() {
                BTreeMap::new()
            } else {
                BTreeMap::from([("address".to_owned(), Value::from(address))])
            };
            Elicited {
                action: "accept".to_owned(),
                content,
            }
        })
    }
}

/// Opens a page in the person's browser, where there is one.
fn open(url: &str, session: &SessionSpec) -> bool {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return false;
    }
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else if has_screen {
        "xdg-open"
    } else {
        return false;
    };
    let mut opener = Command::new(opener);
    conjure_config::env::remove_keys(&mut opener, session.key_vars());
    let started = opener
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            let waiting = std::thread::Builder::new().name("browser".to_owned());
            waiting.spawn(move || child.wait()).is_ok()
        }
        Err(_) => false,
    }
}
