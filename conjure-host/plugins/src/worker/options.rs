//! Settings of workers: which plugins run in one, what a worker is, and what it may use.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use super::PluginTrust;
use super::machine_memory::usable_memory;
use crate::TrustedSigners;

/// Where the code of a plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// In the host's process: as fast as it gets, and what ends the process ends the host.
    InProcess,
    /// In a process of its own.
    #[default]
    Process,
}

impl Isolation {
    /// Name in settings and in lists: `in-process` or `process`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Process => "process",
        }
    }
}

/// How a host runs workers.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The program that calls [`worker_main`](super::worker_main) when it is started with `args`
    /// in front of its other arguments.
    pub program: PathBuf,
    /// What tells the program that it is to be a worker, such as `plugin-host`.
    pub args: Vec<OsString>,
    /// Variables that workers have beside those that every program needs (`PATH`, `HOME`,
    /// language, time zone, temporary directory).
    pub env: Vec<(OsString, OsString)>,
    /// Where libraries run that nobody has listed as trusted and that could run in either place; in
    /// workers unless set otherwise. One that may not run in the host (it was built with
    /// `panic = "abort"`, or the process has opened as many as it can) always gets a worker.
    pub isolation: Isolation,
    /// Libraries that run in the host all the same, where they can.
    pub trust: PluginTrust,
    /// Signers whose packages run in the host too.
    pub signers: TrustedSigners,
    /// Whether each worker reaches only what the plugin's manifest names and its session has; it does
    /// unless set otherwise.
    pub confined: bool,
    /// What each worker may use.
    pub limits: WorkerLimits,
}

impl WorkerOptions {
    /// Workers of this program, for every library that is not trusted.
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Self {
        Self {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            env: Vec::new(),
            isolation: Isolation::default(),
            trust: PluginTrust::default(),
            signers: TrustedSigners::default(),
            confined: true,
            limits: WorkerLimits::default(),
        }
    }
}

/// What one worker may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Bytes of memory that it writes to; 2 GiB. A worker that needs more ends.
    pub memory: u64,
    /// Files, pipes and sockets that are open at the same time; 1,024.
    pub open_files: u64,
    /// Time of processors that a worker uses, in whole seconds; an hour for each processor of this machine. One
    /// that needs more ends, and the next begins anew. For a skill that starts no programs it is what it uses in
    /// all. Another plugin may be there for days: it is looked every second on Linux, and of what it used a
    /// quarter of the time that passes is given back. That is the worker's own time for an executor, whose
    /// programs are the session's, and for others that of the programs that it started too.
    pub processor_time: Duration,
    /// Threads that it has at the same time, looked at every second; 2,048. A worker with more ends. Those of
    /// programs that it starts are not counted. Linux only.
    pub threads: usize,
    /// Processes that a worker which starts programs is at the same time with all of these, looked at every
    /// second; 1,024. One that is more ends, and all of them with it. Linux only.
    pub processes: usize,
    /// Bytes of memory that these have together, looked at in the same way; half of what the host may use of
    /// this machine's, and no less than `memory` where there is as much.
    pub tree_memory: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let memory: u64 = 2 * 1024 * 1024 * 1024;
        Self {
            memory,
            open_files: 1024,
            processor_time: Duration::from_secs(60 * 60).saturating_mul(processors),
            threads: 2048,
            processes: 1024,
            tree_memory: usable_memory()
                .map_or(u64::MAX, |usable| memory.max(usable / 2).min(usable)),
        }
    }
}
