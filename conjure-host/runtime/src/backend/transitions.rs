//! How the backends of a session that runs become others: another version of a plugin, a plugin that
//! came or went, a backend that the session is to have or not to have any more.
//!
//! What is new is made ready beside the session, which goes on with what it has. Once it is ready it
//! is in the next snapshot, and what it replaces is closed when nothing holds it any more. One that
//! cannot be made ready changes nothing for those beside it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use conjure_core::log::{NoticeReason, PluginChange, StateHandover};
use conjure_skill_sdk::protocol::CatalogRequest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::attached_backend::{AttachedBackend, BackendKind};
use super::backend_attacher::BackendAttacher;
use super::backend_catalog::BackendCatalog;
use super::backend_changes::BackendChange;
use super::backend_lease::BackendLease;
use super::removed_skills::retain_lease;
use super::toolbox::Toolbox;
use super::toolbox_error::ToolboxError;
use conjure_config::BackendSpec;
use conjure_plugins::{LoadedPlugin, PluginId};

/// A backend on its way to what it is to be, by its number.
pub(crate) type BackendTransition = (u64, BoxFuture<'static, TransitionOutcome>);

/// A backend that is ready to be what it is to be, or cannot be.
pub(crate) struct TransitionOutcome {
    pub(crate) number: u64,
    backend: String,
    spec: BackendSpec,
    plugin: Arc<LoadedPlugin>,
    /// Provider and model that the catalog is for.
    catalog_request: CatalogRequest,
    outcome: Result<BackendKind, ToolboxError>,
}

/// What is on its way, and what is left of earlier ones.
#[derive(Default)]
pub(super) struct BackendTransitions {
    /// The transition that each backend waits for; an answer to another one is too late.
    pending: HashMap<String, PendingTransition>,
    number: u64,
    /// One transition of a backend at a time, so that the last one wins.
    gates: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    /// Plugins that could not be made ready for a backend: they are not tried again.
    refused: HashMap<String, Weak<LoadedPlugin>>,
    /// What has been replaced and may still be in use.
    replaced: Vec<Weak<BackendLease>>,
    /// Backends whose plugins are gone, by name, for when these come back.
    removed: HashMap<String, RemovedBackend>,
    /// Plugins that are there in another version, until somebody is told.
    changes: Vec<PluginChange>,
}

/// A transition that is waited for; without it nobody waits, and it ends.
struct PendingTransition {
    number: u64,
    plugin: Arc<LoadedPlugin>,
    _cancel_guard: DropGuard,
}

/// What a backend had of a plugin that is gone.
struct RemovedBackend {
    /// The version that served the session.
    plugin: PluginId,
    /// There for as long as a step has it, and as long as that of a native skill that is gone.
    lease: Weak<BackendLease>,
    /// Without it nobody keeps the lease any more.
    _retention: Option<DropGuard>,
}

impl BackendTransitions {
    /// What has been replaced and is still in use.
    pub(super) fn take_replaced(&mut self) -> Vec<Arc<BackendLease>> {
        let replaced = std::mem::take(&mut self.replaced);
        replaced.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether another one is being made ready for a backend.
    pub(super) fn is_pending(&self, backend: &str) -> bool {
        self.pending.contains_key(backend)
    }

    pub(super) fn take_changes(&mut self) -> Vec<PluginChange> {
        std::mem::take(&mut self.changes)
    }

    fn retire(&mut self, lease: &Arc<BackendLease>) {
        self.replaced.retain(|known| known.strong_count() > 0);
        self.replaced.push(Arc::downgrade(lease));
    }

    fn has_refused(&self, backend: &str, plugin: &Arc<LoadedPlugin>) -> bool {
        let refused = self.refused.get(backend);
        refused.is_some_and(|refused| refused.as_ptr() == Arc::as_ptr(plugin))
    }
}

impl Toolbox {
    /// What is to be done since plugins came or went: a backend moves to the newest version of its
    /// plugin, and offers nothing where there is none any more.
    pub(crate) fn follow_plugins(&mut self) -> Vec<BackendTransition> {
        let attaching = self.attacher();
        let mut transitions = Vec::new();
        for at in 0..self.attached.len() {
            let Some(attached) = self.attached.get(at) else {
                continue;
            };
            if matches!(attached.kind, BackendKind::Native) {
                continue;
            }
            let spec = attached.spec.clone();
            match attaching.plugin(&spec) {
                Ok(plugin) => transitions.extend(self.follow_plugin(at, spec, plugin)),
                Err(gone) => self.mark_missing(at, &gone),
            }
        }
        transitions
    }

    fn follow_plugin(
        &mut self,
        at: usize,
        spec: BackendSpec,
        plugin: Arc<LoadedPlugin>,
    ) -> Option<BackendTransition> {
        let attached = self.attached.get(at)?;
        let name = attached.name.clone();
        // The same library that was loaded again is of use only where it was given up on, or runs
        // elsewhere now.
        let is_there = attached.is_built_from(&spec)
            && attached.kind.lease().is_some_and(|lease| {
                let serves = lease.serving_plugin();
                is_same(&lease.plugin, &plugin) && serves.health().quarantined.is_none()
            });
        if is_there {
            // Where another version was on its way, nobody waits for that any more.
            self.transitions.pending.remove(&name);
            return None;
        }
        let comes = self.transitions.pending.get(&name);
        let goes_on = comes.is_some_and(|comes| is_same(&comes.plugin, &plugin));
        if goes_on || self.transitions.has_refused(&name, &plugin) {
            return None;
        }
        Some(self.begin(spec, plugin))
    }

    /// The plugin of a backend is gone.
    fn mark_missing(&mut self, at: usize, gone: &ToolboxError) {
        let Some(attached) = self.attached.get_mut(at) else {
            return;
        };
        self.transitions.pending.remove(&attached.name);
        self.transitions.refused.remove(&attached.name);
        if let Some(lease) = attached.kind.lease() {
            self.transitions.retire(lease);
            let gone = RemovedBackend {
                plugin: lease.serving_plugin().id().clone(),
                lease: Arc::downgrade(lease),
                _retention: retain_lease(lease),
            };
            self.transitions.removed.insert(attached.name.clone(), gone);
        }
        match &mut attached.kind {
            // It is so since it was.
            BackendKind::Missing { reason, .. } => *reason = gone.to_string(),
            kind => *kind = BackendKind::missing(gone.to_string()),
        }
    }

    /// The session is to have these backends from here on. Gives back what is to be done for that;
    /// what it is not to have any more is gone at once. The reasons are for a person.
    pub(crate) fn set_backends(
        &mut self,
        specs: &[BackendSpec],
    ) -> (Vec<BackendTransition>, Vec<NoticeReason>) {
        let attaching = self.attacher();
        let (mut transitions, mut said) = (Vec::new(), Vec::new());
        let mut before: Vec<AttachedBackend> = std::mem::take(&mut self.attached);
        for spec in specs {
            let known = before
                .iter()
                .position(|known| known.name == spec.instance());
            let attached = match known.map(|known| before.remove(known)) {
                Some(known) if known.spec.kind == spec.kind => known,
                other => {
                    other.iter().for_each(|other| self.detach(other));
                    AttachedBackend::missing(spec)
                }
            };
            let is_there = !matches!(attached.kind, BackendKind::Missing { .. });
            let is_as_it_was = is_there && attached.is_built_from(spec);
            let at = self.attached.len();
            self.attached.push(AttachedBackend {
                spec: spec.clone(),
                ..attached
            });
            if spec.is_native() {
                let missing = self.check_native(spec).err();
                said.extend(missing.map(|missing| not_loaded(spec, &missing)));
                continue;
            }
            self.transitions.refused.remove(spec.instance());
            if is_as_it_was {
                self.transitions.pending.remove(spec.instance());
                continue;
            }
            match attaching.plugin(spec) {
                Ok(plugin) => transitions.push(self.begin(spec.clone(), plugin)),
                Err(error) => {
                    said.push(not_loaded(spec, &error));
                    self.mark_missing(at, &error);
                }
            }
        }
        before.iter().for_each(|gone| self.detach(gone));
        (transitions, said)
    }

    /// The session is not to have this backend any more.
    fn detach(&mut self, gone: &AttachedBackend) {
        self.transitions.pending.remove(&gone.name);
        self.transitions.refused.remove(&gone.name);
        self.transitions.removed.remove(&gone.name);
        self.states.remove(&gone.name);
        if let Some(lease) = gone.kind.lease() {
            self.transitions.retire(lease);
        }
    }

    /// What a backend wants to find again when it is opened anew.
    pub(crate) fn keep_state(&mut self, backend: &str, state: &Value) {
        self.states.insert(backend.to_owned(), state.clone());
    }

    fn begin(&mut self, spec: BackendSpec, plugin: Arc<LoadedPlugin>) -> BackendTransition {
        let backend = spec.instance().to_owned();
        self.transitions.number += 1;
        let number = self.transitions.number;
        let unwanted = CancellationToken::new();
        // In the place of one that is under way, which ends.
        let pending = PendingTransition {
            number,
            plugin: Arc::clone(&plugin),
            _cancel_guard: unwanted.clone().drop_guard(),
        };
        self.transitions.pending.insert(backend.clone(), pending);
        let attaching: BackendAttacher = self.attacher();
        let state = self.states.get(&backend).cloned();
        let attached = self.attached.iter().find(|known| known.name == backend);
        let same = attached.and_then(|attached| reopenable(attached, &plugin));
        let gate = self.transitions.gates.entry(backend.clone());
        let gate = Arc::clone(gate.or_default());
        let moving = async move {
            let made = async {
                let _alone = gate.lock().await;
                match same {
                    Some((lease, catalog)) => attaching.reopen(&spec, lease, catalog, state).await,
                    None => {
                        let plugin = Arc::clone(&plugin);
                        attaching.attach_with_timeout(&spec, plugin, state).await
                    }
                }
            };
            let outcome = tokio::select! {
                biased;
                () = unwanted.cancelled() => Err(superseded(&backend)),
                outcome = made => outcome,
            };
            TransitionOutcome {
                number,
                catalog_request: attaching.catalog_request.clone(),
                backend,
                spec,
                plugin,
                outcome,
            }
        };
        (number, moving.boxed())
    }

    /// A backend is what it is to be from the next snapshot on, or stays what it was. The
    /// reason is for a person.
    pub(crate) fn finish_transition(
        &mut self,
        finished: TransitionOutcome,
    ) -> Option<NoticeReason> {
        let TransitionOutcome {
            number,
            backend,
            spec,
            plugin,
            catalog_request: whom,
            outcome,
        } = finished;
        let awaited = self.transitions.pending.get(&backend);
        if awaited.is_none_or(|awaited| awaited.number != number) {
            // Dropping what nobody waits for ends it.
            return None;
        }
        self.transitions.pending.remove(&backend);
        let attached = self
            .attached
            .iter_mut()
            .find(|attached| attached.name == backend)?;
        let kind = match outcome {
            Ok(kind) => kind,
            Err(error) => {
                let refused = Arc::downgrade(&plugin);
                self.transitions.refused.insert(backend.clone(), refused);
                let error = error.to_string();
                if let BackendKind::Missing { reason, .. } = &mut attached.kind {
                    reason.clone_from(&error);
                }
                return Some(match attached.kind.lease() {
                    Some(lease) => NoticeReason::BackendKept {
                        backend,
                        plugin: lease.serving_plugin().id().to_string(),
                        refused: plugin.id().to_string(),
                        error,
                    },
                    None => NoticeReason::NotReady { backend, error },
                });
            }
        };
        let (old, new) = (attached.kind.lease().cloned(), kind.lease().cloned());
        attached.kind = kind;
        attached.active_spec = spec;
        attached.transition_number = number;
        if self.catalog_request.provider != whom.provider {
            // The session talks to another provider by now, where it may offer something else.
            let backend = backend.clone();
            self.changes.push(BackendChange::Catalog { backend });
        }
        let gone = self.transitions.removed.remove(&backend);
        let new = new?;
        let still_there = || gone.as_ref().and_then(|gone| gone.lease.upgrade());
        let (old, mut state) = match old.or_else(still_there) {
            Some(old) if Arc::ptr_eq(&old, &new) => return None,
            Some(old) => {
                // The version that served, which may be an earlier one than that of its lease.
                let served = old.serving_plugin().id().clone();
                let state = new.replace_lease(&old);
                self.transitions.retire(&old);
                (served, state)
            }
            None => (gone?.plugin, StateHandover::Lost),
        };
        if state == StateHandover::Lost && self.states.contains_key(&backend) {
            state = StateHandover::Carried;
        }
        let new = new.plugin.id();
        if old == *new && state != StateHandover::Lost {
            return Some(NoticeReason::BackendRenewed { backend });
        }
        // Of the very build it is told only where something is lost with it.
        self.transitions.changes.push(PluginChange {
            plugin: new.name.to_string(),
            from: old.version.to_string(),
            to: new.version.to_string(),
            state,
        });
        None
    }
}

/// What a person is told of a plugin that the settings name and that is not loaded.
fn not_loaded(spec: &BackendSpec, error: &ToolboxError) -> NoticeReason {
    NoticeReason::NotLoaded {
        backend: spec.instance().to_owned(),
        error: error.to_string(),
    }
}

/// Whether it is the very build, and runs where the other one does.
fn is_same(one: &LoadedPlugin, other: &LoadedPlugin) -> bool {
    one.id() == other.id() && one.isolation() == other.isolation()
}

/// What a plugin says that can take other options for a session that is open.
const REOPENS: &str = "backend.reopen/1";

/// What the session has of a backend that can take other options over.
fn reopenable(
    attached: &AttachedBackend,
    plugin: &LoadedPlugin,
) -> Option<(Arc<BackendLease>, BackendCatalog)> {
    let BackendKind::Backend { lease, catalog } = &attached.kind else {
        return None;
    };
    let is_well = lease.serving_plugin().health().quarantined.is_none();
    let is_same = lease.plugin.id() == plugin.id() && lease.plugin.manifest().has(REOPENS);
    (is_well && is_same).then(|| (Arc::clone(lease), catalog.clone()))
}

/// Nobody is told: the answer is too late.
fn superseded(backend: &str) -> ToolboxError {
    ToolboxError::NotReady {
        backend: backend.to_owned(),
        reason: "it is to be something else by now".to_owned(),
    }
}

impl AttachedBackend {
    /// A backend that is to be attached.
    fn missing(spec: &BackendSpec) -> Self {
        let kind = if spec.is_native() {
            BackendKind::Native
        } else {
            BackendKind::missing("it is being made ready")
        };
        Self::new(spec, kind)
    }

    /// Whether it is what an instance and a session for these settings would be.
    fn is_built_from(&self, spec: &BackendSpec) -> bool {
        self.active_spec.config == spec.config && self.active_spec.skills == spec.skills
    }
}
