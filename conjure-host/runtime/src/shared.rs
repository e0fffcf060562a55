//! What the sessions of a host share: plugins and their instances, providers, the store.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use conjure_core::repair::Target;
use conjure_core::wire::Endpoint;
use serde_json::{Value, json};

use crate::artifacts::Writes;
use crate::backend::Asker;
use crate::backend::lease::{SkillLease, create_request};
use crate::backend::services::{Services, ServicesShared};
use crate::session::{SessionError, WakeCoalescer};
use conjure_config::SessionSpec;
use conjure_plugins::{HostServices, Instance, LoadedPlugin, PluginId, Registry};
use conjure_providers::Clients;
use conjure_providers::auths::{AuthError, Auths};
use conjure_providers::target;
use conjure_providers::{HttpProvider, ModelBook, Provider, Script, Scripted, ToolWalk};
use conjure_store::Log;

/// Plugin, instance name and configuration.
type InstanceKey = (PluginId, String, String);
/// An instance that is made at first use and lives for as long as somebody uses it.
type InstanceCell = Arc<tokio::sync::Mutex<Weak<Instance>>>;

/// What a host's sessions share.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) services: Arc<ServicesShared>,
    pub(crate) log: Arc<dyn Log>,
    /// Wakes the sessions whose replies stream.
    pub(crate) wakes: Arc<WakeCoalescer>,
    pub data_dir: PathBuf,
    /// Which calls run and may write.
    pub(crate) writes: Arc<Writes>,
    pub(crate) asker: Arc<dyn Asker>,
    pub(crate) providers: BTreeMap<String, Arc<dyn Provider>>,
    pub models: ModelBook,
    pub(crate) clients: Clients,
    pub(crate) auths: Option<Auths>,
    pub(crate) plugin_configs: BTreeMap<String, Value>,
    /// Executors and backends, by plugin, instance name and configuration.
    pub(crate) instances: Mutex<HashMap<InstanceKey, InstanceCell>>,
    /// The current lease of each skill whose state all sessions share.
    pub(crate) shared_leases: Mutex<HashMap<String, Arc<SkillLease>>>,
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
            instances.retain(|_, cell| {
                Arc::strong_count(cell) > 1
                    || cell.try_lock().is_ok_and(|slot| slot.strong_count() > 0)
            });
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
        let mut slot = cell.lock().await;
        if let Some(instance) = slot.upgrade()
            && Arc::ptr_eq(instance.plugin(), plugin)
        {
            return Ok(instance);
        }
        let instance = plugin
            .create(&create, self.services_for(plugin))
            .await
            .map_err(|error| error.to_string())?;
        *slot = Arc::downgrade(&instance);
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

    /// A session with the provider that its saved auth is for; with `open`, with the credentials
    /// of all auths that it names.
    pub(crate) async fn with_auths(
        &self,
        spec: SessionSpec,
        open: bool,
    ) -> Result<SessionSpec, SessionError> {
        let mut named = spec.providers.values().filter_map(|own| own.auth.as_ref());
        let needed = spec.auth.is_some() || (open && named.any(|auth| auth.opened().is_none()));
        let Some(auths) = self.auths.as_ref().filter(|_| needed) else {
            return match &spec.auth {
                Some(auth) if open => Err(unusable(conjure_providers::not_opened(auth))),
                // Tools need no provider; whoever does is told.
                _ => Ok(spec),
            };
        };
        // Boxed: few sessions name an auth, and every opening would be as large as this.
        let done = if open {
            Box::pin(auths.open(spec)).await
        } else {
            Box::pin(auths.settle(spec)).await
        };
        let spec = done.map_err(|error| match error {
            AuthError::Store(error) => SessionError::Store(error),
            error => unusable(error.to_string()),
        })?;
        for (name, own) in &spec.providers {
            if own.auth.is_some() && self.is_made_here(name) {
                return Err(unusable(format!(
                    "the provider `{name}` takes no saved auth: it is this program's own"
                )));
            }
        }
        Ok(spec)
    }

    fn is_made_here(&self, provider: &str) -> bool {
        self.providers.contains_key(provider) || matches!(provider, "scripted" | "tool-walk")
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
                    return Err(unusable(
                        "the provider `scripted` needs a script: `script = \"FILE\"` in the \
                         session file, or `--script FILE`"
                            .to_owned(),
                    ));
                };
                let script = Script::read(path).map_err(|error| unusable(error.to_string()))?;
                Ok(Arc::new(Scripted::new(script, spec.vars.clone())))
            }
            "tool-walk" => Ok(Arc::new(ToolWalk)),
            name => match HttpProvider::find(name, spec, &self.clients)? {
                Some(provider) => Ok(Arc::new(provider)),
                None => Err(unusable(self.no_provider(name, spec))),
            },
        }
    }

    /// Whom a session's requests go to, and how that is spoken to. Needs no key.
    pub(crate) fn recipient(&self, spec: &SessionSpec) -> Result<(Target, Endpoint), SessionError> {
        let name = spec.provider.as_deref().unwrap_or_default();
        let model = spec.model.as_deref().unwrap_or_default();
        if !self.providers.contains_key(name)
            && let Some((wire, endpoint)) = conjure_providers::spoken(name, spec)
        {
            let endpoint = endpoint.with_model(model);
            return Ok((target(wire, &endpoint, model), endpoint));
        }
        let provider = self.provider(spec)?;
        let target = Target {
            provider: name.to_owned(),
            ..provider.target(model)
        };
        Ok((target, provider.endpoint(model)))
    }

    fn no_provider(&self, name: &str, spec: &SessionSpec) -> String {
        if let (true, Some(auth)) = (name.is_empty(), &spec.auth) {
            return conjure_providers::not_opened(auth);
        }
        let mut known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
        known.extend(spec.providers.keys().map(String::as_str));
        known.extend(conjure_providers::KNOWN.iter().map(|known| known.name));
        known.extend(["scripted", "tool-walk"]);
        let known = known.join(", ");
        if name.is_empty() {
            format!(
                "no provider is named: `--provider NAME`, or `provider = \"NAME\"` in the session \
                 file; there are: {known}"
            )
        } else {
            format!("there is no provider `{name}`; there are: {known}")
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

fn unusable(message: String) -> SessionError {
    SessionError::Provider { message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_without_saved_auths_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let host = crate::Host::builder()
            .data_dir(dir.path())
            .build()
            .await
            .unwrap();
        let spec = SessionSpec::from_toml("auth = \"mine\"\nmodel = \"m\"").unwrap();
        let error = host.session(spec.clone()).await.err().unwrap().to_string();
        assert!(error.contains("HostBuilder::auths"), "{error}");
        // Tools alone need none.
        host.calls(spec).await.unwrap().close().await;
    }
}
