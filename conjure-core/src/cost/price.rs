//! Prices of tokens.

use serde::{Deserialize, Serialize};

use crate::chat::Usage;

/// What a million tokens cost, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    /// Input that no cache had.
    pub input: Option<f64>,
    /// Input out of the cache.
    pub cache_read: Option<f64>,
    /// Input into the cache; as `input` where it is not said.
    pub cache_write: Option<f64>,
    /// Output, thoughts among it.
    pub output: Option<f64>,
}

impl Price {
    /// What this usage costs in US dollars; nothing when a price that it needs is not known.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Option<f64> {
        let cost = |tokens: u64, price: Option<f64>| match tokens {
            0 => Some(0.0),
            tokens => price.map(|price| tokens as f64 * price / 1e6),
        };
        Some(
            cost(usage.input, self.input)?
                + cost(usage.cache_read, self.cache_read)?
                + cost(usage.cache_write, self.cache_write.or(self.input))?
                + cost(usage.output, self.output)?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_sum_of_its_buckets_or_not_known() {
        let price = Price {
            input: Some(2.0),
            cache_read: Some(0.5),
            cache_write: None,
            output: Some(8.0),
        };
        let usage = Usage {
            input: 1_000_000,
            cache_read: 2_000_000,
            cache_write: 500_000,
            output: 250_000,
            reasoning: 100_000,
        };
        assert_eq!(price.of(&usage), Some(2.0 + 1.0 + 1.0 + 2.0));
        assert_eq!(Price::default().of(&usage), None);
        assert_eq!(Price::default().of(&Usage::default()), Some(0.0));
    }
}
