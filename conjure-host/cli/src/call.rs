//! `conjure call`: one call, without a model.

use std::path::PathBuf;

use conjure_core::chat::FunctionCall;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_args::PluginArgs;
use super::sandbox_args::SandboxArgs;
use super::signals::Signals;
use conjure_config::SessionSpec;

/// Calls one tool and prints its result: of all backends of a session file; without one, of the
/// native skills, and with `--executor` its command tools too, for the skill folders named with
/// `--skill`.
///
/// Whoever types the call has decided about it: no policy is asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure call notes_search --config session.toml --args '{\"query\": \"tea\"}'
  conjure call cache-manager_execute --args '{\"command\": \"set greeting hello\"}'
  conjure call local_bash_tool --executor local --args '{\"command\": \"ls\", \"description\": \"\"}'")]
pub(crate) struct CallArgs {
    /// The tool's public name, as `conjure routes` shows it
    tool: String,
    /// Its arguments, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// A session file (TOML): the tools of all its backends can be called
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["executor", "skill"])]
    config: Option<PathBuf>,
    /// The executor for command tools, such as `local`
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
    /// A skill folder or package, run through the executor
    #[arg(long, value_name = "PATH")]
    skill: Vec<PathBuf>,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    plugins: PluginArgs,
}

pub(crate) async fn run(global: &Global, args: CallArgs) -> Result<Exit, CliError> {
    let arguments: Value = serde_json::from_str(&args.args)
        .map_err(|error| CliError::usage_from(error).context("`--args` is not JSON"))?;
    if !arguments.is_object() {
        return Err(CliError::usage("`--args` is not a JSON object")
            .hint("write one, such as '{\"command\": \"…\"}'"));
    }
    let mut signals = Signals::listen()?;
    let building = async { Ok(args.plugins.host(global).build().await?) };
    let host = signals.unless(building).await?;
    let call = FunctionCall {
        call_id: "call-1".to_owned(),
        name: args.tool.clone(),
        arguments,
        arguments_text: None,
    };
    let mut spec = match &args.config {
        Some(path) => SessionSpec::read(path)?,
        None => SessionSpec::calls(&args.skill, args.executor.as_deref()),
    };
    let here = || std::env::current_dir().ok();
    spec.working_dir = spec.working_dir.take().or_else(here);
    args.sandbox.put(&mut spec.sandbox)?;
    let opening = async { Ok(host.calls(spec).await?) };
    let calls = Box::pin(signals.unless(opening)).await?;
    let waiting = async { Ok(calls.until_there(&args.tool).await) };
    if let Err(error) = signals.unless(waiting).await? {
        calls.close().await;
        return Err(error.into());
    }
    let cancel = CancellationToken::new();
    let calling = async { Ok(calls.call(&call, &cancel).await) };
    let report = signals.cancelling(&cancel, calling).await?;
    calls.close().await;
    let report = report?;
    if global.json {
        output::json(&json!({
            "tool": args.tool,
            "is_error": report.output.is_error,
            "output": report.output.output,
            "text": report.output.joined_text(),
            "structured": report.structured,
            "files": report.files,
            "duration_ms": report.duration.as_secs_f64() * 1000.0,
        }));
    } else {
        output::line(output::clean(
            report.output.joined_text().trim_end_matches('\n'),
        ));
    }
    Ok(match signals.last() {
        Some(signal) => signal.exit(),
        None if report.output.is_error => Exit::No,
        None => Exit::Fine,
    })
}
