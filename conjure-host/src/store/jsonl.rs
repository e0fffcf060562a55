//! Threads as files of JSON lines: one file a thread, one record a line, only ever appended to.
//!
//! A last line that is cut off is what a crash leaves behind, and is dropped when the thread is
//! opened again. A damaged line anywhere else is said, never skipped.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::forcing::{Failure, Forcing};
use super::{Log, Record, Settled, StoreError, ThreadId, ThreadLog};

/// Keeps threads in a directory.
#[derive(Debug, Clone)]
pub struct JsonLines {
    dir: PathBuf,
}

impl JsonLines {
    /// A store in `dir`, which is made at the first write.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn path(&self, thread: &ThreadId) -> PathBuf {
        self.dir.join(format!("{thread}.jsonl"))
    }

    fn open_file(&self, thread: &ThreadId) -> Result<Open, StoreError> {
        crate::fs::create_private_dir(&self.dir).map_err(io("make", &self.dir))?;
        let path = self.path(thread);
        let mut file = crate::fs::open_private_appending(&path).map_err(io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::Busy {
                    thread: thread.clone(),
                });
            }
            Err(error) => return Err(io("lock", &path)(error.into())),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read", &path))?;
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let before = parse(bytes.get(..whole).unwrap_or_default(), &path)?;
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io("repair", &path))?;
        }
        let epoch = 1 + before
            .iter()
            .map(|record| match record {
                Record::Opened { epoch } => *epoch,
                _ => 0,
            })
            .max()
            .unwrap_or(0);
        let length = file.seek(SeekFrom::End(0)).map_err(io("open", &path))?;
        let mut open = Open {
            file: Arc::new(file),
            forcing: None,
            failure: Failure::default(),
            path,
            length,
            torn: false,
            before,
            epoch,
        };
        // The epoch is on the disk before an event may carry it.
        open.append(&[Record::Opened { epoch }], false)?;
        open.file.sync_data().map_err(io("write", &open.path))?;
        Ok(open)
    }
}

impl Log for JsonLines {
    fn open(&self, thread: &ThreadId) -> Result<Box<dyn ThreadLog>, StoreError> {
        Ok(Box::new(self.open_file(thread)?))
    }

    fn read(&self, thread: &ThreadId) -> Result<Vec<Record>, StoreError> {
        let path = self.path(thread);
        let bytes = match crate::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::NoThread {
                    thread: thread.clone(),
                });
            }
            Err(error) => return Err(io("read", &path)(error)),
        };
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        parse(bytes.get(..whole).unwrap_or_default(), &path)
    }

    fn threads(&self) -> Result<Vec<ThreadId>, StoreError> {
        let paths = crate::fs::entries(&self.dir).map_err(io("list", &self.dir))?;
        Ok(paths
            .iter()
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                ThreadId::parse(name.strip_suffix(".jsonl")?).ok()
            })
            .collect())
    }
}

struct Open {
    file: Arc<File>,
    path: PathBuf,
    forcing: Option<Forcing>,
    failure: Failure,
    /// Where the last whole append ended.
    length: u64,
    /// Whether half an append may be behind that.
    torn: bool,
    before: Vec<Record>,
    epoch: u64,
}

impl ThreadLog for Open {
    fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.before)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn append(&mut self, records: &[Record], durable: bool) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for record in records {
            serde_json::to_writer(&mut bytes, record)
                .map_err(|error| io("write", &self.path)(error.into()))?;
            bytes.push(b'\n');
        }
        if let Some(error) = self.failure.get() {
            let source = std::io::Error::other(error.to_string());
            return Err(io("rely on", &self.path)(source));
        }
        if self.torn {
            self.file
                .set_len(self.length)
                .map_err(io("repair", &self.path))?;
            self.torn = false;
        }
        if let Err(error) = (&*self.file).write_all(&bytes) {
            // All or none: what got through of a full disk's last write is taken back.
            self.torn = self.file.set_len(self.length).is_err();
            return Err(io("write", &self.path)(error));
        }
        self.length += bytes.len() as u64;
        if durable {
            self.settle()?;
        }
        Ok(())
    }

    fn settled(&self) -> Option<Settled> {
        Some(self.forcing.as_ref()?.settled.clone())
    }
}

impl Open {
    /// Forces the file to the disk soon; waits for it where there is no runtime to do that.
    fn settle(&mut self) -> Result<(), StoreError> {
        if self.forcing.as_ref().is_some_and(Forcing::is_to_come) {
            return Ok(());
        }
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let sync = move || file.sync_data().map_err(io("write", &path));
        match Handle::try_current() {
            Ok(runtime) => {
                self.forcing = Some(Forcing::begin(&runtime, sync, &self.failure));
                Ok(())
            }
            Err(_) => sync(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.forcing.as_ref().is_some_and(Forcing::is_to_come) {
            let _ = self.file.sync_data();
        }
        // What still writes to the disk holds the file a moment longer.
        let _ = flock(&*self.file, FlockOperation::Unlock);
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Record>, StoreError> {
    bytes
        .split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|source| StoreError::Damaged {
                path: path.to_owned(),
                line: index + 1,
                source,
            })
        })
        .collect()
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Event, EventId};
    use conjure_core::log::{Entry, EntryBody};

    use super::*;

    fn entry(seq: u64) -> Record {
        Record::Entry(Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Notice {
                text: format!("entry {seq}"),
            },
        })
    }

    fn event(epoch: u64, seq: u64) -> Record {
        Record::Event {
            id: EventId { epoch, seq },
            event: Event::Content {
                delta: "Grüße\n".into(),
            },
        }
    }

    #[test]
    fn what_is_appended_is_read_after_a_restart_and_the_epoch_grows() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).unwrap();
        open.append(&[entry(1), event(1, 1)], true).unwrap();
        drop(open);
        let mut again = store.open(&thread).unwrap();
        assert_eq!(again.epoch(), 2);
        assert_eq!(
            again.take_records(),
            [Record::Opened { epoch: 1 }, entry(1), event(1, 1)]
        );
        assert_eq!(store.threads().unwrap(), [thread]);
    }

    #[test]
    fn a_last_line_that_is_cut_at_any_byte_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        let thread = ThreadId::parse("t").unwrap();
        let path = dir.path().join("t.jsonl");
        store
            .open(&thread)
            .unwrap()
            .append(&[entry(1), entry(2)], false)
            .unwrap();
        let whole = std::fs::read(&path).unwrap();
        let last = whole[..whole.len() - 1]
            .iter()
            .rposition(|b| *b == b'\n')
            .unwrap()
            + 1;
        for length in last..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut open = store.open(&thread).unwrap();
            assert_eq!(open.take_records(), [Record::Opened { epoch: 1 }, entry(1)]);
            open.append(&[entry(2)], false).unwrap();
            drop(open);
            let read = store.read(&thread).unwrap();
            assert_eq!(read.last(), Some(&entry(2)), "cut at {length}");
        }
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        std::fs::write(
            dir.path().join("t.jsonl"),
            "{\"opened\":{\"epoch\":1}}\nnonsense\n{}\n",
        )
        .unwrap();
        let error = store.read(&ThreadId::parse("t").unwrap()).unwrap_err();
        assert!(error.to_string().contains("damaged in line 2"), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn what_was_said_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let threads = dir.path().join("threads");
        let thread = ThreadId::parse("t").unwrap();
        drop(JsonLines::new(&threads).open(&thread).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let modes = (mode(&threads), mode(&threads.join("t.jsonl")));
        assert_eq!(modes, (0o700, 0o600));
    }

    #[tokio::test]
    async fn what_is_durable_settles_and_the_thread_can_be_opened_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).unwrap();
        assert!(open.settled().is_none());
        for seq in 1..=3 {
            open.append(&[entry(seq)], true).unwrap();
        }
        let settled = open.settled().unwrap();
        drop(open);
        drop(store.open(&thread).unwrap());
        settled.await.unwrap();
    }

    #[test]
    fn a_file_that_could_not_be_forced_to_the_disk_is_written_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        let thread = ThreadId::fresh();
        let mut open = store.open_file(&thread).unwrap();
        open.append(&[entry(1)], true).unwrap();
        let failed = io("write", &open.path)(std::io::Error::other("no such device"));
        open.failure.set(Arc::new(failed)).unwrap();
        let error = open.append(&[entry(2)], false).unwrap_err();
        assert!(error.to_string().contains("no such device"), "{error}");
        let last = store.read(&thread).unwrap().pop();
        assert_eq!(last, Some(entry(1)));
    }

    #[test]
    fn a_second_writer_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = JsonLines::new(dir.path());
        let thread = ThreadId::parse("t").unwrap();
        let open = store.open(&thread).unwrap();
        assert!(matches!(store.open(&thread), Err(StoreError::Busy { .. })));
        drop(open);
        assert!(store.open(&thread).is_ok());
    }

    #[test]
    fn an_id_never_becomes_a_path() {
        for id in ["", "../x", "a/b", "a.b", "ü", &"x".repeat(65)] {
            assert!(ThreadId::parse(id).is_err(), "{id}");
        }
    }
}
