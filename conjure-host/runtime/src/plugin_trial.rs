//! Plugins that are tried outside any session: what an instance is made with, what it may ask of this
//! host, and what came of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_plugins::{LoadedPlugin, NoServices, PluginError};
use conjure_skill_sdk::protocol::{Create, Manifest};
use serde_json::{Value, json};

use crate::backend::lease::create_request;
use crate::backend::services::SERVED;

/// The host operations that this host serves, with their versions.
pub fn host_operations() -> Vec<String> {
    SERVED.iter().map(|op| (*op).to_owned()).collect()
}

/// What an instance outside any session is made with.
pub fn plugin_create(instance: Option<&str>) -> Create {
    create_request(None, instance.map(str::to_owned), json!({}), None)
}

/// How long an instance that was only tried has to end.
const CLOSE: Duration = Duration::from_secs(2);

/// What a plugin did that was tried outside any session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginTrial {
    /// An instance was made, and answered.
    Answered,
    /// The plugin makes no instance without a configuration, which must have these settings.
    NeedsConfig {
        /// Names of the settings.
        settings: Vec<String>,
    },
}

/// Makes an instance as a session would, without a configuration and with the directory below
/// `data_dir` that is the plugin's own, and closes it.
///
/// # Errors
/// When no instance that answers could be made, though the plugin asks for no configuration.
#[boxed]
pub async fn try_plugin(
    data_dir: &Path,
    plugin: &Arc<LoadedPlugin>,
) -> Result<PluginTrial, PluginError> {
    let manifest = plugin.manifest();
    let name = conjure_config::file_name::safe_name(&manifest.name);
    let own = data_dir.join("plugin-data").join(name);
    let own = own.display().to_string();
    let create = create_request(None, Some("check".to_owned()), json!({}), Some(own));
    let settings = required_settings(manifest);
    match plugin.create(&create, Arc::new(NoServices)).await {
        Ok(instance) => {
            instance.close(CLOSE).await;
            Ok(PluginTrial::Answered)
        }
        Err(PluginError::Create { .. }) if !settings.is_empty() => {
            Ok(PluginTrial::NeedsConfig { settings })
        }
        Err(error) => Err(error),
    }
}

/// The settings that the configuration of a plugin must have, as its schema says.
pub fn required_settings(manifest: &Manifest) -> Vec<String> {
    let schema = manifest.config_schema.as_ref();
    let required = schema.and_then(|schema| schema["required"].as_array());
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}
