//! A host for tests with real servers: the program `mock-mcp`, which is difficult on request.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what `json!` makes is handed over as it is"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conjure_kit::MockMcp;
use conjure_skill_sdk::protocol::{CatalogReply, Elicited, Sampled, ToolDecl};
use conjure_skill_sdk::testkit::{Outcome, Plugin, RunningCall, TestHost, TestHostBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The plugin in a host, with a session that is open and watched.
pub(super) struct Stage {
    pub(super) plugin: Plugin,
    pub(super) dir: TempDir,
    watch: Option<RunningCall>,
}

impl Stage {
    /// With these servers.
    pub(super) fn new(servers: Value) -> Self {
        Self::with(servers, |host| host)
    }

    /// With these servers, none of which is waited for.
    pub(super) fn hurried(servers: Value) -> Self {
        Self::configured(
            json!({ "servers": servers, "catalog_wait_ms": 1 }),
            |host| host,
        )
    }

    /// With these servers, and what the test adds to the host.
    pub(super) fn with(
        servers: Value,
        more: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
    ) -> Self {
        Self::configured(
            json!({ "servers": servers, "catalog_wait_ms": 15_000 }),
            more,
        )
    }

    fn configured(config: Value, more: impl FnOnce(TestHostBuilder) -> TestHostBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let host = TestHost::builder()
            .session("one")
            .capacity(1_000)
            .working_dir(path)
            .exchange_dir(path)
            .config(config)
            .elicit(|question| Elicited {
                action: "accept".to_owned(),
                content: [("asked".to_owned(), question.message.into())].into(),
            })
            .sample(|sample| {
                Ok(Sampled {
                    model: "a-model".to_owned(),
                    text: format!("answer to {}", sample.messages[0].text),
                    stop_reason: Some("end_turn".to_owned()),
                    ..Sampled::default()
                })
            })
            .root("file:///work");
        let plugin = more(host).build().unwrap().link(crate::plugin).unwrap();
        let mut stage = Self {
            plugin,
            dir,
            watch: None,
        };
        stage.open("one");
        stage.catalog();
        stage.watch = Some(stage.plugin.start("backend.watch", json!({})));
        stage
    }

    pub(super) fn open(&self, session: &str) {
        let opened = self.plugin.session(session).call("backend.open", json!({}));
        opened.reply.unwrap();
    }

    pub(super) fn close(&self, session: &str) {
        let closed = self
            .plugin
            .session(session)
            .call("backend.close", json!({}));
        closed.reply.unwrap();
    }

    pub(super) fn catalog(&self) -> CatalogReply {
        self.catalog_of("one")
    }

    pub(super) fn catalog_of(&self, session: &str) -> CatalogReply {
        let catalog = self
            .plugin
            .session(session)
            .call("backend.catalog", json!({}));
        catalog.parse().unwrap()
    }

    pub(super) fn tool(&self, name: &str) -> Option<ToolDecl> {
        let catalog = self.catalog();
        catalog.tools.into_iter().find(|tool| tool.name == name)
    }

    /// What is known of the server `s`.
    pub(super) fn status(&self) -> Value {
        self.status_of("one", "s")
    }

    pub(super) fn status_of(&self, session: &str, server: &str) -> Value {
        let meta = self.catalog_of(session).meta.unwrap();
        let all = meta["servers"].as_array().unwrap();
        let found = all.iter().find(|status| status["server"] == server);
        found.cloned().unwrap_or_default()
    }

    /// Calls a tool of the server `s`.
    pub(super) fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.call_in("one", "s", tool, arguments)
    }

    pub(super) fn call_in(
        &self,
        session: &str,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> Outcome {
        let call = json!({ "name": tool, "skill": server, "arguments": arguments });
        self.plugin.session(session).call("backend.call", call)
    }

    /// Begins a call of the server `s`.
    pub(super) fn begin(&self, tool: &str, arguments: Value) -> RunningCall {
        let call = json!({ "name": tool, "skill": "s", "arguments": arguments });
        self.plugin.start("backend.call", call)
    }

    pub(super) fn text(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).text()
    }

    /// The kind of failure that a call ends with.
    pub(super) fn failure(&self, tool: &str, arguments: Value) -> String {
        failure(&self.call(tool, arguments))
    }

    /// What `watch` has said so far, once it has said enough.
    pub(super) fn watched(&self, enough: impl Fn(&Outcome) -> bool) -> bool {
        self.watch.as_ref().unwrap().until(enough)
    }
}

/// The kind of failure that a call ended with.
pub(super) fn failure(outcome: &Outcome) -> String {
    let result = outcome.result().unwrap();
    assert!(result.is_error, "{result:?}");
    let meta = result.meta.unwrap_or_default();
    let kind = meta
        .get("error")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let text = outcome.text();
    assert!(
        kind == "Refused" || kind == "Invalid" || text.starts_with(kind),
        "{text}"
    );
    kind.to_owned()
}

/// A server of these traits, with short limits.
pub(super) fn server(traits: &[&str]) -> Value {
    json!({
        "command": mock(),
        "args": traits,
        "era": "legacy",
        "request_timeout_ms": 2_000,
        "total_timeout_ms": 6_000,
    })
}

/// Adds settings to a server.
pub(super) fn with(mut server: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        server[name] = value.clone();
    }
    server
}

/// The program.
pub(super) fn mock() -> PathBuf {
    MockMcp::program().unwrap()
}

/// What a server wrote into its log.
pub(super) fn log(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Waits for something that comes.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; one that waits to be fetched does not.
pub(crate) fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
