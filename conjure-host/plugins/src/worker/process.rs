//! One worker process, as the host sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use conjure_skill_sdk::frames::Client;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::child::{WorkerChild, WorkerPid, WorkerStreams};
use super::end::{WorkerEnd, last_line};
use super::excess::wait_for_excess;
use super::processor_budget::ProcessorTimeScope;
use super::program::WorkerArguments;
use super::restarts::Restarts;
use super::{WorkerLimits, WorkerOptions};
use crate::health::{LogBudget, dropped_lines};

/// How long a worker that is not needed any more has for its plugin's own clean-up.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long other calls of a worker that is to end may go on.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the cause of an end is waited for. The streams end a moment before the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Why a worker is ended whose frames are none.
pub(super) const VIOLATION: &str = "what it wrote to its standard output is not the protocol";
/// Bytes of what a worker writes to standard error that are kept for its last words.
const STDERR_TAIL_BYTES: usize = 4096;

/// Where workers are started and their ends waited for. Apart from the host's runtime, which may not
/// be there when a plugin is loaded, and since the system ends a worker with the thread that started
/// it.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("plugin-workers")
        .enable_all()
        .build()
});

/// The runtime of the workers.
///
/// # Errors
/// The system's words, when it gave no thread.
pub(super) fn runtime() -> Result<&'static Runtime, String> {
    RUNTIME.as_ref().map_err(ToString::to_string)
}

/// A worker process. It is told to end when this is dropped.
pub(super) struct WorkerProcess {
    pub(super) client: Client,
    /// Where its process is found.
    pid: Option<WorkerPid>,
    /// How many calls run in it.
    calls: watch::Sender<usize>,
    /// Whether the process gets no new work.
    retired: AtomicBool,
    end: watch::Receiver<Option<WorkerEnd>>,
    /// Cancelled when nobody needs it any more.
    closing: CancellationToken,
    /// Why it is to end at once, when it is.
    kill_reason: watch::Sender<Option<&'static str>>,
}

impl WorkerProcess {
    /// Starts one. To be called on [`runtime`]; its streams are read and written on `host`, where
    /// those who wait for answers are: each change of thread costs as much as the rest of a call.
    ///
    /// # Errors
    /// The system's words.
    pub(super) fn start(
        options: &WorkerOptions,
        arguments: &WorkerArguments,
        plugin: &str,
        counted: ProcessorTimeScope,
        restarts: Arc<Restarts>,
        host: &Handle,
    ) -> Result<Arc<Self>, String> {
        let (child, streams) = WorkerChild::start(options, arguments)?;
        let WorkerStreams {
            input,
            output,
            errors,
        } = streams;
        let client = {
            let _entered = host.enter();
            connect(input, output).map_err(|error| error.to_string())?
        };
        let errors = pipe::Receiver::from_owned_fd(errors).map_err(|error| error.to_string())?;
        let (ended, end) = watch::channel(None);
        let process = Arc::new(Self {
            client,
            pid: child.pid(),
            calls: watch::Sender::new(0),
            retired: AtomicBool::new(false),
            end,
            closing: CancellationToken::new(),
            kill_reason: watch::Sender::new(None),
        });
        let watching = ProcessWatch {
            closing: process.closing.clone(),
            kill_reason: process.kill_reason.subscribe(),
            limits: options.limits,
            counted: arguments.processor_seconds.is_none().then_some(counted),
            restarts,
        };
        let plugin = plugin.to_owned();
        tokio::spawn(async move {
            let end = watching.wait(child, errors, plugin).await;
            ended.send_replace(Some(end));
        });
        Ok(process)
    }

    /// The number of its process, as long as that runs and the system says it.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid = self.pid.filter(|_| self.end.borrow().is_none())?;
        pid.process()
    }

    /// Whether it gets no new work: it has ended, or is about to.
    pub(super) fn is_over(&self) -> bool {
        self.retired.load(Ordering::Acquire)
            || self.end.borrow().is_some()
            || self.client.ended().is_some()
    }

    /// End of the process, if its streams ended; waits for the cause.
    pub(super) async fn end_cause(&self) -> Option<WorkerEnd> {
        let reason = self.client.ended()?;
        if let Some(what) = self.client.violation() {
            self.kill(VIOLATION);
            return Some(WorkerEnd::violation(what));
        }
        let mut end = self.end.clone();
        let known = tokio::time::timeout(EXIT_TIMEOUT, end.wait_for(Option::is_some)).await;
        let known = known.ok().and_then(Result::ok).and_then(|end| end.clone());
        Some(known.unwrap_or_else(|| {
            // Its streams cannot be used, so it is of no use.
            self.kill("its streams cannot be used");
            WorkerEnd::unknown(reason)
        }))
    }

    /// Waits until it has ended.
    pub(super) async fn exited(&self) -> WorkerEnd {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|end| end.clone());
        match self.client.violation() {
            // It may have ended since nobody listened any more.
            Some(what) => WorkerEnd::violation(what),
            None => ended.unwrap_or_else(|| WorkerEnd::unknown("nobody saw how")),
        }
    }

    /// A call runs in it until the guard is dropped.
    pub(super) fn start_call(self: &Arc<Self>) -> CallInProcess {
        self.calls.send_modify(|calls| *calls += 1);
        CallInProcess(Arc::clone(self))
    }

    /// Ends it: a call in it does not stop. What else runs in it has a while to end.
    pub(super) fn retire(self: &Arc<Self>) {
        if self.retired.swap(true, Ordering::AcqRel) {
            return;
        }
        const REASON: &str = "a call in it did not stop when told to";
        let process = Arc::clone(self);
        let drain = async move {
            let mut calls = process.calls.subscribe();
            let idle = calls.wait_for(|calls| *calls == 0);
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, idle).await;
            process.kill(REASON);
        };
        match runtime() {
            Ok(runtime) => drop(runtime.spawn(drain)),
            Err(_) => self.kill(REASON),
        }
    }

    /// Ends it at once, for this reason.
    pub(super) fn kill(&self, reason: &'static str) {
        self.retired.store(true, Ordering::Release);
        self.kill_reason.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(reason);
            is_first
        });
    }
}

fn connect(input: OwnedFd, output: OwnedFd) -> io::Result<Client> {
    let input = pipe::Sender::from_owned_fd(input)?;
    let output = pipe::Receiver::from_owned_fd(output)?;
    Ok(Client::connect(output, input))
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// A call that runs in a worker.
pub(super) struct CallInProcess(Arc<WorkerProcess>);

impl CallInProcess {
    /// Ends the worker: this call does not stop.
    pub(super) fn retire(&self) {
        self.0.retire();
    }
}

impl Drop for CallInProcess {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}

/// Waits for the end of a process, and brings it about.
struct ProcessWatch {
    closing: CancellationToken,
    kill_reason: watch::Receiver<Option<&'static str>>,
    limits: WorkerLimits,
    /// Processes whose processor time counts, where the kernel does not limit it.
    counted: Option<ProcessorTimeScope>,
    restarts: Arc<Restarts>,
}

impl ProcessWatch {
    async fn wait(
        mut self,
        mut child: WorkerChild,
        errors: impl AsyncRead + Unpin + Send + 'static,
        plugin: String,
    ) -> WorkerEnd {
        let mut said = tokio::spawn(collect_stderr(errors, plugin));
        let closing = async {
            self.closing.cancelled().await;
            tokio::time::sleep(CLOSE_TIMEOUT).await;
        };
        let killed = async {
            let known = self.kill_reason.wait_for(Option::is_some).await;
            match known.ok().and_then(|reason| *reason) {
                Some(reason) => reason,
                // Nobody can ask for it any more; it is closing.
                None => std::future::pending().await,
            }
        };
        let exceeded = wait_for_excess(child.pid(), self.limits, self.counted);
        let by_host = tokio::select! {
            biased;
            status = child.wait() => {
                // What it has started may take longer to end than whoever asks how it ended waits.
                drop(tokio::spawn(child.end_descendants()));
                let heard = tokio::time::timeout(Duration::from_millis(200), &mut said).await;
                said.abort();
                let last_line = heard.ok().and_then(Result::ok).flatten();
                let end = match status {
                    Ok(status) => WorkerEnd::from_status(&status, last_line, &self.limits),
                    Err(error) => WorkerEnd::unknown(error.to_string()),
                };
                if !self.closing.is_cancelled() {
                    self.restarts.record_end(end.clone());
                }
                return end;
            }
            reason = killed => WorkerEnd::by_host(reason),
            end = exceeded => end,
            () = closing => WorkerEnd::by_host("it did not end by itself"),
        };
        child.end().await;
        said.abort();
        if by_host.is_caused_by_worker() {
            self.restarts.record_end(by_host.clone());
        }
        by_host
    }
}

/// Passes on what a worker writes to standard error, as far as the budget of a plugin's log goes, and
/// keeps its last words.
async fn collect_stderr(mut errors: impl AsyncRead + Unpin, plugin: String) -> Option<String> {
    let log = |line: &str| tracing::debug!(target: "plugin", plugin, "{line}");
    let mut budget = LogBudget::new();
    let mut tail = Vec::new();
    let mut piece = vec![0; STDERR_TAIL_BYTES];
    while let Ok(read @ 1..) = errors.read(&mut piece).await {
        let new = piece.get(..read).unwrap_or_default();
        log_lines(
            &String::from_utf8_lossy(new),
            &mut budget,
            Instant::now(),
            log,
        );
        tail.extend_from_slice(new);
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
    if budget.dropped() > 0 {
        log(&dropped_lines(budget.dropped()));
    }
    last_line(&tail)
}

/// Logs each line of a text that the budget has room for, and before that how many it had none for.
fn log_lines(text: &str, budget: &mut LogBudget, now: Instant, log: impl Fn(&str)) {
    for line in text.lines() {
        let Some(dropped) = budget.take(now) else {
            continue;
        };
        if dropped > 0 {
            log(&dropped_lines(dropped));
        }
        log(line);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_flood_on_standard_error_is_logged_in_part_and_the_rest_is_counted() {
        let (mut budget, begun) = (LogBudget::new(), Instant::now());
        let logged = RefCell::new(Vec::new());
        let log = |line: &str| logged.borrow_mut().push(line.to_owned());
        log_lines(&"x\n".repeat(1000), &mut budget, begun, log);
        assert_eq!(logged.take(), vec!["x".to_owned(); 200]);
        log_lines("y", &mut budget, begun + Duration::from_secs(1), log);
        assert_eq!(logged.take(), [dropped_lines(800), "y".to_owned()]);
    }
}
