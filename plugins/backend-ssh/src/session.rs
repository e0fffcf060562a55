//! A session: what it brought along, its agent on the remote machine, and which of its calls run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conjure_exec_agent::client::relayed::{
    AgentProgram, RelayRoute as _, RelayedAgent, ResumableStream,
};
use conjure_exec_agent::client::{AgentLink, cancelled};
use conjure_exec_agent::executor::{AgentSession, AgentShell, SessionCalls, wait_for_start};
use conjure_exec_agent::relay::{SKILLS, WORK};
use conjure_skill_sdk::protocol::{ExecutorInit, ExecutorReady, SkillMount};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::Mutex as AsyncMutex;

use crate::config::SshSettings;
use crate::connect::RemoteMachine;
use crate::explain::FailureKind;

/// How long the end of a session waits for a connection that is lost.
const LOST_END_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the remote machine may take to end everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(12);
/// How long an agent may take to say who it is.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// What all sessions of a backend instance share.
#[derive(Debug)]
pub(crate) struct SshState {
    pub(crate) settings: Arc<SshSettings>,
    pub(crate) agent: Arc<AgentProgram>,
    /// Context of the instance, for log lines that belong to no call.
    pub(crate) cx: Cx,
}

/// One session on a remote machine.
#[derive(Debug)]
pub(crate) struct SshSession {
    /// On this machine.
    working_dir: PathBuf,
    /// On the remote machine.
    remote_dir: String,
    env: Vec<(String, String)>,
    machine: Arc<RemoteMachine>,
    calls: Arc<SessionCalls>,
    slot: Arc<AsyncMutex<Option<Arc<RelayedAgent>>>>,
    /// Whether something was begun over there.
    has_begun: AtomicBool,
}

impl SshSession {
    pub(crate) fn new(working_dir: &Path, request: ExecutorInit, world: &SshState) -> Self {
        let settings = Arc::clone(&world.settings);
        // Nobody else knows its name before it is there, and it belongs to this user alone.
        let name = uuid::Uuid::new_v4().simple();
        let scratch = settings.scratch_dir.trim_end_matches('/');
        let dir = format!("{scratch}/conjure-{name}");
        let remote_dir = settings.working_dir.clone();
        let calls = Arc::<SessionCalls>::default();
        let mut env = settings.env.clone();
        env.extend(request.env);
        Self {
            working_dir: working_dir.to_owned(),
            remote_dir: remote_dir.unwrap_or_else(|| format!("{dir}/{WORK}")),
            env: env.into_iter().collect(),
            machine: Arc::new(RemoteMachine::new(
                world,
                dir,
                request.skills,
                Arc::clone(&calls),
            )),
            calls,
            slot: Arc::default(),
            has_begun: AtomicBool::new(false),
        }
    }

    fn skills_dir(&self) -> String {
        format!("{}/{SKILLS}", self.machine.dir)
    }

    async fn start(&self) -> Result<Arc<RelayedAgent>> {
        let mut slot = self.slot.lock().await;
        if self.calls.is_closed() {
            return Err(Error::cancelled());
        }
        if let Some(agent) = open_of(&slot) {
            return Ok(agent);
        }
        *slot = None;
        let host = &self.machine.settings.host;
        let stream = Arc::new(ResumableStream::new());
        // Whoever ends this half-way leaves something over there.
        let begun = self.has_begun.swap(true, Ordering::Relaxed);
        let connection = match Box::pin(self.machine.open(&stream)).await {
            Ok(connection) => connection,
            Err(failed) => {
                // Nothing is left of a session that never began.
                if !begun && failed.kind == FailureKind::Refused {
                    Box::pin(self.machine.close()).await;
                }
                self.has_begun.store(begun, Ordering::Relaxed);
                return Err(failed.into());
            }
        };
        let route = Arc::clone(&self.machine);
        let agent = Arc::new(RelayedAgent::new(route, stream, connection));
        match tokio::time::timeout(READY_TIMEOUT, agent.link.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                return Err(Error::new(format!(
                    "the agent on {host} ended as soon as it started: {why}"
                )));
            }
            Err(_) => {
                return Err(Error::new(format!(
                    "the agent on {host} runs and does not answer; call again"
                )));
            }
        }
        *slot = Some(Arc::clone(&agent));
        Ok(agent)
    }

    fn unresponsive_error(&self, agent: &RelayedAgent) -> Error {
        let host = &self.machine.settings.host;
        let Some(lost) = agent.stream.time_lost() else {
            return Error::new(format!(
                "the agent on {host} did not answer in time: it stands still, or the connection is \
                 slow or about to be lost. What had been written to {} is still there. Call again: \
                 an agent that answers nothing is replaced, and a slow connection is waited for; \
                 more time for a call is `call_timeout_ms`",
                self.remote_dir
            ));
        };
        Error::new(format!(
            "the time of the call was over while the connection to {host} was lost, for {} s \
             so far; what it began there is stopped when the connection is back. It is tried \
             again on and on: call again, or give calls of this backend more time \
             (`call_timeout_ms`)",
            lost.as_secs()
        ))
    }
}

impl AgentSession for SshSession {
    type Agent = RelayedAgent;

    fn ready(&self) -> ExecutorReady {
        let skills = self.machine.skills.iter().map(|skill| SkillMount {
            name: skill.name.clone(),
            dir: format!("{}/{}", self.skills_dir(), skill.name),
        });
        ExecutorReady {
            working_dir: self.remote_dir.clone(),
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
        &self.remote_dir
    }

    fn shell(&self) -> AgentShell<'_> {
        AgentShell {
            program: &self.machine.settings.shell,
            env: &self.env,
            timeout: self.machine.settings.timeout(),
        }
    }

    /// The first call starts it, and so does the first one after it ended.
    /// Starting goes on when the call has no more time for it.
    async fn agent(self: &Arc<Self>, cx: &Cx, limit: Duration) -> Result<Arc<RelayedAgent>> {
        let begun = Instant::now();
        let open = || self.slot.try_lock().ok().and_then(|slot| open_of(&slot));
        let mut found = open();
        if let Some(agent) = found.take_if(|agent| agent.is_probing()) {
            // Whether this call goes to it or to another one is known soon.
            tokio::select! {
                () = agent.until_probed() => {}
                () = cancelled(cx) => return Err(Error::cancelled()),
                () = self.calls.until_ended() => return Err(Error::cancelled()),
                () = tokio::time::sleep(limit) => return Err(self.unresponsive_error(&agent)),
            }
            found = open();
        }
        let limit = limit.saturating_sub(begun.elapsed());
        if let Some(agent) = found {
            if let Some(lost) = agent.stream.time_lost() {
                self.machine.notify(&format!(
                    "the connection to {} has been lost for {} s; the call waits for it",
                    self.machine.settings.host,
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
            Error::new(format!(
                "the connection to {} is not there yet; it is still being made: call again",
                self.machine.settings.host
            ))
        })
        .await
    }

    fn link(agent: &RelayedAgent) -> &Arc<AgentLink> {
        &agent.link
    }

    async fn agent_end(&self, agent: &Arc<RelayedAgent>) -> Error {
        let host = &self.machine.settings.host;
        let why = agent.link.end().unwrap_or_default();
        Error::new(format!(
            "the agent on {host} ended while the call ran: {why}. What had been written there \
             is still there, unless the session's own directory was removed with it. Call again: \
             a new agent starts; processes begin anew"
        ))
    }

    /// An agent that does not answer anything is given up; while the connection may be at fault
    /// nothing is, and the session's other calls go on.
    async fn abandon_agent(self: &Arc<Self>, agent: &Arc<RelayedAgent>) -> Error {
        let session = Arc::clone(self);
        agent.probe(|suspect| async move {
            let mut slot = session.slot.lock().await;
            slot.take_if(|current| Arc::ptr_eq(current, &suspect));
        });
        self.unresponsive_error(agent)
    }

    async fn end(&self) -> Result<()> {
        let agent = self.slot.lock().await.take();
        if !self.has_begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        let closed = match agent.filter(|agent| agent.link.is_open()) {
            Some(agent) => {
                let waits = match agent.stream.time_lost() {
                    Some(_) => LOST_END_TIMEOUT,
                    None => CLOSE_TIMEOUT,
                };
                agent.stream.close(waits).await
            }
            None => Some(false),
        };
        let closed = match closed {
            // Its agent is gone, what it worked in is not.
            Some(false) => {
                let closing = Box::pin(self.machine.close());
                tokio::time::timeout(CLOSE_TIMEOUT, closing).await == Ok(true)
            }
            closed => closed == Some(true),
        };
        if closed {
            return Ok(());
        }
        Err(Error::new(format!(
            "{} did not say that the session's directory {} is removed; what is left there ends \
             by itself within {} s, and is removed then",
            self.machine.settings.host,
            self.machine.dir,
            self.machine.settings.waits_seconds()
        )))
    }
}

fn open_of(slot: &Option<Arc<RelayedAgent>>) -> Option<Arc<RelayedAgent>> {
    slot.as_ref().filter(|agent| agent.link.is_open()).cloned()
}
