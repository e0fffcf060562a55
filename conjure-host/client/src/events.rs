//! The events of a thread, from a server. A connection that is lost is made again, behind what was
//! seen.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use conjure_core::chat::{Event, EventId};
use conjure_core::wire::sse::SseDecoder;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use reqwest::Method;

use super::{RemoteServer, ServerError, refusal_error};
use conjure_runtime::session::Stamped;
use conjure_store::ThreadId;
use sync_wrapper::SyncWrapper;

/// The most bytes of one event.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;
/// As high as a number in a thread is written.
const MAX_SEQ: u64 = 999_999_999_999_999_999;
/// Between two connections.
const RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });
/// How often a server is tried that is not to be reached.
const MAX_ATTEMPTS: u32 = if cfg!(test) { 2 } else { 10 };

/// A connection that lasted so long was a good one: those that failed before it do not count.
const STABLE_AFTER: Duration = Duration::from_secs(15);

/// In a wrapper that can be shared between threads, as whoever holds a feed may be.
type Bytes = SyncWrapper<BoxStream<'static, reqwest::Result<bytes::Bytes>>>;
type ConnectAttempt = SyncWrapper<BoxFuture<'static, Result<Bytes, ServerError>>>;

/// Follows a thread on a server.
pub struct ServerEvents {
    server: RemoteServer,
    thread: ThreadId,
    last_seen: Option<EventId>,
    attended: bool,
    /// A connection that is being made. Whoever looks at something else meanwhile does not end it.
    attempt: Option<ConnectAttempt>,
    connection: Option<FeedConnection>,
    buffered: VecDeque<Stamped>,
    /// How often it was tried in vain since an event came.
    tries: u32,
}

/// A connection to a server that tells events.
struct FeedConnection {
    bytes: Bytes,
    decoder: SseDecoder,
    /// Moment at which the connection was made.
    since: Instant,
}

impl ServerEvents {
    pub(super) fn new(
        server: RemoteServer,
        thread: ThreadId,
        after: Option<EventId>,
        attended: bool,
    ) -> Self {
        Self {
            server,
            thread,
            last_seen: after,
            attended,
            attempt: None,
            connection: None,
            buffered: VecDeque::new(),
            tries: 0,
        }
    }

    /// The thread that is followed.
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Number of the last event that was seen; nothing at a thread's beginning.
    pub fn last_seen(&self) -> Option<EventId> {
        self.last_seen
    }

    /// The next event, as soon as there is one. Safe to drop and call again.
    ///
    /// # Errors
    /// [`ServerError`] when the server says no, or is gone for good.
    pub async fn next(&mut self) -> Result<Stamped, ServerError> {
        loop {
            if let Some(event) = self.buffered.pop_front() {
                self.last_seen = Some(event.id);
                return Ok(event);
            }
            let Some(connection) = &mut self.connection else {
                self.connect().await?;
                continue;
            };
            if let Some(Ok(bytes)) = connection.bytes.get_mut().next().await {
                self.take(&bytes)?;
                continue;
            }
            let lasted = connection.since.elapsed();
            self.connection = None;
            self.record_loss(lasted)?;
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Makes a connection, or waits before it is tried again.
    async fn connect(&mut self) -> Result<(), ServerError> {
        let attempt = self.attempt.get_or_insert_with(|| {
            let server = self.server.clone();
            let attempt: BoxFuture<'static, _> = Box::pin(open_feed(
                server,
                self.thread.clone(),
                self.last_seen,
                self.attended,
            ));
            SyncWrapper::new(attempt)
        });
        let connected = attempt.get_mut().await;
        self.attempt = None;
        match connected {
            Ok(bytes) => {
                self.connection = Some(FeedConnection {
                    bytes,
                    decoder: SseDecoder::new(MAX_EVENT_BYTES),
                    since: Instant::now(),
                });
                Ok(())
            }
            Err(ServerError::Unreachable { .. }) if self.tries < MAX_ATTEMPTS => {
                self.tries += 1;
                tokio::time::sleep(RETRY_DELAY).await;
                Ok(())
            }
            Err(error) => {
                self.tries = 0;
                Err(error)
            }
        }
    }

    /// Takes in what came.
    fn take(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let mut events = Vec::new();
        if connection.decoder.push(bytes, &mut events).is_err() {
            return Err(self.bad_answer("an event is too long"));
        }
        // Only what has a number is an event of the thread.
        for event in events.into_iter().filter(|event| !event.id.is_empty()) {
            let read = number(&event.id).zip(serde_json::from_str::<Event>(&event.data).ok());
            let Some((id, event)) = read else {
                return Err(self.bad_answer("an event is none that is known"));
            };
            // What says no more than how to try again ends again and again all the same.
            self.tries = 0;
            self.buffered.push_back(Stamped { id, event });
        }
        Ok(())
    }

    /// A connection was lost that lasted so long.
    fn record_loss(&mut self, lasted: Duration) -> Result<(), ServerError> {
        if lasted >= STABLE_AFTER {
            self.tries = 0;
        }
        self.tries += 1;
        if self.tries > MAX_ATTEMPTS {
            self.tries = 0;
            return Err(self.bad_answer("its stream of events ends again and again"));
        }
        Ok(())
    }

    /// The server answered, and not as one of these servers does.
    fn bad_answer(&self, reason: &str) -> ServerError {
        ServerError::Unexpected {
            url: self.server.url().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// A connection that tells a thread's events behind `seen`.
async fn open_feed(
    server: RemoteServer,
    thread: ThreadId,
    seen: Option<EventId>,
    attended: bool,
) -> Result<Bytes, ServerError> {
    let path = format!("threads/{thread}/events?attended={attended}");
    let mut request = server.request(Method::GET, &path)?;
    if let Some(seen) = seen {
        // A number as high as can be means all of an epoch.
        let seq = seen.seq.min(MAX_SEQ);
        request = request.header("Last-Event-ID", format!("{}.{seq}", seen.epoch));
    }
    let answer = request.send().await;
    let answer = answer.map_err(|error| server.unreachable(&error))?;
    let status = answer.status();
    if !status.is_success() {
        let body = answer.bytes().await.unwrap_or_default();
        return Err(refusal_error(status.as_u16(), &body));
    }
    Ok(SyncWrapper::new(answer.bytes_stream().boxed()))
}

fn number(text: &str) -> Option<EventId> {
    let (epoch, seq) = text.split_once('.')?;
    Some(EventId {
        epoch: epoch.parse().ok()?,
        seq: seq.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use futures_util::FutureExt as _;
    use secrecy::SecretString;

    use super::*;

    /// Answers each connection with one of these bodies, and closes it.
    fn serve(listener: &TcpListener, bodies: &[String]) {
        for body in bodies {
            let (stream, _) = listener.accept().unwrap();
            let head = BufReader::new(&stream).lines().map(Result::unwrap);
            assert!(head.take_while(|line| !line.is_empty()).count() > 0);
            (&stream).write_all(answer(body).as_bytes()).unwrap();
        }
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{body}")
    }

    fn events(listener: &TcpListener) -> ServerEvents {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = RemoteServer::new(url, Ok(SecretString::from("t"))).unwrap();
        server.events(&ThreadId::parse("t").unwrap(), None, false)
    }

    fn told() -> Event {
        Event::Content {
            delta: "x".to_owned(),
        }
    }

    /// An event as a server tells it.
    fn told_as(seq: u32) -> String {
        let told = serde_json::to_string(&told()).unwrap();
        format!("retry: 1\n\nid: 1.{seq}\ndata: {told}\n\n")
    }

    #[tokio::test]
    async fn a_stream_that_ends_after_it_told_an_event_is_made_again_each_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut events = events(&listener);
        let last = MAX_ATTEMPTS + 2;
        let bodies: Vec<String> = (1..=last).map(told_as).collect();
        let serving = std::thread::spawn(move || serve(&listener, &bodies));
        for _ in 1..=last {
            assert_eq!(events.next().await.unwrap().event, told());
        }
        serving.join().unwrap();
    }

    #[tokio::test]
    async fn a_server_that_only_says_how_to_try_again_is_not_tried_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut events = events(&listener);
        let bodies = vec!["retry: 1\n\n".to_owned(); MAX_ATTEMPTS as usize + 1];
        let serving = std::thread::spawn(move || serve(&listener, &bodies));
        let error = events.next().await.unwrap_err();
        assert!(matches!(error, ServerError::Unexpected { .. }), "{error}");
        serving.join().unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_lasted_is_made_again_as_often_as_the_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut events = events(&listener);
        events.tries = MAX_ATTEMPTS;
        events.record_loss(STABLE_AFTER).unwrap();
        assert_eq!(events.tries, 1);
        events.tries = MAX_ATTEMPTS;
        events.record_loss(STABLE_AFTER / 2).unwrap_err();
    }

    #[tokio::test]
    async fn a_connection_that_takes_longer_than_anybody_waits_is_made() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut events = events(&listener);
        let (asked, is_asked) = tokio::sync::oneshot::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let head = BufReader::new(&stream).lines().map(Result::unwrap);
            assert!(head.take_while(|line| !line.is_empty()).count() > 0);
            asked.send(()).unwrap();
            goes_on.recv().unwrap();
            (&stream).write_all(answer(&told_as(1)).as_bytes()).unwrap();
        });
        tokio::select! {
            _ = events.next() => panic!("nothing was answered"),
            asked = is_asked => asked.unwrap(),
        }
        for _ in 0..3 {
            assert!(events.next().now_or_never().is_none());
        }
        go_on.send(()).unwrap();
        assert_eq!(events.next().await.unwrap().event, told());
        serving.join().unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_gone_is_known_by_whoever_asks_again_and_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let server = RemoteServer::new(url, Ok(SecretString::from("t"))).unwrap();
        let thread = ThreadId::parse("t").unwrap();
        let mut events = server.events(&thread, None, false);
        // Whoever looks at something else meanwhile drops what it waited for.
        let failed = async {
            loop {
                if let Some(next) = events.next().now_or_never() {
                    return next.unwrap_err();
                }
                tokio::task::yield_now().await;
            }
        };
        let failed = tokio::time::timeout(Duration::from_secs(10), failed);
        let error = failed.await.unwrap();
        assert!(matches!(error, ServerError::Unreachable { .. }), "{error}");
        assert_eq!(events.tries, 0);
    }
}
