//! What most cases need: a host with real libraries, a model that says what it is told, a place.
//!
//! Knows how to ask for calls and how their results look in the request that follows; judges
//! nothing.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conjure_core::wire::{Endpoint, Wire};
use conjure_host::provider::{HttpOptions, HttpProvider};
use conjure_host::session::{BackendSpec, PolicySpec, Session, SessionSpec};
use conjure_host::{Host, HostBuilder};
use conjure_kit::{Cli, Model, Workspace, build_plugin};
use conjure_mock_llm::{Message, Request};
use serde_json::{Value, json};

/// The package of the local executor.
pub(crate) const LOCAL: &str = "conjure-backend-local";
/// The package of the log fetcher.
pub(crate) const FETCHER: &str = "conjure-skill-log-fetcher";
/// The package of the cache manager.
pub(crate) const CACHE: &str = "conjure-skill-cache-manager";
/// The package of the plugin that does everything wrong.
pub(crate) const MISBEHAVING: &str = "conjure-misbehaving";

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(40);

/// A host that is embedded in the test.
pub(crate) struct Stage {
    pub(crate) workspace: Workspace,
    pub(crate) model: Model,
    pub(crate) host: Host,
}

/// A call's result, as the model got it.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Seen {
    pub(crate) fn ok(text: &str) -> Self {
        let text = text.to_owned();
        Self {
            text,
            is_error: false,
        }
    }

    pub(crate) fn error(text: &str) -> Self {
        let text = text.to_owned();
        Self {
            text,
            is_error: true,
        }
    }
}

impl Stage {
    /// A host with these plugins.
    pub(crate) async fn new(plugins: &[&str]) -> Self {
        Self::with(plugins, |builder| builder).await
    }

    /// A host with these plugins, and with what the test adds.
    pub(crate) async fn with(
        plugins: &[&str],
        more: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Self {
        let workspace = Workspace::new().unwrap();
        let model = Model::start().unwrap();
        let mut options = HttpOptions::new(model.base_url());
        options.retry.first_wait = Duration::from_millis(1);
        let key = "a-key-of-nobody".into();
        let endpoint = Endpoint::new("anthropic");
        let provider = HttpProvider::new(Wire::Anthropic, endpoint, Some(key), options).unwrap();
        let mut builder = Host::builder()
            .data_dir(workspace.root().join("data"))
            .provider("anthropic", provider);
        for plugin in plugins {
            builder = builder.plugin_file(build_plugin(plugin).unwrap());
        }
        let host = more(builder).build().await.unwrap();
        Self {
            workspace,
            model,
            host,
        }
    }

    /// A session's settings: everything is allowed, and it works in the workspace.
    pub(crate) fn spec(&self, backends: impl IntoIterator<Item = BackendSpec>) -> SessionSpec {
        SessionSpec {
            provider: Some("anthropic".to_owned()),
            model: Some("a-model".to_owned()),
            working_dir: Some(self.workspace.work()),
            policy: PolicySpec {
                allow: vec!["*".parse().unwrap()],
                ..PolicySpec::default()
            },
            ..SessionSpec::hybrid(backends)
        }
    }

    pub(crate) async fn session(&self, backends: impl IntoIterator<Item = BackendSpec>) -> Session {
        self.open(self.spec(backends)).await
    }

    pub(crate) async fn open(&self, spec: SessionSpec) -> Session {
        self.host.session(spec).await.unwrap()
    }

    /// The path of something in the working directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.workspace.work().join(name).display().to_string()
    }

    /// Lets the model make these calls in one reply, and gives back their results.
    pub(crate) async fn calls(&self, session: &Session, calls: &[(&str, Value)]) -> Vec<Seen> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut message = Message::new();
        let mut ids = Vec::new();
        for (tool, input) in calls {
            let id = format!("toolu_{}", NEXT.fetch_add(1, Ordering::Relaxed));
            message = message.tool_use(&id, *tool, input.clone());
            ids.push(id);
        }
        self.model.says(message);
        self.model.says(Message::new().text("Done."));
        let answer = in_time(session.chat("Go on.")).await.unwrap();
        assert_eq!(answer.text, "Done.");
        let request = self.model.last_request();
        assert_eq!(
            result_ids(&request),
            ids,
            "all results, in call order, and nothing else"
        );
        ids.iter().map(|id| result(&request, id)).collect()
    }

    /// Lets the model make one call.
    pub(crate) async fn call(&self, session: &Session, tool: &str, input: Value) -> Seen {
        self.calls(session, &[(tool, input)]).await.remove(0)
    }

    /// Runs a command on the local executor.
    pub(crate) async fn bash(&self, session: &Session, command: &str) -> Seen {
        self.call(session, "local_bash_tool", bash(command)).await
    }
}

/// The arguments that run a command.
pub(crate) fn bash(command: &str) -> Value {
    json!({ "command": command, "description": "a test" })
}

/// The local executor, without skills.
pub(crate) fn local() -> BackendSpec {
    BackendSpec::local([] as [&str; 0])
}

/// `conjure` in a workspace with these plugins.
pub(crate) fn conjure<const N: usize>(workspace: &Workspace, args: [&str; N]) -> Cli {
    conjure_kit::cli(args).workspace(workspace)
}

/// A workspace with these plugins in its plugin directory.
pub(crate) fn workspace(plugins: &[&str]) -> Workspace {
    let workspace = Workspace::new().unwrap();
    for plugin in plugins {
        workspace.add_plugin(plugin).unwrap();
    }
    workspace
}

/// Awaits something that must not take for ever.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    conjure_kit::deadline(LIMIT, future).await.unwrap()
}

/// The result of a call in a request's history.
pub(crate) fn result(request: &Request, id: &str) -> Seen {
    let block = request
        .tool_result(id)
        .unwrap_or_else(|| panic!("no result of {id} in {:#?}", request.messages()));
    Seen {
        text: request.tool_result_text(id).unwrap_or_default(),
        is_error: block["is_error"] == true,
    }
}

/// The calls that the last message of a request answers, in order. Fails when there is something
/// else in it.
pub(crate) fn result_ids(request: &Request) -> Vec<String> {
    let last = request.messages().last().unwrap();
    let blocks = last["content"].as_array().unwrap();
    blocks
        .iter()
        .map(|block| {
            assert_eq!(block["type"], "tool_result", "{last:#}");
            block["tool_use_id"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// The text of a request's instructions.
pub(crate) fn system(request: &Request) -> String {
    match &request.body["system"] {
        Value::String(text) => text.clone(),
        blocks => blocks
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
    }
}
