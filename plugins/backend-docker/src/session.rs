//! A session: what it was opened with, and its one container.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_exec_agent::client::{AgentLink, cancelled, remote_file};
use conjure_exec_agent::executor::{AgentSession, AgentShell, SessionCalls, wait_for_start};
use conjure_skill_sdk::protocol::{ExecutorInit, ExecutorReady, FileRef, SkillMount};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, watch};

use crate::config::{DockerSettings, Sharing};
use crate::container::{Container, ContainerFailure, Plan};
use crate::engine::{Engine, EngineConnection};
use crate::mounts::{ContainerMounts, SKILLS, SessionMounts, Volumes, WORKSPACE};
use crate::owner::ContainerOwner;

/// What all sessions of a backend instance share.
#[derive(Debug)]
pub(crate) struct DockerState {
    pub(crate) settings: DockerSettings,
    pub(crate) connection: EngineConnection,
    pub(crate) owner: ContainerOwner,
    /// Whether leftovers of hosts that are gone were looked for.
    pub(crate) sweep_done: OnceCell<()>,
    /// Whether the engine was seen not to see this machine's files.
    files_not_shared: watch::Sender<bool>,
}

impl DockerState {
    pub(crate) fn new(settings: DockerSettings, owner: ContainerOwner) -> Self {
        Self {
            connection: EngineConnection::new(settings.engine.clone()),
            settings,
            owner,
            sweep_done: OnceCell::new(),
            files_not_shared: watch::Sender::new(false),
        }
    }

    /// Removes what hosts that are gone left behind, once.
    pub(crate) async fn sweep(&self) {
        let sweeping = async {
            let engine = self.connection.engine().await.map_err(drop)?;
            self.owner.remove_leftovers(&engine).await;
            Ok::<(), ()>(())
        };
        let _ = self.sweep_done.get_or_try_init(|| sweeping).await;
    }
}

/// One session in a container.
#[derive(Debug)]
pub(crate) struct DockerSession {
    id: String,
    session_mounts: SessionMounts,
    backend: Arc<DockerState>,
    calls: Arc<SessionCalls>,
    slot: Arc<AsyncMutex<ContainerSlot>>,
}

#[derive(Debug, Default)]
struct ContainerSlot {
    container: Option<Arc<Container>>,
    volumes: Option<Volumes>,
}

impl ContainerSlot {
    fn open(&self) -> Option<Arc<Container>> {
        let open = |container: &&Arc<Container>| container.link.is_open();
        self.container.as_ref().filter(open).cloned()
    }
}

impl DockerSession {
    pub(crate) fn new(
        id: &str,
        working_dir: &Path,
        request: ExecutorInit,
        world: Arc<DockerState>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            session_mounts: SessionMounts {
                working_dir: working_dir.to_owned(),
                skills: request.skills,
                env: request.env.into_iter().collect(),
            },
            backend: world,
            calls: Arc::default(),
            slot: Arc::default(),
        }
    }

    async fn start(&self) -> Result<Arc<Container>> {
        let world = &*self.backend;
        let mut slot = self.slot.lock().await;
        // Its end does not wait for who begins after it.
        if self.calls.is_closed() {
            return Err(Error::cancelled());
        }
        if let Some(container) = slot.open() {
            return Ok(container);
        }
        if let Some(before) = slot.container.take() {
            before.remove().await;
        }
        world.sweep().await;
        let mut engine = world.connection.engine().await?;
        let mut container = self.container(world, &engine, &mut slot).await;
        if let Err(ContainerFailure::NoEngine(_)) = &container {
            // It may have come back since, or be another one now; else this says what to do.
            world.connection.forget().await;
            world.files_not_shared.send_replace(false);
            engine = world.connection.engine().await?;
            container = self.container(world, &engine, &mut slot).await;
        }
        let container = Arc::new(container?);
        if self.calls.is_closed() {
            container.remove().await;
            return Err(Error::cancelled());
        }
        if container.uses_exec {
            let text = "the container cannot be attached to; the agent runs by one exec in it";
            self.calls.notify(text);
        }
        if slot.volumes.is_some() {
            let text = format!(
                "the engine at {} does not see this machine's files: /workspace is a volume \
                 there, and begins empty",
                engine.address
            );
            self.calls.notify(&text);
        }
        slot.container = Some(Arc::clone(&container));
        Ok(container)
    }

    async fn container(
        &self,
        world: &DockerState,
        engine: &Engine,
        slot: &mut ContainerSlot,
    ) -> Result<Container, ContainerFailure> {
        let DockerState {
            settings, owner, ..
        } = world;
        let plan = |mounts| Plan {
            engine,
            settings,
            owner,
            session: &self.id,
            mounts,
        };
        let mount = match settings.files {
            Sharing::Mount => true,
            Sharing::Copy => false,
            Sharing::Auto => engine.may_share_files && !*world.files_not_shared.borrow(),
        };
        if mount {
            let mounts = ContainerMounts::from_directories(
                engine,
                settings,
                owner,
                &self.id,
                &self.session_mounts,
            );
            let mounts = mounts.map_err(ContainerFailure::Other)?;
            match plan(mounts.clone()).start().await {
                Err(ContainerFailure::FilesNotShared(_)) if settings.files == Sharing::Auto => {
                    // The engine sees none of this machine's files only if this machine has them.
                    if let Some(missing) = mounts.missing_directory() {
                        return Err(ContainerFailure::Other(Error::new(format!(
                            "{} is not there, so it cannot be brought into the container. Make it \
                             again, and call again",
                            missing.display()
                        ))));
                    }
                    world.files_not_shared.send_replace(true);
                }
                other => return other,
            }
        }
        let volumes = match &slot.volumes {
            Some(volumes) => volumes.clone(),
            None => {
                let made = Volumes::make(engine, settings, owner, &self.id, &self.session_mounts);
                let made = made.await.map_err(ContainerFailure::Other)?;
                slot.volumes.insert(made).clone()
            }
        };
        plan(ContainerMounts::volumes(settings, &volumes))
            .start()
            .await
    }
}

impl AgentSession for DockerSession {
    type Agent = Container;

    fn ready(&self) -> ExecutorReady {
        let inside = |skill: &SkillMount| SkillMount {
            name: skill.name.clone(),
            dir: format!("{SKILLS}/{}", skill.name),
        };
        ExecutorReady {
            working_dir: WORKSPACE.to_owned(),
            skills: self.session_mounts.skills.iter().map(inside).collect(),
        }
    }

    fn calls(&self) -> &Arc<SessionCalls> {
        &self.calls
    }

    fn working_dir(&self) -> &Path {
        &self.session_mounts.working_dir
    }

    fn remote_dir(&self) -> &str {
        WORKSPACE
    }

    fn shell(&self) -> AgentShell<'_> {
        AgentShell {
            program: &self.backend.settings.shell,
            env: &self.session_mounts.env,
            timeout: self.backend.settings.timeout(),
        }
    }

    /// The first call starts it, and so does the first one after it
    /// ended. Starting goes on when the call has no more time for it.
    async fn agent(self: &Arc<Self>, cx: &Cx, limit: Duration) -> Result<Arc<Container>> {
        let begun = Instant::now();
        let open = || self.slot.try_lock().ok().and_then(|slot| slot.open());
        let mut found = open();
        if let Some(container) = found.take_if(|container| container.is_probing()) {
            // Whether this call goes to it or to another one is known soon.
            tokio::select! {
                () = container.until_probed() => {}
                () = cancelled(cx) => return Err(Error::cancelled()),
                () = self.calls.until_ended() => return Err(Error::cancelled()),
                () = tokio::time::sleep(limit) => return Err(unresponsive_error()),
            }
            found = open();
        }
        if let Some(container) = found {
            return Ok(container);
        }
        let limit = limit.saturating_sub(begun.elapsed());
        let session = Arc::clone(self);
        let start = async move { session.start().await };
        wait_for_start(&self.calls, cx, limit, start, || {
            Error::new("the session's container is not ready yet; it goes on starting: call again")
        })
        .await
    }

    fn link(container: &Container) -> &Arc<AgentLink> {
        &container.link
    }

    async fn agent_end(&self, container: &Arc<Container>) -> Error {
        container.end_error().await
    }

    /// A container in which nobody answers is removed, and the next call has another one.
    async fn abandon_agent(self: &Arc<Self>, container: &Arc<Container>) -> Error {
        let session = Arc::clone(self);
        container.probe(|suspect| async move {
            let mut slot = session.slot.lock().await;
            let current = &mut slot.container;
            current.take_if(|current| Arc::ptr_eq(current, &suspect));
            // Whoever starts the next one, or ends the session, waits for the end of this one.
            suspect.remove().await;
        });
        unresponsive_error()
    }

    fn shared_path(&self, container: &Container, path: &Path) -> Option<String> {
        container.mounts.path_in_container(path)
    }

    /// By its path on this machine, when it has one.
    fn file(&self, container: &Container, path: &str, size: u64, state: Option<u64>) -> FileRef {
        let here = container.mounts.local_path(path);
        let here = here.and_then(|path| path.into_os_string().into_string().ok());
        let file = match here {
            Some(here) => FileRef::at(here),
            None => remote_file(path, state),
        };
        FileRef {
            size: Some(size),
            ..file
        }
    }

    async fn end(&self) -> Result<()> {
        let mut slot = self.slot.lock().await;
        let mut gone = true;
        if let Some(container) = slot.container.take() {
            gone &= container.remove().await;
        }
        if let Some(volumes) = slot.volumes.take() {
            let engine = self.backend.connection.engine().await?;
            gone &= volumes.remove(&engine).await;
        }
        if gone {
            return Ok(());
        }
        Err(Error::new(
            "the session's container or volume could not be removed; the next start of a host \
             tries again",
        ))
    }
}

/// What a call says whose container did not answer in time.
fn unresponsive_error() -> Error {
    Error::new(format!(
        "the session's container did not answer in time: it stands still, or is slow. What had been \
         written to {WORKSPACE} is still there. Call again: a container in which nobody answers is \
         removed, and a new one starts; more time for a call is `call_timeout_ms`"
    ))
}
