//! Container engines: whether one answers where the container backend looks for it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::HealthFinding;
use conjure_runtime::Host;

/// The backend that needs one.
const BACKEND: &str = "docker";
/// How long an engine may take.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
const PING: &[u8] = b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n";

pub(super) async fn examine(host: &Host) -> Vec<HealthFinding> {
    if host.registry().snapshot().get(BACKEND).is_none() {
        return Vec::new();
    }
    let finding = HealthFinding::well("engine", "containers", "");
    let addresses = addresses();
    let mut tried = Vec::new();
    for address in &addresses {
        match tokio::time::timeout(PING_TIMEOUT, ping(address)).await {
            Ok(Ok(())) => {
                let found = format!("an engine answers at {address}");
                return vec![HealthFinding { found, ..finding }];
            }
            Ok(Err(error)) => tried.push(format!("{address}: {error}")),
            Err(_) => tried.push(format!(
                "{address}: no answer in {} s",
                PING_TIMEOUT.as_secs()
            )),
        }
    }
    let found = if tried.is_empty() {
        "no socket of an engine is there".to_owned()
    } else {
        tried.join("; ")
    };
    vec![finding.note(
        found,
        "start Docker or Podman, or name an engine in DOCKER_HOST; sessions with the backend \
         `docker` need one",
    )]
}

/// Where engines are, as the backend looks for them.
fn addresses() -> Vec<String> {
    if let Some(address) = conjure_config::env::var("DOCKER_HOST") {
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

async fn ping(address: &str) -> std::io::Result<()> {
    match address.strip_prefix("unix://") {
        Some(path) => ping_stream(UnixStream::connect(path).await?).await,
        None => {
            let host = address.split_once("://").map_or(address, |(_, host)| host);
            ping_stream(TcpStream::connect(host.trim_end_matches('/')).await?).await
        }
    }
}

async fn ping_stream(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    stream.write_all(PING).await?;
    let mut head = [0; 15];
    stream.read_exact(&mut head).await?;
    if head.ends_with(b" 200 OK") || head.windows(5).any(|part| part == b" 200 ") {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&head).into_owned();
        Err(std::io::Error::other(format!("it answered `{said}`")))
    }
}
