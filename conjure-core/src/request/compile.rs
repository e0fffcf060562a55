//! From a log to a model request: the whole of what the model reads, in one place.
//!
//! A pure function of the log, the routing table and the settings. The parts stand in a fixed
//! order, so that the request of a later step begins like the one before it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::conversation;
use super::{
    Attachment, ModelRequest, OutputFormat, ProviderFragments, ToolChoice, ToolDefinition,
};
use crate::context::{memory, working_dir};
use crate::log::Entry;
use crate::repair::{RepairTarget, repair};
use crate::routing::RoutingTable;

/// What a request is compiled with, apart from the log and the table.
#[derive(Debug, Clone, PartialEq)]
pub struct CompileSettings {
    /// The provider, the model and what it can look at.
    pub target: RepairTarget,
    /// The model's persona: who it is and how it works; the first system block.
    pub persona: Option<String>,
    /// What the session remembers, which [`memory`](fn@crate::context::memory) tells; the second.
    pub memory: Map<String, Value>,
    /// Where the session works; the third.
    pub working_dir: Option<String>,
    /// What [`skills_prompt`](fn@crate::context::skills_prompt) made; the fourth.
    pub skills_prompt: String,
    /// What [`instructions`](fn@crate::context::instructions) made of the words of backends; the fifth.
    pub instructions: String,
    /// What the model must know about its environments; a block each, behind the others.
    pub notes: Vec<String>,
    /// The most tokens of output. Default: 16,384.
    pub max_tokens: u32,
    /// How much the model may think, in tokens; none when absent.
    pub thinking_tokens: Option<u32>,
    /// Whether the model must call a tool, and which. Default: as it likes.
    pub tool_choice: ToolChoice,
    /// Texts that end the output.
    pub stop_sequences: Vec<String>,
    /// The form that the answer must have. Default: as the model likes.
    pub response_format: Option<OutputFormat>,
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
    pub fn new(target: RepairTarget) -> Self {
        Self {
            target,
            persona: None,
            memory: Map::new(),
            working_dir: None,
            skills_prompt: String::new(),
            instructions: String::new(),
            notes: Vec::new(),
            max_tokens: 16_384,
            thinking_tokens: None,
            tool_choice: ToolChoice::Auto,
            stop_sequences: Vec::new(),
            response_format: None,
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
    ModelRequest {
        provider: settings.target.provider.clone(),
        model: settings.target.model.clone(),
        system: system(settings),
        messages: repair(conversation(entries), &settings.target),
        tools: tools(table),
        tool_choice: settings.tool_choice.clone(),
        max_tokens: settings.max_tokens,
        thinking_tokens: settings.thinking_tokens,
        stop_sequences: settings.stop_sequences.clone(),
        response_format: settings.response_format.clone(),
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
    let working_dir = settings.working_dir.as_deref().map(working_dir);
    settings
        .persona
        .clone()
        .into_iter()
        .chain([memory(&settings.memory)])
        .chain(working_dir)
        .chain([
            settings.skills_prompt.clone(),
            settings.instructions.clone(),
        ])
        .chain(settings.notes.iter().cloned())
        .filter(|block| !block.trim().is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::chat::{Content, FunctionCall, FunctionCallOutput, Message, Part, Role};
    use crate::log::test_kit::log;
    use crate::log::{CallEnd, EntryBody};
    use crate::routing::{Catalog, CatalogTool, EffectLevel, Naming, Prefix};
    use crate::wire::anthropic::encode;

    fn said(message: Message) -> EntryBody {
        EntryBody::Message { message }
    }

    fn round(id: &str) -> [EntryBody; 2] {
        let call = Content::FunctionCall(FunctionCall {
            call_id: id.to_owned(),
            name: "log-fetcher_execute".to_owned(),
            arguments: json!({"command": "x"}),
            arguments_text: None,
        });
        [
            said(Message::new(Role::Assistant, vec![call.into()])),
            EntryBody::CallEnded {
                output: FunctionCallOutput::text(id, "r", false),
                end: CallEnd::Done,
                reason: None,
                duration_ms: 1,
                meta: None,
            },
        ]
    }

    fn catalogs() -> Vec<Catalog> {
        let tool = |name: &str| {
            let mut tool = CatalogTool::new(name, "skill.execute", EffectLevel::Read)
                .of_skill("log-fetcher", None);
            tool.description = format!("Does {name}.");
            tool.input_schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
            Arc::new(tool)
        };
        vec![Catalog {
            backend: "native".to_owned(),
            kind: "native".to_owned(),
            naming: Prefix::Skill,
            tools: vec![tool("read"), tool("execute")],
        }]
    }

    fn settings() -> CompileSettings {
        CompileSettings::new(RepairTarget::new("anthropic", "claude-sonnet-4-5"))
    }

    fn body(request: &ModelRequest) -> Value {
        serde_json::from_slice(&encode(request).body).unwrap()
    }

    #[test]
    fn system_blocks_stand_in_one_order_and_empty_ones_are_left_out() {
        let table = RoutingTable::default();
        let full = CompileSettings {
            persona: Some("You are careful.".to_owned()),
            working_dir: Some("/data".to_owned()),
            skills_prompt: "Skills.".to_owned(),
            notes: vec!["Two places.".to_owned(), " ".to_owned()],
            memory: Map::from_iter([("memory_text".to_owned(), "Ada is in Oslo.".into())]),
            ..settings()
        };
        assert_eq!(
            compile(&[], &table, &full).system,
            [
                "You are careful.",
                "What you remember from before this conversation:\n\nAda is in Oslo.\n",
                "The session's working directory is /data. Relative paths start there.",
                "Skills.",
                "Two places.",
            ]
        );
        assert_eq!(compile(&[], &table, &settings()).system, [] as [&str; 0]);
    }

    #[test]
    fn a_compacted_log_begins_with_its_summary() {
        let mut entries = log(vec![
            said(Message::user("old")),
            said(Message::assistant("old answer")),
            said(Message::user("new")),
            EntryBody::Compacted {
                upto: 3,
                summary: "They spoke.".to_owned(),
                meta: None,
            },
        ]);
        for entry in &mut entries[2..] {
            entry.turn = 2;
        }
        let request = compile(&entries, &RoutingTable::default(), &settings());
        assert_eq!(
            request.messages.messages(),
            [Message::new(
                Role::User,
                vec![
                    Part::text("[summary of the conversation so far]\nThey spoke."),
                    Part::text("new"),
                ]
            )]
        );
    }

    #[test]
    fn h16_the_tools_are_byte_identical_for_as_long_as_the_tables_version_is() {
        let first = RoutingTable::build(1, &catalogs(), &Naming::default()).unwrap();
        let (same, _) = first.update(&catalogs(), &Naming::default());
        assert_eq!(same.version(), first.version());
        let rebuilt = RoutingTable::build(1, &catalogs(), &Naming::default()).unwrap();
        let mut entries = vec![said(Message::user("q"))];
        let sent = |table: &RoutingTable, entries: &[EntryBody]| {
            body(&compile(&log(entries.to_vec()), table, &settings()))["tools"].to_string()
        };
        let tools = sent(&first, &entries);
        assert!(tools.contains("log-fetcher_execute"), "{tools}");
        entries.extend(round("1"));
        assert_eq!(sent(&same, &entries), tools);
        assert_eq!(sent(&rebuilt, &entries), tools);
    }

    #[test]
    fn the_request_of_a_later_step_begins_like_the_one_before() {
        let table = RoutingTable::build(1, &catalogs(), &Naming::default()).unwrap();
        let mut entries = vec![said(Message::user("q"))];
        let mut before: Vec<Value> = Vec::new();
        for step in 0..6 {
            let body = body(&compile(&log(entries.clone()), &table, &settings()));
            let mut messages = body["messages"].as_array().unwrap().clone();
            for block in messages
                .iter_mut()
                .flat_map(|message| message["content"].as_array_mut().unwrap())
            {
                block.as_object_mut().unwrap().shift_remove("cache_control");
            }
            assert!(messages.starts_with(&before), "step {step}");
            before = messages;
            entries.extend(round(&format!("call_{step}")));
        }
        assert_eq!(before.len(), 11);
    }
}
