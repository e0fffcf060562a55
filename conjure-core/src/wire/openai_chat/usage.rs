//! Token counts of Chat Completions.
//!
//! `prompt_tokens` holds what was read from and written to a cache, `completion_tokens` holds the
//! reasoning. DeepSeek tells the cache in fields of its own.

use serde_json::Value;

use crate::chat::Usage;

/// The five numbers.
pub(super) fn usage(counts: &Value) -> Usage {
    let count = |path: &str| counts.pointer(path).and_then(Value::as_u64);
    let cache_read = count("/prompt_tokens_details/cached_tokens")
        .or_else(|| count("/prompt_cache_hit_tokens"))
        .unwrap_or_default();
    let cache_write = count("/prompt_tokens_details/cache_write_tokens").unwrap_or_default();
    let input = count("/prompt_tokens").unwrap_or_default();
    Usage {
        input: input.saturating_sub(cache_read + cache_write),
        cache_read,
        cache_write,
        output: count("/completion_tokens").unwrap_or_default(),
        reasoning: count("/completion_tokens_details/reasoning_tokens").unwrap_or_default(),
    }
}
