//! What the sessions of a host share: plugins and their instances, providers, the store.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::backend::Asker;
use crate::backend::lease::{SkillLease, create_request};
use crate::backend::services::{Services, ServicesShared};
use crate::plugin::{HostServices, Instance, LoadedPlugin, PluginId, Registry};
use crate::provider::{Anthropic, HttpOptions, Provider, Script, Scripted};
use crate::session::{SessionError, SessionSpec};
use crate::store::Log;

/// Plugin, instance name and configuration.
type InstanceKey = (PluginId, String, String);
/// An instance that is made at first use.
type InstanceCell = Arc<OnceCell<Arc<Instance>>>;

/// What a host's sessions share.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) services: Arc<ServicesShared>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) data_dir: PathBuf,
    pub(crate) asker: Arc<dyn Asker>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub(crate) plugin_configs: BTreeMap<String, Value>,
    /// Executors and backends, by plugin, instance name and configuration.
    pub(crate) instances: Mutex<HashMap<InstanceKey, InstanceCell>>,
    /// Skills whose state all sessions share.
    pub(crate) shared_leases: Mutex<HashMap<PluginId, Arc<SkillLease>>>,
}

impl Shared {
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

    /// The host's instance of an executor or a backend, made at first use.
    pub(crate) async fn instance(
        &self,
        plugin: &Arc<LoadedPlugin>,
        name: &str,
        config: Value,
    ) -> Result<Arc<Instance>, String> {
        let key = (plugin.id().clone(), name.to_owned(), config.to_string());
        let cell = {
            let mut instances = self
                .instances
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(instances.entry(key).or_default())
        };
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
        let instance = cell
            .get_or_try_init(|| async {
                let created = plugin.create(&create, self.services_for(plugin)).await;
                created.map_err(|error| error.to_string())
            })
            .await?;
        Ok(Arc::clone(instance))
    }

    /// The host's lease on a skill whose state all sessions share.
    pub(crate) fn shared_lease(&self, plugin: &Arc<LoadedPlugin>) -> Arc<SkillLease> {
        let mut leases = self
            .shared_leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = leases.get(plugin.id()) {
            return Arc::clone(lease);
        }
        let create = create_request(
            None,
            None,
            self.plugin_config(&plugin.manifest().name),
            Some(self.plugin_dir(&plugin.manifest().name)),
        );
        let before = leases
            .iter()
            .find(|(id, _)| id.name == plugin.id().name)
            .map(|(_, l)| Arc::clone(l));
        let lease = SkillLease::new(
            Arc::clone(plugin),
            self.services_for(plugin),
            create,
            before,
        );
        leases.insert(plugin.id().clone(), Arc::clone(&lease));
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
        let name = crate::artifacts::safe_name(plugin);
        self.data_dir
            .join("plugin-data")
            .join(name)
            .display()
            .to_string()
    }

    /// The provider of a session.
    pub(crate) fn provider(&self, spec: &SessionSpec) -> Result<Arc<dyn Provider>, SessionError> {
        let name = spec.provider.as_deref().unwrap_or_default();
        if let Some(provider) = self.providers.get(name) {
            return Ok(Arc::clone(provider));
        }
        match name {
            "scripted" => {
                let Some(path) = &spec.script else {
                    return Err(SessionError::Provider {
                        message: "the provider `scripted` needs a script: `script = \"FILE\"` in \
                                  the session file, or `--script FILE`"
                            .to_owned(),
                    });
                };
                let script = Script::read(path).map_err(|error| SessionError::Provider {
                    message: error.to_string(),
                })?;
                Ok(Arc::new(Scripted::new(script, spec.vars.clone())))
            }
            "anthropic" => anthropic(spec),
            other => {
                let mut known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
                known.extend(["anthropic", "scripted"]);
                let message = if other.is_empty() {
                    format!(
                        "no provider is named: `--provider NAME`, or `provider = \"NAME\"` in the \
                         session file; there are: {}",
                        known.join(", ")
                    )
                } else {
                    format!(
                        "there is no provider `{other}`; there are: {}",
                        known.join(", ")
                    )
                };
                Err(SessionError::Provider { message })
            }
        }
    }

    fn services_for(&self, plugin: &LoadedPlugin) -> Arc<dyn HostServices> {
        Arc::new(Services {
            shared: Arc::clone(&self.services),
            permissions: plugin.manifest().permissions.clone(),
            session: None,
        })
    }
}

fn anthropic(spec: &SessionSpec) -> Result<Arc<dyn Provider>, SessionError> {
    let Some(key) = crate::env::var(crate::env::ANTHROPIC_API_KEY) else {
        return Err(SessionError::Provider {
            message: format!(
                "the provider `anthropic` needs a key: set {}",
                crate::env::ANTHROPIC_API_KEY
            ),
        });
    };
    let base_url = spec
        .base_url
        .clone()
        .or_else(|| crate::env::var(crate::env::ANTHROPIC_BASE_URL))
        .unwrap_or_else(|| "https://api.anthropic.com".to_owned());
    let provider =
        Anthropic::new(SecretString::from(key), HttpOptions::new(base_url)).map_err(|error| {
            SessionError::Provider {
                message: error.to_string(),
            }
        })?;
    Ok(Arc::new(provider))
}
