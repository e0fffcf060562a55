//! Why a session has no tools, and what to do.

use std::sync::Arc;

use conjure_config::skill_folders::FolderError;
use conjure_core::routing::RoutingError;
use conjure_plugins::LoadedPlugin;

/// Why a session has no tools.
#[derive(Debug, thiserror::Error)]
pub enum ToolboxError {
    /// Names clash, or a wish about names cannot be met.
    #[error(transparent)]
    Routing(#[from] RoutingError),
    /// A skill folder cannot be used.
    #[error("backend `{backend}`: {source}")]
    Folder {
        /// The backend instance.
        backend: String,
        /// What is wrong with the folder.
        source: FolderError,
    },
    /// A native skill that the session names is not loaded.
    #[error(
        "backend `{backend}`: there is no native skill `{skill}`; loaded are: {loaded}. Load it \
         with `--plugin FILE`, or put it into a plugin directory (`conjure plugin list` shows \
         them)"
    )]
    NoSkill {
        /// The backend instance.
        backend: String,
        /// The name.
        skill: String,
        /// Names of the loaded skills, for the message.
        loaded: String,
    },
    /// No plugin has the kind that a backend asks for.
    #[error(
        "backend `{backend}`: no executor or backend plugin is called `{kind}`; loaded are: \
         {loaded}. Load it with `--plugin FILE`, or put it into a plugin directory (`conjure \
         plugin list` shows them)"
    )]
    NoPlugin {
        /// The backend instance.
        backend: String,
        /// The kind.
        kind: String,
        /// Names of the loaded plugins, for the message.
        loaded: String,
    },
    /// The plugin could not be made ready.
    #[error("backend `{backend}`: {reason}")]
    NotReady {
        /// The backend instance.
        backend: String,
        /// Why, with the plugin's name.
        reason: String,
    },
}

/// The names of plugins, for a sentence.
pub(crate) fn names(plugins: &[Arc<LoadedPlugin>]) -> String {
    if plugins.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = plugins
        .iter()
        .map(|plugin| plugin.manifest().name.as_str())
        .collect();
    names.join(", ")
}
