//! How much time of processors a worker may take that is there for long.

use std::time::{Duration, Instant};

use conjure_abi::PluginKind;
use conjure_process_tree::{ProcessorTime, TreeUsage};

use super::child::WorkerPid;
use super::end::WorkerEnd;

/// A worker is given back one part of so many of the time that passes: what it takes of one processor on
/// average, however long it is there.
const RECOVERY_DIVISOR: u32 = 4;

/// Processes whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessorTimeScope {
    /// The worker's own: what an executor starts is what a session asked it for.
    Worker,
    /// The worker's and those of all programs that it started.
    Tree,
}

impl ProcessorTimeScope {
    pub(super) fn of(kind: PluginKind) -> Self {
        match kind {
            PluginKind::Executor => Self::Worker,
            PluginKind::Skill | PluginKind::Backend => Self::Tree,
        }
    }

    /// Time that the processes of a worker without a supervisor took by now.
    pub(super) fn unsupervised_time(worker: WorkerPid) -> Option<Duration> {
        Some(ProcessorTime::of(worker.process()?).own)
    }

    /// Time that they took by now below a supervisor. `ended` is that of children which it had waited for before
    /// the tree was looked at, so that none is counted twice.
    pub(super) fn supervised_time(
        self,
        supervisor: u32,
        ended: Duration,
        tree: &TreeUsage,
    ) -> Option<Duration> {
        match self {
            Self::Worker => Self::unsupervised_time(WorkerPid::BelowSupervisor(supervisor)),
            // What a supervisor has adopted and waited for is in its children's time.
            Self::Tree => Some(tree.processor_time().saturating_add(ended)),
        }
    }
}

/// Time of processors that a worker took, less what it was given back since.
#[derive(Debug)]
pub(super) struct ProcessorBudget {
    limit: Duration,
    used: Duration,
    /// What it had taken in all at the last two checks. A program that ends while it is looked at is in neither
    /// its own time nor its parent's, and is not new when it is seen there.
    totals: [Duration; 2],
    /// When it was checked last.
    checked_at: Instant,
}

impl ProcessorBudget {
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            used: Duration::ZERO,
            totals: [Duration::ZERO; 2],
            checked_at: now,
        }
    }

    /// Takes note of the time that it took in all by now.
    pub(super) fn check(&mut self, total: Duration, now: Instant) -> Option<WorkerEnd> {
        let passed = now.saturating_duration_since(self.checked_at);
        let [older, newer] = self.totals;
        let new = total.saturating_sub(older.max(newer));
        let taken = self.used.saturating_add(new);
        self.used = taken.saturating_sub(passed / RECOVERY_DIVISOR);
        self.totals = [newer, total];
        self.checked_at = now;
        (self.used > self.limit).then(|| WorkerEnd::busy(self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// After how many hours a worker ends that takes so much of each.
    fn ends_after(limit: Duration, of_an_hour: Duration) -> Option<u32> {
        let begun = Instant::now();
        let mut budget = ProcessorBudget::new(limit, begun);
        (1..=1000).find(|hour| {
            budget
                .check(of_an_hour * *hour, begun + HOUR * *hour)
                .is_some()
        })
    }

    #[test]
    fn a_worker_may_take_a_quarter_of_a_processor_for_ever_and_more_until_that_is_its_limit() {
        assert_eq!(ends_after(2 * HOUR, HOUR / 4), None);
        // Three quarters of an hour are left of each.
        assert_eq!(ends_after(2 * HOUR, HOUR), Some(3));
        assert_eq!(ends_after(2 * HOUR, 2 * HOUR), Some(2));
        assert_eq!(ends_after(2 * HOUR, HOUR / 2), Some(9));
    }

    #[test]
    fn what_was_not_taken_for_long_is_no_more_than_the_limit() {
        let begun = Instant::now();
        let mut budget = ProcessorBudget::new(HOUR, begun);
        assert_eq!(budget.check(Duration::ZERO, begun + 100 * HOUR), None);
        let end = budget.check(2 * HOUR, begun + 101 * HOUR).unwrap();
        let expected = "was ended by the host because it used more time of processors than a worker may \
                        (3600 s beyond a quarter of one processor)";
        assert_eq!(end.to_string(), expected);
        assert!(end.is_caused_by_worker());
    }

    #[test]
    fn time_that_is_not_seen_for_one_look_is_not_new_at_the_next() {
        let begun = Instant::now();
        let mut budget = ProcessorBudget::new(HOUR, begun);
        for (second, total) in [(1, HOUR), (2, HOUR / 2), (3, HOUR)] {
            let now = begun + Duration::from_secs(second);
            assert_eq!(budget.check(total, now), None, "{second}");
        }
        assert!(
            budget
                .check(2 * HOUR, begun + Duration::from_secs(4))
                .is_some()
        );
    }

    #[test]
    fn programs_of_an_executor_are_the_sessions_and_others_are_the_plugins() {
        let counted = [PluginKind::Skill, PluginKind::Backend, PluginKind::Executor]
            .map(ProcessorTimeScope::of);
        let [tree, worker] = [ProcessorTimeScope::Tree, ProcessorTimeScope::Worker];
        assert_eq!(counted, [tree, tree, worker]);
    }
}
