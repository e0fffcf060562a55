//! The cache itself: entries, and how often they were asked for.
//!
//! Keeps everything in memory under fixed bounds, so that one session cannot fill the host. It
//! never evicts: what the model stored stays until the model removes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conjure_skill_sdk::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most bytes that keys and values may have together.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How many keys `list` shows. Keeps the call short enough to run in place.
const MAX_LISTED: usize = 200;

/// Values under keys.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeyValueCache {
    // Ordered, so that listing by prefix needs no sorting.
    entries: BTreeMap<String, String>,
    #[serde(default)]
    hits: u64,
    #[serde(default)]
    misses: u64,
    #[serde(skip)]
    bytes: usize,
}

/// What `read stats` gives.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    /// How many `get` found a value.
    pub(crate) hits: u64,
    /// How many `get` found none.
    pub(crate) misses: u64,
    /// How many values there are.
    pub(crate) entries: usize,
    /// Bytes of all keys and values.
    pub(crate) bytes: usize,
}

impl KeyValueCache {
    /// The cache that another version exported.
    pub(crate) fn from_state(state: Value) -> Result<Self> {
        let mut cache: Self = serde_json::from_value(state)
            .map_err(|e| Error::invalid(format!("the state of the older version: {e}")))?;
        cache.bytes = cache.entries.iter().map(|(k, v)| k.len() + v.len()).sum();
        Ok(cache)
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(old) = self.entries.get_mut(key) {
            let bytes = self.bytes - old.len() + value.len();
            check_size(bytes)?;
            old.clear();
            old.push_str(value);
            self.bytes = bytes;
        } else {
            let bytes = self.bytes + key.len() + value.len();
            check_size(bytes)?;
            self.entries.insert(key.to_owned(), value.to_owned());
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Looks a value up, and counts whether it was there.
    pub(crate) fn get(&mut self, key: &str) -> Option<&str> {
        let found = self.entries.get(key).map(String::as_str);
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found
    }

    /// Whether there was something to delete.
    pub(crate) fn delete(&mut self, key: &str) -> bool {
        match self.entries.remove_entry(key) {
            Some((key, value)) => {
                self.bytes -= key.len() + value.len();
                true
            }
            None => false,
        }
    }

    /// Removes every entry and says how many there were. The counts of hits and misses stay.
    pub(crate) fn clear(&mut self) -> usize {
        self.bytes = 0;
        std::mem::take(&mut self.entries).len()
    }

    /// Keys with their sizes, one a line, in byte order.
    pub(crate) fn list(&self, prefix: &str) -> String {
        let mut matching = self
            .entries
            .range::<str, _>((
                std::ops::Bound::Included(prefix),
                std::ops::Bound::Unbounded,
            ))
            .take_while(|(key, _)| key.starts_with(prefix));
        let mut text = String::new();
        for (key, value) in matching.by_ref().take(MAX_LISTED) {
            let _ = writeln!(text, "{key}\t{} bytes", value.len());
        }
        if matching.next().is_some() {
            let _ = writeln!(
                text,
                "… and more: the cache has {} entries. `list PREFIX` narrows it down.",
                self.entries.len()
            );
        }
        if text.is_empty() {
            text.push_str("nothing is stored");
            if !prefix.is_empty() {
                let _ = write!(text, " under keys that begin with `{prefix}`");
            }
        } else {
            text.pop();
        }
        text
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            hits: self.hits,
            misses: self.misses,
            entries: self.entries.len(),
            bytes: self.bytes,
        }
    }
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes > MAX_BYTES {
        return Err(Error::new(format!(
            "the value was not stored: the cache holds at most {} MiB. Make room with `delete K` \
             or `clear`.",
            MAX_BYTES / 1024 / 1024
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_order_and_by_prefix() {
        let mut cache = KeyValueCache::default();
        for key in ["b", "a/2", "a/1", "c"] {
            cache.set(key, "xyz").unwrap();
        }
        assert_eq!(cache.list("a/"), "a/1\t3 bytes\na/2\t3 bytes");
        assert_eq!(
            cache.list("z"),
            "nothing is stored under keys that begin with `z`"
        );
        cache.clear();
        assert_eq!(cache.list(""), "nothing is stored");
    }

    #[test]
    fn a_long_list_says_that_there_is_more() {
        let mut cache = KeyValueCache::default();
        for n in 0..=MAX_LISTED {
            cache.set(&format!("{n:04}"), "").unwrap();
        }
        assert_eq!(cache.list("").lines().count(), MAX_LISTED + 1);
        assert!(
            cache
                .list("")
                .contains("and more: the cache has 201 entries")
        );
    }

    #[test]
    fn a_full_cache_refuses_and_stays_as_it_was() {
        let mut cache = KeyValueCache::default();
        cache.set("k", "v").unwrap();
        let large = "x".repeat(MAX_BYTES);
        assert!(cache.set("k", &large).is_err());
        assert!(cache.set("l", &large).is_err());
        assert_eq!(cache.get("k"), Some("v"));
        assert_eq!(cache.stats().bytes, 2);
    }
}
