//! The tools of an open thread: what its backends offer, which of it the running step has, and what
//! changes about that.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use conjure_config::BackendSpec;
use conjure_core::chat::Event;
use conjure_core::log::{self, Entry, NoticeReason, PluginChange, StateHandover, TableChange};
use conjure_core::request::{ModelRequest, tool_tokens};
use conjure_core::routing::{ExcludedTools, QuarantinedTool, ToolName};
use conjure_skill_sdk::protocol::CatalogRequest;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use crate::backend::backend_changes::BackendChange;
use crate::backend::catalogs::{FetchedCatalog, Renewal};
use crate::backend::contributors::Contributors;
use crate::backend::reports::{ReportSender, TaskReport};
use crate::backend::transitions::TransitionOutcome;
use crate::backend::{BackendStatus, ToolSnapshot, Toolbox};

/// The tools of an open thread.
pub(super) struct Tools {
    pub(super) toolbox: Toolbox,
    /// Tells of plugins that come and go.
    registry: watch::Receiver<u64>,
    /// The snapshot that the next step uses.
    newest: Arc<ToolSnapshot>,
    /// The snapshot of the running step.
    current: Arc<ArcSwap<ToolSnapshot>>,
    /// Tools that the thread once had.
    removed: BTreeSet<String>,
    /// Tokens of the tools of the newest table that was asked for, by its version.
    tokens: (u64, u64),
    /// Catalogs that are asked for anew, since the model is another provider's than they are for.
    renewal: Option<Renewal>,
    /// Backends that are made ready.
    transitions: FuturesUnordered<BoxFuture<'static, TransitionOutcome>>,
    /// Transitions that the next request waits for, since the session's settings want them.
    awaited: BTreeSet<u64>,
}

/// Something that changes tools.
pub(crate) enum ToolChange {
    /// Plugins came or went.
    Plugins,
    /// Somebody may have approved what is held.
    Approved,
    /// Backends said something.
    Backends,
    /// Catalogs for the model of now have come.
    Renewed(Vec<FetchedCatalog>),
    /// A backend is ready to be what it is to be, or cannot be.
    TransitionOver(Box<TransitionOutcome>),
}

/// The next snapshot, as it differs from the one before.
pub(super) struct TableUpdate {
    /// Tools that are kept out of it.
    pub(super) excluded: Vec<NoticeReason>,
    /// Nothing where its table is the same, and nothing is lost that a plugin held.
    pub(super) change: Option<TableChange>,
}

impl Tools {
    pub(super) fn new(
        toolbox: Toolbox,
        registry: watch::Receiver<u64>,
        first: Arc<ToolSnapshot>,
        entries: &[Entry],
    ) -> Self {
        Self {
            toolbox,
            registry,
            current: Arc::new(ArcSwap::from(Arc::clone(&first))),
            newest: first,
            removed: log::removed_tools(entries),
            tokens: (0, 0),
            renewal: None,
            transitions: FuturesUnordered::new(),
            awaited: BTreeSet::new(),
        }
    }

    /// The tools of the running step.
    pub(super) fn current(&self) -> Arc<ToolSnapshot> {
        self.current.load_full()
    }

    /// Like [`Self::current`], for whoever looks at the tools from elsewhere.
    pub(super) fn shared_snapshot(&self) -> &Arc<ArcSwap<ToolSnapshot>> {
        &self.current
    }

    /// The tools of the next step.
    pub(super) fn newest(&self) -> &Arc<ToolSnapshot> {
        &self.newest
    }

    /// Tools that the thread once had.
    pub(super) fn removed(&self) -> &BTreeSet<String> {
        &self.removed
    }

    pub(super) fn contributors(&self) -> Contributors {
        self.toolbox.contributors()
    }

    pub(super) fn status(&self) -> Vec<BackendStatus> {
        self.toolbox.status()
    }

    /// The running step has the newest tools from here on.
    pub(super) fn use_newest(&self) {
        self.current.store(Arc::clone(&self.newest));
    }

    /// The thread says that its tools are others.
    pub(super) fn table_changed(&mut self, change: &TableChange) {
        self.removed.extend(change.removed.iter().cloned());
        self.removed.retain(|name| !change.added.contains(name));
    }

    /// Tokens of the tools of a request with the tools of the running step.
    pub(super) fn tokens(&mut self, request: &ModelRequest) -> u64 {
        let table = self.current.load().table().version();
        if self.tokens.0 != table {
            self.tokens = (table, tool_tokens(&request.tools));
        }
        self.tokens.1
    }

    /// Waits for something that changes tools. Safe to drop and call again.
    pub(super) async fn change(&mut self) -> ToolChange {
        let Self {
            toolbox,
            registry,
            renewal,
            transitions,
            ..
        } = self;
        tokio::select! {
            biased;
            catalogs = next_renewal(renewal) => ToolChange::Renewed(catalogs),
            Some(finished) = transitions.next(), if !transitions.is_empty() => {
                ToolChange::TransitionOver(Box::new(finished))
            }
            Ok(()) = registry.changed() => ToolChange::Plugins,
            change = next_toolbox_change(toolbox) => change,
        }
    }

    /// The thread talks to this model from now on: catalogs that depend on it are asked for anew.
    pub(super) fn set_catalog_request(&mut self, request: CatalogRequest) {
        if self.toolbox.set_catalog_request(request) {
            self.renewal = Some(self.toolbox.fetch_catalogs());
        }
    }

    /// Whether catalogs or backends are on their way without which nothing is sent.
    pub(super) fn is_renewing(&self) -> bool {
        self.renewal.is_some() || !self.awaited.is_empty()
    }

    /// Waits for them no more.
    pub(super) fn stop_renewing(&mut self) {
        self.renewal = None;
        self.transitions.clear();
        self.awaited.clear();
    }

    /// Plugins came or went: backends move to the newest ones, beside what goes on.
    pub(super) fn follow_plugins(&mut self) {
        let transitions = self.toolbox.follow_plugins().into_iter();
        self.transitions
            .extend(transitions.map(|(_, moving)| moving));
    }

    /// The session is to have these backends from here on; its next request waits for them. Says
    /// what a person is to know.
    pub(super) fn set_backends(&mut self, specs: &[BackendSpec]) -> Vec<NoticeReason> {
        let (transitions, said) = self.toolbox.set_backends(specs);
        for (number, moving) in transitions {
            self.awaited.insert(number);
            self.transitions.push(moving);
        }
        said
    }

    /// A backend is what it is to be, from the next snapshot on, or stays what it was; says what a
    /// person is to know.
    pub(super) fn finish_transition(
        &mut self,
        finished: TransitionOutcome,
    ) -> Option<NoticeReason> {
        self.awaited.remove(&finished.number);
        self.toolbox.finish_transition(finished)
    }

    /// The next request has the newest of what stands behind the tools, where these are the same.
    pub(super) fn refresh_same_table(&self) {
        if self.newest.table().version() == self.current.load().table().version() {
            self.use_newest();
        }
    }

    /// From the next snapshot on the backends offer this.
    pub(super) fn set_catalogs(&mut self, catalogs: Vec<FetchedCatalog>) {
        for asked in catalogs {
            self.toolbox.set_catalog(asked);
        }
    }

    /// Makes the next snapshot.
    pub(super) fn update(&mut self) -> TableUpdate {
        let (snapshot, quarantined) = self.toolbox.update(&self.newest);
        let excluded = exclusion_notices(&quarantined);
        let diff = self.newest.table().diff(snapshot.table());
        let words = |names: &[ToolName]| -> Vec<String> {
            names.iter().map(|name| name.as_str().to_owned()).collect()
        };
        let change = TableChange {
            version: snapshot.table().version(),
            added: words(&diff.added),
            removed: words(&diff.removed),
            changed: words(&diff.changed),
            plugins: self.toolbox.changed_plugins(&self.newest),
        };
        // Also where the tools are the same, whoever used them is to know what was lost behind them.
        let is_lost = |plugin: &PluginChange| plugin.state == StateHandover::Lost;
        let is_another = self.newest.table().version() != change.version;
        let is_told = is_another || change.plugins.iter().any(is_lost);
        self.newest = Arc::new(snapshot);
        TableUpdate {
            excluded,
            change: is_told.then_some(change),
        }
    }

    /// Plugins that calls of this thread needed and that are there in another version than they ran in.
    /// What they held in memory ended with the session that had it.
    pub(super) fn versions_since(&self, entries: &[Entry]) -> Option<TableChange> {
        let table = self.newest.table();
        let plugins: Vec<PluginChange> = log::plugin_versions(entries)
            .into_iter()
            .filter_map(|(plugin, from)| {
                let mut routes = table.routes().iter();
                let route = routes.find(|route| {
                    let origin = &route.definition.origin;
                    origin.plugin.as_deref() == Some(plugin.as_str())
                })?;
                let to = route.definition.origin.version.clone()?;
                let state = match &*route.kind {
                    "native" => StateHandover::Lost,
                    _ => StateHandover::None,
                };
                (to != from).then_some(PluginChange {
                    plugin,
                    from,
                    to,
                    state,
                })
            })
            .collect();
        (!plugins.is_empty()).then(|| TableChange {
            version: table.version(),
            plugins,
            ..TableChange::default()
        })
    }

    /// Looks at what backends said: a catalog that is another one is asked for, and what is for a
    /// person is given back.
    pub(super) fn take_backend_events(
        &self,
        provider: Option<&String>,
        reports: &ReportSender,
    ) -> Vec<Event> {
        let mut told = Vec::new();
        for change in self.toolbox.changes().take() {
            match change {
                BackendChange::Notice { text } => told.push(Event::Notice { text }),
                // Nobody subscribes to a resource in a conversation.
                BackendChange::Resource { .. } => {}
                BackendChange::Catalog { backend } => {
                    let Some(asked) = self.toolbox.fetch_catalog(&backend) else {
                        continue;
                    };
                    let (reports, provider) = (reports.clone(), provider.cloned());
                    tokio::spawn(async move {
                        match asked.await {
                            Ok(asked) => {
                                let renewed = TaskReport::Catalog {
                                    provider,
                                    catalog: asked,
                                };
                                let _ = reports.send(renewed).await;
                            }
                            Err(error) => {
                                tracing::warn!(backend, "keeps its catalog: {error}");
                            }
                        }
                    });
                }
            }
        }
        told
    }
}

/// What a person is told of tools that are kept out of a table.
pub(super) fn exclusion_notices(quarantined: &[QuarantinedTool]) -> Vec<NoticeReason> {
    let all = ExcludedTools::of(quarantined).into_iter();
    all.map(|kept_out| NoticeReason::ToolsExcluded {
        names: kept_out.names.iter().map(ToString::to_string).collect(),
        error: kept_out.error.to_string(),
    })
    .collect()
}

/// Waits until backends say something, or somebody may have approved what is held.
async fn next_toolbox_change(toolbox: &mut Toolbox) -> ToolChange {
    let changes = Arc::clone(toolbox.changes());
    tokio::select! {
        () = changes.arrived.notified() => ToolChange::Backends,
        () = toolbox.wait_for_approvals() => ToolChange::Approved,
    }
}

async fn next_renewal(renewal: &mut Option<Renewal>) -> Vec<FetchedCatalog> {
    let Some(asked) = renewal else {
        return std::future::pending().await;
    };
    let catalogs = asked.await;
    *renewal = None;
    catalogs
}
