//! A session's way into its pod: the agent is copied there, its relay is started, and every
//! connection says who comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_exec_agent::client::relayed::{
    self, CUT, DOES_NOT_RUN, KeptStream, NO_DIRECTORY, NOT_WRITTEN, RelayRoute, RouteFailure,
    attach_script, copy_script, open_script,
};
use conjure_exec_agent::executor::SessionCalls;
use conjure_exec_agent::relay::{
    NO_ROOM, NO_SESSION_DIR, NOT_THERE, RefusalReason, RelayFrame, RelayRefusal,
};
use conjure_skill_sdk::abi::LogLevel;
use conjure_skill_sdk::protocol::SkillMount;

use crate::asking::ask;
use crate::cluster::Cluster;
use crate::explain::{ClusterFailure, explain};
use crate::pod_exec::{PodProcess, ProcessEnd, ScriptFailure};
use crate::pod_status::{PodState, state};
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
    world: Arc<KubernetesState>,
    /// Secret that only this session knows.
    token: String,
    skills: Arc<[SkillMount]>,
    calls: Arc<SessionCalls>,
    /// Whether the cluster said that it made the pod.
    is_made: AtomicBool,
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
            world,
            token: uuid::Uuid::new_v4().simple().to_string(),
            skills,
            calls,
            is_made: AtomicBool::new(false),
        }
    }

    pub(crate) fn note_made(&self) {
        self.is_made.store(true, Ordering::Release);
    }

    pub(crate) fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }

    /// The cluster as it is to be asked now: a login may be another one than before.
    async fn current(&self) -> Result<Cluster, ClusterFailure> {
        let cluster = self.world.connection.cluster(&self.world.settings).await;
        cluster.map_err(|error| ClusterFailure {
            may_pass: true,
            ..ClusterFailure::lasting(error.to_string())
        })
    }

    /// Passes a failure on. Where the cluster does not know who asks, the kubeconfig is read again.
    async fn note_failure(&self, failure: ClusterFailure) -> ClusterFailure {
        if failure.unknown {
            self.world.connection.forget().await;
        }
        failure
    }

    /// Begins a stream, with an agent of its own.
    pub(crate) async fn open(&self, stream: &KeptStream) -> Result<PodRelayed, ClusterFailure> {
        let settings = &self.world.settings;
        let path = self.world.agent.path(&settings.agent_dir);
        let agent = self.world.agent.at(&path);
        let script = open_script(&agent, &settings.session_dir(), settings.waits_seconds());
        let mut process = self.run(&script, None).await?;
        if let Some(system) = process.mark.strip_prefix("wanted") {
            if let Some(own) = self.world.agent.is_not_for(system.trim()) {
                return Err(self.lasting(&format!(
                    "is {}, and this plugin brings an agent for {own} only: name one for it with \
                     `agent`, or nodes of this kind with `node_selector` (kubernetes.io/arch)",
                    system.trim()
                )));
            }
            drop(process);
            let copy = copy_script(&settings.agent_dir, &agent);
            drop(self.run(&copy, Some(&self.world.agent.bytes)).await?);
            process = self.run(&script, None).await?;
        }
        let mut connection = opened(process);
        let mut answered = connection.greet(&self.token, stream).await;
        if answered == Some(RelayFrame::Vacant) {
            let begun = connection.begin(&self.skills, Some(settings.working_dir.clone()));
            answered = begun.await.map_err(|error| {
                self.lasting(&format!("cannot get the session's skills: {error}"))
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
            Some(Ok(None)) => Ok(PodState::Over("somebody has deleted it".to_owned())),
            Some(Err(error)) => {
                let failure = explain(&cluster, &what, "get pods", &error);
                Err(self.note_failure(failure).await)
            }
            None => Err(ClusterFailure::late(&cluster, &what)),
        }
    }

    async fn run(&self, script: &str, first: Option<&[u8]>) -> Result<PodProcess, ClusterFailure> {
        let shell = &self.world.settings.shell;
        let cluster = self.current().await?;
        let run = Box::pin(PodProcess::run(&cluster, &self.name, shell, script, first));
        match run.await {
            Ok(process) => Ok(process),
            Err(ScriptFailure::Ended(end)) => Err(self.ended(&end)),
            Err(ScriptFailure::Cluster(failure)) => {
                let failure = self.note_failure(failure).await;
                Err(self.unless_over(failure).await)
            }
        }
    }

    /// Passes a failure on, or says that the pod is over, which waiting does not change.
    async fn unless_over(&self, failure: ClusterFailure) -> ClusterFailure {
        match self.state().await {
            Ok(PodState::Over(why)) => self.lasting(&format!("is over: {why}")),
            Ok(_) if failure.missing => ClusterFailure {
                may_pass: true,
                ..failure
            },
            _ => failure,
        }
    }

    fn lasting(&self, text: &str) -> ClusterFailure {
        ClusterFailure::lasting(format!("the pod {} {text}", self.name))
    }

    /// The failure that the end of a script means.
    fn ended(&self, end: &ProcessEnd) -> ClusterFailure {
        let what = match end.code {
            Some(NO_DIRECTORY | NOT_WRITTEN) => {
                "does not let the agent be written: see `agent_dir`, the `user` and the room there"
            }
            Some(CUT) => "did not get the whole agent: call again",
            Some(DOES_NOT_RUN) => {
                "does not run the agent: `agent_dir` must allow programs, and the agent be one for \
                 the node's processor"
            }
            Some(code) if code == i32::from(NOT_THERE) => {
                "has no relay of the session any more: it ended, or was killed"
            }
            Some(code) if code == i32::from(NO_ROOM) => {
                "has no room for the session's directory: give it more with `disk_mb`"
            }
            Some(code) if code == i32::from(NO_SESSION_DIR) => {
                "lets nobody make the session's directory: see the `user`"
            }
            Some(126 | 127) => {
                "lacks a program that is needed: the image needs a shell, cat, head, mkdir, mv, \
                 chmod, wc and sleep"
            }
            _ => "does not run the agent",
        };
        let why = match end.complaint.as_str() {
            "" => String::new(),
            complaint => format!(" ({complaint})"),
        };
        let mut failure = self.lasting(&format!("{what}{why}"));
        // A stream that ends without a word was cut.
        failure.may_pass = end.code.is_none();
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
                self.lasting(&format!("does not take the session: {text}{hint}"))
            }
            _ => self.ended(&connection.carrier.end().await),
        }
    }
}

fn opened(mut process: PodProcess) -> PodRelayed {
    let rest = std::mem::take(&mut process.rest);
    PodRelayed::new(process, &rest)
}

impl RelayRoute for PodRoute {
    type Carrier = PodProcess;

    fn place(&self) -> &str {
        &self.name
    }

    fn tell(&self, text: &str) {
        self.world.cx.log(LogLevel::Warn, text);
        self.calls.tell(text);
    }

    async fn attach(&self, stream: &KeptStream) -> Result<(PodRelayed, u64), RouteFailure> {
        let settings = &self.world.settings;
        let path = self.world.agent.path(&settings.agent_dir);
        let script = attach_script(&self.world.agent.at(&path), &settings.session_dir());
        // A cluster that does not know who asks may know the login that is read next.
        let process = self.run(&script, None).await.map_err(|mut failure| {
            failure.may_pass |= failure.unknown;
            failure
        })?;
        if process.mark != "there" {
            return Err(self
                .lasting("has lost the agent that was copied there")
                .into());
        }
        let mut connection = opened(process);
        Err(match connection.greet(&self.token, stream).await {
            Some(RelayFrame::Welcome(received)) => return Ok((connection, received)),
            Some(RelayFrame::Vacant) => self.ended(&ProcessEnd {
                code: Some(NOT_THERE.into()),
                ..ProcessEnd::default()
            }),
            other => self.refusal_reason(connection, other).await,
        }
        .into())
    }

    fn tries_for(&self) -> Duration {
        self.world.settings.reconnect()
    }

    fn asks_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.world.settings.alive_ms))
    }
}
