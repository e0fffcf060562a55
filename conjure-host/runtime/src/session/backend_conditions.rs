//! How the backends of a session are: whether each is there, and how the servers behind it are.

use std::time::Duration;

use conjure_config::SessionSpec;
use conjure_plugins::{Instance, Isolation, PluginCallFailure};
use conjure_skill_sdk::protocol::{CatalogReply, op};
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

use super::derived::catalog_request;
use super::server_states::cached_server_states;
use crate::backend::backend_lease::BackendLease;
use crate::backend::lease::ask_with_timeout;
use crate::backend::request_context::RequestContext;
use crate::backend::sources::CatalogSource;
use crate::backend::{BackendStatus, ToolSnapshot, servers};

/// How long a backend may take to say how its servers are. A call that takes longer hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// State of a backend of a session, and of the servers behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendCondition {
    /// Name, kind and plugin of the backend, with the reason where it is unavailable.
    pub status: BackendStatus,
    /// Time that it took to say how its servers are; `None` where it was not asked.
    pub answer_time: Option<Duration>,
    /// Why it did not say it.
    pub failed: Option<String>,
    /// What it says of each server behind it, as [`BackendServers`](super::BackendServers) has it; empty
    /// where it was asked and did not say it.
    pub servers: Vec<Value>,
}

/// The backends of a snapshot with what they said of their servers when its lists were made: nobody
/// is asked.
pub(super) fn cached_conditions(
    statuses: Vec<BackendStatus>,
    snapshot: &ToolSnapshot,
) -> Vec<BackendCondition> {
    let mut known = cached_server_states(snapshot);
    let conditions = statuses.into_iter().map(|status| {
        let at = known.iter().position(|of| of.backend == status.name);
        BackendCondition {
            servers: at.map_or_else(Vec::new, |at| known.swap_remove(at).servers),
            status,
            answer_time: None,
            failed: None,
        }
    });
    conditions.collect()
}

/// Like [`cached_conditions`], with what they say now: backends that have servers are asked, all at once.
/// A worker that has ended is not started again for that.
pub(super) async fn query_conditions(
    statuses: Vec<BackendStatus>,
    snapshot: &ToolSnapshot,
    spec: &SessionSpec,
    request_context: &RequestContext,
) -> Vec<BackendCondition> {
    let conditions = cached_conditions(statuses, snapshot).into_iter();
    let looks = conditions.map(|condition| async move {
        let lease = lease_of(snapshot, &condition.status.name);
        let Some(lease) = lease.filter(|_| !condition.servers.is_empty()) else {
            return condition;
        };
        match WorkerLife::of(lease.instance()) {
            WorkerLife::Runs => query_condition(condition, lease, spec, request_context).await,
            WorkerLife::Ended => {
                let why = "its worker has ended; its next call starts it again".to_owned();
                with_answer(condition, None, Err(why))
            }
            WorkerLife::Unknown => condition,
        }
    });
    join_all(looks).await
}

/// Whether a request reaches an instance without a worker that is started for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerLife {
    Runs,
    Ended,
    /// A part of the plugin's workers has ended, and it is not known whose.
    Unknown,
}

impl WorkerLife {
    fn of(instance: &Instance) -> Self {
        let plugin = instance.plugin();
        if plugin.isolation() != Isolation::Process || plugin.health().worker_ends == 0 {
            return Self::Runs;
        }
        Self::from_counts(plugin.instances(), plugin.running_workers())
    }

    /// Worker life in a plugin with so many instances, each with its own worker, and so many workers.
    fn from_counts(instances: usize, workers: usize) -> Self {
        match workers {
            workers if workers >= instances => Self::Runs,
            0 => Self::Ended,
            _ => Self::Unknown,
        }
    }
}

fn lease_of<'a>(snapshot: &'a ToolSnapshot, backend: &str) -> Option<&'a BackendLease> {
    let mut sources = snapshot.sources().iter();
    sources.find_map(|source| match source {
        CatalogSource::Backend { name, lease, .. } if name == backend => Some(&**lease),
        _ => None,
    })
}

async fn query_condition(
    condition: BackendCondition,
    lease: &BackendLease,
    spec: &SessionSpec,
    request_context: &RequestContext,
) -> BackendCondition {
    let (instance, begin) = (lease.instance(), Instant::now());
    let asking = ask_with_timeout(
        instance,
        request_context,
        op::BACKEND_CATALOG,
        catalog_request(spec),
        Some(ANSWER_TIMEOUT),
    );
    let answer: Result<CatalogReply, PluginCallFailure> = asking.await;
    let answer = match answer {
        Ok(catalog) => Ok(servers(&catalog, instance.plugin())),
        Err(error) => Err(error.to_string()),
    };
    with_answer(condition, Some(begin.elapsed()), answer)
}

/// A condition with what the backend said of its servers, or why it did not: what it said before may
/// not be so any more.
fn with_answer(
    condition: BackendCondition,
    answer_time: Option<Duration>,
    answer: Result<Vec<Value>, String>,
) -> BackendCondition {
    let (servers, failed) = match answer {
        Ok(servers) => (servers, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    BackendCondition {
        answer_time,
        failed,
        servers,
        ..condition
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_worker_that_may_have_ended_is_not_started_by_a_look() {
        for (instances, workers, life) in [
            (1, 1, WorkerLife::Runs),
            (2, 3, WorkerLife::Runs),
            (1, 0, WorkerLife::Ended),
            (2, 0, WorkerLife::Ended),
            (2, 1, WorkerLife::Unknown),
        ] {
            let found = WorkerLife::from_counts(instances, workers);
            assert_eq!(found, life, "{instances} {workers}");
        }
    }

    #[test]
    fn a_backend_that_does_not_answer_has_no_servers_that_are_ready() {
        let ready = json!({ "server": "notes", "state": "ready" });
        let condition = BackendCondition {
            status: BackendStatus {
                name: "mcp".to_owned(),
                kind: "mcp".to_owned(),
                plugin: None,
                missing: None,
                since_ms: None,
                is_starting: false,
            },
            answer_time: None,
            failed: None,
            servers: vec![ready.clone()],
        };
        let mute = with_answer(condition.clone(), None, Err("it hangs".to_owned()));
        assert_eq!(mute.servers, Vec::<Value>::new());
        assert_eq!(mute.failed.as_deref(), Some("it hangs"));
        let said = with_answer(condition, None, Ok(vec![ready.clone()]));
        assert_eq!((said.servers, said.failed), (vec![ready], None));
    }
}
