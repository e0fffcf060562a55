//! A socket between a host and the agent in one container, where both are on one machine: the
//! engine then carries no call.
//!
//! The socket lies in a directory of its own, which that container mounts read only and nobody else
//! on this machine can enter. It takes one connection, which is there before any command runs, and is
//! gone from then on: what runs in the container finds no way to it. Where it cannot be reached from
//! inside, such as through a virtual machine, the agent speaks over the stream that is attached.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::container::LogOutput;
use conjure_exec_agent::client::AgentInput;
use futures_util::{StreamExt as _, stream};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};

use crate::output::AgentOutput;
use crate::owner::ContainerOwner;

/// Where a container has the directory.
const LINK_DIR: &str = "/mnt/link";
const SOCKET_NAME: &str = "agent";
/// Size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How long the engine's word is waited for, once the socket is closed: what the agent complained
/// about comes that way.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// A socket that waits for the agent.
#[derive(Debug)]
pub(crate) struct AgentSocket {
    dir: PathBuf,
    listener: UnixListener,
}

impl AgentSocket {
    /// A new one; nothing where there can be none.
    pub(crate) fn new(owner: &ContainerOwner) -> Option<Self> {
        let all = owner.links();
        let dir = all.join(uuid::Uuid::now_v7().simple().to_string());
        let listening = || -> io::Result<UnixListener> {
            // Inside the containers' users come to it, here nobody does.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&all)?;
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
            let listener = listen(&dir)?;
            fs::set_permissions(dir.join(SOCKET_NAME), fs::Permissions::from_mode(0o666))?;
            Ok(listener)
        };
        match listening() {
            Ok(listener) => Some(Self { dir, listener }),
            Err(_) => {
                let _ = fs::remove_dir_all(&dir);
                None
            }
        }
    }

    /// The directory, its place in the container, and that nothing is written there.
    pub(crate) fn mount(&self) -> (PathBuf, String, bool) {
        (self.dir.clone(), LINK_DIR.to_owned(), false)
    }

    /// Path of the socket inside a container.
    pub(crate) fn path_in_container() -> String {
        format!("{LINK_DIR}/{SOCKET_NAME}")
    }

    /// Waits for the agent.
    pub(crate) async fn accept(&self) -> UnixStream {
        match self.listener.accept().await {
            Ok((socket, _)) => socket,
            // The other way is still there.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The name of a socket is short, the path of a directory may be long.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    if !cfg!(target_os = "linux") {
        return UnixListener::bind(dir.join(SOCKET_NAME));
    }
    let dir = File::open(dir)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET_NAME}", dir.as_raw_fd()))
}

/// The stream to the agent over its socket. What is attached says only what goes wrong, and stays
/// for as long as the socket.
pub(crate) fn stream(
    socket: UnixStream,
    attached: (AgentOutput, AgentInput),
) -> (AgentOutput, AgentInput) {
    let (reads, writes) = socket.into_split();
    let (said, kept) = attached;
    let source = SocketOutput {
        reads: Some(reads),
        attached_output: said,
        _attached_input: kept,
    };
    let output = stream::unfold(source, |mut source| async move {
        let next = source.next().await?;
        Some((Ok(next), source))
    });
    (Box::pin(output), Box::pin(writes))
}

/// The socket, and what is attached beside it.
struct SocketOutput {
    /// Reading half, until the socket is closed.
    reads: Option<OwnedReadHalf>,
    attached_output: AgentOutput,
    _attached_input: AgentInput,
}

impl SocketOutput {
    async fn next(&mut self) -> Option<LogOutput> {
        let reads = self.reads.as_mut()?;
        let mut buffer = Vec::with_capacity(READ_BYTES);
        if let Ok(1..) = reads.read_buf(&mut buffer).await {
            let message = buffer.into();
            return Some(LogOutput::StdOut { message });
        }
        self.reads = None;
        let mut said = Vec::new();
        let listening = async {
            while let Some(Ok(output)) = self.attached_output.next().await {
                if let LogOutput::StdErr { message } = output {
                    said.extend_from_slice(&message);
                }
            }
        };
        let _ = tokio::time::timeout(STDERR_TIMEOUT, listening).await;
        let message = said.into();
        Some(LogOutput::StdErr { message })
    }
}
