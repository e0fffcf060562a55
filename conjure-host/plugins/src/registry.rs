//! All plugins of a host.
//!
//! Readers take a snapshot that never changes; writers make a new one. A version that is replaced
//! or removed stays for whoever holds it. A plugin that fails is listed with its reason and takes
//! nothing else down, and a reload that fails keeps what was loaded.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::access::FileAccess;
use super::loaded::{LINKED_PATH, LoadedPlugin};
use super::parallel_load::load_in_parallel;
use super::{FileStamp, FoundLibrary, IsolationReason, Loader, PluginError, PluginId};

/// Changes that a snapshot remembers.
const MAX_CHANGES: usize = 64;

/// The plugin that a file holds, or why it was not loaded.
type LoadOutcome = Result<Arc<LoadedPlugin>, Arc<PluginError>>;

/// The plugins of a host.
pub struct PluginRegistry {
    loader: Loader,
    current: ArcSwap<PluginSnapshot>,
    /// Held by whoever makes a new snapshot; never while a library is loaded.
    write_lock: Mutex<()>,
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
    forgotten_generation: u64,
}

/// A file that is not loaded, or whose newest contents are not.
#[derive(Debug, Clone)]
pub struct FailedPlugin {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Arc<PluginError>,
    /// What was loaded from this path before and is still used.
    pub still_loaded: Option<PluginId>,
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
    pub event: RegistryEvent,
}

/// What happened to a plugin.
#[derive(Debug, Clone)]
pub enum RegistryEvent {
    /// The plugin is new.
    Added(PluginId),
    /// Another one took its place.
    Replaced {
        /// What was there.
        old: PluginId,
        /// What is there now.
        new: PluginId,
    },
    /// The very build was loaded again, from another file with the same bytes or because somebody
    /// asked for it. One that had failed, or was given up on, is well again.
    Reloaded(PluginId),
    /// The plugin is gone. Steps that have it in their tables end with it.
    Removed(PluginId),
    /// A file could not be loaded.
    Failed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Arc<PluginError>,
        /// What stays in use.
        still_loaded: Option<PluginId>,
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
                reason,
                still_loaded: None,
                ..
            } => write!(f, "not loaded: {reason}"),
            Self::Failed {
                reason,
                still_loaded: Some(id),
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
    pub fn is_complete_since(&self, generation: u64) -> bool {
        self.forgotten_generation <= generation
    }

    fn at(&self, path: &Path) -> Option<&Arc<LoadedPlugin>> {
        self.plugins
            .iter()
            .find(|plugin| plugin.source().path() == Some(path))
    }

    fn remove_at(&mut self, path: &Path) -> Option<Arc<LoadedPlugin>> {
        let index = self
            .plugins
            .iter()
            .position(|plugin| plugin.source().path() == Some(path))?;
        Some(self.plugins.remove(index))
    }

    /// Forgets which files failed because of what was at the path, so that they are tried again.
    fn forget_duplicates(&mut self, path: &Path) {
        self.failed.retain(|failed| {
            !matches!(&*failed.reason, PluginError::Duplicate { other, .. } if other == path)
        });
    }

    fn record(&mut self, what: RegistryEvent) {
        self.changes.push_back(RegistryChange {
            generation: self.generation,
            event: what,
        });
        while self.changes.len() > MAX_CHANGES
            && let Some(change) = self.changes.pop_front()
        {
            self.forgotten_generation = change.generation;
        }
    }
}

impl PluginRegistry {
    /// A registry without plugins.
    pub fn new(loader: Loader) -> Self {
        Self {
            loader,
            current: ArcSwap::default(),
            write_lock: Mutex::new(()),
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
                Some(outcome) => self.accept_load(path, outcome, load.state, false),
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
        let path_lock = self.path_lock(path);
        let _adding = lock(&path_lock);
        self.load_from(path, named, false)
    }

    /// Like [`Self::add`], unless the file there was loaded, or refused, while this call waited for its
    /// turn. The outcome is in the snapshot and in the log.
    pub(super) fn add_if_changed(&self, path: &Path) {
        let path_lock = self.path_lock(path);
        let _adding = lock(&path_lock);
        let is_known = FileStamp::of(path).is_some_and(|stamp| self.is_up_to_date(path, &stamp));
        if !is_known {
            let _ = self.load_from(path, false, false);
        }
    }

    fn path_lock(&self, path: &Path) -> Arc<Mutex<()>> {
        Arc::clone(lock(&self.paths).entry(path.to_owned()).or_default())
    }

    /// Only for whoever has the lock of the path.
    fn load_from(
        &self,
        path: &Path,
        named: bool,
        is_asked: bool,
    ) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        let state = PathState::of(path);
        self.accept_load(path, self.loader.load(path, named), state, is_asked)
    }

    /// Takes what came of loading a file; `is_asked` where somebody wants it loaded again.
    fn accept_load(
        &self,
        path: &Path,
        loaded: Result<LoadedPlugin, PluginError>,
        state: Option<PathState>,
        is_asked: bool,
    ) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        // That it failed is noted in the same step: what it is a duplicate of may be removed meanwhile.
        let writing = lock(&self.write_lock);
        let outcome = loaded
            .map_err(Arc::new)
            .and_then(|plugin| self.publish(&writing, Arc::new(plugin), is_asked));
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
            .check_operations(Path::new(LINKED_PATH), plugin.manifest())
            .map_err(Arc::new)?;
        self.publish(&lock(&self.write_lock), Arc::new(plugin), false)
    }

    /// Loads again what is at the path of a plugin now, also when it was refused before.
    ///
    /// # Errors
    /// As [`PluginRegistry::add`]; nothing when there is no such plugin with a file.
    pub fn reload(&self, name: &str) -> Option<Result<Arc<LoadedPlugin>, Arc<PluginError>>> {
        let Ok(loaded) = self.reload_renewed(name, |_| Ok::<_, Infallible>(()));
        loaded
    }

    /// Like [`Self::reload`], after `renew` was called with the path, which may put the file there anew,
    /// so that other hosts load it as well. Whoever watches for this registry then finds nothing to do.
    ///
    /// # Errors
    /// What `renew` says; then nothing is loaded.
    pub fn reload_renewed<E>(
        &self,
        name: &str,
        renew: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Option<LoadOutcome>, E> {
        let snapshot = self.snapshot();
        let Some(plugin) = snapshot.get(name) else {
            return Ok(None);
        };
        let Some(path) = plugin.source().path() else {
            return Ok(None);
        };
        let named = *plugin.source().pin() == super::Pin::Named;
        self.loader.forget_hang(path);
        let path_lock = self.path_lock(path);
        let _adding = lock(&path_lock);
        renew(path)?;
        Ok(Some(self.load_from(path, named, true)))
    }

    /// Forgets what was loaded from a path: nobody finds it from now on. Whoever has it goes on with
    /// it, and a step whose table has it makes an instance yet ([`LoadedPlugin::create_even_if_removed`]).
    pub fn remove(&self, path: &Path) -> Option<Arc<LoadedPlugin>> {
        let _writing = lock(&self.write_lock);
        let mut next = self.next_snapshot();
        let failed = next.failed.len();
        next.failed.retain(|failed| failed.path != path);
        let plugin = next.remove_at(path);
        if plugin.is_none() && next.failed.len() == failed {
            return None;
        }
        next.forget_duplicates(path);
        if let Some(plugin) = &plugin {
            plugin.remove();
            tracing::info!(target: "plugin", "removed {}", plugin.id());
            next.record(RegistryEvent::Removed(plugin.id().clone()));
        }
        self.set_snapshot(next);
        plugin
    }

    /// Whether the path holds what was last loaded, or refused, from it.
    pub(super) fn is_up_to_date(&self, path: &Path, stamp: &FileStamp) -> bool {
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
    pub(super) fn registered_paths(&self, dir: &Path) -> Vec<PathBuf> {
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
        is_asked: bool,
    ) -> Result<Arc<LoadedPlugin>, Arc<PluginError>> {
        let mut next = self.next_snapshot();
        let path = plugin.source().path();
        let old = path.and_then(|path| next.remove_at(path));
        let id = plugin.id();
        let twin = next
            .plugins
            .iter()
            .find(|other| other.id().name == id.name && other.id().version == id.version);
        if let Some(other) = twin {
            return Err(Arc::new(PluginError::Duplicate {
                path: path.unwrap_or(Path::new(LINKED_PATH)).to_owned(),
                name: id.name.to_string(),
                version: id.version.to_string(),
                other: other
                    .source()
                    .path()
                    .unwrap_or(Path::new(LINKED_PATH))
                    .to_owned(),
            }));
        }
        let had_failed = next.failed.iter().any(|failed| Some(&*failed.path) == path);
        if let Some(path) = path {
            next.failed.retain(|failed| failed.path != path);
            next.forget_duplicates(path);
        }
        next.plugins.push(Arc::clone(&plugin));
        next.plugins.sort_by(|a, b| {
            let (a, b) = (a.id(), b.id());
            a.name.cmp(&b.name).then_with(|| b.version.cmp(&a.version))
        });
        let event = match &old {
            Some(old) if old.id() == id => {
                let is_again = is_asked
                    || had_failed
                    || old.health().quarantined.is_some()
                    || old.source().stamp() != plugin.source().stamp();
                is_again.then(|| RegistryEvent::Reloaded(id.clone()))
            }
            Some(old) => Some(RegistryEvent::Replaced {
                old: old.id().clone(),
                new: id.clone(),
            }),
            None => Some(RegistryEvent::Added(id.clone())),
        };
        if let Some(event) = event {
            let fate = old.as_deref().map(|old| change_words(old, &plugin));
            tracing::info!(target: "plugin", "{event}{}", fate.unwrap_or_default());
            if plugin.isolation_reason() == IsolationReason::NoWorkers {
                tracing::warn!(
                    target: "plugin",
                    "{id} runs in this process, and what ends it ends the host: the host has no workers \
                     (`Host::builder().workers(…)` gives it some)"
                );
            }
            next.record(event);
        }
        self.set_snapshot(next);
        Ok(plugin)
    }

    fn fail(
        &self,
        _writing: &MutexGuard<'_, ()>,
        path: &Path,
        reason: &Arc<PluginError>,
        state: Option<PathState>,
    ) {
        let mut next = self.next_snapshot();
        let kept = next.at(path).map(|plugin| plugin.id().clone());
        match &kept {
            Some(id) => tracing::warn!(target: "plugin", "{id} stays in use: {reason}"),
            None => tracing::warn!(target: "plugin", "not loaded: {reason}"),
        }
        next.failed.retain(|failed| failed.path != path);
        next.failed.push(FailedPlugin {
            path: path.to_owned(),
            reason: Arc::clone(reason),
            still_loaded: kept.clone(),
            state,
        });
        next.failed.sort_by(|a, b| a.path.cmp(&b.path));
        next.record(RegistryEvent::Failed {
            path: path.to_owned(),
            reason: Arc::clone(reason),
            still_loaded: kept,
        });
        self.set_snapshot(next);
    }

    /// A copy of the snapshot, one generation on.
    fn next_snapshot(&self) -> PluginSnapshot {
        let mut next = PluginSnapshot::clone(&self.current.load());
        next.generation += 1;
        next
    }

    fn set_snapshot(&self, next: PluginSnapshot) {
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

/// What the log says of a plugin in the place of another one: a downgrade, and what becomes of what
/// sessions hold in it.
fn change_words(old: &LoadedPlugin, new: &LoadedPlugin) -> String {
    let step = match new.id().version < old.id().version {
        true => ", a downgrade",
        false => "",
    };
    // What a session has of the very build is of no less use, unless it was given up on.
    let goes_on = old.id() == new.id()
        && old.isolation() == new.isolation()
        && old.health().quarantined.is_none();
    if goes_on && new.manifest().kind != "skill" {
        return "; open sessions go on with what they have".to_owned();
    }
    let hands_on = old.manifest().has("state.export/1") && new.manifest().has("state.import/1");
    let state = match hands_on {
        true => "its state moves with the next call of each session",
        false => "it hands no state over",
    };
    format!("{step}; {state}")
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Open, ToolResult};
    use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Error, Skill};

    use super::super::PluginLimits;
    use super::*;

    #[test]
    fn the_log_says_a_downgrade_and_what_becomes_of_state() {
        let plugin = |version: &str| {
            let make = || Skill::new("notes", "Keeps notes");
            LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap()
        };
        let (old, new) = (plugin("1.9.0"), plugin("1.10.0"));
        assert_eq!(change_words(&old, &new), "; it hands no state over");
        assert_eq!(
            change_words(&new, &old),
            ", a downgrade; it hands no state over"
        );
        assert_eq!(change_words(&old, &old), "; it hands no state over");
    }

    struct Uncalled;

    impl Backend for Uncalled {
        async fn open(&self, _cx: Cx, _request: Open) -> conjure_skill_sdk::Result<()> {
            Ok(())
        }

        async fn catalog(&self, _cx: Cx) -> conjure_skill_sdk::Result<CatalogReply> {
            Ok(CatalogReply::default())
        }

        async fn call(&self, _cx: Cx, _: BackendCall) -> conjure_skill_sdk::Result<ToolResult> {
            Err(Error::new("there is no tool"))
        }

        async fn close(&self, _cx: Cx) -> conjure_skill_sdk::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn of_a_backend_that_is_loaded_again_the_log_says_that_sessions_go_on() {
        let plugin = |version: &str| {
            let make = || BackendPlugin::new("plain", "Offers nothing", |_setup| Ok(Uncalled));
            LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap()
        };
        let (old, new) = (plugin("1.0.0"), plugin("2.0.0"));
        let words = change_words(&old, &old);
        assert_eq!(words, "; open sessions go on with what they have");
        assert_eq!(change_words(&old, &new), "; it hands no state over");
    }
}
