//! `conjure wire encode`: from a conversation to the request that a provider would get.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use conjure_core::chat::Message;
use conjure_core::repair::{RepairTarget, repair};
use conjure_core::request::{
    Attachment, ModelRequest, OutputFormat, ProviderFragments, ToolChoice, ToolDefinition,
};
use conjure_core::wire::Wire;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::CliError;
use super::exit::Exit;
use super::output::{clean, line, print_note};
use super::wire::{WireEndpointArgs, input, unreadable};
use super::wire_explain::explain;

pub(crate) const AFTER: &str = "A conversation is a JSON array of canonical messages, or an object with `messages` and, as you like,
`provider`, `model`, `system`, `tools`, `tool_choice`, `max_tokens`, `thinking_tokens`,
`stop_sequences`, `response_format`, `contribution`, `attachments`, `stream`.
conjure-host/docs/wires.md has the schema.

With `--explain`, stderr says what was recast, left out or added and why, a line each.

Examples:
  conjure wire encode --wire openai-responses --model gpt-5 chat.json
  echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | conjure wire encode --wire gemini --model gemini-2.5-pro
  conjure wire encode --wire anthropic --model claude-sonnet-4-5 --explain chat.json >/dev/null";

#[derive(clap::Args)]
pub(crate) struct WireEncodeArgs {
    #[command(flatten)]
    whose: WireEndpointArgs,
    /// Say on stderr what was recast, left out or added, and why
    #[arg(long)]
    explain: bool,
    /// The conversation; `-` or nothing reads it from stdin
    file: Option<PathBuf>,
}

/// The input file: a conversation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConversationInput {
    provider: Option<String>,
    model: Option<String>,
    #[serde(default)]
    system: Texts,
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<ToolDefinition>,
    #[serde(default)]
    tool_choice: ToolChoice,
    max_tokens: Option<u32>,
    thinking_tokens: Option<u32>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    response_format: Option<OutputFormat>,
    #[serde(default)]
    contribution: ProviderFragments,
    #[serde(default)]
    attachments: BTreeMap<String, Attachment>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Default for Texts {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// The most bytes of a conversation.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

pub(crate) fn run(args: &WireEncodeArgs) -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    input(args.file.as_ref())?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let chat = read(&bytes)?;
    let endpoint = args
        .whose
        .endpoint(chat.provider.as_deref(), chat.model.as_deref())?;
    let wire = args.whose.wire;
    let model = endpoint
        .model
        .clone()
        .unwrap_or_else(|| newest_model(&chat));
    let mut target = RepairTarget::new(&endpoint.provider, &model).with_wire(wire);
    if wire == Wire::OpenaiChat {
        target.images = endpoint.dialect.images;
        target.files = endpoint.dialect.files;
    }
    let before = chat.messages;
    let empty = ModelRequest::empty(&target);
    let request = ModelRequest {
        messages: repair(before.clone(), &target),
        system: match chat.system {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        },
        tools: chat.tools,
        tool_choice: chat.tool_choice,
        max_tokens: chat.max_tokens.unwrap_or(empty.max_tokens),
        thinking_tokens: chat.thinking_tokens,
        stop_sequences: chat.stop_sequences,
        response_format: chat.response_format,
        contribution: chat.contribution,
        attachments: chat.attachments,
        stream: chat.stream.unwrap_or(empty.stream),
        ..empty
    };
    let encoded = wire.encode(&request, &endpoint.with_model(&model));
    line(String::from_utf8_lossy(&encoded.body));
    if args.explain {
        print_note(format_args!("POST …/{}", wire.resource(&request)));
        for (name, value) in &encoded.headers {
            print_note(format_args!("{name}: {value}"));
        }
        let said = explain(&before, request.messages.messages(), &target, &encoded);
        if said.is_empty() {
            print_note("Nothing was recast, left out or added.");
        }
        for text in said {
            print_note(clean(&text));
        }
    }
    Ok(Exit::Success)
}

/// Reads a conversation: an object, or its messages alone; a message's content may be one text.
fn read(bytes: &[u8]) -> Result<ConversationInput, CliError> {
    let wrong = |error: serde_json::Error| {
        CliError::usage_from(error)
            .context("the input is no conversation")
            .hint("conjure-host/docs/wires.md says what one is")
    };
    let mut value: Value = serde_json::from_slice(bytes).map_err(wrong)?;
    if value.is_array() {
        value = json!({ "messages": value });
    }
    let messages = value.get_mut("messages").and_then(Value::as_array_mut);
    for content in messages
        .into_iter()
        .flatten()
        .filter_map(|m| m.get_mut("content"))
    {
        if let Value::String(text) = content {
            *content = json!([{ "type": "text", "text": std::mem::take(text) }]);
        }
    }
    serde_json::from_value(value).map_err(wrong)
}

/// The model that answered last; without one, a word that stands for it.
fn newest_model(chat: &ConversationInput) -> String {
    let metas = chat.messages.iter().rev().filter_map(|m| m.meta.as_ref());
    let mut models = metas.map(|meta| meta.model.clone());
    models
        .find(|model| !model.is_empty())
        .unwrap_or_else(|| "MODEL".to_owned())
}
