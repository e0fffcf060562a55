//! Every environment variable that the host reads, and the directories that follow from them.

use std::path::PathBuf;

/// Directories to look for plugins in, separated like `PATH`.
pub const PLUGIN_PATH: &str = "CONJURE_PLUGIN_PATH";
/// The directory for everything that the host keeps; the platform's usual place
/// without it.
pub const DATA_DIR: &str = "CONJURE_DATA_DIR";
/// What is logged, in the form of `tracing-subscriber`'s filters; `warn` without it.
pub const LOG: &str = "CONJURE_LOG";
/// The key for the provider `anthropic`.
pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// Where the provider `anthropic` is, when it is not `https://api.anthropic.com`.
pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
/// Set to anything: no colours.
pub const NO_COLOR: &str = "NO_COLOR";

/// The value of a variable; nothing when it is not set, empty, or not UTF-8.
pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The home directory of the user.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|dir| dir.is_absolute())
}

/// The directory for everything that the host keeps: what [`DATA_DIR`] says, else the platform's
/// usual place.
pub fn data_dir() -> PathBuf {
    if let Some(dir) = var(DATA_DIR) {
        return PathBuf::from(dir);
    }
    crate::platform::data_dir(|name| std::env::var_os(name))
        .unwrap_or_else(|| std::env::temp_dir().join("conjure"))
}

/// Before the name of a secret that plugins may ask for, when their manifest names it.
pub const SECRET_PREFIX: &str = "CONJURE_SECRET_";

/// The secrets in the environment, by name.
pub fn secrets() -> std::collections::BTreeMap<String, secrecy::SecretString> {
    std::env::vars()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix(SECRET_PREFIX)?.to_owned();
            Some((name, secrecy::SecretString::from(value)))
        })
        .collect()
}
