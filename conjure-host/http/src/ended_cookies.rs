//! The cookies of browsers that were logged out before their time, which nobody can use any more.
//!
//! The hashes are in a file of the directory of data, so that each server of the directory knows them,
//! also after a restart. The hash of a cookie lets nobody in, and is held only until the cookie would
//! have ended by itself.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use conjure_config::fs;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::timeout;

/// The file in the directory of data.
const COOKIES_FILE: &str = "ended-cookies.json";
/// What is locked while it is changed.
const LOCK_FILE: &str = "ended-cookies.lock";
/// How often whoever waits for the end of a cookie looks at the file: other servers tell nobody.
const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// The cookies that were ended, by their hashes, with when they end by themselves, in milliseconds
/// since 1970.
type CookieExpiries = BTreeMap<String, u64>;

/// When a file was changed, and its bytes: another one has others.
type CookieFileStamp = (SystemTime, u64);

/// The cookies that a directory's servers let in no more.
#[derive(Debug)]
pub(super) struct EndedCookies {
    file: PathBuf,
    lock: PathBuf,
    /// What was read last: each request of a browser asks for it.
    cache: Mutex<Option<(CookieFileStamp, Arc<CookieExpiries>)>>,
    /// Told when this server ends one.
    additions: watch::Sender<()>,
}

impl EndedCookies {
    pub(super) fn of(data_dir: &Path) -> Self {
        Self {
            file: data_dir.join(COOKIES_FILE),
            lock: data_dir.join(LOCK_FILE),
            cache: Mutex::default(),
            additions: watch::Sender::new(()),
        }
    }

    /// Whether a cookie was ended; also where nobody can tell.
    pub(super) fn has(&self, cookie: &str) -> bool {
        match self.current() {
            Ok(ended) => ended.contains_key(&hash(cookie)),
            Err(error) => {
                tracing::warn!("no browser is let in by a cookie: {error}");
                true
            }
        }
    }

    /// Waits until a cookie is ended, by this server or by another one of the directory.
    pub(super) async fn wait_until_ended(&self, cookie: &str) {
        // From before it is looked at: what is added meanwhile is not missed.
        let mut added = self.additions.subscribe();
        while !self.has(cookie) {
            let _ = timeout(POLL_INTERVAL, added.changed()).await;
        }
    }

    /// Ends a cookie that would end at `end`, and forgets those that have ended by now.
    ///
    /// # Errors
    /// The system's, with the path. The cookie is good still then.
    pub(super) fn add(&self, cookie: &str, end: u64, now: u64) -> io::Result<()> {
        let _held = fs::lock(&self.lock)?;
        let mut ended = self.read()?;
        ended.retain(|_, end| now < *end);
        ended.insert(hash(cookie), end);
        fs::write_atomic(&self.file, &serde_json::to_vec(&ended)?)?;
        *self.cache() = None;
        self.additions.send_replace(());
        Ok(())
    }

    /// The cookies that were ended so far: read again only where the file is another one than before.
    fn current(&self) -> io::Result<Arc<CookieExpiries>> {
        let mut known = self.cache();
        // From before it is read: what is changed meanwhile is read the next time.
        let changed = self.changed_at();
        if let Some((at, ended)) = known.as_ref()
            && changed == Some(*at)
        {
            return Ok(Arc::clone(ended));
        }
        let ended = Arc::new(self.read()?);
        *known = changed.map(|at| (at, Arc::clone(&ended)));
        Ok(ended)
    }

    fn changed_at(&self) -> Option<CookieFileStamp> {
        Some((fs::changed_at(&self.file)?, fs::size(&self.file).ok()?))
    }

    fn cache(&self) -> MutexGuard<'_, Option<(CookieFileStamp, Arc<CookieExpiries>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> io::Result<CookieExpiries> {
        let bytes = match fs::read(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CookieExpiries::new()),
            read => read?,
        };
        serde_json::from_slice(&bytes).map_err(|error| {
            let file = self.file.display();
            io::Error::new(
                ErrorKind::InvalidData,
                format!(
                    "{file} does not hold what the server writes ({error}); put a copy of it back, or \
                     remove it together with the file `http-token` beside it, which ends all cookies"
                ),
            )
        })
    }
}

fn hash(cookie: &str) -> String {
    let hash = Sha256::digest(cookie.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn what_one_server_ended_is_ended_for_each_and_forgotten_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (EndedCookies::of(dir.path()), EndedCookies::of(dir.path()));
        assert!(!one.has("a"));
        one.add("a", 10, 1).unwrap();
        other.add("b", 20, 1).unwrap();
        assert!(one.has("a") && one.has("b") && other.has("a") && !other.has("c"));
        assert!(fs::is_private(&one.file).unwrap());
        let text = fs::read_to_string(&one.file).unwrap();
        assert!(!text.contains("\"a\""), "{text}");
        one.add("c", 30, 15).unwrap();
        assert_eq!(one.read().unwrap().len(), 2);
        // Where nobody can tell, nobody is let in.
        fs::write(&one.file, "{").unwrap();
        assert!(one.has("d"));
        assert!(one.add("d", 30, 15).is_err());
    }

    #[test]
    fn the_file_is_read_again_only_after_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (EndedCookies::of(dir.path()), EndedCookies::of(dir.path()));
        one.add("a", 10, 1).unwrap();
        let first = one.current().unwrap();
        assert!(Arc::ptr_eq(&first, &one.current().unwrap()));
        other.add("b", 20, 1).unwrap();
        let second = one.current().unwrap();
        assert!(!Arc::ptr_eq(&first, &second) && second.len() == 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_the_end_of_a_cookie_is_told_also_of_another_servers() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (EndedCookies::of(dir.path()), EndedCookies::of(dir.path()));
        one.add("a", 10, 1).unwrap();
        one.wait_until_ended("a").await;
        for (server, cookie) in [(&one, "b"), (&other, "c")] {
            let mut waiting = std::pin::pin!(one.wait_until_ended(cookie));
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut nobody).is_pending());
            server.add(cookie, 20, 1).unwrap();
            waiting.await;
        }
    }
}
