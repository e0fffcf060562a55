//! Instances of native skills as a session uses them: made at first use, moved to a new version at a
//! step boundary, cleaned up at the end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use conjure_core::log::{StateFate, StateHandover, StateMove};
use conjure_core::turn::describe_state_move;
use conjure_skill_sdk::protocol::{Create, Empty, HostInfo, State, StateScope, op};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OnceCell, RwLock};

use super::request_context::{CallScope, RequestContext};
use super::services::SERVED;
use conjure_plugins::{
    CallOptions, HostServices, Instance, InstanceDirs, LoadedPlugin, PluginCallFailure, PluginId,
};

/// Asks an instance for an operation outside any tool call, with the usual time limit.
pub(crate) async fn ask<B: Serialize, R: DeserializeOwned>(
    instance: &Instance,
    request_context: &RequestContext,
    op: &str,
    body: B,
) -> Result<R, PluginCallFailure> {
    let limit = CallOptions::default().deadline;
    ask_with_timeout(instance, request_context, op, body, limit).await
}

/// Like [`ask`], with a time limit of its own. When the time is up the plugin is stopped as for any
/// call that hangs, so nobody gives up waiting before.
pub(crate) async fn ask_with_timeout<B: Serialize, R: DeserializeOwned>(
    instance: &Instance,
    request_context: &RequestContext,
    op: &str,
    body: B,
    limit: Option<Duration>,
) -> Result<R, PluginCallFailure> {
    let bad = |reason: String| PluginCallFailure::BadReply {
        plugin: op.to_owned(),
        reason,
    };
    let json = request_context
        .request(CallScope::default(), &body)
        .map_err(|e| bad(e.to_string()))?;
    let options = CallOptions {
        deadline: limit,
        meta: request_context.meta(),
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

/// Whether a new version can take the state of an old one over.
pub(crate) fn can_hand_over(old: &LoadedPlugin, new: &LoadedPlugin) -> bool {
    new.manifest().has("state.import/1") && old.manifest().has("state.export/1")
}

/// Hands a session's state from one instance to another.
pub(crate) async fn hand_over(
    old: &Instance,
    new: &Instance,
    request_context: &RequestContext,
) -> Result<(), String> {
    let mut state: State = ask(old, request_context, op::STATE_EXPORT, Empty {})
        .await
        .map_err(|e| e.to_string())?;
    state.version.clone_from(&old.plugin().manifest().version);
    let _: Empty = ask(new, request_context, op::STATE_IMPORT, state)
        .await
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// What has become of a plugin's state, which the host's log is told.
pub(crate) fn state_move(old: &PluginId, new: &PluginId, fate: StateFate) -> StateMove {
    let moved = StateMove {
        plugin: new.name.to_string(),
        from: old.version.to_string(),
        to: new.version.to_string(),
        fate,
    };
    tracing::info!("{}", describe_state_move(&moved));
    moved
}

/// One native skill of one session (or of the whole host, when its state is shared).
pub(crate) struct SkillLease {
    pub(crate) plugin: Arc<LoadedPlugin>,
    services: Arc<dyn HostServices>,
    create: Create,
    instance: OnceCell<Arc<Instance>>,
    previous: Mutex<Option<Arc<SkillLease>>>,
    /// Only for shared state: calls hold it for reading, the hand-over for writing.
    gate: Option<RwLock<()>>,
    /// Only for shared state: who serves the calls of old tables once the state has moved on.
    successor: OnceLock<Arc<Instance>>,
    /// What became of the state of the version before, until somebody is told.
    outcome: Mutex<Option<StateMove>>,
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
        let shared = plugin.manifest().state == StateScope::Shared;
        Arc::new(Self {
            plugin,
            services,
            create,
            instance: OnceCell::new(),
            previous: Mutex::new(before.inspect(|before| before.forget_unused())),
            gate: shared.then(|| RwLock::new(())),
            successor: OnceLock::new(),
            outcome: Mutex::default(),
        })
    }

    /// What becomes of the state of the version that this one replaces.
    pub(crate) fn handover(&self) -> StateHandover {
        let before = lock(&self.previous).clone();
        let Some(before) = before.and_then(Self::newest_with_instance) else {
            return StateHandover::None;
        };
        // What runs may be of an earlier version than its lease.
        let holds_state = |holder: &Arc<Instance>| {
            let holder = holder.plugin();
            self.takes_state_of(holder) && holder.health().quarantined.is_none()
        };
        if before.current_instance().is_some_and(holds_state) {
            StateHandover::Carried
        } else {
            StateHandover::Lost
        }
    }

    /// What became of the state of the version that this one replaces, told once: nobody knows
    /// before the first call.
    pub(crate) fn take_outcome(&self) -> Option<StateMove> {
        lock(&self.outcome).take()
    }

    /// The instance, if it was made and is the one to call.
    pub(crate) fn current_instance(&self) -> Option<&Arc<Instance>> {
        self.successor.get().or_else(|| self.instance.get())
    }

    /// The plugin of the instance that answers, or would: an earlier version than this lease's where its
    /// state could not be taken over, a later one where shared state has moved on.
    pub(crate) fn serving_plugin(&self) -> &Arc<LoadedPlugin> {
        self.current_instance()
            .map_or(&self.plugin, |made| made.plugin())
    }

    /// The plugin of the instance that this lease made, or would make.
    pub(crate) fn instance_plugin(&self) -> &Arc<LoadedPlugin> {
        let made = self.instance.get();
        made.map_or(&self.plugin, |made| made.plugin())
    }

    /// Whether something is there that may hold state, here or at a version before.
    pub(crate) fn has_state(self: &Arc<Self>) -> bool {
        Arc::clone(self).newest_with_instance().is_some()
    }

    /// The beginning of the sentence that says that it did not come in time: what it waits for, where
    /// that is not its own doing.
    pub(crate) fn not_ready(&self) -> String {
        let plugin = self.plugin.id();
        let before = lock(&self.previous)
            .clone()
            .and_then(Self::newest_with_instance);
        if let Some(before) = before.filter(|before| before.is_in_use()) {
            return format!(
                "{plugin} takes over the state that all sessions share as soon as the calls of other \
                 sessions on {} have ended, and was not ready",
                before.instance_plugin().id()
            );
        }
        if self
            .gate
            .as_ref()
            .is_some_and(|gate| gate.try_read().is_err())
        {
            return format!(
                "the state that all sessions share moves from {plugin} to another version as soon as \
                 the calls that run on it have ended, and it was not ready"
            );
        }
        format!("{plugin} was not ready")
    }

    /// Whether calls on shared state run, or it moves.
    fn is_in_use(&self) -> bool {
        self.gate
            .as_ref()
            .is_some_and(|gate| gate.try_write().is_err())
    }

    /// Held by a call on shared state for as long as it runs.
    pub(crate) async fn enter(&self) -> Option<tokio::sync::RwLockReadGuard<'_, ()>> {
        match &self.gate {
            Some(gate) => Some(gate.read().await),
            None => None,
        }
    }

    /// [`SkillLease::enter`] without waiting: nothing while the state moves.
    pub(crate) fn try_enter(&self) -> Option<Option<tokio::sync::RwLockReadGuard<'_, ()>>> {
        match &self.gate {
            Some(gate) => Some(Some(gate.try_read().ok()?)),
            None => Some(None),
        }
    }

    /// The instance. The first use makes it and takes the state of the version before over; when
    /// that fails, the version before goes on.
    pub(crate) async fn instance(
        &self,
        request_context: &RequestContext,
    ) -> Result<Arc<Instance>, String> {
        if let Some(instance) = self.current_instance() {
            return Ok(Arc::clone(instance));
        }
        let instance = self
            .instance
            .get_or_try_init(|| async {
                let before = self.state_holder(request_context).await;
                let made = self.take_over(before.as_deref(), request_context).await;
                if made.is_ok() {
                    lock(&self.previous).take();
                }
                made
            })
            .await?;
        Ok(Arc::clone(instance))
    }

    async fn take_over(
        &self,
        before: Option<&SkillLease>,
        request_context: &RequestContext,
    ) -> Result<Arc<Instance>, String> {
        let old = before.and_then(|lease| Some((lease, Arc::clone(lease.current_instance()?))));
        let Some((before, old)) = old else {
            return self.make(None, request_context).await;
        };
        // Calls on shared state drain, and new ones wait, while it moves.
        let _moving = match &before.gate {
            Some(gate) => Some(gate.write().await),
            None => None,
        };
        // The version that runs, which may be an earlier one than that of its lease.
        let old_id = old.plugin().id();
        if let Some(reason) = old.plugin().health().quarantined {
            self.set_outcome(old_id, StateFate::Lost { reason });
            return self.make(None, request_context).await;
        }
        match self.make(Some(&old), request_context).await {
            Ok(instance) => {
                if self.takes_state_of(old.plugin()) {
                    let fate = match old_id == self.plugin.id() {
                        true => StateFate::Kept,
                        false => StateFate::Carried,
                    };
                    self.set_outcome(old_id, fate);
                }
                if before.gate.is_some() {
                    let _ = before.successor.set(Arc::clone(&instance));
                }
                Ok(instance)
            }
            Err(reason) => {
                self.set_outcome(old_id, StateFate::Refused { reason });
                Ok(old)
            }
        }
    }

    async fn make(
        &self,
        old: Option<&Arc<Instance>>,
        request_context: &RequestContext,
    ) -> Result<Arc<Instance>, String> {
        // State that all sessions share is of none of their directories.
        let mut grant = request_context.grant(self.plugin.manifest());
        if self.gate.is_some() {
            grant.dirs = InstanceDirs::default();
        }
        // Also where it was removed meanwhile: the table of a step has it.
        let instance = self
            .plugin
            .create_even_if_removed(&self.create, Arc::clone(&self.services), &grant)
            .await
            .map_err(|error| error.to_string())?;
        if let Some(old) = old
            && self.takes_state_of(old.plugin())
        {
            hand_over(old, &instance, request_context).await?;
        }
        Ok(instance)
    }

    fn takes_state_of(&self, old: &LoadedPlugin) -> bool {
        can_hand_over(old, &self.plugin)
    }

    fn set_outcome(&self, old: &PluginId, fate: StateFate) {
        *lock(&self.outcome) = Some(state_move(old, self.plugin.id(), fate));
    }

    /// Lease with the state that this one takes over. A version before that was never called has none
    /// yet; where somebody may still call it, its instance is made first, and takes over what is before
    /// it: so the state is at one place only.
    async fn state_holder(&self, request_context: &RequestContext) -> Option<Arc<Self>> {
        self.forget_unused();
        let before = lock(&self.previous).clone()?;
        if before.current_instance().is_none()
            && let Err(reason) = Box::pin(before.instance(request_context)).await
        {
            // Whoever calls it is told the same.
            tracing::warn!("{} could not be made: {reason}", before.plugin.id());
            return Self::newest_with_instance(before);
        }
        Some(before)
    }

    /// Forgets versions before this one that were never called and that nobody can call any more.
    fn forget_unused(&self) {
        let mut before = lock(&self.previous);
        while let Some(unused) = before.take() {
            // Nobody else has it, so nobody begins to use it meanwhile.
            if unused.instance.initialized() || Arc::strong_count(&unused) > 1 {
                *before = Some(unused);
                return;
            }
            *before = lock(&unused.previous).take();
        }
    }

    /// Returns this lease when it has an instance, else the newest one before it that has.
    fn newest_with_instance(self: Arc<Self>) -> Option<Arc<Self>> {
        let mut newest = Some(self);
        while let Some(lease) = newest {
            if lease.instance.initialized() {
                return Some(lease);
            }
            newest = lock(&lease.previous).clone();
        }
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use conjure_plugins::{InstanceGrant, NoServices, PluginLimits};
    use conjure_skill_sdk::Skill;
    use serde_json::json;

    use super::*;

    fn lease(version: &str, before: Option<Arc<SkillLease>>) -> Arc<SkillLease> {
        let make = || Skill::new("common", "Is shared").shared();
        let plugin = LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap();
        let create = create_request(None, None, json!({}), None);
        SkillLease::new(Arc::new(plugin), Arc::new(NoServices), create, before)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_waited_for_while_shared_state_moves_is_said() {
        let old = lease("1.0.0", None);
        let (services, grant) = (Arc::new(NoServices), InstanceGrant::default());
        let made = old
            .plugin
            .create_even_if_removed(&old.create, services, &grant)
            .await;
        assert!(old.instance.set(made.unwrap()).is_ok());
        let new = lease("1.1.0", Some(Arc::clone(&old)));
        assert_eq!(new.not_ready(), "common 1.1.0 was not ready");
        let running = old.enter().await;
        assert_eq!(
            new.not_ready(),
            "common 1.1.0 takes over the state that all sessions share as soon as the calls of other \
             sessions on common 1.0.0 have ended, and was not ready"
        );
        drop(running);
        let moving = old.gate.as_ref().unwrap().write().await;
        assert_eq!(
            old.not_ready(),
            "the state that all sessions share moves from common 1.0.0 to another version as soon as \
             the calls that run on it have ended, and it was not ready"
        );
        drop(moving);
    }
}
