//! One POST: what is sent, and what its status, its body or its stream of events mean.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::auth::WWWAuthenticateParams;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use url::Url;

use super::answers::{AnswerFilter, single_event};
use super::pace::Pace;
use super::{Headers, HttpTransportError, SseEvents};
use crate::secrets::beginning;

const SESSION_HEADER: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
/// The most bytes of the body of a refusal, and how many of them are told.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
const MAX_SHOWN_BYTES: usize = 300;

/// What is posted.
pub(super) struct Post<'a> {
    pub(super) uri: &'a str,
    pub(super) message: &'a ClientJsonRpcMessage,
    pub(super) session: Option<&'a str>,
    pub(super) headers: &'a Headers,
    /// The most bytes of the answer.
    pub(super) max_answer_bytes: usize,
}

impl Post<'_> {
    /// Sends it and reads as much as tells what comes.
    pub(super) async fn send(
        &self,
        client: &reqwest::Client,
        token: Option<String>,
        answers: AnswerFilter,
        pace: &Arc<Pace>,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let mut request = client
            .post(self.uri)
            .header(ACCEPT, [EVENT_STREAM, JSON].join(", "))
            .header(CONTENT_TYPE, JSON);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(session) = self.session {
            request = request.header(SESSION_HEADER, session);
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let body = serde_json::to_vec(self.message)?;
        let begun = Instant::now();
        let response = request.body(body).send().await?;
        let status = response.status();
        if let Some(refused) = self.auth_error(&response) {
            return Err(refused);
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && self.session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let kind = header(&response, CONTENT_TYPE.as_str());
        let is = |name: &str| {
            kind.as_deref()
                .is_some_and(|kind| has_media_type(kind, name))
        };
        if !status.is_success() {
            return self.refusal(response, is(JSON), &answers).await;
        }
        let session = header(&response, SESSION_HEADER);
        if !answers.has_request() {
            // Some answer with something where nothing is to be answered.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if is(EVENT_STREAM) {
            let events = events(
                response,
                self.max_answer_bytes,
                answers,
                (begun, Arc::clone(pace)),
            );
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !is(JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = body_of(response, self.max_answer_bytes).await?;
        pace.record(begun.elapsed());
        let answer = match body {
            Some(body) => answers
                .in_body(&body)
                .or_else(|| answers.error("its answer is no message")),
            None => answers.error(too_long(self.max_answer_bytes)),
        };
        match answer {
            Some(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
            None => Ok(StreamableHttpPostResponse::Accepted),
        }
    }

    fn auth_error(&self, response: &Response) -> Option<HttpTransportError> {
        let challenge = header(response, WWW_AUTHENTICATE.as_str());
        match (response.status(), challenge) {
            (StatusCode::UNAUTHORIZED, challenge) => {
                let error = AuthRequiredError::new(challenge.unwrap_or_default());
                Some(StreamableHttpError::AuthRequired(error))
            }
            (StatusCode::FORBIDDEN, Some(challenge)) => {
                let scope = self.missing_scope(&challenge);
                let error = InsufficientScopeError::new(challenge, scope);
                Some(StreamableHttpError::InsufficientScope(error))
            }
            _ => None,
        }
    }

    /// The scopes that the server says are missing.
    fn missing_scope(&self, challenge: &str) -> Option<String> {
        let uri = Url::parse(self.uri).ok()?;
        let params = WWWAuthenticateParams::parse(challenge, &uri);
        if !params.is_insufficient_scope() {
            return None;
        }
        params.scope.filter(|scope| !scope.trim().is_empty())
    }

    /// A status that is no success: an error of the protocol if the body is one.
    async fn refusal(
        &self,
        response: Response,
        is_json: bool,
        answers: &AnswerFilter,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let status = response.status();
        let retry_after = header(&response, RETRY_AFTER.as_str());
        let body = body_of(response, MAX_REFUSAL_BYTES).await.ok().flatten();
        let body = body.unwrap_or_default();
        let error = if is_json {
            answers.in_body(&body)
        } else {
            None
        };
        let error = match error {
            Some(JsonRpcMessage::Error(error)) => Some(error.error),
            _ => None,
        };
        let told = || excerpt(answers, &body);
        // A server of the era before may refuse the question for the era in any way.
        if let JsonRpcMessage::Request(request) = self.message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && self.session.is_none()
            && status.is_client_error()
            && status != StatusCode::FORBIDDEN
        {
            let error = error.unwrap_or_else(|| {
                ErrorData::invalid_request(format!("refused with HTTP {status}: {}", told()), None)
            });
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        if let (Some(error), JsonRpcMessage::Request(request)) = (error, self.message)
            && status != StatusCode::FORBIDDEN
        {
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        if status == StatusCode::FORBIDDEN {
            return Err(io::Error::other(ForbiddenAnswer { body_start: told() }).into());
        }
        let text = format!("HTTP {status}: {}", told());
        Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(
            text,
        )))
    }
}

/// A refusal with HTTP 403 and no challenge: whoever asks may not, as far as the server says.
#[derive(Debug, thiserror::Error)]
#[error(
    "unexpected server response: HTTP {}: {body_start}",
    StatusCode::FORBIDDEN
)]
pub(super) struct ForbiddenAnswer {
    /// The beginning of what the server said.
    pub(super) body_start: String,
}

impl ForbiddenAnswer {
    /// The one that an error of the transport holds.
    pub(super) fn from_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// The beginning of what a server said. Nothing is cut before it is without secrets.
fn excerpt(answers: &AnswerFilter, body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body).into_owned();
    beginning(answers.redact(said), MAX_SHOWN_BYTES)
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Whether a content type is this media type, whatever its case and its parameters are.
fn has_media_type(kind: &str, media_type: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(media_type)
}

fn too_long(most: usize) -> String {
    format!("its answer is longer than {most} bytes and was left out")
}

/// The whole body, unless it is longer than that.
async fn body_of(mut response: Response, most: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// Events, cleaned. One that is too long is an error in place of the answer. How long the first
/// took is noted.
fn events(
    response: Response,
    most: usize,
    answers: AnswerFilter,
    (begun, pace): (Instant, Arc<Pace>),
) -> SseEvents {
    let bytes = response
        .bytes_stream()
        .map(|piece| piece.map_err(|error| io::Error::other(error.without_url())));
    let events = SseStream::from_bytes_stream(limit_events(bytes, most));
    let mut pace = Some(pace);
    events
        .flat_map(move |event| {
            if let Some(pace) = pace.take() {
                pace.record(begun.elapsed());
            }
            match event {
                Err(error) if is_too_long(&error) => {
                    let error = answers.error(too_long(most));
                    let data = error.and_then(|error| serde_json::to_string(&error).ok());
                    single_event(Ok(Sse {
                        event: None,
                        data,
                        id: None,
                        retry: None,
                    }))
                }
                event => answers.clean(event),
            }
        })
        .boxed()
}

/// An event is too long.
#[derive(Debug, thiserror::Error)]
#[error("an event is too long")]
struct EventTooLong;

/// Passes the bytes on, up to an event that is longer than `most`.
fn limit_events<B: AsRef<[u8]> + Send + 'static>(
    bytes: impl Stream<Item = io::Result<B>> + Send + 'static,
    most: usize,
) -> impl Stream<Item = io::Result<B>> + Send + 'static {
    let begin = (Length::default(), false);
    bytes.scan(begin, move |(length, over), piece| {
        let piece = match piece {
            _ if *over => None,
            Ok(piece) if length.advance(piece.as_ref()) > most => {
                *over = true;
                Some(Err(io::Error::other(EventTooLong)))
            }
            piece => Some(piece),
        };
        std::future::ready(piece)
    })
}

fn is_too_long(error: &SseError) -> bool {
    let SseError::Body(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<io::Error>();
    let inner = error.and_then(io::Error::get_ref);
    inner
        .and_then(|inner| inner.downcast_ref::<EventTooLong>())
        .is_some()
}

/// How long the event at hand is.
#[derive(Default)]
struct Length {
    bytes: usize,
    last_byte: u8,
    is_blank: bool,
}

impl Length {
    /// The most that an event was long while these bytes came.
    fn advance(&mut self, piece: &[u8]) -> usize {
        let mut most = 0;
        for byte in piece {
            self.bytes += 1;
            most = most.max(self.bytes);
            let ends_line = *byte == b'\r' || (*byte == b'\n' && self.last_byte != b'\r');
            if ends_line {
                if self.is_blank {
                    self.bytes = 0;
                }
                self.is_blank = true;
            } else if *byte != b'\n' {
                self.is_blank = false;
            }
            self.last_byte = *byte;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::secrets::Secrets;
    use crate::server_notices::ServerNotices;

    #[test]
    fn what_is_told_of_a_refusal_is_cut_after_secrets_are_hidden() {
        let outside = ServerNotices::new("s", Secrets::new(["hunter2-hunter2"]), |_| {});
        let answers = AnswerFilter::unsolicited(&Link::new(Arc::new(outside)));
        let body = format!("{}hunter2-hunter2", "x".repeat(MAX_SHOWN_BYTES - 9));
        let told = excerpt(&answers, body.as_bytes());
        assert!(!told.contains("hunter2"), "{told}");
        assert!(told.contains("xx[secret]"), "{told}");
    }

    #[test]
    fn a_media_type_has_any_case_and_parameters_and_is_no_other_that_begins_like_it() {
        assert!(has_media_type("Application/JSON; charset=utf-8", JSON));
        assert!(has_media_type(" text/event-stream ", EVENT_STREAM));
        assert!(!has_media_type("application/json-patch+json", JSON));
    }

    #[test]
    fn the_length_of_an_event_begins_anew_after_a_blank_line() {
        for end in ["\n", "\r\n", "\r"] {
            let event = format!("data: {}{end}{end}", "x".repeat(90));
            let mut length = Length::default();
            let longest = (0..50).map(|_| length.advance(event.as_bytes())).max();
            assert!(longest < Some(110), "{end:?}: {longest:?}");
            assert!(length.advance(&[b'x'; 200]) >= 200);
        }
    }
}
