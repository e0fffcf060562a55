//! Threads that were kept as files of JSON lines: one file a thread, one record a line.

use std::path::{Path, PathBuf};

use async_recursion::async_recursion as boxed;

use crate::database::now_ms;
use crate::{Log as _, Record, Store, StoreError, ThreadId};

use super::thread_file::{CutLine, read_records};

/// Records of one append.
const BATCH_RECORDS: usize = 1_000;

/// Outcome of importing a directory of files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportedThreads {
    /// Threads that are here now.
    pub new: Vec<ThreadId>,
    /// Threads that were here already, and were left as they are.
    pub existing: Vec<ThreadId>,
}

/// Records as JSON lines, from which [`Store::import_thread`] makes the same thread again. Where a
/// thread was opened anew, and its events count from one again, a record says so; it is all that there
/// is of a thread that shows nothing.
///
/// # Errors
/// None that a thread's own records could cause.
pub fn json_lines(records: &[Record]) -> serde_json::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let mut push = |record: &Record| {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
        serde_json::Result::Ok(())
    };
    let mut before = 0;
    for record in records {
        if let Record::Event { id, .. } = record
            && id.epoch > before
        {
            before = id.epoch;
            push(&Record::Opened { epoch: before })?;
        }
        push(record)?;
    }
    if records.is_empty() {
        push(&Record::Opened { epoch: 1 })?;
    }
    Ok(lines)
}

impl Store {
    /// Reads the threads of a directory of `*.jsonl` files. A thread that is here already is left
    /// as it is; one that cannot be read whole is not imported, nor are those behind it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the file and the line, also where entries are missing before it;
    /// [`StoreError::Io`], and what the database says.
    #[boxed]
    pub async fn import_json_lines(&self, dir: &Path) -> Result<ImportedThreads, StoreError> {
        let mut imported = ImportedThreads::default();
        for path in files(dir)? {
            let name = path.file_stem().and_then(|name| name.to_str());
            let Some(thread) = name.and_then(|name| ThreadId::parse(name).ok()) else {
                continue;
            };
            match self.thread(&thread).await {
                Ok(_) => imported.existing.push(thread),
                Err(StoreError::NoThread { .. }) => {
                    self.import_file(&path, &thread, CutLine::Skip).await?;
                    imported.new.push(thread);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(imported)
    }

    /// Reads a thread of a file of JSON lines, under an id that is not taken. A last line that is cut
    /// off is not read.
    ///
    /// # Errors
    /// [`StoreError::ThreadExists`], and as [`Store::import_json_lines`]; the thread is not there
    /// then.
    #[boxed]
    pub async fn import_thread(&self, path: &Path, thread: &ThreadId) -> Result<(), StoreError> {
        self.import_new(path, thread, CutLine::Skip).await
    }

    /// Reads a thread of a file that was exported, under an id that is not taken.
    ///
    /// # Errors
    /// As [`Store::import_thread`]; [`StoreError::Damaged`] also for a last line that is cut off, and
    /// [`StoreError::NoRecords`].
    #[boxed]
    pub async fn import_complete_thread(
        &self,
        path: &Path,
        thread: &ThreadId,
    ) -> Result<(), StoreError> {
        self.import_new(path, thread, CutLine::Refuse).await
    }

    async fn import_new(
        &self,
        path: &Path,
        thread: &ThreadId,
        cut: CutLine,
    ) -> Result<(), StoreError> {
        match self.thread(thread).await {
            Ok(_) => Err(StoreError::ThreadExists {
                thread: thread.clone(),
            }),
            Err(StoreError::NoThread { .. }) => self.import_file(path, thread, cut).await,
            Err(error) => Err(error),
        }
    }

    async fn import_file(
        &self,
        path: &Path,
        thread: &ThreadId,
        cut: CutLine,
    ) -> Result<(), StoreError> {
        let bytes = tokio::fs::read(path)
            .await
            .map_err(StoreError::io("read", path))?;
        let records = read_records(&bytes, cut).map_err(|damaged| StoreError::Damaged {
            path: path.to_owned(),
            line: damaged.line,
            reason: damaged.reason,
        })?;
        if records.is_empty() && cut == CutLine::Refuse {
            return Err(StoreError::NoRecords {
                path: path.to_owned(),
            });
        }
        self.create_cleared(thread, cleared_upto(&records)).await?;
        let written = self.import_records(thread, &records).await;
        if written.is_err() {
            // A part of a thread would be taken for the whole the next time.
            let _ = self.remove_thread(thread).await;
        }
        written
    }

    /// Makes a thread of which the entries up to this one were cleared; nothing where none were.
    async fn create_cleared(&self, thread: &ThreadId, upto: u64) -> Result<(), StoreError> {
        if upto == 0 {
            return Ok(());
        }
        let tx = self.db().begin(false, "import the thread").await?;
        let sql = format!(
            "INSERT INTO threads (id, last_seq, cleared_upto, created_at_ms, updated_at_ms) \
             VALUES ($1, $2, $2, {now}, {now}) ON CONFLICT (id) DO NOTHING",
            now = now_ms(tx.backend())
        );
        let values = [thread.as_str().into(), upto.into()];
        if tx.execute(&sql, values).await? == 0 {
            return Err(StoreError::ThreadExists {
                thread: thread.clone(),
            });
        }
        tx.commit().await
    }

    async fn import_records(
        &self,
        thread: &ThreadId,
        records: &[Record],
    ) -> Result<(), StoreError> {
        // Each opening of the file was an epoch of its events, so the thread is opened as often.
        let mut log = self.open(thread).await?;
        let mut rest = records;
        while !rest.is_empty() {
            let opened = |record: &Record| matches!(record, Record::Opened { .. });
            let skip = rest.iter().take_while(|record| opened(record)).count();
            if let Some(Record::Opened { epoch }) = skip.checked_sub(1).and_then(|at| rest.get(at))
            {
                while log.epoch() < *epoch {
                    drop(log);
                    log = self.open(thread).await?;
                }
            }
            rest = rest.get(skip..).unwrap_or_default();
            let stretch = rest.iter().take_while(|record| !opened(record)).count();
            let (these, others) = rest.split_at(stretch.min(BATCH_RECORDS));
            log.append(these, others.is_empty()).await?;
            rest = others;
        }
        Ok(())
    }
}

/// The entry before the first one, which the thread showed no more when it was written.
fn cleared_upto(records: &[Record]) -> u64 {
    let first = records.iter().find_map(|record| match record {
        Record::Entry(entry) => Some(entry.seq),
        _ => None,
    });
    first.map_or(0, |first| first.saturating_sub(1))
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                paths.push(path);
            }
        }
        Ok(paths)
    };
    let mut paths = list().map_err(StoreError::io("list", dir))?;
    paths.sort();
    Ok(paths)
}
