//! A session: what it brought along, its agent on the remote machine, and which of its calls run.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use conjure_exec_agent::client::AgentLink;
use conjure_exec_agent::relay::{SKILLS, WORK};
use conjure_skill_sdk::abi::{EmitKind, LogLevel};
use conjure_skill_sdk::protocol::{ExecutorInit, ExecutorReady, PluginEvent, SkillMount};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::config::SshSettings;
use crate::connect::{AgentProgram, Machine};
use crate::explain::FailureKind;
use crate::stream::{KeptStream, StreamInput};

/// How long the end of a session waits for its calls.
const END: Duration = Duration::from_secs(3);
/// How long the remote machine may take to end everything.
const CLOSES: Duration = Duration::from_secs(12);
/// How long an agent may take to say who it is.
const READY: Duration = Duration::from_secs(20);
/// How long an agent may take to answer anything, over a connection that carries.
const ANSWERS: Duration = Duration::from_secs(3);
/// How long it is looked whether a connection carries.
const CARRIES: Duration = Duration::from_secs(15);

/// What all sessions of a backend instance share.
#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) settings: Arc<SshSettings>,
    pub(crate) agent: Arc<AgentProgram>,
    /// Of the instance: logs what no call is there for.
    pub(crate) cx: Cx,
}

/// The sessions of a backend instance.
#[derive(Debug, Default)]
pub(crate) struct SshSessions(Mutex<HashMap<String, Arc<SshSession>>>);

impl SshSessions {
    /// Prepares a session, or prepares it again. Says where it will work.
    pub(crate) fn init(
        &self,
        id: &str,
        working_dir: &Path,
        request: ExecutorInit,
        world: &BackendState,
    ) -> Result<ExecutorReady> {
        for skill in &request.skills {
            let name = &skill.name;
            let plain = !name.is_empty() && !name.contains(['/', '\0']);
            if !plain || name == "." || name == ".." || !skill.dir.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the skill `{}` at `{}` cannot be brought to a remote machine",
                    name.escape_debug(),
                    skill.dir
                )));
            }
        }
        let made = || Arc::new(SshSession::new(working_dir, request, world));
        let session = Arc::clone(lock(&self.0).entry(id.to_owned()).or_insert_with(made));
        let skills = session.machine.skills.iter().map(|skill| SkillMount {
            name: skill.name.clone(),
            dir: format!("{}/{}", session.skills_dir(), skill.name),
        });
        Ok(ExecutorReady {
            working_dir: session.remote_dir.clone(),
            skills: skills.collect(),
        })
    }

    /// A session that was prepared.
    pub(crate) fn of(&self, id: Option<&str>) -> Result<Arc<SshSession>> {
        let found = lock(&self.0).get(id.unwrap_or_default()).cloned();
        found.ok_or_else(|| {
            Error::invalid("the session has no remote machine: it was not prepared, or is over")
        })
    }

    pub(crate) fn take(&self, id: Option<&str>) -> Option<Arc<SshSession>> {
        lock(&self.0).remove(id.unwrap_or_default())
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct SshSession {
    /// On this machine.
    pub(crate) working_dir: PathBuf,
    /// On the remote machine.
    pub(crate) remote_dir: String,
    pub(crate) env: BTreeMap<String, String>,
    machine: Arc<Machine>,
    calls: Arc<RunningCalls>,
    slot: Arc<AsyncMutex<Option<Arc<RemoteAgent>>>>,
    /// Whether something was begun over there.
    begun: AtomicBool,
    over: watch::Sender<bool>,
}

/// The agent of a session on the remote machine.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    pub(crate) link: Arc<AgentLink>,
    stream: Arc<KeptStream>,
    host: String,
    /// Whether it is being looked whether it still answers.
    suspected: watch::Sender<bool>,
}

impl SshSession {
    fn new(working_dir: &Path, request: ExecutorInit, world: &BackendState) -> Self {
        let settings = Arc::clone(&world.settings);
        // Nobody else knows its name before it is there, and it belongs to this user alone.
        let name = uuid::Uuid::new_v4().simple();
        let scratch = settings.scratch_dir.trim_end_matches('/');
        let dir = format!("{scratch}/conjure-{name}");
        let remote_dir = settings.working_dir.clone();
        let calls = Arc::new(RunningCalls::new(world.cx.clone()));
        let mut env = settings.env.clone();
        env.extend(request.env);
        Self {
            working_dir: working_dir.to_owned(),
            remote_dir: remote_dir.unwrap_or_else(|| format!("{dir}/{WORK}")),
            env,
            machine: Arc::new(Machine::new(
                settings,
                Arc::clone(&world.agent),
                dir,
                request.skills,
                Arc::clone(&calls),
            )),
            calls,
            slot: Arc::default(),
            begun: AtomicBool::new(false),
            over: watch::Sender::new(false),
        }
    }

    fn skills_dir(&self) -> String {
        format!("{}/{SKILLS}", self.machine.dir)
    }

    /// The session's agent. The first call starts it, and so does the first one after it ended.
    /// Starting goes on when the call has no more time for it.
    pub(crate) async fn agent(
        self: &Arc<Self>,
        cx: &Cx,
        limit: Duration,
    ) -> Result<Arc<RemoteAgent>> {
        let begun = Instant::now();
        let open = || self.slot.try_lock().ok().and_then(|slot| open_of(&slot));
        let mut found = open();
        if let Some(agent) = found.take_if(|agent| *agent.suspected.borrow()) {
            // Whether this call goes to it or to another one is known soon.
            tokio::select! {
                () = agent.cleared() => {}
                () = cancelled(cx) => return Err(Error::cancelled()),
                () = self.over() => return Err(Error::cancelled()),
                () = tokio::time::sleep(limit) => return Err(self.late(&agent)),
            }
            found = open();
        }
        let limit = limit.saturating_sub(begun.elapsed());
        if let Some(agent) = found {
            if let Some(lost) = agent.stream.lost_for() {
                self.calls.tell(&format!(
                    "the connection to {} has been lost for {} s; the call waits for it",
                    agent.host,
                    lost.as_secs()
                ));
            }
            return Ok(agent);
        }
        let session = Arc::clone(self);
        let starting = tokio::spawn(async move {
            tokio::select! {
                started = Box::pin(session.start()) => started,
                // The end of the session waits for nobody who begins.
                () = session.over() => Err(Error::cancelled()),
            }
        });
        tokio::select! {
            started = starting => started.unwrap_or_else(|_| Err(Error::cancelled())),
            () = cancelled(cx) => Err(Error::cancelled()),
            () = self.over() => Err(Error::cancelled()),
            () = tokio::time::sleep(limit) => Err(Error::new(format!(
                "the connection to {} is not there yet; it is still being made: call again",
                self.machine.settings.host
            ))),
        }
    }

    async fn start(&self) -> Result<Arc<RemoteAgent>> {
        let mut slot = self.slot.lock().await;
        if *self.over.borrow() {
            return Err(Error::cancelled());
        }
        if let Some(agent) = open_of(&slot) {
            return Ok(agent);
        }
        *slot = None;
        let host = self.machine.settings.host.clone();
        let stream = Arc::new(KeptStream::new());
        // Whoever ends this half-way leaves something over there.
        let begun = self.begun.swap(true, Ordering::Relaxed);
        let connection = match Box::pin(self.machine.open(&stream)).await {
            Ok(connection) => connection,
            Err(failed) => {
                // Nothing is left of a session that never began.
                if !begun && failed.kind == FailureKind::Refused {
                    Box::pin(self.machine.close()).await;
                }
                self.begun.store(begun, Ordering::Relaxed);
                return Err(failed.into());
            }
        };
        let input = Box::pin(StreamInput(Arc::clone(&stream)));
        let (runs, machine) = (Arc::clone(&stream), Arc::clone(&self.machine));
        let link = AgentLink::new(input, |feed| runs.run(machine, connection, feed));
        let agent = Arc::new(RemoteAgent {
            link: Arc::new(link),
            stream,
            host: host.clone(),
            suspected: watch::Sender::new(false),
        });
        match tokio::time::timeout(READY, agent.link.ready()).await {
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

    /// What a call says that had no answer in time. An agent that does not answer anything is given
    /// up; while the connection may be at fault nothing is, and the session's other calls go on.
    pub(crate) fn unanswered(self: &Arc<Self>, agent: &Arc<RemoteAgent>) -> Error {
        if agent.stream.lost_for().is_none() && !agent.suspected.send_replace(true) {
            let (session, suspect) = (Arc::clone(self), Arc::clone(agent));
            tokio::spawn(async move {
                if suspect.is_stuck().await {
                    let mut slot = session.slot.lock().await;
                    slot.take_if(|current| Arc::ptr_eq(current, &suspect));
                }
                suspect.suspected.send_replace(false);
            });
        }
        self.late(agent)
    }

    fn late(&self, agent: &RemoteAgent) -> Error {
        let host = &agent.host;
        let Some(lost) = agent.stream.lost_for() else {
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

    /// Ends the session's calls and removes what it had on the remote machine.
    pub(crate) async fn end(&self) -> Result<()> {
        self.over.send_replace(true);
        self.calls.ended(END).await;
        let agent = self.slot.lock().await.take();
        if !self.begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        let closed = match agent.filter(|agent| agent.link.is_open()) {
            Some(agent) => {
                let waits = match agent.stream.lost_for() {
                    Some(_) => END,
                    None => CLOSES,
                };
                agent.stream.close(waits).await
            }
            None => Some(false),
        };
        let closed = match closed {
            // Its agent is gone, what it worked in is not.
            Some(false) => {
                let closing = Box::pin(self.machine.close());
                tokio::time::timeout(CLOSES, closing).await == Ok(true)
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

    /// Counts a call as running for as long as the value lives.
    pub(crate) fn running(&self, cx: &Cx) -> CallGuard {
        self.calls.begin(cx)
    }

    /// Becomes ready when the session is over.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

impl RemoteAgent {
    /// Whether it answers nothing although the connection carries what it is asked.
    async fn is_stuck(&self) -> bool {
        let answers = self.link.answers();
        let mut answers = std::pin::pin!(answers);
        tokio::select! {
            // What the agent is asked goes first.
            biased;
            // Or it is over, which every call finds out.
            _ = &mut answers => return false,
            () = self.stream.lost() => return false,
            () = tokio::time::sleep(CARRIES) => return false,
            () = self.stream.carried() => {}
        }
        let before = self.stream.progress();
        tokio::select! {
            _ = &mut answers => false,
            () = self.stream.lost() => false,
            () = tokio::time::sleep(ANSWERS) => self.stream.progress() == before,
        }
    }

    /// Becomes ready when it is known whether it still answers.
    async fn cleared(&self) {
        let _ = self
            .suspected
            .subscribe()
            .wait_for(|suspected| !suspected)
            .await;
    }

    /// What a call says whose agent is gone.
    pub(crate) fn gone(&self) -> Error {
        let host = &self.host;
        let why = self.link.end().unwrap_or_default();
        Error::new(format!(
            "the agent on {host} ended while the call ran: {why}. What had been written there \
             is still there, unless the session's own directory was removed with it. Call again: \
             a new agent starts; processes begin anew"
        ))
    }
}

fn open_of(slot: &Option<Arc<RemoteAgent>>) -> Option<Arc<RemoteAgent>> {
    slot.as_ref().filter(|agent| agent.link.is_open()).cloned()
}

/// The calls of a session that run.
#[derive(Debug)]
pub(crate) struct RunningCalls {
    running: watch::Sender<usize>,
    contexts: Mutex<BTreeMap<u64, Cx>>,
    instance: Cx,
}

impl RunningCalls {
    fn new(instance: Cx) -> Self {
        Self {
            running: watch::Sender::new(0),
            contexts: Mutex::default(),
            instance,
        }
    }

    fn begin(self: &Arc<Self>, cx: &Cx) -> CallGuard {
        let mut contexts = lock(&self.contexts);
        let number = contexts.last_key_value().map_or(0, |(last, _)| last + 1);
        contexts.insert(number, cx.clone());
        self.running.send_replace(contexts.len());
        CallGuard {
            calls: Arc::clone(self),
            number,
        }
    }

    /// Tells a person something: over the oldest call that takes it, and in the log.
    pub(crate) fn tell(&self, text: &str) {
        self.instance.log(LogLevel::Warn, text);
        let event = PluginEvent::Notice {
            level: "info".to_owned(),
            text: text.to_owned(),
        };
        let Ok(json) = serde_json::to_vec(&event) else {
            return;
        };
        let contexts: Vec<Cx> = lock(&self.contexts).values().cloned().collect();
        for cx in contexts {
            if cx.try_emit(EmitKind::Event, &json) == conjure_skill_sdk::abi::EmitStatus::Ok {
                return;
            }
        }
    }

    /// Waits until none runs, at most so long.
    async fn ended(&self, limit: Duration) {
        let mut running = self.running.subscribe();
        let _ = tokio::time::timeout(limit, running.wait_for(|count| *count == 0)).await;
    }
}

/// A call of a session.
#[derive(Debug)]
pub(crate) struct CallGuard {
    calls: Arc<RunningCalls>,
    number: u64,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut contexts = lock(&self.calls.contexts);
        contexts.remove(&self.number);
        self.calls.running.send_replace(contexts.len());
    }
}

/// Becomes ready when the call is cancelled, and never with a host that cannot tell.
pub(crate) async fn cancelled(cx: &Cx) {
    cx.until_cancelled().await;
    if !cx.cancelled() {
        std::future::pending::<()>().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
