//! What replies cost, summed up by day, thread, model, tool and cause: a pure function of logs and
//! prices.

use std::collections::{BTreeMap, HashMap};

use conjure_core::chat::Usage;
use conjure_core::cost::{Account, Cause, CauseCost, Price};
use conjure_core::log::{CallEnd, Entry, EntryBody};
use conjure_core::request::text_tokens;
use conjure_core::wire::Wire;
use serde::Serialize;
use utoipa::ToSchema;

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;

/// What a model's provider asks for its tokens.
pub(super) type Prices<'a> = &'a dyn Fn(&str, &str) -> Option<Price>;

/// The sums.
#[derive(Debug, Default)]
pub(super) struct UsageSums {
    days: BTreeMap<i64, Spent>,
    threads: Vec<(String, String, Spent)>,
    models: BTreeMap<(String, String), Spent>,
    tools: BTreeMap<String, ToolUsage>,
    causes: BTreeMap<&'static str, CauseUsage>,
    total: Spent,
}

/// What replies spent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(super) struct Spent {
    pub(super) replies: u64,
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    /// Input, cache and output together.
    pub(super) total: u64,
    /// US dollars, of the tokens whose price is known.
    usd: f64,
    /// Tokens whose price is not known.
    unpriced_tokens: u64,
}

/// What calls of a tool came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(super) struct ToolUsage {
    /// Public name of the tool.
    name: String,
    calls: u64,
    /// Calls that did not end well.
    failed: u64,
    /// Time of all calls, in milliseconds.
    duration_ms: u64,
    /// Tokens of the results, estimated.
    result_tokens: u64,
}

/// What a cause came to; causes may overlap.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(super) struct CauseUsage {
    /// `cache_miss`, `retry`, `schemas`, `summary`, `sampling`, `delegated`.
    cause: String,
    times: u64,
    tokens: u64,
    usd: f64,
}

/// A day, in UTC.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct DayUsage {
    /// When it begins, in milliseconds since 1970.
    pub(super) day_ms: i64,
    #[serde(flatten)]
    pub(super) spent: Spent,
}

/// A thread.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct ThreadUsage {
    thread: String,
    label: String,
    #[serde(flatten)]
    spent: Spent,
}

/// A model.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct ModelUsage {
    provider: String,
    model: String,
    #[serde(flatten)]
    spent: Spent,
}

/// All sums, the largest first, days in their order.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageReport {
    /// Days on which something was spent.
    pub(super) days: Vec<DayUsage>,
    pub(super) threads: Vec<ThreadUsage>,
    pub(super) models: Vec<ModelUsage>,
    pub(super) tools: Vec<ToolUsage>,
    pub(super) causes: Vec<CauseUsage>,
    pub(super) total: Spent,
}

impl Spent {
    fn add(&mut self, usage: &Usage, usd: Option<f64>) {
        self.replies += 1;
        self.input += usage.input;
        self.cache_read += usage.cache_read;
        self.cache_write += usage.cache_write;
        self.output += usage.output;
        self.total += usage.total();
        match usd {
            Some(usd) => self.usd += usd,
            None => self.unpriced_tokens += usage.total(),
        }
    }
}

impl UsageSums {
    /// Takes a thread in: of its entries those that are `its`, by their numbers, and not older than
    /// `since_ms`.
    pub(super) fn add(
        &mut self,
        (id, label): (&str, &str),
        entries: &[Entry],
        its: &dyn Fn(u64) -> bool,
        since_ms: i64,
        prices: Prices<'_>,
    ) {
        let mut account = Account::default();
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut spent = Spent::default();
        for entry in entries {
            let before = causes(&account);
            account.add(entry, prices);
            if let EntryBody::Message { message } = &entry.body {
                let calls = message
                    .content
                    .iter()
                    .filter_map(conjure_core::chat::Part::as_call);
                names.extend(calls.map(|call| (call.call_id.as_str(), call.name.as_str())));
            }
            if !its(entry.seq) || entry.at_ms < since_ms {
                continue;
            }
            if let Some(meta) = entry.body.meta() {
                let price = prices(&meta.provider, &meta.model).unwrap_or_default();
                let usd = price.of(&meta.usage);
                let model = (meta.provider.clone(), meta.model.clone());
                let day = entry.at_ms.div_euclid(DAY_MS) * DAY_MS;
                for sum in [
                    &mut spent,
                    &mut self.total,
                    self.models.entry(model).or_default(),
                    self.days.entry(day).or_default(),
                ] {
                    sum.add(&meta.usage, usd);
                }
                self.add_causes(&before, &causes(&account));
            }
            if let EntryBody::CallEnded {
                output,
                end,
                duration_ms,
                ..
            } = &entry.body
            {
                let name = names.get(output.call_id.as_str()).copied().unwrap_or("?");
                let tool = self.tools.entry(name.to_owned()).or_default();
                tool.calls += 1;
                tool.failed += u64::from(*end != CallEnd::Done);
                tool.duration_ms += duration_ms;
                tool.result_tokens += text_tokens(Wire::Anthropic, &output.joined_text());
            }
        }
        if spent.replies > 0 {
            self.threads.push((id.to_owned(), label.to_owned(), spent));
        }
    }

    fn add_causes(
        &mut self,
        before: &[(&'static str, CauseCost)],
        after: &[(&'static str, CauseCost)],
    ) {
        for (name, after) in after {
            let earlier = before.iter().find(|(_, cost)| cost.cause == after.cause);
            let earlier = earlier.map(|(_, cost)| cost);
            let times = after.times - earlier.map_or(0, |cost| cost.times);
            if times == 0 {
                continue;
            }
            let sum = self.causes.entry(name).or_default();
            sum.times += u64::from(times);
            sum.tokens += after.tokens - earlier.map_or(0, |cost| cost.tokens);
            sum.usd += after.usd - earlier.map_or(0.0, |cost| cost.usd);
        }
    }

    /// What came of it.
    pub(super) fn report(self) -> UsageReport {
        let days = self.days.into_iter();
        let mut threads: Vec<ThreadUsage> = self
            .threads
            .into_iter()
            .map(|(thread, label, spent)| ThreadUsage {
                thread,
                label,
                spent,
            })
            .collect();
        threads.sort_by_key(|one| std::cmp::Reverse(one.spent.total));
        let models = self.models.into_iter();
        let mut models: Vec<ModelUsage> = models
            .map(|((provider, model), spent)| ModelUsage {
                provider,
                model,
                spent,
            })
            .collect();
        models.sort_by_key(|one| std::cmp::Reverse(one.spent.total));
        let tools = self.tools.into_iter();
        let mut tools: Vec<ToolUsage> = tools
            .map(|(name, tool)| ToolUsage { name, ..tool })
            .collect();
        tools.sort_by_key(|one| std::cmp::Reverse((one.result_tokens, one.calls)));
        let causes = self.causes.into_iter();
        let mut causes: Vec<CauseUsage> = causes
            .map(|(cause, sum)| CauseUsage {
                cause: cause.to_owned(),
                ..sum
            })
            .collect();
        causes.sort_by_key(|one| std::cmp::Reverse(one.tokens));
        UsageReport {
            days: days
                .map(|(day_ms, spent)| DayUsage { day_ms, spent })
                .collect(),
            threads,
            models,
            tools,
            causes,
            total: self.total,
        }
    }
}

/// What the causes of an account come to so far.
fn causes(account: &Account) -> Vec<(&'static str, CauseCost)> {
    let causes = account.cost().total.causes.iter();
    causes
        .map(|cost| (cause_name(&cost.cause), cost.clone()))
        .collect()
}

fn cause_name(cause: &Cause) -> &'static str {
    match cause {
        Cause::CacheMiss { .. } => "cache_miss",
        Cause::Retry => "retry",
        Cause::Schemas => "schemas",
        Cause::Summary => "summary",
        Cause::Sampling => "sampling",
        Cause::Delegated => "delegated",
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{
        Content, FunctionCall, FunctionCallOutput, Message, Meta, Part, Role,
    };
    use serde_json::json;

    use super::*;

    fn price(_: &str, model: &str) -> Option<Price> {
        (model == "priced").then_some(Price {
            input: Some(1.0),
            output: Some(2.0),
            ..Price::default()
        })
    }

    fn reply(seq: u64, at_ms: i64, model: &str, parts: Vec<Part>) -> Entry {
        let mut message = Message::new(Role::Assistant, parts);
        message.meta = Some(Meta {
            provider: "p".to_owned(),
            model: model.to_owned(),
            usage: Usage {
                input: 1_000_000,
                output: 500_000,
                ..Usage::default()
            },
            tool_tokens: 10,
            ..Meta::default()
        });
        let body = EntryBody::Message { message };
        Entry {
            seq,
            turn: 1,
            at_ms,
            body,
        }
    }

    #[test]
    fn what_a_fork_shows_of_its_ancestor_counts_once_and_old_entries_do_not() {
        let call = Part::from(Content::FunctionCall(FunctionCall {
            call_id: "c1".to_owned(),
            name: "local_bash_tool".to_owned(),
            arguments: json!({}),
            arguments_text: None,
        }));
        let first = reply(1, 5, "priced", vec![Part::text("old")]);
        let second = reply(2, DAY_MS + 5, "priced", vec![call]);
        let ended = Entry {
            seq: 3,
            turn: 1,
            at_ms: DAY_MS + 6,
            body: EntryBody::CallEnded {
                output: FunctionCallOutput::text("c1", "four words of result", true),
                end: CallEnd::Failed,
                reason: None,
                duration_ms: 40,
                meta: None,
            },
        };
        let own = reply(4, 2 * DAY_MS, "other", vec![Part::text("new")]);
        let mut sums = UsageSums::default();
        let parent = [first.clone(), second.clone(), ended.clone()];
        sums.add(("a", "parent"), &parent, &|_| true, DAY_MS, &price);
        sums.add(
            ("b", "fork"),
            &[first, second, ended, own],
            &|seq| seq > 3,
            DAY_MS,
            &price,
        );
        let report = sums.report();
        let days = report
            .days
            .iter()
            .map(|day| (day.day_ms, day.spent.replies));
        assert_eq!(days.collect::<Vec<_>>(), [(DAY_MS, 1), (2 * DAY_MS, 1)]);
        assert_eq!(report.threads.len(), 2);
        assert_eq!(
            (report.total.usd, report.total.unpriced_tokens),
            (2.0, 1_500_000)
        );
        let tool = &report.tools[0];
        assert_eq!(
            (tool.name.as_str(), tool.calls, tool.failed),
            ("local_bash_tool", 1, 1)
        );
        assert_eq!(tool.duration_ms, 40);
        assert!(tool.result_tokens > 0);
        let schemas = &report.causes[0];
        assert_eq!(
            (schemas.cause.as_str(), schemas.times, schemas.tokens),
            ("schemas", 2, 20)
        );
    }
}
