//! Google's token counts.
//!
//! `promptTokenCount` holds what was read from a cache, `candidatesTokenCount` leaves out the
//! thoughts, and what the provider's own tools brought in is counted apart.

use serde::de::MapAccess;

use crate::chat::Usage;
use crate::wire::fill::{FieldReader, set, skip, skip_rows};
use crate::wire::scan::Count;

/// `usageMetadata`, read in place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
    tool_use_prompt_token_count: Count,
}

impl<'de> FieldReader<'de> for Counts {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "promptTokenCount" => set(&mut self.prompt_token_count, map),
            "cachedContentTokenCount" => set(&mut self.cached_content_token_count, map),
            "candidatesTokenCount" => set(&mut self.candidates_token_count, map),
            "thoughtsTokenCount" => set(&mut self.thoughts_token_count, map),
            "toolUsePromptTokenCount" => set(&mut self.tool_use_prompt_token_count, map),
            _ if name.ends_with("TokensDetails") => skip_rows(map),
            _ => skip(map),
        }
    }
}

impl Counts {
    /// The five numbers.
    pub(super) fn usage(&self) -> Usage {
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
