//! Every environment variable that the host reads, and the directories that follow from them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use conjure_vault::Vault;
use secrecy::{ExposeSecret as _, SecretString};

use crate::platform::VariableChange;

/// Directories to look for plugins in, separated like `PATH`.
pub const PLUGIN_PATH: &str = "CONJURE_PLUGIN_PATH";
/// Where plugins run that could run in either place: `in-process` or `process`.
pub const ISOLATION: &str = "CONJURE_ISOLATION";
/// Indexes of packages that `conjure plugin install NAME` looks in: files, folders or addresses,
/// separated by spaces.
pub const PLUGIN_INDEX: &str = "CONJURE_PLUGIN_INDEX";
/// What opens the key that signs packages.
pub const SIGNING_PASSWORD: &str = "CONJURE_SIGNING_PASSWORD";
/// Where `docker login` keeps passwords of registries; `.docker` in the home directory without it.
pub const DOCKER_CONFIG: &str = "DOCKER_CONFIG";
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
/// What is sent along with spans: it often holds a key. Read by the exporter itself, so it stays.
const SPAN_HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];
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
/// The variables that may hold a provider's key.
pub const PROVIDER_KEYS: [&str; 10] = [
    ANTHROPIC_API_KEY,
    OPENAI_API_KEY,
    GEMINI_API_KEY,
    GOOGLE_API_KEY,
    DEEPSEEK_API_KEY,
    MISTRAL_API_KEY,
    OPENROUTER_API_KEY,
    LLAMACPP_API_KEY,
    OLLAMA_API_KEY,
    OPENAI_COMPATIBLE_API_KEY,
];
/// Where requests over plain HTTP go first, in the order in which the HTTP client looks.
pub const PLAIN_HTTP_PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Where any requests go first.
pub const PROXIES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];
/// Set to anything but an empty text: no colours.
pub const NO_COLOR: &str = "NO_COLOR";

/// The last words of names of secrets.
const SECRET_ENDINGS: [&str; 7] = [
    "KEY",
    "APIKEY",
    "TOKEN",
    "SECRET",
    "PASSWD",
    "PASSPHRASE",
    "PAT",
];
/// Lets a program that is started show its window in front; no secret, whatever it is called.
const WINDOW_TOKEN: &str = "XDG_ACTIVATION_TOKEN";

/// The secrets that were in the environment, by the names of their variables.
static SECRETS: OnceLock<BTreeMap<String, SecretString>> = OnceLock::new();

/// Takes every secret out of the environment, where other programs could find it: this program
/// finds it here, those that it starts do not, and neither does anybody in `/proc/PID/environ`.
/// Paths that are relative are made absolute: what is started elsewhere reads them too.
///
/// For programs, at their very start: nothing happens when the process has a second thread, or on
/// another system than Linux.
pub fn take_secrets() {
    take_secrets_with(&[]);
}

/// As [`take_secrets`], for a program that was told of more variables with secrets in them, such as
/// by `--token-env`.
pub fn take_secrets_with(named: &[String]) {
    let taken = crate::platform::take_environment(|name, value| {
        let Some(name) = name.to_str() else {
            return VariableChange::Keep;
        };
        if is_secret(name, value) || named.iter().any(|secret| secret == name) {
            return VariableChange::Take;
        }
        let is_path = [DATA_DIR, KEY_FILE, DATABASE].contains(&name);
        match std::path::absolute(value) {
            Ok(path) if is_path && value != "memory" => VariableChange::Replace(path.into()),
            _ => VariableChange::Keep,
        }
    });
    let texts = taken.into_iter().filter_map(|(name, value)| {
        let value = value.into_string().ok()?;
        Some((name.into_string().ok()?, SecretString::from(value)))
    });
    let _ = SECRETS.set(texts.collect());
}

fn is_secret(name: &str, value: &OsStr) -> bool {
    // The address of a server may have a password in it.
    let is_address = || name == DATABASE && value.to_string_lossy().contains("://");
    [KEY, OLD_KEY, TOKEN].contains(&name)
        || name.starts_with(SECRET_PREFIX)
        || PROVIDER_KEYS.contains(&name)
        || is_address()
}

/// Keeps the host's secrets from a program before it is started, also where
/// [`take_secrets`] could do nothing.
pub fn remove_secrets(program: &mut Command) {
    let named = [KEY, OLD_KEY, KEY_FILE, TOKEN, DATABASE].into_iter();
    for name in named.chain(SPAN_HEADERS).chain(PROVIDER_KEYS) {
        program.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name
            .as_encoded_bytes()
            .starts_with(SECRET_PREFIX.as_bytes())
        {
            program.env_remove(name);
        }
    }
}

/// As [`remove_secrets`], for a program that has no use for any key, such as an editor or a browser: it
/// gets neither these variables, which settings name as holders of keys (`key_var`), nor one whose
/// name says that it holds a key. A shell may have variables that another run of this program is
/// told of, and nothing else tells those from the others.
pub fn remove_keys<'a>(program: &mut Command, named: impl IntoIterator<Item = &'a str>) {
    remove_secrets(program);
    for name in named {
        program.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if is_secret_name(&name.to_string_lossy()) {
            program.env_remove(name);
        }
    }
}

/// Whether a variable's name ends in what names of secrets end in.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let last = name.rsplit('_').next().unwrap_or_default();
    let is_secret = SECRET_ENDINGS.contains(&last) || last.ends_with("PASSWORD");
    is_secret && name != WINDOW_TOKEN
}

/// The value of a variable; nothing when it is not set, empty, or not UTF-8.
pub fn var(name: &str) -> Option<String> {
    let taken = SECRETS.get().and_then(|taken| taken.get(name));
    let value = match taken {
        Some(secret) => Some(secret.expose_secret().to_owned()),
        None => std::env::var(name).ok(),
    };
    value.filter(|value| !value.is_empty())
}

/// The home directory of the user.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|dir| dir.is_absolute())
}

/// The directory for everything that the host keeps: what [`DATA_DIR`] says, else the platform's
/// usual place, below the home directory that the system knows where no variable names one. Whoever
/// uses it checks that it is the user's own: [`crate::platform::check_own_dir`].
pub fn data_dir() -> PathBuf {
    if let Some(dir) = var(DATA_DIR) {
        let dir = PathBuf::from(dir);
        return std::path::absolute(&dir).unwrap_or(dir);
    }
    let var = |name: &str| match (std::env::var_os(name), name) {
        (None, "HOME") => home().map(OsString::from),
        (value, _) => value,
    };
    crate::platform::data_dir(var).unwrap_or_else(|| std::env::temp_dir().join("conjure"))
}

/// Before the name of a secret that plugins may ask for, when their manifest names it:
/// `CONJURE_SECRET_NAME` is the secret `NAME`.
pub const SECRET_PREFIX: &str = "CONJURE_SECRET_";

/// The variable that sets the secret of this name.
pub fn secret_variable(name: &str) -> String {
    format!("{SECRET_PREFIX}{name}")
}

/// The keys of providers in the environment, by the names of their variables. A plugin gets one
/// only when its manifest names it, as any secret.
pub fn provider_keys() -> BTreeMap<String, SecretString> {
    PROVIDER_KEYS
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), var(name)?.into())))
        .collect()
}

/// The secrets in the environment, by name.
pub fn secrets() -> BTreeMap<String, SecretString> {
    let name = |variable: &str| variable.strip_prefix(SECRET_PREFIX).map(str::to_owned);
    let text = |text: OsString| text.into_string().ok();
    let left = std::env::vars_os().filter_map(|(variable, value)| {
        Some((name(&text(variable)?)?, SecretString::from(text(value)?)))
    });
    let taken = SECRETS.get().into_iter().flatten();
    let taken = taken.filter_map(|(variable, value)| Some((name(variable)?, value.clone())));
    left.chain(taken).collect()
}

/// Whether the environment has a secret for plugins of this name.
pub fn has_secret(name: &str) -> bool {
    let variable = secret_variable(name);
    let is_taken = SECRETS
        .get()
        .is_some_and(|taken| taken.contains_key(&variable));
    is_taken || std::env::var_os(variable).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_known_by_its_name() {
        let is = |name: &str, value: &str| is_secret(name, OsStr::new(value));
        assert!(is("ANTHROPIC_API_KEY", "k") && is("CONJURE_SECRET_A", "s") && is(TOKEN, "t"));
        assert!(is(DATABASE, "postgres://me:word@db/x") && !is(DATABASE, "/srv/conjure.db"));
        assert!(
            !is("PATH", "/bin") && !is("ANTHROPIC_BASE_URL", "http://x") && !is(DATA_DIR, "/d")
        );
    }

    #[test]
    fn a_program_without_use_for_keys_gets_no_variable_that_is_called_one() {
        for name in ["MCP_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "a_pat"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "PWD", "KEYBOARD", "SSH_AUTH_SOCK", WINDOW_TOKEN] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
