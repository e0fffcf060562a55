//! The plugins of a host and the instances that its sessions share.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};

use super::approved_tools::ApprovedTools;
use super::backend_lease::OpenInstances;
use super::lease::{SkillLease, create_request};
use super::services::{Services, ServicesShared};
use conjure_plugins::{
    HostServices, Instance, InstanceDirs, Isolation, LoadedPlugin, PluginId, PluginRegistry,
};

/// Plugin, instance name and configuration.
type InstanceKey = (PluginId, String, String);
/// An instance that is made at first use and lives for as long as somebody uses it.
type InstanceCell = Arc<tokio::sync::Mutex<Weak<Instance>>>;

/// The plugins of a host and the instances that its sessions share.
pub(crate) struct Instances {
    pub(crate) registry: Arc<PluginRegistry>,
    pub(crate) services: Arc<ServicesShared>,
    pub(crate) data_dir: PathBuf,
    /// What was approved of tools that come from outside.
    pub(crate) approved: ApprovedTools,
    pub(crate) plugin_configs: BTreeMap<String, Value>,
    /// Executors and backends inside the host, by plugin, instance name and configuration.
    pub(crate) shared: Mutex<HashMap<InstanceKey, InstanceCell>>,
    /// The current lease of each skill whose state all sessions share.
    pub(crate) shared_leases: Mutex<HashMap<String, Arc<SkillLease>>>,
}

impl Instances {
    /// The loaded plugins of a kind, by name, the highest version first.
    pub(crate) fn plugins(&self, kind: &str) -> Vec<Arc<LoadedPlugin>> {
        let snapshot = self.registry.snapshot();
        snapshot
            .plugins()
            .iter()
            .filter(|p| p.manifest().kind == kind)
            .cloned()
            .collect()
    }

    /// The newest plugin of a name that is of one of these kinds.
    pub(crate) fn newest(&self, name: &str, kinds: &[&str]) -> Option<Arc<LoadedPlugin>> {
        let snapshot = self.registry.snapshot();
        snapshot
            .versions(name)
            .find(|plugin| kinds.contains(&plugin.manifest().kind.as_str()))
            .cloned()
    }

    /// The host's instance of an executor or a backend, made at first use. Where the session that is
    /// to use it is `open` there already, another one, of its own. In workers each session has its own
    /// in any case, with its own directories: what a process reaches can only become less, so one that
    /// all sessions share would have to reach nobody's directories or everybody's.
    pub(crate) async fn instance(
        &self,
        plugin: &Arc<LoadedPlugin>,
        name: &str,
        config: Value,
        open: &OpenInstances,
        dirs: &InstanceDirs,
    ) -> Result<Arc<Instance>, String> {
        let key = (plugin.id().clone(), name.to_owned(), config.to_string());
        let config = match config {
            Value::Null => self.plugin_config(&plugin.manifest().name),
            config => config,
        };
        let create = create_request(
            None,
            Some(name.to_owned()),
            config,
            Some(self.plugin_dir(&plugin.manifest().name)),
        );
        if plugin.isolation() == Isolation::Process {
            let made = plugin.create_in(&create, self.services_for(plugin), dirs);
            return made.await.map_err(|error| error.to_string());
        }
        let cell = {
            let mut instances = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            instances.retain(|_, cell| {
                Arc::strong_count(cell) > 1
                    || cell.try_lock().is_ok_and(|slot| slot.strong_count() > 0)
            });
            Arc::clone(instances.entry(key).or_default())
        };
        let mut slot = cell.lock().await;
        let shared = slot.upgrade();
        let shared = shared.filter(|shared| Arc::ptr_eq(shared.plugin(), plugin));
        let is_own = shared.as_ref().is_some_and(|shared| open.has(shared));
        if let Some(shared) = shared.filter(|_| !is_own) {
            return Ok(shared);
        }
        let instance = plugin
            .create(&create, self.services_for(plugin))
            .await
            .map_err(|error| error.to_string())?;
        if !is_own {
            *slot = Arc::downgrade(&instance);
        }
        Ok(instance)
    }

    /// The host's lease on a skill whose state all sessions share.
    pub(crate) fn shared_lease(&self, plugin: &Arc<LoadedPlugin>) -> Arc<SkillLease> {
        let mut leases = self
            .shared_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let current = leases.get(&plugin.manifest().name);
        if let Some(lease) = current
            && Arc::ptr_eq(&lease.plugin, plugin)
        {
            return Arc::clone(lease);
        }
        let before = current.cloned();
        let create = create_request(
            None,
            None,
            self.plugin_config(&plugin.manifest().name),
            Some(self.plugin_dir(&plugin.manifest().name)),
        );
        let lease = SkillLease::new(
            Arc::clone(plugin),
            self.services_for(plugin),
            create,
            before,
        );
        leases.insert(plugin.manifest().name.clone(), Arc::clone(&lease));
        lease
    }

    /// What a person configured for a plugin.
    pub(crate) fn plugin_config(&self, plugin: &str) -> Value {
        self.plugin_configs
            .get(plugin)
            .cloned()
            .unwrap_or_else(|| json!({}))
    }

    /// A directory that is a plugin's own.
    pub(crate) fn plugin_dir(&self, plugin: &str) -> String {
        let name = conjure_config::file_name::safe_name(plugin);
        self.data_dir
            .join("plugin-data")
            .join(name)
            .display()
            .to_string()
    }

    fn services_for(&self, plugin: &LoadedPlugin) -> Arc<dyn HostServices> {
        Arc::new(Services {
            shared: Arc::clone(&self.services),
            permissions: plugin.manifest().permissions.clone(),
            session: None,
        })
    }
}
