//! Files that lie with their backends, where calls of several backends may work at one location: each
//! such file is one, and of whoever is known to have made it.
//!
//! What a backend calls a file is its own business, and the host compares it with what another one
//! says only where both have told the location that they work at.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use conjure_skill_sdk::protocol::FileRef;

use super::digest::ReadCheck;
use super::windows::{CallWindow, FileWriter, UNKNOWN_SOURCE};
use super::{Artifact, ArtifactSlot, Artifacts, Fetch, FileError, FileMatch};

impl Artifacts {
    /// [`Artifacts::register_found`] for a file that lies with its backend.
    pub(super) fn register_found_elsewhere(
        &self,
        window: Option<&CallWindow<'_>>,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
        check: ReadCheck<'_>,
    ) -> Result<FileMatch, FileError> {
        if self.write_tracker.copies.has_elsewhere(file) {
            return Ok(FileMatch::Nothing);
        }
        if let Some(slot) = self.known_elsewhere(window, file) {
            return Ok(slot.found_again(backend));
        }
        let wrote = window.map_or(FileWriter::Finder, CallWindow::of_elsewhere);
        let artifact = self.register_with(backend, file, fetch, false, check)?;
        self.set_location(&artifact.id, window);
        match self.slot(&artifact.id) {
            Some(slot) if wrote != FileWriter::Finder => Ok(FileMatch::Other(slot.disown())),
            _ => Ok(FileMatch::Own(artifact)),
        }
    }

    /// The file that a call says it made, where it lies with its backend and another call has found
    /// it before; nothing where it is a new one.
    pub(crate) fn claim_elsewhere(
        &self,
        window: Option<&CallWindow<'_>>,
        backend: &str,
        file: &FileRef,
    ) -> Option<Artifact> {
        let slot = self.known_elsewhere(window, file)?;
        if slot.is_reported.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(slot.update(|known| {
            let holder = known.holder.take();
            let before = std::mem::replace(&mut known.source, backend.to_owned());
            let holder = holder.unwrap_or(before);
            known.holder = (holder != backend).then_some(holder);
        }))
    }

    /// Takes note of where a call works that told of a file.
    pub(crate) fn set_location(&self, id: &str, window: Option<&CallWindow<'_>>) {
        if let Some(location) = window.and_then(|window| window.location().get())
            && let Some(slot) = self.slot(id)
        {
            slot.location.get_or_init(|| location.clone());
        }
    }

    /// The file at the location of this call that is known by the same name there.
    fn known_elsewhere(
        &self,
        window: Option<&CallWindow<'_>>,
        file: &FileRef,
    ) -> Option<Arc<ArtifactSlot>> {
        let location = window?.location().get()?;
        let id = file.id.as_ref().filter(|_| file.path.is_none())?;
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = files.values();
        let known = slots.find(|slot| {
            let remote = slot.remote.as_ref();
            remote.is_some_and(|(known, _)| known == id)
                && slot
                    .location
                    .get()
                    .is_some_and(|known| known.may_be(location))
        });
        known.map(Arc::clone)
    }

    fn slot(&self, id: &str) -> Option<Arc<ArtifactSlot>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(id).map(Arc::clone)
    }
}

impl ArtifactSlot {
    /// A call of a backend has found the file as it is known. Whoever found it before may have as little
    /// to do with it.
    fn found_again(&self, backend: &str) -> FileMatch {
        let is_told = self.is_reported.load(Ordering::Relaxed);
        let known = self.update(|_| {});
        if known.source == backend {
            return FileMatch::Own(known);
        }
        match is_told || known.source == UNKNOWN_SOURCE {
            true => FileMatch::Nothing,
            false => FileMatch::Other(self.disown()),
        }
    }

    /// Nobody can be said to have made the file, which its finder goes on to hand out.
    fn disown(&self) -> Artifact {
        self.update(|known| {
            let finder = std::mem::replace(&mut known.source, UNKNOWN_SOURCE.to_owned());
            known.holder = Some(finder);
        })
    }

    /// Changes what is known of the file.
    fn update(&self, change: impl FnOnce(&mut Artifact)) -> Artifact {
        let mut known = self.artifact.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        known.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use conjure_skill_sdk::protocol::PluginEvent;
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::artifacts::{CallLocation, HashBudget, WriteTracker};

    fn session(writes: &Arc<WriteTracker>, id: &str) -> Artifacts {
        Artifacts::new(vec![PathBuf::from("/dir")], PathBuf::from("/cache"))
            .with_session(writes, id)
    }

    /// A call of a backend at the location of this directory.
    fn call<'a>(artifacts: &'a Artifacts, backend: &str, dir: Option<&str>) -> CallWindow<'a> {
        let window = artifacts.begin(&Arc::from(backend), true);
        if let Some(dir) = dir {
            let event = json!({ "event": "location", "machine": "m", "dirs": [dir] });
            let location = CallLocation::from_event(PluginEvent::Other(event)).unwrap();
            window.location().get_or_init(|| location);
        }
        window
    }

    fn fetch() -> Option<Fetch> {
        Some(Arc::new(|_, _| async { Ok(()) }.boxed()))
    }

    fn find(artifacts: &Artifacts, call: &CallWindow<'_>, backend: &str, id: &str) -> FileMatch {
        let file = FileRef::lazy(id, "f.txt");
        let budget = HashBudget::new(tokio_util::sync::CancellationToken::new());
        artifacts
            .register_found(Some(call), backend, &file, fetch(), &budget)
            .unwrap()
    }

    fn sources(artifacts: &Artifacts) -> Vec<(String, Option<String>)> {
        let files = artifacts.list().into_iter();
        files.map(|file| (file.source, file.holder)).collect()
    }

    #[test]
    fn a_file_of_one_location_is_nobodys_while_two_calls_work_there() {
        let artifacts = session(&Arc::default(), "s");
        let alone = call(&artifacts, "a", Some("1:1"));
        assert!(matches!(
            find(&artifacts, &alone, "a", "1:/w/f.txt"),
            FileMatch::Own(_)
        ));
        let (one, other) = (alone, call(&artifacts, "b", Some("1:1")));
        let beside = find(&artifacts, &one, "a", "2:/w/f.txt");
        assert!(matches!(beside, FileMatch::Other(_)), "{beside:?}");
        drop(one);
        let again = find(&artifacts, &other, "b", "2:/w/f.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        let unknown = (UNKNOWN_SOURCE.to_owned(), Some("a".to_owned()));
        assert_eq!(sources(&artifacts), [("a".to_owned(), None), unknown]);
    }

    #[test]
    fn calls_of_other_sessions_count_and_those_elsewhere_do_not() {
        let writes = Arc::default();
        let (artifacts, others) = (session(&writes, "s"), session(&writes, "t"));
        let own = call(&artifacts, "a", Some("1:1"));
        let (_far, _silent) = (
            call(&others, "b", Some("1:2")),
            call(&artifacts, "local", None),
        );
        find(&artifacts, &own, "a", "1:/w/f.txt");
        let _beside = call(&others, "a", Some("1:1"));
        find(&artifacts, &own, "a", "2:/w/g.txt");
        let sources = sources(&artifacts).into_iter().map(|(source, _)| source);
        assert_eq!(sources.collect::<Vec<_>>(), ["a", UNKNOWN_SOURCE]);
    }

    #[test]
    fn what_two_calls_find_is_neither_ones_whenever_the_second_tells_where_it_works() {
        let artifacts = session(&Arc::default(), "s");
        let (one, other) = (
            call(&artifacts, "a", Some("1:1")),
            call(&artifacts, "b", None),
        );
        find(&artifacts, &one, "a", "1:/w/f.txt");
        assert_eq!(sources(&artifacts), [("a".to_owned(), None)]);
        let location = one.location().get().unwrap().clone();
        other.location().get_or_init(|| location);
        let again = find(&artifacts, &other, "b", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Other(_)), "{again:?}");
        let unknown = (UNKNOWN_SOURCE.to_owned(), Some("a".to_owned()));
        assert_eq!(sources(&artifacts), [unknown]);
    }

    #[test]
    fn whoever_says_that_it_made_a_file_has_made_it() {
        let artifacts = session(&Arc::default(), "s");
        let (one, other) = (
            call(&artifacts, "a", Some("1:1")),
            call(&artifacts, "b", Some("1:1")),
        );
        find(&artifacts, &other, "b", "1:/w/f.txt");
        let file = FileRef::lazy("1:/w/f.txt", "f.txt");
        let claimed = artifacts.claim_elsewhere(Some(&one), "a", &file);
        assert_eq!(claimed.unwrap().source, "a");
        let again = find(&artifacts, &other, "b", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        let made = ("a".to_owned(), Some("b".to_owned()));
        assert_eq!(sources(&artifacts), [made]);
    }
}
