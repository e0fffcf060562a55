//! Reads the body of a reply into a decoder, as it comes.

use std::time::Duration;

use conjure_core::chat::StreamEvent;
use conjure_core::wire::{Decoded, Decoder, WireError};

use super::ReplySink;

/// Bytes of a reply that is not a stream.
const BODY_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of a stream: more than any model says, and a bound for a server that never ends.
const STREAM_BYTES: usize = 256 * 1024 * 1024;

/// How long to wait for what.
pub(crate) struct Timeouts {
    /// For the first piece of the body.
    pub(crate) first_byte: Duration,
    /// For each piece after that.
    pub(crate) idle: Duration,
}

/// Reads a reply: as a stream when its type says so, else as one body.
pub(crate) async fn read(
    mut reply: reqwest::Response,
    mut decoder: impl Decoder,
    decode_body: impl Fn(&[u8]) -> Decoded,
    sink: &ReplySink,
    timeouts: &Timeouts,
) -> Decoded {
    let is_stream = reply
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("text/event-stream"));
    if !is_stream {
        let body = read_bounded(reply, BODY_BYTES).await;
        return decode_body(&body);
    }
    let mut events = Vec::new();
    let mut wait = timeouts.first_byte;
    let mut total = 0;
    let cut = loop {
        let piece = match tokio::time::timeout(wait, reply.chunk()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => break None,
            Ok(Err(error)) => break Some(("cut", format!("the connection broke: {error}"))),
            Err(_) => break Some(("timeout", format!("nothing came for {} s", wait.as_secs()))),
        };
        total += piece.len();
        if total > STREAM_BYTES {
            break Some((
                "protocol",
                format!("the reply has more than {STREAM_BYTES} bytes"),
            ));
        }
        wait = timeouts.idle;
        decoder.push(&piece, &mut events);
        show(&mut events, sink);
    };
    let mut decoded = decoder.finish(&mut events);
    show(&mut events, sink);
    if let Some((kind, reason)) = cut
        && !decoded.response.complete
    {
        decoded.error = Some(WireError {
            kind: kind.to_owned(),
            message: format!("The reply broke off: {reason}. What came is kept."),
            retryable: false,
        });
    }
    decoded
}

/// Reads at most so many bytes of a body, as far as it comes.
pub(crate) async fn read_bounded(mut reply: reqwest::Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = reply.chunk().await {
        let room = most.saturating_sub(body.len());
        body.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        if body.len() >= most {
            break;
        }
    }
    body
}

fn show(events: &mut Vec<StreamEvent>, sink: &ReplySink) {
    for event in events.drain(..) {
        sink.push(event);
    }
}
