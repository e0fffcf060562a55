//! Backends with a share in a provider's request.

use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::Event;
use conjure_core::request::{ModelRequest, ProviderFragments};
use conjure_skill_sdk::protocol::{
    Contribute, Contribution, Observation, Observe, RequestError, op,
};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use serde_json::{Map, Value};

use super::backend_lease::BackendLease;
use super::lease::ask;
use super::reports::{ReportSender, TaskReport};
use super::request_context::RequestContext;
use super::request_media::request_media;
use super::results::fetch_with;
use crate::artifacts::Artifacts;
use conjure_plugins::{LoadedPlugin, PluginCallFailure};
use conjure_providers::ProviderError;

/// Time for a backend to say what it adds to a request, or to look at a reply: the request, or the
/// end of the turn, waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// The operation that makes a backend one of them.
const CONTRIBUTES: &str = "backend.contribute/1";

/// Whether backends of this plugin have a share in requests: their tools may be others with another
/// provider.
pub(super) fn is_contributor(plugin: &LoadedPlugin) -> bool {
    plugin.manifest().has(CONTRIBUTES)
}

/// The backends of a session that contribute, by instance name.
#[derive(Clone, Default)]
pub(crate) struct Contributors(pub(crate) Vec<(String, Arc<BackendLease>)>);

impl Contributors {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the backends add to a request to this model. One that fails has no part in it.
    pub(crate) async fn contribute(
        &self,
        request_context: &RequestContext,
        provider: &str,
        model: &str,
    ) -> MergedContributions {
        let mut contributed = MergedContributions::default();
        for (name, lease) in &self.0 {
            let body = Contribute {
                provider: provider.to_owned(),
                model: model.to_owned(),
            };
            let asked = async {
                let instance = lease.serving().await;
                ask(instance, request_context, op::BACKEND_CONTRIBUTE, body).await
            };
            match with_timeout(asked).await {
                Ok(contribution) => contributed.merge(name, contribution),
                Err(error) => {
                    tracing::warn!(backend = name, "has no part in the request: {error}");
                    contributed.failed.push((name.clone(), error));
                }
            }
        }
        contributed
    }

    /// Shows the backends what came of a request that they have a share in. Whether one of them
    /// has other fragments now, with which a request that failed may do better.
    pub(crate) async fn show(
        &self,
        request_context: &RequestContext,
        artifacts: &Artifacts,
        observe: Observe,
        internal: &ReportSender,
    ) -> bool {
        let mut renewed = false;
        for (name, lease) in &self.0 {
            let body = observe.clone();
            let seen = with_timeout(ask(
                lease.instance(),
                request_context,
                op::BACKEND_OBSERVE,
                body,
            ))
            .await;
            let Observation {
                files,
                state,
                retry,
            } = match seen {
                Ok(observation) => observation,
                Err(error) => {
                    tracing::warn!(backend = name, "did not observe the response: {error}");
                    continue;
                }
            };
            renewed |= retry;
            let fetch = fetch_with(lease, request_context);
            let budget = artifacts.budget();
            let files: Vec<_> = files
                .iter()
                .filter_map(|file| {
                    artifacts
                        .register_within(name, file, fetch.clone(), &budget)
                        .inspect_err(|error| tracing::warn!(backend = name, "{error}"))
                        .ok()
                })
                .collect();
            let backend = name.clone();
            if !files.is_empty() {
                let _ = internal
                    .send(TaskReport::Files {
                        backend: backend.clone(),
                        files,
                    })
                    .await;
            }
            if let Some(state) = state {
                let _ = internal
                    .send(TaskReport::BackendState { backend, state })
                    .await;
            }
        }
        renewed
    }
}

/// What backends add to a request.
#[derive(Default)]
pub(crate) struct MergedContributions {
    /// Everything but the tools.
    rest: ProviderFragments,
    /// Tools that run at the provider, each with the backend that brings it.
    pub(crate) tools: Vec<(String, Value)>,
    /// The backends that have no part in it, and why.
    pub(crate) failed: Vec<(String, String)>,
}

impl MergedContributions {
    fn merge(&mut self, backend: &str, contribution: Contribution) {
        let tools = contribution.tools.into_iter();
        self.tools
            .extend(tools.map(|tool| (backend.to_owned(), tool)));
        self.rest.user_content.extend(contribution.user_content);
        for (call, parts) in contribution.call_content {
            self.rest
                .call_content
                .entry(call)
                .or_default()
                .extend(parts);
        }
        self.rest.headers.extend(contribution.headers);
        merge_fields(&mut self.rest.fields, contribution.fields);
    }

    /// The fragments that a wire puts into the request.
    fn fragments(self) -> ProviderFragments {
        ProviderFragments {
            tools: self.tools.into_iter().map(|(_, tool)| tool).collect(),
            ..self.rest
        }
    }
}

/// What a backend says, if it says it in time.
async fn with_timeout<T>(
    asked: impl Future<Output = Result<T, PluginCallFailure>>,
) -> Result<T, String> {
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(said) => said.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {LIMIT:?}")),
    }
}

/// The observing of a reply, which the next request waits for: what a backend saw in one reply it
/// may need in the request after it.
#[derive(Clone, Default)]
pub(crate) struct PendingObservation(Option<Shared<BoxFuture<'static, ()>>>);

impl PendingObservation {
    /// Runs on a task of its own, whether somebody waits or not.
    pub(crate) fn spawn(observing: impl Future<Output = ()> + Send + 'static) -> Self {
        let task = tokio::spawn(observing);
        let ended = async move {
            let _ = task.await;
        };
        Self(Some(ended.boxed().shared()))
    }

    pub(crate) async fn wait(self) {
        if let Some(ended) = self.0 {
            ended.await;
        }
    }
}

/// A request, and the share that backends have in it.
pub(crate) struct ContributedRequest {
    pub(crate) contributors: Contributors,
    pub(crate) request_context: RequestContext,
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) observation: PendingObservation,
    pub(crate) reports: ReportSender,
    pub(crate) request: ModelRequest,
}

impl ContributedRequest {
    /// The request with the fragments of now, and with the files that it shows.
    pub(crate) async fn prepare(&self) -> ModelRequest {
        self.observation.clone().wait().await;
        let Self {
            contributors,
            request_context,
            artifacts,
            reports: internal,
            request,
            ..
        } = self;
        let added = contributors.contribute(request_context, &request.provider, &request.model);
        let added = added.await;
        for (name, error) in &added.failed {
            let text = format!(
                "{name}: it has no part in this request, so the model is not offered what it \
                 brings: {error}"
            );
            let _ = internal
                .send(TaskReport::Event(Event::Notice { text }))
                .await;
        }
        ModelRequest {
            contribution: added.fragments(),
            attachments: request_media(request, artifacts).await,
            ..self.request.clone()
        }
    }

    /// Shows the backends a request that came to nothing. Whether one of them has other fragments
    /// now, with which it may do better.
    pub(crate) async fn observe_failure(&self, error: &ProviderError) -> bool {
        let observe = Observe {
            provider: self.request.provider.clone(),
            model: self.request.model.clone(),
            error: Some(RequestError {
                kind: error.kind.clone(),
                message: error.message.clone(),
            }),
            ..Observe::default()
        };
        let Self {
            contributors,
            request_context,
            artifacts,
            reports: internal,
            ..
        } = self;
        contributors
            .show(request_context, artifacts, observe, internal)
            .await
    }
}

/// Objects are merged and lists joined, so that two backends share one `container.skills`.
fn merge_fields(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge_fields(known, more),
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
