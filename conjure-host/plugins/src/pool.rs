//! Threads for code of plugins, which may block and may never come back.
//!
//! Not the runtime's blocking pool: that one is bounded for the whole process, and a plugin that
//! hangs would starve its neighbours. Here each plugin has a limit of its own, kept by whoever
//! submits, and the pool grows to what is asked of it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A thread that finds nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// Room for deep recursion in author code; untouched pages cost nothing.
const STACK: usize = 8 * 1024 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The process's pool.
pub(super) static POOL: WorkerPool = WorkerPool {
    state: Mutex::new(PoolState {
        jobs: VecDeque::new(),
        idle: 0,
    }),
    wake: Condvar::new(),
};

pub(super) struct WorkerPool {
    state: Mutex<PoolState>,
    wake: Condvar,
}

struct PoolState {
    jobs: VecDeque<Job>,
    idle: usize,
}

impl WorkerPool {
    /// Runs a job on a thread of its own, at once.
    ///
    /// # Errors
    /// The system's, when it gives no thread; the job is then dropped.
    pub(super) fn run(&'static self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.lock();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(Box::new(job));
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        drop(state);
        let first: Job = Box::new(job);
        thread::Builder::new()
            .name("plugin-call".to_owned())
            .stack_size(STACK)
            .spawn(move || self.work(first))
            .map(drop)
    }

    fn work(&self, first: Job) {
        let mut job = Some(first);
        while let Some(run) = job {
            run();
            job = self.next();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        state.idle += 1;
        let (mut state, _) = self
            .wake
            .wait_timeout_while(state, IDLE, |state| state.jobs.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        state.jobs.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_that_blocks_holds_up_no_other() {
        let (release, blocked) = mpsc::channel::<()>();
        POOL.run(move || blocked.recv().unwrap_or(())).unwrap();
        for _ in 0..100 {
            let (done, finished) = mpsc::channel();
            POOL.run(move || done.send(()).unwrap()).unwrap();
            finished.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        drop(release);
    }
}
