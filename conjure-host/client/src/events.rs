//! The events of a thread, from a server. A connection that is lost is made again, behind what was
//! seen.

use std::collections::VecDeque;
use std::time::Duration;

use conjure_core::chat::{Event, EventId};
use conjure_core::wire::sse::SseDecoder;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::Method;

use super::{RemoteServer, ServerError, refused};
use conjure_runtime::session::Stamped;
use conjure_store::ThreadId;

/// The most bytes of one event.
const MOST: usize = 64 * 1024 * 1024;
/// As high as a number in a thread is written.
const HIGHEST: u64 = 999_999_999_999_999_999;
/// Between two connections.
const AGAIN: Duration = Duration::from_millis(200);
/// How often a server is tried that is not to be reached.
const TRIES: u32 = 10;

type Bytes = BoxStream<'static, reqwest::Result<bytes::Bytes>>;

/// Follows a thread on a server.
pub struct ServerEvents {
    server: RemoteServer,
    thread: ThreadId,
    seen: Option<EventId>,
    attended: bool,
    stream: Option<(Bytes, SseDecoder)>,
    read: VecDeque<Stamped>,
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
            seen: after,
            attended,
            stream: None,
            read: VecDeque::new(),
        }
    }

    /// The next event, as soon as there is one. Safe to drop and call again.
    ///
    /// # Errors
    /// [`ServerError`] when the server says no, or is gone for good.
    pub async fn next(&mut self) -> Result<Stamped, ServerError> {
        let mut tries = 0;
        loop {
            if let Some(event) = self.read.pop_front() {
                self.seen = Some(event.id);
                return Ok(event);
            }
            let Some((stream, decoder)) = &mut self.stream else {
                match self.connected().await {
                    Ok(stream) => self.stream = Some((stream, SseDecoder::new(MOST))),
                    Err(ServerError::Unreachable { .. }) if tries < TRIES => {
                        tries += 1;
                        tokio::time::sleep(AGAIN).await;
                    }
                    Err(error) => return Err(error),
                }
                continue;
            };
            let Some(Ok(bytes)) = stream.next().await else {
                self.stream = None;
                tries += 1;
                if tries > TRIES {
                    return Err(self.odd("its stream of events ends again and again"));
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let mut events = Vec::new();
            if decoder.push(&bytes, &mut events).is_err() {
                return Err(self.odd("an event is too long"));
            }
            // Only what has a number is an event of the thread.
            for event in events.into_iter().filter(|event| !event.id.is_empty()) {
                let read = number(&event.id).zip(serde_json::from_str::<Event>(&event.data).ok());
                let Some((id, event)) = read else {
                    return Err(self.odd("an event is none that is known"));
                };
                self.read.push_back(Stamped { id, event });
            }
        }
    }

    async fn connected(&self) -> Result<Bytes, ServerError> {
        let path = format!("threads/{}/events?attended={}", self.thread, self.attended);
        let mut request = self.server.request(Method::GET, &path)?;
        if let Some(seen) = self.seen {
            // A number as high as can be means all of an epoch.
            let seq = seen.seq.min(HIGHEST);
            request = request.header("Last-Event-ID", format!("{}.{seq}", seen.epoch));
        }
        let answer = request.send().await;
        let answer = answer.map_err(|error| self.server.unreachable(&error))?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.bytes().await.unwrap_or_default();
            return Err(refused(status.as_u16(), &body));
        }
        Ok(answer.bytes_stream().boxed())
    }

    fn odd(&self, reason: &str) -> ServerError {
        ServerError::Odd {
            url: self.server.url().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

fn number(text: &str) -> Option<EventId> {
    let (epoch, seq) = text.split_once('.')?;
    Some(EventId {
        epoch: epoch.parse().ok()?,
        seq: seq.parse().ok()?,
    })
}
