//! How much of the files that a plugin names at once is read, and for how long: all of them together may
//! have no more bytes than a single one, and the large ones only as long as somebody waits.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use super::digest::{LARGE, MAX_BYTES, abandoned_error};

/// Bytes that may still be read.
#[derive(Debug)]
pub(crate) struct HashBudget {
    remaining: AtomicU64,
    cancelled: CancellationToken,
}

impl HashBudget {
    /// The budget of one result, until nobody waits for it any more. Small files of a call that was
    /// cancelled are taken in all the same.
    pub(crate) fn new(over: CancellationToken) -> Self {
        Self {
            remaining: AtomicU64::new(MAX_BYTES),
            cancelled: over,
        }
    }

    /// Asked before more bytes of a file are hashed, of which so many were read with these.
    ///
    /// # Errors
    /// Why it is not read on.
    pub(super) fn reserve(&self, bytes: u64, read: u64) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(bytes);
        let taken = self
            .remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if taken.is_err() {
            return Err(io::Error::other(
                "this call's files have more than 64 GiB together, and no more of them are taken in; name \
                 the others in another call",
            ));
        }
        if read > LARGE && self.cancelled.is_cancelled() {
            return Err(abandoned_error());
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn of_bytes(left: u64, over: CancellationToken) -> Self {
        Self {
            remaining: AtomicU64::new(left),
            cancelled: over,
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::FileRef;

    use super::*;
    use crate::artifacts::Artifacts;

    #[test]
    fn files_of_one_result_have_a_limit_together_and_large_ones_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
        let over = CancellationToken::new();
        let budget = HashBudget::of_bytes(3 * LARGE, over.clone());
        let take = |name: &str, size: u64| {
            let path = dir.path().join(name);
            let made = std::fs::File::create(&path).unwrap();
            made.set_len(size).unwrap();
            let file = FileRef::at(path.display().to_string());
            let taken = artifacts.register_within("own", &file, None, &budget);
            taken.map_err(|refused| refused.to_string())
        };
        take("one", LARGE + 1).unwrap();
        let refused = take("two", 2 * LARGE).unwrap_err();
        assert!(refused.contains("together"), "{refused}");
        // Nobody waits any more; what is read at once comes all the same.
        over.cancel();
        let budget = HashBudget::of_bytes(3 * LARGE, over);
        let check = |read| budget.reserve(1, read).map_err(|error| error.to_string());
        check(LARGE).unwrap();
        let refused = check(LARGE + 1).unwrap_err();
        assert!(refused.contains("nobody waits"), "{refused}");
    }

    #[test]
    fn nobody_waits_for_what_was_observed_once_the_session_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().into()], dir.path().join("cache"));
        let budget = artifacts.budget();
        assert!(budget.reserve(1, LARGE + 1).is_ok());
        artifacts.end();
        assert!(budget.reserve(1, LARGE + 1).is_err());
    }
}
