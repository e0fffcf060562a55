//! How servers that are compatible with Chat Completions differ from each other.
//!
//! Plain settings with presets. Reading is tolerant of all of them at once; a dialect says how a
//! request is written, and how a stream ends.

use serde::{Deserialize, Serialize};

/// A dialect of Chat Completions. What is left out when it is read has the value of
/// [`Dialect::compatible`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dialect {
    /// How a person calls the provider, for errors: `OpenAI`.
    pub title: String,
    /// The field that limits the output.
    pub limit: Limit,
    /// How a request says how much to think.
    pub effort: Effort,
    /// How the model's thoughts go back to it.
    pub echo: ThinkingEcho,
    /// How a request says that some tool must be called.
    pub any_tool: AnyTool,
    /// How a request asks for a form of the answer.
    pub form: AnswerForm,
    /// Whether a tool may say that its schema is strict.
    pub strict_tools: bool,
    /// Whether a stream is asked to tell its tokens in the end.
    pub stream_usage: bool,
    /// Call ids have exactly so many letters and digits; any up to 40 characters when absent.
    pub id_length: Option<usize>,
    /// Whether images can be sent.
    pub images: bool,
    /// Whether PDFs can be sent.
    pub files: bool,
    /// Whether a stream surely ends with `[DONE]`: without it the reply was cut.
    pub ends_with_done: bool,
    /// Whether a reply surely says why it stopped, or tells its tokens: without either it was cut.
    pub says_why: bool,
}

/// The field that limits the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// How a request says how much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all.
    None,
    /// `reasoning_effort`, a word, to models that reason.
    Word,
    /// `thinking: {type: enabled | disabled}`.
    Switch,
    /// `reasoning: {max_tokens}`.
    Budget,
}

/// How the model's thoughts go back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingEcho {
    /// The thoughts do not go back.
    Never,
    /// `reasoning_content` beside the calls of a message, also where there are no thoughts: then it
    /// is empty.
    ReasoningContent,
    /// `reasoning_details`, as they came.
    ReasoningDetails,
    /// Pieces of `content` of the type `thinking`.
    ContentPieces,
}

/// How a request says that some tool must be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnyTool {
    /// `required`.
    Required,
    /// `any`.
    Any,
}

/// How a request asks for a form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// By a schema.
    Schema,
    /// For any JSON object; the schema is told in words.
    AnyObject,
}

impl Default for Dialect {
    fn default() -> Self {
        Self::compatible()
    }
}

impl Dialect {
    /// A server that nothing is known of: plain requests, and no trust that a stream ends as
    /// OpenAI's does.
    #[must_use]
    pub fn compatible() -> Self {
        Self {
            title: "The provider".to_owned(),
            limit: Limit::MaxTokens,
            effort: Effort::None,
            echo: ThinkingEcho::Never,
            any_tool: AnyTool::Required,
            form: AnswerForm::Schema,
            strict_tools: false,
            stream_usage: true,
            id_length: None,
            images: true,
            files: false,
            ends_with_done: false,
            says_why: false,
        }
    }

    /// OpenAI.
    #[must_use]
    pub fn openai() -> Self {
        Self {
            title: "OpenAI".to_owned(),
            limit: Limit::MaxCompletionTokens,
            effort: Effort::Word,
            strict_tools: true,
            files: true,
            ends_with_done: true,
            says_why: true,
            ..Self::compatible()
        }
    }

    /// DeepSeek: thoughts go back beside the calls that they led to.
    #[must_use]
    pub fn deepseek() -> Self {
        Self {
            title: "DeepSeek".to_owned(),
            effort: Effort::Switch,
            echo: ThinkingEcho::ReasoningContent,
            form: AnswerForm::AnyObject,
            images: false,
            ends_with_done: true,
            says_why: true,
            ..Self::compatible()
        }
    }

    /// Mistral: call ids of nine characters, `any` tool, thoughts inside the content.
    #[must_use]
    pub fn mistral() -> Self {
        Self {
            title: "Mistral".to_owned(),
            echo: ThinkingEcho::ContentPieces,
            any_tool: AnyTool::Any,
            stream_usage: false,
            id_length: Some(9),
            ends_with_done: true,
            says_why: true,
            ..Self::compatible()
        }
    }

    /// OpenRouter: whatever model is behind it, its thoughts travel as `reasoning_details`.
    #[must_use]
    pub fn openrouter() -> Self {
        Self {
            title: "OpenRouter".to_owned(),
            effort: Effort::Budget,
            echo: ThinkingEcho::ReasoningDetails,
            files: true,
            ends_with_done: true,
            says_why: true,
            ..Self::compatible()
        }
    }

    /// llama.cpp's server.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self {
            title: "llama.cpp".to_owned(),
            ends_with_done: true,
            says_why: true,
            ..Self::compatible()
        }
    }

    /// Ollama.
    #[must_use]
    pub fn ollama() -> Self {
        Self {
            title: "Ollama".to_owned(),
            ends_with_done: true,
            ..Self::compatible()
        }
    }

    /// The preset of this name; none where there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "openai" => Self::openai(),
            "deepseek" => Self::deepseek(),
            "mistral" => Self::mistral(),
            "openrouter" => Self::openrouter(),
            "llamacpp" | "llama.cpp" | "llama-cpp" => Self::llama_cpp(),
            "ollama" => Self::ollama(),
            "compatible" => Self::compatible(),
            _ => return None,
        })
    }

    /// The dialect of a provider: its preset where its name has one, else that of a server that
    /// nothing is known of, under the provider's name.
    #[must_use]
    pub fn of(provider: &str) -> Self {
        Self::named(provider).unwrap_or_else(|| Self {
            title: provider.to_owned(),
            ..Self::compatible()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_a_plain_value_that_a_person_can_write() {
        let written = r#"{"title": "Mine", "echo": "reasoning_content", "id_length": 9}"#;
        let dialect: Dialect = serde_json::from_str(written).unwrap();
        assert_eq!(
            dialect,
            Dialect {
                title: "Mine".to_owned(),
                echo: ThinkingEcho::ReasoningContent,
                id_length: Some(9),
                ..Dialect::compatible()
            }
        );
        assert!(serde_json::from_str::<Dialect>(r#"{"ecko": "never"}"#).is_err());
        for name in [
            "openai",
            "deepseek",
            "mistral",
            "openrouter",
            "llamacpp",
            "ollama",
        ] {
            let preset = Dialect::named(name).unwrap();
            let text = serde_json::to_string(&preset).unwrap();
            assert_eq!(serde_json::from_str::<Dialect>(&text).unwrap(), preset);
        }
        assert_eq!(Dialect::of("my-server").title, "my-server");
    }
}
