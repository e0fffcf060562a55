//! `conjure mcp serve`: the host as an MCP server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use conjure_config::SessionSpec;
use conjure_config::platform::take_streams;
use conjure_core::routing::Pattern;
use conjure_http_server::user_token_file;
use conjure_mcp::{HttpAccess, McpHost, McpOptions, MetaTools};
use conjure_runtime::Host;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::args::{Global, calls_spec, canonical_dir, named_executor};
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_args::PluginArgs;
use super::sandbox_args::SandboxArgs;
use super::signals::Signals;
use super::skill;
use super::tokens;

/// Serves tools, resources and prompts to MCP clients.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure mcp serve --stdio
  conjure mcp serve --stdio --config session.toml --meta-tools beside
  conjure mcp serve --http 127.0.0.1:8931
  MCP_TOKEN=… conjure mcp serve --http 0.0.0.0:8931 --token-env MCP_TOKEN --allow-host box.example")]
pub(crate) struct McpServeArgs {
    #[command(flatten)]
    transport: McpTransportArgs,
    /// A session file (TOML): its backends are what is served
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["skill", "executor"])]
    config: Option<PathBuf>,
    /// A skill folder or package, run through the executor
    #[arg(
        long,
        value_name = "PATH",
        requires = "executor",
        help_heading = "Tools"
    )]
    skill: Vec<PathBuf>,
    /// The executor for command tools, such as `local`; without it there are no command tools
    #[arg(long, value_name = "NAME", help_heading = "Tools")]
    executor: Option<String>,
    /// The working directory of calls [default: the session file's, else the current directory over
    /// stdio and a directory of each session's own over HTTP]
    #[arg(long, value_name = "DIR", help_heading = "Tools")]
    working_dir: Option<PathBuf>,
    /// Never serve tools that fit this pattern, and never run calls that do: a tool's name,
    /// `backend:NAME`, or `NAME(arguments)`, with `*`
    #[arg(long, value_name = "PATTERN", help_heading = "Tools")]
    deny: Vec<Pattern>,
    /// Serve `search_tools`, `get_tool_details` and `call_tool`, beside the other tools or instead
    /// of them: for clients that never read the list again, or for whom so many cost too much
    #[arg(long, value_name = "WHERE", value_enum, help_heading = "Tools")]
    meta_tools: Option<MetaToolsMode>,
    /// A variable of the environment that holds a token which lets a client in, of 16 characters or
    /// more, beside the token of the user who serves. Each client with a token of its own has sessions of its own
    #[arg(
        long,
        value_name = "NAME",
        requires = "http",
        conflicts_with = "stdio",
        help_heading = "HTTP"
    )]
    token_env: Vec<String>,
    /// A name under which clients reach the server, beside this machine's: a value of `Host`
    #[arg(
        long,
        value_name = "HOST",
        requires = "http",
        conflicts_with = "stdio",
        help_heading = "HTTP"
    )]
    allow_host: Vec<String>,
    /// A page that may call the server from a browser, such as `https://app.example:443`: a value
    /// of `Origin`
    #[arg(
        long,
        value_name = "ORIGIN",
        requires = "http",
        conflicts_with = "stdio",
        help_heading = "HTTP"
    )]
    allow_origin: Vec<String>,
    /// The most sessions at the same time
    #[arg(
        long,
        value_name = "N",
        requires = "http",
        conflicts_with = "stdio",
        default_value_t = 64,
        help_heading = "HTTP"
    )]
    max_sessions: usize,
    /// Minutes after which a session that nobody uses is ended
    #[arg(
        long,
        value_name = "MINUTES",
        requires = "http",
        conflicts_with = "stdio",
        default_value_t = 60,
        help_heading = "HTTP"
    )]
    idle: u64,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    plugins: PluginArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct McpTransportArgs {
    /// Serve one client over standard input and output
    #[arg(long)]
    stdio: bool,
    /// Serve many clients over HTTP at this address, such as `127.0.0.1:8931`; the endpoint is
    /// `/mcp`, and port 0 is any that is free
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MetaToolsMode {
    /// The other tools are listed too
    Beside,
    /// Only these three are listed
    Instead,
}

pub(crate) async fn run(global: &Global, args: McpServeArgs) -> Result<Exit, CliError> {
    match args.transport.http {
        Some(address) => Box::pin(over_http(global, args, address)).await,
        None => Box::pin(over_stdio(global, args)).await,
    }
}

async fn over_stdio(global: &Global, args: McpServeArgs) -> Result<Exit, CliError> {
    // Before anything of a plugin's can read or print.
    let streams = take_streams().map_err(|error| {
        CliError::host_from(error).context("standard input and output cannot be used")
    })?;
    let mut signals = Signals::listen()?;
    let host = signals.unless(host(global, &args.plugins)).await?;
    args.check_named(&host)?;
    let spec = args.spec(std::env::current_dir().ok())?;
    let server = McpHost::new(host, spec, args.options())?;
    let (input, output) = streams.open().map_err(|error| {
        CliError::host_from(error).context("standard input and output cannot be used")
    })?;
    let end = CancellationToken::new();
    let serving = server.serve_streams(input, output, end.clone());
    let serving = Box::pin(serving);
    let serving = async { Ok(serving.await?) };
    Box::pin(signals.cancelling(&end, serving)).await?;
    Ok(signals
        .last()
        .map_or(Exit::Success, super::signals::Signal::exit))
}

async fn over_http(
    global: &Global,
    args: McpServeArgs,
    address: SocketAddr,
) -> Result<Exit, CliError> {
    let access = HttpAccess {
        tokens: tokens::with_users(global, tokens::of_env(&args.token_env)?)?,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
    };
    let mut signals = Signals::listen()?;
    let host = signals.unless(host(global, &args.plugins)).await?;
    args.check_named(&host)?;
    let server = McpHost::new(host, args.spec(None)?, args.options())?;
    let server = server.listen(address, access).await?;
    let token_file = user_token_file(&global.data_dir());
    if global.json {
        output::json_line(&json!({ "url": server.url(), "token_file": token_file }));
    } else {
        output::line(format_args!("Serving MCP at {}", server.url()));
        tokens::print_token_hint(&token_file);
    }
    let end = CancellationToken::new();
    let serving = server.serve(end.clone());
    let serving = Box::pin(serving);
    let serving = async { Ok(serving.await?) };
    Box::pin(signals.cancelling(&end, serving)).await?;
    Ok(signals
        .last()
        .map_or(Exit::Success, super::signals::Signal::exit))
}

async fn host(global: &Global, plugins: &PluginArgs) -> Result<Host, CliError> {
    Ok(plugins.named_host(global)?.watch(true).build().await?)
}

impl McpServeArgs {
    /// The variables that hold tokens which let clients in.
    pub(super) fn token_variables(&self) -> &[String] {
        &self.token_env
    }

    /// Whether there is one client only.
    pub(super) fn has_one_client(&self) -> bool {
        self.transport.stdio
    }

    /// Refuses skills and an executor that are not there: else a client would be the first to learn of
    /// it, and the one who starts the server never.
    fn check_named(&self, host: &Host) -> Result<(), CliError> {
        for path in &self.skill {
            skill::load(path).map_err(CliError::usage_from)?;
        }
        let Some(executor) = self.executor.as_deref().and_then(named_executor) else {
            return Ok(());
        };
        let loaded = host.registry().snapshot();
        if loaded.get(executor).is_some() {
            return Ok(());
        }
        let message = format!("no executor or backend plugin is called `{executor}`");
        Err(CliError::usage(message).hint(
            "load it with `--plugin FILE`, or put it into a plugin directory (`conjure plugin list` \
             shows them)",
        ))
    }

    fn spec(&self, working_dir: Option<PathBuf>) -> Result<SessionSpec, CliError> {
        let mut spec = match &self.config {
            Some(path) => SessionSpec::read(path)?,
            None => calls_spec(&self.skill, self.executor.as_deref())?,
        };
        let named = self.working_dir.as_deref().map(canonical_dir).transpose()?;
        let named = named.or(spec.working_dir.take());
        spec.working_dir = named.or(working_dir);
        spec.policy.deny.extend(self.deny.iter().cloned());
        self.sandbox.apply(&mut spec.sandbox)?;
        Ok(spec)
    }

    fn options(&self) -> McpOptions {
        McpOptions {
            meta_tools: match self.meta_tools {
                None => MetaTools::Off,
                Some(MetaToolsMode::Beside) => MetaTools::Beside,
                Some(MetaToolsMode::Instead) => MetaTools::Instead,
            },
            max_sessions: self.max_sessions,
            idle: Duration::from_secs(self.idle.saturating_mul(60)),
            ..McpOptions::default()
        }
    }
}
