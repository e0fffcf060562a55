//! Blobs: bytes by their SHA-256, in pieces in the database's own tables.
//!
//! Either database keeps them the same way: what refers to a blob and the blob are in one transaction
//! and in one backup, hosts that share a server share them, and nothing is left in a directory by a
//! crash. A file that an entry places at `blob:<sha256>` refers to one. What nothing refers to is
//! collected.

use std::fmt::Write as _;

use async_recursion::async_recursion as boxed;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::blob_rows::{Blob, GRACE_MS, drop_unused};
use crate::database::now_ms;
use crate::row::{column, number};
use crate::sql::Value;
use crate::{Store, StoreError, ThreadId};

/// Bytes of one piece.
const PIECE_BYTES: usize = 256 * 1024;
/// Operation that errors name.
const KEEPING: &str = "keep the file";

impl Store {
    /// Keeps bytes, for a file of `thread`. The same bytes are kept once.
    ///
    /// # Errors
    /// [`StoreError::Quota`]; [`StoreError::Io`] when the bytes cannot be read; what the database
    /// says. Nothing is kept then.
    pub async fn put_blob(
        &self,
        thread: &ThreadId,
        mut bytes: impl AsyncRead + Unpin,
    ) -> Result<Blob, StoreError> {
        let room = self.quota_uses(thread).await?;
        let upload = uuid::Uuid::now_v7().to_string();
        let put = self.put_pieces(&upload, &room, &mut bytes).await;
        let kept = match put {
            Ok(blob) => self.finish(&upload, &blob).await.map(|()| blob),
            Err(error) => Err(error),
        };
        if kept.is_err() {
            // What stays when this fails too is collected later.
            let _ = self.drop_upload(&upload).await;
        }
        kept
    }

    /// A blob, if it is here.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], and what the database says.
    #[boxed]
    pub async fn blob(&self, sha256: &str) -> Result<Blob, StoreError> {
        let sql = "SELECT size FROM blobs WHERE sha256 = $1";
        let row = self.one(sql, [sha256.into()]).await?;
        let row = row.ok_or_else(|| StoreError::NotFound {
            kind: "blob",
            id: sha256.to_owned(),
        })?;
        Ok(Blob {
            sha256: sha256.to_owned(),
            size: number(&row, "size")?,
        })
    }

    /// Bytes of a blob from `offset` on: at most `length`, and fewer at its end. Reads only the
    /// pieces that hold them.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Corrupt`] when a piece is missing, and what the
    /// database says.
    #[boxed]
    pub async fn read_blob(
        &self,
        sha256: &str,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, StoreError> {
        let blob = self.blob(sha256).await?;
        let end = blob.size.min(offset.saturating_add(length as u64));
        if offset >= end {
            return Ok(Vec::new());
        }
        let piece = PIECE_BYTES as u64;
        let (first, last) = (offset / piece, (end - 1) / piece);
        let sql = "SELECT bytes FROM blob_pieces WHERE upload = \
                   (SELECT upload FROM blobs WHERE sha256 = $1) \
                   AND number >= $2 AND number <= $3 ORDER BY number";
        let rows = self
            .all(sql, [sha256.into(), first.into(), last.into()])
            .await?;
        let mut bytes = Vec::new();
        for row in &rows {
            bytes.extend(column::<Vec<u8>>(row, "bytes")?);
        }
        let skip = usize::try_from(offset - first * piece).unwrap_or(usize::MAX);
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let wanted = bytes.get(skip..skip.saturating_add(wanted));
        wanted
            .map(<[u8]>::to_vec)
            .ok_or_else(|| StoreError::Corrupt {
                what: "read the file",
                reason: format!("blob {sha256} lacks a piece"),
            })
    }

    /// Deletes blobs that nothing refers to and uploads that nobody finished. How many bytes of
    /// blobs that were.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn collect_blobs(&self) -> Result<u64, StoreError> {
        let old = format!("{} - {GRACE_MS}", now_ms(self.db().backend()));
        let sql = format!("SELECT id FROM blob_uploads WHERE touched_at_ms < {old}");
        for row in self.all(&sql, []).await? {
            self.drop_upload(&column::<String>(&row, "id")?).await?;
        }
        let sql = format!(
            "SELECT sha256, size FROM blobs WHERE touched_at_ms < {old} AND NOT EXISTS \
             (SELECT 1 FROM artifacts WHERE blob_sha256 = sha256)"
        );
        let mut freed = 0;
        for row in self.all(&sql, []).await? {
            let tx = self.db().begin(false, "collect blobs").await?;
            let sha256: String = column(&row, "sha256")?;
            if drop_unused(&tx, &sha256).await? {
                freed += number(&row, "size")?;
            }
            tx.commit().await?;
        }
        Ok(freed)
    }

    /// Quotas that apply to a thread, with what is used of each.
    async fn quota_uses(&self, thread: &ThreadId) -> Result<Vec<QuotaUse>, StoreError> {
        let sql = "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS used FROM blobs";
        let all = self.one(sql, []).await?;
        let sql = "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS used FROM blobs \
                   WHERE sha256 IN (SELECT blob_sha256 FROM artifacts WHERE thread_id = $1)";
        let own = self.one(sql, [thread.as_str().into()]).await?;
        let quotas = self.quotas();
        let mut rooms = Vec::new();
        for (whose, row, limit) in [
            ("the store".to_owned(), all, quotas.total),
            (format!("thread {thread}"), own, quotas.thread),
        ] {
            let used = row.map_or(Ok(0), |row| number(&row, "used"))?;
            rooms.push(QuotaUse {
                owner: whose,
                used,
                limit,
            });
        }
        Ok(rooms)
    }

    async fn put_pieces(
        &self,
        upload: &str,
        rooms: &[QuotaUse],
        bytes: &mut (impl AsyncRead + Unpin),
    ) -> Result<Blob, StoreError> {
        let mut hash = Sha256::new();
        let mut size = 0_u64;
        for number in 0_u64.. {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            (&mut *bytes)
                .take(PIECE_BYTES as u64)
                .read_to_end(&mut piece)
                .await
                .map_err(StoreError::io("read", "the file to be kept"))?;
            if piece.is_empty() {
                break;
            }
            size += piece.len() as u64;
            for room in rooms {
                room.check_room(size)?;
            }
            hash.update(&piece);
            // A transaction each, so that threads are written in between.
            let tx = self.db().begin(false, KEEPING).await?;
            let sql = format!(
                "INSERT INTO blob_uploads (id, touched_at_ms) VALUES ($1, {now}) \
                 ON CONFLICT (id) DO UPDATE SET touched_at_ms = {now}",
                now = now_ms(tx.backend())
            );
            tx.execute(&sql, [upload.into()]).await?;
            let sql = "INSERT INTO blob_pieces (upload, number, bytes) VALUES ($1, $2, $3)";
            let values: [Value; 3] = [upload.into(), number.into(), piece.into()];
            tx.execute(sql, values).await?;
            tx.commit().await?;
        }
        Ok(Blob {
            sha256: hex(&hash.finalize()),
            size,
        })
    }

    async fn finish(&self, upload: &str, blob: &Blob) -> Result<(), StoreError> {
        let tx = self.db().begin(true, KEEPING).await?;
        let sql = format!(
            "INSERT INTO blobs (sha256, size, upload, touched_at_ms) VALUES ($1, $2, $3, {now}) \
             ON CONFLICT (sha256) DO UPDATE SET touched_at_ms = {now}",
            now = now_ms(tx.backend())
        );
        let values: [Value; 3] = [blob.sha256.as_str().into(), blob.size.into(), upload.into()];
        tx.execute(&sql, values).await?;
        // Bytes that were here already stay under their first name.
        let sql = "DELETE FROM blob_pieces WHERE upload = $1 AND NOT EXISTS \
                   (SELECT 1 FROM blobs WHERE blobs.upload = $1)";
        tx.execute(sql, [upload.into()]).await?;
        tx.execute("DELETE FROM blob_uploads WHERE id = $1", [upload.into()])
            .await?;
        tx.commit().await
    }

    async fn drop_upload(&self, upload: &str) -> Result<(), StoreError> {
        let tx = self.db().begin(false, "collect blobs").await?;
        for sql in [
            "DELETE FROM blob_pieces WHERE upload = $1 AND NOT EXISTS \
             (SELECT 1 FROM blobs WHERE blobs.upload = $1)",
            "DELETE FROM blob_uploads WHERE id = $1",
        ] {
            tx.execute(sql, [upload.into()]).await?;
        }
        tx.commit().await
    }
}

struct QuotaUse {
    owner: String,
    used: u64,
    limit: u64,
}

impl QuotaUse {
    fn check_room(&self, size: u64) -> Result<(), StoreError> {
        if self.used.saturating_add(size) <= self.limit {
            return Ok(());
        }
        Err(StoreError::Quota {
            owner: self.owner.clone(),
            size,
            used: self.used,
            limit: self.limit,
        })
    }
}

/// Bytes such as a digest, two small letters or digits each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
