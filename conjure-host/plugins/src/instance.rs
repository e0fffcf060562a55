//! An instance of a plugin, and the life of a request to it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_abi::{Fault, RVec, code};
use conjure_skill_sdk::protocol::{Empty, Request, op};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::call::CallRecord;
use super::emit::Emit;
use super::in_place::InPlaceSlot;
use super::link::{InstanceLink, LinkReply};
use super::loaded::LoadedPlugin;
use super::services::{AfterStop, CallOptions, HostServices, PluginCallFailure};
use super::worker::InstanceDirs;

/// The most bytes that are kept of a fault's message.
const MAX_MESSAGE_LENGTH: usize = 16 * 1024;

/// The bytes of a reply, where the plugin put them: they go back to its allocator when this is
/// dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyBytes {
    bytes: RVec<u8>,
    output: Vec<Emit>,
}

impl ReplyBytes {
    /// The output that the call had before it answered.
    pub fn output(&self) -> &[Emit] {
        &self.output
    }
}

impl std::ops::Deref for ReplyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

impl From<ReplyBytes> for Vec<u8> {
    fn from(bytes: ReplyBytes) -> Self {
        bytes.bytes.into_vec()
    }
}

/// One instance: a skill's state of one session, or a backend.
///
/// Dropping it tells the plugin to shut down and ends it, on a thread that is not the dropping
/// one. Its host services end at once.
pub struct Instance {
    plugin: Arc<LoadedPlugin>,
    link: Box<dyn InstanceLink>,
    context: Arc<CallRecord>,
    services: Arc<dyn HostServices>,
    slot: Arc<InPlaceSlot>,
    /// In a worker, what of a session it was made with.
    dirs: Option<InstanceDirs>,
}

impl Instance {
    pub(super) fn new(
        plugin: Arc<LoadedPlugin>,
        link: Box<dyn InstanceLink>,
        context: Arc<CallRecord>,
        services: Arc<dyn HostServices>,
    ) -> Self {
        plugin.health.instances.fetch_add(1, Ordering::AcqRel);
        let slot = InPlaceSlot::new(
            Arc::clone(&plugin.in_place_operations),
            Arc::clone(&plugin.health),
        );
        Self {
            plugin,
            link,
            context,
            services,
            slot,
            dirs: None,
        }
    }

    /// Notes that it runs in a worker, which reaches these directories of a session and no others.
    pub(super) fn confine_to(&mut self, dirs: InstanceDirs) {
        self.dirs = Some(dirs);
    }

    /// Whether it reaches a skill folder: in the host's process any, in a worker those that it was made
    /// with.
    pub fn reaches_folder(&self, folder: &Path) -> bool {
        let mut granted = self
            .dirs
            .iter()
            .flat_map(|dirs| dirs.folders.iter().chain(&dirs.work).chain(&dirs.read));
        self.dirs.is_none() || granted.any(|granted| folder.starts_with(granted))
    }

    /// The plugin that it is of: the very version, whatever is routed now.
    pub fn plugin(&self) -> &Arc<LoadedPlugin> {
        &self.plugin
    }

    /// Carries out an operation: JSON of its request in the protocol's envelope in, JSON of its
    /// reply out. Code that blocks gets a thread of its own.
    ///
    /// When the time is up or the call is cancelled, the plugin is told so and has a grace to
    /// stop; what it still answers then is in the failure. Dropping the future cancels too.
    ///
    /// # Errors
    /// Every failure names the plugin.
    #[boxed]
    pub async fn request(
        &self,
        op: &str,
        json: Vec<u8>,
        options: CallOptions,
    ) -> Result<Vec<u8>, PluginCallFailure> {
        let health = &self.plugin.health;
        if let Some(reason) = health.quarantined() {
            return Err(PluginCallFailure::Quarantined {
                plugin: self.name(),
                reason: reason.to_owned(),
            });
        }
        health.calls.fetch_add(1, Ordering::Relaxed);
        let call = CallRecord::new(
            Arc::clone(health),
            Handle::current(),
            Arc::clone(&self.services),
            options.deadline,
            options.sink,
            options.meta,
        );
        let ending = FinishOnDrop(Arc::clone(&call));
        let waited = tokio::select! {
            biased;
            () = options.cancel.cancelled() => Err(CallStop::Cancelled),
            slot = Arc::clone(&health.slots).acquire_owned() => Ok(slot),
            () = call.clock.expired() => Err(CallStop::TimedOut),
        };
        match waited {
            Ok(Ok(slot)) => call.hold(slot),
            Ok(Err(_)) | Err(CallStop::TimedOut) => {
                return Err(PluginCallFailure::Busy {
                    plugin: self.name(),
                    threads: health.limits.threads,
                    limit: options.deadline.unwrap_or_default(),
                });
            }
            Err(CallStop::Cancelled) => {
                return Err(PluginCallFailure::Cancelled {
                    plugin: self.name(),
                    late: None,
                    after: AfterStop::Stopped,
                });
            }
        }
        call.enter();
        let mut reply = self.link.request(op, json, Arc::clone(&call));
        let stop = tokio::select! {
            biased;
            answer = &mut reply => return self.finish(op, &call, answer),
            () = options.cancel.cancelled() => CallStop::Cancelled,
            () = call.clock.expired() => CallStop::TimedOut,
        };
        let (late, after) = self.stop(&call, reply).await;
        drop(ending);
        let plugin = self.name();
        Err(match stop {
            CallStop::Cancelled => PluginCallFailure::Cancelled {
                plugin,
                late,
                after,
            },
            CallStop::TimedOut => PluginCallFailure::TimedOut {
                plugin,
                limit: options.deadline.unwrap_or_default(),
                late,
                after,
            },
        })
    }

    /// Whether the operation's tool has earned calls in place.
    pub fn can_run_in_place(&self, op: &str) -> bool {
        self.plugin.in_place_operations.granted(op).is_some()
    }

    /// Carries out an operation on the calling thread, if its tool has earned that and no other
    /// call of this instance is on that way; otherwise nothing, and [`Instance::request`] is the
    /// way to go. The reply is not checked for being JSON.
    ///
    /// Earned is it by a tool that declares `in_place`, by 100 ordinary calls of which at most one
    /// took more than [`PluginLimits::in_place`](super::PluginLimits::in_place). A call of more than 10 ms
    /// loses it; it can be earned again, three times at the most. One with output, or that asked the host,
    /// loses it for good.
    #[must_use = "without an answer the ordinary way is to be taken"]
    pub fn request_in_place(&self, op: &str, json: &[u8]) -> Option<Result<ReplyBytes, Fault>> {
        let turn = self.slot.enter(op)?;
        let reply = self.link.in_place(op, json, turn.context())?;
        let output = turn.end();
        Some(match reply {
            Ok(bytes) if bytes.len() > self.plugin.health.limits.reply => Err(Fault::new(
                code::FAILED,
                "the reply is larger than the host takes",
            )),
            Ok(bytes) => Ok(ReplyBytes { bytes, output }),
            Err(fault) => Err(fault),
        })
    }

    /// Tells the plugin to shut down, and waits for its answer up to the limit. The instance ends
    /// when it is dropped.
    #[boxed]
    pub async fn close(&self, limit: Duration) {
        let Ok(json) = serde_json::to_vec(&Request::new(Empty {})) else {
            return;
        };
        let options = CallOptions {
            deadline: Some(limit),
            ..CallOptions::default()
        };
        self.link.mark_closed();
        if let Err(failure) = self.request(op::SHUTDOWN, json, options).await {
            tracing::debug!("{failure}");
        }
    }

    /// Tells the plugin to stop and waits for the grace. Gives what it answers, and what becomes of its
    /// code.
    async fn stop(
        &self,
        call: &Arc<CallRecord>,
        mut reply: BoxFuture<'static, LinkReply>,
    ) -> (Option<Result<Vec<u8>, Fault>>, AfterStop) {
        call.cancel();
        match tokio::time::timeout(self.plugin.health.limits.grace, &mut reply).await {
            Ok(LinkReply::Reply(Ok(bytes))) => {
                (self.check_reply(bytes).ok().map(Ok), AfterStop::Stopped)
            }
            Ok(LinkReply::Reply(Err(fault))) if fault.code == code::PANIC => {
                let panics = &self.plugin.health.late_panics;
                panics.fetch_add(1, Ordering::Relaxed);
                (None, AfterStop::Stopped)
            }
            // That it was told to stop is known.
            Ok(LinkReply::Reply(Err(fault))) if fault.code != code::CANCELLED => {
                let fault = Fault::new(fault.code, fault_message(&fault));
                (Some(Err(fault)), AfterStop::Stopped)
            }
            Ok(LinkReply::WorkerEnded(_)) => (None, AfterStop::WorkerDied),
            Ok(_) => (None, AfterStop::Stopped),
            Err(_) => (None, self.link.abandon(call)),
        }
    }

    fn finish(
        &self,
        op: &str,
        call: &CallRecord,
        answer: LinkReply,
    ) -> Result<Vec<u8>, PluginCallFailure> {
        match answer {
            LinkReply::Reply(Ok(bytes)) => {
                let took = Duration::from_nanos(call.elapsed_nanos.load(Ordering::Relaxed));
                let busy = call.used_context.load(Ordering::Relaxed);
                self.plugin.in_place_operations.record(op, took, busy);
                self.check_reply(bytes)
                    .map_err(|reason| PluginCallFailure::BadReply {
                        plugin: self.name(),
                        reason,
                    })
            }
            LinkReply::Reply(Err(fault)) => Err(PluginCallFailure::Fault {
                plugin: self.name(),
                code: fault.code,
                message: fault_message(&fault),
            }),
            LinkReply::Broken(reason) => Err(PluginCallFailure::BadReply {
                plugin: self.name(),
                reason,
            }),
            LinkReply::NoThread(reason) => Err(PluginCallFailure::NoThread {
                plugin: self.name(),
                reason,
            }),
            LinkReply::WorkerEnded(end) => Err(PluginCallFailure::WorkerEnded {
                plugin: self.name(),
                end,
            }),
            LinkReply::NoWorker(reason) => Err(PluginCallFailure::NoWorker {
                plugin: self.name(),
                reason,
            }),
        }
    }

    /// A reply is JSON, in UTF-8, and of a size that a host can bear.
    fn check_reply(&self, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let limit = self.plugin.health.limits.reply;
        if bytes.len() > limit {
            return Err(format!(
                "it has {} bytes, and a host takes {limit}; larger payloads cross as files",
                bytes.len()
            ));
        }
        let text = std::str::from_utf8(&bytes).map_err(|e| format!("it is not UTF-8 ({e})"))?;
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|e| format!("it is not JSON ({e})"))?;
        Ok(bytes)
    }

    fn name(&self) -> String {
        self.plugin.id().to_string()
    }
}

/// A fault's message, as far as it is kept.
fn fault_message(fault: &Fault) -> String {
    let mut message = fault.text().into_owned();
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_LENGTH) {
        message.truncate(end);
        message.push('…');
    }
    message
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.context.finish();
        self.plugin.health.instances.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("plugin", &self.plugin.id())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum CallStop {
    Cancelled,
    TimedOut,
}

/// Ends a call, however its request ends.
struct FinishOnDrop(Arc<CallRecord>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.0.finish();
    }
}
