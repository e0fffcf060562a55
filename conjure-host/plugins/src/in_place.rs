//! Calls in place: on the calling thread, for tools that take microseconds.
//!
//! Earned, never given: the tool declares it, and 100 ordinary calls show it (at most one of them above
//! [`PluginLimits::in_place`](super::health::PluginLimits::in_place), none with output or host
//! operations). One call at a time; a second one takes the ordinary way. A watchdog takes the permission
//! back when a call takes 10 ms; it cannot stop that call. A busy machine does that to a good tool too, so
//! it may be earned again, three times.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use conjure_abi::{
    CallContext, CallCx, CallCx_TO, EmitKind, EmitStatus, FfiFuture, RArc, RSlice, Reply,
    TD_Opaque, code,
};

use super::CallMeta;
use super::call::ready_fault;
use super::emit::Emit;
use super::health::SharedHealth;

/// Calls that a tool is judged by.
const TRIALS: u32 = 100;

/// Number of times that the permission is taken back before it cannot be earned again.
const MAX_REVOCATIONS: u8 = 3;

/// The most bytes of output that are kept of a call.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// Time between two looks of the watchdog, which takes the permission back when it sees a call twice
/// more.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Number of looks without any call before the watchdog sleeps.
const IDLE_TICKS: u32 = 40;

/// State of a plugin's operations: which may be called in place. Each plugin has one of these.
pub(super) struct InPlaceOperations {
    operations: Vec<InPlaceOperation>,
    /// What at most one call of a trial may exceed.
    trial_limit: Duration,
}

struct InPlaceOperation {
    name: String,
    state: AtomicU8,
    revocations: AtomicU8,
    trial: Mutex<Trial>,
}

#[derive(Default)]
struct Trial {
    calls: u32,
    slow: u32,
}

const ON_TRIAL: u8 = 0;
const GRANTED: u8 = 1;
const DENIED: u8 = 2;

impl InPlaceOperations {
    /// `declared` are the operations whose tools ask for it, and `short` what at most one call of a trial
    /// may exceed.
    pub(super) fn new(declared: impl IntoIterator<Item = String>, short: Duration) -> Self {
        let operations = declared
            .into_iter()
            .map(|name| InPlaceOperation {
                name,
                state: AtomicU8::new(ON_TRIAL),
                revocations: AtomicU8::new(0),
                trial: Mutex::new(Trial::default()),
            })
            .collect();
        Self {
            operations,
            trial_limit: short,
        }
    }

    /// Whether the operation may be called in place now.
    pub(super) fn granted(&self, op: &str) -> Option<usize> {
        self.operations.iter().position(|operation| {
            operation.name == op && operation.state.load(Ordering::Acquire) == GRANTED
        })
    }

    /// Takes note of an ordinary call that succeeded.
    pub(super) fn record(&self, op: &str, took: Duration, used_context: bool) {
        let Some(operation) = self.operations.iter().find(|o| o.name == op) else {
            return;
        };
        if operation.state.load(Ordering::Acquire) != ON_TRIAL {
            return;
        }
        if used_context {
            operation.state.store(DENIED, Ordering::Release);
            return;
        }
        let mut trial = operation
            .trial
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        trial.calls += 1;
        trial.slow += u32::from(took > self.trial_limit);
        if trial.calls >= TRIALS {
            let passed = trial.slow <= TRIALS / 100;
            *trial = Trial::default();
            if passed {
                let _ = operation.state.compare_exchange(
                    ON_TRIAL,
                    GRANTED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
            }
        }
    }

    /// Denies it for good; gives the operation's name when it was granted.
    fn deny(&self, index: usize) -> Option<&str> {
        let operation = self.operations.get(index)?;
        let before = operation.state.swap(DENIED, Ordering::AcqRel);
        (before == GRANTED).then_some(operation.name.as_str())
    }

    /// Takes it back; gives the operation's name.
    fn revoke(&self, index: usize) -> Option<&str> {
        let operation = self.operations.get(index)?;
        let times = operation.revocations.fetch_add(1, Ordering::AcqRel) + 1;
        let next = if times >= MAX_REVOCATIONS {
            DENIED
        } else {
            ON_TRIAL
        };
        operation
            .state
            .compare_exchange(GRANTED, next, Ordering::AcqRel, Ordering::Acquire)
            .ok()
            .map(|_| operation.name.as_str())
    }
}

/// Where calls in place of one instance happen, one at a time.
pub(super) struct InPlaceSlot {
    state: Arc<SlotState>,
    /// The object that the plugin gets. One for all turns, so that a call allocates nothing for it.
    context: CallContext,
    operation: AtomicUsize,
    watched: AtomicBool,
    operations: Arc<InPlaceOperations>,
}

struct SlotState {
    /// Odd while a call runs.
    number: AtomicU64,
    health: Arc<SharedHealth>,
    /// Whether the call that runs had output or asked the host.
    used_context: AtomicBool,
    output: Mutex<Vec<Emit>>,
}

impl SlotState {
    fn output(&self) -> MutexGuard<'_, Vec<Emit>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InPlaceSlot {
    pub(super) fn new(earned: Arc<InPlaceOperations>, health: Arc<SharedHealth>) -> Arc<Self> {
        let turns = Arc::new(SlotState {
            number: AtomicU64::new(0),
            health,
            used_context: AtomicBool::new(false),
            output: Mutex::default(),
        });
        let context = InPlaceContext(Arc::clone(&turns));
        Arc::new(Self {
            state: turns,
            context: CallCx_TO::from_ptr(RArc::new(context), TD_Opaque),
            operation: AtomicUsize::new(0),
            watched: AtomicBool::new(false),
            operations: earned,
        })
    }

    /// Takes the slot for an operation that has earned it, unless another call is in it.
    pub(super) fn enter(self: &Arc<Self>, op: &str) -> Option<SlotGuard<'_>> {
        let operation = self.operations.granted(op)?;
        let turns = &self.state;
        let number = turns.number.load(Ordering::Relaxed);
        if number % 2 == 1 || turns.health.quarantined().is_some() {
            return None;
        }
        turns
            .number
            .compare_exchange(number, number + 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.operation.store(operation, Ordering::Relaxed);
        if !self.watched.load(Ordering::Relaxed) {
            WATCHDOG.add(self);
        }
        WATCHDOG.wake();
        Some(SlotGuard {
            slot: self,
            number: number + 1,
        })
    }
}

impl InPlaceSlot {
    #[cold]
    fn deny_and_take_output(&self) -> Vec<Emit> {
        self.state.used_context.store(false, Ordering::Relaxed);
        if let Some(op) = self.operations.deny(self.operation.load(Ordering::Relaxed)) {
            tracing::warn!(
                target: "plugin",
                plugin = %self.state.health.id,
                "`{op}` has output or asks the host, and is not called in place any more"
            );
        }
        std::mem::take(&mut *self.state.output())
    }
}

/// The slot, taken.
pub(super) struct SlotGuard<'a> {
    slot: &'a InPlaceSlot,
    number: u64,
}

impl SlotGuard<'_> {
    /// The object that the plugin gets.
    pub(super) fn context(&self) -> CallContext {
        self.slot.context.clone()
    }

    /// Ends it, and gives the output that the call had all the same.
    pub(super) fn end(self) -> Vec<Emit> {
        if self.slot.state.used_context.load(Ordering::Relaxed) {
            self.slot.deny_and_take_output()
        } else {
            Vec::new()
        }
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        let over = self.number.wrapping_add(1);
        self.slot.state.number.store(over, Ordering::Release);
    }
}

/// The context of calls in place: keeps output for the end of the call, and refuses host
/// operations. A clone that outlives its call says so, except while the next one runs.
#[derive(Clone)]
struct InPlaceContext(Arc<SlotState>);

impl InPlaceContext {
    fn is_over(&self) -> bool {
        self.0.number.load(Ordering::Acquire).is_multiple_of(2)
    }
}

impl CallCx for InPlaceContext {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        if self.is_over() {
            return EmitStatus::Cancelled as u32;
        }
        self.0.used_context.store(true, Ordering::Relaxed);
        let mut output = self.0.output();
        let kept: usize = output.iter().map(|emit| emit.bytes.len()).sum();
        if let Some(kind) = EmitKind::from_number(kind)
            && kept + bytes.len() <= MAX_OUTPUT_BYTES
        {
            output.push(Emit {
                kind,
                bytes: bytes.to_vec(),
            });
        }
        EmitStatus::Ok as u32
    }

    fn cancelled(&self) -> bool {
        self.is_over()
    }

    fn host(&self, _op: RSlice<'_, u8>, _json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        if self.is_over() {
            return ready_fault(code::GONE, "the call is over");
        }
        self.0.used_context.store(true, Ordering::Relaxed);
        ready_fault(code::DENIED, "a call in place has no host operations")
    }

    fn log(&self, level: u32, target: RSlice<'_, u8>, message: RSlice<'_, u8>) {
        let (target, message) = (target.as_slice(), message.as_slice());
        self.0
            .health
            .log(None, &CallMeta::default(), level, target, message);
    }
}

static WATCHDOG: Watchdog = Watchdog {
    slots: Mutex::new(Vec::new()),
    asleep: AtomicBool::new(false),
    thread: OnceLock::new(),
};

struct Watchdog {
    slots: Mutex<Vec<Weak<InPlaceSlot>>>,
    asleep: AtomicBool,
    thread: OnceLock<Option<Thread>>,
}

impl Watchdog {
    #[cold]
    fn add(&'static self, slot: &Arc<InPlaceSlot>) {
        if slot.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(slot));
        self.thread.get_or_init(|| {
            thread::Builder::new()
                .name("plugin-watchdog".to_owned())
                .spawn(|| self.watch())
                .ok()
                .map(|handle| handle.thread().clone())
        });
    }

    fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            if let Some(Some(thread)) = self.thread.get() {
                thread.unpark();
            }
        }
    }

    fn watch(&self) {
        let mut seen: Vec<(Weak<InPlaceSlot>, u64, u32)> = Vec::new();
        let mut quiet = 0;
        loop {
            if quiet >= IDLE_TICKS {
                self.asleep.store(true, Ordering::Release);
                // A call that began just before sees no sleeper, so the sleep has an end.
                thread::park_timeout(Duration::from_secs(1));
                self.asleep.store(false, Ordering::Release);
                quiet = IDLE_TICKS - 2;
            }
            thread::sleep(WATCH_INTERVAL);
            seen.retain(|(slot, ..)| slot.strong_count() > 0);
            let new =
                std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
            seen.extend(new.into_iter().map(|slot| (slot, 0, 0)));
            quiet += 1;
            for (slot, turn, ticks) in &mut seen {
                let Some(slot) = slot.upgrade() else { continue };
                let now = slot.state.number.load(Ordering::Acquire);
                if now != *turn {
                    (*turn, *ticks) = (now, 0);
                    quiet = 0;
                } else if now % 2 == 1 {
                    *ticks += 1;
                    quiet = 0;
                    if *ticks == 2 {
                        revoke_running(&slot);
                    }
                }
            }
        }
    }
}

fn revoke_running(slot: &InPlaceSlot) {
    if let Some(op) = slot
        .operations
        .revoke(slot.operation.load(Ordering::Relaxed))
    {
        tracing::warn!(
            target: "plugin",
            plugin = %slot.state.health.id,
            "`{op}` took more than 10 ms in place and has to earn that again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(50);

    fn earned() -> InPlaceOperations {
        InPlaceOperations::new(["skill.tool.add".to_owned()], SHORT)
    }

    fn trial(earned: &InPlaceOperations, slow: u32) {
        for call in 0..TRIALS {
            let took = if call < slow { SHORT * 2 } else { SHORT };
            earned.record("skill.tool.add", took, false);
        }
    }

    #[test]
    fn a_hundred_short_calls_earn_it() {
        let earned = earned();
        for _ in 0..TRIALS - 1 {
            earned.record("skill.tool.add", SHORT, false);
        }
        assert_eq!(earned.granted("skill.tool.add"), None);
        earned.record("skill.tool.add", SHORT * 100, false);
        assert_eq!(earned.granted("skill.tool.add"), Some(0));
        assert_eq!(earned.granted("skill.tool.other"), None);
    }

    #[test]
    fn two_slow_ones_do_not_and_the_next_hundred_may() {
        let earned = earned();
        trial(&earned, 2);
        assert_eq!(earned.granted("skill.tool.add"), None);
        trial(&earned, 1);
        assert_eq!(earned.granted("skill.tool.add"), Some(0));
    }

    #[test]
    fn a_tool_that_streams_or_asks_the_host_never_earns_it() {
        let earned = earned();
        earned.record("skill.tool.add", SHORT, true);
        trial(&earned, 0);
        assert_eq!(earned.granted("skill.tool.add"), None);
    }

    #[test]
    fn what_was_taken_back_three_times_stays_so() {
        let earned = earned();
        for _ in 0..MAX_REVOCATIONS {
            trial(&earned, 0);
            assert_eq!(earned.granted("skill.tool.add"), Some(0));
            assert_eq!(earned.revoke(0), Some("skill.tool.add"));
            assert_eq!(earned.granted("skill.tool.add"), None);
        }
        trial(&earned, 0);
        assert_eq!(earned.granted("skill.tool.add"), None);
    }
}
