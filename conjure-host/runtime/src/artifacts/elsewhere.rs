//! Files that lie with their backends, where calls of several backends may work at one location: each
//! such file is one, and of whoever is known to have made it.
//!
//! What a backend calls a file is its own business, and the host compares it with what another one
//! says only where both have told the location that they work at, and ran at the same time. What is
//! not known of a location can make a file nobody's, and never another one's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use conjure_skill_sdk::protocol::FileRef;

use super::digest::ReadCheck;
use super::windows::{CallLocation, CallWindow, FileWriter, UNKNOWN_SOURCE};
use super::{Artifact, ArtifactSlot, Artifacts, Fetch, FileError, FileMatch, HashBudget};

/// Call that made a file or found it.
pub(super) struct FinderCall {
    /// Number of the call's window.
    number: u64,
    /// Location where the call works, once its executor has told it.
    location: Option<CallLocation>,
}

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
        let turn = self.remote_registration.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        // What was found before this call began is none of what it found, whatever it is called.
        if let Some(window) = window
            && let Some(slot) = self.known_elsewhere(window, backend, file, |_, finder| {
                window.overlaps(finder.number)
            })
        {
            return Ok(slot.found_again(window, backend));
        }
        let wrote = window.map_or(FileWriter::Finder, CallWindow::of_elsewhere);
        let artifact = self.register_with(backend, file, fetch, false, check)?;
        self.set_finder(&artifact.id, window);
        match self.slot(&artifact.id) {
            Some(slot) if wrote != FileWriter::Finder => Ok(slot.found_beside()),
            _ => Ok(FileMatch::Own(artifact)),
        }
    }

    /// [`Artifacts::register_within`] for a file that a call says it made. Where it lies with its
    /// backend and another call has found it before, it is that file.
    ///
    /// # Errors
    /// As for [`Artifacts::register_within`].
    pub(crate) fn register_created(
        &self,
        window: Option<&CallWindow<'_>>,
        backend: &str,
        file: &FileRef,
        fetch: Option<Fetch>,
        budget: &HashBudget,
    ) -> Result<Artifact, FileError> {
        if file.path.is_some() {
            return self.register_within(backend, file, fetch, budget);
        }
        let turn = self.remote_registration.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        if let Some(artifact) = self.claim_elsewhere(window, backend, file) {
            return Ok(artifact);
        }
        let artifact = self.register_within(backend, file, fetch, budget)?;
        self.set_finder(&artifact.id, window);
        Ok(artifact)
    }

    /// The file that a call says it made, where it lies with its backend and another call has found
    /// it meanwhile, or nobody is known to have made it; nothing where it is a new one.
    fn claim_elsewhere(
        &self,
        window: Option<&CallWindow<'_>>,
        backend: &str,
        file: &FileRef,
    ) -> Option<Artifact> {
        let window = window?;
        let slot = self.known_elsewhere(window, backend, file, |slot, finder| {
            let is_unclaimed = !slot.is_reported.load(Ordering::Relaxed);
            let is_unknown = || slot.current().source == UNKNOWN_SOURCE;
            is_unclaimed && (window.overlaps(finder.number) || is_unknown())
        })?;
        slot.is_reported.store(true, Ordering::Relaxed);
        slot.set_finder(window);
        Some(slot.update(|known| {
            let holder = known.holder.take();
            let before = std::mem::replace(&mut known.source, backend.to_owned());
            let holder = holder.unwrap_or(before);
            known.holder = (holder != backend).then_some(holder);
        }))
    }

    /// Takes note of the call that told of a file, and of where it works.
    fn set_finder(&self, id: &str, window: Option<&CallWindow<'_>>) {
        if let Some(window) = window
            && let Some(slot) = self.slot(id)
        {
            slot.set_finder(window);
        }
    }

    /// The fitting file at the location of this call that is known by the same name there. Of what
    /// lies with its own backend it need not be known whether the location is one.
    fn known_elsewhere(
        &self,
        window: &CallWindow<'_>,
        backend: &str,
        file: &FileRef,
        is_fit: impl Fn(&ArtifactSlot, &FinderCall) -> bool,
    ) -> Option<Arc<ArtifactSlot>> {
        let location = window.location().get()?;
        let id = file.id.as_ref().filter(|_| file.path.is_none())?;
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slots = files.values();
        let known = slots.find(|slot| {
            let remote = slot.remote.as_ref();
            if remote.is_none_or(|(known, _)| known != id) {
                return false;
            }
            let finder = slot.finder.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(finder) = finder.as_ref() else {
                return false;
            };
            let is_there = finder.location.as_ref().is_some_and(|there| {
                there.is_one_with(location)
                    || (there.may_be(location) && slot.current().fetch_backend() == backend)
            });
            is_there && is_fit(slot, finder)
        });
        known.map(Arc::clone)
    }

    fn slot(&self, id: &str) -> Option<Arc<ArtifactSlot>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(id).map(Arc::clone)
    }

    /// The file of a handle as it is known by now.
    pub(crate) fn current(&self, id: &str) -> Option<Artifact> {
        self.slot(id).map(|slot| slot.current())
    }
}

impl ArtifactSlot {
    /// A call of a backend has found the file as it is known. Whoever found it before may have as little
    /// to do with it.
    fn found_again(&self, window: &CallWindow<'_>, backend: &str) -> FileMatch {
        let known = self.current();
        match known.source == backend && self.is_found_by(window) {
            true => FileMatch::Own(known),
            false => self.found_beside(),
        }
    }

    /// Several calls can have made the file, which is nobody's unless one of them said that it did.
    fn found_beside(&self) -> FileMatch {
        let is_unknown = self.current().source == UNKNOWN_SOURCE;
        match is_unknown || self.is_reported.load(Ordering::Relaxed) {
            true => FileMatch::Nothing,
            false => FileMatch::Other(self.disown()),
        }
    }

    fn is_found_by(&self, window: &CallWindow<'_>) -> bool {
        let finder = self.finder.lock().unwrap_or_else(PoisonError::into_inner);
        let number = finder.as_ref().map(|finder| finder.number);
        number == Some(window.number())
    }

    fn set_finder(&self, window: &CallWindow<'_>) {
        let mut finder = self.finder.lock().unwrap_or_else(PoisonError::into_inner);
        *finder = Some(FinderCall {
            number: window.number(),
            location: window.location().get().cloned(),
        });
    }

    /// Nobody can be said to have made the file, which its finder goes on to hand out.
    fn disown(&self) -> Artifact {
        self.update(|known| {
            let finder = std::mem::replace(&mut known.source, UNKNOWN_SOURCE.to_owned());
            known.holder = Some(finder);
        })
    }

    /// The file as it is known by now.
    fn current(&self) -> Artifact {
        self.update(|_| {})
    }

    /// Changes what is known of the file, and gives what it is then.
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
    use crate::artifacts::WriteTracker;

    fn session(writes: &Arc<WriteTracker>, id: &str) -> Artifacts {
        Artifacts::new(vec![PathBuf::from("/dir")], PathBuf::from("/cache"))
            .with_session(writes, id)
    }

    /// A call of a backend at the location of this directory.
    fn call<'a>(artifacts: &'a Artifacts, backend: &str, dir: Option<&str>) -> CallWindow<'a> {
        let location = dir.map(|dir| ("m", vec![dir]));
        call_at(artifacts, backend, location)
    }

    /// A call of a backend at a location of this machine and these directories.
    fn call_at<'a>(
        artifacts: &'a Artifacts,
        backend: &str,
        location: Option<(&str, Vec<&str>)>,
    ) -> CallWindow<'a> {
        let window = artifacts.begin(&Arc::from(backend), true);
        if let Some((machine, dirs)) = location {
            let event = json!({ "event": "location", "machine": machine, "dirs": dirs });
            let location = CallLocation::from_event(PluginEvent::Other(event)).unwrap();
            window.location().get_or_init(|| location);
        }
        window
    }

    fn claim(artifacts: &Artifacts, call: &CallWindow<'_>, backend: &str, id: &str) -> Artifact {
        let file = FileRef::lazy(id, "f.txt");
        let budget = HashBudget::new(tokio_util::sync::CancellationToken::new());
        artifacts
            .register_created(Some(call), backend, &file, fetch(), &budget)
            .unwrap()
    }

    fn of(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
        let pairs = pairs.iter();
        pairs
            .map(|(source, holder)| ((*source).to_owned(), holder.map(str::to_owned)))
            .collect()
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
        assert_eq!(claim(&artifacts, &one, "a", "1:/w/f.txt").source, "a");
        let again = find(&artifacts, &other, "b", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        let made = ("a".to_owned(), Some("b".to_owned()));
        assert_eq!(sources(&artifacts), [made]);
    }

    #[test]
    fn what_two_calls_of_one_backend_find_is_neither_ones() {
        let artifacts = session(&Arc::default(), "s");
        let one = call(&artifacts, "a", Some("1:1"));
        for _ in 0..2 {
            let found = find(&artifacts, &one, "a", "1:/w/f.txt");
            assert!(matches!(found, FileMatch::Own(_)), "{found:?}");
        }
        let other = call(&artifacts, "a", Some("1:1"));
        let again = find(&artifacts, &other, "a", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Other(_)), "{again:?}");
        let again = find(&artifacts, &one, "a", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        assert_eq!(sources(&artifacts), of(&[(UNKNOWN_SOURCE, Some("a"))]));
        // What one of them says that it made is that one's, and none of the other's.
        claim(&artifacts, &one, "a", "2:/w/g.txt");
        let again = find(&artifacts, &other, "a", "2:/w/g.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        let again = find(&artifacts, &one, "a", "2:/w/g.txt");
        assert!(matches!(again, FileMatch::Own(_)), "{again:?}");
    }

    #[test]
    fn a_later_call_of_a_backend_that_finds_a_file_by_the_same_name_made_it_again() {
        let artifacts = session(&Arc::default(), "s");
        find(
            &artifacts,
            &call(&artifacts, "a", Some("1:1")),
            "a",
            "f.txt",
        );
        let later = call(&artifacts, "a", Some("1:1"));
        let again = find(&artifacts, &later, "a", "f.txt");
        assert!(matches!(again, FileMatch::Own(_)), "{again:?}");
        assert_eq!(sources(&artifacts), of(&[("a", None)]));
    }

    #[test]
    fn nobody_takes_a_file_over_whose_call_did_not_run_beside_its_finders() {
        let artifacts = session(&Arc::default(), "s");
        let one = call(&artifacts, "a", Some("1:1"));
        find(&artifacts, &one, "a", "1:/w/f.txt");
        drop(one);
        let liar = call(&artifacts, "b", Some("1:1"));
        claim(&artifacts, &liar, "b", "1:/w/f.txt");
        assert_eq!(sources(&artifacts), of(&[("a", None), ("b", None)]));
    }

    #[test]
    fn nobody_takes_a_file_over_from_a_location_that_is_not_known() {
        for location in [("", vec![]), ("", vec!["1:1"]), ("m", vec![])] {
            let artifacts = session(&Arc::default(), "s");
            let one = call(&artifacts, "a", Some("1:1"));
            find(&artifacts, &one, "a", "1:/w/f.txt");
            let liar = call_at(&artifacts, "b", Some(location.clone()));
            find(&artifacts, &liar, "b", "1:/w/f.txt");
            claim(&artifacts, &liar, "b", "1:/w/f.txt");
            let own = sources(&artifacts).swap_remove(0);
            assert_eq!(own, ("a".to_owned(), None), "{location:?}");
        }
    }

    #[test]
    fn what_one_backend_finds_twice_is_one_file_where_its_location_is_not_known() {
        let artifacts = session(&Arc::default(), "s");
        let unknown = || call_at(&artifacts, "a", Some(("", Vec::new())));
        let (one, other) = (unknown(), unknown());
        let found = find(&artifacts, &one, "a", "1:/w/f.txt");
        assert!(matches!(found, FileMatch::Other(_)), "{found:?}");
        let again = find(&artifacts, &other, "a", "1:/w/f.txt");
        assert!(matches!(again, FileMatch::Nothing), "{again:?}");
        assert_eq!(sources(&artifacts), of(&[(UNKNOWN_SOURCE, Some("a"))]));
    }

    #[test]
    fn a_file_of_unknown_source_is_that_of_whoever_says_later_that_it_made_it() {
        let artifacts = session(&Arc::default(), "s");
        let (one, other) = (
            call(&artifacts, "a", Some("1:1")),
            call(&artifacts, "b", Some("1:1")),
        );
        find(&artifacts, &one, "a", "1:/w/f.txt");
        drop((one, other));
        let later = call(&artifacts, "b", Some("1:1"));
        claim(&artifacts, &later, "b", "1:/w/f.txt");
        assert_eq!(sources(&artifacts), of(&[("b", Some("a"))]));
        let current = artifacts.current("file-1").unwrap();
        assert_eq!(
            (current.source.as_str(), current.fetch_backend()),
            ("b", "a")
        );
        // What was fetched before stays where it is.
        let before = Artifact {
            source: "a".to_owned(),
            holder: None,
            ..current.clone()
        };
        let cache = std::path::Path::new("/cache");
        assert_eq!(before.cached_path(cache), current.cached_path(cache));
    }
}
