//! From what is saved to what a session is opened with.

use std::collections::BTreeMap;
use std::path::Path;

use conjure_core::routing::Naming;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::view::PersonaCopy;
use super::{ManagerError, ManagerState};
use crate::Host;
use conjure_config::json::read_value;
use conjure_config::{BackendSpec, PolicySpec, SandboxSpec, SessionSpec};
use conjure_plugins::PackagedPlugins;
use conjure_store::{SavedAuth, SavedSession as Row};

/// Fields of a session file that a saved session says elsewhere.
const SAVED_FIELDS: [(&str, &str); 7] = [
    ("provider", "it is the saved auth's"),
    ("auth", "it is the session's own `auth`"),
    ("model", "it is the session's own `model`"),
    ("base_url", "it is the saved auth's"),
    ("working_dir", "it is the session's own `working_dir`"),
    ("persona", "it is the session's own `persona`"),
    ("memory", "it is the session's own `memory`"),
];
/// The executor that a session has where it names no backends.
const EXECUTOR: &str = "local";

/// What a saved session was opened with, as digests: it is only ever compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettingsDigest {
    environment: Digest,
    plugins: Digest,
    policy: Digest,
    rest: Digest,
    /// When its saved auth was last changed: a credential that was replaced is another one under
    /// the same name.
    auth_changed_ms: i64,
}

type Digest = [u8; 32];

impl SettingsDigest {
    pub(super) fn of(spec: &SessionSpec, auth: &SavedAuth) -> Self {
        let rest = SessionSpec {
            routing: Naming::default(),
            working_dir: None,
            policy: PolicySpec::default(),
            sandbox: SandboxSpec::default(),
            plugins: BTreeMap::new(),
            ..spec.clone()
        };
        Self {
            environment: digest(&(&spec.routing, &spec.working_dir, &spec.sandbox)),
            plugins: digest(&spec.plugins),
            policy: digest(&spec.policy),
            rest: digest(&rest),
            auth_changed_ms: auth.updated_at_ms,
        }
    }

    /// Whether a running session can take these settings over, or has to be opened anew: its names,
    /// its directory, its sandbox and what its plugins are granted are made when it opens.
    pub(super) fn is_compatible(&self, other: &Self) -> bool {
        self.environment == other.environment && self.has_same_grants(other)
    }

    /// Whether its plugins are granted the same.
    pub(super) fn has_same_grants(&self, other: &Self) -> bool {
        self.plugins == other.plugins
    }

    /// Takes note that it has another policy.
    pub(super) fn set_policy(&mut self, policy: &PolicySpec) {
        self.policy = digest(policy);
    }
}

fn digest(value: &impl Serialize) -> Digest {
    // What cannot be written is equal to nothing that can.
    let json = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(json).into()
}

impl ManagerState {
    /// What a saved session is opened with now.
    pub(super) async fn spec_and_digest(
        &self,
        row: &Row,
    ) -> Result<(SessionSpec, SettingsDigest), ManagerError> {
        let auth = self.store.auth(&row.auth_id).await?;
        let spec = self.spec_with(row, &auth)?;
        let made = SettingsDigest::of(&spec, &auth);
        Ok((spec, made))
    }

    /// Specification that a saved session is opened with now, its saved auth at hand.
    pub(super) fn spec_with(
        &self,
        row: &Row,
        auth: &SavedAuth,
    ) -> Result<SessionSpec, ManagerError> {
        spec_of(&self.host, row, auth)
    }
}

/// What a saved session is opened with, its saved auth being this.
pub fn spec_of(host: &Host, row: &Row, auth: &SavedAuth) -> Result<SessionSpec, ManagerError> {
    let mut spec = tools(&row.tools.0)?;
    if spec.backends.is_empty() {
        spec.backends = default_backends(host);
    }
    let mcps = object(&row.mcps.0);
    if !mcps.is_empty() {
        spec.backends.push(mcp_backend(&spec, mcps));
    }
    spec.auth = Some(auth.full_name().into());
    spec.model = Some(row.model_id.clone());
    let working_dir = Path::new(&row.working_dir);
    spec.sandbox = spec
        .sandbox
        .below(working_dir, std::env::home_dir().as_deref());
    spec.working_dir = Some(working_dir.to_owned());
    let persona = persona(row);
    spec.persona = Some(persona.persona_text).filter(|text| !text.trim().is_empty());
    spec.memory = object(&row.memory.0).clone();
    spec.check()?;
    Ok(spec)
}

/// Every native skill, and the local shell with the user's own skill folders.
fn default_backends(host: &Host) -> Vec<BackendSpec> {
    let mut backends = vec![BackendSpec::all_native()];
    if host.registry().snapshot().get(EXECUTOR).is_some() {
        let home = std::env::home_dir();
        let mut found = conjure_config::skill_folders::discover(None, home.as_deref());
        PackagedPlugins::of(host.data_dir()).judge_skills(&mut found);
        for error in &found.broken {
            tracing::warn!("{error}");
        }
        let skills = found.skills.iter();
        let skills = skills.map(|found| found.path.display().to_string());
        backends.push(BackendSpec::executor(EXECUTOR, skills));
    }
    backends
}

/// Reads what a session says of its tools.
pub(super) fn tools(value: &Value) -> Result<SessionSpec, ManagerError> {
    let fields = object(value);
    for (field, why) in SAVED_FIELDS {
        if fields.contains_key(field) {
            return Err(ManagerError::Invalid {
                field: Some("tools"),
                message: format!("`tools` takes no `{field}`: {why}"),
            });
        }
    }
    let spec = read_value::<SessionSpec>(value).map_err(|unfit| ManagerError::Invalid {
        field: Some("tools"),
        message: unfit.below("tools").to_string(),
    })?;
    spec.check()?;
    Ok(spec)
}

/// The backend of the session's MCP servers, beside what its tools name.
fn mcp_backend(spec: &SessionSpec, servers: &Map<String, Value>) -> BackendSpec {
    let is_taken = |name: &str| spec.backends.iter().any(|known| known.instance() == name);
    let name = is_taken("mcp").then(|| "session-mcp".to_owned());
    BackendSpec {
        kind: "mcp".to_owned(),
        name,
        config: Some(json!({ "servers": servers })),
        ..BackendSpec::default()
    }
}

/// The persona that a session has a copy of.
pub(super) fn persona(row: &Row) -> PersonaCopy {
    serde_json::from_value(row.persona.0.clone()).unwrap_or_default()
}

/// An object that is saved; anything else is none.
pub(super) fn object(value: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_tools_is_said_with_its_place_and_in_the_words_of_json() {
        for (wrong, said) in [
            (
                json!({ "max_iterations": -1 }),
                "`tools.max_iterations`: invalid value: integer `-1`, expected a whole number from 0 \
                 to 4294967295",
            ),
            (
                json!({ "backend": [{ "kind": "native" }, { "kind": 5 }] }),
                "`tools.backend[1].kind`: invalid type: integer `5`, expected a string",
            ),
            (
                json!({ "policy": [["a"], [], []] }),
                "`tools.policy`: invalid type: a list, expected an object",
            ),
            (
                json!({ "sandbox": ["none", [], [], true] }),
                "`tools.sandbox`: `sandbox` does not fit: invalid type: a list, expected an object",
            ),
            (
                json!({ "providers": { "openai": { "dialect": 5 } } }),
                "`tools.providers.openai.dialect`: invalid type: integer `5`, expected the name of \
                 a dialect, or a table of its fields",
            ),
        ] {
            assert_eq!(tools(&wrong).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn what_is_made_when_a_session_opens_opens_it_anew() {
        let auth = SavedAuth::new("openai", "api_key", "work", Vec::new());
        let made = |text: &str| SettingsDigest::of(&SessionSpec::from_toml(text).unwrap(), &auth);
        let usual = made("");
        for (text, is_same) in [
            ("max_iterations = 3", true),
            ("sandbox = \"none\"", false),
            ("sandbox = { network = true }", false),
            ("working_dir = \"/srv\"", false),
            ("plugins.notes.permissions = {}", false),
        ] {
            assert_eq!(usual.is_compatible(&made(text)), is_same, "{text}");
        }
    }
}
