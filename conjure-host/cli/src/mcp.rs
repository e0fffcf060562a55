//! `conjure mcp`: the Model Context Protocol.

use clap::Subcommand;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::{mcp_check, mcp_held, mcp_import, mcp_list, mcp_login, mcp_serve};

/// Serves tools to MCP clients, and looks after the MCP servers of a session file.
#[derive(clap::Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    verb: McpVerb,
}

#[derive(Subcommand)]
enum McpVerb {
    /// Serve tools, resources and prompts to MCP clients
    ///
    /// Any MCP client gets the routing table of a session: the native skills that are loaded, and
    /// with a session file whatever its backends offer, other MCP servers too. What a plugin
    /// directory gains or loses meanwhile the clients are told. Both eras of the protocol are
    /// served.
    Serve(Box<mcp_serve::McpServeArgs>),
    /// List the MCP servers of a session file: how each is, and what it offers
    ///
    /// Starts them as a session would, and waits as long. What was left out of their tools is told
    /// with the reason.
    List(mcp_list::McpListArgs),
    /// Start MCP servers and say what works, what does not, and what to do about it
    ///
    /// Starts those too that a session starts only when they are called.
    ///
    /// Exit code 0: each is ready; 1: one is not.
    #[command(alias = "doctor")]
    Check(mcp_check::McpCheckArgs),
    /// Turn the MCP servers of another program's configuration into those of a session file
    ///
    /// Understands a line `claude mcp add …`, JSON with `mcpServers` (Claude, Cursor) or `servers`
    /// (VS Code), and TOML with `[mcp_servers.NAME]` (Codex). Prints TOML, or adds it to a session
    /// file. Secrets are not written down: each gets a name, and the line that sets it is shown.
    /// What is not understood is told.
    Import(mcp_import::McpImportArgs),
    /// Log in to an MCP server over HTTP
    ///
    /// Shows the address of the login and opens a browser where there is one. The browser ends at
    /// a port of this machine; when it is on another one, paste the address at which it ended. The
    /// login is kept for all sessions with the same data directory.
    Login(mcp_login::McpLoginArgs),
    /// Forget the login to an MCP server
    Logout(mcp_login::McpLogoutArgs),
    /// Show the tools that are held, and how they differ from what was approved
    ///
    /// Whoever adds a server approves the tools that it has then. A tool whose description, schema,
    /// annotations or name is another one later is held: no session offers it, and the model reads
    /// nothing of it, until it is approved again. The same goes for what a server says about its
    /// use, for every backend whose tools may change while it runs, and for tools that a native skill
    /// has at run time only: the same build with the same settings defines a tool alike in every
    /// session and directory, or the other definition is held.
    Held,
    /// Approve tools that changed, as they are now
    ///
    /// Shows the differences and asks; with nobody at the terminal `--yes` has to be said. Sessions that run offer them from their next step on.
    Approve(mcp_held::McpApproveArgs),
}

impl McpArgs {
    /// Whether the verb needs no plugin.
    pub(crate) fn needs_no_host(&self) -> bool {
        matches!(&self.verb, McpVerb::Import(_) | McpVerb::Held)
    }

    /// The variables that hold tokens which let clients in.
    pub(crate) fn token_variables(&self) -> &[String] {
        match &self.verb {
            McpVerb::Serve(args) => args.token_variables(),
            _ => &[],
        }
    }

    /// Whether the verb serves one client, which waits for nearly everything that it asks for.
    pub(crate) fn has_one_client(&self) -> bool {
        matches!(&self.verb, McpVerb::Serve(args) if args.has_one_client())
    }
}

/// Does a verb that needs no plugin.
pub(crate) fn run_without_host(global: &Global, args: &McpArgs) -> Result<Exit, CliError> {
    match &args.verb {
        McpVerb::Import(import) => mcp_import::run(global, import),
        McpVerb::Held => mcp_held::list_held(global),
        _ => Ok(Exit::Success),
    }
}

pub(crate) async fn run(global: &Global, args: McpArgs) -> Result<Exit, CliError> {
    match args.verb {
        McpVerb::Serve(args) => mcp_serve::run(global, *args).await,
        McpVerb::List(args) => mcp_list::run(global, args).await,
        McpVerb::Check(args) => mcp_check::run(global, args).await,
        McpVerb::Import(args) => mcp_import::run(global, &args),
        McpVerb::Held => mcp_held::list_held(global),
        McpVerb::Approve(args) => mcp_held::approve(global, &args).await,
        McpVerb::Login(args) => mcp_login::run(global, args).await,
        McpVerb::Logout(args) => mcp_login::logout(global, args).await,
    }
}
