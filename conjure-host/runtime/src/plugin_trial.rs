//! What plugins are made with outside any session, and what they may ask of this host.

use std::path::Path;

use conjure_skill_sdk::protocol::Create;
use serde_json::json;

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

/// What an instance is made with that only shows whether it can be: as a session's would be, with the
/// directory below `data_dir` that is the plugin's own.
pub fn plugin_trial(data_dir: &Path, plugin: &str) -> Create {
    let name = conjure_config::file_name::safe_name(plugin);
    let own = data_dir.join("plugin-data").join(name);
    let own = own.display().to_string();
    create_request(None, Some("check".to_owned()), json!({}), Some(own))
}
