//! Streamable HTTP: rmcp's transport over a client of our own.
//!
//! rmcp's default client opens a TCP connection for every request. This one keeps them, and goes
//! back to one a request for a server that answers 40 ms late on a kept one, which is what a
//! server without TCP_NODELAY does. What a server sends is bounded and cleaned before rmcp reads
//! it, and results pass it by, so that nothing is lost on the way. Tokens are put in here, and
//! renewed once when the server does not take one; a connection on which one went out gets none of
//! another login, and no request without.

mod answers;
mod pace;
mod post;
mod reopen;
mod tls;
mod transport_error;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::link::Link;
use crate::oauth::{Auth, Token};

use answers::AnswerFilter;
use pace::Pace;
use post::Post;
use reopen::ReopenDelays;
pub(crate) use transport_error::judge;

/// How long a connection is kept that nothing runs on: common servers close theirs after 5 s, and
/// a request that meets that is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpTransportError = StreamableHttpError<reqwest::Error>;
type SseEvents = BoxStream<'static, Result<Sse, SseError>>;

/// A client for one server.
#[derive(Clone)]
pub(crate) struct McpHttpClient {
    pooled: reqwest::Client,
    unpooled: reqwest::Client,
    link: Arc<Link>,
    pace: Arc<Pace>,
    reopening: Arc<ReopenDelays>,
    auth: Option<Arc<Auth>>,
    /// The most bytes of an answer.
    max_answer_bytes: usize,
}

impl McpHttpClient {
    /// A client that follows no redirect: a session and its secrets stay with one server.
    pub(crate) fn new(
        link: Arc<Link>,
        auth: Option<Arc<Auth>>,
        most: usize,
    ) -> reqwest::Result<Self> {
        let tls = tls::config().ok();
        let builder = || {
            let builder = reqwest::Client::builder()
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT);
            match &tls {
                Some(tls) => builder.tls_backend_preconfigured(tls.clone()),
                // Fails as well, with reqwest's own reason.
                None => builder,
            }
        };
        Ok(Self {
            pooled: builder().build()?,
            unpooled: builder().pool_max_idle_per_host(0).build()?,
            link,
            pace: Arc::default(),
            reopening: Arc::default(),
            auth,
            max_answer_bytes: most,
        })
    }

    fn inner(&self) -> &reqwest::Client {
        if self.pace.prefers_unpooled() {
            &self.unpooled
        } else {
            &self.pooled
        }
    }

    /// Sends with the token that there is. When the server does not take that one, once more with
    /// another, or without one if none went out on this connection that it took.
    async fn with_token<T, F>(
        &self,
        own: Option<String>,
        send: impl Fn(Option<String>) -> F,
    ) -> Result<T, HttpTransportError>
    where
        F: Future<Output = Result<T, HttpTransportError>>,
    {
        let Some(auth) = &self.auth else {
            return send(own).await;
        };
        let token = auth.token().await?;
        let mut challenge = match self.send_authorized(token.as_ref(), &send).await {
            Err(StreamableHttpError::AuthRequired(challenge)) => challenge,
            Err(StreamableHttpError::InsufficientScope(challenge)) => {
                auth.note_challenge(&challenge.www_authenticate_header);
                return Err(StreamableHttpError::InsufficientScope(challenge));
            }
            done => return done,
        };
        if let Some(token) = token {
            if let Some(another) = auth.replacement_for(&token).await? {
                return self.send_authorized(Some(&another), &send).await;
            }
            // A login that is over takes away nothing that everybody gets.
            if self.link.token().is_none() {
                challenge = match self.send_authorized(None, &send).await {
                    Err(StreamableHttpError::AuthRequired(challenge)) => challenge,
                    done => return done,
                };
            }
        }
        auth.note_challenge(&challenge.www_authenticate_header);
        Err(StreamableHttpError::AuthRequired(challenge))
    }

    /// Sends with a token or without, if the connection is of that login.
    async fn send_authorized<T, F>(
        &self,
        token: Option<&Token>,
        send: impl Fn(Option<String>) -> F,
    ) -> Result<T, HttpTransportError>
    where
        F: Future<Output = Result<T, HttpTransportError>>,
    {
        if !self.link.admits(token) {
            let why = "somebody has logged in or out".to_owned();
            return Err(AuthError::AuthorizationFailed(why).into());
        }
        let mut sending = token.map(|token| TokenInUse {
            link: &self.link,
            token,
            is_refused: false,
        });
        let done = send(token.map(|token| token.expose().to_owned())).await;
        if let (Err(StreamableHttpError::AuthRequired(_)), Some(sending)) = (&done, &mut sending) {
            sending.is_refused = true;
        }
        done
    }
}

/// A token that went out. What the server did with it is known when its answer is there; until then,
/// and where no answer is waited for any more, it may have done anything.
struct TokenInUse<'a> {
    link: &'a Link,
    token: &'a Token,
    is_refused: bool,
}

impl Drop for TokenInUse<'_> {
    fn drop(&mut self) {
        if self.is_refused {
            self.link.token_refused(self.token);
        } else {
            self.link.token_accepted(self.token);
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

/// An error without the address, which may have a secret in it.
fn anonymous(error: HttpTransportError) -> HttpTransportError {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

impl StreamableHttpClient for McpHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let _sending = self.link.backlog().sending(&message);
        let answers = AnswerFilter::to(&self.link, &message);
        let post = Post {
            uri: &uri,
            message: &message,
            session: session_id.as_deref(),
            headers: &custom_headers,
            max_answer_bytes: self.max_answer_bytes,
        };
        let send = |token: Option<String>| {
            let answers = answers.clone();
            let post = &post;
            async move {
                let posted = post.send(self.inner(), token, answers, &self.pace);
                posted.await.map_err(anonymous)
            }
        };
        self.with_token(auth_header, send).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), HttpTransportError> {
        let send = |token| {
            let (uri, id) = (Arc::clone(&uri), Arc::clone(&session_id));
            let headers = custom_headers.clone();
            async move {
                let sent = self.inner().delete_session(uri, id, token, headers);
                sent.await.map_err(anonymous)
            }
        };
        let ended = self.with_token(auth_header, send).await;
        match (ended, self.link.token()) {
            // It ends with the login that it was served with, whoever has logged in since.
            (Err(StreamableHttpError::Auth(_)), Some(token)) => {
                send(Some(token.expose().to_owned())).await
            }
            (ended, _) => ended,
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<SseEvents, HttpTransportError> {
        let mut open = self.reopening.open(last_event_id.as_deref()).await;
        let send = |token| {
            let (uri, id) = (Arc::clone(&uri), session_id.clone());
            let (last, headers) = (last_event_id.clone(), custom_headers.clone());
            async move {
                let got = self.inner().get_stream_with_max_sse_event_size(
                    uri,
                    id,
                    last,
                    token,
                    headers,
                    self.max_answer_bytes,
                );
                got.await.map_err(anonymous)
            }
        };
        let events = self.with_token(auth_header, send).await?;
        if open.is_late && last_event_id.is_none() {
            // What changed meanwhile was told to nobody, and nothing of it comes again.
            self.link.change();
        }
        let answers = AnswerFilter::unsolicited(&self.link);
        Ok(events
            .flat_map(move |event| {
                if let Ok(event) = &event {
                    open.record(event);
                }
                answers.clean(event)
            })
            .boxed())
    }
}
