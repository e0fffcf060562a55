//! What a page was sent, remembered as a number: one that is followed for hours keeps no copy of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The same for the same text, and hardly ever for another one.
pub(super) fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
