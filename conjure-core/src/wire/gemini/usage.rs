//! Google's token counts.
//!
//! `promptTokenCount` holds what was read from a cache, `candidatesTokenCount` leaves out the
//! thoughts, and what the provider's own tools brought in is counted apart.

use serde::Deserialize;

use crate::chat::Usage;
use crate::wire::scan::Count;

/// `usageMetadata`, read in place.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counts {
    prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
    tool_use_prompt_token_count: Count,
}

impl Counts {
    /// The five numbers.
    pub(super) fn usage(self) -> Usage {
        let cache_read = self.cached_content_token_count.0;
        let prompt = self.prompt_token_count.0.saturating_sub(cache_read);
        Usage {
            input: prompt + self.tool_use_prompt_token_count.0,
            cache_read,
            cache_write: 0,
            output: self.candidates_token_count.0 + self.thoughts_token_count.0,
            reasoning: self.thoughts_token_count.0,
        }
    }
}
