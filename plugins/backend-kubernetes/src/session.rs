//! A session: what it brought along, its one pod, and the agent in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_exec_agent::client::relayed::{
    AgentProgram, RelayRoute as _, RelayedAgent, ResumableStream,
};
use conjure_exec_agent::client::{AgentLink, cancelled};
use conjure_exec_agent::executor::{AgentSession, AgentShell, SessionCalls, wait_for_start};
use conjure_exec_agent::relay::SKILLS;
use conjure_skill_sdk::protocol::{ExecutorInit, ExecutorReady, SkillMount};
use conjure_skill_sdk::{Cx, Error, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, oneshot};

use crate::cluster::{Cluster, ClusterConnection};
use crate::config::KubernetesSettings;
use crate::explain::{ClusterFailure, explain};
use crate::owner::{Deletion, PodOwner, delete};
use crate::pod::manifest;
use crate::pod_status::PodState;
use crate::retry::ask;
use crate::route::{PodRelayed, PodRoute};

/// How long an agent may take to say who it is.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for making a pod.
const CREATE_TIMEOUT: Duration = Duration::from_secs(30);
/// The reason of a cluster that has something of the same name.
const ALREADY_EXISTS: &str = "AlreadyExists";
/// How soon a deletion that the cluster did not take is tried again: soon at first, and less often
/// later.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// After how long it is left to the next host that starts.
const RETRY_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
/// How long looking for leftovers of other hosts may hold a session up.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often it is looked whether a pod runs: soon at first, and less often later.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(100);
const MAX_POLL_DELAY: Duration = Duration::from_secs(2);

/// What all sessions of a backend instance share.
#[derive(Debug)]
pub(crate) struct KubernetesState {
    pub(crate) settings: KubernetesSettings,
    pub(crate) agent: AgentProgram,
    /// Context of the instance, for log lines that belong to no call.
    pub(crate) cx: Cx,
    pub(crate) connection: ClusterConnection,
    owner: PodOwner,
    /// Whether leftovers of hosts that are gone were looked for.
    sweep_done: OnceCell<()>,
}

impl KubernetesState {
    pub(crate) fn new(
        settings: KubernetesSettings,
        agent: AgentProgram,
        owner: PodOwner,
        cx: Cx,
    ) -> Self {
        Self {
            settings,
            agent,
            cx,
            connection: ClusterConnection::default(),
            owner,
            sweep_done: OnceCell::new(),
        }
    }

    /// Deletes what hosts that are gone left behind, once.
    pub(crate) async fn sweep(&self) {
        let sweeping = tokio::time::timeout(SWEEP_TIMEOUT, async {
            let cluster = self
                .connection
                .cluster(&self.settings)
                .await
                .map_err(drop)?;
            let removing = self.owner.remove_leftovers(&cluster);
            removing.await.map(drop).map_err(drop)
        });
        // What was not looked for is looked for with the next session.
        let sweeping = Box::pin(async { sweeping.await.map_err(drop)? });
        let _ = self.sweep_done.get_or_try_init(|| sweeping).await;
    }

    /// Has a pod deleted that no session has any more; whether it is gone, or the cluster deletes it.
    /// Where it does not yet, it is tried again, also when nobody waits for that.
    async fn discard(self: &Arc<Self>, route: &Arc<PodRoute>) -> bool {
        let (tell, told) = oneshot::channel();
        let (world, route) = (Arc::clone(self), Arc::clone(route));
        tokio::spawn(async move {
            let begun = Instant::now();
            let mut tell = Some(tell);
            let mut pause = FIRST_RETRY_DELAY;
            while begun.elapsed() < RETRY_PERIOD {
                let came = match world.connection.cluster(&world.settings).await {
                    Ok(cluster) => delete(&cluster.pods, &route.name).await,
                    Err(_) => Deletion::Failed,
                };
                if let Some(tell) = tell.take() {
                    let _ = tell.send(came != Deletion::Failed);
                }
                match came {
                    Deletion::Accepted => return,
                    // One whose making was not answered may come yet.
                    Deletion::NotFound
                        if route.is_created() || begun.elapsed() > 2 * CREATE_TIMEOUT =>
                    {
                        return;
                    }
                    Deletion::NotFound => {}
                    // It may be asked by somebody whom it does not know any more.
                    Deletion::Failed => world.connection.forget().await,
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(MAX_RETRY_DELAY);
            }
        });
        told.await.unwrap_or(false)
    }
}

/// One session in a pod.
#[derive(Debug)]
pub(crate) struct PodSession {
    id: String,
    /// On this machine.
    working_dir: PathBuf,
    skills: Arc<[SkillMount]>,
    env: Vec<(String, String)>,
    backend: Arc<KubernetesState>,
    calls: Arc<SessionCalls>,
    slot: Arc<AsyncMutex<PodSlot>>,
}

/// Resources of a session in the cluster.
#[derive(Debug, Default)]
struct PodSlot {
    pod: Option<Arc<PodRoute>>,
    agent: Option<Arc<PodAgent>>,
}

/// The agent of a session in its pod.
#[derive(Debug)]
pub(crate) struct PodAgent {
    agent: Arc<RelayedAgent>,
    route: Arc<PodRoute>,
}

impl PodSlot {
    fn open(&self) -> Option<Arc<PodAgent>> {
        let open = |agent: &&Arc<PodAgent>| agent.agent.link.is_open();
        self.agent.as_ref().filter(open).cloned()
    }
}

impl PodSession {
    pub(crate) fn new(
        id: &str,
        working_dir: &Path,
        request: ExecutorInit,
        world: Arc<KubernetesState>,
    ) -> Self {
        let mut env = world.settings.env.clone();
        env.extend(request.env);
        Self {
            id: id.to_owned(),
            working_dir: working_dir.to_owned(),
            skills: request.skills.into(),
            env: env.into_iter().collect(),
            backend: world,
            calls: Arc::default(),
            slot: Arc::default(),
        }
    }

    async fn start(&self) -> Result<Arc<PodAgent>> {
        let mut slot = self.slot.lock().await;
        if self.calls.is_closed() {
            return Err(Error::cancelled());
        }
        if let Some(agent) = slot.open() {
            return Ok(agent);
        }
        slot.agent = None;
        self.backend.sweep().await;
        let route = self.pod(&mut slot).await?;
        let (stream, connection) = Box::pin(self.connect(&route)).await?;
        let agent = RelayedAgent::new(Arc::clone(&route), stream, connection);
        let name = &route.name;
        match tokio::time::timeout(READY_TIMEOUT, agent.link.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                return Err(Error::new(format!(
                    "the agent in the pod {name} ended as soon as it started: {why}"
                )));
            }
            Err(_) => {
                return Err(Error::new(format!(
                    "the agent in the pod {name} runs and does not answer; call again"
                )));
            }
        }
        let agent = Arc::new(PodAgent {
            agent: Arc::new(agent),
            route,
        });
        slot.agent = Some(Arc::clone(&agent));
        Ok(agent)
    }

    /// Begins a stream. What the cluster answers and may take back is waited for as its pod is: a
    /// node that has only just come may not be reached yet.
    async fn connect(
        &self,
        route: &PodRoute,
    ) -> Result<(Arc<ResumableStream>, PodRelayed), ClusterFailure> {
        let limit = self.backend.settings.ready_timeout();
        let begun = Instant::now();
        let mut pause = FIRST_POLL_DELAY;
        loop {
            // Another one each time: the one before may have begun.
            let stream = Arc::new(ResumableStream::new());
            let failure = match Box::pin(route.open(&stream)).await {
                Ok(connection) => return Ok((stream, connection)),
                Err(failure) => failure,
            };
            let may_pass = failure.is_transient && failure.answered;
            if !may_pass || begun.elapsed() + pause >= limit {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(MAX_POLL_DELAY);
        }
    }

    /// The session's pod, which runs; another one where it does not any more.
    async fn pod(&self, slot: &mut PodSlot) -> Result<Arc<PodRoute>> {
        if let Some(route) = &slot.pod {
            match Box::pin(route.state()).await? {
                PodState::Running => return Ok(Arc::clone(route)),
                PodState::Waiting(_) => return self.runs(slot).await,
                PodState::Terminated(why) => {
                    let (name, kept) = (&route.name, self.describe_persistence());
                    route.notify(&format!(
                        "the pod {name} is over ({why}); a new one starts, {kept}"
                    ));
                    self.discard_pod(slot).await;
                }
            }
        }
        let cluster = self
            .backend
            .connection
            .cluster(&self.backend.settings)
            .await?;
        let name = format!(
            "{}-{}",
            self.backend.settings.name_prefix,
            uuid::Uuid::now_v7().simple()
        );
        // From here on something of this name may be in the cluster.
        slot.pod = Some(Arc::new(PodRoute::new(
            cluster.clone(),
            name.clone(),
            Arc::clone(&self.backend),
            Arc::clone(&self.skills),
            Arc::clone(&self.calls),
        )));
        match (self.create(&cluster, &name).await, &slot.pod) {
            (Err(failure), _) => {
                self.discard_pod(slot).await;
                // What says where the cluster is may be another one by now.
                self.backend.connection.forget().await;
                return Err(failure.into());
            }
            (Ok(()), Some(route)) => route.mark_created(),
            (Ok(()), None) => {}
        }
        self.runs(slot).await
    }

    async fn create(&self, cluster: &Cluster, name: &str) -> Result<(), ClusterFailure> {
        let owned = self.backend.owner.labels();
        let made = manifest(&self.backend.settings, name, &self.id, owned);
        let pod: Pod = serde_json::from_value(made).map_err(|error| {
            ClusterFailure::permanent(format!("the pod cannot be made: {error}"))
        })?;
        let params = PostParams::default();
        let creating = Box::pin(ask(CREATE_TIMEOUT, || {
            Box::pin(cluster.pods.create(&params, &pod))
        }));
        match creating.await {
            Some(Ok(_)) => Ok(()),
            // Nobody else makes one of this name: it was made although the answer was another.
            Some(Err(kube::Error::Api(status)))
                if status.code == 409 && status.reason == ALREADY_EXISTS =>
            {
                Ok(())
            }
            Some(Err(error)) => Err(explain(cluster, "making a pod", "create pods", &error)),
            None => Err(ClusterFailure::timed_out(cluster, "making a pod")),
        }
    }

    /// Waits until the session's pod runs; one that never will is deleted.
    async fn runs(&self, slot: &mut PodSlot) -> Result<Arc<PodRoute>> {
        let Some(route) = slot.pod.clone() else {
            return Err(Error::cancelled());
        };
        let limit = self.backend.settings.ready_timeout();
        let begun = Instant::now();
        let mut look = FIRST_POLL_DELAY;
        // What was said last that says something; what is tried again says less.
        let mut said = String::new();
        let why = loop {
            match Box::pin(route.state()).await {
                Ok(PodState::Running) => return Ok(route),
                Ok(PodState::Terminated(why)) if said.is_empty() || why.contains(&said) => {
                    break why;
                }
                Ok(PodState::Terminated(why)) => break format!("{why} (before that: {said})"),
                Ok(PodState::Waiting(waits)) => {
                    if !waits.is_empty() && waits != "ContainerCreating" {
                        said = waits;
                    }
                }
                Err(failure) if failure.is_transient => said = failure.text,
                Err(failure) => break failure.text,
            }
            if begun.elapsed() >= limit {
                let last = match said.as_str() {
                    "" => "nothing says why".to_owned(),
                    said => said.to_owned(),
                };
                break format!(
                    "it does not run after {} s (`ready_timeout_ms`): {last}",
                    limit.as_secs_f64()
                );
            }
            tokio::time::sleep(look).await;
            look = (look * 3 / 2).min(MAX_POLL_DELAY);
        };
        let text = format!(
            "the pod {} of the image `{}` in the namespace {} does not start: {why}",
            route.name, self.backend.settings.image, route.cluster.namespace
        );
        self.discard_pod(slot).await;
        Err(Error::new(text))
    }

    async fn discard_pod(&self, slot: &mut PodSlot) {
        if let Some(route) = slot.pod.take() {
            self.backend.discard(&route).await;
        }
    }

    /// What of the working directory another pod finds, for people.
    fn describe_persistence(&self) -> String {
        let dir = &self.backend.settings.working_dir;
        match &self.backend.settings.volume_claim {
            Some(claim) => format!("and what is in {dir} is still there (the claim {claim})"),
            None => format!("and {dir} begins empty"),
        }
    }

    fn unresponsive_error(&self, agent: &PodAgent) -> Error {
        let name = &agent.route.name;
        Error::new(match agent.agent.stream.time_lost() {
            None => format!(
                "the agent in the pod {name} did not answer in time: it stands still, or the \
                 connection is slow or about to be lost. Call again: an agent that answers nothing \
                 is replaced, and a slow connection is waited for; more time for a call is \
                 `call_timeout_ms`"
            ),
            Some(lost) => format!(
                "the time of the call was over while the connection to the pod {name} was lost, \
                 for {} s so far; what it began there is stopped when the connection is back. It \
                 is tried again on and on: call again, or give calls of this backend more time \
                 (`call_timeout_ms`)",
                lost.as_secs()
            ),
        })
    }
}

impl AgentSession for PodSession {
    type Agent = PodAgent;

    fn ready(&self) -> ExecutorReady {
        let settings = &self.backend.settings;
        let skills_dir = format!("{}/{SKILLS}", settings.session_dir());
        let skills = self.skills.iter().map(|skill| SkillMount {
            name: skill.name.clone(),
            dir: format!("{skills_dir}/{}", skill.name),
        });
        ExecutorReady {
            working_dir: settings.working_dir.clone(),
            skills: skills.collect(),
        }
    }

    fn calls(&self) -> &Arc<SessionCalls> {
        &self.calls
    }

    fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    fn remote_dir(&self) -> &str {
        &self.backend.settings.working_dir
    }

    fn shell(&self) -> AgentShell<'_> {
        AgentShell {
            program: &self.backend.settings.shell,
            env: &self.env,
            timeout: self.backend.settings.timeout(),
        }
    }

    /// The first call starts it, and so does the first one after it ended. Starting goes on when the
    /// call has no more time for it.
    async fn agent(self: &Arc<Self>, cx: &Cx, limit: Duration) -> Result<Arc<PodAgent>> {
        let begun = Instant::now();
        let open = || self.slot.try_lock().ok().and_then(|slot| slot.open());
        let mut found = open();
        if let Some(agent) = found.take_if(|agent| agent.agent.is_probing()) {
            // Whether this call goes to it or to another one is known soon.
            tokio::select! {
                () = agent.agent.until_probed() => {}
                () = cancelled(cx) => return Err(Error::cancelled()),
                () = self.calls.until_ended() => return Err(Error::cancelled()),
                () = tokio::time::sleep(limit) => return Err(self.unresponsive_error(&agent)),
            }
            found = open();
        }
        let limit = limit.saturating_sub(begun.elapsed());
        if let Some(agent) = found {
            if let Some(lost) = agent.agent.stream.time_lost() {
                agent.route.notify(&format!(
                    "the connection to {} has been lost for {} s; the call waits for it",
                    agent.route.name,
                    lost.as_secs()
                ));
            }
            return Ok(agent);
        }
        let session = Arc::clone(self);
        let start = async move {
            tokio::select! {
                started = Box::pin(session.start()) => started,
                // The end of the session waits for nobody who begins.
                () = session.calls.until_ended() => Err(Error::cancelled()),
            }
        };
        wait_for_start(&self.calls, cx, limit, start, || {
            Error::new("the session's pod is not ready yet; it goes on starting: call again")
        })
        .await
    }

    fn link(agent: &PodAgent) -> &Arc<AgentLink> {
        &agent.agent.link
    }

    async fn agent_end(&self, agent: &Arc<PodAgent>) -> Error {
        let name = &agent.route.name;
        let why = agent.agent.link.end().unwrap_or_default();
        Error::new(match Box::pin(agent.route.state()).await {
            Ok(PodState::Terminated(how)) => format!(
                "the pod {name} ended while the call ran: {how}. Call again: a new one starts, {}",
                self.describe_persistence()
            ),
            _ => format!(
                "the agent in the pod {name} ended while the call ran: {why}. What had been written \
                 to {} is still there. Call again: a new agent starts; processes begin anew",
                self.backend.settings.working_dir
            ),
        })
    }

    /// An agent that does not answer anything is given up; while the connection may be at fault
    /// nothing is, and the session's other calls go on.
    async fn abandon_agent(self: &Arc<Self>, agent: &Arc<PodAgent>) -> Error {
        let session = Arc::clone(self);
        agent.agent.probe(|suspect| async move {
            let mut slot = session.slot.lock().await;
            slot.agent
                .take_if(|current| Arc::ptr_eq(&current.agent, &suspect));
        });
        self.unresponsive_error(agent)
    }

    async fn end(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        slot.agent = None;
        let Some(route) = slot.pod.take() else {
            return Ok(());
        };
        if self.backend.discard(&route).await {
            return Ok(());
        }
        let settings = &self.backend.settings;
        Err(Error::new(format!(
            "the pod {} could not be deleted yet; it is tried again while this host runs, and by the \
             next one. What runs in it ends by itself within {} s, the pod after that",
            route.name,
            settings.waits_seconds()
        )))
    }
}
