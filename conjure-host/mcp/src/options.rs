//! What an MCP server is told at its start.

use std::time::Duration;

/// Settings of an MCP server; each default is stated where it is set.
#[derive(Debug, Clone, PartialEq)]
pub struct McpOptions {
    /// Whether `search_tools`, `get_tool_details` and `call_tool` are served; not by default.
    pub meta_tools: MetaTools,
    /// The most bytes of a message from a client; 4 MiB by default.
    pub max_message_bytes: usize,
    /// The most sessions over HTTP at the same time; 64 by default.
    pub max_sessions: usize,
    /// The most connections over HTTP at the same time; 1024 by default. Further ones are told to
    /// come back later.
    pub max_connections: usize,
    /// How long the headers of an HTTP request may take to arrive on a connection, and its body
    /// after them; 30 s by default. A connection on which no request comes is closed after it.
    pub request_timeout: Duration,
    /// How long a session over HTTP may be idle; an hour by default.
    pub idle: Duration,
    /// How long a question may wait for the client's answer, and a suspended call for its
    /// continuation; 10 minutes by default.
    pub answer_timeout: Duration,
    /// The most calls of a client at the same time, suspended ones included; 128 by default.
    pub max_calls: usize,
}

/// Three tools with which a client reaches all the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaTools {
    /// The three tools are not served.
    #[default]
    Off,
    /// Beside the others, for clients that do not read the list again.
    Beside,
    /// In place of the list, for clients that many tools cost too much.
    Instead,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            meta_tools: MetaTools::Off,
            max_message_bytes: 4 * 1024 * 1024,
            max_sessions: 64,
            max_connections: 1024,
            request_timeout: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
            answer_timeout: Duration::from_secs(600),
            max_calls: 128,
        }
    }
}
