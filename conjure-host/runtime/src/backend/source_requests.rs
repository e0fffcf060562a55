//! Requests to the sources of a session beside the calls of tools. Each has one limit for all that it
//! takes: the instance, the state of the version before, the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::{Empty, Resources, op};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::readers::{LISTING, MOST, ReadError, SourceLists, ok_or_log, supports};
use super::request_context::{CallScope, RequestContext};
use super::run::LiveOutput;
use super::sources::CatalogSource;
use conjure_plugins::{CallMeta, CallOptions, Emit, Instance, emit_channel};

/// Asks sources.
#[derive(Clone, Copy)]
pub(super) struct SourceRequests<'a> {
    pub(super) request_context: &'a RequestContext,
    /// Id of the call that host operations of the source belong to.
    pub(super) call_id: Option<&'a Arc<str>>,
    pub(super) cancel: &'a CancellationToken,
    pub(super) live: &'a LiveOutput,
}

impl SourceRequests<'_> {
    /// Asks a source for an operation. Where its instance is not ready within the limit, or the call is
    /// cancelled before, it is not waited for any longer.
    pub(super) async fn ask<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
        limit: Duration,
    ) -> Result<R, ReadError> {
        let begun_at = Instant::now();
        let ready = async {
            match source {
                CatalogSource::Skill(lease) => {
                    let made = lease.instance(self.request_context).await;
                    let made = made.map_err(ReadError::Failed)?;
                    let entered = lease.enter().await;
                    // The instance of shared state may be another one after the wait.
                    let instance = lease.current_instance().map_or(made, Arc::clone);
                    Ok::<_, ReadError>((instance, entered))
                }
                CatalogSource::Backend { lease, .. } => {
                    Ok((Arc::clone(lease.serving().await), None))
                }
            }
        };
        let (instance, _entered) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.cancel.cancelled() => {
                let text = format!("{}: the call was cancelled", source.plugin().id());
                return Err(ReadError::Cancelled(text));
            }
            () = tokio::time::sleep(limit) => return Err(not_ready(source, limit)),
        };
        let remaining = limit.saturating_sub(begun_at.elapsed());
        let reply = self.request(&instance, op, &body, remaining).await?;
        serde_json::from_slice(&reply).map_err(|error| {
            let plugin = instance.plugin().id();
            ReadError::Failed(format!("{plugin}: its reply to {op} does not fit: {error}"))
        })
    }

    async fn request(
        &self,
        instance: &Instance,
        op: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<Vec<u8>, ReadError> {
        let about = CallScope {
            call_id: self.call_id.map(AsRef::as_ref),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            ..CallScope::default()
        };
        let json = self.request_context.request(about, body);
        let json = json.map_err(|error| ReadError::Failed(error.to_string()))?;
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            deadline: Some(deadline),
            sink: Some(sink),
            cancel: self.cancel.clone(),
            meta: CallMeta {
                session: Some(Arc::clone(&self.request_context.session)),
                call_id: self.call_id.cloned(),
                turn_id: None,
            },
        };
        let answer = instance.request(op, json, options);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                Some(Emit { kind, bytes }) = stream.next() => (self.live)(kind, &bytes),
                answer = &mut answer => break answer,
            }
        };
        while let Some(Emit { kind, bytes }) = stream.try_next() {
            (self.live)(kind, &bytes);
        }
        answer.map_err(ReadError::from)
    }

    /// The resources and templates of a source.
    pub(super) async fn resources(&self, source: &CatalogSource, limit: Duration) -> SourceLists {
        let mut lists = SourceLists::empty(source);
        match source {
            CatalogSource::Backend { catalog, .. } => {
                lists.resources.clone_from(&catalog.resources);
                lists.templates.clone_from(&catalog.resource_templates);
            }
            CatalogSource::Skill(_) if supports(source, op::RESOURCE_LIST) => {
                let listed = self.ask(source, op::RESOURCE_LIST, Empty {}, limit).await;
                let listed: Value =
                    ok_or_log(source, op::RESOURCE_LIST, listed).unwrap_or_default();
                let templates = listed.get("resource_templates").and_then(Value::as_array);
                lists.templates = templates.cloned().unwrap_or_default();
                lists.resources = serde_json::from_value::<Resources>(listed)
                    .map(|listed| listed.resources)
                    .unwrap_or_default();
            }
            CatalogSource::Skill(_) => {}
        }
        lists.resources.truncate(MOST);
        lists.templates.truncate(MOST);
        lists
    }
}

/// The resources and templates of a source as far as it says them within a time. It is asked until the
/// usual limit: one that needs longer to begin is there for the next request, and one that hangs is
/// stopped as any other.
pub(super) async fn resources_within(
    request_context: &RequestContext,
    source: &CatalogSource,
    time: Duration,
) -> SourceLists {
    let nothing = SourceLists::empty(source);
    if !supports(source, op::RESOURCE_LIST) {
        return nothing;
    }
    let (source, request_context) = (source.clone(), request_context.clone());
    let listing = tokio::spawn(async move {
        let live: LiveOutput = Arc::new(|_, _| {});
        let requests = SourceRequests {
            request_context: &request_context,
            call_id: None,
            cancel: &CancellationToken::new(),
            live: &live,
        };
        requests.resources(&source, LISTING).await
    });
    match tokio::time::timeout(time, listing).await {
        Ok(Ok(lists)) => lists,
        _ => {
            tracing::debug!(
                source = nothing.source.as_str(),
                "its resources are not waited for"
            );
            nothing
        }
    }
}

fn not_ready(source: &CatalogSource, limit: Duration) -> ReadError {
    ReadError::Failed(match source {
        CatalogSource::Skill(lease) => format!("{} within {limit:?}", lease.not_ready()),
        CatalogSource::Backend { lease, .. } => format!(
            "{} did not take its state over within {limit:?}",
            lease.plugin.id()
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use conjure_plugins::{LoadedPlugin, NoServices, PluginLimits};
    use conjure_skill_sdk::Skill;
    use serde_json::json;

    use super::*;
    use crate::backend::lease::{SkillLease, create_request};

    fn lease(version: &str, before: Option<Arc<SkillLease>>) -> Arc<SkillLease> {
        let make = || Skill::new("common", "Is shared").shared();
        let plugin = LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap();
        let create = create_request(None, None, json!({}), None);
        SkillLease::new(Arc::new(plugin), Arc::new(NoServices), create, before)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_source_that_is_not_ready_is_waited_for_until_the_limit_or_the_cancelling() {
        let dir = PathBuf::from("/");
        let request_context = RequestContext::new("one", dir.clone(), dir);
        let old = lease("1.0.0", None);
        old.instance(&request_context).await.unwrap();
        let _running = old.enter().await;
        // It takes the state over when that call has ended, which it does not here.
        let source = CatalogSource::Skill(lease("1.1.0", Some(Arc::clone(&old))));
        let live: LiveOutput = Arc::new(|_, _| {});
        for is_cancelled in [false, true] {
            let cancel = CancellationToken::new();
            let limit = match is_cancelled {
                true => Duration::from_secs(600),
                false => Duration::from_millis(50),
            };
            let requests = SourceRequests {
                request_context: &request_context,
                call_id: None,
                cancel: &cancel,
                live: &live,
            };
            if is_cancelled {
                cancel.cancel();
            }
            let answer = requests.ask::<Value>(&source, op::RESOURCE_LIST, Empty {}, limit);
            match answer.await.unwrap_err() {
                ReadError::Cancelled(_) => assert!(is_cancelled),
                ReadError::Failed(text) => {
                    assert!(!is_cancelled);
                    assert!(text.contains("was not ready within 50ms"), "{text}");
                }
                other => panic!("{other}"),
            }
        }
    }
}
