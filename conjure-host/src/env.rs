//! Every environment variable that the host reads, and the directories that follow from them.

use std::path::PathBuf;

use conjure_vault::Vault;

use crate::auths::Keys;

/// Directories to look for plugins in, separated like `PATH`.
pub const PLUGIN_PATH: &str = "CONJURE_PLUGIN_PATH";
/// The directory for everything that the host keeps; the platform's usual place
/// without it.
pub const DATA_DIR: &str = "CONJURE_DATA_DIR";
/// The key that saved auths are sealed with: 32 bytes in base64 or hex.
pub const KEY: &str = Vault::VARIABLE;
/// The key before, while it is replaced.
pub const OLD_KEY: &str = Vault::OLD_VARIABLE;
/// The file that holds the key; `vault.key` in the data directory without it.
pub const KEY_FILE: &str = Vault::FILE_VARIABLE;
/// The token that lets clients of `conjure serve` in.
pub const TOKEN: &str = "CONJURE_TOKEN";
/// What no other program is started with.
pub const PRIVATE: [&str; 4] = [KEY, OLD_KEY, KEY_FILE, TOKEN];
/// Where threads, sessions and everything saved are: `postgres://…`, `memory`, or the path of an
/// SQLite file; `conjure.db` in the data directory without it.
pub const DATABASE: &str = "CONJURE_DATABASE";
/// What is logged, in the form of `tracing-subscriber`'s filters; `warn` without it.
pub const LOG: &str = "CONJURE_LOG";
/// How logs are written: `json`, else as text for people.
pub const LOG_FORMAT: &str = "CONJURE_LOG_FORMAT";
/// The key for the provider `anthropic`.
pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// Where the provider `anthropic` is, when it is not `https://api.anthropic.com`.
pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";
/// The key for the provider `openai`.
pub const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
/// Where the provider `openai` is, when it is not `https://api.openai.com/v1`.
pub const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
/// The key for the provider `gemini`.
pub const GEMINI_API_KEY: &str = "GEMINI_API_KEY";
/// The key for the provider `gemini`, where the other variable is not set.
pub const GOOGLE_API_KEY: &str = "GOOGLE_API_KEY";
/// Where the provider `gemini` is, when it is not `https://generativelanguage.googleapis.com`.
pub const GEMINI_BASE_URL: &str = "GEMINI_BASE_URL";
/// The key for the provider `deepseek`.
pub const DEEPSEEK_API_KEY: &str = "DEEPSEEK_API_KEY";
/// Where the provider `deepseek` is, when it is not `https://api.deepseek.com/v1`.
pub const DEEPSEEK_BASE_URL: &str = "DEEPSEEK_BASE_URL";
/// The key for the provider `mistral`.
pub const MISTRAL_API_KEY: &str = "MISTRAL_API_KEY";
/// Where the provider `mistral` is, when it is not `https://api.mistral.ai/v1`.
pub const MISTRAL_BASE_URL: &str = "MISTRAL_BASE_URL";
/// The key for the provider `openrouter`.
pub const OPENROUTER_API_KEY: &str = "OPENROUTER_API_KEY";
/// Where the provider `openrouter` is, when it is not `https://openrouter.ai/api/v1`.
pub const OPENROUTER_BASE_URL: &str = "OPENROUTER_BASE_URL";
/// The key for the provider `llamacpp`.
pub const LLAMACPP_API_KEY: &str = "LLAMACPP_API_KEY";
/// Where the provider `llamacpp` is, when it is not `http://127.0.0.1:8080/v1`.
pub const LLAMACPP_BASE_URL: &str = "LLAMACPP_BASE_URL";
/// The key for the provider `ollama`.
pub const OLLAMA_API_KEY: &str = "OLLAMA_API_KEY";
/// Where the provider `ollama` is, when it is not `http://127.0.0.1:11434/v1`.
pub const OLLAMA_BASE_URL: &str = "OLLAMA_BASE_URL";
/// The key for the provider `openai-compatible`.
pub const OPENAI_COMPATIBLE_API_KEY: &str = "OPENAI_COMPATIBLE_API_KEY";
/// Where the provider `openai-compatible` is.
pub const OPENAI_COMPATIBLE_BASE_URL: &str = "OPENAI_COMPATIBLE_BASE_URL";
/// Where requests over plain HTTP go first, in the order in which the HTTP client looks.
pub const PLAIN_HTTP_PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
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

/// Where the keys of saved auths are, for this directory of data.
pub fn keys(data_dir: impl Into<PathBuf>) -> Keys {
    Keys {
        key: var(KEY).map(Into::into),
        old_key: var(OLD_KEY).map(Into::into),
        key_file: var(KEY_FILE).map(PathBuf::from),
        ..Keys::new(data_dir)
    }
}

/// Before the name of a secret that plugins may ask for, when their manifest names it.
pub use conjure_import::SECRET_PREFIX;

/// The keys of providers in the environment, by the names of their variables. A plugin gets one
/// only when its manifest names it, as any secret.
pub fn provider_keys() -> std::collections::BTreeMap<String, secrecy::SecretString> {
    crate::provider::KNOWN
        .iter()
        .flat_map(|known| known.key_vars)
        .filter_map(|name| Some(((*name).to_owned(), var(name)?.into())))
        .collect()
}

/// The secrets in the environment, by name.
pub fn secrets() -> std::collections::BTreeMap<String, secrecy::SecretString> {
    std::env::vars()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix(SECRET_PREFIX)?.to_owned();
            Some((name, secrecy::SecretString::from(value)))
        })
        .collect()
}

/// Whether the environment has a secret for plugins of this name.
pub(crate) fn has_secret(name: &str) -> bool {
    std::env::var_os(format!("{SECRET_PREFIX}{name}")).is_some()
}
