//! The host as an agent of editors: the Agent Client Protocol (ACP), version 1.
//!
//! An editor that starts `conjure acp` has saved sessions with their tools, approvals and modes. A
//! session belongs to no connection: it is in the database, and goes on at a terminal or on the
//! page. Decides nothing itself: what a turn does is the runtime's, which calls may run the
//! policy's. A face: uses what the runtime has in public, and nothing below knows it. Begin at
//! `agent.rs`, then `prompt.rs`.

mod agent;
mod call_view;
mod commands;
mod content;
mod defaults;
mod edits;
mod error;
mod history;
mod listing;
mod mcp_servers;
mod modes;
mod open_session;
mod permission;
mod prompt;
mod questions;
mod request_queue;
mod settings;
mod shown_turn;
mod sign_in;
mod too_long;
mod transport;
mod unsaved;
mod updates;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use conjure_runtime::manager::Manager;

pub use commands::{AcpCommand, AcpCommands, RunCommand};
pub use error::AcpError;

/// What sessions that a client opens are made with.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The saved auth, by id or name; without it that of the session that was changed last.
    pub auth: Option<String>,
    /// The model; without it that of the session that was changed last with this auth.
    pub model: Option<String>,
    /// Backends, names, policy, budgets and limits, in the shape of the session file.
    pub tools: Map<String, Value>,
    /// Commands that a person can type in a prompt; nothing for none.
    pub commands: Option<AcpCommands>,
    /// The most bytes of a message from the client; 32 MiB by default. A longer one is left out
    /// and answered with an error.
    pub max_message_bytes: usize,
}

impl Default for AcpOptions {
    fn default() -> Self {
        Self {
            auth: None,
            model: None,
            tools: Map::new(),
            commands: None,
            max_message_bytes: 32 * 1024 * 1024,
        }
    }
}

/// The sessions of a manager, for clients that speak ACP.
pub struct AcpHost {
    manager: Manager,
    options: AcpOptions,
}

impl AcpHost {
    /// The sessions of this manager.
    pub fn new(manager: Manager, options: AcpOptions) -> Self {
        Self { manager, options }
    }

    /// Serves the one client at the other end of two streams, until it closes its end or the token
    /// is cancelled. Turns that it began and that still run are cancelled then; the sessions stay.
    ///
    /// # Errors
    /// [`AcpError`] when a stream breaks.
    pub async fn serve_streams<R, W>(
        self,
        read: R,
        write: W,
        end: CancellationToken,
    ) -> Result<(), AcpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Box::pin(agent::serve(self.manager, self.options, read, write, end)).await
    }
}
