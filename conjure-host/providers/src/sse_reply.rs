//! Reads the body of a reply into a decoder, as it comes, within bounds of time and size.

use std::ops::ControlFlow;
use std::time::Duration;

use conjure_core::chat::StreamEvent;
use conjure_core::wire::{Decoded, REPLY_CUT, REPLY_UNREADABLE, ReplyDecoder, WireError};
use tokio::time::Instant;

use super::ReplySink;
use super::piece_deadline::PieceDeadline;
use super::read_pace::{ReadBatch, ReadPace};
use super::reply_size::{self, ReplyBudget};
use super::reply_thread::result_of;

/// How long to wait for what, and how much to take.
pub(crate) struct ReplyBounds {
    /// Time for the first piece of the body.
    pub(crate) first_byte: Duration,
    /// Time for each piece after that.
    pub(crate) idle: Duration,
    /// Time for the whole body.
    pub(crate) total: Duration,
    /// Bytes of the body.
    pub(crate) bytes: usize,
}

/// Reads a reply, whether it streams or is one JSON body: the decoder tells.
///
/// A reply that is longer than a session takes is cut, with a notice. When the connection breaks or
/// falls silent before any output, also while a call was being written, the error may be tried again.
pub(crate) async fn read(
    mut reply: reqwest::Response,
    mut decoder: Box<dyn ReplyDecoder>,
    sink: &ReplySink,
    bounds: &ReplyBounds,
) -> Decoded {
    let end = deadline_after(bounds.total);
    let mut deadline = PieceDeadline::new();
    let mut events = Vec::new();
    let mut room = ReplyBudget::default();
    let mut pace = ReadPace::new(sink.ticks());
    let mut wait = bounds.first_byte;
    let mut total = 0;
    let cut = loop {
        let mut batch = pace.wait_for_batch(end).await;
        let mut next = next_piece(&mut reply, &mut deadline, wait, end).await;
        let read = loop {
            let piece = match next {
                Ok(Some(piece)) => piece,
                Ok(None) => break ControlFlow::Break(None),
                Err(cut) => break ControlFlow::Break(Some(cut)),
            };
            total += piece.len();
            if total > bounds.bytes {
                break ControlFlow::Break(Some(too_large(bounds.bytes)));
            }
            decoder.push(&piece, &mut events);
            if !batch.as_mut().is_some_and(ReadBatch::add_piece) {
                break ControlFlow::Continue(());
            }
            next = match ready_piece(&mut reply).await {
                Some(next) => next,
                None => break ControlFlow::Continue(()),
            };
        };
        push_fitting(&mut events, sink, &mut room, batch.is_some());
        match read {
            ControlFlow::Break(None) => break None,
            // What came before the connection broke was too much already.
            _ if room.is_exhausted() => break Some(too_long()),
            ControlFlow::Break(cut) => break cut,
            ControlFlow::Continue(()) => {}
        }
        wait = bounds.idle;
        pace.record(batch);
    };
    // What is behind it is not waited for, and takes no room meanwhile.
    drop(reply);
    let finish = move || {
        let mut decoded = decoder.finish(&mut events);
        let is_cut = reply_size::cut(&mut decoded.response);
        (decoded, is_cut, events)
    };
    let finished = match total > LARGE_REPLY_BYTES {
        // The thread reads other replies, too.
        true => result_of(tokio::task::spawn_blocking(finish)).await,
        false => finish(),
    };
    let (mut decoded, is_cut, mut events) = finished;
    push_fitting(&mut events, sink, &mut room, false);
    let of_decoder = decoded.error.as_ref().and_then(|error| {
        let reason = (error.kind == TOO_LARGE).then(|| error.message.clone());
        reason.map(|reason| BodyCut {
            kind: TOO_LARGE,
            reason,
            is_transient: false,
        })
    });
    if let Some(error) = &mut decoded.error {
        // A provider's own words, which become an event and an entry.
        reply_size::clip(&mut error.message, MAX_ERROR_BYTES);
    }
    let cut = of_decoder.or(cut).or_else(|| is_cut.then(too_long));
    if let Some(cut) = cut {
        apply_cut(&cut, is_cut, &mut decoded, sink);
    }
    decoded
}

/// Makes of what was read until a cut what is told of it. `is_cut`: some of it was left out.
fn apply_cut(cut: &BodyCut, is_cut: bool, decoded: &mut Decoded, sink: &ReplySink) {
    // A body without end in which nothing stands is no reply that could be kept.
    let is_kept = !decoded.response.parts.is_empty();
    if cut.kind == TOO_LARGE && (is_cut || is_kept) {
        sink.notice(format!(
            "The reply is cut: {}. What came is kept; say something to go on.",
            cut.reason
        ));
        reply_size::mark_cut(&mut decoded.response);
        decoded.error = None;
        return;
    }
    // A provider's own error says more than that the end is missing.
    let is_missing = !decoded.response.complete || cut.kind == TOO_LARGE;
    if is_missing && !is_of_provider(decoded.error.as_ref()) {
        let begun = sink.has_begun() || may_have_run(decoded.error.as_ref());
        decoded.error = Some(cut_error(cut, begun, is_kept));
    }
}

/// Whether an error is what the provider said itself. It knows whether a tool of the provider's had
/// run, and so whether the request may be made again.
fn is_of_provider(found: Option<&WireError>) -> bool {
    found.is_some_and(|found| {
        !matches!(
            found.kind.as_str(),
            REPLY_CUT | TOO_LARGE | REPLY_UNREADABLE
        )
    })
}

/// Whether a tool of the provider's own may have run of which nothing was shown: the decoder knows of
/// one, or could not read all that came. Asked again, the provider would run it twice.
fn may_have_run(found: Option<&WireError>) -> bool {
    found.is_some_and(|found| {
        matches!(found.kind.as_str(), REPLY_CUT | REPLY_UNREADABLE) && !found.retryable
    })
}

/// The kind of a reply that has too many bytes: an error also when it has said that it is whole.
const TOO_LARGE: &str = conjure_core::wire::REPLY_TOO_LARGE;

/// Bytes of a reply whose end takes long enough to be left to another thread.
const LARGE_REPLY_BYTES: usize = 256 * 1024;

/// The most bytes of an error's message.
const MAX_ERROR_BYTES: usize = 16 * 1024;

fn too_large(bytes: usize) -> BodyCut {
    BodyCut {
        kind: TOO_LARGE,
        reason: format!(
            "it has more than {bytes} bytes, and a session takes no more (`max_reply_bytes`)"
        ),
        is_transient: false,
    }
}

fn too_long() -> BodyCut {
    BodyCut {
        kind: TOO_LARGE,
        reason: format!(
            "it has more than {} MiB of text, calls and what belongs to them, and a session takes \
             no more",
            reply_size::MAX_REPLY_BYTES / 1024 / 1024
        ),
        is_transient: false,
    }
}

/// Why a body ended before its end.
#[derive(Debug, PartialEq)]
pub(crate) struct BodyCut {
    kind: &'static str,
    pub(super) reason: String,
    /// Whether it is the connection's fault, so that another may do better.
    is_transient: bool,
}

/// Reads at most so many bytes of a body, as far as it comes in time; what is behind them is left.
pub(crate) async fn read_bounded(
    mut reply: reqwest::Response,
    bounds: &ReplyBounds,
) -> (Vec<u8>, Option<BodyCut>) {
    let end = deadline_after(bounds.total);
    let mut deadline = PieceDeadline::new();
    let mut body = Vec::new();
    let mut wait = bounds.first_byte;
    while body.len() < bounds.bytes {
        let piece = match next_piece(&mut reply, &mut deadline, wait, end).await {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(cut) => return (body, Some(cut)),
        };
        wait = bounds.idle;
        let room = bounds.bytes.saturating_sub(body.len());
        body.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
    }
    (body, None)
}

/// The next piece of a body; nothing at its end.
async fn next_piece(
    reply: &mut reqwest::Response,
    deadline: &mut PieceDeadline,
    wait: Duration,
    end: Instant,
) -> Result<Option<bytes::Bytes>, BodyCut> {
    let idle = deadline_after(wait);
    match deadline.until(idle.min(end), reply.chunk()).await {
        Some(piece) => piece.map_err(|error| connection_error(&error)),
        None if idle > end => Err(too_slow()),
        None => Err(BodyCut {
            kind: "timeout",
            reason: format!("nothing came for {} s", wait.as_secs_f32()),
            is_transient: true,
        }),
    }
}

/// What is next in a body where it has come already.
async fn ready_piece(
    reply: &mut reqwest::Response,
) -> Option<Result<Option<bytes::Bytes>, BodyCut>> {
    /// How often the connection, which is another task, may take its turn meanwhile.
    const TURNS: usize = 3;
    let turns = async {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        piece = reply.chunk() => Some(piece.map_err(|error| connection_error(&error))),
        () = turns => None,
    }
}

fn too_slow() -> BodyCut {
    BodyCut {
        kind: "timeout",
        reason: "it did not end in the time that a reply has".to_owned(),
        is_transient: false,
    }
}

fn connection_error(error: &reqwest::Error) -> BodyCut {
    BodyCut {
        kind: REPLY_CUT,
        reason: format!("the connection broke: {}", root_cause(error)),
        is_transient: true,
    }
}

/// The moment at which this time has passed; a year from now at most, so that any setting is a moment.
fn deadline_after(time: Duration) -> Instant {
    Instant::now() + time.min(Duration::from_secs(365 * 86_400))
}

/// What is behind an error: its last cause, which names the reason and no address.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        reason = cause.to_string();
        source = cause.source();
    }
    reason
}

/// `begun`: something was shown, or a tool of the provider's ran, so nothing is tried again.
/// `is_kept`: something stands in the reply.
fn cut_error(cut: &BodyCut, begun: bool, is_kept: bool) -> WireError {
    let rest = match (begun, is_kept) {
        (true, true) => " What came is kept.",
        (true, false) => {
            " A tool of the provider's own may have run, so the request is not made again by itself."
        }
        (false, _) => "",
    };
    WireError {
        kind: cut.kind.to_owned(),
        message: format!("The reply broke off: {}.{rest}", cut.reason),
        retryable: cut.is_transient && !begun,
        retry_after: None,
    }
}

/// Gives a session what fits: together where nothing more is to be waited for.
fn push_fitting(
    events: &mut Vec<StreamEvent>,
    sink: &ReplySink,
    room: &mut ReplyBudget,
    is_batch: bool,
) {
    let fitting = events.drain(..).filter_map(|event| room.take(event));
    if is_batch {
        sink.push_batch(fitting.collect());
    } else {
        fitting.for_each(|event| sink.push(event));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ReadTicks;

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

    const QUICK: ReplyBounds = ReplyBounds {
        first_byte: Duration::from_secs(30),
        idle: Duration::from_millis(20),
        total: Duration::from_secs(30),
        bytes: 1000,
    };

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up_with_what_came_of_it() {
        let reply = stalls("400 Bad Request").await;
        let read = read_bounded(reply, &QUICK);
        let (body, cut) = tokio::time::timeout(Duration::from_secs(30), read)
            .await
            .expect("it is waited for without end");
        assert_eq!(body, b"{");
        assert_eq!(cut.map(|cut| cut.kind), Some("timeout"));
    }

    #[tokio::test]
    async fn a_body_in_which_nothing_of_a_reply_stands_is_no_empty_reply() {
        use conjure_core::wire::{Endpoint, Wire};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_, reply) = tokio::join!(
            async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                let body = format!("{{\"junk\":\"{}\"}}", "x".repeat(9 * 1024 * 1024));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                let head = format!("{head}content-length: {}\r\n\r\n", body.len());
                tokio::spawn(async move {
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream.write_all(body.as_bytes()).await
                });
            },
            reqwest::get(format!("http://{address}/")),
        );
        let sink = ReplySink::new(|_| {}, |_| {});
        let decoder = Wire::Anthropic.decoder(&Endpoint::new("anthropic"));
        let bounds = ReplyBounds {
            idle: Duration::from_secs(30),
            bytes: 64 * 1024 * 1024,
            ..QUICK
        };
        let decoded = read(reply.unwrap(), decoder, &sink, &bounds).await;
        assert!(decoded.error.is_some(), "{decoded:?}");
    }

    fn ticks() -> ReadTicks {
        ReadTicks::new(Instant::now(), Duration::from_millis(5))
    }

    #[tokio::test]
    async fn a_reply_that_says_a_little_for_ever_is_given_up() {
        use conjure_core::wire::{Endpoint, Wire};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let mut said = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            while stream.write_all(said.as_bytes()).await.is_ok() {
                said = ": ping\n\n";
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let reply = reqwest::get(format!("http://{address}/")).await.unwrap();
        let whole = Duration::from_millis(500);
        let (end, late) = (Instant::now() + whole, Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&late);
        let sink = ReplySink::new(|_| {}, |_| {}).with_batches(ticks(), move |_| {
            counted.fetch_add(usize::from(Instant::now() > end), Ordering::Relaxed);
        });
        let decoder = Wire::Anthropic.decoder(&Endpoint::new("anthropic"));
        let bounds = ReplyBounds {
            idle: Duration::from_secs(30),
            total: whole,
            bytes: 64 * 1024 * 1024,
            ..QUICK
        };
        let reading = read(reply, decoder, &sink, &bounds);
        let decoded = tokio::time::timeout(Duration::from_secs(30), reading);
        let error = decoded.await.expect("it is read for ever").error.unwrap();
        assert_eq!(error.kind, "timeout", "{error:?}");
        // What had come by then is taken, and nothing is waited for.
        let late = late.load(Ordering::Relaxed);
        assert!(late <= 10, "{late} batches were read behind the end");
    }

    #[tokio::test]
    async fn pieces_that_come_fast_are_shown_together_and_all_of_them() {
        use conjure_core::wire::{Endpoint, Wire};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shown, is_together) = (
            Arc::<Mutex<String>>::default(),
            Arc::<AtomicBool>::default(),
        );
        // Tells pieces until some were shown together.
        let told = tokio::spawn({
            let is_together = Arc::clone(&is_together);
            async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                let chunk = |content: &str, stop: &str| {
                    format!(
                        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\
                         \"finish_reason\":{stop}}}]}}\n\n"
                    )
                };
                let mut told = String::new();
                while !is_together.load(Ordering::Relaxed) {
                    let word = format!("{} ", told.len());
                    stream
                        .write_all(chunk(&word, "null").as_bytes())
                        .await
                        .unwrap();
                    told.push_str(&word);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let end = chunk("end", "\"stop\"") + "data: [DONE]\n\n";
                stream.write_all(end.as_bytes()).await.unwrap();
                told + "end"
            }
        });
        let [one, many] = [(); 2].map(|()| Arc::clone(&shown));
        let add = |shown: &Mutex<String>, event: StreamEvent| {
            if let StreamEvent::Content { delta } = event {
                shown.lock().unwrap().push_str(&delta);
            }
        };
        let sink = ReplySink::new(move |event| add(&one, event), |_| {});
        let sink = sink.with_batches(ticks(), move |events| {
            is_together.fetch_or(events.len() > 1, Ordering::Relaxed);
            events.into_iter().for_each(|event| add(&many, event));
        });
        let reply = reqwest::get(format!("http://{address}/")).await.unwrap();
        let decoder = Wire::OpenaiChat.decoder(&Endpoint::new("openai"));
        let bounds = ReplyBounds {
            idle: Duration::from_secs(30),
            bytes: 1024 * 1024,
            ..QUICK
        };
        let decoded = read(reply, decoder, &sink, &bounds).await;
        assert_eq!(decoded.error, None);
        let told = told.await.unwrap();
        assert_eq!(*shown.lock().unwrap(), told);
        let partial = sink.partial().unwrap();
        assert_eq!(partial.parts, [conjure_core::chat::Part::text(told)]);
    }

    #[tokio::test]
    async fn a_reply_that_stalls_says_that_it_did() {
        use conjure_core::wire::{Endpoint, Wire};
        let reply = stalls("200 OK").await;
        let sink = ReplySink::new(|_| {}, |_| {});
        let decoder = Wire::Anthropic.decoder(&Endpoint::new("anthropic"));
        let decoded = read(reply, decoder, &sink, &QUICK).await;
        let error = decoded.error.unwrap();
        assert_eq!(error.kind, "timeout", "{error:?}");
    }

    /// What is read of a stream of these events whose connection breaks then.
    async fn read_broken(wire: conjure_core::wire::Wire, events: String) -> WireError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
            // Less than is promised: the connection breaks in the middle of the body.
            let head = format!("{head}content-length: {}\r\n\r\n", events.len() + 100);
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(events.as_bytes()).await.unwrap();
        });
        let reply = reqwest::get(format!("http://{address}/")).await.unwrap();
        let sink = ReplySink::new(|_| {}, |_| {});
        let decoder = wire.decoder(&conjure_core::wire::Endpoint::new("openai"));
        let bounds = ReplyBounds {
            idle: Duration::from_secs(30),
            bytes: 1024 * 1024,
            ..QUICK
        };
        let decoded = read(reply, decoder, &sink, &bounds).await;
        assert!(decoded.response.parts.is_empty(), "{decoded:?}");
        decoded.error.unwrap()
    }

    /// Events of a reply in which a tool of the provider's own began.
    const TOOL_BEGINS: &str = concat!(
        "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"m\"}}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":0,",
        "\"item\":{\"type\":\"code_interpreter_call\",\"id\":\"ci_1\"}}\n\n",
    );

    #[tokio::test]
    async fn what_a_provider_says_of_its_error_stays_where_the_connection_breaks_then() {
        use conjure_core::wire::Wire;
        let error = concat!(
            "data: {\"type\":\"error\",\"error\":",
            "{\"type\":\"server_error\",\"code\":\"server_error\",\"message\":\"It burns.\"}}\n\n",
        );
        let told = read_broken(Wire::OpenaiResponses, error.to_owned()).await;
        assert!(told.message.contains("It burns."), "{told:?}");
        // The provider would run its tool twice.
        let told = read_broken(Wire::OpenaiResponses, format!("{TOOL_BEGINS}{error}")).await;
        assert!(told.message.contains("It burns."), "{told:?}");
        assert!(!told.retryable, "{told:?}");
    }

    #[tokio::test]
    async fn a_reply_that_cannot_be_read_is_not_asked_for_again_where_the_connection_breaks_then() {
        use conjure_core::wire::Wire;
        let events = format!("{TOOL_BEGINS}data: oops\n\n");
        let told = read_broken(Wire::OpenaiResponses, events).await;
        assert!(!told.retryable, "{told:?}");
    }

    #[tokio::test]
    async fn a_reply_that_broke_off_says_that_something_is_kept_only_where_it_is() {
        use conjure_core::wire::Wire;
        let told = read_broken(Wire::OpenaiResponses, TOOL_BEGINS.to_owned()).await;
        assert_eq!((told.kind.as_str(), told.retryable), (REPLY_CUT, false));
        assert!(!told.message.contains("is kept"), "{told:?}");
        assert!(
            told.message.contains("A tool of the provider's own"),
            "{told:?}"
        );
        let cut = BodyCut {
            kind: REPLY_CUT,
            reason: "the connection broke".to_owned(),
            is_transient: true,
        };
        assert!(cut_error(&cut, true, true).message.contains("is kept"));
        assert!(cut_error(&cut, false, true).retryable);
    }
}
