//! Where a server that runs says that it does.

use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::RemoteServer;
use conjure_http_server::{read_user_token, url, user_token_file};

/// Locked for as long as a server lives.
const LOCK_FILE: &str = "serve.lock";
/// File with the address of the server and how to ask it.
const ADDRESS_FILE: &str = "serve.json";
/// How often a server that is not announced looks whether it can be.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_000 });

/// A server's announcement. It ends when this is dropped, or with the process.
pub struct ServerAnnouncement {
    address_file: PathBuf,
    _lock: File,
}

impl ServerAnnouncement {
    /// Announces a server in its directory of data; nothing when another one is announced there.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(data_dir: &Path, address: SocketAddr) -> std::io::Result<Option<Self>> {
        conjure_config::fs::create_private_dir(data_dir)?;
        let Some(lock) = try_lock(data_dir)? else {
            return Ok(None);
        };
        let place = data_dir.join(ADDRESS_FILE);
        let text = json!({ "url": url(address), "pid": std::process::id() }).to_string();
        conjure_config::fs::write_atomic(&place, text.as_bytes())?;
        Ok(Some(Self {
            address_file: place,
            _lock: lock,
        }))
    }

    /// Announces a server once no other one is announced in its directory of data, however long that
    /// takes. What the file system says no to is tried again.
    #[boxed]
    pub async fn announce_when_free(data_dir: &Path, address: SocketAddr) -> Self {
        loop {
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            if let Ok(Some(announced)) = Self::new(data_dir, address) {
                return announced;
            }
        }
    }
}

impl Drop for ServerAnnouncement {
    fn drop(&mut self) {
        conjure_config::fs::remove_file(&self.address_file);
    }
}

impl RemoteServer {
    /// The server that runs for a directory of data; nothing where none does. Where its token is not
    /// to be had, whatever is asked of it says so.
    pub fn find(data_dir: &Path) -> Option<Self> {
        let lock = conjure_config::fs::open(data_dir.join(LOCK_FILE)).ok()?;
        if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
            // Nobody holds it; the file was left behind.
            return None;
        }
        let text = conjure_config::fs::read_to_string(data_dir.join(ADDRESS_FILE)).ok()?;
        let said: Value = serde_json::from_str(&text).ok()?;
        let token = read_user_token(&user_token_file(data_dir));
        let token = token.map_err(|error| Arc::from(error.to_string()));
        let pid = said.get("pid").and_then(Value::as_u64);
        Some(Self {
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            ..Self::new(said.get("url")?.as_str()?.to_owned(), token)?
        })
    }
}

/// The lock, unless somebody has it.
fn try_lock(data_dir: &Path) -> std::io::Result<Option<File>> {
    let path = data_dir.join(LOCK_FILE);
    match conjure_config::fs::create_new(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = conjure_config::fs::open(&path)?;
    let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_free.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::super::ServerError;
    use super::*;

    #[test]
    fn a_server_is_found_for_as_long_as_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        assert!(RemoteServer::find(dir.path()).is_none());
        let address = "0.0.0.0:7420".parse().unwrap();
        let announced = ServerAnnouncement::new(dir.path(), address)
            .unwrap()
            .unwrap();
        conjure_http_server::user_token(dir.path()).unwrap();
        let found = RemoteServer::find(dir.path()).unwrap();
        assert_eq!(found.url(), "http://127.0.0.1:7420");
        assert!(
            ServerAnnouncement::new(dir.path(), address)
                .unwrap()
                .is_none()
        );
        drop(announced);
        assert!(RemoteServer::find(dir.path()).is_none());
        // What a server that was killed leaves behind is no server.
        std::fs::write(
            dir.path().join(ADDRESS_FILE),
            r#"{"url":"http://127.0.0.1:1"}"#,
        )
        .unwrap();
        assert!(RemoteServer::find(dir.path()).is_none());
    }

    #[tokio::test]
    async fn a_server_is_announced_when_the_one_before_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        conjure_http_server::user_token(dir.path()).unwrap();
        let [first, second]: [SocketAddr; 2] =
            ["127.0.0.1:7420", "127.0.0.1:7421"].map(|at| at.parse().unwrap());
        let announced = ServerAnnouncement::new(dir.path(), first).unwrap().unwrap();
        let mut next = std::pin::pin!(ServerAnnouncement::announce_when_free(dir.path(), second));
        let waits = tokio::time::timeout(2 * ANNOUNCE_INTERVAL, &mut next).await;
        assert!(waits.is_err(), "the first one still runs");
        let found = RemoteServer::find(dir.path()).unwrap();
        assert_eq!(found.url(), "http://127.0.0.1:7420");
        drop(announced);
        let taken = tokio::time::timeout(Duration::from_secs(20), next).await;
        let _announced = taken.expect("it is announced");
        let found = RemoteServer::find(dir.path()).unwrap();
        assert_eq!(found.url(), "http://127.0.0.1:7421");
    }

    #[tokio::test]
    async fn a_server_that_gives_no_sign_of_life_is_named_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        conjure_http_server::user_token(dir.path()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _announced = ServerAnnouncement::new(dir.path(), address)
            .unwrap()
            .unwrap();
        let server = RemoteServer::find(dir.path()).unwrap();
        let silent = server.probe().await.unwrap_err();
        assert_eq!(
            silent.to_string(),
            format!(
                "the server at http://{address} (process {}) does not answer",
                std::process::id()
            )
        );
        drop(listener);
        let gone = server.probe().await;
        assert!(
            matches!(gone, Err(ServerError::Unreachable { .. })),
            "{gone:?}"
        );
    }

    #[tokio::test]
    async fn a_server_whose_token_others_may_know_is_there_and_says_why_it_is_not_asked() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:7420".parse().unwrap();
        let _announced = ServerAnnouncement::new(dir.path(), address)
            .unwrap()
            .unwrap();
        conjure_http_server::user_token(dir.path()).unwrap();
        let file = user_token_file(dir.path());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let server = RemoteServer::find(dir.path()).unwrap();
        let error = server.browser_link().await.unwrap_err().to_string();
        for said in ["a server runs at http://127.0.0.1:7420", "other users"] {
            assert!(error.contains(said), "{error}");
        }
        let thread = conjure_store::ThreadId::fresh();
        let followed = server.events(&thread, None, false).next().await;
        assert!(matches!(followed, Err(ServerError::NoToken { .. })));
        std::fs::remove_file(&file).unwrap();
        let server = RemoteServer::find(dir.path()).unwrap();
        let cancelled = server.cancel("site", false).await;
        assert!(matches!(cancelled, Err(ServerError::NoToken { .. })));
    }
}
