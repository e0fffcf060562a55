//! `conjure acp`: the host as an agent of editors.

use std::path::PathBuf;
use std::time::Duration;

use conjure_acp::{AcpHost, AcpOptions};
use conjure_config::platform::take_streams;
use conjure_providers::auths::{Auths, KeySources};
use conjure_runtime::manager::{Manager, ManagerOptions};
use tokio_util::sync::CancellationToken;

use super::acp_commands;
use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::plugin_args::PluginArgs;
use super::session_change::tools;
use super::signals::{Signal, Signals};

/// How long turns that the editor left may take to come to their end.
const ENDING: Duration = Duration::from_secs(5);

/// Serves an editor that speaks the Agent Client Protocol, such as Zed, over standard input and
/// output.
///
/// Each conversation of the editor is a saved session: `conjure chat --session` and the page go on
/// with it. The program ends when the editor closes its end.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure acp
  conjure acp --auth work --model claude-sonnet-4-5
  conjure acp --tools tools.toml")]
pub(crate) struct AcpArgs {
    /// The saved auth of new sessions: NAME, or PROVIDER/KIND/NAME (`conjure auth list`) [default:
    /// that of the session that was changed last]
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,
    /// The model of new sessions, as the provider names it [default: that of the session that was
    /// changed last with this auth]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The backends, names, policy, budgets and limits of new sessions: a session file (TOML) without
    /// provider, auth, model, persona and working directory
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten)]
    plugins: PluginArgs,
}

pub(crate) async fn run(global: &Global, args: AcpArgs) -> Result<Exit, CliError> {
    let no_streams =
        |error| CliError::host_from(error).context("standard input and output cannot be used");
    // Before anything of a plugin's can read or print.
    let streams = take_streams().map_err(no_streams)?;
    let mut signals = Signals::listen()?;
    let tools = match &args.tools {
        Some(file) => tools(file)?,
        None => AcpOptions::default().tools,
    };
    let manager = signals.unless(manager(global, &args.plugins)).await?;
    let options = AcpOptions {
        commands: Some(acp_commands::of(global, &manager)),
        auth: args.auth.clone(),
        model: args.model.clone(),
        tools,
        ..AcpOptions::default()
    };
    let (input, output) = streams.open().map_err(no_streams)?;
    let end = CancellationToken::new();
    let host = AcpHost::new(manager.clone(), options);
    let serving = Box::pin(host.serve_streams(input, output, end.clone()));
    let serving = async { serving.await.map_err(CliError::host_from) };
    let served = Box::pin(signals.cancelling(&end, serving)).await;
    manager.shutdown(ENDING).await;
    served?;
    Ok(signals.last().map_or(Exit::Success, Signal::exit))
}

async fn manager(global: &Global, plugins: &PluginArgs) -> Result<Manager, CliError> {
    let store = global.store().await?;
    let keys = KeySources::from_env(global.data_dir());
    let host = plugins
        .named_host(global)?
        .auths(Auths::over(store.clone(), keys))
        .log(store.clone())
        .watch(true)
        .build()
        .await?;
    let options = ManagerOptions {
        adopts: false,
        ..ManagerOptions::default()
    };
    let manager = Manager::start(host, store, options).await;
    manager.map_err(CliError::host_from)
}
