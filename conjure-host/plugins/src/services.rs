//! What surrounds a call: who it is for, what the host serves it, and how it can fail.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_abi::{Fault, LogLevel, code};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::Sha256;
use super::emit::EmitSink;
use conjure_core::sentence::sentence;

/// Identity of a plugin: name, version, and for a library the hash of its file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PluginId {
    /// The plugin's name.
    pub name: Arc<str>,
    /// The plugin's version.
    pub version: semver::Version,
    /// Hash of the library; nothing for one that is linked into the host.
    pub sha256: Option<Sha256>,
}

impl fmt::Display for PluginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Session, turn and tool call that a request is for. The host reads them when the plugin asks back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallMeta {
    /// The session.
    pub session: Option<Arc<str>>,
    /// The tool call.
    pub call_id: Option<Arc<str>>,
    /// The turn.
    pub turn_id: Option<Arc<str>>,
}

/// How a request is carried out.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// How long it may take, waiting for a free thread included; 30 s by default. Nothing for
    /// one that stays pending, such as `backend.watch`.
    pub deadline: Option<Duration>,
    /// Where its output goes; without one it is taken and dropped.
    pub sink: Option<EmitSink>,
    /// Cancels it.
    pub cancel: CancellationToken,
    /// Session, turn and tool call that the request is for.
    pub meta: CallMeta,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            deadline: Some(Duration::from_secs(30)),
            sink: None,
            cancel: CancellationToken::new(),
            meta: CallMeta::default(),
        }
    }
}

/// What the host does for a plugin. One a session for a skill, one a backend instance for a
/// backend.
pub trait HostServices: Send + Sync + 'static {
    /// Carries out a host operation: JSON of its request schema in, JSON of its reply schema out.
    /// `call.cancelled` and `call.writable` never arrive here. The future is dropped when the
    /// plugin loses interest or the call is over.
    fn host(
        &self,
        plugin: &PluginId,
        call: &CallMeta,
        op: &str,
        json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>>;

    /// Whether an operation waits for somebody outside the host, such as a person: the call's time
    /// stands still meanwhile, and it takes no thread of the plugin's.
    fn is_interactive(&self, op: &str) -> bool {
        let _ = op;
        false
    }

    /// Takes a line of the plugin's log. Without an implementation it goes to `tracing` with the
    /// target `plugin`.
    fn log(
        &self,
        plugin: &PluginId,
        call: &CallMeta,
        level: LogLevel,
        target: &str,
        message: &str,
    ) {
        let _ = call;
        trace(plugin, level, target, message);
    }
}

/// A host that serves no operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoServices;

impl HostServices for NoServices {
    fn host(
        &self,
        _plugin: &PluginId,
        _call: &CallMeta,
        op: &str,
        _json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
        let fault = Fault::new(
            code::UNSUPPORTED,
            format!("this host does not serve `{op}`"),
        );
        Box::pin(std::future::ready(Err(fault)))
    }
}

pub(super) fn trace(plugin: &PluginId, level: LogLevel, target: &str, message: &str) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(target: "plugin", plugin = %plugin, from = target, "{message}")
        };
    }
    match level {
        LogLevel::Error => line!(error),
        LogLevel::Warn => line!(warn),
        LogLevel::Info => line!(info),
        LogLevel::Debug => line!(debug),
        LogLevel::Trace => line!(trace),
    }
}

/// How a request failed. Every message names the plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginCallFailure {
    /// The plugin answered that it could not.
    #[error("{plugin}: {message}")]
    Fault {
        /// Name and version.
        plugin: String,
        /// One of [`conjure_abi::code`].
        code: u32,
        /// What the plugin says.
        message: String,
    },
    /// The plugin did not answer in time.
    #[error("{plugin}: did not answer within {limit:?}{}", after.explanation())]
    TimedOut {
        /// Name and version.
        plugin: String,
        /// The limit.
        limit: Duration,
        /// What it answered after it was told to stop: JSON of the operation's reply, or why there is
        /// none.
        late: Option<Result<Vec<u8>, Fault>>,
        /// What became of the plugin's code.
        after: AfterStop,
    },
    /// The call was cancelled.
    #[error("{plugin}: the call was cancelled{}", after.explanation())]
    Cancelled {
        /// Name and version.
        plugin: String,
        /// What it answered after it was told to stop: JSON of the operation's reply, or why there is
        /// none.
        late: Option<Result<Vec<u8>, Fault>>,
        /// What became of the plugin's code.
        after: AfterStop,
    },
    /// No thread became free in time; the plugin's code never ran.
    #[error(
        "{plugin}: all of its {threads} threads are busy, and none became free within {limit:?}"
    )]
    Busy {
        /// Name and version.
        plugin: String,
        /// How many calls of it run at the same time.
        threads: usize,
        /// The limit.
        limit: Duration,
    },
    /// The answer is nothing that a plugin may answer.
    #[error("{plugin}: its answer cannot be used: {reason}")]
    BadReply {
        /// Name and version.
        plugin: String,
        /// What is wrong.
        reason: String,
    },
    /// The plugin may not be used any more; its code did not run.
    #[error("{plugin}: {reason}")]
    Quarantined {
        /// Name and version.
        plugin: String,
        /// What it did.
        reason: String,
    },
    /// The host has no thread for it; the plugin's code did not run.
    #[error("{plugin}: the host has no thread for the call: {reason}")]
    NoThread {
        /// Name and version.
        plugin: String,
        /// What the system says.
        reason: String,
    },
    /// The plugin's worker ended while the call ran.
    #[error(
        "{plugin}: its worker process {} Other calls that ran in it are lost too, and so is what \
         the plugin kept in memory; the next call starts a new worker",
        sentence(end)
    )]
    WorkerEnded {
        /// Name and version.
        plugin: String,
        /// End of the worker process, as a phrase for the sentence.
        end: String,
    },
    /// There is no worker for the plugin; its code did not run.
    #[error("{plugin}: there is no worker for it: {reason}")]
    NoWorker {
        /// Name and version.
        plugin: String,
        /// What failed when one was started.
        reason: String,
    },
}

/// What became of a plugin's code that was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterStop {
    /// The code stopped.
    Stopped,
    /// The code did not stop, so its worker process is ended, with what the plugin kept in memory.
    WorkerKilled,
    /// The worker process of the code ended by itself meanwhile.
    WorkerDied,
    /// The code did not stop, and may go on.
    StillRunning,
}

impl AfterStop {
    fn explanation(self) -> &'static str {
        match self {
            Self::Stopped => "",
            Self::WorkerKilled => {
                ", did not stop when told to, and its worker process is ended: what the plugin kept \
                 in memory is lost"
            }
            Self::WorkerDied => {
                ", and its worker process ended meanwhile: what the plugin kept in memory is lost"
            }
            Self::StillRunning => ", did not stop when told to, and was abandoned",
        }
    }
}

impl PluginCallFailure {
    /// Whether the plugin's code certainly did not run, so that the call can be repeated.
    pub fn never_ran(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Quarantined { .. }
                | Self::NoThread { .. }
                | Self::NoWorker { .. }
        )
    }
}
