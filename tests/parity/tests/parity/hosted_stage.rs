//! A host with hosted skills, and a provider with a memory behind them.

use std::sync::Arc;
use std::time::Duration;

use conjure_core::wire::{Endpoint, Wire as CoreWire};
use conjure_host::Host;
use conjure_host::provider::{HttpOptions, HttpProvider};
use conjure_host::session::{BackendSpec, PolicySpec, Session, SessionSpec};
use conjure_kit::{Workspace, build_plugin};
use conjure_mock_llm::{Hosted, Message, MockLlm, Request, Rule, Script, Wire};
use serde_json::{Value, json};

use crate::stage::LOCAL;

/// The package of the hosted skills.
const HOSTED: &str = "conjure-backend-anthropic";
/// What the provider calls the result of a command.
pub(crate) const RAN: &str = "bash_code_execution_tool_result";

/// A host and its provider.
pub(crate) struct Place {
    pub(crate) workspace: Workspace,
    pub(crate) mock: MockLlm,
    pub(crate) host: Host,
}

impl Place {
    /// With the local executor, the hosted skills and these plugins.
    pub(crate) async fn new(script: Script, plugins: &[&str]) -> Self {
        let script = script.hosted_unless_set(Hosted::new());
        let workspace = Workspace::new().unwrap();
        let mock = MockLlm::start_blocking(script).unwrap();
        let mut builder = Host::builder()
            .data_dir(workspace.root().join("data"))
            .secret("ANTHROPIC_API_KEY", "a-key-of-nobody".into());
        for (name, wire) in [
            ("anthropic", CoreWire::Anthropic),
            ("openai", CoreWire::OpenaiChat),
        ] {
            let mut options = HttpOptions::new(mock.base_url());
            options.retry.first_wait = Duration::from_millis(1);
            let key = Some("a-key-of-nobody".into());
            let provider = HttpProvider::new(wire, Endpoint::new(name), key, options).unwrap();
            builder = builder.provider(name, provider);
        }
        for plugin in [LOCAL, HOSTED].iter().chain(plugins) {
            builder = builder.plugin_file(build_plugin(plugin).unwrap());
        }
        let host = builder.build().await.unwrap();
        Self {
            workspace,
            mock,
            host,
        }
    }

    /// The hosted backend with these skills.
    #[expect(clippy::needless_pass_by_value, reason = "tests write it in place")]
    pub(crate) fn hosted(&self, skills: Value) -> BackendSpec {
        BackendSpec {
            kind: "anthropic".to_owned(),
            config: Some(json!({ "skills": skills, "base_url": self.mock.base_url() })),
            ..BackendSpec::default()
        }
    }

    pub(crate) fn spec(
        &self,
        provider: &str,
        backends: impl IntoIterator<Item = BackendSpec>,
    ) -> SessionSpec {
        SessionSpec {
            provider: Some(provider.to_owned()),
            model: Some("a-model".to_owned()),
            working_dir: Some(self.workspace.work()),
            policy: PolicySpec {
                allow: vec!["*".parse().unwrap()],
                ..PolicySpec::default()
            },
            ..SessionSpec::hybrid(backends)
        }
    }

    /// A session whose provider is Anthropic.
    pub(crate) async fn anthropic(
        &self,
        backends: impl IntoIterator<Item = BackendSpec>,
    ) -> Session {
        let spec = self.spec("anthropic", backends);
        self.host.session(spec).await.unwrap()
    }

    /// A session whose provider is another one.
    pub(crate) async fn another(&self, backends: impl IntoIterator<Item = BackendSpec>) -> Session {
        let spec = self.spec("openai", backends);
        self.host.session(spec).await.unwrap()
    }

    /// The requests to Anthropic's models.
    pub(crate) fn messages(&self) -> Vec<Arc<Request>> {
        let all = self.mock.requests();
        let is_messages = |request: &Arc<Request>| request.path.ends_with("/v1/messages");
        all.into_iter().filter(is_messages).collect()
    }

    /// How many requests had a path with this end.
    pub(crate) fn requests(&self, end: &str) -> usize {
        let all = self.mock.requests();
        all.iter().filter(|it| it.path.ends_with(end)).count()
    }

    /// The rules that were broken.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.mock.violations().iter().map(|it| it.rule).collect()
    }

    pub(crate) fn no_violations(&self) {
        assert_eq!(self.mock.violations(), []);
        assert_eq!(self.mock.unexpected().len(), 0);
    }
}

/// One skill.
pub(crate) fn xlsx() -> Value {
    json!(["xlsx"])
}

/// A container, as a reply has it.
pub(crate) fn container(id: &str) -> Value {
    json!({"id": id, "expires_at": "2026-09-01T00:00:00Z", "skills": null})
}

/// A reply that runs a command.
pub(crate) fn bash_use(id: &str, command: &str) -> Message {
    Message::new().server_tool_use(id, "bash_code_execution", json!({ "command": command }))
}

/// What the provider says that a command did.
pub(crate) fn ran(id: &str, files: &[&str]) -> Value {
    let files: Vec<Value> = files
        .iter()
        .map(|id| json!({"type": "bash_code_execution_output", "file_id": id}))
        .collect();
    json!({
        "type": RAN,
        "tool_use_id": id,
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "", "stderr": "", "return_code": 0,
            "content": files,
        },
    })
}

/// A reply that made files.
pub(crate) fn made(id: &str, files: &[&str]) -> Message {
    bash_use(id, "make")
        .raw_on(Wire::Anthropic, ran(id, files))
        .text("Made.")
        .container(container("container_1"))
}

/// Every block in the history of a request.
pub(crate) fn blocks(request: &Request) -> Vec<Value> {
    let messages = request.messages().iter();
    messages
        .filter_map(|message| message["content"].as_array())
        .flatten()
        .cloned()
        .collect()
}
