//! Instances of plugins as a session uses them: made at first use, moved to a new version at a
//! step boundary, cleaned up at the end.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_skill_sdk::protocol::{
    Create, Empty, ExecutorInit, ExecutorReady, HostInfo, Request, SkillMount, State, op,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::services::SERVED;
use crate::plugin::{CallFailure, CallMeta, CallOptions, HostServices, Instance, LoadedPlugin};

/// What every request of a session says about it.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) session: Arc<str>,
    pub(crate) working_dir: PathBuf,
    pub(crate) exchange_dir: PathBuf,
}

impl Surroundings {
    /// An envelope around a body.
    pub(crate) fn request<B>(&self, body: B) -> Request<B> {
        Request {
            session: Some(self.session.as_ref().to_owned()),
            working_dir: Some(self.working_dir.display().to_string()),
            exchange_dir: Some(self.exchange_dir.display().to_string()),
            ..Request::new(body)
        }
    }

    pub(crate) fn meta(&self) -> CallMeta {
        CallMeta {
            session: Some(Arc::clone(&self.session)),
            ..CallMeta::default()
        }
    }
}

/// Asks an instance for an operation outside any tool call.
pub(crate) async fn ask<B: Serialize, R: DeserializeOwned>(
    instance: &Instance,
    surroundings: &Surroundings,
    op: &str,
    body: B,
) -> Result<R, CallFailure> {
    let bad = |reason: String| CallFailure::BadReply {
        plugin: op.to_owned(),
        reason,
    };
    let json = serde_json::to_vec(&surroundings.request(body)).map_err(|e| bad(e.to_string()))?;
    let options = CallOptions {
        meta: surroundings.meta(),
        ..CallOptions::default()
    };
    let reply = instance.request(op, json, options).await?;
    serde_json::from_slice(&reply).map_err(|e| bad(format!("the reply to {op} does not fit: {e}")))
}

/// What `create` is told.
pub(crate) fn create_request(
    session: Option<String>,
    instance: Option<String>,
    config: Value,
    data_dir: Option<String>,
) -> Create {
    Create {
        host: HostInfo {
            name: "conjure".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: SERVED.iter().map(|op| (*op).to_owned()).collect(),
        },
        session,
        instance,
        config,
        data_dir,
    }
}

/// One native skill of one session (or of the whole host, when its state is shared).
pub(crate) struct SkillLease {
    pub(crate) plugin: Arc<LoadedPlugin>,
    services: Arc<dyn HostServices>,
    create: Create,
    instance: OnceCell<Arc<Instance>>,
    before: Mutex<Option<Arc<SkillLease>>>,
}

impl SkillLease {
    /// A lease that makes its instance at first use. `before` is the lease of the version that
    /// this one replaces.
    pub(crate) fn new(
        plugin: Arc<LoadedPlugin>,
        services: Arc<dyn HostServices>,
        create: Create,
        before: Option<Arc<SkillLease>>,
    ) -> Arc<Self> {
        let before = before.filter(|lease| lease.instance.initialized());
        Arc::new(Self {
            plugin,
            services,
            create,
            instance: OnceCell::new(),
            before: Mutex::new(before),
        })
    }

    /// The instance, if it was made.
    pub(crate) fn made(&self) -> Option<&Arc<Instance>> {
        self.instance.get()
    }

    /// The instance. The first use makes it and takes the state of the version before over; when
    /// that fails, the version before goes on.
    pub(crate) async fn instance(&self, around: &Surroundings) -> Result<Arc<Instance>, String> {
        let instance = self
            .instance
            .get_or_try_init(|| async {
                let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
                let old = before.as_ref().and_then(|lease| lease.made());
                match (self.make(old, around).await, old) {
                    (Ok(instance), _) => Ok(instance),
                    (Err(reason), Some(old)) => {
                        tracing::warn!(plugin = %self.plugin.id(), "{reason}; the version before goes on");
                        Ok(Arc::clone(old))
                    }
                    (Err(reason), None) => Err(reason),
                }
            })
            .await?;
        Ok(Arc::clone(instance))
    }

    async fn make(
        &self,
        old: Option<&Arc<Instance>>,
        around: &Surroundings,
    ) -> Result<Arc<Instance>, String> {
        let instance = self
            .plugin
            .create(&self.create, Arc::clone(&self.services))
            .await
            .map_err(|error| error.to_string())?;
        let manifest = &self.plugin.manifest();
        if let Some(old) = old
            && manifest.has("state.import/1")
            && old.plugin().manifest().has("state.export/1")
        {
            let mut state: State = ask(old, around, op::STATE_EXPORT, Empty {})
                .await
                .map_err(|e| e.to_string())?;
            state.version.clone_from(&old.plugin().manifest().version);
            let _: Empty = ask(&instance, around, op::STATE_IMPORT, state)
                .await
                .map_err(|e| e.to_string())?;
        }
        Ok(instance)
    }
}

/// An executor or backend of one session.
pub(crate) struct BackendLease {
    pub(crate) plugin: Arc<LoadedPlugin>,
    pub(crate) instance: Arc<Instance>,
    /// How things look from inside; the host's own paths for a backend.
    pub(crate) ready: ExecutorReady,
}

impl BackendLease {
    /// Prepares a session on an executor.
    pub(crate) async fn executor(
        plugin: Arc<LoadedPlugin>,
        instance: Arc<Instance>,
        around: &Surroundings,
        skills: Vec<SkillMount>,
    ) -> Result<Self, String> {
        let init = ExecutorInit {
            skills,
            ..ExecutorInit::default()
        };
        let ready = ask(&instance, around, op::EXECUTOR_INIT, init)
            .await
            .map_err(|e| e.to_string())?;
        Ok(Self {
            plugin,
            instance,
            ready,
        })
    }

    /// The skill's directory as commands see it.
    pub(crate) fn skill_dir(&self, skill: &str) -> Option<&str> {
        self.ready
            .skills
            .iter()
            .find(|mount| mount.name == skill)
            .map(|mount| mount.dir.as_str())
    }
}
