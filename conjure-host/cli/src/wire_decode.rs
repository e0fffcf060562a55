//! `conjure wire decode`: from a recorded reply to what it means.

use std::io::Read as _;
use std::path::PathBuf;

use conjure_core::chat::{Content, Part, Stop, StreamEvent, Usage};
use conjure_core::wire::{Decoded, WireError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::wire::{WireEndpointArgs, input, unreadable};

pub(crate) const AFTER: &str = "The object has: `parts` (canonical), `tool_calls` (`id`, `name`, and `arguments` or, when the model
wrote no JSON object, a whole number that 64 bits do not hold, or was cut off, `arguments_text`),
`text`, `reasoning`, `stop_reason` (the provider's word), `stop`, `usage`, `complete`, `events`,
`error`, and `id`, `model`, `fields` of the reply. conjure-host/docs/wires.md has the schema.

Exit code: 0 when the input was read, whatever it says; 2 when there is none.

Examples:
  conjure wire decode --wire anthropic reply.sse
  curl -sN … | conjure wire decode --wire openai-chat --provider deepseek | jq .tool_calls
  conjure wire decode --wire gemini --status 429 error.json";

#[derive(clap::Args)]
pub(crate) struct WireDecodeArgs {
    #[command(flatten)]
    whose: WireEndpointArgs,
    /// The HTTP status of the reply; one that is no success makes the body an error
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        hide_default_value = true
    )]
    status: u16,
    /// The body; `-` or nothing reads it from stdin
    file: Option<PathBuf>,
}

/// The output of the verb.
#[derive(Serialize)]
struct DecodeReport {
    id: Option<String>,
    model: Option<String>,
    parts: Vec<Part>,
    tool_calls: Vec<DecodedCall>,
    text: String,
    reasoning: String,
    stop_reason: Option<String>,
    stop: Option<Stop>,
    usage: Usage,
    fields: Map<String, Value>,
    complete: bool,
    events: Vec<StreamEvent>,
    error: Option<DecodeProblem>,
}

#[derive(Serialize)]
struct DecodedCall {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_text: Option<String>,
}

#[derive(Serialize)]
struct DecodeProblem {
    kind: String,
    message: String,
    retryable: bool,
}

impl From<WireError> for DecodeProblem {
    fn from(error: WireError) -> Self {
        Self {
            kind: error.kind,
            message: error.message,
            retryable: error.retryable,
        }
    }
}

/// Bytes of an error's body that are looked at.
const ERROR_BYTES: u64 = 1024 * 1024;

pub(crate) fn run(args: &WireDecodeArgs) -> Result<Exit, CliError> {
    let endpoint = args.whose.endpoint(None, None)?;
    let wire = args.whose.wire;
    let mut body = input(args.file.as_ref())?;
    let mut events = Vec::new();
    let decoded = if (200..300).contains(&args.status) {
        let mut decoder = wire.decoder(&endpoint);
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = match body.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(error)),
            };
            decoder.push(piece.get(..read).unwrap_or_default(), &mut events);
        }
        decoder.finish(&mut events)
    } else {
        let mut bytes = Vec::new();
        body.take(ERROR_BYTES)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        Decoded {
            error: Some(wire.error(&endpoint, args.status, &[], &bytes)),
            ..Decoded::default()
        }
    };
    output::json(&report(decoded, events));
    Ok(Exit::Success)
}

fn report(decoded: Decoded, events: Vec<StreamEvent>) -> DecodeReport {
    let Decoded { response, error } = decoded;
    let calls = response.parts.iter().filter_map(Part::as_call);
    let tool_calls = calls
        .map(|call| DecodedCall {
            id: call.call_id.clone(),
            name: call.name.clone(),
            arguments: call
                .arguments_text
                .is_none()
                .then(|| call.arguments.clone()),
            arguments_text: call.arguments_text.clone(),
        })
        .collect();
    let thoughts = response
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            Content::Reasoning { text } => Some(text.as_str()),
            _ => None,
        });
    DecodeReport {
        tool_calls,
        text: response.parts.iter().filter_map(Part::as_text).collect(),
        reasoning: thoughts.collect(),
        stop_reason: response.stop.as_ref().map(|stop| stop.raw.clone()),
        id: response.id,
        model: Some(response.model).filter(|model| !model.is_empty()),
        parts: response.parts,
        stop: response.stop,
        usage: response.usage,
        fields: response.fields,
        complete: response.complete,
        events,
        error: error.map(DecodeProblem::from),
    }
}
