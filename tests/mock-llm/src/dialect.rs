//! How servers of one wire differ: the switches of a reply, wire by wire.
//!
//! A default is what the wire's own provider does. Written by `wire`, read by nothing else.

use serde::{Deserialize, Serialize};

/// The switches of all wires; each wire looks at its own.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dialect {
    /// Servers that speak Chat Completions.
    pub chat: ChatDialect,
    /// Servers that speak Responses.
    pub responses: ResponsesDialect,
    /// Generations of Gemini.
    pub gemini: GeminiDialect,
}

impl From<ChatDialect> for Dialect {
    fn from(chat: ChatDialect) -> Self {
        Self {
            chat,
            ..Self::default()
        }
    }
}

impl From<ResponsesDialect> for Dialect {
    fn from(responses: ResponsesDialect) -> Self {
        Self {
            responses,
            ..Self::default()
        }
    }
}

impl From<GeminiDialect> for Dialect {
    fn from(gemini: GeminiDialect) -> Self {
        Self {
            gemini,
            ..Self::default()
        }
    }
}

/// Servers that speak Chat Completions.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatDialect {
    /// Where reasoning is told.
    pub reasoning: ReasoningField,
    /// What `index` a call's fragments have.
    pub index: CallIndex,
    /// What `id` a call's fragments have.
    pub ids: CallIds,
    /// What stands for the arguments of a call without any.
    pub no_arguments: NoArguments,
    /// Tells `finish_reason` (default true); without, it is null to the end.
    pub finish_reason: bool,
    /// Ends a stream with `[DONE]` (default true).
    pub done: bool,
    /// When a stream tells usage.
    pub usage: StreamUsage,
    /// Comment lines before each event, such as `: OPENROUTER PROCESSING`.
    pub comment: Option<String>,
    /// The first event has empty `choices`, as Azure's has.
    pub empty_first: bool,
    /// Random padding in each event.
    pub obfuscation: bool,
}

impl Default for ChatDialect {
    fn default() -> Self {
        Self {
            reasoning: ReasoningField::default(),
            index: CallIndex::default(),
            ids: CallIds::default(),
            no_arguments: NoArguments::default(),
            finish_reason: true,
            done: true,
            usage: StreamUsage::default(),
            comment: None,
            empty_first: false,
            obfuscation: false,
        }
    }
}

/// Where a server of Chat Completions tells reasoning.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// `reasoning_content`, as `DeepSeek` and llama.cpp.
    #[default]
    ReasoningContent,
    /// `reasoning`, as Ollama.
    Reasoning,
    /// `reasoning`, and `reasoning_details` with its summary and its encrypted form, as `OpenRouter`.
    Details,
    /// Nowhere, as `OpenAI` itself.
    Hidden,
}

/// What `index` the fragments of a call have.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIndex {
    /// Counted from 0.
    #[default]
    FromZero,
    /// Counted from 1.
    FromOne,
    /// One index for all calls.
    Same,
    /// No index. Unless its id is repeated, a call then comes in one fragment.
    Missing,
}

/// What `id` the fragments of a call have.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIds {
    /// The first fragment has it.
    #[default]
    Once,
    /// Each fragment has it, and the name.
    Repeated,
    /// The first has an empty text.
    Empty,
    /// No fragment has it.
    Missing,
    /// Nine letters and digits, as Mistral.
    Nine,
}

/// What stands for the arguments of a call without any.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoArguments {
    /// `"{}"`.
    #[default]
    Object,
    /// An empty text.
    Empty,
    /// `null`.
    Null,
    /// The field is left out.
    Missing,
}

/// When a stream tells usage.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamUsage {
    /// In a last chunk with empty `choices`, if `stream_options.include_usage` asks for it.
    #[default]
    Asked,
    /// In a last chunk with empty `choices`, asked for or not.
    Always,
    /// In the chunk that has `finish_reason`.
    WithFinish,
    /// Never.
    Never,
}

/// Servers that speak Responses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponsesDialect {
    /// Each event names its item by another id, as a gateway does.
    pub rotate_item_ids: bool,
    /// Messages say whether they are `commentary` or the `final_answer`.
    pub phases: bool,
}

/// Generations of Gemini.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeminiDialect {
    /// Whether calls have an `id`. Default: those of the third generation's `pro` models.
    pub ids: Option<bool>,
    /// The signature of a text stands on an empty text part after it.
    pub trailing_signature: bool,
    /// Streams a call's arguments in `partialArgs`.
    pub partial_args: bool,
    /// A second chunk with a finish reason.
    pub two_finishes: bool,
}
