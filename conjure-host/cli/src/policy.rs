//! `conjure policy`: the rules about which calls may run.

use clap::Subcommand;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::policy_check;

/// Looks at the rules about which calls may run, before anything runs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure policy check --config session.toml                # what could ask
  conjure policy check --config session.toml --all
  conjure policy check --allow 'local_bash_tool(git status *)' \\
    --call local_bash_tool '{\"command\": \"git push\"}'")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    verb: PolicyVerb,
}

#[derive(Subcommand)]
enum PolicyVerb {
    /// List every tool whose calls could ask a person
    ///
    /// Opens the session's backends, asks no model and runs no call. Ends with 1 when something
    /// could ask, which without a person means that it is denied, and with 0 when nothing could.
    /// Tools that come while a session runs are not known here.
    Check(Box<policy_check::PolicyCheckArgs>),
}

pub(crate) async fn run(global: &Global, args: PolicyArgs) -> Result<Exit, CliError> {
    match args.verb {
        PolicyVerb::Check(args) => policy_check::run(global, *args).await,
    }
}
