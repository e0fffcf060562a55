//! What must hold for every input of a reader, whatever it is.
//!
//! The targets only say which reader; a broken promise is a panic, which is what a fuzzer looks for.

pub mod abi;
pub mod host;
pub mod mcp;
pub mod transfer;

// The store's readers of a thread's file, taken by their own sources in `transfer.rs`, say
// `crate::Record`.
use transfer::Record;

// Readers of the MCP backend, by their own sources: instrumented, the whole plugin takes minutes to
// build.
#[path = "../../../plugins/backend-mcp/src/readable_text.rs"]
mod readable_text;
#[path = "../../../plugins/backend-mcp/src/skim.rs"]
mod skim;
#[allow(dead_code, reason = "messages are only read here")]
#[path = "../../../plugins/backend-mcp/src/wire.rs"]
mod wire;
// The host's look at a PDF, by its own source.
#[path = "../../../conjure-host/runtime/src/artifacts/pdf.rs"]
mod encryption;

use conjure_core::chat::StreamEvent;
use conjure_core::skill_folder::{SkillFolder, validate_strict};
use conjure_core::wire::sse::{SseDecoder, SseEvent};
use conjure_core::wire::{Decoded, Endpoint, Wire};
use conjure_skill_sdk::frames::{Decoder, Frame, FrameError, Message};

/// Bytes of events that one byte of input may become: escapes and items that are told twice.
const MOST_GROWTH: usize = 16;

/// What an empty input may become.
const LEAST: usize = 4_096;

/// A configuration of another program is read or refused, and what was read can be written.
pub fn mcp_import(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(import) = conjure_import::read(text)
    {
        let _ = import.settings();
        assert!(import.names().count() <= text.len());
    }
}

/// The manifest of an MCP bundle is read or refused, whatever the archive is; what was read can be
/// written.
pub fn mcp_bundle(input: &[u8]) {
    match conjure_import::read_bundle(input, "/opt/bundle") {
        Ok(import) => {
            let _ = import.settings();
            assert!(import.names().count() <= 1);
        }
        Err(why) => assert!(!why.is_empty(), "refused without a reason"),
    }
}

/// Only a PDF is an encrypted one, and only where it says so.
pub fn pdf(input: &[u8]) {
    let says = |word: &[u8]| input.windows(word.len()).any(|window| window == word);
    if encryption::is_encrypted_pdf(input) {
        assert!(input.starts_with(b"%PDF-") && says(b"/Encrypt"));
    }
}

/// Splits an input into where the body is cut and the body: the first two bytes say where.
fn parts(input: &[u8]) -> (usize, &[u8]) {
    let (at, body) = match input {
        [high, low, body @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), body),
        short => (0, short),
    };
    (at % (body.len() + 1), body)
}

/// The body decoded by a wire is the same whole, cut in two and byte by byte, and is no more than
/// what came.
pub fn wire(wire: Wire, input: &[u8]) {
    let (at, body) = parts(input);
    let (first, second) = body.split_at(at);
    let whole = decode(wire, &[body]);
    assert_eq!(decode(wire, &[first, second]), whole, "{wire}: cut at {at}");
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(decode(wire, &bytes), whole, "{wire}: byte by byte");
    let most = LEAST + MOST_GROWTH * body.len();
    assert!(
        size(&whole.1) <= most,
        "{wire}: events of {} bytes",
        size(&whole.1)
    );
    let (response, error) = (&whole.0.response, &whole.0.error);
    assert!(
        !(response.complete && error.as_ref().is_some_and(|error| error.kind == "cut")),
        "{wire}: a reply that is whole and cut"
    );
    assert!(
        response.complete || error.is_some(),
        "{wire}: a part of a reply without a reason"
    );
    // As one JSON body, the promise is only that it ends.
    let _ = wire.decode_body(&endpoint(), body);
}

/// A `SKILL.md` of any bytes is a folder or has a reason, and what loads leniently is told the same
/// twice.
pub fn skill_md(input: &[u8]) {
    let parsed = SkillFolder::parse("a-skill", input);
    assert!(
        parsed.folder.is_some() || !parsed.diagnostics.is_empty(),
        "refused without a reason"
    );
    assert_eq!(SkillFolder::parse("a-skill", input), parsed);
    let _ = validate_strict("a-skill", input, &["scripts/a.sh"]);
}

/// The frames of a stream are the same whole, cut in two and byte by byte, and what is understood of
/// one is written as it came.
pub fn frames(input: &[u8]) {
    let (at, body) = parts(input);
    let (first, second) = body.split_at(at);
    let whole = framed(&[body]);
    assert_eq!(framed(&[first, second]), whole, "cut at {at}");
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(framed(&bytes), whole, "byte by byte");
    for frame in whole.0 {
        let call_id = frame.call_id;
        if let Ok(message) = Message::from_frame(frame.clone()) {
            assert_eq!(message.into_frame(call_id), frame);
        }
    }
}

fn framed(pieces: &[&[u8]]) -> (Vec<Frame>, Option<String>) {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(said(&error))),
            }
        }
    }
    let cut = decoder.finish().err().map(|error| said(&error));
    (frames, cut)
}

/// What an error says, without what depends on how much had come: the line that a program printed is
/// shown as far as it is there.
fn said(error: &FrameError) -> String {
    match error {
        FrameError::Text { .. } => "text".to_owned(),
        other => other.to_string(),
    }
}

/// The events of a stream are the same whole, cut in two and byte by byte, and hold no more text
/// than what came.
pub fn sse(input: &[u8]) {
    let (at, body) = parts(input);
    let (first, second) = body.split_at(at);
    let whole = sse_events(&[body]);
    assert_eq!(sse_events(&[first, second]), whole, "cut at {at}");
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(sse_events(&bytes), whole, "byte by byte");
    let text: usize = whole.iter().map(|event| event.data.len()).sum();
    // What is not UTF-8 becomes a character of three bytes.
    assert!(text <= 3 * body.len(), "{text} bytes out of {}", body.len());
    let mut small = SseDecoder::new(64);
    let mut events = Vec::new();
    let failed = small.push(body, &mut events).is_err();
    assert_eq!(
        small.push(b"", &mut events).is_err(),
        failed,
        "a failure is for good"
    );
    assert!(
        events.iter().all(|event| event.data.len() <= 3 * 64),
        "a limit that is none"
    );
}

fn sse_events(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::default();
    let mut events = Vec::new();
    for piece in pieces {
        let pushed = decoder.push(piece, &mut events);
        assert_eq!(pushed, Ok(()), "an input that is smaller than the limit");
    }
    events.extend(decoder.finish());
    events
}

fn decode(wire: Wire, pieces: &[&[u8]]) -> (Decoded, Vec<StreamEvent>) {
    let mut decoder = wire.decoder(&endpoint());
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events);
    }
    let decoded = decoder.finish(&mut events);
    (decoded, events)
}

fn endpoint() -> Endpoint {
    Endpoint::new("fuzzed").with_model("model-1")
}

/// Bytes of the texts that are handed on.
fn size(events: &[StreamEvent]) -> usize {
    let sizes = events.iter().map(|event| match event {
        StreamEvent::Thinking { delta } | StreamEvent::Content { delta } => delta.len(),
        StreamEvent::CallStarted { call_id, name } => call_id.len() + name.len(),
        StreamEvent::Call { call_id } => call_id.len(),
        StreamEvent::ServerItem { item } => item.to_string().len(),
        StreamEvent::Usage(_) => 0,
    });
    sizes.sum()
}
