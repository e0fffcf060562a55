//! The official SDK's MCP client, for measuring: at the end of a program's streams, or of any.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{NotificationContext, RunningService, ServiceExt as _};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// Hears when the tools are said to be others.
#[derive(Clone)]
pub(crate) struct Listener(mpsc::UnboundedSender<Instant>);

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        let _ = self.0.send(Instant::now());
    }
}

/// A connected client.
pub(crate) struct McpClient {
    running: RunningService<RoleClient, Listener>,
    /// When the tools were said to be others.
    pub(crate) changed: mpsc::UnboundedReceiver<Instant>,
    _server: Option<Child>,
}

impl McpClient {
    /// At the other end of a program's standard streams. The program ends with this.
    pub(crate) async fn start(program: &Path, arguments: &[String]) -> Result<Self> {
        let mut server = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let read = server.stdout.take().context("it has an output")?;
        let write = server.stdin.take().context("it has an input")?;
        let client = Self::connect(read, write).await?;
        Ok(Self {
            _server: Some(server),
            ..client
        })
    }

    /// At the other end of these streams.
    pub(crate) async fn connect(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self> {
        let (told, changed) = mpsc::unbounded_channel();
        let transport = AsyncRwTransport::new_client(read, write);
        let running = Listener(told).serve(transport).await?;
        Ok(Self {
            running,
            changed,
            _server: None,
        })
    }

    /// Calls a tool with a text, and looks whether it comes back.
    pub(crate) async fn echo(&self, tool: &str, text: &str) -> Result<()> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = match json!({ "text": text }) {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        };
        let result = self.running.call_tool(call).await?;
        let said = serde_json::to_value(&result.content)?;
        let said = said.pointer("/0/text").and_then(Value::as_str);
        ensure!(said == Some(text), "`{tool}` said {said:?}");
        Ok(())
    }

    /// How many tools there are.
    pub(crate) async fn tools(&self) -> Result<usize> {
        Ok(self.running.list_all_tools().await?.len())
    }
}
