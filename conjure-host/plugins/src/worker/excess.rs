//! What a worker uses beside what the kernel itself limits: its threads; time of processors, of one that is
//! there for long; and, of one that starts programs, the processes that there are then and the memory that
//! they have together.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use conjure_process_tree::{ProcessorTime, TreeUsage};

use super::WorkerLimits;
use super::child::WorkerPid;
use super::end::WorkerEnd;
use super::processor_budget::{ProcessorBudget, ProcessorTimeScope};

/// How often it is looked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How many times as long as an exact count takes there is none then, and how long that is at least and
/// at most.
const PAUSE_FACTOR: u32 = 10;
const SHORTEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Becomes ready when a worker uses more than it may, and says what. The system has a limit of threads and
/// processes for all that its user runs, and none for root; and none of the memory of several processes.
///
/// `counted` is there where the kernel does not limit its time of processors.
pub(super) async fn wait_for_excess(
    process: Option<WorkerPid>,
    limits: WorkerLimits,
    counted: Option<ProcessorTimeScope>,
) -> WorkerEnd {
    let Some(process) = process.filter(|_| cfg!(target_os = "linux")) else {
        return std::future::pending().await;
    };
    let mut budget = counted.map(|_| ProcessorBudget::new(limits.processor_time, Instant::now()));
    let mut watch = TreeWatch::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if threads(process) > limits.threads as u64 {
            return WorkerEnd::too_many_threads(limits.threads);
        }
        let (time, end) = match process.supervisor() {
            Some(supervisor) => {
                // A large tree takes a while, for which others are not to wait.
                let looked = tokio::task::spawn_blocking(move || {
                    let ended = ProcessorTime::of(supervisor).ended_children;
                    let tree = TreeUsage::below(supervisor);
                    let time = counted
                        .and_then(|counted| counted.supervised_time(supervisor, ended, &tree));
                    let end = watch.check(&tree, &limits);
                    (watch, time, end)
                });
                let (after, time, end) = looked.await.unwrap_or_default();
                watch = after;
                (time, end)
            }
            None => (
                counted.and_then(|_| ProcessorTimeScope::unsupervised_time(process)),
                None,
            ),
        };
        let busy = time.zip(budget.as_mut());
        let busy = busy.and_then(|(time, budget)| budget.check(time, Instant::now()));
        if let Some(end) = end.or(busy) {
            return end;
        }
    }
}

/// How many threads the worker has itself.
fn threads(process: WorkerPid) -> u64 {
    let tasks = process.threads();
    let tasks = tasks.and_then(|tasks| std::fs::metadata(tasks).ok());
    // One link is the directory itself, one its parent's name for it, and one each thread's.
    let links = tasks.map_or(0, |tasks| tasks.nlink());
    links.saturating_sub(2)
}

/// What the worker and all that it started have together, from look to look.
#[derive(Debug, Default)]
struct TreeWatch {
    /// What came of counting their memory exactly, where what they share makes it look like too much.
    last_count: Option<ExactCount>,
}

impl TreeWatch {
    /// What they have too much of.
    fn check(&mut self, tree: &TreeUsage, limits: &WorkerLimits) -> Option<WorkerEnd> {
        let processes = tree.processes();
        if processes > limits.processes {
            return Some(WorkerEnd::too_many_processes(processes, limits.processes));
        }
        let most = tree.memory_upper_bound();
        if most <= limits.tree_memory {
            self.last_count = None;
            return None;
        }
        let begun = Instant::now();
        if self
            .last_count
            .as_ref()
            .is_some_and(|it| it.is_valid(most, begun))
        {
            return None;
        }
        let exact = tree.exact_memory();
        if exact > limits.tree_memory {
            return Some(WorkerEnd::too_much_memory(exact, limits.tree_memory));
        }
        let room = limits.tree_memory - exact;
        self.last_count = Some(ExactCount::new(most, room, begun.elapsed()));
        None
    }
}

/// An exact count of a tree's memory, which was not too much. The kernel goes through every page for
/// that, so it is not done each time; but it is not left out for long: a process that writes to what it
/// shared since a fork has a copy of its own then, which only an exact count sees.
#[derive(Debug)]
struct ExactCount {
    /// What the tree may have at most for this to hold, shared memory counted for each process.
    max_memory: u64,
    valid_until: Instant,
}

impl ExactCount {
    /// The count of a tree that had at most `most` bytes and `room` for more. What is new counts in both
    /// ways of counting; what was shared and is copied does not, so the pause is short.
    fn new(most: u64, room: u64, took: Duration) -> Self {
        let pause = took
            .saturating_mul(PAUSE_FACTOR)
            .clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        Self {
            max_memory: most.saturating_add(room),
            valid_until: Instant::now() + pause,
        }
    }

    fn is_valid(&self, most: u64, now: Instant) -> bool {
        most <= self.max_memory && now < self.valid_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_count_holds_until_a_tree_grew_by_the_room_it_had_or_a_while_passed() {
        let before = Instant::now();
        let counted = ExactCount::new(1000, 50, Duration::from_secs(1));
        let now = Instant::now();
        assert!(counted.is_valid(1050, before) && counted.is_valid(10, before));
        assert!(!counted.is_valid(1051, now));
        assert!(counted.is_valid(1000, before + Duration::from_secs(9)));
        assert!(!counted.is_valid(1000, now + Duration::from_secs(10)));
    }

    #[test]
    fn copies_of_what_was_shared_are_seen_in_half_a_minute_however_long_a_count_takes() {
        for (took, pause) in [(0, 2), (600, 30)] {
            let pause = Duration::from_secs(pause);
            let before = Instant::now();
            let counted = ExactCount::new(1000, 1000, Duration::from_secs(took));
            // Copies add nothing to the most that the tree may have.
            assert!(counted.is_valid(1000, before + pause / 2), "{took}");
            assert!(!counted.is_valid(1000, Instant::now() + pause), "{took}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processes_that_are_too_many_are_seen_before_their_memory_is_read() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tree = TreeUsage::below(std::process::id());
        let limits = WorkerLimits {
            processes: 0,
            tree_memory: 0,
            ..WorkerLimits::default()
        };
        let end = TreeWatch::default().check(&tree, &limits).unwrap();
        assert!(end.to_string().contains("processes"), "{end}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
