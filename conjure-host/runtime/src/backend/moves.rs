//! How the backends of a session that runs become others: another version of a plugin, a plugin that
//! came or went, a backend that the session is to have or not to have any more.
//!
//! What is new is made ready beside the session, which goes on with what it has. Once it is ready it
//! is in the next snapshot, and what it replaces is closed when nothing holds it any more. One that
//! cannot be made ready changes nothing for those beside it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use conjure_core::log::{PluginChange, StateHandover};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::attaching::Attaching;
use super::backend_lease::BackendLease;
use super::toolbox::{Attached, BackendKind, Toolbox};
use super::toolbox_error::ToolboxError;
use conjure_config::BackendSpec;
use conjure_plugins::{LoadedPlugin, PluginId};

/// A backend on its way to what it is to be.
pub(crate) type Move = BoxFuture<'static, Moved>;

/// A backend that is ready to be what it is to be, or cannot be.
pub(crate) struct Moved {
    backend: String,
    number: u64,
    plugin: PluginId,
    outcome: Result<BackendKind, ToolboxError>,
}

/// What is on its way, and what is left of moves.
#[derive(Default)]
pub(super) struct Moves {
    /// The move that each backend waits for; an answer to another one is too late.
    under_way: HashMap<String, UnderWay>,
    number: u64,
    /// One move of a backend at a time, so that the last one wins.
    one_at_a_time: HashMap<String, Arc<Turn>>,
    /// Plugins that could not be made ready for a backend: they are not tried again.
    refused: HashMap<String, PluginId>,
    /// What has been replaced and may still be in use.
    replaced: Vec<Weak<BackendLease>>,
    /// Plugins that are there in another version, until somebody is told.
    changes: Vec<PluginChange>,
}

struct UnderWay {
    number: u64,
    plugin: PluginId,
}

/// Whose turn it is among the moves of a backend.
#[derive(Default)]
struct Turn {
    held: tokio::sync::Mutex<()>,
    newest: AtomicU64,
}

impl Moves {
    /// What has been replaced and is still in use.
    pub(super) fn replaced(&mut self) -> Vec<Arc<BackendLease>> {
        let replaced = std::mem::take(&mut self.replaced);
        replaced.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn take_changes(&mut self) -> Vec<PluginChange> {
        std::mem::take(&mut self.changes)
    }

    fn replace(&mut self, lease: &Arc<BackendLease>) {
        self.replaced.retain(|known| known.strong_count() > 0);
        self.replaced.push(Arc::downgrade(lease));
    }
}

impl Toolbox {
    /// What is to be done since plugins came or went: a backend moves to the newest version of its
    /// plugin, and offers nothing where there is none any more.
    pub(crate) fn follow_plugins(&mut self) -> Vec<Move> {
        let attaching = self.attaching();
        let mut moves = Vec::new();
        for at in 0..self.attached.len() {
            let Some(attached) = self.attached.get(at) else {
                continue;
            };
            if matches!(attached.kind, BackendKind::Native) {
                continue;
            }
            let spec = attached.spec.clone();
            match attaching.plugin(&spec) {
                Ok(plugin) => moves.extend(self.follow_plugin(at, spec, plugin)),
                Err(gone) => self.take_away(at, &gone),
            }
        }
        moves
    }

    fn follow_plugin(
        &mut self,
        at: usize,
        spec: BackendSpec,
        plugin: Arc<LoadedPlugin>,
    ) -> Option<Move> {
        let attached = self.attached.get(at)?;
        let (name, id) = (attached.name.clone(), plugin.id().clone());
        let newest = self.moves.under_way.get(&name);
        let comes = newest.is_some_and(|under_way| under_way.plugin == id);
        let has = attached.kind.lease();
        let is_there = newest.is_none() && has.is_some_and(|lease| *lease.plugin.id() == id);
        let was_refused = self.moves.refused.get(&name) == Some(&id);
        if comes || is_there || was_refused {
            return None;
        }
        Some(self.begin(spec, plugin))
    }

    /// The plugin of a backend is gone.
    fn take_away(&mut self, at: usize, gone: &ToolboxError) {
        let Some(attached) = self.attached.get_mut(at) else {
            return;
        };
        self.moves.under_way.remove(&attached.name);
        self.moves.refused.remove(&attached.name);
        if let Some(lease) = attached.kind.lease() {
            self.moves.replace(lease);
        }
        attached.kind = BackendKind::Missing {
            reason: gone.to_string(),
        };
    }

    /// The session is to have these backends from here on. Gives back what is to be done for that;
    /// what it is not to have any more is gone at once. The words are for a person.
    pub(crate) fn set_backends(&mut self, specs: &[BackendSpec]) -> (Vec<Move>, Vec<String>) {
        let attaching = self.attaching();
        let (mut moves, mut said) = (Vec::new(), Vec::new());
        let mut before: Vec<Attached> = std::mem::take(&mut self.attached);
        for spec in specs {
            let known = before
                .iter()
                .position(|known| known.name == spec.instance());
            let (attached, is_as_it_was) = match known.map(|known| before.remove(known)) {
                Some(known) if known.spec.kind == spec.kind => {
                    let is_there = !matches!(known.kind, BackendKind::Missing { .. });
                    let is_same =
                        known.spec.config == spec.config && known.spec.skills == spec.skills;
                    (known, is_there && is_same)
                }
                other => {
                    other.iter().for_each(|other| self.let_go(other));
                    (Attached::missing(spec), false)
                }
            };
            self.attached.push(Attached {
                spec: spec.clone(),
                ..attached
            });
            if spec.is_native() {
                let missing = self.check_native(spec).err();
                said.extend(missing.map(|missing| missing.to_string()));
                continue;
            }
            if is_as_it_was {
                continue;
            }
            self.moves.refused.remove(spec.instance());
            match attaching.plugin(spec) {
                Ok(plugin) => moves.push(self.begin(spec.clone(), plugin)),
                Err(error) => {
                    said.push(error.to_string());
                    let at = self.attached.len().saturating_sub(1);
                    self.take_away(at, &error);
                }
            }
        }
        before.iter().for_each(|gone| self.let_go(gone));
        (moves, said)
    }

    /// The session is not to have this backend any more.
    fn let_go(&mut self, gone: &Attached) {
        self.moves.under_way.remove(&gone.name);
        self.moves.refused.remove(&gone.name);
        if let Some(lease) = gone.kind.lease() {
            self.moves.replace(lease);
        }
    }

    /// What a backend wants to find again when it is opened anew.
    pub(crate) fn keep_state(&mut self, backend: &str, state: &Value) {
        self.states.insert(backend.to_owned(), state.clone());
    }

    fn begin(&mut self, spec: BackendSpec, plugin: Arc<LoadedPlugin>) -> Move {
        let backend = spec.instance().to_owned();
        let id = plugin.id().clone();
        self.moves.number += 1;
        let number = self.moves.number;
        let under_way = UnderWay {
            number,
            plugin: id.clone(),
        };
        self.moves.under_way.insert(backend.clone(), under_way);
        let attaching: Attaching = self.attaching();
        let state = self.states.get(&backend).cloned();
        let attached = self.attached.iter().find(|known| known.name == backend);
        let lease = attached.and_then(|attached| attached.kind.lease().cloned());
        let reopens = |lease: &Arc<BackendLease>| {
            *lease.plugin.id() == id && lease.plugin.manifest().has(REOPENS)
        };
        let same = lease.filter(reopens);
        let turn = self.moves.one_at_a_time.entry(backend.clone());
        let turn = Arc::clone(turn.or_default());
        turn.newest.store(number, Ordering::Relaxed);
        async move {
            let _held = turn.held.lock().await;
            let outcome = match same {
                _ if turn.newest.load(Ordering::Relaxed) != number => Err(overtaken(&backend)),
                Some(lease) => attaching.reopen(&spec, lease).await,
                None => attaching.attach_in_time(&spec, plugin, state).await,
            };
            Moved {
                backend,
                number,
                plugin: id,
                outcome,
            }
        }
        .boxed()
    }

    /// A backend is what it is to be from the next snapshot on, or stays what it was. The words are
    /// for a person.
    pub(crate) fn moved(&mut self, moved: Moved) -> Option<String> {
        let Moved {
            backend,
            number,
            plugin,
            outcome,
        } = moved;
        let awaited = self.moves.under_way.get(&backend);
        if awaited.is_none_or(|awaited| awaited.number != number) {
            // Dropping what nobody waits for ends it.
            return None;
        }
        self.moves.under_way.remove(&backend);
        let attached = self
            .attached
            .iter_mut()
            .find(|attached| attached.name == backend)?;
        let kind = match outcome {
            Ok(kind) => kind,
            Err(error) => {
                self.moves.refused.insert(backend.clone(), plugin.clone());
                let text = match attached.kind.lease() {
                    Some(lease) => format!(
                        "The backend `{backend}` stays as it was, with {}: {plugin} could not be \
                         made ready for it: {error}",
                        lease.plugin.id()
                    ),
                    None => format!("There are no tools of the backend `{backend}`: {error}"),
                };
                if let BackendKind::Missing { reason } = &mut attached.kind {
                    *reason = error.to_string();
                }
                return Some(text);
            }
        };
        let (old, new) = (attached.kind.lease().cloned(), kind.lease().cloned());
        attached.kind = kind;
        let (Some(old), Some(new)) = (old, new) else {
            return None;
        };
        if Arc::ptr_eq(&old, &new) {
            return None;
        }
        let had_state = self.states.contains_key(&backend);
        let mut state = new.replaces(&old);
        if state == StateHandover::Lost && had_state {
            state = StateHandover::Carried;
        }
        self.moves.replace(&old);
        let (old, new) = (old.plugin.id(), new.plugin.id());
        if old == new {
            return Some(match state {
                StateHandover::Carried => {
                    format!("The backend `{backend}` has other settings now.")
                }
                StateHandover::None | StateHandover::Lost => format!(
                    "The backend `{backend}` has other settings now and began anew: what it held \
                     for this session is lost."
                ),
            });
        }
        self.moves.changes.push(PluginChange {
            plugin: new.name.to_string(),
            from: old.version.to_string(),
            to: new.version.to_string(),
            state,
        });
        None
    }
}

/// Nobody is told: the answer is too late.
fn overtaken(backend: &str) -> ToolboxError {
    ToolboxError::NotReady {
        backend: backend.to_owned(),
        reason: "it is to be something else by now".to_owned(),
    }
}

/// What a plugin says that can take other options for a session that is open.
const REOPENS: &str = "backend.reopen/1";

impl Attached {
    /// A backend that is to be attached.
    fn missing(spec: &BackendSpec) -> Self {
        let kind = if spec.is_native() {
            BackendKind::Native
        } else {
            BackendKind::Missing {
                reason: "it is being made ready".to_owned(),
            }
        };
        Self {
            name: spec.instance().to_owned(),
            spec: spec.clone(),
            kind,
        }
    }
}
