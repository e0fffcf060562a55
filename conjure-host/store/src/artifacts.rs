//! Artifacts: the files that a thread's entries name.

use async_recursion::async_recursion as boxed;

use crate::blob_rows::mark_referenced;
use crate::lineage::VisibleEntries;
use crate::row::{column, number, text};
use crate::{Blob, Store, StoreError, ThreadId};

/// A file, as an entry names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRow {
    /// The thread whose own entry names it: the one that shows it, or an ancestor.
    pub thread: ThreadId,
    /// The entry.
    pub entry_seq: u64,
    /// Handle of the file, such as `file-3`.
    pub id: String,
    /// Name of the file, for people.
    pub name: String,
    /// Media type, such as `text/csv`.
    pub media_type: String,
    /// Bytes, when known.
    pub size: Option<u64>,
    /// The backend instance that made it.
    pub source: String,
    /// The call that made it.
    pub call_id: Option<String>,
    /// Place of the file's bytes, in the host's terms.
    pub location: Option<String>,
    /// Id of the file at its backend.
    pub remote: Option<String>,
    /// The blob that has its bytes.
    pub blob: Option<String>,
}

impl Store {
    /// The files of what a thread shows, in the order of their entries.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn artifacts(&self, thread: &ThreadId) -> Result<Vec<ArtifactRow>, StoreError> {
        let tx = self.db().snapshot("read the thread's files").await?;
        let shown = VisibleEntries::read(&tx, thread).await?;
        let sql = "SELECT * FROM artifacts WHERE thread_id = $1 AND entry_seq > $2 \
                   AND entry_seq <= $3 ORDER BY entry_seq";
        let rows = shown.rows(&tx, sql).await?;
        rows.iter()
            .map(|row| {
                let size: Option<i64> = column(row, "size")?;
                Ok(ArtifactRow {
                    thread: ThreadId::stored(column(row, "thread_id")?),
                    entry_seq: number(row, "entry_seq")?,
                    id: column(row, "artifact_id")?,
                    name: column(row, "name")?,
                    media_type: column(row, "media_type")?,
                    size: size.and_then(|size| u64::try_from(size).ok()),
                    source: column(row, "source")?,
                    call_id: text(row, "call_id")?,
                    location: text(row, "place")?,
                    remote: text(row, "remote")?,
                    blob: text(row, "blob_sha256")?,
                })
            })
            .collect()
    }

    /// Takes note that a file's bytes are this blob's: they came from where they were. Whether it
    /// did: what was cleared meanwhile has no files.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn keep_artifact(&self, file: &ArtifactRow, blob: &Blob) -> Result<bool, StoreError> {
        let tx = self.db().begin(true, "keep the file").await?;
        let sql = "UPDATE artifacts SET blob_sha256 = $1, size = $2 \
                   WHERE thread_id = $3 AND entry_seq = $4";
        let values = [
            blob.sha256.as_str().into(),
            blob.size.into(),
            file.thread.as_str().into(),
            file.entry_seq.into(),
        ];
        let is_there = tx.execute(sql, values).await? > 0;
        if is_there {
            mark_referenced(&tx, &blob.sha256).await?;
        }
        tx.commit().await?;
        Ok(is_there)
    }
}
