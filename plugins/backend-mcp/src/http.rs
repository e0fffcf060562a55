//! Streamable HTTP: rmcp's transport over a client of our own.
//!
//! rmcp's default client opens a TCP connection for every request. This one keeps them, and goes
//! back to one a request for a server that answers 40 ms late on a kept one, which is what a
//! server without TCP_NODELAY does. Events are cleaned before rmcp reads them.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::StatusCode;
use reqwest::redirect::Policy;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::connection::Trouble;
use crate::failure::Failure;
use crate::link::Link;
use crate::wire;

/// Answers in a row that must look delayed before connections are no longer kept.
const DELAYED_IN_A_ROW: u32 = 8;
/// What Linux's delayed acknowledgement looks like.
const DELAYED: std::ops::Range<Duration> = Duration::from_millis(38)..Duration::from_millis(55);

/// How long a connection is kept that nothing runs on: common servers close theirs after 5 s, and
/// a request that meets that is lost.
const IDLE: Duration = Duration::from_secs(4);

type Headers = HashMap<HeaderName, HeaderValue>;
type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// A client for one server.
#[derive(Clone)]
pub(crate) struct Client {
    kept: reqwest::Client,
    fresh: reqwest::Client,
    link: Arc<Link>,
    pace: Arc<Pace>,
}

#[derive(Default)]
struct Pace {
    delayed: AtomicU32,
    fresh: AtomicBool,
}

impl Client {
    /// A client that follows no redirect: a session and its secrets stay with one server.
    pub(crate) fn new(link: Arc<Link>) -> reqwest::Result<Self> {
        let builder = || {
            reqwest::Client::builder()
                .redirect(Policy::none())
                .connect_timeout(Duration::from_secs(10))
                .pool_idle_timeout(IDLE)
        };
        Ok(Self {
            kept: builder().build()?,
            fresh: builder().pool_max_idle_per_host(0).build()?,
            link,
            pace: Arc::default(),
        })
    }

    fn inner(&self) -> &reqwest::Client {
        if self.pace.fresh.load(Ordering::Relaxed) {
            &self.fresh
        } else {
            &self.kept
        }
    }

    /// Cleans events, and notes how long the first one took.
    fn clean(&self, events: Events, begun: Option<Instant>) -> Events {
        let link = Arc::clone(&self.link);
        let pace = Arc::clone(&self.pace);
        let mut begun = begun;
        events
            .flat_map(move |event| {
                if let Some(begun) = begun.take() {
                    pace.note(begun.elapsed());
                }
                link.heard();
                futures_util::stream::iter(clean(event, &link))
            })
            .boxed()
    }
}

impl Pace {
    fn note(&self, took: Duration) {
        if !DELAYED.contains(&took) {
            self.delayed.store(0, Ordering::Relaxed);
        } else if self.delayed.fetch_add(1, Ordering::Relaxed) + 1 >= DELAYED_IN_A_ROW {
            self.fresh.store(true, Ordering::Relaxed);
        }
    }
}

/// The configuration of the transport.
pub(crate) fn transport(
    url: &str,
    headers: Headers,
    most: usize,
) -> StreamableHttpClientTransportConfig {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_concurrent_requests(64)
        // A new session is a new generation, and callers must hear of it.
        .reinit_on_expired_session(false);
    config.custom_headers = headers;
    config.max_sse_event_size = most;
    config
}

/// What an error of the transport means for the request and its connection.
pub(crate) fn judge(server: &str, error: &(dyn StdError + 'static)) -> Trouble {
    let failed = |why: String| {
        Trouble::Failed(Failure::BadAnswer {
            server: server.to_owned(),
            why,
        })
    };
    let needs_auth = |why: String| {
        Trouble::Failed(Failure::NeedsAuth {
            server: server.to_owned(),
            why,
        })
    };
    match error.downcast_ref::<Failed>() {
        Some(StreamableHttpError::AuthRequired(auth)) => needs_auth(auth.to_string()),
        Some(StreamableHttpError::InsufficientScope(auth)) => needs_auth(auth.to_string()),
        Some(StreamableHttpError::Client(error)) => match error.status() {
            Some(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                needs_auth(status.to_string())
            }
            Some(status) => failed(status.to_string()),
            None => Trouble::Lost(chain(error)),
        },
        Some(
            StreamableHttpError::HttpStatus(_)
            | StreamableHttpError::UnexpectedServerResponse(_)
            | StreamableHttpError::UnexpectedContentType(_)
            | StreamableHttpError::ResponseBodyTooLarge { .. }
            | StreamableHttpError::Deserialize(_)
            | StreamableHttpError::ReservedHeaderConflict(_),
        ) => {
            let text = error.to_string();
            // The server's own words stand behind the status and may hold any number.
            if text.contains("HTTP 401") || text.contains("HTTP 403") {
                needs_auth(text)
            } else {
                failed(text)
            }
        }
        _ => Trouble::Lost(chain(error)),
    }
}

pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// An event as rmcp reads it, or as many as messages are in it.
fn clean(event: Result<Sse, SseError>, link: &Link) -> Vec<Result<Sse, SseError>> {
    let Ok(event) = event else {
        return vec![event];
    };
    let data = event.data.as_deref().unwrap_or_default();
    if data.trim().is_empty() || serde_json::from_str::<ServerJsonRpcMessage>(data).is_ok() {
        return vec![Ok(event)];
    }
    let read = wire::read(data.as_bytes());
    if read.skipped > 0 {
        link.skipped();
    }
    let mut cleaned: Vec<_> = read
        .messages
        .iter()
        .filter_map(|message| serde_json::to_string(message).ok())
        .map(|data| {
            Ok(Sse {
                data: Some(data),
                ..event.clone()
            })
        })
        .collect();
    if cleaned.is_empty() {
        // Its id still counts.
        cleaned.push(Ok(Sse {
            data: None,
            ..event
        }));
    }
    cleaned
}

impl StreamableHttpClient for Client {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let most = 16 * 1024 * 1024;
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            most,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let begun = Instant::now();
        let posted = self
            .inner()
            .post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        Ok(match posted {
            StreamableHttpPostResponse::Sse(events, id) => {
                StreamableHttpPostResponse::Sse(self.clean(events, Some(begun)), id)
            }
            StreamableHttpPostResponse::Json(message, id) => {
                self.pace.note(begun.elapsed());
                self.link.heard();
                StreamableHttpPostResponse::Json(message, id)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failed> {
        self.inner()
            .delete_session(uri, session_id, auth_header, custom_headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<Events, Failed> {
        let most = 16 * 1024 * 1024;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            most,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<Events, Failed> {
        let events = self
            .inner()
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        Ok(self.clean(events, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trap04_connections_that_answer_late_are_no_longer_kept() {
        let pace = Pace::default();
        let note = |milliseconds: &[u64]| {
            for took in milliseconds {
                pace.note(Duration::from_millis(*took));
            }
            pace.fresh.load(Ordering::Relaxed)
        };
        assert!(!note(&[44; 7]));
        assert!(!note(&[3]), "one that is quick was not delayed");
        assert!(!note(&[200; 20]), "slow is not delayed");
        assert!(note(&[44; 8]));
    }
}
