//! Catalogs that depend on the session's provider.
//!
//! A backend that has a share in one provider's requests offers other tools there than elsewhere:
//! it is asked anew when the session changes to another provider.

use std::sync::Arc;
use std::time::Duration;

use conjure_skill_sdk::protocol::{CatalogReply, CatalogRequest, op};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::attached_backend::BackendKind;
use super::backend_catalog::BackendCatalog;
use super::backend_changes::BackendChange;
use super::contributors::is_contributor;
use super::lease::ask;
use super::toolbox::Toolbox;
use conjure_plugins::PluginCallFailure;

/// Time for a backend to say what it offers.
const LIMIT: Duration = Duration::from_secs(10);

/// A catalog that a backend was asked for.
pub(crate) struct FetchedCatalog {
    pub(crate) backend: String,
    /// Number of the backend's transition that was asked.
    transition_number: u64,
    /// The session's provider and model when it was asked.
    request: CatalogRequest,
    pub(crate) catalog: CatalogReply,
}

/// Catalogs that are on their way.
pub(crate) type Renewal = BoxFuture<'static, Vec<FetchedCatalog>>;

impl Toolbox {
    /// Asks a backend what it offers now.
    pub(crate) fn fetch_catalog(
        &self,
        backend: &str,
    ) -> Option<impl Future<Output = Result<FetchedCatalog, PluginCallFailure>> + Send + use<>>
    {
        let attached = self
            .attached
            .iter()
            .find(|attached| attached.name == backend)?;
        let BackendKind::Backend { lease, .. } = &attached.kind else {
            return None;
        };
        let (lease, request_context) = (Arc::clone(lease), self.request_context.clone());
        let (backend, transition_number) = (attached.name.clone(), attached.transition_number);
        let whom = self.catalog_request.clone();
        Some(async move {
            let asked = ask(
                lease.instance(),
                &request_context,
                op::BACKEND_CATALOG,
                &whom,
            );
            let catalog = asked.await?;
            Ok(FetchedCatalog {
                backend,
                transition_number,
                request: whom,
                catalog,
            })
        })
    }

    /// From the next snapshot on the backend offers this. Where it has become another one meanwhile,
    /// that is asked anew.
    pub(crate) fn set_catalog(&mut self, fetched: FetchedCatalog) {
        let FetchedCatalog {
            backend,
            transition_number,
            request: whom,
            catalog: reply,
        } = fetched;
        let attached = self
            .attached
            .iter_mut()
            .find(|attached| attached.name == backend);
        let Some(attached) = attached else { return };
        if attached.transition_number != transition_number {
            self.changes.push(BackendChange::Catalog { backend });
        } else if let BackendKind::Backend { catalog, .. } = &mut attached.kind {
            *catalog = BackendCatalog {
                request: whom,
                reply: Arc::new(reply),
            };
        }
    }

    /// The session talks to this model from now on. True when catalogs may be other ones.
    pub(crate) fn set_catalog_request(&mut self, request: CatalogRequest) -> bool {
        let is_another = self.catalog_request.provider != request.provider;
        self.catalog_request = request;
        is_another && !self.contributors().is_empty()
    }

    /// Asks the backends with a share in requests what they offer now, all at the same time. One
    /// that fails keeps its catalog, and the person is told.
    pub(crate) fn fetch_catalogs(&self) -> Renewal {
        let asking = self.attached.iter().filter_map(|attached| {
            let BackendKind::Backend { lease, .. } = &attached.kind else {
                return None;
            };
            if !is_contributor(&lease.plugin) {
                return None;
            }
            let asked = self.fetch_catalog(&attached.name)?;
            let (name, changes) = (attached.name.clone(), Arc::clone(&self.changes));
            Some(async move {
                let why = match tokio::time::timeout(LIMIT, asked).await {
                    Ok(Ok(catalog)) => return Some(catalog),
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
