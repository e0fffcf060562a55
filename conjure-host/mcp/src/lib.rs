//! The host as an MCP server: any MCP client gets the tools, resources and prompts of a session.
//!
//! Both eras are served, over stdio and HTTP: the one with a handshake (up to 2025-11-25) and the
//! one without (2026-07-28). What a plugin asks (elicitation, sampling, roots) goes to the client
//! that can answer it. Knows nothing about models and holds no conversation. A face: uses what the
//! runtime has in public, and nothing below knows it. Begin at `handler.rs`.

mod answers;
mod changes;
mod client_questions;
mod clients;
mod completion;
mod files;
mod handler;
mod hidden_resources;
mod http;
mod instructions;
mod links;
mod lists;
mod meta_tools;
mod names;
mod notes;
mod options;
mod owners;
mod passthrough;
mod permission;
mod results;
mod session;
mod session_manager;
mod session_slots;
mod stdio;
mod subscriptions;
mod suspendable_request;
mod suspended;
#[cfg(test)]
mod tests;
mod tools;
mod verbatim;

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use conjure_config::{SessionSpec, SpecError};
use conjure_runtime::Host;

pub use http::{ENDPOINT, HttpAccess, HttpServer, UserTokenError, user_token, user_token_file};
pub use options::{McpOptions, MetaTools};

/// The most bytes of texts of one result, where the session says nothing else.
const DEFAULT_RESULT_BYTES: usize = 1024 * 1024;

/// A host that serves MCP clients. Each client has a session of this specification.
pub struct McpHost {
    common: session::SharedServerState,
}

/// Errors of a server that cannot serve, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The specification cannot be.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The server has no token, so anybody could use it.
    #[error(
        "a server needs a token, also on 127.0.0.1, where other users of this machine are: give it \
         one, such as that of `conjure_mcp::user_token`"
    )]
    NeedsToken,
    /// The address is not to be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the server ended: {reason}")]
    Stream {
        /// Reason of the failure.
        reason: String,
    },
}

impl McpHost {
    /// A server of this host.
    ///
    /// # Errors
    /// [`ServeError::Spec`].
    pub fn new(host: Host, mut spec: SessionSpec, options: McpOptions) -> Result<Self, ServeError> {
        spec.check()?;
        host.check_grants(&spec)?;
        spec.max_output_bytes.get_or_insert(DEFAULT_RESULT_BYTES);
        Ok(Self {
            common: session::SharedServerState {
                host,
                spec,
                options,
                closing: CancellationToken::new(),
                ending: TaskTracker::new(),
            },
        })
    }
}
