//! The reference servers as backends of a session, through the real plugin: each lists its tools
//! and does a real piece of work.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_host::Host;
use conjure_host::session::{BackendSpec, SessionSpec, ToolSession};
use conjure_kit::{Workspace, build_plugin, deadline};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::peers::Peers;

/// How long a server may take to start: those in Python need a second each on an idle machine.
const START_MS: u64 = 60_000;
/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(60);

struct Session {
    calls: ToolSession,
    _host: Host,
    _workspace: Workspace,
}

impl Session {
    /// A session with these servers, all of them started.
    async fn open(workspace: Workspace, mut servers: Value) -> Self {
        let servers_by_name = servers.as_object_mut().unwrap();
        for server in servers_by_name.values_mut() {
            server["initialize_timeout_ms"] = json!(START_MS);
            server["probe_timeout_ms"] = json!(START_MS / 6);
        }
        let config = json!({ "servers": servers, "catalog_wait_ms": START_MS });
        let backend = BackendSpec {
            kind: "mcp".to_owned(),
            config: Some(config),
            ..BackendSpec::default()
        };
        let host = Host::builder()
            .data_dir(workspace.root().join("data"))
            .plugin_file(build_plugin("conjure-backend-mcp").unwrap())
            .build()
            .await
            .unwrap();
        let spec = SessionSpec {
            working_dir: Some(workspace.work()),
            ..SessionSpec::hybrid([backend])
        };
        let calls = host.calls(spec).await.unwrap();
        Self {
            calls,
            _host: host,
            _workspace: workspace,
        }
    }

    /// How many tools of a server there are.
    fn tools(&self, server: &str) -> usize {
        let table = self.calls.table();
        let routes = table.routes().iter();
        routes
            .filter(|route| route.name.as_str().starts_with(&format!("{server}_")))
            .count()
    }

    /// The text of a call that has to succeed.
    async fn call(&self, tool: &str, arguments: Value) -> String {
        let call = FunctionCall {
            call_id: tool.to_owned(),
            name: tool.to_owned(),
            arguments,
            arguments_text: None,
        };
        let running = self.calls.call(&call, &CancellationToken::new()).await;
        let report = running.unwrap();
        let texts = report.output.output.iter().filter_map(|part| match part {
            OutputPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        assert!(!report.output.is_error, "{tool}: {text}");
        text
    }

    async fn close(self) {
        self.calls.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_servers_in_javascript_do_their_work() {
    let Some(peers) = Peers::find() else { return };
    let workspace = Workspace::new().unwrap();
    // The server takes the session's directory for what it may touch, in place of its argument.
    let dir = workspace.work();
    let elsewhere = workspace.root().join("files");
    fs::create_dir(&elsewhere).unwrap();
    let path = peers.path().into_string().unwrap();
    let server = |program: &str, arguments: &[&str]| json!({ "command": peers.js(program), "args": arguments, "env": { "PATH": path } });
    let mut memory = server("mcp-server-memory", &[]);
    memory["env"]["MEMORY_FILE_PATH"] = json!(workspace.root().join("memory.jsonl"));
    let servers = json!({
        "everything": server("mcp-server-everything", &["stdio"]),
        "files": server("mcp-server-filesystem", &[elsewhere.to_str().unwrap()]),
        "memory": memory,
    });
    let work = async {
        let session = Session::open(workspace, servers).await;
        let tools = ["everything", "files", "memory"].map(|name| session.tools(name));
        // Two of the first are for clients that can be asked for directories and for answers.
        assert_eq!(tools, [16, 14, 9]);

        let echo = session
            .call("everything_echo", json!({ "message": "hi" }))
            .await;
        assert_eq!(echo, "Echo: hi");
        let sum = session
            .call("everything_get-sum", json!({ "a": 2, "b": 3 }))
            .await;
        assert!(sum.contains('5'), "{sum}");

        let file = dir.join("note.txt");
        let written = json!({ "path": file, "content": "kept" });
        session.call("files_write_file", written).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        let read = session
            .call("files_read_text_file", json!({ "path": file }))
            .await;
        assert!(read.contains("kept"), "{read}");

        let ada = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
        let entities = json!({ "entities": [ada] });
        session.call("memory_create_entities", entities).await;
        let graph = session.call("memory_read_graph", json!({})).await;
        assert!(graph.contains("Ada") && graph.contains("counts"), "{graph}");
        session.close().await;
    };
    deadline(3 * LIMIT, Box::pin(work)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_servers_in_python_do_their_work() {
    let Some(peers) = Peers::find() else { return };
    let workspace = Workspace::new().unwrap();
    let repository = workspace.root().join("repository");
    init(&repository);
    let database = workspace.root().join("data.db");
    let server = |program: &str| json!({ "command": peers.python(program) });
    let mut fetch = server("mcp-server-fetch");
    fetch["args"] = json!(["--ignore-robots-txt", "--allow-private-ips"]);
    let servers = json!({
        "time": server("mcp-server-time"),
        "git": server("mcp-server-git"),
        "web": fetch,
        "sqlite": {
            "command": peers.python_1("mcp-server-sqlite"),
            "args": ["--db-path", database],
        },
    });
    let work = async {
        let session = Session::open(workspace, servers).await;
        let tools = ["time", "git", "web", "sqlite"].map(|name| session.tools(name));
        assert_eq!(tools, [2, 12, 1, 6]);

        let noon = json!({
            "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo",
        });
        let converted = session.call("time_convert_time", noon).await;
        assert!(converted.contains("T21:00:00+09:00"), "{converted}");

        fs::write(repository.join("a.txt"), "a").unwrap();
        let added = json!({ "repo_path": repository, "files": ["a.txt"] });
        session.call("git_git_add", added).await;
        let commit = json!({ "repo_path": repository, "message": "Add the letter a" });
        session.call("git_git_commit", commit).await;
        let log = session
            .call("git_git_log", json!({ "repo_path": repository }))
            .await;
        assert!(log.contains("Add the letter a"), "{log}");

        let page = page("<html><body><h1>Hello</h1><p>from loopback</p></body></html>");
        let url = format!("http://{page}/");
        let fetched = session.call("web_fetch", json!({ "url": url })).await;
        assert!(fetched.contains("from loopback"), "{fetched}");

        let query = |sql: &str| json!({ "query": sql });
        let table = "CREATE TABLE letters (letter TEXT, place INTEGER)";
        session.call("sqlite_create_table", query(table)).await;
        let rows = "INSERT INTO letters VALUES ('a', 1), ('b', 2)";
        session.call("sqlite_write_query", query(rows)).await;
        let sum = "SELECT SUM(place) AS total FROM letters";
        let sum = session.call("sqlite_read_query", query(sum)).await;
        assert!(sum.contains("'total': 3"), "{sum}");
        session.close().await;
    };
    deadline(3 * LIMIT, Box::pin(work)).await.unwrap();
}

/// An empty repository whose commits have an author.
fn init(repository: &Path) {
    fs::create_dir(repository).unwrap();
    for arguments in [
        &["init", "--quiet"][..],
        &["config", "user.name", "Nobody"],
        &["config", "user.email", "nobody@example.com"],
    ] {
        let git = Command::new("git")
            .args(arguments)
            .current_dir(repository)
            .status();
        assert!(git.unwrap().success(), "{arguments:?}");
    }
}

/// A web server on loopback with one page, until the test ends.
fn page(html: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let length = html.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n{html}"
            );
        }
    });
    address
}
