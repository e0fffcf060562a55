//! Short digests, for names that give nothing away.

use sha2::{Digest as _, Sha256};

/// The first 16 hex digits of a SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
