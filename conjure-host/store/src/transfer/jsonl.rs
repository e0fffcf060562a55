//! Threads that were kept as files of JSON lines: one file a thread, one record a line.
//!
//! A last line that is cut off is what a crash left behind, and is not read. A damaged line
//! anywhere else is said, never skipped.

use std::path::{Path, PathBuf};

use crate::{Log as _, Record, Store, StoreError, ThreadId};

/// Records of one append.
const AT_ONCE: usize = 1_000;

/// What became of a directory of files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Threads that are here now.
    pub new: Vec<ThreadId>,
    /// Threads that were here already, and were left as they are.
    pub known: Vec<ThreadId>,
}

impl Store {
    /// Reads the threads of a directory of `*.jsonl` files. A thread that is here already is left
    /// as it is; one that cannot be read whole is not imported, nor are those behind it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the file and the line; [`StoreError::Gap`] when entries are
    /// missing; [`StoreError::Io`], and what the database says.
    pub async fn import_json_lines(&self, dir: &Path) -> Result<Imported, StoreError> {
        let mut imported = Imported::default();
        for path in files(dir)? {
            let name = path.file_stem().and_then(|name| name.to_str());
            let Some(thread) = name.and_then(|name| ThreadId::parse(name).ok()) else {
                continue;
            };
            match self.thread(&thread).await {
                Ok(_) => imported.known.push(thread),
                Err(StoreError::NoThread { .. }) => {
                    self.import_file(&path, &thread).await?;
                    imported.new.push(thread);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(imported)
    }

    async fn import_file(&self, path: &Path, thread: &ThreadId) -> Result<(), StoreError> {
        let bytes = tokio::fs::read(path)
            .await
            .map_err(StoreError::io("read", path))?;
        let records = parse(&bytes, path)?;
        let written = self.import_records(thread, &records).await;
        if written.is_err() {
            // A part of a thread would be taken for the whole the next time.
            let _ = self.remove_thread(thread).await;
        }
        written
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
            let (these, others) = rest.split_at(stretch.min(AT_ONCE));
            log.append(these, others.is_empty()).await?;
            rest = others;
        }
        Ok(())
    }
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

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Record>, StoreError> {
    let whole = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    bytes
        .get(..whole)
        .unwrap_or_default()
        .split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|error| StoreError::Damaged {
                path: path.to_owned(),
                line: index + 1,
                reason: error.to_string(),
            })
        })
        .collect()
}
