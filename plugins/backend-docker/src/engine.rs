//! The way to a container engine, and what its errors mean for a person.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use bollard::errors::Error as EngineError;
use bollard::{API_DEFAULT_VERSION, Docker};
use conjure_skill_sdk::{Error, Result};
use tokio::sync::Mutex;

/// How long one request to the engine may take, in seconds.
const REQUEST_TIMEOUT_SECONDS: u64 = 60;

/// An engine, as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) docker: Docker,
    /// Address of the engine, for people.
    pub(crate) address: String,
    /// Whether it could see this machine's files.
    pub(crate) may_share_files: bool,
    /// Whether its containers' users are not this machine's.
    pub(crate) rootless: bool,
    pub(crate) podman: bool,
}

/// The connection of a backend instance, made at first use.
#[derive(Debug)]
pub(crate) struct EngineConnection {
    address: Option<String>,
    cached: Mutex<Option<Engine>>,
}

impl EngineConnection {
    pub(crate) fn new(address: Option<String>) -> Self {
        Self {
            address,
            cached: Mutex::new(None),
        }
    }

    /// The engine, which answered just now or before.
    pub(crate) async fn engine(&self) -> Result<Engine> {
        let mut made = self.cached.lock().await;
        if let Some(engine) = &*made {
            return Ok(engine.clone());
        }
        let mut missing = None;
        for address in self.addresses() {
            match Engine::connect(&address).await {
                Ok(engine) => {
                    *made = Some(engine.clone());
                    return Ok(engine);
                }
                Err(error) => missing = missing.or(Some((address, error))),
            }
        }
        Err(no_engine(missing))
    }

    /// Asks again next time: the engine may be another one then.
    pub(crate) async fn forget(&self) {
        *self.cached.lock().await = None;
    }

    fn addresses(&self) -> Vec<String> {
        let set = self.address.clone();
        let set = set.or_else(|| std::env::var("DOCKER_HOST").ok());
        if let Some(address) = set.filter(|address| !address.is_empty()) {
            return vec![address];
        }
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let home = std::env::home_dir();
        let below = |dir: &Option<PathBuf>, name: &str| dir.as_ref().map(|dir| dir.join(name));
        [
            Some(PathBuf::from("/var/run/docker.sock")),
            below(&own, "docker.sock"),
            below(&home, ".docker/run/docker.sock"),
            below(&own, "podman/podman.sock"),
            Some(PathBuf::from("/run/podman/podman.sock")),
        ]
        .into_iter()
        .flatten()
        .filter(|path| path.exists())
        .map(|path| format!("unix://{}", path.display()))
        .collect()
    }
}

impl Engine {
    async fn connect(address: &str) -> Result<Self, EngineError> {
        let is_socket = address.starts_with("unix://") || address.starts_with('/');
        let docker = if is_socket {
            Docker::connect_with_unix(address, REQUEST_TIMEOUT_SECONDS, API_DEFAULT_VERSION)?
        } else {
            Docker::connect_with_http(address, REQUEST_TIMEOUT_SECONDS, API_DEFAULT_VERSION)?
        };
        // Old engines refuse new versions of the interface, and new engines old ones.
        let docker = docker.negotiate_version().await?;
        let info = docker.info().await?;
        let options = info.security_options.unwrap_or_default();
        let version = docker.version().await?;
        let components = version.components.unwrap_or_default();
        Ok(Self {
            docker,
            address: address.to_owned(),
            may_share_files: is_socket,
            rootless: options.iter().any(|option| option.contains("rootless")),
            podman: components
                .iter()
                .any(|component| component.name.contains("Podman")),
        })
    }
}

fn no_engine(missing: Option<(String, EngineError)>) -> Error {
    let (what, remedy) = match missing {
        None => (
            "no container engine was found on this machine".to_owned(),
            "Start Docker, or Podman with `podman system service`, or name the engine with \
             `engine` in this backend's configuration or with DOCKER_HOST",
        ),
        Some((address, error)) => {
            let path = address.strip_prefix("unix://").map(Path::new);
            let remedy = match path.map(Path::exists) {
                Some(true) if is_socket_denied() => {
                    "This plugin runs in a process of its own, which gets no socket of this \
                     machine: let it run in the host's with `conjure plugin trust`, or name an \
                     engine behind an address (tcp://…) with `engine` in this backend's \
                     configuration"
                }
                Some(false) => {
                    "There is nothing at this path: start the engine, or name another place with \
                     `engine` in this backend's configuration or with DOCKER_HOST"
                }
                _ => {
                    "Start it, or let this user in (on most systems: into the group `docker`), or \
                     name another with `engine` in this backend's configuration or DOCKER_HOST"
                }
            };
            let what = format!("the container engine at {address} does not answer: {error}");
            (what, remedy)
        }
    };
    Error::new(format!("{what}. {remedy}. Other backends go on working."))
}

/// Whether the kernel refuses this process every socket of this machine, as it does to a worker.
fn is_socket_denied() -> bool {
    let socket = UnixDatagram::unbound();
    socket.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether the engine says that there is no such thing (any more).
pub(crate) fn is_missing(error: &EngineError) -> bool {
    status(error).is_some_and(|(code, _)| code == 404)
}

/// Whether the engine does not see a path of this machine.
pub(crate) fn is_path_missing(error: &EngineError) -> bool {
    status(error).is_some_and(|(_, message)| {
        let podman = message.contains("statfs") && message.contains("no such file");
        message.contains("bind source path does not exist") || podman
    })
}

fn status(error: &EngineError) -> Option<(u16, &str)> {
    match error {
        EngineError::DockerResponseServerError {
            status_code,
            message,
        } => Some((*status_code, message)),
        _ => None,
    }
}

/// What a failure of the engine means, and what to do about it.
pub(crate) fn engine_error(what: &str, image: &str, error: &EngineError) -> Error {
    let text = match status(error) {
        Some((404, message)) if message.to_lowercase().contains("image") => format!(
            "the engine has no image `{image}`. `conjure docker build` makes the default one; \
             `docker pull {image}` fetches another; `image` in this backend's configuration names \
             the one to use"
        ),
        Some((_, message)) if message.to_lowercase().contains("no space left") => format!(
            "the engine's disk is full, so {what} failed: {message}. `docker system df` shows what \
             takes the room and `docker system prune` frees some"
        ),
        Some((404, message)) if message.contains("network") => format!(
            "{what} failed: {message}. `network` in this backend's configuration names a network \
             of the engine, or `none`"
        ),
        Some((code, message)) => {
            format!("{what} failed: the engine says {code}: {}", message.trim())
        }
        None => format!(
            "{what} failed: the engine does not answer: {error}. When it runs again, call again: a \
             new container starts with the same work directory"
        ),
    };
    Error::new(text)
}
