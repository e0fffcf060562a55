//! Native skills that a session had and that are gone, for when they come back.
//!
//! A plugin that is moved away and back, or removed and put back, is gone for a moment. What comes back
//! takes over from the instance that the session had: for as long as a step has it, and for half a
//! minute in any case. What comes back later is told to begin anew.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use conjure_core::log::StateHandover;
use conjure_skill_sdk::protocol::StateScope;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::lease::SkillLease;
use conjure_plugins::PluginId;

/// How long an instance of a skill that is gone is there for its return.
const RETENTION: Duration = Duration::from_secs(30);

/// The skills that are gone, by name.
#[derive(Default)]
pub(super) struct RemovedSkills(HashMap<Arc<str>, RemovedSkill>);

struct RemovedSkill {
    /// The version that ran, or would have.
    plugin: PluginId,
    lease: Weak<SkillLease>,
    /// Whether something was there that only this session had.
    had_state: bool,
    /// Without it nobody keeps the lease any more.
    _retention: Option<DropGuard>,
}

impl RemovedSkills {
    pub(super) fn add(&mut self, lease: &Arc<SkillLease>) {
        let is_own = lease.plugin.manifest().state == StateScope::Session;
        let gone = RemovedSkill {
            plugin: lease.instance_plugin().id().clone(),
            lease: Arc::downgrade(lease),
            had_state: is_own && lease.has_state(),
            _retention: retain_lease(lease),
        };
        self.0.insert(Arc::clone(&lease.plugin.id().name), gone);
    }

    /// The lease that the session had, if it is still there.
    pub(super) fn lease(&self, skill: &str) -> Option<Arc<SkillLease>> {
        self.0.get(skill)?.lease.upgrade()
    }

    /// The skill is back, with this lease. Says which version it had, and what becomes of the state of
    /// that; nothing where it was not gone, or where it is what it was.
    pub(super) fn restore(&mut self, lease: &Arc<SkillLease>) -> Option<(PluginId, StateHandover)> {
        let gone = self.0.remove(&lease.plugin.id().name)?;
        if gone.lease.as_ptr() == Arc::as_ptr(lease) {
            return None;
        }
        let state = match lease.handover() {
            StateHandover::None if gone.had_state => StateHandover::Lost,
            state => state,
        };
        Some((gone.plugin, state))
    }

    /// The leases that are still there. None is kept from here on.
    pub(super) fn take_leases(&mut self) -> Vec<Arc<SkillLease>> {
        let gone = self.0.drain();
        gone.filter_map(|(_, gone)| gone.lease.upgrade()).collect()
    }
}

/// Keeps a lease for as long as what is gone may come back, or until the guard is dropped.
pub(super) fn retain_lease<L: Send + Sync + 'static>(lease: &Arc<L>) -> Option<DropGuard> {
    let runtime = Handle::try_current().ok()?;
    let (lease, over) = (Arc::clone(lease), CancellationToken::new());
    let is_over = over.clone();
    runtime.spawn(async move {
        tokio::select! {
            () = is_over.cancelled() => {}
            () = tokio::time::sleep(RETENTION) => {}
        }
        drop(lease);
    });
    Some(over.drop_guard())
}
