//! Rows of blobs: what refers to one, and when one goes.

use crate::StoreError;
use crate::database::{Transaction, now_ms};
use crate::row::column;

/// What was put and is referred to by nothing is kept for so long, in milliseconds: whoever put it
/// has yet to say so.
pub(crate) const GRACE_MS: i64 = 60 * 60 * 1000;

/// A blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// SHA-256 of the bytes, in lower-case hex.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
}

/// Limits on the bytes that blobs may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Bytes of all blobs together; 10 GiB unless told otherwise.
    pub total: u64,
    /// Bytes of the blobs that one thread's own entries refer to; 2 GiB unless told otherwise.
    pub thread: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            total: 10 << 30,
            thread: 2 << 30,
        }
    }
}

/// Notes that a file refers to a blob: from then on it stays for that reason only.
pub(crate) async fn mark_referenced(tx: &Transaction<'_>, sha256: &str) -> Result<(), StoreError> {
    let sql = "UPDATE blobs SET touched_at_ms = 0 WHERE sha256 = $1";
    tx.execute(sql, [sha256.into()]).await.map(|_| ())
}

/// Deletes a blob that no file refers to, and that nobody is about to refer to. Whether it did.
pub(crate) async fn drop_unused(tx: &Transaction<'_>, sha256: &str) -> Result<bool, StoreError> {
    let sql = format!(
        "DELETE FROM blobs WHERE sha256 = $1 AND touched_at_ms < {} - {GRACE_MS} \
         AND NOT EXISTS (SELECT 1 FROM artifacts WHERE blob_sha256 = $1) RETURNING upload",
        now_ms(tx.backend())
    );
    let Some(row) = tx.one(&sql, [sha256.into()]).await? else {
        return Ok(false);
    };
    let upload: String = column(&row, "upload")?;
    let sql = "DELETE FROM blob_pieces WHERE upload = $1";
    tx.execute(sql, [upload.into()]).await?;
    Ok(true)
}
