//! Anthropic's token counts.
//!
//! `input_tokens` leaves out what was read from or written to a cache, and the counts of
//! `message_delta` are cumulative: they replace those of `message_start`, they are not added.

use serde_json::Value;

use crate::chat::Usage;

/// Takes what `counts` says into `usage`. A count that is missing, null or 0 replaces nothing:
/// some gateways fill in only one of the two events.
pub(super) fn take(usage: &mut Usage, counts: &Value) {
    let count = |name: &str| counts.get(name).and_then(Value::as_u64);
    let written_by_age = || {
        let ages = counts.get("cache_creation")?.as_object()?;
        Some(ages.values().filter_map(Value::as_u64).sum())
    };
    let thought = counts
        .get("output_tokens_details")
        .and_then(|details| details.get("thinking_tokens"))
        .and_then(Value::as_u64);
    replace(&mut usage.input, count("input_tokens"));
    replace(&mut usage.cache_read, count("cache_read_input_tokens"));
    replace(
        &mut usage.cache_write,
        count("cache_creation_input_tokens").or_else(written_by_age),
    );
    replace(&mut usage.output, count("output_tokens"));
    replace(&mut usage.reasoning, thought);
}

fn replace(old: &mut u64, new: Option<u64>) {
    if let Some(new) = new.filter(|new| *new > 0) {
        *old = new;
    }
}
