//! Where a conversation is at home: the directory in which its session worked last, as its log says.
//!
//! A thread has no column for it. Its session writes its settings to the log when the thread begins, and
//! again when they change, and the working directory is one of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conjure_core::log::{Entry, EntryBody};
use conjure_store::{Store, StoreError, Thread, ThreadId};

/// The directories of threads that were looked at: a list is made anew with each word that is typed at it.
#[derive(Debug, Default)]
pub(crate) struct ThreadDirectories(Mutex<BTreeMap<ThreadId, KnownDirectory>>);

/// Where a thread was at home.
#[derive(Debug, Clone)]
struct KnownDirectory {
    /// The newest entry that it had then.
    last_seq: u64,
    path: Option<PathBuf>,
}

impl ThreadDirectories {
    /// The directories of the threads of a list, as far as they are known; all of those that are not
    /// known yet are looked up at once.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn of_all(
        &self,
        store: &Store,
        threads: &[Thread],
    ) -> Result<BTreeMap<ThreadId, PathBuf>, StoreError> {
        let grown = self.changed_threads(threads);
        let ids: Vec<ThreadId> = grown.iter().map(|thread| thread.id.clone()).collect();
        let newest = store.newest_settings(&ids).await?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in grown {
            let known = KnownDirectory {
                last_seq: thread.last_seq,
                path: newest.get(&thread.id).and_then(directory),
            };
            all.insert(thread.id.clone(), known);
        }
        let known = threads.iter().filter_map(|thread| {
            let path = all.get(&thread.id)?.path.clone()?;
            Some((thread.id.clone(), path))
        });
        Ok(known.collect())
    }

    /// Threads that were not looked at, or have grown since.
    fn changed_threads<'a>(&self, threads: &'a [Thread]) -> Vec<&'a Thread> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_grown = |thread: &&Thread| {
            let known = all.get(&thread.id);
            known.is_none_or(|known| known.last_seq != thread.last_seq)
        };
        threads.iter().filter(has_grown).collect()
    }
}

/// The directory that an entry with settings names.
fn directory(entry: &Entry) -> Option<PathBuf> {
    match &entry.body {
        EntryBody::SettingsChanged { settings, .. } => {
            let dir = settings.get("working_dir")?.as_str()?;
            Some(PathBuf::from(dir))
        }
        _ => None,
    }
}

/// A directory as the logs name it: where links lead.
pub(crate) fn resolve_links(dir: &Path) -> PathBuf {
    conjure_config::fs::real_path(dir)
}

#[cfg(test)]
pub(crate) mod tests {
    use conjure_core::chat::Message;
    use conjure_store::{Location, Log as _, Options, Record};
    use serde_json::json;

    use super::*;

    pub(crate) async fn store(dir: &Path) -> Store {
        let place = Location::File(dir.join("conjure.db"));
        Store::open(&place, &Options::default()).await.unwrap()
    }

    /// Writes a thread whose session worked in these directories, one after the other, with as many
    /// messages behind each; nothing says where it worked in the one without a name.
    pub(crate) async fn thread_in(store: &Store, dirs: &[&str], messages: usize) -> ThreadId {
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        let mut bodies = Vec::new();
        for dir in dirs {
            if !dir.is_empty() {
                bodies.push(EntryBody::SettingsChanged {
                    summary: String::new(),
                    settings: json!({ "provider": "p", "model": "m", "working_dir": dir }),
                });
            }
            let said = || EntryBody::Message {
                message: Message::user("And?"),
            };
            bodies.extend(std::iter::repeat_with(said).take(messages));
        }
        let entries = bodies.into_iter().zip(1..).map(|(body, seq)| Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body,
        });
        let records: Vec<Record> = entries.map(Record::Entry).collect();
        open.append(&records, false).await.unwrap();
        thread
    }

    #[tokio::test]
    async fn a_thread_is_at_home_where_it_worked_last() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        for (dirs, messages, home) in [
            (&["/a"][..], 3, Some("/a")),
            (&["/a", "/b"][..], 3, Some("/b")),
            (&["/a", "/b"][..], 500, Some("/b")),
            (&["/a"][..], 500, Some("/a")),
            (&[""][..], 3, None),
            (&[""][..], 500, None),
        ] {
            let thread = thread_in(&store, dirs, messages).await;
            let found = found(&ThreadDirectories::default(), &store, &thread).await;
            assert_eq!(found.as_deref(), home.map(Path::new), "{dirs:?}");
        }
    }

    /// The directory of one thread.
    async fn found(dirs: &ThreadDirectories, store: &Store, thread: &ThreadId) -> Option<PathBuf> {
        let thread = store.thread(thread).await.unwrap();
        let one = std::slice::from_ref(&thread);
        let mut found = dirs.of_all(store, one).await.unwrap();
        found.remove(&thread.id)
    }

    #[tokio::test]
    async fn a_list_that_is_made_anew_looks_only_at_threads_that_grew() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let dirs = ThreadDirectories::default();
        let id = thread_in(&store, &["/a"], 1).await;
        let found_at = found(&dirs, &store, &id).await;
        assert_eq!(found_at.as_deref(), Some(Path::new("/a")));
        let thread = store.thread(&id).await.unwrap();
        let known = KnownDirectory {
            last_seq: thread.last_seq,
            path: Some(PathBuf::from("/known")),
        };
        dirs.0.lock().unwrap().insert(id.clone(), known);
        let other = thread_in(&store, &["/b"], 1).await;
        let both = [thread.clone(), store.thread(&other).await.unwrap()];
        let found = dirs.of_all(&store, &both).await.unwrap();
        let expected = [
            (id.clone(), PathBuf::from("/known")),
            (other, PathBuf::from("/b")),
        ];
        assert_eq!(found, BTreeMap::from(expected));
        let grown = Thread {
            last_seq: thread.last_seq + 1,
            ..thread
        };
        let found = dirs.of_all(&store, &[grown]).await.unwrap();
        assert_eq!(found, BTreeMap::from([(id, PathBuf::from("/a"))]));
    }
}
