//! A message of the model: its blocks, its stop reason, its usage, and how a stream tells it.
//!
//! A [`Message`] becomes an event stream or one JSON object as the request asks, on any of the
//! wires. Its words are Anthropic's; how each wire says them is the wire's affair.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::delivery::Part;
use crate::dialect::Dialect;
use crate::fault::Faults;
use crate::request::Request;
use crate::wire::Wire;

/// A message of the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Message {
    /// The message's id; default: one in the wire's grammar, made from the request.
    pub id: Option<String>,
    /// The model named in the answer; default: the one that was asked for.
    pub model: Option<String>,
    /// The blocks, in order. May be empty.
    pub content: Vec<Block>,
    /// Anthropic's word; default: `tool_use` when there is a tool call, else `end_turn`. The other
    /// wires tell their own word for it, and any text they do not know as it is.
    pub stop_reason: Option<String>,
    /// The sequence that matched, with `stop_reason: "stop_sequence"` (Anthropic).
    pub stop_sequence: Option<String>,
    /// The provider's details of a refusal (Anthropic).
    pub stop_details: Option<Value>,
    /// The hosted container: `{id, expires_at, skills}` (Anthropic).
    pub container: Option<Value>,
    /// Tokens, at the start and at the end.
    pub usage: Usage,
    /// More fields of the message object.
    pub extra: Map<String, Value>,
    /// Characters in a delta of text or thinking (default 16; at least 1).
    pub text_delta: usize,
    /// Characters in a delta of a tool's input (default 10; at least 1).
    pub json_delta: usize,
    /// The finished content and stop reason stand inside the first event, and no block events
    /// follow: what programmatic tool calling looks like (Anthropic; the other wires ignore it).
    pub prefilled: bool,
    /// How the server differs from others of its wire.
    pub dialect: Dialect,
    /// What goes wrong among the events.
    pub faults: Faults,
}

impl Default for Message {
    fn default() -> Self {
        Self {
            id: None,
            model: None,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            stop_details: None,
            container: None,
            usage: Usage::default(),
            extra: Map::new(),
            text_delta: 16,
            json_delta: 10,
            prefilled: false,
            dialect: Dialect::default(),
            faults: Faults::default(),
        }
    }
}

impl Message {
    /// An empty message that ends its turn.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any block.
    #[must_use]
    pub fn block(mut self, block: Block) -> Self {
        self.content.push(block);
        self
    }

    /// Adds a text block.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(Block::Text { text: text.into() })
    }

    /// Adds thinking that the mock signs, in the grammar of the wire and for the model that is asked.
    #[must_use]
    pub fn reasoning(self, thinking: impl Into<String>) -> Self {
        self.thinking(thinking, "")
    }

    /// Adds encrypted thinking that the mock makes.
    #[must_use]
    pub fn redacted_reasoning(self) -> Self {
        self.block(Block::RedactedThinking {
            data: String::new(),
        })
    }

    /// Adds a thinking block with its signature.
    #[must_use]
    pub fn thinking(self, thinking: impl Into<String>, signature: impl Into<String>) -> Self {
        self.block(Block::Thinking {
            thinking: thinking.into(),
            signature: signature.into(),
        })
    }

    /// Adds a call of a client's tool.
    #[must_use]
    pub fn tool_use(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.block(Block::ToolUse(ToolBlock::new(id, name, input)))
    }

    /// Adds a call of a client's tool whose input is streamed as this text, which need not be JSON:
    /// a truncated or broken call.
    #[must_use]
    pub fn tool_use_text(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> Self {
        self.block(Block::ToolUse(ToolBlock {
            streamed_input: Some(input.into()),
            ..ToolBlock::new(id, name, json!({}))
        }))
    }

    /// Adds a call that the provider runs itself.
    #[must_use]
    pub fn server_tool_use(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        input: Value,
    ) -> Self {
        self.block(Block::ServerToolUse(ToolBlock::new(id, name, input)))
    }

    /// Adds a block of Anthropic's as it is; in a stream it arrives whole, with no deltas.
    #[must_use]
    pub fn raw_block(self, value: Value) -> Self {
        self.raw_on(Wire::Anthropic, value)
    }

    /// Adds a block, item or part of one wire as it is. The other wires leave it out.
    #[must_use]
    pub fn raw_on(self, wire: Wire, value: Value) -> Self {
        self.block(Block::Raw { value, wire })
    }

    /// Sets how the server differs from others of its wire.
    #[must_use]
    pub fn dialect(mut self, dialect: impl Into<Dialect>) -> Self {
        self.dialect = dialect.into();
        self
    }

    /// Sets the stop reason.
    #[must_use]
    pub fn stop_reason(mut self, reason: impl Into<String>) -> Self {
        self.stop_reason = Some(reason.into());
        self
    }

    /// Sets the usage.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the hosted container.
    #[must_use]
    pub fn container(mut self, container: Value) -> Self {
        self.container = Some(container);
        self
    }

    /// Sets how many characters a delta holds, of text and of a tool's input.
    #[must_use]
    pub fn deltas(mut self, characters: usize) -> Self {
        self.text_delta = characters;
        self.json_delta = characters;
        self
    }

    /// Puts the whole content into the first event.
    #[must_use]
    pub fn prefilled(mut self) -> Self {
        self.prefilled = true;
        self
    }

    /// Sets what goes wrong among the events.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// The body that answers this request with this message, as a server would write it: for tests
    /// without one. Of a bulk ([`crate::Bulk`]) each part stands there once.
    #[must_use]
    pub fn body(&self, request: &Request) -> Vec<u8> {
        let wire = request.wire().unwrap_or(Wire::Anthropic);
        let rendered = wire.message(self, request);
        rendered.body.iter().flat_map(Part::bytes).collect()
    }

    /// As it is written: with the mark of a bulk, if there is one.
    pub(crate) fn with_bulk_mark(&self) -> Self {
        let mut filled = self.clone();
        if let Some(bulk) = self.faults.bulk {
            bulk.mark(&mut filled);
        }
        filled
    }

    /// The stop reason that is sent, in Anthropic's words.
    #[must_use]
    pub fn effective_stop_reason(&self) -> &str {
        let calls = || {
            self.content
                .iter()
                .any(|block| matches!(block, Block::ToolUse(_)))
        };
        match &self.stop_reason {
            Some(reason) => reason,
            None if calls() => "tool_use",
            None => "end_turn",
        }
    }
}

/// A part of a message's content.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Block {
    /// Text of the answer.
    Text {
        /// The text; may be empty.
        text: String,
    },
    /// Thinking, shown.
    Thinking {
        /// The text.
        thinking: String,
        /// The provider's signature over it; empty: the mock makes one. On other wires than
        /// Anthropic's it stands where that wire has its signature.
        #[serde(default)]
        signature: String,
    },
    /// Thinking, encrypted.
    RedactedThinking {
        /// Opaque; empty: the mock makes it.
        #[serde(default)]
        data: String,
    },
    /// A call of a client's tool.
    ToolUse(ToolBlock),
    /// A call that the provider runs itself. Responses and Gemini tell it as code that ran; Chat, which
    /// has nothing of the kind, leaves it out.
    ServerToolUse(ToolBlock),
    /// A block as it is, on one wire only.
    Raw {
        /// The whole block, `type` included.
        value: Value,
        /// The wire (default: Anthropic's).
        #[serde(default = "anthropic")]
        wire: Wire,
    },
}

/// A tool call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ToolBlock {
    /// The call's id, which is also its name in a script: [`Wire::call_id`] says what each wire makes
    /// of it.
    pub id: String,
    /// The tool's public name.
    pub name: String,
    /// The arguments.
    #[serde(default = "empty_object")]
    pub input: Value,
    /// Caller of the tool; default `{"type": "direct"}`.
    #[serde(default = "direct_caller")]
    pub caller: Value,
    /// Text told instead of `input`, whether it is JSON or not. Where a wire has arguments as JSON
    /// (Anthropic without a stream, Gemini), `input` is sent, and of a text that is no JSON nothing.
    #[serde(default)]
    pub streamed_input: Option<String>,
}

impl ToolBlock {
    /// A direct call.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            input,
            caller: direct_caller(),
            streamed_input: None,
        }
    }
}

fn anthropic() -> Wire {
    Wire::Anthropic
}

fn empty_object() -> Value {
    json!({})
}

fn direct_caller() -> Value {
    json!({"type": "direct"})
}

/// Tokens. Input excludes what was read from or written to the cache; each wire adds up what it counts
/// together.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Uncached input, at the end (default 10).
    pub input_tokens: u64,
    /// Output, at the end (default 5).
    pub output_tokens: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache for five minutes.
    pub cache_write_5m: u64,
    /// Written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Output that was thinking, if it is to be told.
    pub thinking_tokens: Option<u64>,
    /// Input that the first event tells, where it differs from the end (a paused turn grows).
    pub input_at_start: Option<u64>,
    /// Tells usage in the last event only, as some gateways do.
    pub only_at_end: bool,
    /// More fields, told at the end (`server_tool_use`, `iterations`).
    pub extra: Map<String, Value>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            input_tokens: 10,
            output_tokens: 5,
            cache_read: 0,
            cache_write_5m: 0,
            cache_write_1h: 0,
            thinking_tokens: None,
            input_at_start: None,
            only_at_end: false,
            extra: Map::new(),
        }
    }
}

impl Usage {
    /// Written to the cache, for any time.
    pub(crate) fn cache_write(&self) -> u64 {
        self.cache_write_5m + self.cache_write_1h
    }
}
