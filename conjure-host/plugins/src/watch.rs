//! Hot-add: keeps a registry up to date with the plugin directories.
//!
//! What counts is what is in the directories; events of the system only say when to look. A file
//! is loaded when it is complete: its structure is whole, and either it was renamed into place or
//! closed after writing, or it has stopped changing. A file that is gone is removed. Where the
//! system gives no events, the directories are looked at once a second. Files are loaded beside each
//! other, so one that hangs holds up no other; what becomes of one file is done in order. The system's
//! events are of a directory and not of its path, so every two seconds it is compared whether another
//! one is at the path.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use conjure_config::fs;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;

use super::find::{is_library_name, libraries};
use super::parallel_load::MAX_LOADS;
use super::program;
use super::{FileStamp, PluginFile, PluginRegistry};

/// What is loaded for longer leaves its place among those that are loaded at the same time to others.
const SLOT_TIME: Duration = Duration::from_secs(1);
/// Files that are being loaded at the most, with those that have left their places.
const MAX_ALL_LOADS: usize = 8 * MAX_LOADS;
/// How often it is compared whether another directory is at a path. Nobody tells where a link leads
/// elsewhere, or where a directory above is another one.
const COMPARE_INTERVAL: Duration = Duration::from_secs(2);

/// How the directories are watched.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// A file that has not changed for so long, and is whole, is complete; 150 ms.
    pub settle: Duration,
    /// How often a directory without events is looked at; 1 s.
    pub poll: Duration,
    /// A file that is not whole is waited for so long before it counts as failed; 10 s.
    pub incomplete_timeout: Duration,
    /// Whether to use the system's events; true. Without, every directory is polled.
    pub events: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(150),
            poll: Duration::from_secs(1),
            incomplete_timeout: Duration::from_secs(10),
            events: true,
        }
    }
}

/// Watches for as long as it lives.
#[derive(Debug)]
pub struct Watcher {
    task: JoinHandle<()>,
    scans: Arc<AtomicU64>,
}

impl Watcher {
    /// Watches directories, some of which may not exist yet; the one that plugins are installed in is
    /// made. What is in them and not in the registry is loaded first. Must be called on a tokio runtime.
    pub fn start(registry: Arc<PluginRegistry>, dirs: Vec<PathBuf>, options: WatchOptions) -> Self {
        make_installed_dir(&registry, &dirs);
        let (sender, events) = mpsc::channel(1024);
        let watcher = options
            .events
            .then(|| {
                notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                    if event
                        .as_ref()
                        .is_ok_and(|event| changes_nothing(event.kind))
                    {
                        return;
                    }
                    // When there is no room the directories are looked at anyway.
                    let _ = sender.try_send(event);
                })
            })
            .and_then(|watcher| match watcher {
                Ok(watcher) => Some(watcher),
                Err(error) => {
                    tracing::warn!("plugin directories are polled: {error}");
                    None
                }
            });
        let looks = Arc::new(AtomicU64::new(0));
        let watch = DirectoryWatch {
            looks: Arc::clone(&looks),
            registry,
            dirs,
            options,
            watcher,
            watched: HashMap::new(),
            pending: HashMap::new(),
            loads: JoinSet::new(),
            loading: HashMap::new(),
        };
        Self {
            task: tokio::spawn(watch.run(events)),
            scans: looks,
        }
    }

    /// How often the directories were looked at so far. It stands still while nothing happens
    /// and every directory has events.
    pub fn scans(&self) -> u64 {
        self.scans.load(Ordering::Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct DirectoryWatch {
    looks: Arc<AtomicU64>,
    registry: Arc<PluginRegistry>,
    dirs: Vec<PathBuf>,
    options: WatchOptions,
    watcher: Option<RecommendedWatcher>,
    /// By path, the directory that is watched.
    watched: HashMap<PathBuf, DirIdentity>,
    pending: HashMap<PathBuf, PendingPath>,
    loads: JoinSet<SettleOutcome>,
    loading: HashMap<Id, LoadingPath>,
}

/// A path that is loaded, or removed, at this moment.
struct LoadingPath {
    path: PathBuf,
    /// What was there when that began.
    stamp: Option<FileStamp>,
    started_at: Instant,
}

impl LoadingPath {
    /// How long it still has its place among those that are loaded at the same time.
    fn slot_left(&self, now: Instant) -> Option<Duration> {
        let left = (self.started_at + SLOT_TIME).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    fn is_removal(&self) -> bool {
        self.stamp.is_none()
    }
}

/// A path that holds something else than the registry knows, or nothing.
struct PendingPath {
    stamp: Option<FileStamp>,
    /// When it was first seen like this.
    unchanged_since: Instant,
    /// When it was first seen at all.
    first_seen: Instant,
    /// Somebody said that it is complete.
    ready: bool,
}

impl DirectoryWatch {
    async fn run(mut self, mut events: mpsc::Receiver<notify::Result<notify::Event>>) {
        let mut ready = HashSet::new();
        loop {
            self.watch_dirs();
            self.scan(&ready);
            ready.clear();
            self.start_due();
            let pause = self.wait_time();
            let sleep = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv(), if self.watcher.is_some() => {
                    match event {
                        Some(event) => {
                            self.forget_deleted(&event);
                            note_complete(event, &mut ready);
                        }
                        None => self.watcher = None,
                    }
                    while let Ok(event) = events.try_recv() {
                        self.forget_deleted(&event);
                        note_complete(event, &mut ready);
                    }
                }
                Some(done) = self.loads.join_next_with_id() => self.finish_load(done),
                () = wait_for_replaced_dir(&self.watched), if !self.watched.is_empty() => {}
                () = sleep => {}
            }
        }
    }

    /// Asks for events of the directories that exist and are not watched yet, and for none of what is
    /// not at its path any more.
    fn watch_dirs(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            self.watched.clear();
            return;
        };
        let gone: HashSet<DirIdentity> = self
            .watched
            .iter()
            .filter(|(dir, identity)| DirIdentity::of(dir) != Some(**identity))
            .map(|(_, identity)| *identity)
            .collect();
        unwatch(watcher, &mut self.watched, &gone);
        let described = self.dirs.iter().flat_map(|dir| described_dirs(dir));
        for dir in self.dirs.iter().cloned().chain(described) {
            // Before it is asked for: of what comes there in between it is seen later that it is another.
            let Some(identity) = DirIdentity::of(&dir) else {
                continue;
            };
            if self.watched.contains_key(&dir) {
                continue;
            }
            match watcher.watch(&dir, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(dir, identity);
                }
                Err(error) => tracing::debug!("{} is polled: {error}", dir.display()),
            }
        }
    }

    /// Forgets the directories that an event says are deleted: also where another one is at the path by now
    /// that cannot be told from it, the system tells nothing of that.
    fn forget_deleted(&mut self, event: &notify::Result<notify::Event>) {
        let (Ok(event), Some(watcher)) = (event, &mut self.watcher) else {
            return;
        };
        if !matches!(event.kind, EventKind::Remove(_)) {
            return;
        }
        let deleted = event.paths.iter().filter_map(|path| self.watched.get(path));
        let deleted: HashSet<DirIdentity> = deleted.copied().collect();
        unwatch(watcher, &mut self.watched, &deleted);
    }

    /// Finds out which paths differ from what the registry knows.
    fn scan(&mut self, ready: &HashSet<PathBuf>) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut differ = HashMap::new();
        for dir in &self.dirs {
            let Ok(present) = libraries(dir) else {
                continue;
            };
            for path in self.registry.registered_paths(dir) {
                if !present.contains(&path) {
                    differ.insert(path, None);
                }
            }
            for path in present {
                if let Some(stamp) = FileStamp::of(&path)
                    && !self.registry.is_up_to_date(&path, &stamp)
                {
                    differ.insert(path, Some(stamp));
                }
            }
        }
        self.pending.retain(|path, _| differ.contains_key(path));
        for (path, stamp) in differ {
            let said = is_reported_complete(&path, ready);
            let pending = self.pending.entry(path).or_insert(PendingPath {
                stamp,
                unchanged_since: now,
                first_seen: now,
                ready: false,
            });
            if pending.stamp != stamp {
                pending.stamp = stamp;
                pending.unchanged_since = now;
                pending.ready = false;
            }
            pending.ready |= said;
        }
    }

    /// Begins to load what is complete and to remove what is gone.
    fn start_due(&mut self) {
        let now = Instant::now();
        let due: Vec<LoadingPath> = self
            .pending
            .iter()
            .filter(|(path, pending)| self.is_due(pending, now) && !self.is_loading(path))
            .map(|(path, pending)| LoadingPath {
                path: path.clone(),
                stamp: pending.stamp,
                started_at: now,
            })
            .collect();
        let is_removing = self.loading.values().any(LoadingPath::is_removal);
        let room = free_slots(self.loading.values(), now);
        for due in removals_first(due, is_removing).into_iter().take(room) {
            let first = self
                .pending
                .get(&due.path)
                .map(|pending| pending.first_seen);
            let patient = first.is_some_and(|first| now - first < self.options.incomplete_timeout);
            let (registry, path) = (Arc::clone(&self.registry), due.path.clone());
            let present = due.stamp.is_some();
            let load = move || settle(&registry, &path, present, patient);
            self.loading
                .insert(self.loads.spawn_blocking(load).id(), due);
        }
    }

    /// Takes note of what came of a path.
    fn finish_load(&mut self, done: Result<(Id, SettleOutcome), JoinError>) {
        let (id, outcome) = match done {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(LoadingPath { path, stamp, .. }) = self.loading.remove(&id) else {
            return;
        };
        if let Err(error) = &outcome {
            tracing::warn!("{}: loading it failed: {error}", path.display());
        }
        let Some(pending) = self.pending.get_mut(&path) else {
            return;
        };
        // What came there meanwhile is loaded next.
        if pending.stamp != stamp {
            return;
        }
        match outcome {
            Ok(SettleOutcome::Later) => {
                pending.unchanged_since = Instant::now();
                pending.ready = false;
            }
            Ok(SettleOutcome::Done) | Err(_) => {
                self.pending.remove(&path);
            }
        }
    }

    fn is_loading(&self, path: &Path) -> bool {
        self.loading.values().any(|loading| loading.path == path)
    }

    fn is_due(&self, pending: &PendingPath, now: Instant) -> bool {
        pending.ready || now - pending.unchanged_since >= self.options.settle
    }

    /// How long to wait when nothing happens; without end when everything is settled and every
    /// directory has events. What is due already waits for what is loaded.
    fn wait_time(&self) -> Option<Duration> {
        let now = Instant::now();
        let settling = self
            .pending
            .iter()
            .filter(|(path, pending)| !self.is_due(pending, now) && !self.is_loading(path))
            .map(|(_, p)| (p.unchanged_since + self.options.settle).saturating_duration_since(now))
            .min();
        let all_watched =
            self.watcher.is_some() && self.dirs.iter().all(|d| self.watched.contains_key(d));
        let poll = (!all_watched).then_some(self.options.poll);
        let waits = self
            .pending
            .iter()
            .any(|(path, pending)| self.is_due(pending, now) && !self.is_loading(path));
        let slots = self.loading.values().filter(|_| waits);
        let slot = slots.filter_map(|loading| loading.slot_left(now)).min();
        let pause = [settling, poll, slot].into_iter().flatten().min();
        pause.map(|pause| pause.max(Duration::from_millis(5)))
    }
}

/// How many more files can be loaded beside these.
fn free_slots<'a>(loading: impl Iterator<Item = &'a LoadingPath>, now: Instant) -> usize {
    let (mut all, mut in_slots) = (0, 0);
    for loading in loading {
        all += 1;
        in_slots += usize::from(loading.slot_left(now).is_some());
    }
    let free = MAX_LOADS.saturating_sub(in_slots);
    free.min(MAX_ALL_LOADS.saturating_sub(all))
}

/// Identity of the directory at a path, also where links lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DirIdentity {
    device: u64,
    inode: u64,
    /// When it was made, where the system knows: a new directory may have the number of a deleted one.
    created_at: Option<SystemTime>,
}

impl DirIdentity {
    /// Identity of the directory at a path; `None` where no directory is.
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let there = std::fs::metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_dir)?;
        Some(Self {
            device: there.dev(),
            inode: there.ino(),
            created_at: there.created().ok(),
        })
    }
}

/// Asks for no more events of directories, by any of the paths that lead there: the system has one watch for
/// all of them, which goes with the first.
fn unwatch(
    watcher: &mut RecommendedWatcher,
    watched: &mut HashMap<PathBuf, DirIdentity>,
    gone: &HashSet<DirIdentity>,
) {
    watched.retain(|dir, identity| {
        let stays = !gone.contains(identity);
        if !stays {
            // Of one that was deleted the system tells nothing any more in any case.
            let _ = watcher.unwatch(dir);
        }
        stays
    });
}

/// Waits until another directory, or none, is at one of the paths.
async fn wait_for_replaced_dir(watched: &HashMap<PathBuf, DirIdentity>) {
    let is_there = |(dir, identity): (&PathBuf, &DirIdentity)| {
        DirIdentity::of(dir).is_some_and(|there| there == *identity)
    };
    while watched.iter().all(is_there) {
        tokio::time::sleep(COMPARE_INTERVAL).await;
    }
}

/// What of the paths that are due is begun now: no load before every removal has ended, since what is
/// loaded may be what is removed, under another name.
fn removals_first(mut due: Vec<LoadingPath>, is_removing: bool) -> Vec<LoadingPath> {
    if is_removing || due.iter().any(LoadingPath::is_removal) {
        due.retain(LoadingPath::is_removal);
    }
    due
}

/// Makes the directory that plugins are installed in, where that is watched: there are no events of one
/// that is not there, so the first plugin would wait for the next look.
fn make_installed_dir(registry: &PluginRegistry, dirs: &[PathBuf]) {
    let installed = registry.loader().installed_dir();
    let Some(dir) = installed.filter(|installed| dirs.iter().any(|dir| dir == installed)) else {
        return;
    };
    if let Err(error) = fs::create_private_dir(dir) {
        tracing::debug!("the directory is polled until it is there: {error}");
    }
}

/// The directories below a directory in which files of programs are that it describes.
fn described_dirs(dir: &Path) -> Vec<PathBuf> {
    let found = libraries(dir).unwrap_or_default();
    let described = found.iter().filter(|path| program::is_description(path));
    described
        .flat_map(|path| program::file_dirs(path))
        .collect()
}

enum SettleOutcome {
    Done,
    Later,
}

fn settle(registry: &PluginRegistry, path: &Path, present: bool, patient: bool) -> SettleOutcome {
    if !present {
        registry.remove(path);
        return SettleOutcome::Done;
    }
    if patient
        && let Err(error) = PluginFile::read(path, false)
        && error.is_transient()
    {
        return SettleOutcome::Later;
    }
    registry.add_if_changed(path);
    SettleOutcome::Done
}

/// Whether an event only tells that somebody read. Looking at a directory opens it: a look that
/// woke the next one would never end.
fn changes_nothing(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// Whether what is at a path was said to be complete, or a file of the program that it describes.
fn is_reported_complete(path: &Path, ready: &HashSet<PathBuf>) -> bool {
    ready.contains(path)
        || program::is_description(path) && ready.iter().any(|file| program::has_file(path, file))
}

/// Takes note of the paths that an event says are complete. Of the files of a program those that were
/// renamed, since whoever writes several of them closes each.
fn note_complete(event: notify::Result<notify::Event>, ready: &mut HashSet<PathBuf>) {
    let Ok(event) = event else { return };
    let complete = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => event.paths.as_slice(),
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
            event.paths.get(1..).unwrap_or_default()
        }
        _ => &[],
    };
    let is_rename = matches!(event.kind, EventKind::Modify(ModifyKind::Name(_)));
    let complete = complete
        .iter()
        .filter(|path| is_rename || is_library_name(path));
    ready.extend(complete.cloned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_loaded_while_something_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let moved = dir.path().join("libmoved.so");
        std::fs::write(&moved, "").unwrap();
        let stamp = FileStamp::of(&moved);
        let begun = Instant::now();
        let there = || LoadingPath {
            path: moved.clone(),
            stamp,
            started_at: begun,
        };
        let gone = || LoadingPath {
            path: dir.path().join("libgone.so"),
            stamp: None,
            started_at: begun,
        };
        let begun = |due: Vec<LoadingPath>, is_removing| -> Vec<PathBuf> {
            let begun = removals_first(due, is_removing).into_iter();
            begun.map(|begun| begun.path).collect()
        };
        assert_eq!(begun(vec![there(), gone()], false), [gone().path]);
        assert!(begun(vec![there()], true).is_empty(), "it goes on");
        assert_eq!(begun(vec![gone()], true), [gone().path]);
        assert_eq!(begun(vec![there()], false), [there().path]);
    }

    #[test]
    fn what_hangs_leaves_its_place_to_others() {
        let begun = Instant::now();
        let loading = |number: usize| -> Vec<LoadingPath> {
            let loading = (0..number).map(|number| LoadingPath {
                path: format!("lib{number}.so").into(),
                stamp: None,
                started_at: begun,
            });
            loading.collect()
        };
        assert_eq!(free_slots(loading(MAX_LOADS).iter(), begun), 0);
        assert_eq!(
            free_slots(loading(MAX_LOADS).iter(), begun + SLOT_TIME),
            MAX_LOADS
        );
        assert_eq!(free_slots(loading(3).iter(), begun), MAX_LOADS - 3);
        let too_many = loading(MAX_ALL_LOADS);
        assert_eq!(free_slots(too_many.iter(), begun + SLOT_TIME), 0);
    }
}
