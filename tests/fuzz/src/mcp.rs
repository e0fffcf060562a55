//! Messages of an MCP server, as the backend reads them, taken from its source.

use conjure_core::wire::sse::SseDecoder;

use crate::skim::Skim;
use crate::wire;

/// A line, or the data of an event, is messages or is counted; what was read can be written, and is
/// read again as the same.
pub fn messages(input: &[u8]) {
    line(input);
    let mut events = Vec::new();
    if SseDecoder::default().push(input, &mut events).is_ok() {
        for event in events {
            line(event.data.as_bytes());
        }
    }
    // Of a message that is too long only the id is looked for, however it comes.
    let mut whole = Skim::default();
    whole.feed(input);
    let mut bytes = Skim::default();
    for byte in input.chunks(1) {
        bytes.feed(byte);
    }
    assert_eq!(whole.answered_request(), bytes.answered_request());
}

fn line(bytes: &[u8]) {
    let read = wire::read(bytes);
    assert!(
        read.messages.len() + read.skipped <= bytes.len(),
        "more messages than bytes"
    );
    for message in &read.messages {
        let Ok(written) = serde_json::to_vec(message) else {
            panic!("a message that cannot be written");
        };
        let again = wire::read(&written);
        assert!(
            again.messages.len() <= 1,
            "one message that is read as several"
        );
    }
}
