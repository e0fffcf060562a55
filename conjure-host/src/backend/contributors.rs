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

use super::lease::{BackendLease, ask};
use super::results::fetch_with;
use super::surroundings::Surroundings;
use crate::artifacts::Artifacts;
use crate::plugin::CallFailure;
use crate::provider::ProviderError;
use crate::session::{Internal, Reports};

/// Time for a backend to say what it adds to a request, or to look at a reply: the request, or the
/// end of the turn, waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// The backends of a session that contribute, by instance name.
#[derive(Clone, Default)]
pub(crate) struct Contributors(pub(crate) Vec<(String, Arc<BackendLease>)>);

impl Contributors {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fragments for a request. A backend that fails has no part in it, and the person is told.
    async fn contribute(
        &self,
        around: &Surroundings,
        request: &ModelRequest,
        internal: &Reports,
    ) -> ProviderFragments {
        let mut fragments = ProviderFragments::default();
        for (name, lease) in &self.0 {
            let body = Contribute {
                provider: request.provider.clone(),
                model: request.model.clone(),
            };
            let asked = ask(&lease.instance, around, op::BACKEND_CONTRIBUTE, body);
            match in_time(asked).await {
                Ok(contribution) => merge(&mut fragments, contribution),
                Err(error) => {
                    tracing::warn!(backend = name, "has no part in the request: {error}");
                    let text = format!(
                        "{name}: it has no part in this request, so the model is not offered what \
                         it brings: {error}"
                    );
                    let _ = internal.send(Internal::Event(Event::Notice { text })).await;
                }
            }
        }
        fragments
    }

    /// Shows the backends what came of a request that they have a share in. Whether one of them
    /// has other fragments now, with which a request that failed may do better.
    pub(crate) async fn show(
        &self,
        around: &Surroundings,
        artifacts: &Artifacts,
        observe: Observe,
        internal: &Reports,
    ) -> bool {
        let mut renewed = false;
        for (name, lease) in &self.0 {
            let body = observe.clone();
            let seen = in_time(ask(&lease.instance, around, op::BACKEND_OBSERVE, body)).await;
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
            let fetch = fetch_with(lease, around);
            let files: Vec<_> = files
                .iter()
                .filter_map(|file| {
                    artifacts
                        .register(name, file, fetch.clone())
                        .inspect_err(|error| tracing::warn!(backend = name, "{error}"))
                        .ok()
                })
                .collect();
            let backend = name.clone();
            if !files.is_empty() {
                let _ = internal
                    .send(Internal::Files {
                        backend: backend.clone(),
                        files,
                    })
                    .await;
            }
            if let Some(state) = state {
                let _ = internal
                    .send(Internal::BackendState { backend, state })
                    .await;
            }
        }
        renewed
    }
}

/// What a backend says, if it says it in time.
async fn in_time<T>(asked: impl Future<Output = Result<T, CallFailure>>) -> Result<T, String> {
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(said) => said.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {LIMIT:?}")),
    }
}

/// The observing of a reply, which the next request waits for: what a backend saw in one reply it
/// may need in the request after it.
#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Shared<BoxFuture<'static, ()>>>);

impl Observed {
    /// Runs on a task of its own, whether somebody waits or not.
    pub(crate) fn by(observing: impl Future<Output = ()> + Send + 'static) -> Self {
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
pub(crate) struct Share {
    pub(crate) contributors: Contributors,
    pub(crate) around: Surroundings,
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) observed: Observed,
    pub(crate) internal: Reports,
    pub(crate) request: ModelRequest,
}

impl Share {
    /// The request with the fragments of now.
    pub(crate) async fn prepared(&self) -> ModelRequest {
        self.observed.clone().wait().await;
        let Self {
            contributors,
            around,
            internal,
            request,
            ..
        } = self;
        let contribution = contributors.contribute(around, request, internal);
        ModelRequest {
            contribution: contribution.await,
            ..self.request.clone()
        }
    }

    /// Shows the backends a request that came to nothing. Whether one of them has other fragments
    /// now, with which it may do better.
    pub(crate) async fn is_renewed(&self, error: &ProviderError) -> bool {
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
            around,
            artifacts,
            internal,
            ..
        } = self;
        contributors
            .show(around, artifacts, observe, internal)
            .await
    }
}

fn merge(fragments: &mut ProviderFragments, contribution: Contribution) {
    fragments.tools.extend(contribution.tools);
    fragments.user_content.extend(contribution.user_content);
    fragments.headers.extend(contribution.headers);
    merge_fields(&mut fragments.fields, contribution.fields);
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
