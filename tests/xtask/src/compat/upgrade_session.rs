//! A session of an MCP client with the libraries of every baseline, one after the other: what they ask of
//! the host, what they offer beside tools, and a state that each hands on to the next.
//!
//! The program serves it over its streams, so everything of the host is there as a person has it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::RunMode;
use crate::files;

/// How long anything may take: an answer, or until a library that was replaced is in use.
const LIMIT: Duration = Duration::from_secs(60);
/// How long is waited between two looks whether a library is in use.
const PAUSE: Duration = Duration::from_millis(50);
/// The secret that the skill asks for.
const SECRET: &str = "open it";

/// The skill and the backend of a baseline, with their version.
pub(super) struct BaselineLibraries {
    pub(super) version: String,
    pub(super) ledger: PathBuf,
    pub(super) desk: PathBuf,
}

/// Serves a session that begins with the first libraries, and puts the others in their place while it
/// runs.
///
/// # Errors
/// Says which version did what it did not do when it was built.
pub(super) fn run(
    program: &Path,
    folder: &Path,
    libraries: &[BaselineLibraries],
    place: RunMode,
) -> Result<()> {
    let address = start_http_server()?;
    let context = |version: &str| {
        let log = fs::read_to_string(folder.join(LOG)).unwrap_or_default();
        format!("the session with version {version}; it logged:\n{log}")
    };
    let mut libraries = libraries.iter();
    let first = libraries.next().context("there is no baseline")?;
    let session = McpSession::begin(program, folder, first, place);
    let mut session = session.with_context(|| context(&first.version))?;
    let mut before = None;
    let mut lines = Vec::new();
    for next in std::iter::once(first).chain(libraries) {
        let result = (|| {
            if before.is_some() {
                session.replace_libraries(next)?;
                session.wait_until_used(&next.version)?;
            }
            lines.push(format!("of {}", next.version));
            session.check_version(next, before, &lines, &address)
        })();
        result.with_context(|| context(&next.version))?;
        before = Some(next.version.as_str());
    }
    Ok(())
}

/// What the program logs, in the session's folder.
const LOG: &str = "log.txt";

/// A server that answers each request with `hello`, until this program ends; its address.
fn start_http_server() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port of this machine is free")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            // One request comes whole; what it says is of no matter.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
            );
        }
    });
    Ok(format!("http://{address}/"))
}

/// The program, as a client sees it.
struct McpSession {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    plugins: PathBuf,
    work: PathBuf,
    last_id: u64,
}

impl McpSession {
    fn begin(
        program: &Path,
        folder: &Path,
        libraries: &BaselineLibraries,
        place: RunMode,
    ) -> Result<Self> {
        files::empty(folder)?;
        let [plugins, work, home] = ["plugins", "work", "home"].map(|name| folder.join(name));
        for dir in [&plugins, &work, &home] {
            fs::create_dir(dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
        }
        let config = folder.join("session.toml");
        fs::write(&config, SESSION)?;
        copy_libraries(&plugins, libraries)?;
        let mut child = Command::new(program)
            .args(["mcp", "serve", "--stdio", "--isolation", place.isolation()])
            .arg("--config")
            .arg(&config)
            .arg("--plugin-dir")
            .arg(&plugins)
            .arg("--working-dir")
            .arg(&work)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .current_dir(&work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("CONJURE_SECRET_LEDGER_KEY", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join(LOG))?)
            .spawn()
            .context("`conjure` could not be started")?;
        let output = child.stdout.take().context("`conjure` has no output")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut session = Self {
            input: child.stdin.take(),
            child,
            lines,
            plugins,
            work,
            last_id: 0,
        };
        let client = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "compat", "version": "1" },
        });
        session.ask("initialize", &client)?;
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(session)
    }

    /// Puts other libraries in the place of those that are there.
    fn replace_libraries(&self, libraries: &BaselineLibraries) -> Result<()> {
        copy_libraries(&self.plugins, libraries)
    }

    /// Waits until calls go to this version of both.
    fn wait_until_used(&mut self, version: &str) -> Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            let ledger = self.call("ledger_count", &json!({}))?;
            let desk = self.call("desk_version", &json!({}))?;
            if ledger.starts_with(version) && desk.starts_with(version) {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "version {version} was put there, and the skill says {ledger:?} and the backend {desk:?}"
            );
            // Whatever else it tells meanwhile.
            let _ = self.lines.recv_timeout(PAUSE);
        }
    }

    /// Looks at all that the libraries do, with these lines in the ledger when it is through.
    fn check_version(
        &mut self,
        libraries: &BaselineLibraries,
        before: Option<&str>,
        lines: &[String],
        address: &str,
    ) -> Result<()> {
        let (version, count) = (&libraries.version, lines.len());
        let count_text = format!(
            "{version} after {}: {count} lines",
            before.unwrap_or("none")
        );
        let line = lines.last().map_or("", String::as_str);
        self.expect_reply("ledger_add", &json!({ "line": line }), &count_text)?;
        self.expect_reply("ledger_save", &json!({}), &format!("{count} saved as "))?;
        let written = fs::read_to_string(self.work.join("ledger.txt"))?;
        ensure!(written == lines.join("\n"), "it wrote {written:?}");
        self.expect_reply("ledger_fetch", &json!({ "url": address }), "200 hello")?;
        let letters = format!("{} letters", SECRET.len());
        self.expect_reply("ledger_key", &json!({}), &letters)?;
        let panic = self.call("ledger_slip", &json!({}))?;
        ensure!(
            panic.contains("it slipped"),
            "a panic was told as {panic:?}"
        );
        self.expect_reply("ledger_count", &json!({}), &count_text)?;

        let prompt = json!({ "name": "sum_up", "arguments": { "tone": "dry" } });
        let prompt = self.ask("prompts/get", &prompt)?.to_string();
        let wanted = format!("Sum up {count} lines, dry.");
        ensure!(prompt.contains(&wanted), "its prompt is {prompt}");
        let read = self.ask("resources/read", &json!({ "uri": "ledger://lines" }))?;
        let read = read.pointer("/contents/0/text").and_then(Value::as_str);
        ensure!(read == Some(&lines.join("\n")), "its resource is {read:?}");

        self.expect_reply(
            "desk_knock",
            &json!({}),
            &format!("{version}: {count} knocks"),
        )
    }

    /// Calls a tool that must say this.
    fn expect_reply(&mut self, tool: &str, arguments: &Value, wanted: &str) -> Result<()> {
        let text = self.call(tool, arguments)?;
        ensure!(
            text.contains(wanted),
            "`{tool}` gave {text:?}, and not {wanted:?}"
        );
        Ok(())
    }

    /// Calls a tool; the text of its result, also where that is an error.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<String> {
        let result = self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )?;
        let content = result.get("content").and_then(Value::as_array);
        let texts = content
            .into_iter()
            .flatten()
            .filter_map(|part| part.get("text")?.as_str());
        Ok(texts.collect::<Vec<_>>().join("\n"))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("`{method}` has no answer after {} s", LIMIT.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("it ended at `{method}`"),
            };
            let message: Value = serde_json::from_str(&line)
                .with_context(|| format!("it wrote what is no message: {line}"))?;
            if message.get("id") != Some(&json!(id)) {
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("`{method}` was refused: {error}");
            }
            return Ok(message.get("result").cloned().unwrap_or_default());
        }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("`conjure` has no input")?;
        writeln!(input, "{message}")
            .and_then(|()| input.flush())
            .context("`conjure` takes no more input")
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        // It ends with its client; whoever does not is ended.
        drop(self.input.take());
        while self.lines.recv_timeout(LIMIT).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts the libraries into a plugin directory, each whole at once.
fn copy_libraries(plugins: &Path, libraries: &BaselineLibraries) -> Result<()> {
    for (name, from) in [("ledger", &libraries.ledger), ("desk", &libraries.desk)] {
        let to = plugins.join(format!("lib{name}{}", std::env::consts::DLL_SUFFIX));
        let part = plugins.join(format!("{name}.part"));
        fs::copy(from, &part)
            .and_then(|_| fs::rename(&part, &to))
            .with_context(|| format!("cannot put `{}` there", to.display()))?;
    }
    Ok(())
}

const SESSION: &str = r#"[[backend]]
kind = "native"
skills = ["ledger"]

[[backend]]
kind = "desk"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_serve_is_named_with_the_version() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library");
        fs::write(&library, "").unwrap();
        let libraries = BaselineLibraries {
            version: "1.2.3".to_owned(),
            ledger: library.clone(),
            desk: library,
        };
        // It ends at once and says nothing.
        let program = Path::new("true");
        let session = folder.path().join("session");
        let error = run(program, &session, &[libraries], RunMode::Worker).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("1.2.3"), "{error}");
    }
}
