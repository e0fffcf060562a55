//! A session: what it brought along, its one container, and which of its calls run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::protocol::{ExecutorInit, PluginEvent};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, watch};

use crate::config::{DockerSettings, Sharing};
use crate::container::{Container, ContainerFailure, Plan};
use crate::engine::{Engine, EngineConnection};
use crate::owner::ContainerOwner;
use crate::place::{Mounted, SessionMounts, Volumes};

/// How long the end of a session waits for its calls.
const END: Duration = Duration::from_secs(3);

/// What all sessions of a backend instance share.
#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) settings: DockerSettings,
    pub(crate) connection: EngineConnection,
    pub(crate) owner: ContainerOwner,
    /// Whether leftovers of hosts that are gone were looked for.
    pub(crate) swept: OnceCell<()>,
    /// Whether the engine was seen not to see this machine's files.
    elsewhere: watch::Sender<bool>,
}

impl BackendState {
    pub(crate) fn new(settings: DockerSettings, owner: ContainerOwner) -> Self {
        Self {
            connection: EngineConnection::new(settings.engine.clone()),
            settings,
            owner,
            swept: OnceCell::new(),
            elsewhere: watch::Sender::new(false),
        }
    }

    /// Removes what hosts that are gone left behind, once.
    pub(crate) async fn sweep(&self) {
        let sweeping = async {
            let engine = self.connection.engine().await.map_err(drop)?;
            self.owner.remove_leftovers(&engine).await;
            Ok::<(), ()>(())
        };
        let _ = self.swept.get_or_try_init(|| sweeping).await;
    }
}

/// The sessions of a backend instance.
#[derive(Debug, Default)]
pub(crate) struct DockerSessions(Mutex<HashMap<String, Arc<DockerSession>>>);

impl DockerSessions {
    /// Prepares a session, or prepares it again.
    pub(crate) fn init(&self, id: &str, working_dir: &Path, request: ExecutorInit) -> Result<()> {
        for skill in &request.skills {
            let name = &skill.name;
            let plain = !name.is_empty() && !name.contains(['/', '\0', ':', ',']);
            if !plain || name == "." || name == ".." || !skill.dir.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the skill `{}` at `{}` cannot be brought into a container",
                    name.escape_debug(),
                    skill.dir
                )));
            }
        }
        let session = Arc::new(DockerSession {
            id: id.to_owned(),
            brought: SessionMounts {
                working_dir: working_dir.to_owned(),
                skills: request.skills,
                env: request.env.into_iter().collect(),
            },
            slot: Arc::default(),
            over: watch::Sender::new(false),
            running: watch::Sender::new(0),
        });
        self.lock().entry(id.to_owned()).or_insert(session);
        Ok(())
    }

    /// A session that was prepared.
    pub(crate) fn of(&self, id: Option<&str>) -> Result<Arc<DockerSession>> {
        let found = self.lock().get(id.unwrap_or_default()).cloned();
        found.ok_or_else(|| {
            Error::invalid("the session has no container: it was not prepared, or is over")
        })
    }

    pub(crate) fn take(&self, id: Option<&str>) -> Option<Arc<DockerSession>> {
        self.lock().remove(id.unwrap_or_default())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<DockerSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct DockerSession {
    id: String,
    pub(crate) brought: SessionMounts,
    slot: Arc<AsyncMutex<ContainerSlot>>,
    over: watch::Sender<bool>,
    running: watch::Sender<usize>,
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
    /// The session's container. The first call starts it, and so does the first one after it
    /// ended. Starting goes on when the call has no more time for it.
    pub(crate) async fn container(
        self: &Arc<Self>,
        world: &Arc<BackendState>,
        cx: &Cx,
        limit: Duration,
    ) -> Result<Arc<Container>> {
        if let Ok(slot) = self.slot.try_lock()
            && let Some(container) = slot.open()
        {
            return Ok(container);
        }
        let (session, world) = (Arc::clone(self), Arc::clone(world));
        let notices = cx.clone();
        let starting = tokio::spawn(async move { session.start(&world, &notices).await });
        tokio::select! {
            started = starting => started.unwrap_or_else(|_| Err(Error::cancelled())),
            () = cancelled(cx) => Err(Error::cancelled()),
            () = self.over() => Err(Error::cancelled()),
            () = tokio::time::sleep(limit) => Err(Error::new(
                "the session's container is not ready yet; it goes on starting: call again",
            )),
        }
    }

    async fn start(&self, world: &BackendState, cx: &Cx) -> Result<Arc<Container>> {
        let mut slot = self.slot.lock().await;
        // Its end does not wait for who begins after it.
        if *self.over.borrow() {
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
        let mut started = self.started(world, &engine, &mut slot).await;
        if let Err(ContainerFailure::NoEngine(_)) = &started {
            // It may have come back since, or be another one now; else this says what to do.
            world.connection.forget().await;
            world.elsewhere.send_replace(false);
            engine = world.connection.engine().await?;
            started = self.started(world, &engine, &mut slot).await;
        }
        let container = Arc::new(started?);
        if *self.over.borrow() {
            container.remove().await;
            return Err(Error::cancelled());
        }
        if container.by_exec {
            let text = "the container cannot be attached to; the agent runs by one exec in it";
            notice(cx, text);
        }
        if slot.volumes.is_some() {
            let text = format!(
                "the engine at {} does not see this machine's files: /workspace is a volume \
                 there, and begins empty",
                engine.address
            );
            notice(cx, &text);
        }
        slot.container = Some(Arc::clone(&container));
        Ok(container)
    }

    async fn started(
        &self,
        world: &BackendState,
        engine: &Engine,
        slot: &mut ContainerSlot,
    ) -> Result<Container, ContainerFailure> {
        let BackendState {
            settings, owner, ..
        } = world;
        let plan = |mounted| Plan {
            engine,
            settings,
            owner,
            session: &self.id,
            mounted,
        };
        let mount = match settings.files {
            Sharing::Mount => true,
            Sharing::Copy => false,
            Sharing::Auto => engine.may_be_here && !*world.elsewhere.borrow(),
        };
        if mount {
            let mounted = Mounted::here(engine, settings, owner, &self.id, &self.brought);
            let mounted = mounted.map_err(ContainerFailure::Other)?;
            match plan(mounted.clone()).start().await {
                Err(ContainerFailure::NotHere(_)) if settings.files == Sharing::Auto => {
                    // The engine sees none of this machine's files only if this machine has them.
                    if let Some(missing) = mounted.missing() {
                        return Err(ContainerFailure::Other(Error::new(format!(
                            "{} is not there, so it cannot be brought into the container. Make it \
                             again, and call again",
                            missing.display()
                        ))));
                    }
                    world.elsewhere.send_replace(true);
                }
                other => return other,
            }
        }
        let volumes = match &slot.volumes {
            Some(volumes) => volumes.clone(),
            None => {
                let made = Volumes::make(engine, settings, owner, &self.id, &self.brought);
                let made = made.await.map_err(ContainerFailure::Other)?;
                slot.volumes.insert(made).clone()
            }
        };
        plan(Mounted::volumes(settings, &volumes)).start().await
    }

    /// Ends the session's calls and removes what it had on the engine.
    pub(crate) async fn end(&self, world: &BackendState) -> Result<()> {
        self.over.send_replace(true);
        let mut running = self.running.subscribe();
        let _ = tokio::time::timeout(END, running.wait_for(|count| *count == 0)).await;
        let mut slot = self.slot.lock().await;
        let mut gone = true;
        if let Some(container) = slot.container.take() {
            gone &= container.remove().await;
        }
        if let Some(volumes) = slot.volumes.take() {
            let engine = world.connection.engine().await?;
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

    /// Counts a call as running for as long as the value lives.
    pub(crate) fn running(self: &Arc<Self>) -> CallGuard {
        self.running.send_modify(|count| *count += 1);
        CallGuard(Arc::clone(self))
    }

    /// Becomes ready when the session is over.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// A call of a session.
#[derive(Debug)]
pub(crate) struct CallGuard(Arc<DockerSession>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.running.send_modify(|count| *count -= 1);
    }
}

/// Becomes ready when the call is cancelled, and never with a host that cannot tell.
pub(crate) async fn cancelled(cx: &Cx) {
    cx.until_cancelled().await;
    if !cx.cancelled() {
        std::future::pending::<()>().await;
    }
}

/// Tells a person something, if the host takes it at once.
fn notice(cx: &Cx, text: &str) {
    let event = PluginEvent::Notice {
        level: "info".to_owned(),
        text: text.to_owned(),
    };
    if let Ok(json) = serde_json::to_vec(&event) {
        let _ = cx.try_emit(conjure_skill_sdk::abi::EmitKind::Event, &json);
    }
}
