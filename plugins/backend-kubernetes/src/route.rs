//! A session's way into its pod: the agent is copied there, its relay is started, and every
//! connection says who comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_exec_agent::client::relayed::{
    self, EXIT_INCOMPLETE, EXIT_NO_DIRECTORY, EXIT_NOT_RUNNABLE, EXIT_NOT_WRITTEN, RelayRoute,
    ResumableStream, RouteFailure, attach_script, copy_script, open_script,
};
use conjure_exec_agent::executor::SessionCalls;
use conjure_exec_agent::relay::{
    EXIT_NO_RELAY, EXIT_NO_SESSION_DIR, EXIT_NO_SPACE, RefusalReason, RelayFrame, RelayRefusal,
};
use conjure_skill_sdk::abi::LogLevel;
use conjure_skill_sdk::protocol::SkillMount;

use crate::cluster::Cluster;
use crate::explain::{ClusterFailure, explain};
use crate::pod_exec::{PodProcess, ProcessEnd, ScriptFailure};
use crate::pod_status::{PodState, state};
use crate::retry::ask;
use crate::session::KubernetesState;

/// How long the cluster may take to say how a pod is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the relay in a pod.
pub(crate) type PodRelayed = relayed::Relayed<PodProcess>;

/// The way into one pod.
#[derive(Debug)]
pub(crate) struct PodRoute {
    pub(crate) cluster: Cluster,
    pub(crate) name: String,
    backend: Arc<KubernetesState>,
    /// Secret that only this session knows.
    token: String,
    skills: Arc<[SkillMount]>,
    calls: Arc<SessionCalls>,
    /// Whether the cluster said that it made the pod.
    is_created: AtomicBool,
}

impl PodRoute {
    pub(crate) fn new(
        cluster: Cluster,
        name: String,
        world: Arc<KubernetesState>,
        skills: Arc<[SkillMount]>,
        calls: Arc<SessionCalls>,
    ) -> Self {
        Self {
            cluster,
            name,
            backend: world,
            token: uuid::Uuid::new_v4().simple().to_string(),
            skills,
            calls,
            is_created: AtomicBool::new(false),
        }
    }

    pub(crate) fn mark_created(&self) {
        self.is_created.store(true, Ordering::Release);
    }

    pub(crate) fn is_created(&self) -> bool {
        self.is_created.load(Ordering::Acquire)
    }

    /// The cluster as it is to be asked now: a login may be another one than before.
    async fn current(&self) -> Result<Cluster, ClusterFailure> {
        let cluster = self
            .backend
            .connection
            .cluster(&self.backend.settings)
            .await;
        cluster.map_err(|error| ClusterFailure {
            is_transient: true,
            ..ClusterFailure::permanent(error.to_string())
        })
    }

    /// Passes a failure on. Where the cluster does not know who asks, the kubeconfig is read again.
    async fn note_failure(&self, failure: ClusterFailure) -> ClusterFailure {
        if failure.unknown {
            self.backend.connection.forget().await;
        }
        failure
    }

    /// Begins a stream, with an agent of its own.
    pub(crate) async fn open(
        &self,
        stream: &ResumableStream,
    ) -> Result<PodRelayed, ClusterFailure> {
        let settings = &self.backend.settings;
        let path = self.backend.agent.path(&settings.agent_dir);
        let agent = self.backend.agent.at_path(&path);
        let script = open_script(&agent, &settings.session_dir(), settings.waits_seconds());
        let mut process = self.run(&script, None).await?;
        if let Some(system) = process.mark.strip_prefix("wanted") {
            if let Some(own) = self.backend.agent.is_not_for(system.trim()) {
                return Err(self.permanent_failure(&format!(
                    "is {}, and this plugin brings an agent for {own} only: name one for it with \
                     `agent`, or nodes of this kind with `node_selector` (kubernetes.io/arch)",
                    system.trim()
                )));
            }
            drop(process);
            let copy = copy_script(&settings.agent_dir, &agent);
            drop(self.run(&copy, Some(&self.backend.agent.bytes)).await?);
            process = self.run(&script, None).await?;
        }
        let mut connection = relayed(process);
        let mut answered = connection.handshake(&self.token, stream).await;
        if answered == Some(RelayFrame::NoStream) {
            let begun = connection.begin(&self.skills, Some(settings.working_dir.clone()));
            answered = begun.await.map_err(|error| {
                self.permanent_failure(&format!("cannot get the session's skills: {error}"))
            })?;
        }
        match answered {
            Some(RelayFrame::Welcome(0)) => Ok(connection),
            other => Err(self.refusal_reason(connection, other).await),
        }
    }

    /// Asks the cluster for the state of the pod.
    pub(crate) async fn state(&self) -> Result<PodState, ClusterFailure> {
        let what = format!("looking after the pod {}", self.name);
        let cluster = self.current().await?;
        let asking = Box::pin(ask(STATUS_TIMEOUT, || {
            Box::pin(cluster.pods.get_opt(&self.name))
        }));
        match asking.await {
            Some(Ok(Some(pod))) => Ok(state(&pod)),
            Some(Ok(None)) => Ok(PodState::Terminated("somebody has deleted it".to_owned())),
            Some(Err(error)) => {
                let failure = explain(&cluster, &what, "get pods", &error);
                Err(self.note_failure(failure).await)
            }
            None => Err(ClusterFailure::timed_out(&cluster, &what)),
        }
    }

    async fn run(&self, script: &str, first: Option<&[u8]>) -> Result<PodProcess, ClusterFailure> {
        let shell = &self.backend.settings.shell;
        let cluster = self.current().await?;
        let run = Box::pin(PodProcess::run(&cluster, &self.name, shell, script, first));
        match run.await {
            Ok(process) => Ok(process),
            Err(ScriptFailure::Ended(end)) => Err(self.script_failure(&end)),
            Err(ScriptFailure::Cluster(failure)) => {
                let failure = self.note_failure(failure).await;
                Err(self.explain_by_pod_state(failure).await)
            }
        }
    }

    /// Passes a failure on, or says that the pod is over, which waiting does not change.
    async fn explain_by_pod_state(&self, failure: ClusterFailure) -> ClusterFailure {
        match self.state().await {
            Ok(PodState::Terminated(why)) => self.permanent_failure(&format!("is over: {why}")),
            Ok(_) if failure.not_found => ClusterFailure {
                is_transient: true,
                ..failure
            },
            _ => failure,
        }
    }

    fn permanent_failure(&self, text: &str) -> ClusterFailure {
        ClusterFailure::permanent(format!("the pod {} {text}", self.name))
    }

    /// The failure that the end of a script means.
    fn script_failure(&self, end: &ProcessEnd) -> ClusterFailure {
        let what = match end.code {
            Some(EXIT_NO_DIRECTORY | EXIT_NOT_WRITTEN) => {
                "does not let the agent be written: see `agent_dir`, the `user` and the room there"
            }
            Some(EXIT_INCOMPLETE) => "did not get the whole agent: call again",
            Some(EXIT_NOT_RUNNABLE) => {
                "does not run the agent: `agent_dir` must allow programs, and the agent be one for \
                 the node's processor"
            }
            Some(code) if code == i32::from(EXIT_NO_RELAY) => {
                "has no relay of the session any more: it ended, or was killed"
            }
            Some(code) if code == i32::from(EXIT_NO_SPACE) => {
                "has no room for the session's directory: give it more with `disk_mb`"
            }
            Some(code) if code == i32::from(EXIT_NO_SESSION_DIR) => {
                "lets nobody make the session's directory: see the `user`"
            }
            Some(126 | 127) => {
                "lacks a program that is needed: the image needs a shell, cat, head, mkdir, mv, \
                 chmod, wc and sleep"
            }
            _ => "does not run the agent",
        };
        let why = match end.message.as_str() {
            "" => String::new(),
            complaint => format!(" ({complaint})"),
        };
        let mut failure = self.permanent_failure(&format!("{what}{why}"));
        // A stream that ends without a word was cut.
        failure.is_transient = end.code.is_none();
        failure
    }

    /// Why somebody who came is not let in.
    async fn refusal_reason(
        &self,
        connection: PodRelayed,
        said: Option<RelayFrame>,
    ) -> ClusterFailure {
        match said {
            Some(RelayFrame::Refused(RelayRefusal { reason, text })) => {
                let hint = match reason {
                    RefusalReason::WorkingDir => ": see `working_dir` and the `user`",
                    RefusalReason::NoRoom => ": give it more with `disk_mb`",
                    RefusalReason::Other => "",
                };
                self.permanent_failure(&format!("does not take the session: {text}{hint}"))
            }
            _ => self.script_failure(&connection.carrier.end().await),
        }
    }
}

fn relayed(mut process: PodProcess) -> PodRelayed {
    let rest = std::mem::take(&mut process.buffered);
    PodRelayed::new(process, &rest)
}

impl RelayRoute for PodRoute {
    type Carrier = PodProcess;

    fn target(&self) -> &str {
        &self.name
    }

    fn notify(&self, text: &str) {
        self.backend.cx.log(LogLevel::Warn, text);
        self.calls.notify(text);
    }

    async fn attach(&self, stream: &ResumableStream) -> Result<(PodRelayed, u64), RouteFailure> {
        let settings = &self.backend.settings;
        let path = self.backend.agent.path(&settings.agent_dir);
        let script = attach_script(&self.backend.agent.at_path(&path), &settings.session_dir());
        // A cluster that does not know who asks may know the login that is read next.
        let process = self.run(&script, None).await.map_err(|mut failure| {
            failure.is_transient |= failure.unknown;
            failure
        })?;
        if process.mark != "there" {
            return Err(self
                .permanent_failure("has lost the agent that was copied there")
                .into());
        }
        let mut connection = relayed(process);
        Err(match connection.handshake(&self.token, stream).await {
            Some(RelayFrame::Welcome(received)) => return Ok((connection, received)),
            Some(RelayFrame::NoStream) => self.script_failure(&ProcessEnd {
                code: Some(EXIT_NO_RELAY.into()),
                ..ProcessEnd::default()
            }),
            other => self.refusal_reason(connection, other).await,
        }
        .into())
    }

    fn retry_time(&self) -> Duration {
        self.backend.settings.reconnect()
    }

    fn probe_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.backend.settings.alive_ms))
    }
}
