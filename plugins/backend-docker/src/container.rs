//! One container: made with every limit, started, spoken to, removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::AttachContainerResults;
use bollard::errors::Error as EngineError;
use bollard::exec::StartExecResults;
use bollard::models::{
    ContainerCreateBody, ExecConfig, HealthConfig, HostConfig, HostConfigLogConfig,
};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, StartContainerOptions,
    WaitContainerOptionsBuilder,
};
use conjure_exec_agent::client::{AgentInput, AgentLink, QUIET};
use conjure_skill_sdk::{Error, Result};
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{AgentTransport, DockerSettings};
use crate::engine::{Engine, engine_error};
use crate::mounts::{AGENT, ContainerMounts, SKILLS, TMP, WORKSPACE};
use crate::output::{AgentOutput, read};
use crate::owner::{ContainerOwner, remove_container};
use crate::socket::{self, AgentSocket};

/// How long the agent may take to say who it is.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a container's exit code is waited for, once its stream is over.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Where a container's first process waits that is not spoken to.
const HOLD_PATH: &str = "/tmp/.conjure-hold";

/// A running container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) link: Arc<AgentLink>,
    pub(crate) mounts: ContainerMounts,
    id: String,
    engine: Engine,
    memory_mb: u64,
    exit: watch::Receiver<Option<i64>>,
    /// Whether somebody had to be told that it cannot be attached to.
    pub(crate) uses_exec: bool,
    /// Whether it is being looked whether anybody inside answers.
    probing: watch::Sender<bool>,
}

/// Inputs from which a container is made.
pub(crate) struct Plan<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) settings: &'a DockerSettings,
    pub(crate) owner: &'a ContainerOwner,
    pub(crate) session: &'a str,
    pub(crate) mounts: ContainerMounts,
}

impl Plan<'_> {
    /// Makes and starts the container and waits until its agent answers.
    pub(crate) async fn start(self) -> Result<Container, ContainerFailure> {
        match self.settings.stream {
            AgentTransport::Exec => self.start_container(true).await,
            AgentTransport::Attach => self.start_container(false).await,
            AgentTransport::Auto => match self.start_container(false).await {
                Err(ContainerFailure::NotAttached(_)) => self.start_container(true).await,
                other => other,
            },
        }
    }

    async fn start_container(&self, by_exec: bool) -> Result<Container, ContainerFailure> {
        let may = self.settings.stream == AgentTransport::Auto && self.mounts.is_local();
        let offer = if may && !by_exec {
            AgentSocket::new(self.owner)
        } else {
            None
        };
        let transport = match &offer {
            _ if by_exec => ChosenTransport::Exec,
            Some(offer) => ChosenTransport::Socket(offer),
            None => ChosenTransport::Attach,
        };
        let id = self.create(transport).await?;
        match self.run(&id, transport).await {
            Ok(container) => Ok(container),
            Err(failed) => {
                remove_container(self.engine, &id).await;
                Err(failed)
            }
        }
    }

    async fn run(
        &self,
        id: &str,
        transport: ChosenTransport<'_>,
    ) -> Result<Container, ContainerFailure> {
        let docker = &self.engine.docker;
        let start = docker.start_container(id, None::<StartContainerOptions>);
        let failed = |error: EngineError| self.failed("starting a container", &error);
        let (output, input) = match transport {
            ChosenTransport::Exec => {
                start.await.map_err(failed)?;
                self.exec(id).await?
            }
            ChosenTransport::Attach | ChosenTransport::Socket(_) => {
                // Before the start, so that not even the first frame is missed.
                let attached = self.attach(id).await?;
                start.await.map_err(failed)?;
                match transport {
                    ChosenTransport::Socket(offer) => {
                        agent_stream(offer, attached, Instant::now() + READY_TIMEOUT).await
                    }
                    _ => attached,
                }
            }
        };
        let exit = self.watch_exit(id);
        let link = Arc::new(AgentLink::new(input, |feed| read(output, feed)));
        let container = Container {
            link,
            mounts: self.mounts.clone(),
            id: id.to_owned(),
            engine: self.engine.clone(),
            memory_mb: self.settings.memory_mb,
            exit,
            uses_exec: matches!(transport, ChosenTransport::Exec),
            probing: watch::Sender::new(false),
        };
        match tokio::time::timeout(READY_TIMEOUT, container.link.ready()).await {
            Ok(Ok(())) => Ok(container),
            Ok(Err(why)) => {
                let code = container.exit_code().await;
                let code = code.map_or_else(String::new, |code| format!(" (exit code {code})"));
                Err(ContainerFailure::Other(Error::new(format!(
                    "the container of the image `{}` ended as soon as it started{code}: {}. The \
                     image must be for Linux and for the processor of the engine",
                    self.settings.image,
                    if why.is_empty() {
                        "it said nothing"
                    } else {
                        &why
                    },
                ))))
            }
            Err(_) => {
                let silent = Error::new(format!(
                    "the container of the image `{}` runs and does not answer",
                    self.settings.image
                ));
                // A stream that opens and carries nothing is none.
                Err(match transport {
                    ChosenTransport::Exec => ContainerFailure::Other(silent),
                    ChosenTransport::Attach | ChosenTransport::Socket(_) => {
                        ContainerFailure::NotAttached(silent)
                    }
                })
            }
        }
    }

    async fn create(&self, transport: ChosenTransport<'_>) -> Result<String, ContainerFailure> {
        let name = format!("conjure-{}", uuid::Uuid::now_v7().simple());
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let body = self.body(transport);
        let made = self.engine.docker.create_container(Some(options), body);
        let made = made.await;
        if matches!(&made, Err(error) if !is_answer(error)) {
            // It may have been made all the same.
            remove_container(self.engine, &name).await;
        }
        match made {
            Ok(made) => Ok(made.id),
            Err(error) if crate::engine::is_path_missing(&error) => {
                Err(ContainerFailure::FilesNotShared(engine_error(
                    "making a container",
                    &self.settings.image,
                    &error,
                )))
            }
            Err(error) => Err(self.failed("making a container", &error)),
        }
    }

    fn body(&self, transport: ChosenTransport<'_>) -> ContainerCreateBody {
        let settings = self.settings;
        let owned = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let (quiet, socket) = (QUIET.to_string(), AgentSocket::path_in_container());
        let arguments = match transport {
            ChosenTransport::Exec => owned(&["hold", HOLD_PATH]),
            ChosenTransport::Attach => owned(&["serve", &quiet, WORKSPACE, SKILLS]),
            ChosenTransport::Socket(_) => owned(&["serve-at", &socket, &quiet, WORKSPACE, SKILLS]),
        };
        let attached = !matches!(transport, ChosenTransport::Exec);
        let mut env = vec![format!("HOME={TMP}")];
        env.extend(
            settings
                .env
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        ContainerCreateBody {
            image: Some(settings.image.clone()),
            entrypoint: owned(&[AGENT]),
            cmd: arguments,
            env: Some(env),
            user: Some(self.mounts.user.clone()),
            working_dir: Some(WORKSPACE.to_owned()),
            labels: Some(self.owner.labels(self.session)),
            tty: Some(false),
            open_stdin: Some(attached),
            // With the end of the one stream the agent reads an end, and the container is over:
            // also when the host was killed.
            stdin_once: Some(attached),
            attach_stdin: Some(attached),
            attach_stdout: Some(attached),
            attach_stderr: Some(attached),
            healthcheck: Some(HealthConfig {
                test: owned(&["NONE"]),
                ..HealthConfig::default()
            }),
            host_config: Some(self.host_config(transport)),
            ..ContainerCreateBody::default()
        }
    }

    fn host_config(&self, transport: ChosenTransport<'_>) -> HostConfig {
        let settings = self.settings;
        let mib = |size: u64| i64::try_from(size.saturating_mul(1024 * 1024)).unwrap_or(i64::MAX);
        let mut tmp = format!("rw,exec,nosuid,nodev,mode=1777,size={}m", settings.tmp_mb);
        if !self.engine.podman {
            // Docker may give it the mode of the image's /tmp, whatever is said here; its owner can
            // always write to it. Podman keeps the mode, and knows no owner.
            let (uid, gid) = self.mounts.ids();
            tmp.push_str(&format!(",uid={uid},gid={gid}"));
        }
        let mut all = self.mounts.clone();
        if let ChosenTransport::Socket(offer) = transport {
            all.add(offer.mount());
        }
        let (mounts, binds) = all.engine_mounts(settings.selinux);
        HostConfig {
            auto_remove: Some(true),
            network_mode: Some(settings.network.clone()),
            memory: Some(mib(settings.memory_mb)),
            // The same as memory: no swap on top.
            memory_swap: Some(mib(settings.memory_mb)),
            #[expect(clippy::cast_possible_truncation, reason = "a float saturates")]
            nano_cpus: Some((settings.cpus * 1e9) as i64),
            pids_limit: Some(settings.pids.into()),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            privileged: Some(false),
            tmpfs: Some(HashMap::from([(TMP.to_owned(), tmp)])),
            // Frames are nobody's log.
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".to_owned()),
                config: None,
            }),
            mounts: Some(mounts),
            binds: Some(binds),
            userns_mode: self.mounts.userns.clone(),
            ..HostConfig::default()
        }
    }

    async fn attach(&self, id: &str) -> Result<(AgentOutput, AgentInput), ContainerFailure> {
        let options = AttachContainerOptionsBuilder::new()
            .stream(true)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .build();
        let attached = self.engine.docker.attach_container(id, Some(options)).await;
        let AttachContainerResults { output, input } = attached.map_err(|error| {
            let image = &self.settings.image;
            ContainerFailure::NotAttached(engine_error("attaching to a container", image, &error))
        })?;
        Ok((output, input))
    }

    async fn exec(&self, id: &str) -> Result<(AgentOutput, AgentInput), ContainerFailure> {
        let docker = &self.engine.docker;
        let failed = |error: EngineError| self.failed("running the agent in a container", &error);
        let quiet = QUIET.to_string();
        let words = [AGENT, "serve-held", HOLD_PATH, &quiet, WORKSPACE, SKILLS];
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(words.map(str::to_owned).to_vec()),
            ..ExecConfig::default()
        };
        let made = docker.create_exec(id, config).await.map_err(failed)?;
        match docker.start_exec(&made.id, None).await.map_err(failed)? {
            StartExecResults::Attached { output, input } => Ok((output, input)),
            StartExecResults::Detached => Err(ContainerFailure::Other(Error::new(
                "the engine ran the agent without a stream to it",
            ))),
        }
    }

    /// Exit code of the container, once it has one; the container is removed at once then.
    fn watch_exit(&self, id: &str) -> watch::Receiver<Option<i64>> {
        let (sender, exit) = watch::channel(None);
        let options = WaitContainerOptionsBuilder::new()
            .condition("next-exit")
            .build();
        let mut waiting = self.engine.docker.wait_container(id, Some(options));
        tokio::spawn(async move {
            tokio::select! {
                ended = waiting.next() => {
                    let code = match ended {
                        Some(Ok(ended)) => Some(ended.status_code),
                        Some(Err(EngineError::DockerContainerWaitError { code, .. })) => Some(code),
                        _ => None,
                    };
                    sender.send_replace(code);
                }
                () = sender.closed() => {}
            }
        });
        exit
    }

    fn failed(&self, what: &str, error: &EngineError) -> ContainerFailure {
        let explained = engine_error(what, &self.settings.image, error);
        if is_answer(error) {
            ContainerFailure::Other(explained)
        } else {
            ContainerFailure::NoEngine(explained)
        }
    }
}

/// What carries the stream to the agent.
#[derive(Debug, Clone, Copy)]
enum ChosenTransport<'a> {
    /// Over a socket, or as below where the agent cannot reach it.
    Socket(&'a AgentSocket),
    /// Over the stream that is attached.
    Attach,
    /// Over the stream of an exec.
    Exec,
}

/// The stream that the agent takes: it says its first word there.
async fn agent_stream(
    offer: &AgentSocket,
    attached: (AgentOutput, AgentInput),
    until: Instant,
) -> (AgentOutput, AgentInput) {
    let (output, input) = attached;
    let mut output = output.fuse();
    tokio::select! {
        socket = offer.accept() => socket::stream(socket, (Box::pin(output), input)),
        first = output.next() => (Box::pin(stream::iter(first).chain(output)), input),
        () = tokio::time::sleep_until(until) => (Box::pin(output), input),
    }
}

/// Whether the error is an answer of the engine itself.
fn is_answer(error: &EngineError) -> bool {
    matches!(error, EngineError::DockerResponseServerError { .. })
}

impl Container {
    /// What a call says whose container is gone.
    pub(crate) async fn end_error(&self) -> Error {
        let why = self.link.end().unwrap_or_default();
        let how = match self.exit_code().await {
            Some(137) => format!(
                "; it was killed, by somebody or for want of memory, of which it has {} MiB",
                self.memory_mb
            ),
            Some(code) => format!("; its exit code was {code}"),
            None => String::new(),
        };
        let colon = if why.is_empty() { "" } else { ": " };
        Error::new(format!(
            "the session's container ended while the call ran{colon}{why}{how}. What had been \
             written to {WORKSPACE} is still there. Call again: a new container starts with it; \
             processes and /tmp begin anew"
        ))
    }

    async fn exit_code(&self) -> Option<i64> {
        let mut exit = self.exit.clone();
        let _ = tokio::time::timeout(EXIT_TIMEOUT, exit.wait_for(Option::is_some)).await;
        *self.exit.borrow()
    }

    /// Looks whether anybody inside answers, unless that is being done; `given_up` is for a container
    /// in which nobody does. Nobody waits for that: a call whose time is over says so at once.
    pub(crate) fn probe<F: Future<Output = ()> + Send>(
        self: &Arc<Self>,
        given_up: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) {
        if self.probing.send_replace(true) {
            return;
        }
        let suspect = Arc::clone(self);
        tokio::spawn(async move {
            if suspect.link.is_stuck().await {
                given_up(Arc::clone(&suspect)).await;
            }
            suspect.probing.send_replace(false);
        });
    }

    /// Whether it is being looked whether anybody inside answers.
    pub(crate) fn is_probing(&self) -> bool {
        *self.probing.borrow()
    }

    /// Becomes ready when it is known whether anybody inside answers, and one in which nobody does is
    /// removed.
    pub(crate) async fn until_probed(&self) {
        let mut suspected = self.probing.subscribe();
        let _ = suspected.wait_for(|suspected| !suspected).await;
    }

    /// Removes it, and says whether it is gone.
    pub(crate) async fn remove(&self) -> bool {
        remove_container(&self.engine, &self.id).await
    }
}

/// Reasons why there is no container.
#[derive(Debug)]
pub(crate) enum ContainerFailure {
    /// The engine does not see this machine's files.
    FilesNotShared(Error),
    /// The container cannot be attached to.
    NotAttached(Error),
    /// The engine does not answer.
    NoEngine(Error),
    Other(Error),
}

impl From<ContainerFailure> for Error {
    fn from(failed: ContainerFailure) -> Self {
        match failed {
            ContainerFailure::FilesNotShared(error)
            | ContainerFailure::NotAttached(error)
            | ContainerFailure::NoEngine(error)
            | ContainerFailure::Other(error) => error,
        }
    }
}
