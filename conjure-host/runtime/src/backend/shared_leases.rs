//! The leases on skills whose state all sessions share: one for those that grant a skill all that it
//! asks for, and one for each set of permissions that sessions grant it instead.
//!
//! The first lives for as long as the host. The others live for as long as a session has them: so what
//! no session grants any more nobody has, and how many there are is bounded by the sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::lease::SkillLease;
use conjure_plugins::LoadedPlugin;

/// The current lease of each such skill.
#[derive(Default)]
pub(crate) struct SharedLeases(Mutex<LeasesByGrant>);

#[derive(Default)]
struct LeasesByGrant {
    /// By the name of the skill.
    by_skill: HashMap<String, Arc<SkillLease>>,
    /// By the name of the skill, and what it is granted: one of each build, the newest last. Sessions
    /// that have not moved to a new build yet have the lease on the one before.
    by_grant: HashMap<(String, String), Vec<Weak<SkillLease>>>,
}

impl SharedLeases {
    /// The lease on this build with this grant; where there is none, `make` makes it, out of that of
    /// another build.
    pub(super) fn of(
        &self,
        plugin: &Arc<LoadedPlugin>,
        granted: Option<String>,
        make: impl FnOnce(Option<Arc<SkillLease>>) -> Arc<SkillLease>,
    ) -> Arc<SkillLease> {
        let mut leases = self.lock();
        let LeasesByGrant {
            by_skill: whole,
            by_grant: narrowed,
        } = &mut *leases;
        narrowed.retain(|_, leases| {
            leases.retain(|lease| lease.strong_count() > 0);
            !leases.is_empty()
        });
        let name = plugin.manifest().name.clone();
        let key = granted.map(|granted| (name.clone(), granted));
        let current = match &key {
            Some(key) => narrowed.get(key).and_then(|leases| newest(leases)),
            None => whole.get(&name).cloned(),
        };
        if let Some(lease) = &current
            && Arc::ptr_eq(&lease.plugin, plugin)
        {
            return Arc::clone(lease);
        }
        let lease = make(current);
        match key {
            Some(key) => narrowed
                .entry(key)
                .or_default()
                .push(Arc::downgrade(&lease)),
            None => drop(whole.insert(name, Arc::clone(&lease))),
        }
        lease
    }

    fn lock(&self) -> MutexGuard<'_, LeasesByGrant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest lease that a session still has.
fn newest(leases: &[Weak<SkillLease>]) -> Option<Arc<SkillLease>> {
    leases.iter().rev().find_map(Weak::upgrade)
}

#[cfg(test)]
mod tests {
    use conjure_plugins::PluginLimits;
    use conjure_skill_sdk::Skill;
    use serde_json::json;

    use super::super::lease::create_request;
    use super::*;

    fn plugin(version: &str) -> Arc<LoadedPlugin> {
        let make = || Skill::new("common", "Is shared").shared();
        Arc::new(LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap())
    }

    fn lease(
        leases: &SharedLeases,
        plugin: &Arc<LoadedPlugin>,
        granted: Option<&str>,
    ) -> Arc<SkillLease> {
        leases.of(plugin, granted.map(str::to_owned), |before| {
            let create = create_request(None, None, json!({}), None);
            let services = Arc::new(conjure_plugins::NoServices);
            SkillLease::new(Arc::clone(plugin), services, create, before)
        })
    }

    #[test]
    fn what_sessions_grant_a_shared_skill_goes_with_the_last_of_them() {
        let (leases, plugin) = (SharedLeases::default(), plugin("1.0.0"));
        let whole = Arc::downgrade(&lease(&leases, &plugin, None));
        let narrowed = lease(&leases, &plugin, Some("a"));
        let same = lease(&leases, &plugin, Some("a"));
        assert!(Arc::ptr_eq(&narrowed, &same));
        let gone = Arc::downgrade(&narrowed);
        drop((narrowed, same));
        assert!(gone.upgrade().is_none());
        assert!(whole.upgrade().is_some());
        for number in 0..10 {
            drop(lease(&leases, &plugin, Some(&number.to_string())));
        }
        assert_eq!(leases.lock().by_grant.len(), 1);
        let again = lease(&leases, &plugin, None);
        assert!(Arc::ptr_eq(&whole.upgrade().unwrap(), &again));
    }

    #[test]
    fn another_build_begins_with_the_lease_of_the_same_grant() {
        let leases = SharedLeases::default();
        let (old, new) = (plugin("1.0.0"), plugin("1.1.0"));
        let before = lease(&leases, &old, Some("a"));
        let after = lease(&leases, &new, Some("a"));
        assert!(!Arc::ptr_eq(&before, &after));
        assert!(Arc::ptr_eq(&after, &lease(&leases, &new, Some("a"))));
        assert!(Arc::ptr_eq(&after.plugin, &new));
    }

    #[test]
    fn the_lease_of_an_older_build_that_sessions_have_is_current_where_the_newest_is_gone() {
        let leases = SharedLeases::default();
        let (old, new) = (plugin("1.0.0"), plugin("1.1.0"));
        let before = lease(&leases, &old, Some("a"));
        drop(lease(&leases, &new, Some("a")));
        assert!(Arc::ptr_eq(&before, &lease(&leases, &old, Some("a"))));
        drop(lease(&leases, &new, Some("a")));
        let begun_with = std::cell::Cell::new(None);
        let again = leases.of(&new, Some("a".to_owned()), |current| {
            begun_with.set(current.as_ref().map(Arc::as_ptr));
            let create = create_request(None, None, json!({}), None);
            let services = Arc::new(conjure_plugins::NoServices);
            SkillLease::new(Arc::clone(&new), services, create, current)
        });
        assert_eq!(begun_with.get(), Some(Arc::as_ptr(&before)));
        assert!(Arc::ptr_eq(&again, &lease(&leases, &new, Some("a"))));
    }
}
