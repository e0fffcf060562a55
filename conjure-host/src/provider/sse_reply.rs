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
        let (body, cut) = read_bounded(reply, BODY_BYTES, timeouts).await;
        let mut decoded = decode_body(&body);
        if let Some(cut) = &cut
            && !decoded.response.complete
        {
            decoded.error = Some(broke_off(cut));
        }
        return decoded;
    }
    let mut events = Vec::new();
    let mut wait = timeouts.first_byte;
    let mut total = 0;
    let cut = loop {
        let piece = match next_piece(&mut reply, wait).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break None,
            Err(cut) => break Some(cut),
        };
        total += piece.len();
        if total > STREAM_BYTES {
            break Some(Cut {
                kind: "protocol",
                reason: format!("the reply has more than {STREAM_BYTES} bytes"),
            });
        }
        wait = timeouts.idle;
        decoder.push(&piece, &mut events);
        show(&mut events, sink);
    };
    let mut decoded = decoder.finish(&mut events);
    show(&mut events, sink);
    if let Some(cut) = &cut
        && !decoded.response.complete
    {
        decoded.error = Some(broke_off(cut));
    }
    decoded
}

/// Why a body ended before its end.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut {
    kind: &'static str,
    reason: String,
}

/// Reads at most so many bytes of a body, as far as it comes in time.
pub(crate) async fn read_bounded(
    mut reply: reqwest::Response,
    most: usize,
    timeouts: &Timeouts,
) -> (Vec<u8>, Option<Cut>) {
    let mut body = Vec::new();
    let mut wait = timeouts.first_byte;
    while body.len() < most {
        let piece = match next_piece(&mut reply, wait).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(cut) => return (body, Some(cut)),
        };
        wait = timeouts.idle;
        let room = most.saturating_sub(body.len());
        body.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
    }
    (body, None)
}

/// The next piece of a body; nothing at its end.
async fn next_piece(
    reply: &mut reqwest::Response,
    wait: Duration,
) -> Result<Option<bytes::Bytes>, Cut> {
    match tokio::time::timeout(wait, reply.chunk()).await {
        Ok(Ok(piece)) => Ok(piece),
        Ok(Err(error)) => Err(Cut {
            kind: "cut",
            reason: format!("the connection broke: {error}"),
        }),
        Err(_) => Err(Cut {
            kind: "timeout",
            reason: format!("nothing came for {} s", wait.as_secs_f32()),
        }),
    }
}

fn broke_off(cut: &Cut) -> WireError {
    WireError {
        kind: cut.kind.to_owned(),
        message: format!("The reply broke off: {}. What came is kept.", cut.reason),
        retryable: false,
    }
}

fn show(events: &mut Vec<StreamEvent>, sink: &ReplySink) {
    for event in events.drain(..) {
        sink.push(event);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers with a head that promises 100 bytes, and one byte; then nothing, for ever.
    async fn stalls(status: &'static str) -> reqwest::Response {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 100\r\n\r\n{{");
            stream.write_all(head.as_bytes()).await.unwrap();
            // Until the client goes.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        reqwest::get(format!("http://{address}/")).await.unwrap()
    }

    const QUICK: Timeouts = Timeouts {
        first_byte: Duration::from_secs(30),
        idle: Duration::from_millis(20),
    };

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up_with_what_came_of_it() {
        let reply = stalls("400 Bad Request").await;
        let read = read_bounded(reply, 1000, &QUICK);
        let (body, cut) = tokio::time::timeout(Duration::from_secs(30), read)
            .await
            .expect("it is waited for without end");
        assert_eq!(body, b"{");
        assert_eq!(cut.map(|cut| cut.kind), Some("timeout"));
    }

    #[tokio::test]
    async fn a_reply_that_stalls_says_that_it_did() {
        use conjure_core::wire::anthropic as wire;
        let reply = stalls("200 OK").await;
        let sink = ReplySink::new(|_| {}, |_| {});
        let decoded = read(reply, wire::decoder(), wire::decode_body, &sink, &QUICK).await;
        let error = decoded.error.unwrap();
        assert_eq!(error.kind, "timeout", "{error:?}");
    }
}
