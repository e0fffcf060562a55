//! Threads of a few replies, and what each costs and why.

use super::*;
use crate::chat::{Message, Meta, Part, Role, Usage};
use crate::log::{Entry, EntryBody, Spending, TableChange, test_kit};

const PRICE: Price = Price {
    input: Some(3.0),
    cache_read: Some(0.3),
    cache_write: Some(3.75),
    output: Some(15.0),
};

fn price(provider: &str, _: &str) -> Option<Price> {
    (provider != "local").then_some(PRICE)
}

fn usage(input: u64, cache_read: u64, cache_write: u64, output: u64) -> Usage {
    Usage {
        input,
        cache_read,
        cache_write,
        output,
        reasoning: 0,
    }
}

fn meta(usage: Usage) -> Meta {
    Meta {
        provider: "anthropic".to_owned(),
        model: "m".to_owned(),
        usage,
        latency_ms: 1_000,
        ..Meta::default()
    }
}

fn reply(meta: Meta) -> EntryBody {
    let mut message = Message::new(Role::Assistant, vec![Part::text("x")]);
    message.meta = Some(meta);
    EntryBody::Message { message }
}

/// Entries of one turn, ten seconds apart.
fn log(bodies: Vec<EntryBody>) -> Vec<Entry> {
    let mut entries = test_kit::log(bodies);
    for entry in &mut entries {
        entry.at_ms = i64::try_from(entry.seq).unwrap() * 10_000;
    }
    entries
}

fn cost(entries: &[Entry]) -> TurnCost {
    let account = Account::of(entries, &price);
    assert_eq!(account.turn(1), account.cost().turns.last());
    account.cost().total.clone()
}

fn first() -> EntryBody {
    reply(meta(usage(10, 0, 10_000, 100)))
}

/// The cause of the second reply's miss, with entries between the two.
fn miss(between: Vec<EntryBody>, second: Meta) -> Vec<CauseCost> {
    let bodies = [vec![first()], between, vec![reply(second)]].concat();
    cost(&log(bodies)).causes
}

#[test]
fn what_was_cached_and_is_read_again_in_full_is_a_miss_with_its_reason() {
    let missed = || meta(usage(10, 0, 10_500, 1));
    let of = |reason| {
        vec![CauseCost {
            cause: Cause::CacheMiss { reason },
            times: 1,
            tokens: 10_000,
            usd: 10_000.0 * (3.75 - 0.3) / 1e6,
        }]
    };
    assert_eq!(miss(vec![], missed()), of(MissReason::NotFound));
    let changed = EntryBody::TableChanged(TableChange::default());
    assert_eq!(miss(vec![changed], missed()), of(MissReason::ToolsChanged));
    let unfolded = EntryBody::Unfolded { fold: 1 };
    assert_eq!(miss(vec![unfolded], missed()), of(MissReason::ViewChanged));
    let other = Meta {
        model: "n".to_owned(),
        ..missed()
    };
    assert_eq!(miss(vec![], other), of(MissReason::Switched));
    // Later than a cache lives, counted from the request and not from its reply.
    let late = |latency_ms| {
        let mut entries = log(vec![
            first(),
            reply(Meta {
                latency_ms,
                ..missed()
            }),
        ]);
        entries[1].at_ms = 500_000;
        cost(&entries).causes
    };
    assert_eq!(late(1_000), of(MissReason::Expired));
    assert_eq!(late(400_000), of(MissReason::NotFound));
    // What was read is no miss, and where nothing was cached nothing can be missed.
    assert_eq!(miss(vec![], meta(usage(10, 10_000, 500, 1))), []);
    let plain = reply(meta(usage(9_000, 0, 0, 1)));
    assert_eq!(cost(&log(vec![plain.clone(), plain])).causes, []);
}

#[test]
fn a_reply_that_broke_off_and_one_that_was_begun_again_are_paid_for_nothing() {
    let broke_off = Meta {
        partial: true,
        ..meta(usage(1_000, 0, 0, 10))
    };
    let begun_again = Meta {
        superseded: true,
        retries: 2,
        ..meta(usage(1_000, 0, 0, 20))
    };
    let cost = cost(&log(vec![reply(broke_off), reply(begun_again)]));
    assert_eq!((cost.replies, cost.retries), (2, 2));
    let [retry] = cost.causes.as_slice() else {
        panic!("{:?}", cost.causes);
    };
    assert_eq!(retry.cause, Cause::Retry);
    assert_eq!((retry.times, retry.tokens), (2, 2_030));
    assert!((retry.usd - cost.cost.usd).abs() < 1e-12);
}

#[test]
fn tools_are_paid_in_the_bucket_that_they_lie_in() {
    let with_tools = |usage| Meta {
        tool_tokens: 2_000,
        ..meta(usage)
    };
    let usd = |usage| cost(&log(vec![reply(with_tools(usage))])).causes[0].usd;
    let about = |usd: f64, dollars_a_million: f64| {
        assert!(
            (usd - 2_000.0 * dollars_a_million / 1e6).abs() < 1e-12,
            "{usd}"
        );
    };
    about(usd(usage(5_000, 0, 0, 1)), 3.0);
    about(usd(usage(10, 0, 5_000, 1)), 3.75);
    about(usd(usage(10, 5_000, 100, 1)), 0.3);
}

#[test]
fn a_summary_is_a_cause_of_its_own_and_the_view_is_another_one_after_it() {
    let compacted = EntryBody::Compacted {
        upto: 2,
        summary: "so far".to_owned(),
        meta: Some(meta(usage(100, 10_000, 0, 500))),
    };
    let cost = cost(&log(vec![
        first(),
        compacted,
        reply(meta(usage(2_000, 0, 0, 1))),
    ]));
    let causes: Vec<&Cause> = cost.causes.iter().map(|cause| &cause.cause).collect();
    let view = Cause::CacheMiss {
        reason: MissReason::ViewChanged,
    };
    assert_eq!(causes, [&view, &Cause::Summary]);
    assert_eq!(cost.causes[1].tokens, 10_600);
    assert_eq!(cost.replies, 3);
}

#[test]
fn what_a_plugin_asked_is_a_cause_and_says_nothing_of_the_conversations_cache() {
    let sampled = EntryBody::Spent {
        on: Spending::Sample {
            plugin: "translator".to_owned(),
        },
        meta: meta(usage(300, 0, 0, 20)),
    };
    let again = reply(meta(usage(10, 10_000, 0, 1)));
    let cost = cost(&log(vec![first(), sampled, again]));
    let [sampling] = cost.causes.as_slice() else {
        panic!("{:?}", cost.causes);
    };
    assert_eq!((&sampling.cause, sampling.tokens), (&Cause::Sampling, 320));
    assert_eq!(cost.replies, 3);
}

#[test]
fn a_summary_that_came_to_nothing_was_paid_too() {
    let in_vain = EntryBody::Spent {
        on: Spending::Summary,
        meta: meta(usage(300, 0, 0, 20)),
    };
    let cost = cost(&log(vec![in_vain]));
    assert_eq!(cost.causes[0].cause, Cause::Summary);
    assert_eq!(cost.cost.usage.total(), 320);
}

#[test]
fn a_reply_that_says_nothing_counts_as_one() {
    let empty = EntryBody::Spent {
        on: Spending::Reply,
        meta: meta(usage(300, 0, 0, 20)),
    };
    let cost = cost(&log(vec![empty]));
    assert_eq!((cost.replies, cost.cost.usage.total()), (1, 320));
    assert_eq!(cost.causes, []);
}

#[test]
fn tokens_without_a_price_are_told_apart() {
    let local = Meta {
        provider: "local".to_owned(),
        ..meta(usage(1_000, 0, 0, 50))
    };
    let cost = cost(&log(vec![
        reply(local),
        reply(meta(usage(1_000_000, 0, 0, 0))),
    ]));
    assert_eq!(cost.cost.unpriced_tokens, 1_050);
    assert!((cost.cost.usd - 3.0).abs() < 1e-9);
    assert_eq!(cost.cost.usage.input, 1_001_000);
}
