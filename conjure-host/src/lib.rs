//! The Conjure host for programs that embed it: one name for what the crates below it offer.
//!
//! [`Host::builder`] is the way in. Nothing is defined here; each module says where it comes from.
//! The faces are crates of their own, which an embedding program adds when it wants them:
//! `conjure-http` (the HTTP API), `conjure-mcp` (a server of MCP), `conjure-client` (a client of the
//! HTTP API). The program `conjure` is `conjure-cli`.
//!
//! Whole programs are in `conjure-host/examples`: `session` (a skill of one's own, and a session
//! that uses it), `follow` (the events of a turn, and deciding about a call), `call` (tools without
//! a model). They need no key: `cargo run -p conjure-host --example session`.
//! `conjure-host/docs/embedding.md` tells the rest.

pub use conjure_config::{env, fs, platform, project_trust, skill_folders};
pub use conjure_import as mcp_import;
pub use conjure_plugins as plugin;
pub use conjure_providers as provider;
pub use conjure_providers::auths;
pub use conjure_runtime::{
    Host, HostBuilder, HostError, OpenError, SPAN_TARGET, StandaloneBackend, artifacts, backend,
    describe, host_operations, manager, mcp_status, plugin_create, replay, session,
};
pub use conjure_store as store;
