//! What a session grants single plugins of what their manifests ask for.
//!
//! Keeps to it nobody here: host operations ask their own permissions, and the system a worker's.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_config::{PermissionsSpec, PluginSpec, SpecError, WorkingDirAccess};
use conjure_plugins::{GrantError, LoadedPlugin, PluginSnapshot, allowed_permissions};
use conjure_skill_sdk::protocol::{Manifest, Permissions};

use super::toolbox_error::names;

/// The plugins that a session grants less than their manifests ask for, or less than all of its working
/// directory, by their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct PluginGrants(Arc<BTreeMap<String, PluginGrant>>);

/// What a session says of one plugin.
#[derive(Debug)]
struct PluginGrant {
    permissions: Option<Permissions>,
    working_dir: Option<WorkingDirAccess>,
}

impl PluginGrants {
    pub(crate) fn of(plugins: &BTreeMap<String, PluginSpec>) -> Self {
        let granted = plugins.iter().filter_map(|(name, plugin)| {
            let grant = PluginGrant {
                permissions: plugin.permissions.clone().map(permissions_of),
                working_dir: plugin.working_dir,
            };
            let says_something = grant.permissions.is_some() || grant.working_dir.is_some();
            says_something.then(|| (name.clone(), grant))
        });
        Self(Arc::new(granted.collect()))
    }

    /// What a plugin of this name is granted, where that is said.
    pub(crate) fn granted_permissions(&self, plugin: &str) -> Option<&Permissions> {
        self.0.get(plugin)?.permissions.as_ref()
    }

    /// What a plugin of this name may do with files of the working directory.
    pub(crate) fn working_dir(&self, plugin: &str) -> WorkingDirAccess {
        let said = self.0.get(plugin).and_then(|grant| grant.working_dir);
        said.unwrap_or(WorkingDirAccess::Write)
    }

    /// What a plugin may do.
    pub(crate) fn effective_permissions(&self, manifest: &Manifest) -> Permissions {
        allowed_permissions(
            &manifest.permissions,
            self.granted_permissions(&manifest.name),
        )
    }

    /// Finds what cannot be granted, as far as the plugins that are loaded tell. A plugin that goes
    /// or changes afterwards gets of its grant what it asks for then.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] names the plugin and the permission.
    pub(crate) fn check(&self, loaded: &PluginSnapshot) -> Result<(), SpecError> {
        for (name, grant) in &*self.0 {
            let permissions = grant.permissions.as_ref();
            let permissions = permissions.and_then(|granted| {
                let problem = problem(name, loaded, |plugin| plugin.check_grant(granted))?;
                Some(("permissions", problem))
            });
            let narrows = grant
                .working_dir
                .is_some_and(|it| it != WorkingDirAccess::Write);
            let working_dir = || {
                let problem = problem(name, loaded, LoadedPlugin::check_working_dir)?;
                Some(("working_dir", problem))
            };
            let working_dir = narrows.then(working_dir).flatten();
            if let Some((member, problem)) = permissions.or(working_dir) {
                let message = format!("`plugins.{name}.{member}`: {problem}");
                return Err(SpecError::Invalid { message });
            }
        }
        Ok(())
    }
}

/// Why a plugin cannot be granted this; what is said of its newest version, where no version can.
fn problem(
    name: &str,
    loaded: &PluginSnapshot,
    check: impl Fn(&LoadedPlugin) -> Result<(), GrantError>,
) -> Option<String> {
    let mut newest = None;
    for plugin in loaded.versions(name) {
        match check(plugin) {
            // A session may call an older one.
            Ok(()) => return None,
            Err(error) => newest = newest.or_else(|| Some(error.to_string())),
        }
    }
    Some(newest.unwrap_or_else(|| unknown(name, loaded)))
}

fn unknown(name: &str, loaded: &PluginSnapshot) -> String {
    format!(
        "no plugin is called `{name}`; loaded are: {}. Without its manifest nobody can say what it may \
         be granted, so load it first, or leave that out",
        names(loaded.plugins())
    )
}

/// Permissions of a specification, in the form that a manifest has.
fn permissions_of(spec: PermissionsSpec) -> Permissions {
    let PermissionsSpec {
        secrets,
        http,
        sample,
        read,
        write,
        network,
        commands,
    } = spec;
    Permissions {
        secrets,
        http,
        sample,
        read,
        write,
        network,
        commands,
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::SessionSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_may_do_what_its_manifest_asks_for_and_its_session_grants() {
        let manifest = |name: &str| -> Manifest {
            serde_json::from_value(json!({
                "manifest": 1, "kind": "skill", "name": name, "version": "1.0.0", "description": "",
                "permissions": { "secrets": ["KEY"], "network": true },
            }))
            .unwrap()
        };
        let text = "[plugins.a.permissions]\nsecrets = [\"KEY\", \"OTHER\"]\ncommands = true\n\n\
                    [plugins.b]\n\n[plugins.c]\npermissions = {}";
        let grants = PluginGrants::of(&SessionSpec::from_toml(text).unwrap().plugins);
        let secrets_only = Permissions {
            secrets: vec!["KEY".to_owned()],
            ..Permissions::default()
        };
        assert_eq!(grants.effective_permissions(&manifest("a")), secrets_only);
        for untouched in ["b", "d"] {
            let asked = manifest(untouched);
            assert_eq!(grants.effective_permissions(&asked), asked.permissions);
        }
        assert_eq!(
            grants.effective_permissions(&manifest("c")),
            Permissions::default()
        );
        assert_eq!(grants.working_dir("c"), WorkingDirAccess::Write);
    }
}
