//! What servers listed at an earlier time, so that a session need not wait for them, and a lazy
//! server has tools, resources and prompts before it runs. Nothing depends on it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::connection::Era;
use crate::digest::digest;
use crate::listing::{CachedLists, Listing};
use crate::server::Server;

/// The most bytes of what is kept of a server.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A directory with a file a server.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    dir: Option<PathBuf>,
    next: AtomicU64,
    /// What is in each file, by what was noted last. One writes at a time.
    contents: Mutex<HashMap<PathBuf, (u64, String)>>,
}

/// A list that is to be written.
#[derive(Debug)]
pub(crate) struct CacheWrite {
    number: u64,
    path: PathBuf,
    bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    modern: bool,
    #[serde(flatten)]
    lists: CachedLists,
}

impl Cache {
    /// Below the plugin's own directory; without one nothing is kept.
    pub(crate) fn new(data_dir: Option<&str>) -> Self {
        Self {
            dir: data_dir.map(|dir| Path::new(dir).join("servers")),
            ..Self::default()
        }
    }

    /// What a server listed. Which era it speaks is asked again: it may be a newer one now. What
    /// cannot be read is not there.
    pub(crate) fn load(&self, server: &Server) -> Option<Listing> {
        let bytes = std::fs::read(self.path(server)?).ok()?;
        let kept: CacheFile = serde_json::from_slice(&bytes).ok()?;
        let era = if kept.modern {
            Era::Modern
        } else {
            Era::Legacy
        };
        Some(Listing::from_cache(kept.lists, server, era))
    }

    /// What is to be kept of a server's list, if anything.
    pub(crate) fn prepare_write(
        &self,
        server: &Server,
        era: Era,
        listing: &Listing,
    ) -> Option<CacheWrite> {
        let path = self.path(server)?;
        let kept = CacheFile {
            modern: era == Era::Modern,
            lists: listing.to_cached(),
        };
        let bytes = serde_json::to_vec(&kept).ok()?;
        (bytes.len() <= MAX_BYTES).then(|| CacheWrite {
            number: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            path,
            bytes,
        })
    }

    /// Writes it, unless it is there already or something newer is.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(&self, note: &CacheWrite) -> io::Result<()> {
        let mut written = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = digest(&note.bytes);
        if let Some((number, same)) = written.get(&note.path)
            && (*number > note.number || *same == digest)
        {
            return Ok(());
        }
        if let Some(dir) = note.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let new = note
            .path
            .with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&new, &note.bytes)?;
        std::fs::rename(&new, &note.path)?;
        written.insert(note.path.clone(), (note.number, digest));
        Ok(())
    }

    fn path(&self, server: &Server) -> Option<PathBuf> {
        // The hash has the names of secrets and nothing that was made of the secrets themselves.
        Some(self.dir.as_ref()?.join(format!("{}.json", server.hash)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_list_stays_and_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_str());
        let path = dir.path().join("servers").join("x.json");
        let note = |number, text: &str| CacheWrite {
            number,
            path: path.clone(),
            bytes: text.as_bytes().to_vec(),
        };
        cache.write(&note(2, "new")).unwrap();
        cache.write(&note(1, "old")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(&path).unwrap();
        cache.write(&note(3, "new")).unwrap();
        assert!(!path.exists(), "it was there already");
        cache.write(&note(4, "newer")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
    }
}
