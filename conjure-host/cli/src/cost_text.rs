//! What replies cost, in words.

use conjure_core::cost::{Cause, CauseCost, Cost, MissReason, TurnCost};
use conjure_core::numerals::{count, thousands};

/// Tokens and money on one line; nothing when nothing was spent.
pub(crate) fn line(spent: &TurnCost) -> Option<String> {
    let usage = &spent.cost.usage;
    if usage.total() == 0 {
        return None;
    }
    let mut said = format!("{} tokens in", thousands(usage.prompt_tokens()));
    if usage.cache_read > 0 {
        said += &format!(" ({} from the cache)", thousands(usage.cache_read));
    }
    said += &format!(", {} out", thousands(usage.output));
    if let Some(money) = money(&spent.cost) {
        said += &format!(", {money}");
    }
    for cause in &spent.causes {
        // Every request carries its tools; that is no news.
        if cause.cause != Cause::Schemas {
            said += &format!("; {}", cause_text(cause));
        }
    }
    if spent.retries > 0 {
        said += &format!(
            "; {} made again",
            count(u64::from(spent.retries), "request")
        );
    }
    Some(said)
}

/// The money, as far as prices are known.
pub(crate) fn money(cost: &Cost) -> Option<String> {
    match (cost.usd > 0.0, cost.unpriced_tokens) {
        (true, 0) => Some(dollars(cost.usd)),
        (true, more) => Some(format!(
            "{} and {} tokens without a known price",
            dollars(cost.usd),
            thousands(more)
        )),
        (false, _) => None,
    }
}

/// A cause and what it cost.
pub(crate) fn cause_text(cost: &CauseCost) -> String {
    let tokens = thousands(cost.tokens);
    let said = match &cost.cause {
        Cause::CacheMiss { reason } => {
            format!(
                "{tokens} tokens not read from the cache: {}",
                miss_reason_text(*reason)
            )
        }
        Cause::Retry => format!("{tokens} tokens of replies that broke off or were begun again"),
        Cause::Schemas => format!("{tokens} tokens of tool definitions"),
        Cause::Delegated => format!("{tokens} tokens of work that backends delegated"),
        Cause::Sampling => format!("{tokens} tokens that plugins asked for"),
        Cause::Summary => format!(
            "{tokens} tokens for {}",
            count(cost.times.into(), "summary")
        ),
    };
    if cost.usd > 0.0 {
        format!("{said} ({})", dollars(cost.usd))
    } else {
        said
    }
}

fn miss_reason_text(reason: MissReason) -> &'static str {
    match reason {
        MissReason::Switched => "another model",
        MissReason::ToolsChanged => "the tools changed",
        MissReason::SettingsChanged => "the settings changed",
        MissReason::ViewChanged => "the conversation was folded or unfolded",
        MissReason::Expired => "more than five minutes had passed",
        MissReason::NotFound => "the provider had it no more",
    }
}

/// Cents and what is below them, without noise.
pub(crate) fn dollars(usd: f64) -> String {
    match usd {
        usd if usd >= 1.0 => format!("${usd:.2}"),
        usd if usd >= 0.01 => format!("${usd:.3}"),
        usd => format!("${usd:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::Usage;

    use super::*;

    #[test]
    fn money_is_read_at_a_glance() {
        assert_eq!(dollars(12.345), "$12.35");
        assert_eq!(dollars(0.0456), "$0.046");
        assert_eq!(dollars(0.000_123), "$0.00012");
    }

    #[test]
    fn what_was_spent_is_one_line_and_nothing_is_none() {
        let mut spent = TurnCost {
            cost: Cost {
                usage: Usage {
                    input: 1_000,
                    cache_read: 9_000,
                    cache_write: 0,
                    output: 250,
                    reasoning: 0,
                },
                usd: 0.0123,
                unpriced_tokens: 0,
            },
            retries: 1,
            causes: vec![CauseCost {
                cause: Cause::CacheMiss {
                    reason: MissReason::ToolsChanged,
                },
                times: 1,
                tokens: 2_000,
                usd: 0.0054,
            }],
            ..TurnCost::default()
        };
        assert_eq!(
            line(&spent).unwrap(),
            "10,000 tokens in (9,000 from the cache), 250 out, $0.012; 2,000 tokens not read from \
             the cache: the tools changed ($0.00540); 1 request made again"
        );
        spent.cost.unpriced_tokens = 10;
        assert!(
            line(&spent)
                .unwrap()
                .contains("$0.012 and 10 tokens without a known price")
        );
        assert_eq!(line(&TurnCost::default()), None);
    }
}
