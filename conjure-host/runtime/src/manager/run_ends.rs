//! Ends of runs that the store did not take, such as on a full disk: known here until it does, and
//! tried again with each sign of life.
//!
//! Whoever asks about such a run here is told that it is over. What other processes read says so
//! once it is written; where this process ends before, the next one ends the run as interrupted.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use super::changes::SessionChange;
use super::{ManagerState, lock};
use conjure_store::{Run, RunState, RunUsage, Store, StoreError};

/// How a run ended.
#[derive(Debug, Clone)]
pub(super) struct RunEnd {
    id: String,
    state: RunState,
    spent: Option<RunUsage>,
    error: Option<String>,
    /// What is said in it is not in its thread, and the run keeps it.
    is_unwritten: bool,
    /// When that was, in milliseconds since 1970 by this machine's clock.
    pub(super) at_ms: i64,
}

/// The ends that wait to be written, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingRunEnds(Mutex<VecDeque<RunEnd>>);

impl RunEnd {
    /// An end of now.
    pub(super) fn new(
        id: &str,
        state: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            state,
            spent,
            error: error.map(str::to_owned),
            is_unwritten: false,
            at_ms: jiff::Timestamp::now().as_millisecond(),
        }
    }

    /// The end of a run that failed before what is said in it was in its thread.
    pub(super) fn unwritten(id: &str, error: &str) -> Self {
        Self {
            is_unwritten: true,
            ..Self::new(id, RunState::Failed, None, Some(error))
        }
    }

    async fn write(&self, store: &Store) -> Result<bool, StoreError> {
        let (error, ago) = (self.error.as_deref(), self.age());
        if let Some(error) = error.filter(|_| self.is_unwritten) {
            return store.fail_unwritten(&self.id, error, ago).await;
        }
        let ended = store.end_run_late(&self.id, self.state, self.spent, error, ago);
        ended.await
    }

    /// How long ago it was: the database has a clock of its own. Where this machine's was set back
    /// since, it counts as now.
    fn age(&self) -> Duration {
        let ms = jiff::Timestamp::now().as_millisecond() - self.at_ms;
        Duration::from_millis(u64::try_from(ms).unwrap_or_default())
    }
}

impl PendingRunEnds {
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// A run as it is by now: over, where its end waits here.
    pub(super) fn applied_to(&self, run: Run) -> Run {
        if run.state.is_over() {
            return run;
        }
        let end = lock(&self.0).iter().find(|end| end.id == run.id).cloned();
        match end {
            Some(end) => Run {
                state: end.state,
                error: end.error,
                spent: end.spent.unwrap_or(run.spent),
                ended_at_ms: Some(end.at_ms),
                ..run
            },
            None => run,
        }
    }

    pub(super) fn keep(&self, end: RunEnd) {
        lock(&self.0).push_back(end);
    }

    fn first(&self) -> Option<RunEnd> {
        lock(&self.0).front().cloned()
    }

    fn remove(&self, id: &str) {
        lock(&self.0).retain(|end| end.id != id);
    }

    /// Has the first wait behind the others, so that one that is never taken holds up none.
    fn rotate(&self) {
        let mut ends = lock(&self.0);
        if let Some(first) = ends.pop_front() {
            ends.push_back(first);
        }
    }
}

impl ManagerState {
    /// Notes that a run is over.
    pub(super) async fn end_run(
        &self,
        id: &str,
        state: RunState,
        spent: Option<RunUsage>,
        error: Option<&str>,
    ) {
        self.note_end(RunEnd::new(id, state, spent, error)).await;
    }

    /// Notes that a run is over. Where the store does not take that, it is kept until it does.
    pub(super) async fn note_end(&self, end: RunEnd) {
        if let Err(error) = end.write(&self.store).await {
            tracing::error!(
                run = end.id,
                "its end is not noted yet, and is tried again: {error}"
            );
            self.run_ends.keep(end);
        }
    }

    /// Writes the ends that the store did not take before, until it refuses one again.
    pub(super) async fn write_run_ends(&self) {
        let mut is_told = true;
        while let Some(end) = self.run_ends.first() {
            if let Err(error) = end.write(&self.store).await {
                tracing::debug!(run = end.id, "its end is still not noted: {error}");
                self.run_ends.rotate();
                break;
            }
            tracing::info!(run = end.id, "its end is noted now");
            self.run_ends.remove(&end.id);
            is_told = false;
        }
        if !is_told {
            // What the store says of the sessions is another thing now.
            self.states.notify(SessionChange::Missed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conjure_store::ThreadId;

    fn run(id: &str, state: RunState) -> Run {
        Run {
            state,
            ..Run::new(id, None, ThreadId::fresh())
        }
    }

    #[test]
    fn an_end_that_waits_holds_for_its_run_and_no_other() {
        let ends = PendingRunEnds::default();
        ends.keep(RunEnd::new(
            "one",
            RunState::Interrupted,
            None,
            Some("no space"),
        ));
        let over = ends.applied_to(run("one", RunState::Running));
        assert_eq!(over.state, RunState::Interrupted);
        assert_eq!(over.error.as_deref(), Some("no space"));
        assert!(over.ended_at_ms.is_some());
        let other = ends.applied_to(run("two", RunState::Running));
        assert_eq!(other.state, RunState::Running);
        let ended_elsewhere = ends.applied_to(run("one", RunState::Lost));
        assert_eq!(ended_elsewhere.state, RunState::Lost, "the store has it");
        ends.remove("one");
        assert!(ends.is_empty());
    }

    #[test]
    fn an_end_that_is_refused_holds_up_no_other() {
        let ends = PendingRunEnds::default();
        ends.keep(RunEnd::unwritten("one", "no space"));
        ends.keep(RunEnd::unwritten("two", "no space"));
        ends.rotate();
        assert_eq!(ends.first().unwrap().id, "two");
    }
}
