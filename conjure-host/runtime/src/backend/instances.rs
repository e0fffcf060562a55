//! The plugins of a host and the instances that its sessions share.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};

use super::approved_tools::ApprovedTools;
use super::backend_lease::OpenInstances;
use super::lease::{SkillLease, create_request};
use super::permission_check::PermissionCheck;
use super::plugin_grants::PluginGrants;
use super::services::{Services, ServicesShared};
use super::shared_leases::SharedLeases;
use conjure_config::SyncBox;
use conjure_plugins::{
    HostServices, Instance, InstanceGrant, Isolation, LoadedPlugin, PluginId, PluginRegistry,
};
use conjure_skill_sdk::protocol::Permissions;

/// Plugin, instance name, configuration, and what sessions grant it.
type InstanceKey = (PluginId, String, String, GrantKey);
/// An instance that is made at first use and lives for as long as somebody uses it.
type InstanceCell = Arc<tokio::sync::Mutex<Weak<Instance>>>;

/// What sessions that share an instance grant it; nothing stands for all that its manifest asks for.
type GrantKey = Option<String>;

/// The plugins of a host and the instances that its sessions share.
pub(crate) struct Instances(SyncBox<InstancesParts>);

/// What [`Instances`] consists of.
pub(crate) struct InstancesParts {
    pub(crate) registry: Arc<PluginRegistry>,
    pub(crate) services: Arc<ServicesShared>,
    pub(crate) data_dir: PathBuf,
    /// What was approved of tools that come from outside.
    pub(crate) approved_tools: ApprovedTools,
    pub(crate) plugin_configs: BTreeMap<String, Value>,
    /// Executors and backends inside the host. Sessions that grant another set of permissions have
    /// another instance: it asks the host for what it may have.
    pub(crate) shared: Mutex<HashMap<InstanceKey, InstanceCell>>,
    /// The leases on skills whose state all sessions share that grant them the same.
    pub(crate) shared_leases: SharedLeases,
}

impl Deref for Instances {
    type Target = InstancesParts;

    fn deref(&self) -> &InstancesParts {
        &self.0
    }
}

impl Instances {
    pub(crate) fn new(parts: InstancesParts) -> Self {
        Self(SyncBox::new(parts))
    }

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
        grant: &InstanceGrant,
    ) -> Result<Arc<Instance>, String> {
        let granted = grant.permissions.as_ref();
        let key = (
            plugin.id().clone(),
            name.to_owned(),
            config.to_string(),
            granted.map(grant_key),
        );
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
            let made = plugin.create_granted(&create, self.services_for(plugin, granted), grant);
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
            .create_granted(&create, self.services_for(plugin, granted), grant)
            .await
            .map_err(|error| error.to_string())?;
        if !is_own {
            *slot = Arc::downgrade(&instance);
        }
        Ok(instance)
    }

    /// The lease on a skill whose state all sessions share. A session that grants it less than others
    /// shares another one, with those that grant the same.
    pub(crate) fn shared_lease(
        &self,
        plugin: &Arc<LoadedPlugin>,
        grants: &PluginGrants,
    ) -> Arc<SkillLease> {
        let name = &plugin.manifest().name;
        let granted = grants.granted_permissions(name);
        let make = |before| {
            let create = create_request(
                None,
                None,
                self.plugin_config(name),
                Some(self.plugin_dir(name)),
            );
            let services = self.services_for(plugin, granted);
            SkillLease::new(Arc::clone(plugin), services, create, before)
        };
        self.shared_leases.of(plugin, granted.map(grant_key), make)
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

    fn services_for(
        &self,
        plugin: &LoadedPlugin,
        granted: Option<&Permissions>,
    ) -> Arc<dyn HostServices> {
        Arc::new(Services {
            shared: Arc::clone(&self.services),
            permissions: PermissionCheck::new(&plugin.manifest().permissions, granted),
            session: None,
        })
    }
}

/// Key for granted permissions: the same for the same ones, in whichever order they are named.
fn grant_key(granted: &Permissions) -> String {
    let mut granted = granted.clone();
    let Permissions {
        secrets,
        http,
        read,
        write,
        ..
    } = &mut granted;
    for names in [secrets, http, read, write] {
        names.sort();
        names.dedup();
    }
    json!(granted).to_string()
}
