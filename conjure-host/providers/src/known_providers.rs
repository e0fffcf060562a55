//! The providers that are known by name, and how a session's provider is found.
//!
//! What a session file says of a provider wins over the environment, and that over what is known
//! here. A name that nothing is known of is a server that speaks Chat Completions.

use conjure_core::wire::{Dialect, Endpoint, Wire};
use secrecy::{ExposeSecret as _, SecretString};

use super::HttpProvider;
use super::address::{redacted_base_url, same_address};
use super::http::{HttpClients, HttpOptions};
use super::sse_reply::root_cause;
use super::token_end::check_token;
use conjure_config::AuthRef;
use conjure_config::SessionSpec;
use conjure_config::env;

/// A provider over HTTP that needs nothing but a key.
#[derive(Debug)]
pub struct KnownProvider {
    /// Name of the provider, as sessions give it.
    pub name: &'static str,
    /// Wire of the provider, unless a session says otherwise.
    pub wire: Wire,
    /// Base URL; `None` where there is no usual one, so that a session or the environment must give it.
    pub base_url: Option<&'static str>,
    /// The variable that gives the base URL instead.
    pub base_url_var: &'static str,
    /// The variables that may hold the key, in this order.
    pub key_vars: &'static [&'static str],
    /// Whether the provider asks for a key at all.
    pub needs_key: bool,
}

impl KnownProvider {
    /// The provider of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN_PROVIDERS.iter().find(|known| known.name == name)
    }

    /// Whether the environment has a key for the provider.
    pub fn has_key(&self) -> bool {
        self.key_vars.iter().any(|var| env::var(var).is_some())
    }
}

/// The providers that are programs of the host itself: a script that plays the model, and one that
/// calls every tool once. They ask nobody, and take no credential.
pub static BUILT_IN_PROVIDERS: [&str; 2] = ["scripted", "tool-walk"];

/// A provider that cannot be used as a session says: what is missing or wrong, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct UnusableProvider {
    /// The sentence for people.
    pub message: String,
}

/// All providers that are known by name.
pub static KNOWN_PROVIDERS: [KnownProvider; 9] = [
    KnownProvider {
        name: "anthropic",
        wire: Wire::Anthropic,
        base_url: Some("https://api.anthropic.com"),
        base_url_var: env::ANTHROPIC_BASE_URL,
        key_vars: &[env::ANTHROPIC_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "openai",
        wire: Wire::OpenaiResponses,
        base_url: Some("https://api.openai.com/v1"),
        base_url_var: env::OPENAI_BASE_URL,
        key_vars: &[env::OPENAI_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "gemini",
        wire: Wire::Gemini,
        base_url: Some("https://generativelanguage.googleapis.com"),
        base_url_var: env::GEMINI_BASE_URL,
        key_vars: &[env::GEMINI_API_KEY, env::GOOGLE_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "deepseek",
        wire: Wire::OpenaiChat,
        base_url: Some("https://api.deepseek.com/v1"),
        base_url_var: env::DEEPSEEK_BASE_URL,
        key_vars: &[env::DEEPSEEK_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "mistral",
        wire: Wire::OpenaiChat,
        base_url: Some("https://api.mistral.ai/v1"),
        base_url_var: env::MISTRAL_BASE_URL,
        key_vars: &[env::MISTRAL_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "openrouter",
        wire: Wire::OpenaiChat,
        base_url: Some("https://openrouter.ai/api/v1"),
        base_url_var: env::OPENROUTER_BASE_URL,
        key_vars: &[env::OPENROUTER_API_KEY],
        needs_key: true,
    },
    KnownProvider {
        name: "llamacpp",
        wire: Wire::OpenaiChat,
        base_url: Some("http://127.0.0.1:8080/v1"),
        base_url_var: env::LLAMACPP_BASE_URL,
        key_vars: &[env::LLAMACPP_API_KEY],
        needs_key: false,
    },
    KnownProvider {
        name: "ollama",
        wire: Wire::OpenaiChat,
        base_url: Some("http://127.0.0.1:11434/v1"),
        base_url_var: env::OLLAMA_BASE_URL,
        key_vars: &[env::OLLAMA_API_KEY],
        needs_key: false,
    },
    KnownProvider {
        name: "openai-compatible",
        wire: Wire::OpenaiChat,
        base_url: None,
        base_url_var: env::OPENAI_COMPATIBLE_BASE_URL,
        key_vars: &[env::OPENAI_COMPATIBLE_API_KEY],
        needs_key: false,
    },
];

/// The provider of this name over HTTP, as a session, the environment and what is known say.
/// Nothing when nobody knows the name.
///
/// # Errors
/// What is missing or wrong, and what to do.
pub(super) fn provider(
    name: &str,
    spec: &SessionSpec,
    clients: &HttpClients,
) -> Result<Option<HttpProvider>, String> {
    let known = KnownProvider::named(name);
    let own = spec.providers.get(name);
    if known.is_none() && own.is_none() {
        return Ok(None);
    }
    let own = own.cloned().unwrap_or_default();
    let auth = match &own.auth {
        Some(auth) => Some(auth.opened().ok_or_else(|| unopened_auth_message(auth))?),
        None => None,
    };
    let Some((wire, endpoint)) = wire_and_endpoint(name, spec) else {
        return Ok(None);
    };
    let usual = known.and_then(|known| known.base_url.map(str::to_owned));
    let base_url = match (auth, &own.auth) {
        // With a saved auth neither the environment nor a session says where it goes.
        (Some(auth), Some(named)) => {
            let bound = auth.base_url.clone().or(usual);
            check_bound(named, bound.as_deref(), own.base_url.as_deref(), wire)?;
            bound
        }
        _ => own
            .base_url
            .or_else(|| known.and_then(|known| env::var(known.base_url_var)))
            .or(usual),
    };
    let Some(base_url) = base_url else {
        let var = known.map(|known| format!(", {}", known.base_url_var));
        return Err(format!(
            "nobody says where the provider `{name}` is: `--base-url URL`{}, or `base_url` below \
             `[providers.{name}]` in the session file",
            var.unwrap_or_default()
        ));
    };
    let key = match (auth, &own.key_var, known) {
        (Some(_), _, _) | (None, None, None) => None,
        (None, Some(var), _) => env_key(name, &[var], true)?,
        (None, None, Some(known)) => env_key(name, known.key_vars, known.needs_key)?,
    };
    let mut options = HttpOptions::new(base_url);
    options.headers = own.headers.into_iter().collect();
    options.apply_spec(&spec.http);
    let client = clients.client(&options).map_err(|error| {
        format!(
            "TLS cannot be set up: {}. Install the system's certificates, or name them with \
             SSL_CERT_FILE.",
            root_cause(&error)
        )
    })?;
    let made = match auth {
        Some(auth) => HttpProvider::with_auth(wire, endpoint, auth, options, client),
        None => HttpProvider::with_client(wire, endpoint, key, options, client),
    };
    made.map(Some).map_err(|error| error.to_string())
}

/// Refuses to send a saved auth to another address than the one that it is bound to: its own, or its
/// provider's usual one.
fn check_bound(
    auth: &AuthRef,
    bound: Option<&str>,
    asked: Option<&str>,
    wire: Wire,
) -> Result<(), String> {
    let Some(asked) = asked else { return Ok(()) };
    let same = bound.is_some_and(|bound| same_address(bound, asked, wire));
    if same {
        return Ok(());
    }
    let name = auth.as_str();
    let asked = redacted_base_url(asked);
    let belongs = match bound {
        Some(bound) => format!("belongs to {}", redacted_base_url(bound)),
        None => "was saved without an address".to_owned(),
    };
    Err(format!(
        "the saved auth `{name}` {belongs} and is not sent to {asked}, which the session says: take \
         `base_url` out of the session, or save an auth for that address (`conjure auth create NAME \
         --provider PROVIDER --base-url {asked}`)"
    ))
}

/// What is said of an auth whose credential is not at hand.
pub fn unopened_auth_message(auth: &AuthRef) -> String {
    format!(
        "the saved auth `{}` was not opened: give the host the saved auths (`HostBuilder::auths`)",
        auth.as_str()
    )
}

/// What the provider of this name speaks, and how. Needs no key.
pub fn wire_and_endpoint(name: &str, spec: &SessionSpec) -> Option<(Wire, Endpoint)> {
    let known = KnownProvider::named(name);
    let own = spec.providers.get(name);
    if known.is_none() && own.is_none() {
        return None;
    }
    let wire = own
        .and_then(|own| own.wire)
        .or(known.map(|known| known.wire));
    let dialect = own.and_then(|own| own.dialect.clone());
    let endpoint = Endpoint {
        dialect: dialect.unwrap_or_else(|| Dialect::of(name)),
        ..Endpoint::new(name)
    };
    Some((wire.unwrap_or(Wire::OpenaiChat), endpoint))
}

/// The key in the first of these variables that is set.
fn env_key(name: &str, vars: &[&str], needed: bool) -> Result<Option<SecretString>, String> {
    let set = vars.iter().find_map(|var| Some((*var, env::var(var)?)));
    let Some((var, key)) = set else {
        return match needed {
            true => Err(format!(
                "the provider `{name}` needs a key: set {}",
                vars.join(" or ")
            )),
            false => Ok(None),
        };
    };
    let key = SecretString::from(key.trim().to_owned());
    // As a saved one: the server's words would say nothing of what to do.
    check_token(key.expose_secret()).map_err(|why| format!("{var} cannot be used: {why}"))?;
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_provider_fits_its_wire() {
        for known in &KNOWN_PROVIDERS {
            assert_eq!(known.wire, Wire::of_provider(known.name), "{}", known.name);
            if let Some(base_url) = known.base_url {
                super::super::address::Address::parse(base_url, known.wire).unwrap();
            }
            let has_preset = Dialect::named(known.name).is_some();
            let is_chat = known.wire == Wire::OpenaiChat && known.name != "openai-compatible";
            assert!(has_preset || !is_chat, "{}", known.name);
        }
    }

    #[test]
    fn plugins_and_the_environment_know_the_keys_of_all() {
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        let known = sorted(
            KNOWN_PROVIDERS
                .iter()
                .flat_map(|known| known.key_vars)
                .copied()
                .collect(),
        );
        assert_eq!(sorted(env::PROVIDER_KEYS.to_vec()), known);
        let told = conjure_skill_sdk::protocol::PROVIDER_KEYS;
        assert_eq!(sorted(told.to_vec()), known);
    }

    #[test]
    fn a_server_of_ones_own_is_described_in_the_session_file() {
        let spec = SessionSpec::from_toml(
            "[providers.mine]\nbase_url = \"http://127.0.0.1:9\"\nwire = \"anthropic\"\n\
             dialect = \"mistral\"\nheaders = { x-team = \"a\" }\n",
        )
        .unwrap();
        let clients = HttpClients::default();
        let mine = provider("mine", &spec, &clients).unwrap().unwrap();
        let target = super::super::Provider::target(&mine, "m");
        assert_eq!(
            (target.provider.as_str(), target.wire),
            ("mine", Wire::Anthropic)
        );
        assert!(provider("yours", &spec, &clients).unwrap().is_none());
    }

    #[test]
    fn a_base_url_holds_for_the_sessions_own_provider_alone() {
        let text = "provider = \"ollama\"\nbase_url = \"http://10.0.0.7\"";
        let spec = SessionSpec::from_toml(text).unwrap();
        let mut spec = spec.with_provider_base_url();
        // As when a conversation changes its provider, and comes back.
        for (name, place) in [
            ("llamacpp", "http://127.0.0.1:8080/v1"),
            ("ollama", "http://10.0.0.7"),
        ] {
            spec.provider = Some(name.to_owned());
            let made = provider(name, &spec, &HttpClients::default())
                .unwrap()
                .unwrap();
            assert_eq!(made.address().to_string(), place);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let spec = SessionSpec::from_toml(
            "[providers.mine]\n[providers.yours]\nbase_url = \"http://a\"\nkey_var = \"NO_SUCH\"",
        )
        .unwrap();
        let problem = |name| {
            let made = provider(name, &spec, &HttpClients::default());
            made.err().unwrap()
        };
        assert!(problem("mine").contains("`[providers.mine]`"));
        assert_eq!(
            problem("yours"),
            "the provider `yours` needs a key: set NO_SUCH"
        );
    }
}
