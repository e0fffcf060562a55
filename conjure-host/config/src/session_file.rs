//! What a session is made from: the session file, and the same as Rust values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use conjure_core::routing::{Naming, Pattern, Policy, PolicyDecision, PolicyWarning, Prefix, Rule};
use conjure_core::wire::{Dialect, Wire};
use indexmap::IndexMap;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::auth_name::AuthRef;
use crate::{PluginSpec, SandboxSpec};

/// A session, as a TOML file or as values.
///
/// ```
/// # use conjure_config::SessionSpec;
/// let spec = SessionSpec::from_toml(r#"
/// provider = "scripted"
/// script = "script.json"
///
/// [[backend]]
/// kind = "native"
/// skills = ["log-fetcher"]
///
/// [[backend]]
/// kind = "local"
/// skills = ["skills/log-analyzer"]
/// "#).unwrap();
/// assert_eq!(spec.backends.len(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSpec {
    /// The provider: one that is known by name, `scripted`, `tool-walk`, a name
    /// below `providers`, or one that the embedding program brings.
    pub provider: Option<String>,
    /// The saved auth, whose provider is the session's: `NAME`, or `PROVIDER/KIND/NAME` where
    /// several have the name. The environment is not looked at for its provider.
    pub auth: Option<AuthRef>,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Where the provider is, when it is not its usual place. It says nothing of other providers
    /// that the conversation changes to.
    pub base_url: Option<String>,
    /// What is to be known of providers, by name.
    pub providers: IndexMap<String, ProviderSpec>,
    /// How requests travel.
    pub http: HttpSpec,
    /// The script of the provider `scripted`; relative to the session file.
    pub script: Option<PathBuf>,
    /// Values for the script's `{{vars.…}}`.
    pub vars: BTreeMap<String, String>,
    /// Description of who the model is to be; the first part of its instructions.
    pub persona: Option<String>,
    /// Memory of the model, any object; told behind the persona. `memory_text` is told as it is, the
    /// rest as JSON.
    pub memory: Map<String, Value>,
    /// Where calls work; a directory of the session's own without it.
    pub working_dir: Option<PathBuf>,
    /// The most model requests a turn; 25 by default.
    pub max_iterations: Option<u32>,
    /// The most output tokens a request; 8192 by default.
    pub max_tokens: Option<u32>,
    /// How many tokens the model may think; none by default.
    pub thinking_tokens: Option<u32>,
    /// The most bytes of one result that the model reads; 32768 by default. The rest is kept as a
    /// file.
    pub max_output_bytes: Option<usize>,
    /// Time for a call in milliseconds, where its tool says nothing else; 30000 by default.
    pub call_timeout_ms: Option<u64>,
    /// Time for the calls of some tools, whatever these say themselves. The first that fits
    /// counts.
    #[serde(rename = "timeout")]
    pub timeouts: Vec<TimeoutSpec>,
    /// When the conversation is summarised. By default before it is too long for the model, where
    /// that is known, and when the provider says that it is. What was said stays in the log.
    pub compact_at: Option<CompactAt>,
    /// What a turn may use up.
    pub budget: BudgetSpec,
    /// Backends that offer tools, in this order.
    #[serde(rename = "backend")]
    pub backends: Vec<BackendSpec>,
    /// Wishes about names: `aliases`, `prefer`, `versions`, `only`, `except`.
    pub routing: Naming,
    /// Rules for the calls that may run.
    pub policy: PolicySpec,
    /// What commands on this machine may do: change the working directory, without a network, by default.
    pub sandbox: SandboxSpec,
    /// What single plugins may do, by their names: less than their manifests ask for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, PluginSpec>,
}

/// What is to be known of one provider over HTTP.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSpec {
    /// Base URL of the provider's API.
    pub base_url: Option<String>,
    /// Wire format: `anthropic`, `openai-responses`, `openai-chat` (default for a provider that
    /// nothing is known of), `gemini`.
    pub wire: Option<Wire>,
    /// Dialect of `openai-chat`: the name of a preset, or a table of [`Dialect`]'s fields.
    #[serde(deserialize_with = "dialect")]
    pub dialect: Option<Dialect>,
    /// The saved auth for it, when the conversation is with it.
    pub auth: Option<AuthRef>,
    /// The variable of the environment that holds its key.
    pub key_var: Option<String>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
}

/// How requests to providers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSpec {
    /// Milliseconds for a connection; 10000 by default.
    pub connect_timeout_ms: Option<u64>,
    /// Milliseconds until the reply begins; 120000 by default.
    pub first_byte_timeout_ms: Option<u64>,
    /// Milliseconds between two pieces of a reply; 60000 by default.
    pub idle_timeout_ms: Option<u64>,
    /// Milliseconds for a whole reply; 3600000 by default.
    pub reply_timeout_ms: Option<u64>,
    /// The most bytes of a reply; 67108864 by default.
    pub max_reply_bytes: Option<usize>,
    /// Attempts in all at a request that nothing came of; 4 by default.
    pub attempts: Option<u32>,
    /// The longest wait between two attempts in milliseconds, also for a provider that asks for
    /// one; 30000 by default.
    pub longest_wait_ms: Option<u64>,
}

/// Reads a dialect, if there is one: the name of a preset, or its fields.
fn dialect<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Dialect>, D::Error> {
    struct NameOrFields;

    struct DialectSpec(Dialect);

    impl<'de> Deserialize<'de> for DialectSpec {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(NameOrFields).map(Self)
        }
    }

    impl<'de> Visitor<'de> for NameOrFields {
        type Value = Dialect;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("the name of a dialect, or a table of its fields")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Dialect, E> {
            Dialect::named(name).ok_or_else(|| {
                E::custom(format!(
                    "there is no dialect `{name}`; there are: openai, deepseek, mistral, \
                     openrouter, llamacpp, ollama, compatible"
                ))
            })
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Dialect, A::Error> {
            Dialect::deserialize(MapAccessDeserializer::new(fields))
        }
    }

    let given = Option::<DialectSpec>::deserialize(from)?;
    Ok(given.map(|DialectSpec(dialect)| dialect))
}

/// When a conversation is summarised: a number of input tokens, or `"never"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum CompactAt {
    /// Before a request that would have so many.
    Tokens(u64),
    /// Never, also when the provider says that it is too long.
    Never,
}

impl TryFrom<Value> for CompactAt {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match (value.as_u64(), value.as_str()) {
            (Some(tokens), _) => Ok(Self::Tokens(tokens)),
            (_, Some("never")) => Ok(Self::Never),
            _ => Err(format!(
                "{value} is neither a number of tokens nor \"never\""
            )),
        }
    }
}

impl From<CompactAt> for Value {
    fn from(at: CompactAt) -> Self {
        match at {
            CompactAt::Tokens(tokens) => tokens.into(),
            CompactAt::Never => "never".into(),
        }
    }
}

/// What a turn, its thread, and all that a session does may use up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSpec {
    /// Tokens of a turn, input and output, of all rounds.
    pub tokens: Option<u64>,
    /// Calls that run in a turn.
    pub calls: Option<u32>,
    /// Milliseconds that a turn may take.
    pub wall_ms: Option<u64>,
    /// What a turn may cost, in US dollars.
    pub usd: Option<f64>,
    /// Limits for all turns of the thread together.
    pub thread: LimitSpec,
    /// Limits for all turns of the session together, in whichever threads.
    pub session: LimitSpec,
}

/// What several turns together may use up. Looked at before each request.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSpec {
    /// Tokens, input and output.
    pub tokens: Option<u64>,
    /// Calls that run.
    pub calls: Option<u64>,
    /// Milliseconds of the turns.
    pub wall_ms: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// Rules for calls: patterns of tool names, `backend:NAME`, or `NAME(arguments)`. Deny wins.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySpec {
    /// Run without asking.
    pub allow: Vec<Pattern>,
    /// Ask first.
    pub ask: Vec<Pattern>,
    /// Never run.
    pub deny: Vec<Pattern>,
}

impl PolicySpec {
    /// The rules in settings of a session that were read before, in the shape of its file.
    #[must_use]
    pub fn of_settings(settings: &Map<String, Value>) -> Self {
        let policy = settings.get("policy").map(Self::deserialize);
        policy.and_then(Result::ok).unwrap_or_default()
    }

    /// What a person should know of the rules: patterns that do not keep what they suggest, each with
    /// a better one.
    #[must_use]
    pub fn warnings(&self) -> Vec<PolicyWarning> {
        let policy = Policy {
            rules: self.rules(),
            ..Policy::default()
        };
        policy.warnings()
    }

    /// The rules that the patterns make, those that deny first.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        let of = |patterns: &[Pattern], decision: PolicyDecision| {
            let rules = patterns.iter().map(move |pattern| Rule {
                pattern: pattern.clone(),
                decision,
            });
            rules.collect::<Vec<_>>()
        };
        let mut all = of(&self.deny, PolicyDecision::Deny);
        all.extend(of(&self.allow, PolicyDecision::Allow));
        all.extend(of(&self.ask, PolicyDecision::Ask));
        all
    }
}

/// One backend of a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackendSpec {
    /// `native`, or the name of an executor or backend plugin, such as `local` or `docker`.
    pub kind: String,
    /// The instance's name; the kind when absent. Two instances of a kind have two names.
    pub name: Option<String>,
    /// For `native`: names of native skills; all that are loaded when absent. Else: skill
    /// folders or packages, relative to the session file.
    pub skills: Option<Vec<String>>,
    /// How public names are made: `skill` (default), `backend` or `none`.
    pub prefix: Prefix,
    /// The only tools that it offers.
    pub only: Vec<String>,
    /// Tools that it does not offer.
    pub except: Vec<String>,
    /// Time for a call in milliseconds.
    pub call_timeout_ms: Option<u64>,
    /// The plugin's own configuration. For `native`: one a skill, by its name.
    pub config: Option<Value>,
}

/// Time for the calls of some tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutSpec {
    /// Pattern of the tools, as in a policy: a public name with `*` for any text, `backend:NAME`, or a
    /// name with arguments in parentheses.
    pub tools: Pattern,
    /// Milliseconds.
    pub ms: u64,
}

impl BackendSpec {
    /// Native skills by name.
    pub fn native<S: Into<String>>(skills: impl IntoIterator<Item = S>) -> Self {
        Self::executor("native", skills)
    }

    /// Every native skill that is loaded, now and later.
    pub fn all_native() -> Self {
        Self {
            kind: "native".to_owned(),
            ..Self::default()
        }
    }

    /// Skill folders on this machine's shell.
    pub fn local<S: Into<String>>(skills: impl IntoIterator<Item = S>) -> Self {
        Self::executor("local", skills)
    }

    /// Skill folders in containers.
    pub fn docker<S: Into<String>>(skills: impl IntoIterator<Item = S>) -> Self {
        Self::executor("docker", skills)
    }

    /// Hosted skills.
    pub fn anthropic<S: Into<String>>(skills: impl IntoIterator<Item = S>) -> Self {
        Self::executor("anthropic", skills)
    }

    /// Skill folders on any executor or backend plugin.
    pub fn executor<S: Into<String>>(
        kind: impl Into<String>,
        skills: impl IntoIterator<Item = S>,
    ) -> Self {
        let skills = skills.into_iter().map(Into::into).collect();
        Self {
            kind: kind.into(),
            skills: Some(skills),
            ..Self::default()
        }
    }

    /// Gives the instance another name than its kind.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The instance's name.
    pub fn instance(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.kind)
    }

    /// Whether it stands for native skills.
    pub fn is_native(&self) -> bool {
        self.kind == "native"
    }
}

/// Why a session file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("the session file cannot be used: {source}")]
    Read {
        /// Why, with the file's name.
        source: std::io::Error,
    },
    /// The file is not what a session file looks like.
    #[error("the session file `{path}` is not right: {message}")]
    Parse {
        /// The file.
        path: String,
        /// Where and why.
        message: String,
    },
    /// The file says something that cannot be.
    #[error("{message}")]
    Invalid {
        /// What, and what to do.
        message: String,
    },
}

impl SessionSpec {
    /// Reads a session file. Its relative paths become relative to it.
    ///
    /// # Errors
    /// [`SpecError`] names file, line and field.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text = crate::fs::read_to_string(path).map_err(|source| SpecError::Read { source })?;
        let mut spec = Self::parse(&text, &path.display().to_string())?;
        let path = std::path::absolute(path).map_err(|source| SpecError::Read { source })?;
        let base = path.parent().unwrap_or(Path::new("."));
        spec.script = spec.script.map(|script| base.join(script));
        spec.working_dir = spec.working_dir.map(|dir| base.join(dir));
        spec.sandbox = spec.sandbox.below(base, crate::env::home().as_deref());
        for backend in spec
            .backends
            .iter_mut()
            .filter(|backend| !backend.is_native())
        {
            for skill in backend.skills.iter_mut().flatten() {
                *skill = base.join(&*skill).display().to_string();
            }
        }
        Ok(spec)
    }

    /// The variables of the environment that it says hold keys of providers.
    pub fn key_vars(&self) -> impl Iterator<Item = &str> {
        let own = self.providers.values();
        own.filter_map(|own| own.key_var.as_deref())
    }

    /// Reads a session from TOML text.
    ///
    /// # Errors
    /// As [`SessionSpec::read`].
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        Self::parse(text, "(text)")
    }

    /// Several backends in one session, everything else as it is by default.
    pub fn hybrid(backends: impl IntoIterator<Item = BackendSpec>) -> Self {
        Self {
            backends: backends.into_iter().collect(),
            ..Self::default()
        }
    }

    /// All native skills, and these skill folders on this executor if one is named.
    pub fn calls(skills: &[PathBuf], executor: Option<&str>) -> Self {
        let skills = skills.iter().map(|path| path.display().to_string());
        let executor = executor.map(|executor| BackendSpec::executor(executor, skills));
        Self::hybrid([BackendSpec::all_native()].into_iter().chain(executor))
    }

    /// The rules about calls, those that deny first.
    #[must_use]
    pub fn call_policy(&self) -> Policy {
        Policy {
            rules: self.policy.rules(),
            ..Policy::default()
        }
    }

    /// Moves `base_url` to the settings of its provider alone, so that a conversation may change to
    /// another provider and come back.
    #[must_use]
    pub fn with_provider_base_url(mut self) -> Self {
        if let (Some(provider), Some(base_url)) = (&self.provider, self.base_url.take()) {
            self.providers.entry(provider.clone()).or_default().base_url = Some(base_url);
        }
        self
    }

    /// Finds what cannot be, before anything is loaded.
    ///
    /// # Errors
    /// [`SpecError::Invalid`].
    pub fn check(&self) -> Result<(), SpecError> {
        if let Some(message) = self.sandbox.fault() {
            return Err(SpecError::Invalid { message });
        }
        let mut names = BTreeSet::new();
        for backend in &self.backends {
            if backend.kind.is_empty() {
                return Err(SpecError::Invalid {
                    message: "a backend has no `kind`; it is `native` or the name of an executor \
                              or backend plugin, such as `local`"
                        .to_owned(),
                });
            }
            if !names.insert(backend.instance()) {
                return Err(SpecError::Invalid {
                    message: format!(
                        "two backends are called `{}`; give one of them another `name`",
                        backend.instance()
                    ),
                });
            }
        }
        Ok(())
    }

    fn parse(text: &str, name: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text).map_err(|error| SpecError::Parse {
            path: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        spec.check()?;
        Ok(spec)
    }
}
