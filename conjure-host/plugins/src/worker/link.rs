//! An instance in a worker, and its successor when the worker ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_abi::{CallContext, Fault, RResult, RVec, code};
use conjure_skill_sdk::frames::RemoteInstance;
use conjure_skill_sdk::protocol::{Empty, Request, op};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::instance_worker::InstanceWorker;
use super::process::{CallInProcess, WorkerProcess, runtime};
use crate::PluginError;
use crate::call::CallRecord;
use crate::link::{InstanceLink, LinkReply};

/// How long an instance that is dropped has for its own clean-up.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// An instance in a worker of its own. When the worker has ended, the next request makes the instance
/// anew, in the next worker and with the same configuration.
pub(crate) struct WorkerLink(Arc<WorkerInstance>);

struct WorkerInstance {
    worker: Arc<InstanceWorker>,
    /// What the instance is made with.
    create: Vec<u8>,
    /// The context that the instance is made with.
    context: Arc<CallRecord>,
    /// Operations are started on the plugin's runtime.
    asynchronous: bool,
    /// How long making it may take.
    limit: Duration,
    /// It was told to shut down.
    closed: AtomicBool,
    live: Mutex<LiveInstance>,
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
                live: Mutex::new(live),
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

    fn closed(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    fn abandon(&self, call: &CallRecord) -> bool {
        call.give_up();
        false
    }
}

impl WorkerInstance {
    async fn request(&self, op: &str, json: &[u8], call: Arc<CallRecord>) -> LinkReply {
        let mut running = RunningCall {
            call: Arc::clone(&call),
            process: None,
        };
        if op == op::SHUTDOWN && self.live.lock().await.process.is_over() {
            return LinkReply::Reply(Ok(b"{}".to_vec()));
        }
        let live = match self.live().await {
            Ok(Ok(live)) => live,
            Ok(Err(fault)) => return LinkReply::Reply(Err(fault)),
            Err(error) => return LinkReply::NoWorker(error.to_string()),
        };
        running.process = Some(live.process.enter());
        let reply = live
            .instance
            .request(op.as_bytes(), json, self.asynchronous, call.context())
            .await;
        match reply {
            RResult::RErr(fault) if fault.code == code::GONE => match live.process.ended().await {
                Some(end) => LinkReply::WorkerEnded(end.to_string()),
                None => LinkReply::Reply(Err(fault)),
            },
            reply => {
                self.worker.answered();
                LinkReply::Reply(reply.into_result().map(RVec::into_vec))
            }
        }
    }

    /// The instance, made anew where its process is over.
    async fn live(&self) -> Result<Result<LiveInstance, Fault>, PluginError> {
        let mut live = self.live.lock().await;
        if live.process.is_over() {
            match make(&self.worker, &self.create, &self.context, self.limit).await? {
                Ok(new) => *live = new,
                Err(fault) => return Ok(Err(fault)),
            }
            tracing::warn!(
                target: "plugin",
                plugin = self.worker.plugin(),
                "its worker was started again; what this instance knew is lost"
            );
        }
        Ok(Ok(live.clone()))
    }
}

impl Drop for WorkerInstance {
    fn drop(&mut self) {
        let live = self.live.get_mut().clone();
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
            let _ = tokio::time::timeout(SHUTDOWN, answer).await;
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
    let process = worker.process().await?;
    let made = process.client.create_instance(create, context.context());
    match tokio::time::timeout(limit, made).await {
        Ok(Ok(instance)) => Ok(Ok(LiveInstance {
            instance: Arc::new(instance),
            process,
        })),
        Ok(Err(fault)) => match process.ended().await {
            Some(end) => Err(worker.ended(&end.to_string())),
            None => Ok(Err(fault)),
        },
        Err(_) => {
            process.retire();
            Err(worker.hung(limit))
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
