//! How a plugin behaves: what runs in it, what was lost, and whether it may still be used.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use conjure_abi::LogLevel;
use tokio::sync::Semaphore;

use super::services::{self, HostServices};
use super::{CallMeta, PluginId};

/// What a plugin may use, and how long it is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLimits {
    /// Calls of one plugin that run on threads at the same time; 64.
    pub threads: usize,
    /// How long a call may go on after it was cancelled or its time was up; 2 s.
    pub grace: Duration,
    /// After so many calls that did not stop within the grace the plugin is refused; 3.
    pub abandoned: u32,
    /// How long making an instance may take, and its first answer; 10 s.
    pub create: Duration,
    /// The most bytes of a reply; 16 MiB.
    pub reply: usize,
    /// What all but one of a hundred calls may take where a tool is to be called on the caller's thread;
    /// 50 µs.
    pub in_place: Duration,
}

impl Default for PluginLimits {
    fn default() -> Self {
        Self {
            threads: 64,
            grace: Duration::from_secs(2),
            abandoned: 3,
            create: Duration::from_secs(10),
            reply: 16 * 1024 * 1024,
            in_place: Duration::from_micros(50),
        }
    }
}

/// Figures of a plugin, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginHealth {
    /// Instances that live.
    pub instances: usize,
    /// Requests since it was loaded.
    pub calls: u64,
    /// Calls that had to be abandoned since it was loaded.
    pub abandoned: u32,
    /// Calls that panicked when they were told to stop, since it was loaded.
    pub late_panics: u64,
    /// Threads of abandoned calls that have not come back.
    pub lost_threads: usize,
    /// Why it is refused, if it is.
    pub quarantined: Option<String>,
    /// Worker processes of it that ended by themselves since it was loaded.
    pub worker_ends: u64,
}

/// The state that all instances of a plugin share.
pub(super) struct SharedHealth {
    pub(super) id: PluginId,
    pub(super) limits: PluginLimits,
    pub(super) slots: Arc<Semaphore>,
    pub(super) instances: AtomicUsize,
    pub(super) calls: AtomicU64,
    abandoned: AtomicU32,
    pub(super) late_panics: AtomicU64,
    lost_threads: AtomicUsize,
    quarantined: OnceLock<String>,
    removed: AtomicBool,
    log: Mutex<LogBudget>,
}

impl SharedHealth {
    pub(super) fn new(id: PluginId, limits: PluginLimits) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(limits.threads.min(Semaphore::MAX_PERMITS))),
            id,
            limits,
            instances: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            abandoned: AtomicU32::new(0),
            late_panics: AtomicU64::new(0),
            lost_threads: AtomicUsize::new(0),
            quarantined: OnceLock::new(),
            removed: AtomicBool::new(false),
            log: Mutex::new(LogBudget::new()),
        }
    }

    pub(super) fn report(&self) -> PluginHealth {
        PluginHealth {
            instances: self.instances.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            late_panics: self.late_panics.load(Ordering::Relaxed),
            lost_threads: self.lost_threads.load(Ordering::Relaxed),
            quarantined: self.quarantined.get().cloned(),
            worker_ends: 0,
        }
    }

    /// Why the plugin may not be used.
    pub(super) fn quarantined(&self) -> Option<&str> {
        self.quarantined.get().map(String::as_str)
    }

    pub(super) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// A call did not stop within its grace; its thread is lost until it comes back.
    pub(super) fn abandon(&self) {
        let lost = self.lost_threads.fetch_add(1, Ordering::Relaxed) + 1;
        let count = self.abandoned.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(
            target: "plugin",
            plugin = %self.id,
            lost_threads = lost,
            "a call did not stop when told to and was abandoned ({count} so far)"
        );
        if count >= self.limits.abandoned {
            let reason = format!(
                "{count} of its calls did not stop when told to, so it is not used any more; \
                 reload it to try again"
            );
            if self.quarantined.set(reason).is_ok() {
                tracing::error!(
                    target: "plugin",
                    plugin = %self.id,
                    "refused from now on: {count} calls did not stop. Reload it to try again"
                );
            }
        }
    }

    /// A lost thread came back.
    pub(super) fn note_thread_returned(&self) {
        self.lost_threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Passes on a line of the plugin's log, as far as its budget goes.
    pub(super) fn log(
        &self,
        services: Option<&Arc<dyn HostServices>>,
        call: &CallMeta,
        level: u32,
        target: &[u8],
        message: &[u8],
    ) {
        const MESSAGE: usize = 8 * 1024;
        const TARGET: usize = 128;
        let dropped = {
            let mut budget = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            match budget.take(Instant::now()) {
                Some(dropped) => dropped,
                None => return,
            }
        };
        let cut = |bytes: &[u8], most: usize| {
            String::from_utf8_lossy(bytes.get(..bytes.len().min(most)).unwrap_or_default())
                .into_owned()
        };
        let pass = |level, target: &str, message: &str| match services {
            Some(services) => services.log(&self.id, call, level, target, message),
            None => services::trace(&self.id, level, target, message),
        };
        if dropped > 0 {
            let text = dropped_lines(dropped);
            pass(LogLevel::Warn, "", &text);
        }
        pass(
            LogLevel::from_number(level),
            &cut(target, TARGET),
            &cut(message, MESSAGE),
        );
    }
}

/// What the log says of lines that it does not have.
pub(super) fn dropped_lines(dropped: u64) -> String {
    format!("{dropped} lines of its log were dropped: it writes too many")
}

/// 200 lines at once, 50 a second in the long run.
pub(super) struct LogBudget {
    lines: f64,
    refilled_at: Instant,
    dropped: u64,
}

impl LogBudget {
    const BURST: f64 = 200.0;
    const PER_SECOND: f64 = 50.0;

    pub(super) fn new() -> Self {
        Self {
            lines: Self::BURST,
            refilled_at: Instant::now(),
            dropped: 0,
        }
    }

    /// Whether a line may pass, and how many were dropped before it.
    pub(super) fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = now
            .saturating_duration_since(self.refilled_at)
            .as_secs_f64()
            * Self::PER_SECOND;
        self.lines = (self.lines + earned).min(Self::BURST);
        self.refilled_at = now;
        if self.lines < 1.0 {
            self.dropped += 1;
            return None;
        }
        self.lines -= 1.0;
        Some(std::mem::take(&mut self.dropped))
    }

    /// How many lines were dropped since the last one passed.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_log_lines_is_cut_and_told() {
        let mut budget = LogBudget::new();
        let start = budget.refilled_at;
        let passed = (0..1000).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(passed, 200);
        let later = start + Duration::from_secs(1);
        assert_eq!(budget.take(later), Some(800));
        assert_eq!(budget.take(later), Some(0));
    }
}
