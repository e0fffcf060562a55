//! Catalogs that depend on the session's model.
//!
//! A backend that has a share in one provider's requests offers other tools there than elsewhere:
//! it is asked anew when the session changes to another provider.

use std::sync::Arc;
use std::time::Duration;

use conjure_skill_sdk::protocol::{CatalogReply, CatalogRequest, op};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::lease::ask;
use super::toolbox::{BackendKind, Toolbox};
use super::watching::BackendChange;

/// Time for a backend to say what it offers.
const LIMIT: Duration = Duration::from_secs(10);

/// Catalogs that are on their way, each with its backend.
pub(crate) type Renewal = BoxFuture<'static, Vec<(String, CatalogReply)>>;

impl Toolbox {
    /// The session talks to this model from now on. True when catalogs may be other ones.
    pub(crate) fn talks_to(&mut self, whom: CatalogRequest) -> bool {
        let is_another = self.whom.provider != whom.provider;
        self.whom = whom;
        is_another && !self.contributors().is_empty()
    }

    /// Asks the backends with a share in requests what they offer now, all at the same time. One
    /// that fails keeps its catalog, and the person is told.
    pub(crate) fn ask_catalogs(&self) -> Renewal {
        let asking = self.attached.iter().filter_map(|attached| {
            let BackendKind::Backend { lease, .. } = &attached.kind else {
                return None;
            };
            if !lease.plugin.manifest().has("backend.contribute/1") {
                return None;
            }
            let (name, lease) = (attached.name.clone(), Arc::clone(lease));
            let (request_context, whom) = (self.request_context.clone(), self.whom.clone());
            let changes = Arc::clone(&self.changes);
            Some(async move {
                let asked = ask(
                    lease.instance(),
                    &request_context,
                    op::BACKEND_CATALOG,
                    whom,
                );
                let why = match tokio::time::timeout(LIMIT, asked).await {
                    Ok(Ok(catalog)) => return Some((name, catalog)),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no answer within {LIMIT:?}"),
                };
                tracing::warn!(backend = name, "keeps its catalog: {why}");
                changes.push(BackendChange::Notice {
                    text: format!(
                        "{name}: what it offers with this model's provider is not known, so it \
                         offers what it did before: {why}"
                    ),
                });
                None
            })
        });
        let asking = join_all(asking);
        async move { asking.await.into_iter().flatten().collect() }.boxed()
    }
}
