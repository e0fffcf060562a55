//! Backends with a share in a provider's request.

use std::sync::Arc;

use conjure_core::request::{ModelRequest, ProviderFragments};
use conjure_skill_sdk::protocol::{Contribute, Contribution, Observation, Observe, op};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::lease::{BackendLease, ask};
use super::results::fetch_with;
use super::surroundings::Surroundings;
use crate::artifacts::Artifacts;
use crate::session::Internal;

/// The backends of a session that contribute, by instance name.
#[derive(Clone, Default)]
pub(crate) struct Contributors(pub(crate) Vec<(String, Arc<BackendLease>)>);

impl Contributors {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fragments for a request. A backend that fails has no part in it, and is said so in the
    /// log.
    pub(crate) async fn contribute(
        &self,
        around: &Surroundings,
        request: &ModelRequest,
    ) -> ProviderFragments {
        let mut fragments = ProviderFragments::default();
        for (name, lease) in &self.0 {
            let body = Contribute {
                provider: request.provider.clone(),
                model: request.model.clone(),
            };
            match ask(&lease.instance, around, op::BACKEND_CONTRIBUTE, body).await {
                Ok(contribution) => merge(&mut fragments, contribution),
                Err(error) => tracing::warn!(backend = name, "has no part in the request: {error}"),
            }
        }
        fragments
    }

    /// Shows a response to the backends that contributed to its request.
    pub(crate) async fn observe(
        &self,
        around: &Surroundings,
        artifacts: &Artifacts,
        observe: Observe,
        internal: &mpsc::Sender<Internal>,
    ) {
        for (name, lease) in &self.0 {
            let observed = ask(
                &lease.instance,
                around,
                op::BACKEND_OBSERVE,
                observe.clone(),
            )
            .await;
            let Observation { files, state } = match observed {
                Ok(observation) => observation,
                Err(error) => {
                    tracing::warn!(backend = name, "did not observe the response: {error}");
                    continue;
                }
            };
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
