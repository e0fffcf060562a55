//! An MCP client, the official SDK's, in both eras: at the other end of the real program's streams,
//! or of its endpoint.

use std::ops::Deref;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use conjure_kit::{ProgramHandle, Workspace, cli, conjure_bin};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ElicitRequestParams, ElicitResult,
    ErrorData, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, NotificationContext, RequestContext, RunningService,
    serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long a test waits for what must come.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// What a client was told outside any answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    ToolsChanged,
    Progress(f64, Option<String>),
}

/// The client's own side.
#[derive(Clone)]
pub(crate) struct Person {
    told: mpsc::UnboundedSender<Told>,
    /// Whether it can be asked.
    there: bool,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = if self.there {
            json!({ "elicitation": {}, "roots": {} })
        } else {
            json!({})
        };
        ClientConfig::new(
            serde_json::from_value(capabilities).unwrap(),
            Implementation::new("test", "1"),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = serde_json::to_value(&request).unwrap();
        let answer = json!({ "action": "accept", "content": { "said": asked["message"] } });
        Ok(serde_json::from_value(answer).unwrap())
    }

    #[expect(deprecated, reason = "servers may still ask for them")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        let roots = json!({ "roots": [{ "uri": "file:///of/the/client" }] });
        Ok(serde_json::from_value(roots).unwrap())
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        let _ = self.told.send(Told::ToolsChanged);
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _ = self
            .told
            .send(Told::Progress(params.progress, params.message));
    }
}

/// A connected client.
pub(crate) struct Client {
    running: RunningService<RoleClient, Person>,
    pub(crate) told: mpsc::UnboundedReceiver<Told>,
    /// The server, when it is this client's own.
    pub(crate) server: Option<Child>,
}

impl Deref for Client {
    type Target = RunningService<RoleClient, Person>;

    fn deref(&self) -> &Self::Target {
        &self.running
    }
}

fn lifecycle(era: Era) -> ClientLifecycleMode {
    match era {
        Era::Legacy => ClientLifecycleMode::Initialize,
        Era::Modern => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    }
}

impl Client {
    /// Starts `conjure mcp serve --stdio` in a workspace.
    pub(crate) async fn over_stdio(workspace: &Workspace, era: Era, args: &[&str]) -> Self {
        Self::over_stdio_as(workspace, era, args, true).await
    }

    /// Like [`Self::over_stdio`], for a client that can or cannot be asked.
    pub(crate) async fn over_stdio_as(
        workspace: &Workspace,
        era: Era,
        args: &[&str],
        there: bool,
    ) -> Self {
        let mut child = Command::new(conjure_bin().unwrap())
            .args(["mcp", "serve", "--stdio"])
            .args(args)
            .env_clear()
            .env("HOME", workspace.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("CONJURE_PLUGIN_PATH", workspace.plugins())
            .current_dir(workspace.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (read, write) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let (sender, told) = mpsc::unbounded_channel();
        let person = Person {
            told: sender,
            there,
        };
        let transport = AsyncRwTransport::new_client(read, write);
        let serving = serve_client_with_lifecycle(person, transport, lifecycle(era));
        Self {
            running: serving.await.unwrap(),
            told,
            server: Some(child),
        }
    }

    /// Connects to an endpoint.
    pub(crate) async fn over_http(url: &str, era: Era, token: &str) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let person = Person {
            told: sender,
            there: true,
        };
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.auth_header = Some(token.to_owned());
        let client = reqwest::Client::builder().build().unwrap();
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let serving = serve_client_with_lifecycle(person, transport, lifecycle(era));
        Self {
            running: serving.await.unwrap(),
            told,
            server: None,
        }
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let mut request = CallToolRequestParams::new(tool.to_owned());
        request.arguments = arguments.as_object().cloned();
        self.call_tool(request).await.unwrap()
    }

    /// The names of the tools.
    pub(crate) async fn names(&self) -> Vec<String> {
        let tools = self.list_tools(None).await.unwrap().tools;
        tools.iter().map(|tool| tool.name.to_string()).collect()
    }

    /// The next message that the client is told outside any answer.
    pub(crate) async fn next(&mut self) -> Told {
        let told = tokio::time::timeout(SOON, self.told.recv()).await;
        told.expect("nothing was told").unwrap()
    }
}

/// All text of a result.
pub(crate) fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect()
}

/// A server over HTTP: the running program and the URL of its endpoint.
pub(crate) fn serve_http(
    workspace: &Workspace,
    args: &[&str],
    env: &[(&str, &str)],
) -> (ProgramHandle, Arc<str>) {
    let mut all = vec!["mcp", "serve", "--http", "127.0.0.1:0"];
    all.extend(args);
    let mut serve = cli(all).workspace(workspace);
    for (name, value) in env {
        serve = serve.env(name, value);
    }
    let running = serve.start().unwrap();
    let said = running.wait_for_stdout("/mcp\n").unwrap();
    let url = said.split_whitespace().last().unwrap();
    (running, Arc::from(url))
}
