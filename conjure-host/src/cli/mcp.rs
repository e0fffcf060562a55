//! `conjure mcp`: the Model Context Protocol.

use clap::Subcommand;

use super::args::Global;
use super::exit::{Exit, Failure};
use super::mcp_serve;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve tools, resources and prompts to MCP clients
    ///
    /// Any MCP client gets the routing table of a session: the native skills that are loaded, and
    /// with a session file whatever its backends offer, other MCP servers too. What a plugin
    /// directory gains or loses meanwhile the clients are told. Both eras of the protocol are
    /// served.
    Serve(mcp_serve::Args),
}

pub(crate) async fn run(global: &Global, args: Args) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Serve(args) => mcp_serve::run(global, args).await,
    }
}
