//! A server of a test, and requests to it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use conjure_kit::{Cli, Output, ProgramHandle, Signal, Workspace, cli};
use serde_json::Value;

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The key of saved auths: nobody's.
const KEY: &str = "a2V5LW9mLW5vYm9keS1rZXktb2Ytbm9ib2R5LWtleSE=";

/// The token of every server of these tests.
const TOKEN: &str = "a-token-of-nobody";

/// A server that runs. It ends with the test.
pub(crate) struct Server {
    pub(crate) running: ProgramHandle,
    pub(crate) address: SocketAddr,
    pub(crate) workspace: Workspace,
}

impl Server {
    /// A server in a new workspace.
    pub(crate) fn start() -> Self {
        Self::with(&Workspace::new().unwrap(), "", &[])
    }

    /// A server in a workspace, with more arguments, separated by blanks, and variables.
    pub(crate) fn with(workspace: &Workspace, args: &str, env: &[(&str, &str)]) -> Self {
        let mut cli = command(workspace, args);
        for (name, value) in env {
            cli = cli.env(name, value);
        }
        let running = cli.start().unwrap();
        let said = running.wait_for_lines(1).unwrap();
        let said: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        let address = said["url"].as_str();
        let address = address.unwrap_or_else(|| panic!("the server says {said}"));
        let address = address.strip_prefix("http://").unwrap().parse().unwrap();
        Self {
            running,
            address,
            workspace: workspace.clone(),
        }
    }

    /// Ends it with a signal, and waits for that.
    pub(crate) fn end(self, signal: Signal) -> Output {
        self.running.signal(signal);
        self.running.wait().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends bytes as they are and reads the answer, until the server closes the connection.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        raw(self.address, request)
    }

    /// Sends a request.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Reply {
        ask(self.address, method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, &[], "")
    }

    /// Sends JSON.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        let kind = [("content-type", "application/json")];
        self.ask(method, path, &kind, body.to_string())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, body)
    }
}

/// Sends a request to a server, from any thread.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Reply {
    let body = body.as_ref();
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request.push_str(&format!("host: {address}\r\n"));
    }
    if !headers.iter().any(|(name, _)| *name == "authorization") {
        request.push_str(&authorization());
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    let mut request = format!("{request}\r\n").into_bytes();
    request.extend_from_slice(body);
    raw(address, &request)
}

/// The header that lets a request in.
pub(crate) fn authorization() -> String {
    format!("authorization: Bearer {TOKEN}\r\n")
}

fn raw(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = connect(address);
    // A server that has answered already need not read the rest.
    let _early = stream.write_all(request);
    Reply::read(stream)
}

/// A connection on which nothing is waited for without end.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// `conjure serve` on a free port.
pub(crate) fn command(workspace: &Workspace, args: &str) -> Cli {
    let mut all = vec!["serve", "--json"];
    if !args.contains("--listen") {
        all.extend(["--listen", "127.0.0.1:0"]);
    }
    all.extend(args.split_whitespace());
    let cli = cli(all).workspace(workspace);
    cli.env("CONJURE_KEY", KEY).env("CONJURE_TOKEN", TOKEN)
}

/// A file of tokens that nobody else may read.
pub(crate) fn tokens_file(workspace: &Workspace, tokens: &str) -> PathBuf {
    let path = workspace.write("tokens", tokens).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    /// 0 where there was no answer.
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Reads an answer to the end of its connection.
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A reset says the same as an end.
        let _reset = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = match end {
            Some(end) => (&bytes[..end], bytes[end + 4..].to_vec()),
            None => (&bytes[..], Vec::new()),
        };
        let head = String::from_utf8_lossy(head).into_owned();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut reply = Self {
            status: status.unwrap_or(0),
            head,
            body,
        };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunked(&reply.body);
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON; fails the test where it is of another media type.
    pub(crate) fn json(&self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.ends_with("json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The answer where it has this status; fails the test otherwise.
    pub(crate) fn is(self, status: u16) -> Self {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{}\n{text}", self.head);
        if status >= 400 {
            let problem = self.json();
            assert_eq!(
                self.header("content-type"),
                Some("application/problem+json")
            );
            assert_eq!(problem["status"], status, "{problem}");
            let kind = problem["type"].as_str().unwrap();
            assert!(kind.starts_with("urn:conjure:problem:"), "{problem}");
            assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        }
        self
    }

    /// The kind of a problem.
    pub(crate) fn kind(&self) -> String {
        let problem = self.json();
        let kind = problem["type"].as_str().unwrap();
        kind.trim_start_matches("urn:conjure:problem:").to_owned()
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&body[..end]).unwrap_or_default();
        let length = usize::from_str_radix(length, 16).unwrap_or(0);
        let piece = body.get(end + 2..end + 2 + length).unwrap_or_default();
        whole.extend_from_slice(piece);
        body = body.get(end + 2 + length + 2..).unwrap_or_default();
        if length == 0 {
            break;
        }
    }
    whole
}
