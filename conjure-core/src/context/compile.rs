//! From a log to a model request: the whole of what the model reads, in one place.
//!
//! A pure function of the log, the routing table and the settings. The parts stand in a fixed
//! order, so that the request of a later step begins like the one before it.

use std::collections::BTreeMap;

use super::notes;
use crate::chat::Message;
use crate::log::{Entry, fold, messages};
use crate::repair::{Target, repair};
use crate::request::{Attachment, ModelRequest, ProviderFragments, ToolChoice, ToolDefinition};
use crate::routing::RoutingTable;

/// What a request is compiled with, apart from the log and the table.
#[derive(Debug, Clone, PartialEq)]
pub struct CompileSettings {
    /// The provider, the model and what it can look at.
    pub target: Target,
    /// Who the model is and how it works; the first system block.
    pub persona: Option<String>,
    /// Where the session works; the second.
    pub working_dir: Option<String>,
    /// What [`skills_prompt`](super::skills_prompt) made; the third.
    pub skills_prompt: String,
    /// What the model must know about its environments; a block each, behind the others.
    pub notes: Vec<String>,
    /// The most tokens of output. Default: 16,384.
    pub max_tokens: u32,
    /// How much it may think, in tokens; none when absent.
    pub thinking_tokens: Option<u32>,
    /// Which tool it must call. Default: as it likes.
    pub tool_choice: ToolChoice,
    /// Texts that end the output.
    pub stop_sequences: Vec<String>,
    /// What backends add to this provider's requests.
    pub contribution: ProviderFragments,
    /// Bytes of artifacts that the model is to look at, by handle.
    pub attachments: BTreeMap<String, Attachment>,
    /// Whether the reply streams. Default: yes.
    pub stream: bool,
}

impl CompileSettings {
    /// Defaults for a provider and a model.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            persona: None,
            working_dir: None,
            skills_prompt: String::new(),
            notes: Vec::new(),
            max_tokens: 16_384,
            thinking_tokens: None,
            tool_choice: ToolChoice::Auto,
            stop_sequences: Vec::new(),
            contribution: ProviderFragments::default(),
            attachments: BTreeMap::new(),
            stream: true,
        }
    }
}

/// Compiles the request that asks the model to go on.
#[must_use]
pub fn compile(
    entries: &[Entry],
    table: &RoutingTable,
    settings: &CompileSettings,
) -> ModelRequest {
    let folded = fold(entries);
    let summary = folded
        .summary
        .map(|summary| Message::user(notes::summary(summary)));
    let conversation: Vec<Message> = summary.into_iter().chain(messages(folded.shown)).collect();
    ModelRequest {
        provider: settings.target.provider.clone(),
        model: settings.target.model.clone(),
        system: system(settings),
        messages: repair(conversation, &settings.target),
        tools: tools(table),
        tool_choice: settings.tool_choice.clone(),
        max_tokens: settings.max_tokens,
        thinking_tokens: settings.thinking_tokens,
        stop_sequences: settings.stop_sequences.clone(),
        contribution: settings.contribution.clone(),
        attachments: settings.attachments.clone(),
        stream: settings.stream,
    }
}

/// The table's tools in its order: the same for as long as its version is.
#[must_use]
pub fn tools(table: &RoutingTable) -> Vec<ToolDefinition> {
    table
        .routes()
        .iter()
        .map(|route| ToolDefinition {
            name: route.name.as_str().to_owned(),
            description: route.definition.description.clone(),
            input_schema: route.definition.input_schema.clone(),
        })
        .collect()
}

fn system(settings: &CompileSettings) -> Vec<String> {
    let working_dir = settings.working_dir.as_ref().map(|dir| {
        format!("The session's working directory is {dir}. Relative paths start there.")
    });
    settings
        .persona
        .clone()
        .into_iter()
        .chain(working_dir)
        .chain([settings.skills_prompt.clone()])
        .chain(settings.notes.iter().cloned())
        .filter(|block| !block.trim().is_empty())
        .collect()
}
