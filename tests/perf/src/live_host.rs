//! `conjure serve` as it is shipped, in a home of its own, with sessions that are open: what their
//! next requests have, and what their calls answer.
//!
//! The model is `tool-walk`, which calls every tool once. Plugins run where they do by default: in
//! processes of their own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_kit::{Cli, ProgramHandle, Workspace};
use serde_json::Value;

/// The sessions that are open.
pub(crate) const SESSIONS: [&str; 4] = ["one", "two", "three", "four"];
/// How long the server has for anything.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two questions for the same thing: asking must not be what the server does.
const PAUSE: Duration = Duration::from_millis(1);

/// The server. It ends with this value.
pub(crate) struct LiveHost {
    pub(crate) workspace: Workspace,
    program: PathBuf,
    address: SocketAddr,
    token: String,
    _serving: ProgramHandle,
}

impl LiveHost {
    /// Starts the server and opens its sessions.
    ///
    /// # Errors
    /// When it does not start, or a session cannot be opened.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let workspace = Workspace::new()?;
        let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
        let serving = Cli::program(program, serve).workspace(&workspace).start()?;
        let said = serving.wait_for_lines(1)?;
        let first = said.lines().next().unwrap_or_default();
        let said: Value = serde_json::from_str(first).context("the server does not say JSON")?;
        let url = said.get("url").and_then(Value::as_str);
        let address = url.and_then(|url| url.strip_prefix("http://"));
        let host = Self {
            token: workspace.http_token()?,
            workspace,
            program: program.to_owned(),
            address: address.context("it does not serve")?.parse()?,
            _serving: serving,
        };
        host.run_to_success([
            "auth",
            "create",
            "walk",
            "--provider",
            "tool-walk",
            "--kind",
            "base-url",
        ])?;
        for session in SESSIONS {
            let auth = ["--auth", "walk", "--model", "tool-walk"];
            host.run_to_success(["session", "create", session].into_iter().chain(auth))?;
            // Its first turn opens it.
            host.calls_every_tool(session)?;
        }
        Ok(host)
    }

    /// `conjure` beside the server.
    pub(crate) fn conjure<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cli {
        Cli::program(&self.program, args).workspace(&self.workspace)
    }

    /// Runs `conjure` to its end and gives what it said, on both ways.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn run_to_success<'a>(
        &self,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Result<String> {
        let args: Vec<&str> = args.into_iter().collect();
        let output = self.conjure(args.iter().copied()).run()?;
        ensure!(
            output.code == Some(0),
            "`conjure {}` failed: {}",
            args.join(" "),
            output.snapshot()
        );
        Ok(output.stdout + &output.stderr)
    }

    /// Has a session call every tool, and gives what came of that.
    ///
    /// # Errors
    /// When the turn fails.
    pub(crate) fn calls_every_tool(&self, session: &str) -> Result<String> {
        self.run_to_success(["run", "--session", session, "Call every tool."])
    }

    /// Checks that every session can call a tool.
    ///
    /// # Errors
    /// With what came of the call that failed.
    pub(crate) fn answers(&self, tool: &str) -> Result<()> {
        for session in SESSIONS {
            let said = self.calls_every_tool(session)?;
            let succeeded = format!("- {tool}: ok");
            ensure!(said.contains(&succeeded), "{tool} in {session}: {said}");
        }
        Ok(())
    }

    /// Waits until the next request of every session has a tool, or of none.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) fn wait_for_tool(&self, tool: &str, is_there: bool) -> Result<()> {
        let until = Instant::now() + SERVER_TIMEOUT;
        let still = if is_there { "lacks" } else { "has" };
        for session in SESSIONS {
            while self.has(session, tool)? != is_there {
                ensure!(
                    Instant::now() < until,
                    "session `{session}` still {still} `{tool}` after {} s",
                    SERVER_TIMEOUT.as_secs()
                );
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn has(&self, session: &str, tool: &str) -> Result<bool> {
        let tools = self.get(&format!("/api/v1/sessions/{session}/tools"))?;
        let routes = tools.get("routes").and_then(Value::as_array);
        let mut routes = routes.context("the server says no routes")?.iter();
        Ok(routes.any(|route| route.get("name").and_then(Value::as_str) == Some(tool)))
    }

    fn get(&self, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
        let (host, token) = (self.address, &self.token);
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        ensure!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
        let body = reply.split_once("\r\n\r\n").map(|(_, body)| body);
        serde_json::from_str(body.unwrap_or_default()).with_context(|| format!("{path}: {reply}"))
    }
}
