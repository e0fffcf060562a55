//! The MCP backend: the tools of Model Context Protocol servers, over stdio and streamable HTTP,
//! of both eras of the protocol.
//!
//! Servers are other people's programs: they lie, flood, hang and die. Each costs only itself.
//! Every connection lives in the registry; see `conjure-host/docs/mcp.md`. Begin at `backend.rs`,
//! then `registry/mod.rs`.

#[cfg(not(unix))]
compile_error!("the MCP backend needs a Unix system");

mod alarm;
mod answer_backlog;
mod asking;
mod backend;
mod backoff;
mod cache;
mod calls;
mod config;
mod connection;
mod digest;
mod directory;
mod expand;
mod failure;
mod handler;
mod headers;
mod http;
mod hub;
mod link;
mod listing;
mod mentions;
mod oauth;
mod pages;
mod prompts;
mod readable_text;
mod registry;
mod request_failure;
mod resource_subscription;
mod resources;
mod result;
mod rounds;
mod sandbox;
mod secrets;
mod server;
mod server_notices;
mod session;
mod skim;
mod stdio;
mod subscription;
#[cfg(test)]
mod tests;
mod values;
mod variables;
mod wire;

use conjure_skill_sdk::protocol::{PROVIDER_KEYS, Permissions};
use conjure_skill_sdk::{BackendPlugin, export_backend};

use crate::backend::Mcp;

fn plugin() -> BackendPlugin<Mcp> {
    BackendPlugin::new("mcp", "Tools of MCP servers", |setup| Mcp::new(&setup))
        .threads(1)
        .starts_in_place()
        .config_schema(config::schema())
        .permissions(Permissions {
            // A server is passed a provider's key where its configuration names that.
            secrets: ["MCP_*"]
                .iter()
                .chain(&PROVIDER_KEYS)
                .map(|name| (*name).to_owned())
                .collect(),
            sample: true,
            ..Permissions::default()
        })
        .with_independent_skills()
        .with_reopening()
        .with_files()
        .with_resources()
        .with_subscriptions()
        .with_prompts()
}

export_backend!(plugin, name = "mcp");
