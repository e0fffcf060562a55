//! Token counts of the Responses API.
//!
//! `input_tokens` holds what was read from and written to a cache, `output_tokens` holds the
//! reasoning.

use serde_json::Value;

use crate::chat::Usage;

/// The five numbers.
pub(super) fn usage(counts: &Value) -> Usage {
    let count = |path: &str| {
        let count = counts.pointer(path).and_then(Value::as_u64);
        count.unwrap_or_default()
    };
    let cache_read = count("/input_tokens_details/cached_tokens");
    let cache_write = count("/input_tokens_details/cache_write_tokens");
    Usage {
        input: count("/input_tokens").saturating_sub(cache_read + cache_write),
        cache_read,
        cache_write,
        output: count("/output_tokens"),
        reasoning: count("/output_tokens_details/reasoning_tokens"),
    }
}
