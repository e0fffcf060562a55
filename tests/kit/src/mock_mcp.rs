//! The difficult MCP server of the tests, `mock-mcp`, over HTTP, and a browser that logs in there.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{KitError, build_bin};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that listens, until this is dropped.
#[derive(Debug)]
pub struct MockMcp {
    child: Child,
    /// Where: `127.0.0.1:PORT`.
    pub address: String,
}

impl MockMcp {
    /// The program, built.
    ///
    /// # Errors
    /// [`KitError`] when it cannot be built.
    pub fn program() -> Result<PathBuf, KitError> {
        build_bin("conjure-mock-mcp", "mock-mcp")
    }

    /// Starts one with these traits, and waits until it listens.
    ///
    /// # Errors
    /// [`KitError`] when it cannot be built, or does not start.
    pub fn over_http(traits: &[&str]) -> Result<Self, KitError> {
        let program = Self::program()?;
        let start = |source| KitError::Start {
            program: program.clone(),
            source,
        };
        let child = Command::new(&program)
            .arg("--http")
            .args(traits)
            .stdout(Stdio::piped())
            .spawn();
        let mut server = Self {
            child: child.map_err(start)?,
            address: String::new(),
        };
        let silent = || start(io::ErrorKind::UnexpectedEof.into());
        let stdout = server.child.stdout.take().ok_or_else(silent)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(start)?;
        server.address = line.trim().to_owned();
        if server.address.is_empty() {
            return Err(silent());
        }
        Ok(server)
    }

    /// Endpoint of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// What it says to a request without a body, such as `GET /connections`.
    ///
    /// # Errors
    /// [`KitError`] when it does not answer.
    pub fn ask(&self, request: &str) -> Result<String, KitError> {
        let answer = answer(&self.address, request);
        let answer = answer.map_err(KitError::file(&self.address))?;
        let body = answer.rsplit("\r\n\r\n").next().unwrap_or_default();
        Ok(body.trim().to_owned())
    }
}

impl Drop for MockMcp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Visits a page of this machine, as a browser does that follows no redirection: where it is sent;
/// nothing where it stays, or nobody answers.
#[must_use]
pub fn visit(url: &str) -> Option<String> {
    let (address, path) = url.strip_prefix("http://")?.split_once('/')?;
    let answer = answer(address, &format!("GET /{path}")).ok()?;
    let mut lines = answer.lines();
    let location = lines.find_map(|line| line.strip_prefix("location: "));
    location.map(|location| location.trim().to_owned())
}

fn answer(address: &str, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let request = format!(
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
