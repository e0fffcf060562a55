//! What a person can configure.

use std::time::Duration;

use conjure_skill_sdk::{Error, Result, Setup};
use serde::Deserialize;
use serde_json::{Value, json};

/// The secret that holds the key: the provider's own variable.
pub(crate) const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";
/// The variable that says where the API is, when it is not at its usual place.
const BASE_URL_VARIABLE: &str = "ANTHROPIC_BASE_URL";
/// The most skills that a request may have.
pub(crate) const MAX_SKILLS: usize = 20;

/// The settings of one backend instance.
#[derive(Debug, Clone)]
pub(crate) struct AnthropicSettings {
    pub(crate) base_url: String,
    pub(crate) model: String,
    pub(crate) max_tokens: u32,
    pub(crate) code_execution: String,
    pub(crate) betas: Vec<String>,
    pub(crate) skills: Vec<AnthropicSkill>,
    pub(crate) idle: Duration,
}

/// A skill, as a session names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnthropicSkill {
    /// `anthropic` or `custom`.
    pub(crate) source: String,
    pub(crate) id: String,
    pub(crate) version: Option<String>,
    /// What its tool is called; asked for when it is not said.
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
}

impl AnthropicSkill {
    /// The skill's item in `container.skills`.
    pub(crate) fn reference(&self) -> Value {
        let mut reference = json!({ "type": self.source, "skill_id": self.id });
        if let (Some(version), Some(fields)) = (&self.version, reference.as_object_mut()) {
            fields.insert("version".to_owned(), version.as_str().into());
        }
        reference
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    base_url: Option<String>,
    #[serde(default = "default_model")]
    model: String,
    #[serde(default = "default_max_tokens")]
    max_tokens: u32,
    #[serde(default = "default_code_execution")]
    code_execution: String,
    #[serde(default)]
    betas: Vec<String>,
    #[serde(default)]
    skills: Vec<SkillChoice>,
    #[serde(default = "default_idle_timeout_ms")]
    idle_timeout_ms: u64,
}

/// A skill as a text or as a table.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SkillChoice {
    Id(String),
    Table(SkillTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillTable {
    #[serde(rename = "type")]
    source: Option<String>,
    #[serde(alias = "id")]
    skill_id: String,
    version: Option<String>,
    name: Option<String>,
    description: Option<String>,
}

fn default_model() -> String {
    "claude-sonnet-4-5".to_owned()
}

fn default_max_tokens() -> u32 {
    8192
}

fn default_code_execution() -> String {
    "code_execution_20250825".to_owned()
}

fn default_idle_timeout_ms() -> u64 {
    120_000
}

/// JSON Schema of the configuration.
pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "skills": {
                "type": "array",
                "maxItems": MAX_SKILLS,
                "description": "The skills: `xlsx`, `skill_…`, or tables of type, skill_id, version, name, description",
                "items": { "anyOf": [
                    { "type": "string" },
                    {
                        "type": "object",
                        "properties": {
                            "type": { "enum": ["anthropic", "custom"] },
                            "skill_id": { "type": "string" },
                            "version": { "type": "string", "description": "Default: the latest" },
                            "name": { "type": "string" },
                            "description": { "type": "string" }
                        },
                        "required": ["skill_id"]
                    }
                ] }
            },
            "base_url": {
                "type": "string",
                "description": "Where the API is. Default: ANTHROPIC_BASE_URL, else https://api.anthropic.com"
            },
            "model": {
                "type": "string",
                "description": "Who does delegated work. Default: claude-sonnet-4-5"
            },
            "max_tokens": {
                "type": "integer",
                "minimum": 1,
                "description": "The most output tokens of one of its replies. Default: 8192"
            },
            "code_execution": {
                "type": "string",
                "description": "The type of the code execution tool. Default: code_execution_20250825"
            },
            "betas": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Values of the header anthropic-beta, where a gateway needs them"
            },
            "idle_timeout_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "Milliseconds between two pieces of a reply. Default: 120000"
            }
        },
        "additionalProperties": false
    })
}

impl AnthropicSettings {
    pub(crate) fn from_setup(setup: &Setup) -> Result<Self> {
        Self::new(setup.config()?, std::env::var(BASE_URL_VARIABLE).ok())
    }

    fn new(config: ConfigFile, elsewhere: Option<String>) -> Result<Self> {
        if config.skills.len() > MAX_SKILLS {
            return Err(Error::invalid(format!(
                "{} hosted skills are too many: Anthropic takes at most {MAX_SKILLS} a request; \
                 name fewer in `skills`",
                config.skills.len()
            )));
        }
        let mut skills: Vec<AnthropicSkill> = Vec::new();
        for named in config.skills {
            let skill = skill(named)?;
            if skills.iter().any(|known| known.id == skill.id) {
                return Err(Error::invalid(format!(
                    "the hosted skill `{}` is named twice in `skills`",
                    skill.id
                )));
            }
            skills.push(skill);
        }
        let base_url = config
            .base_url
            .or_else(|| elsewhere.filter(|url| !url.is_empty()))
            .unwrap_or_else(|| "https://api.anthropic.com".to_owned());
        let base_url = base_url.trim().trim_end_matches('/');
        let base_url = base_url.strip_suffix("/v1").unwrap_or(base_url);
        Ok(Self {
            base_url: base_url.to_owned(),
            model: config.model,
            max_tokens: config.max_tokens.max(1),
            code_execution: config.code_execution,
            betas: config.betas,
            skills,
            idle: Duration::from_millis(config.idle_timeout_ms.max(1)),
        })
    }

    /// The code execution tool, as a request has it.
    pub(crate) fn tool(&self) -> Value {
        json!({ "type": self.code_execution, "name": "code_execution" })
    }
}

fn skill(named: SkillChoice) -> Result<AnthropicSkill> {
    let table = match named {
        SkillChoice::Id(id) => SkillTable {
            source: None,
            skill_id: id,
            version: None,
            name: None,
            description: None,
        },
        SkillChoice::Table(table) => table,
    };
    let id = table.skill_id.trim().to_owned();
    let source = table.source.unwrap_or_else(|| {
        let is_custom = id.starts_with("skill_");
        if is_custom { "custom" } else { "anthropic" }.to_owned()
    });
    if id.is_empty() || !matches!(source.as_str(), "anthropic" | "custom") {
        return Err(Error::invalid(format!(
            "the hosted skill `{id}` of type `{source}` is none: a skill has an id and the type \
             `anthropic` or `custom`"
        )));
    }
    Ok(AnthropicSkill {
        name: table
            .name
            .or_else(|| (source == "anthropic").then(|| id.clone())),
        description: table.description,
        version: table.version,
        source,
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: Value) -> Result<AnthropicSettings> {
        AnthropicSettings::new(serde_json::from_value(config).unwrap(), None)
    }

    #[test]
    fn p09_skills_of_anthropic_custom_ones_and_both_are_named() {
        let settings = settings(json!({
            "skills": ["xlsx", "skill_01ab", {"skill_id": "mine", "type": "custom", "version": "skver_2", "name": "mine"}],
            "base_url": "http://127.0.0.1:1/v1/",
        }))
        .unwrap();
        let references: Vec<Value> = settings
            .skills
            .iter()
            .map(AnthropicSkill::reference)
            .collect();
        assert_eq!(
            references,
            [
                json!({"type": "anthropic", "skill_id": "xlsx"}),
                json!({"type": "custom", "skill_id": "skill_01ab"}),
                json!({"type": "custom", "skill_id": "mine", "version": "skver_2"}),
            ]
        );
        let names: Vec<_> = settings
            .skills
            .iter()
            .map(|it| it.name.as_deref())
            .collect();
        assert_eq!(names, [Some("xlsx"), None, Some("mine")]);
        assert_eq!(settings.base_url, "http://127.0.0.1:1");
    }

    #[test]
    fn b15_more_than_twenty_skills_are_refused_before_any_call() {
        let skills = |number: usize| (0..number).map(|n| format!("s{n}")).collect::<Vec<_>>();
        assert!(settings(json!({ "skills": skills(20) })).is_ok());
        let error = settings(json!({ "skills": skills(21) })).unwrap_err();
        assert!(error.message().contains("at most 20"), "{error}");
    }

    #[test]
    fn p09_a_bad_skill_and_one_named_twice_are_refused() {
        for skills in [
            json!([""]),
            json!([{"skill_id": "x", "type": "other"}]),
            json!(["xlsx", "xlsx"]),
        ] {
            assert!(settings(json!({ "skills": skills })).is_err(), "{skills}");
        }
    }
}
