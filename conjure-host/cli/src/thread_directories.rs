//! Where a conversation is at home: the directory in which its session worked last, as its log says.
//!
//! A thread has no column for it. Its session writes its settings to the log when the thread begins, and
//! again when they change, and the working directory is one of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conjure_core::log::EntryBody;
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
    /// The directories of the threads of a list, as far as they are known.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn of_all(
        &self,
        store: &Store,
        threads: &[Thread],
    ) -> Result<BTreeMap<ThreadId, PathBuf>, StoreError> {
        let mut dirs = BTreeMap::new();
        for thread in threads {
            if let Some(path) = self.of(store, thread).await? {
                dirs.insert(thread.id.clone(), path);
            }
        }
        Ok(dirs)
    }

    async fn of(&self, store: &Store, thread: &Thread) -> Result<Option<PathBuf>, StoreError> {
        let known = self.known(&thread.id);
        if let Some(known) = known.filter(|known| known.last_seq == thread.last_seq) {
            return Ok(known.path);
        }
        let path = of(store, &thread.id).await?;
        let known = KnownDirectory {
            last_seq: thread.last_seq,
            path: path.clone(),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(thread.id.clone(), known);
        Ok(path)
    }

    fn known(&self, thread: &ThreadId) -> Option<KnownDirectory> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(thread).cloned()
    }
}

/// The directory of a thread; nothing where its log does not say, or where it was removed meanwhile.
///
/// # Errors
/// What the database says.
pub(crate) async fn of(store: &Store, thread: &ThreadId) -> Result<Option<PathBuf>, StoreError> {
    let newest = match store.newest_settings(thread).await {
        Ok(newest) => newest,
        Err(StoreError::NoThread { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(newest.and_then(|entry| match entry.body {
        EntryBody::SettingsChanged { settings, .. } => {
            let dir = settings.get("working_dir")?.as_str()?;
            Some(PathBuf::from(dir))
        }
        _ => None,
    }))
}

/// A directory as the logs name it: where links lead.
pub(crate) fn resolved(dir: &Path) -> PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use conjure_core::chat::Message;
    use conjure_core::log::Entry;
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
            let found = of(&store, &thread).await.unwrap();
            assert_eq!(found.as_deref(), home.map(Path::new), "{dirs:?}");
        }
    }

    #[tokio::test]
    async fn a_list_that_is_made_anew_looks_only_at_threads_that_grew() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let id = thread_in(&store, &["/a"], 1).await;
        let dirs = ThreadDirectories::default();
        let thread = store.thread(&id).await.unwrap();
        let found = dirs.of(&store, &thread).await.unwrap();
        assert_eq!(found.as_deref(), Some(Path::new("/a")));
        let known = KnownDirectory {
            last_seq: thread.last_seq,
            path: Some(PathBuf::from("/known")),
        };
        dirs.0.lock().unwrap().insert(id.clone(), known);
        let found = dirs.of(&store, &thread).await.unwrap();
        assert_eq!(found.as_deref(), Some(Path::new("/known")));
        let grown = Thread {
            last_seq: thread.last_seq + 1,
            ..thread
        };
        let found = dirs.of(&store, &grown).await.unwrap();
        assert_eq!(found.as_deref(), Some(Path::new("/a")));
    }
}
