//! All plugins of a host.
//!
//! Readers take a snapshot that never changes; writers make a new one. A version that is replaced
//! or removed stays for whoever holds it. A plugin that fails is listed with its reason and takes
//! nothing else down, and a reload that fails keeps what was loaded.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::access::FileAccess;
use super::loaded::{LINKED, LoadedPlugin};
use super::parallel_load::load_in_parallel;
use super::{FileStamp, FoundLibrary, Loader, PluginError, PluginId};

/// Changes that a snapshot remembers.
const CHANGES: usize = 64;

/// The plugins of a host.
pub struct PluginRegistry {
    loader: Loader,
    current: ArcSwap<PluginSnapshot>,
    /// Held by whoever makes a new snapshot; never while a library is loaded.
    writing: Mutex<()>,
    /// One load of a path at a time, so that the last one wins.
    paths: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
    generation: watch::Sender<u64>,
}

/// The plugins of a host at one moment.
#[derive(Debug, Clone, Default)]
pub struct PluginSnapshot {
    /// Grows with every change.
    pub generation: u64,
    plugins: Vec<Arc<LoadedPlugin>>,
    failed: Vec<FailedPlugin>,
    changes: VecDeque<RegistryChange>,
    /// The generation of the newest change that is not remembered any more.
    forgotten: u64,
}

/// A file that is not loaded, or whose newest contents are not.
#[derive(Debug, Clone)]
pub struct FailedPlugin {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Arc<PluginError>,
    /// What was loaded from this path before and is still used.
    pub kept: Option<PluginId>,
    state: Option<PathState>,
}

/// What was at a path, and who might read and write it.
#[derive(Debug, Clone)]
pub(super) struct PathState {
    stamp: FileStamp,
    access: FileAccess,
}

impl PathState {
    /// What is there now; nothing where nothing is.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(Self {
            stamp: FileStamp::of(path)?,
            access: FileAccess::of(path),
        })
    }
}

/// Something that happened to the plugins.
#[derive(Debug, Clone)]
pub struct RegistryChange {
    /// The generation that it led to.
    pub generation: u64,
    /// What happened.
    pub what: RegistryEvent,
}

/// What happened to a plugin.
#[derive(Debug, Clone)]
pub enum RegistryEvent {
    /// It is new.
    Added(PluginId),
    /// Another one took its place.
    Replaced {
        /// What was there.
        old: PluginId,
        /// What is there now.
        new: PluginId,
    },
    /// The very build is well again: its file is what it was, or it was given up on and is not any
    /// more.
    Reloaded(PluginId),
    /// It is gone; what runs of it ends.
    Removed(PluginId),
    /// A file could not be loaded.
    Failed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Arc<PluginError>,
        /// What stays in use.
        kept: Option<PluginId>,
    },
}

impl fmt::Display for RegistryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(id) => write!(f, "added {id}"),
            Self::Replaced { old, new } => write!(f, "replaced {old} by {new}"),
            Self::Reloaded(id) => write!(f, "loaded {id} again"),
            Self::Removed(id) => write!(f, "removed {id}"),
            Self::Failed {
                reason, kept: None, ..
            } => write!(f, "not loaded: {reason}"),
            Self::Failed {
                reason,
                kept: Some(id),
                ..
            } => write!(f, "{id} stays in use: {reason}"),
        }
    }
}

impl PluginSnapshot {
    /// Every loaded plugin, by name, the highest version first.
    pub fn plugins(&self) -> &[Arc<LoadedPlugin>] {
        &self.plugins
    }

    /// The files that could not be loaded, by path.
    pub fn failed(&self) -> &[FailedPlugin] {
        &self.failed
    }

    /// The highest version of a plugin.
    pub fn get(&self, name: &str) -> Option<&Arc<LoadedPlugin>> {
        self.plugins
            .iter()
            .find(|plugin| &*plugin.id().name == name)
    }

    /// The highest version that fits a requirement.
    pub fn get_matching(
        &self,
        name: &str,
        requirement: &semver::VersionReq,
    ) -> Option<&Arc<LoadedPlugin>> {
        self.plugins
            .iter()
            .find(|p| &*p.id().name == name && requirement.matches(&p.id().version))
    }

    /// Every version of a plugin, the highest first.
    pub fn versions<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<LoadedPlugin>> {
        self.plugins
            .iter()
            .filter(move |plugin| &*plugin.id().name == name)
    }

    /// What happened after a generation, the oldest first; at most the last 64 changes.
    pub fn changes_since(&self, generation: u64) -> impl Iterator<Item = &RegistryChange> {
        self.changes
            .iter()
            .filter(move |change| change.generation > generation)
    }

    /// Whether all that happened after a generation is still remembered.
    pub fn remembers_since(&self, generation: u64) -> bool {
        self.forgotten <= generation
    }

    fn at(&self, path: &Path) -> Option<&Arc<LoadedPlugin>> {
        self.plugins
            .iter()
            .find(|plugin| plugin.source().path() == Some(path))
    }

    fn take(&mut self, path: &Path) -> Option<Arc<LoadedPlugin>> {
        let index = self
            .plugins
            .iter()
            .position(|plugin| plugin.source().path() == Some(path))?;
        Some(self.plugins.remove(index))
    }

    /// Forgets which files failed because of what was at the path, so that they are tried again.
    fn forget_twins(&mut self, path: &Path) {
        self.failed.retain(|failed| {
            !matches!(&*failed.reason, PluginError::Duplicate { other, .. } if other == path)
        });
    }

    fn note(&mut self, what: RegistryEvent) {
        self.changes.push_back(RegistryChange {
            generation: self.generation,
            what,
        });
        while self.changes.len() > CHANGES
            && let Some(change) = self.changes.pop_front()
        {
            self.forgotten = change.generation;
        }
    }
}

impl PluginRegistry {
    /// A registry without plugins.
    pub fn new(loader: Loader) -> Self {
        Self {
            loader,
            current: ArcSwap::default(),
            writing: Mutex::new(()),
            paths: Mutex::default(),
            generation: watch::Sender::new(0),
        }
    }

    /// What loads the libraries.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// The plugins at this moment.
    pub fn snapshot(&self) -> Arc<PluginSnapshot> {
        self.current.load_full()
    }

    /// Tells of every new generation.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Loads files, those that run in workers beside each other, and takes them in their order. What
    /// fails is listed as failed. Blocks.
    pub fn load_all(&self, found: &[FoundLibrary]) {
        let loads = load_in_parallel(&self.loader, found);
        for (FoundLibrary { path, named }, load) in found.iter().zip(loads) {
            // The outcome is in the snapshot and in the log.
            let _ = match load.outcome {
                Some(outcome) => self.take(path, outcome, load.state),
                None => self.add(path, *named),
            };
        }
    }

    /// Loads a file, and puts the plugin in the place of what was loaded from that path before.
    /// Blocks for as long as loading takes.
    ///
    /// # Errors
    /// Why it was not loaded. Then what was loaded from that path before stays in use.
    pub fn add(&self, path: &Path, named: bool) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        let path_lock = Arc::clone(lock(&self.paths).entry(path.to_owned()).or_default());
        let _adding = lock(&path_lock);
        let state = PathState::of(path);
        self.take(path, self.loader.load(path, named), state)
    }

    /// Takes what came of loading a file.
    fn take(
        &self,
        path: &Path,
        loaded: Result<LoadedPlugin, PluginError>,
        state: Option<PathState>,
    ) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        // That it failed is noted in the same step: what it is a duplicate of may be removed meanwhile.
        let writing = lock(&self.writing);
        let outcome = loaded
            .map_err(Arc::new)
            .and_then(|plugin| self.publish(&writing, Arc::new(plugin)));
        if let Err(reason) = &outcome {
            self.fail(&writing, path, reason, state);
        }
        outcome
    }

    /// Adds a plugin that is linked into the host.
    ///
    /// # Errors
    /// [`PluginError::Duplicate`] when there is one of that name and version, and
    /// [`PluginError::Requires`] when this host lacks what it needs.
    pub fn add_linked(&self, plugin: LoadedPlugin) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        self.loader
            .serves(Path::new(LINKED), plugin.manifest())
            .map_err(Arc::new)?;
        self.publish(&lock(&self.writing), Arc::new(plugin))
    }

    /// Loads again what is at the path of a plugin now, also when it was refused before.
    ///
    /// # Errors
    /// As [`PluginRegistry::add`]; nothing when there is no such plugin with a file.
    pub fn reload(&self, name: &str) -> Option<Result<Arc<LoadedPlugin>, Arc<PluginError>>> {
        let snapshot = self.snapshot();
        let plugin = snapshot.get(name)?;
        let path = plugin.source().path()?;
        let named = *plugin.source().pin() == super::Pin::Named;
        self.loader.forget_hang(path);
        Some(self.add(path, named))
    }

    /// Forgets what was loaded from a path. No instance of it is made from now on; those that
    /// live go on, and their calls end.
    pub fn remove(&self, path: &Path) -> Option<Arc<LoadedPlugin>> {
        let _writing = lock(&self.writing);
        let mut next = self.next();
        let failed = next.failed.len();
        next.failed.retain(|failed| failed.path != path);
        let plugin = next.take(path);
        if plugin.is_none() && next.failed.len() == failed {
            return None;
        }
        next.forget_twins(path);
        if let Some(plugin) = &plugin {
            plugin.remove();
            tracing::info!(target: "plugin", "removed {}", plugin.id());
            next.note(RegistryEvent::Removed(plugin.id().clone()));
        }
        self.set(next);
        plugin
    }

    /// Whether the path holds what was last loaded, or refused, from it.
    pub(super) fn knows(&self, path: &Path, stamp: &FileStamp) -> bool {
        let snapshot = self.current.load();
        let failed = snapshot.failed.iter().find(|failed| failed.path == path);
        if let Some(failed) = failed {
            let known = failed.state.as_ref();
            return known.is_some_and(|known| {
                known.stamp == *stamp && known.access == FileAccess::of(path)
            });
        }
        snapshot.at(path).is_some_and(|plugin| {
            matches!(plugin.source(), super::PluginSource::File { stamp: known, .. } if known == stamp)
        })
    }

    /// The paths below a directory that something is known of.
    pub(super) fn known_paths(&self, dir: &Path) -> Vec<PathBuf> {
        let snapshot = self.current.load();
        let loaded = snapshot.plugins.iter().filter_map(|p| p.source().path());
        let failed = snapshot.failed.iter().map(|failed| failed.path.as_path());
        loaded
            .chain(failed)
            .filter(|path| path.parent() == Some(dir))
            .map(Path::to_owned)
            .collect()
    }

    fn publish(
        &self,
        _writing: &MutexGuard<'_, ()>,
        plugin: Arc<LoadedPlugin>,
    ) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        let mut next = self.next();
        let path = plugin.source().path();
        let old = path.and_then(|path| next.take(path));
        let id = plugin.id();
        let twin = next
            .plugins
            .iter()
            .find(|other| other.id().name == id.name && other.id().version == id.version);
        if let Some(other) = twin {
            return Err(Arc::new(PluginError::Duplicate {
                path: path.unwrap_or(Path::new(LINKED)).to_owned(),
                name: id.name.to_string(),
                version: id.version.to_string(),
                other: other
                    .source()
                    .path()
                    .unwrap_or(Path::new(LINKED))
                    .to_owned(),
            }));
        }
        let had_failed = next.failed.iter().any(|failed| Some(&*failed.path) == path);
        if let Some(path) = path {
            next.failed.retain(|failed| failed.path != path);
            next.forget_twins(path);
        }
        next.plugins.push(Arc::clone(&plugin));
        next.plugins.sort_by(|a, b| {
            let (a, b) = (a.id(), b.id());
            a.name.cmp(&b.name).then_with(|| b.version.cmp(&a.version))
        });
        match old {
            Some(old) if old.id() == id => {
                if had_failed || old.health().quarantined.is_some() {
                    next.note(RegistryEvent::Reloaded(id.clone()));
                }
            }
            Some(old) => next.note(RegistryEvent::Replaced {
                old: old.id().clone(),
                new: id.clone(),
            }),
            None => next.note(RegistryEvent::Added(id.clone())),
        }
        self.set(next);
        Ok(plugin)
    }

    fn fail(
        &self,
        _writing: &MutexGuard<'_, ()>,
        path: &Path,
        reason: &Arc<PluginError>,
        state: Option<PathState>,
    ) {
        let mut next = self.next();
        let kept = next.at(path).map(|plugin| plugin.id().clone());
        match &kept {
            Some(id) => tracing::warn!(target: "plugin", "{id} stays in use: {reason}"),
            None => tracing::warn!(target: "plugin", "not loaded: {reason}"),
        }
        next.failed.retain(|failed| failed.path != path);
        next.failed.push(FailedPlugin {
            path: path.to_owned(),
            reason: Arc::clone(reason),
            kept: kept.clone(),
            state,
        });
        next.failed.sort_by(|a, b| a.path.cmp(&b.path));
        next.note(RegistryEvent::Failed {
            path: path.to_owned(),
            reason: Arc::clone(reason),
            kept,
        });
        self.set(next);
    }

    /// A copy of the snapshot, one generation on.
    fn next(&self) -> PluginSnapshot {
        let mut next = PluginSnapshot::clone(&self.current.load());
        next.generation += 1;
        next
    }

    fn set(&self, next: PluginSnapshot) {
        let generation = next.generation;
        self.current.store(Arc::new(next));
        self.generation.send_replace(generation);
    }
}

impl fmt::Debug for PluginRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry")
            .field(&self.current.load())
            .finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
