//! A manager on a database file of its own, whose sessions ask a streaming server.

use anyhow::{Context as _, Result};
use conjure_host::Host;
use conjure_host::auths::{Auths, KeySources, NewAuth};
use conjure_host::manager::{Manager, ManagerOptions, NewSession};
use conjure_host::store::{Location, Options as StoreOptions, Store, ThreadId};
use conjure_vault::Credential;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, json};
use tempfile::TempDir;

/// A manager and its directory, which ends with this value.
pub(crate) struct Managed {
    pub(crate) manager: Manager,
    dir: TempDir,
}

/// A saved session and its thread.
#[derive(Debug, Clone)]
pub(crate) struct SavedThread {
    pub(crate) session: String,
    pub(crate) thread: ThreadId,
}

impl Managed {
    pub(crate) async fn new(base_url: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let place = Location::File(dir.path().join("conjure.db"));
        let store = Store::open(&place, &StoreOptions::default()).await?;
        let keys = KeySources {
            key: Some("03".repeat(32).into()),
            ..KeySources::new(dir.path())
        };
        let auths = Auths::over(store.clone(), keys);
        let new = NewAuth {
            name: "key".to_owned(),
            provider: "anthropic".to_owned(),
            base_url: Some(base_url.to_owned()),
        };
        let key = Credential::ApiKey("a-key-of-nobody".to_owned().into());
        auths.add(new, key).await?;
        let host = Host::builder()
            .data_dir(dir.path())
            .log(store.clone())
            .auths(auths)
            .build()
            .await?;
        let manager = Manager::start(host, store, ManagerOptions::default()).await?;
        Ok(Self { manager, dir })
    }

    /// A session without tools.
    pub(crate) async fn session(&self) -> Result<SavedThread> {
        let mut tools = Map::new();
        tools.insert("backend".to_owned(), json!([]));
        let session = NewSession {
            tools,
            ..NewSession::new("key", "claude-sonnet-4-5", self.dir.path())
        };
        let view = self.manager.create(session).await?;
        Ok(SavedThread {
            thread: view.thread.context("a new session has a thread")?.id,
            session: view.id,
        })
    }
}

/// Processor time that this process has taken so far, all its threads, in microseconds.
pub(crate) fn processor_us() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (spent.tv_sec as f64, spent.tv_nsec as f64);
    seconds * 1e6 + nanoseconds / 1e3
}
