//! Tokens, in five numbers that do not overlap.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Tokens of a round, a turn or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input read from a cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Input written to a cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// How much of the output was reasoning, where the provider tells.
    #[serde(default)]
    pub reasoning: u64,
}

impl Usage {
    /// All input.
    pub fn prompt_tokens(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }

    /// All input and output.
    pub fn total(&self) -> u64 {
        self.prompt_tokens() + self.output
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}
