//! What replies cost: tokens, cache and money over time, by thread, model, tool and cause.

use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::Params;
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use super::usage_report::{DAY_MS, UsageReport, UsageSums};
use conjure_store::{Thread, ThreadId};

/// Days that are looked at where nothing is said.
const DEFAULT_DAYS: u32 = 30;
/// The most days.
const MAX_DAYS: u32 = 3650;
/// Threads that are asked of the database at once.
const BATCH_THREADS: u64 = 200;

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(usage))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UsageQuery {
    /// How many days back, today being one of them; days are those of UTC.
    #[param(minimum = 1, maximum = 3650, default = 30)]
    days: Option<u32>,
}

/// Say what replies cost, by day, thread, model, tool and cause
///
/// Sums over the logs of all threads, with the prices known now. What a fork shows of its ancestors
/// counts once. Causes are parts of the whole, and may overlap.
#[utoipa::path(get, path = "/api/v1/usage", operation_id = "get_usage", tag = "threads",
    params(UsageQuery),
    responses((status = 200, description = "The largest first, days in their order",
        body = UsageReport)))]
async fn usage(
    State(app): State<App>,
    Params(query): Params<UsageQuery>,
) -> Result<Json<UsageReport>, Problem> {
    let days = query.days.unwrap_or(DEFAULT_DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(Problem::invalid(format!("`days` is 1 to {MAX_DAYS}")));
    }
    let since_ms = (now_ms().div_euclid(DAY_MS) + 1 - i64::from(days)) * DAY_MS;
    let models = app.host.models();
    let prices = |provider: &str, model: &str| Some(models.facts(provider, model)?.price);
    let mut sums = UsageSums::default();
    let mut counted = CountedEntries::default();
    let mut after = None;
    loop {
        let threads = app.store.thread_page(after.as_ref(), BATCH_THREADS).await?;
        let Some(last) = threads.last() else { break };
        after = Some(last.cursor());
        for thread in threads {
            if thread.updated_at_ms < since_ms {
                continue;
            }
            let entries = app.host.entries(&thread.id).await?;
            let kept = counted.kept_ancestors(&app, &thread).await?;
            let inherited = thread.parent.as_ref().map_or(0, |_| thread.fork_from_seq);
            let its = |seq: u64| seq > inherited || kept.contains(&seq);
            let id = thread.id.to_string();
            sums.add((&id, &thread.label), &entries, &its, since_ms, &prices);
        }
    }
    Ok(Json(sums.report()))
}

/// Entries that only forks show by now, of which one fork counts them.
#[derive(Default)]
struct CountedEntries(HashMap<ThreadId, BTreeSet<u64>>);

impl CountedEntries {
    /// What a thread shows of its ancestors that these do not show themselves, and no other fork
    /// counts.
    async fn kept_ancestors(
        &mut self,
        app: &App,
        thread: &Thread,
    ) -> Result<BTreeSet<u64>, Problem> {
        if thread.parent.is_none() {
            return Ok(BTreeSet::new());
        }
        let mut kept = BTreeSet::new();
        for entries in app.store.retained_entries(&thread.id).await? {
            let counted = self.0.entry(entries.thread).or_default();
            let numbers = entries.after_seq + 1..=entries.last_seq;
            kept.extend(numbers.filter(|seq| counted.insert(*seq)));
        }
        Ok(kept)
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
