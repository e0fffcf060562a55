//! How a session without a model follows its plugins and backends.
//!
//! One task a session owns the toolbox. It makes a new snapshot when plugins come or go, when a
//! backend says that its catalog is another one, and when a skill says so in a call; whoever runs
//! a call goes on with the snapshot that it holds.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use conjure_core::routing::ExcludedTools;
use conjure_core::turn::describe_notice;
use conjure_skill_sdk::protocol::CatalogReply;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;

use super::session_dirs::SessionDirs;
use super::skill_lists::{ListKind, changed_lists, run_time_tools};
use super::table_notices::plugin_notice;
use crate::backend::backend_changes::{BackendChange, updated_resource};
use crate::backend::catalogs::FetchedCatalog;
use crate::backend::sources::CatalogSource;
use crate::backend::transitions::TransitionOutcome;
use crate::backend::{ToolSnapshot, Toolbox};
use conjure_plugins::PluginCallFailure;

/// Updates of resources that may wait for a subscriber; one that is slower loses the oldest.
pub(super) const UPDATES: usize = 256;
/// Notices that may wait for a subscriber; one that is slower loses the oldest.
pub(super) const NOTICES: usize = 64;
/// Time for a backend to say what it offers.
const LIMIT: Duration = Duration::from_secs(10);

/// How often each kind of thing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision {
    /// The tools.
    pub tools: u64,
    /// The resources and their templates.
    pub resources: u64,
    /// The prompts.
    pub prompts: u64,
}

impl Revision {
    /// All changes together.
    pub fn sum(self) -> u64 {
        self.tools + self.resources + self.prompts
    }
}

/// The tools of a session, shared by its calls.
pub(super) struct SharedTools {
    pub(super) snapshot: ArcSwap<ToolSnapshot>,
    pub(super) revision: watch::Sender<Revision>,
    pub(super) resource_updates: broadcast::Sender<Arc<str>>,
    /// What whoever made the calls should know.
    pub(super) notices: broadcast::Sender<Arc<str>>,
    /// What skills said about their lists: kinds that are others now.
    pub(super) changed_skill_lists: Mutex<BTreeSet<ListKind>>,
    pub(super) skills_changed: Notify,
}

impl SharedTools {
    /// Takes note of an event of a call.
    pub(super) fn handle_event(&self, event: &[u8], session: &str) {
        if let Some(uri) = updated_resource(event, session) {
            self.notify_updated(&uri);
            return;
        }
        let Some(kinds) = changed_lists(event, session) else {
            return;
        };
        let mut skills = self
            .changed_skill_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        skills.extend(kinds);
        drop(skills);
        self.skills_changed.notify_one();
    }

    fn notify_updated(&self, uri: &str) {
        // Nobody listens when nobody subscribed.
        let _ = self.resource_updates.send(Arc::from(uri));
    }

    fn notify(&self, notice: &str) {
        let _ = self.notices.send(Arc::from(notice));
    }

    fn bump_revision(&self, kinds: &BTreeSet<ListKind>) {
        if kinds.is_empty() {
            return;
        }
        self.revision.send_modify(|revision| {
            for kind in kinds {
                match kind {
                    ListKind::Tools => revision.tools += 1,
                    ListKind::Resources => revision.resources += 1,
                    ListKind::Prompts => revision.prompts += 1,
                }
            }
        });
    }
}

/// A backend's catalog, an error, or a time-out.
type CatalogResult = Result<Result<FetchedCatalog, PluginCallFailure>, Elapsed>;

/// Follows until it is told to end, and closes the backends then.
pub(super) struct CatalogFollower {
    pub(super) tools: Arc<SharedTools>,
    pub(super) dirs: Arc<SessionDirs>,
    pub(super) toolbox: Toolbox,
    pub(super) registry: watch::Receiver<u64>,
}

impl CatalogFollower {
    pub(super) async fn run(mut self, end: CancellationToken) {
        let mut asked: FuturesUnordered<BoxFuture<'static, (String, CatalogResult)>> =
            FuturesUnordered::new();
        let known = Arc::clone(&self.tools);
        let mut transitions: FuturesUnordered<BoxFuture<'static, TransitionOutcome>> =
            FuturesUnordered::new();
        loop {
            let changes = Arc::clone(self.toolbox.changes());
            tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(finished) = transitions.next(), if !transitions.is_empty() => {
                    if let Some(reason) = self.toolbox.finish_transition(finished) {
                        let text = describe_notice(&reason);
                        tracing::info!("{text}");
                        self.tools.notify(&text);
                    }
                    self.update(BTreeSet::new());
                }
                Ok(()) = self.registry.changed() => {
                    let begun = self.toolbox.follow_plugins().into_iter();
                    transitions.extend(begun.map(|(_, moving)| moving));
                    self.update(BTreeSet::new());
                }
                Some((backend, answer)) = asked.next(), if !asked.is_empty() => {
                    self.handle_catalog(&backend, answer);
                }
                () = changes.arrived.notified() => {
                    for change in changes.take() {
                        match change {
                            BackendChange::Notice { text } => {
                                tracing::info!("{text}");
                                self.tools.notify(&text);
                            }
                            BackendChange::Resource { uri } => self.tools.notify_updated(&uri),
                            BackendChange::Catalog { backend } => {
                                if let Some(answer) = self.toolbox.fetch_catalog(&backend) {
                                    asked.push(Box::pin(async move {
                                        (backend, tokio::time::timeout(LIMIT, answer).await)
                                    }));
                                }
                            }
                        }
                    }
                }
                () = known.skills_changed.notified() => self.skills_changed(&end).await,
                () = self.toolbox.wait_for_approvals() => self.update(BTreeSet::new()),
            }
        }
        drop(asked);
        drop(transitions);
        self.toolbox.close().await;
        self.dirs.exchange.end();
    }

    fn handle_catalog(&mut self, backend: &str, answer: CatalogResult) {
        match answer {
            Ok(Ok(asked)) => {
                let catalog = &asked.catalog;
                let mut kinds = BTreeSet::new();
                if let Some(before) = self.catalog(backend) {
                    if before.resources != catalog.resources
                        || before.resource_templates != catalog.resource_templates
                    {
                        kinds.insert(ListKind::Resources);
                    }
                    if before.prompts != catalog.prompts {
                        kinds.insert(ListKind::Prompts);
                    }
                }
                self.toolbox.set_catalog(asked);
                self.update(kinds);
            }
            Ok(Err(error)) => tracing::warn!(backend, "keeps its catalog: {error}"),
            Err(_) => tracing::warn!(backend, "keeps its catalog: no answer within {LIMIT:?}"),
        }
    }

    fn catalog(&self, backend: &str) -> Option<Arc<CatalogReply>> {
        let snapshot = self.tools.snapshot.load();
        snapshot.sources().iter().find_map(|source| match source {
            CatalogSource::Backend { name, catalog, .. } if name == backend => {
                Some(Arc::clone(catalog))
            }
            _ => None,
        })
    }

    /// Asks the skills again whose tools are not all in their manifest.
    async fn skills_changed(&mut self, end: &CancellationToken) {
        let kinds = {
            let mut skills = self
                .tools
                .changed_skill_lists
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *skills)
        };
        if kinds.contains(&ListKind::Tools) {
            let snapshot = self.tools.snapshot.load_full();
            for (skill, tools) in run_time_tools(&snapshot, &self.dirs.request_context, end).await {
                self.toolbox.set_skill_tools(&skill, tools);
            }
        }
        self.update(kinds);
    }

    /// Makes the next snapshot, and says what is another one in it.
    fn update(&mut self, mut kinds: BTreeSet<ListKind>) {
        let before = self.tools.snapshot.load_full();
        let (snapshot, quarantined) = self.toolbox.update(&before);
        for kept_out in ExcludedTools::of(&quarantined) {
            tracing::warn!("{kept_out}");
            self.tools.notify(&kept_out.to_string());
        }
        for change in self.toolbox.changed_plugins(&before) {
            self.tools.notify(&plugin_notice(&change));
        }
        if snapshot.table().version() != before.table().version() {
            kinds.insert(ListKind::Tools);
        }
        let sources = |snapshot: &ToolSnapshot| -> Vec<String> {
            let sources = snapshot.sources().iter();
            sources
                .map(|source| match source {
                    CatalogSource::Skill(lease) => lease.plugin.id().to_string(),
                    CatalogSource::Backend { name, .. } => name.clone(),
                })
                .collect()
        };
        if sources(&snapshot) != sources(&before) {
            kinds.extend([ListKind::Resources, ListKind::Prompts]);
        }
        self.tools.snapshot.store(Arc::new(snapshot));
        self.tools.bump_revision(&kinds);
    }
}
