//! An instance in a worker, and its successor when the worker ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_abi::{CallContext, Fault, RResult, RVec, code};
use conjure_skill_sdk::frames::RemoteInstance;
use conjure_skill_sdk::protocol::{Empty, Request, op};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::super::services::AfterStop;
use super::instance_worker::InstanceWorker;
use super::process::{CallInProcess, WorkerProcess, runtime};
use super::session_openings::{SessionOpening, SessionOpenings};
use crate::PluginError;
use crate::call::CallRecord;
use crate::link::{InstanceLink, LinkReply};

/// How long an instance that is dropped has for its own clean-up.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer may be on its way when the process that gave it has ended.
const LATE_ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// An instance in a worker of its own. When the worker has ended, the next request makes the instance
/// anew, in the next worker and with the same configuration.
pub(crate) struct WorkerLink(Arc<WorkerInstance>);

struct WorkerInstance {
    worker: Arc<InstanceWorker>,
    /// What the instance is made with.
    create: Vec<u8>,
    /// The context that the instance is made with.
    context: Arc<CallRecord>,
    /// Whether operations are started on the plugin's runtime.
    asynchronous: bool,
    /// How long making it may take.
    limit: Duration,
    /// Whether the instance was told to shut down.
    closed: AtomicBool,
    /// The sessions of an executor or a backend.
    openings: SessionOpenings,
    current: Mutex<LiveInstance>,
}

/// An instance and the process that it is in.
#[derive(Clone)]
struct LiveInstance {
    instance: Arc<RemoteInstance>,
    process: Arc<WorkerProcess>,
}

impl WorkerLink {
    /// Makes the instance.
    ///
    /// # Errors
    /// Why there is none; that the plugin itself refuses is a fault, and inside.
    pub(crate) async fn create(
        worker: Arc<InstanceWorker>,
        create: Vec<u8>,
        context: Arc<CallRecord>,
        asynchronous: bool,
        limit: Duration,
    ) -> Result<Result<Self, Fault>, PluginError> {
        let live = make(&worker, &create, &context, limit).await?;
        Ok(live.map(|live| {
            Self(Arc::new(WorkerInstance {
                worker,
                create,
                context,
                asynchronous,
                limit,
                closed: AtomicBool::new(false),
                openings: SessionOpenings::default(),
                current: Mutex::new(live),
            }))
        }))
    }
}

impl InstanceLink for WorkerLink {
    fn request(
        &self,
        op: &str,
        json: Vec<u8>,
        call: Arc<CallRecord>,
    ) -> BoxFuture<'static, LinkReply> {
        let instance = Arc::clone(&self.0);
        let op = op.to_owned();
        Box::pin(async move { instance.request(&op, &json, call).await })
    }

    fn in_place(
        &self,
        _op: &str,
        _json: &[u8],
        _cx: CallContext,
    ) -> Option<Result<RVec<u8>, Fault>> {
        None
    }

    fn mark_closed(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    fn abandon(&self, call: &CallRecord) -> AfterStop {
        call.give_up();
        AfterStop::WorkerKilled
    }
}

impl WorkerInstance {
    async fn request(&self, op: &str, json: &[u8], call: Arc<CallRecord>) -> LinkReply {
        let mut running = RunningCall {
            call: Arc::clone(&call),
            process: None,
        };
        if op == op::SHUTDOWN && self.current.lock().await.process.is_over() {
            return LinkReply::Reply(Ok(b"{}".to_vec()));
        }
        if op == op::STATE_EXPORT && self.current.lock().await.process.is_over() {
            return LinkReply::WorkerEnded("ended before, and its state with it".to_owned());
        }
        let live = match self.current_instance().await {
            Ok(Ok(live)) => live,
            Ok(Err(fault)) => return LinkReply::Reply(Err(fault)),
            Err(error) => return LinkReply::NoWorker(error.to_string()),
        };
        running.process = Some(live.process.start_call());
        let reply = live
            .instance
            .request(op.as_bytes(), json, self.asynchronous, call.context());
        let mut reply = pin!(reply);
        let reply = tokio::select! {
            biased;
            reply = &mut reply => reply,
            // A program that the plugin started may hold the stream open.
            end = live.process.exited() => match tokio::time::timeout(LATE_ANSWER_TIMEOUT, reply).await {
                Ok(reply) => reply,
                Err(_) => return LinkReply::WorkerEnded(end.to_string()),
            },
        };
        match reply {
            RResult::RErr(fault) if fault.code == code::GONE => {
                match live.process.end_cause().await {
                    Some(end) => LinkReply::WorkerEnded(end.to_string()),
                    None => LinkReply::Reply(Err(fault)),
                }
            }
            reply => {
                self.worker.record_answer();
                if reply.is_ok() {
                    self.openings.record(op, json);
                }
                LinkReply::Reply(reply.into_result().map(RVec::into_vec))
            }
        }
    }

    /// The instance, made anew where its process is over.
    async fn current_instance(&self) -> Result<Result<LiveInstance, Fault>, PluginError> {
        let mut live = self.current.lock().await;
        if live.process.is_over() {
            match make(&self.worker, &self.create, &self.context, self.limit).await? {
                Ok(new) => *live = new,
                Err(fault) => return Ok(Err(fault)),
            }
            tracing::warn!(
                target: "plugin",
                plugin = self.worker.plugin(),
                "its worker was started again; what this instance kept in memory is lost"
            );
            self.reopen_sessions(&live.instance).await;
        }
        Ok(Ok(live.clone()))
    }
}

impl WorkerInstance {
    /// Opens the sessions of an executor or a backend at a new instance. One that cannot be opened
    /// again gets the plugin's own words with its next call.
    async fn reopen_sessions(&self, instance: &RemoteInstance) {
        let opening = async {
            for SessionOpening { op, json, .. } in self.openings.all() {
                let context = self.context.context();
                let opened = instance.request(op.as_bytes(), &json, self.asynchronous, context);
                if let RResult::RErr(fault) = opened.await {
                    tracing::warn!(
                        target: "plugin",
                        plugin = self.worker.plugin(),
                        "a session could not be opened again in its new worker: {}",
                        fault.text()
                    );
                }
            }
        };
        if tokio::time::timeout(self.limit, opening).await.is_err() {
            tracing::warn!(
                target: "plugin",
                plugin = self.worker.plugin(),
                "its sessions were not opened again in its new worker within {:?}",
                self.limit
            );
        }
    }
}

impl Drop for WorkerInstance {
    fn drop(&mut self) {
        let live = self.current.get_mut().clone();
        if self.closed.load(Ordering::Acquire) || live.process.is_over() {
            return;
        }
        let Ok(json) = serde_json::to_vec(&Request::new(Empty {})) else {
            return;
        };
        let (asynchronous, context) = (self.asynchronous, self.context.context());
        let shutdown = async move {
            let op = op::SHUTDOWN.as_bytes();
            let answer = live.instance.request(op, &json, asynchronous, context);
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, answer).await;
        };
        if let Ok(runtime) = runtime() {
            runtime.spawn(shutdown);
        }
    }
}

async fn make(
    worker: &Arc<InstanceWorker>,
    create: &[u8],
    context: &Arc<CallRecord>,
    limit: Duration,
) -> Result<Result<LiveInstance, Fault>, PluginError> {
    let process = worker.start().await?;
    let made = process.client.create_instance(create, context.context());
    match tokio::time::timeout(limit, made).await {
        Ok(Ok(instance)) => Ok(Ok(LiveInstance {
            instance: Arc::new(instance),
            process,
        })),
        Ok(Err(fault)) => match process.end_cause().await {
            Some(end) => Err(worker.end_error(&end.to_string())),
            None => Ok(Err(fault)),
        },
        Err(_) => {
            process.kill("it did not make its instance in time");
            worker.record_timeout();
            Err(worker.hang_error(limit))
        }
    }
}

/// A call until its answer, or until nobody waits for that any more.
struct RunningCall {
    call: Arc<CallRecord>,
    process: Option<CallInProcess>,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.call.leave();
        if let Some(process) = self.process.as_ref().filter(|_| self.call.is_given_up()) {
            tracing::warn!(
                target: "plugin",
                plugin = %self.call.health.id,
                "a call did not stop when told to, so its worker process is ended"
            );
            process.retire();
        }
    }
}
