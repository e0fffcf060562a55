//! The provider over HTTP: one for every wire.
//!
//! Joins a wire, which knows what to say, and a client, which carries it. Adds what is neither's:
//! where the request goes, the key, what is tried again, and what a person is told of a failure.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_core::chat::Response;
use conjure_core::repair::RepairTarget;
use conjure_core::request::ModelRequest;
use conjure_core::wire::{Decoded, Encoded, Endpoint, REPLY_CUT, Wire, WireError};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

use super::address::{Address, AddressError};
use super::credentials::Credentials;
use super::http::{AttemptError, HttpClients, HttpOptions, Retry, retry_after, with_retries};
use super::reply_thread::on_reply_thread;
use super::sse_reply::{self, ReplyBounds, root_cause};
use super::{Provider, ProviderError, ReplySink, UnusableProvider, known_providers};
use conjure_config::SessionSpec;
use conjure_config::{AuthName, OpenAuth};

/// Bytes of an error's body that are looked at.
const ERROR_BYTES: usize = 64 * 1024;

/// A provider over HTTP.
#[derive(Clone)]
pub struct HttpProvider {
    wire: Wire,
    endpoint: Endpoint,
    address: Address,
    credentials: Arc<Credentials>,
    /// The saved auth that the credentials are of.
    auth: Option<AuthName>,
    options: HttpOptions,
    client: reqwest::Client,
    /// What was told about tools that are left out, so that it is told once.
    sent_notices: Arc<Mutex<BTreeSet<String>>>,
}

/// Why a provider cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpProviderError {
    /// The base URL is no address that can be asked.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The key cannot be sent.
    #[error(
        "the key for the provider `{provider}` has characters that no header may have; copy it \
         again, without line ends"
    )]
    Key {
        /// Name of the provider.
        provider: String,
    },
    /// A header of the person's cannot be sent.
    #[error("the header `{name}` for the provider `{provider}` cannot be sent: {reason}")]
    Header {
        /// Name of the provider.
        provider: String,
        /// Name of the header.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

impl HttpProvider {
    /// A provider that speaks this wire, with a client of its own. Servers on one's own machine
    /// often need no key.
    ///
    /// ```
    /// use conjure_core::wire::{Endpoint, Wire};
    /// use conjure_providers::{HttpOptions, HttpProvider};
    ///
    /// let options = HttpOptions::new("http://127.0.0.1:8080/v1");
    /// let endpoint = Endpoint::new("llamacpp");
    /// let provider = HttpProvider::new(Wire::OpenaiChat, endpoint, None, options)?;
    /// # Ok::<(), conjure_providers::HttpProviderError>(())
    /// ```
    ///
    /// # Errors
    /// [`HttpProviderError`].
    pub fn new(
        wire: Wire,
        endpoint: Endpoint,
        key: Option<SecretString>,
        options: HttpOptions,
    ) -> Result<Self, HttpProviderError> {
        let client = options.client()?;
        Self::with_client(wire, endpoint, key, options, client)
    }

    /// Like [`Self::new`], with a client that other providers use too.
    ///
    /// # Errors
    /// [`HttpProviderError`].
    pub fn with_client(
        wire: Wire,
        endpoint: Endpoint,
        key: Option<SecretString>,
        options: HttpOptions,
        client: reqwest::Client,
    ) -> Result<Self, HttpProviderError> {
        let credentials = match key {
            Some(key) => Credentials::key(wire, &key),
            None => Ok(Credentials::default()),
        };
        let credentials = credentials.map_err(|_| HttpProviderError::Key {
            provider: endpoint.provider.clone(),
        })?;
        Self::build(wire, endpoint, credentials, None, options, client)
    }

    /// Like [`Self::with_client`], with the credential of a saved auth.
    pub(super) fn with_auth(
        wire: Wire,
        endpoint: Endpoint,
        auth: &OpenAuth,
        options: HttpOptions,
        client: reqwest::Client,
    ) -> Result<Self, HttpProviderError> {
        let credentials = Credentials::saved(wire, &auth.credential);
        let credentials = credentials.map_err(|_| HttpProviderError::Key {
            provider: endpoint.provider.clone(),
        })?;
        let name = Some(auth.name.clone());
        Self::build(wire, endpoint, credentials, name, options, client)
    }

    fn build(
        wire: Wire,
        endpoint: Endpoint,
        credentials: Credentials,
        auth: Option<AuthName>,
        options: HttpOptions,
        client: reqwest::Client,
    ) -> Result<Self, HttpProviderError> {
        let provider = || endpoint.provider.clone();
        let address = Address::parse(&options.base_url, wire)?;
        for (name, value) in &options.headers {
            let problem = HeaderName::from_bytes(name.as_bytes())
                .map(|_| ())
                .map_err(|error| error.to_string())
                .and(HeaderValue::from_str(value).map_err(|error| error.to_string()));
            if let Err(reason) = problem {
                return Err(HttpProviderError::Header {
                    provider: provider(),
                    name: name.clone(),
                    reason,
                });
            }
        }
        Ok(Self {
            wire,
            endpoint: endpoint.at(address.to_string()),
            address,
            credentials: Arc::new(credentials),
            auth,
            options,
            client,
            sent_notices: Arc::default(),
        })
    }

    /// The provider of this name, as a session and the environment describe it.
    ///
    /// # Errors
    /// [`UnusableProvider`] when nobody knows the name, or something is missing, such as the key.
    pub fn of(name: &str, spec: &SessionSpec) -> Result<Self, UnusableProvider> {
        let spec = spec.clone().with_provider_base_url();
        Self::find(name, &spec, &HttpClients::default())?.ok_or_else(|| UnusableProvider {
            message: format!("there is no provider `{name}` that is asked over HTTP"),
        })
    }

    /// Like [`Self::of`], over clients that exist already. `None` when nobody knows the name.
    ///
    /// # Errors
    /// [`UnusableProvider`] when something is missing, such as the key.
    pub fn find(
        name: &str,
        spec: &SessionSpec,
        clients: &HttpClients,
    ) -> Result<Option<Self>, UnusableProvider> {
        known_providers::provider(name, spec, clients)
            .map_err(|message| UnusableProvider { message })
    }

    pub(super) fn wire(&self) -> Wire {
        self.wire
    }

    pub(super) fn retry(&self) -> &Retry {
        &self.options.retry
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Asks for a resource that is no answer of a model.
    pub(super) async fn get(&self, resource: &str) -> Result<reqwest::Response, AttemptError> {
        self.ask(reqwest::Method::GET, resource, None, None).await
    }

    /// Like [`Self::get`], with any method, with a form, and as in a beta of the provider's.
    pub(super) async fn ask(
        &self,
        method: reqwest::Method,
        resource: &str,
        form: Option<reqwest::multipart::Form>,
        beta: Option<&'static str>,
    ) -> Result<reqwest::Response, AttemptError> {
        // What the wire sends with every request, such as its version.
        let nothing = ModelRequest::empty(&self.target(""));
        let headers = self.wire.encode(&nothing, &self.endpoint).headers;
        let mut headers = self.headers(&headers);
        if form.is_some() {
            // A form says itself what it is.
            headers.remove(reqwest::header::CONTENT_TYPE);
        }
        if let Some(beta) = beta {
            let beta = reqwest::header::HeaderValue::from_static(beta);
            headers.append("anthropic-beta", beta);
        }
        let builder = self
            .client
            .request(method, self.address.resource_url(resource));
        let builder = builder.headers(headers);
        let builder = match form {
            Some(form) => builder.multipart(form),
            None => builder,
        };
        // Its connection is used for replies, too.
        let provider = self.clone();
        on_reply_thread(async move { provider.send(builder, &provider.endpoint).await }).await
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        sink: &ReplySink,
    ) -> Result<Response, ProviderError> {
        let endpoint = self.endpoint.clone().with_model(&request.model);
        let encoded = self.wire.encode(request, &endpoint);
        self.report_notes(&encoded, sink);
        let url = self.address.resource_url(&self.wire.resource(request));
        let headers = self.headers(&encoded.headers);
        let body = bytes::Bytes::from(encoded.body);
        let (provider, sink) = (self.clone(), sink.clone());
        on_reply_thread(async move {
            with_retries(&provider.options.retry, &sink, async || {
                let builder = provider.client.post(&url).headers(headers.clone());
                let reply = provider.send(builder.body(body.clone()), &endpoint).await?;
                let decoder = provider.wire.decoder(&endpoint);
                let decoded = sse_reply::read(reply, decoder, &sink, &provider.bounds()).await;
                provider.require_complete(decoded, &sink)
            })
            .await
        })
        .await
    }

    /// Logs what was recast; what a person would miss is told, once.
    fn report_notes(&self, encoded: &Encoded, sink: &ReplySink) {
        let provider = &self.endpoint.provider;
        for note in &encoded.notes {
            tracing::debug!(provider, "{note}");
        }
        let mut told = self
            .sent_notices
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for left_out in &encoded.quarantined {
            let text = format!(
                "The tool `{}` is not offered to {provider}: {}",
                left_out.tool, left_out.reason
            );
            if told.insert(text.clone()) {
                sink.notice(text);
            }
        }
    }

    /// The wire's headers, the person's, and the credentials where this wire has them.
    fn headers(&self, of_wire: &[(String, String)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let json = ("content-type".to_owned(), "application/json".to_owned());
        for (name, value) in [&json]
            .into_iter()
            .chain(of_wire)
            .chain(&self.options.headers)
        {
            // What cannot be sent was refused when the provider was made; a wire's always can.
            if let (Ok(name), Ok(value)) = (
                HeaderName::from_bytes(name.as_bytes()),
                HeaderValue::from_str(value),
            ) {
                headers.insert(name, value);
            }
        }
        self.credentials.apply(&mut headers);
        headers
    }

    /// Sends a request as far as the head of a reply that is one.
    async fn send(
        &self,
        builder: reqwest::RequestBuilder,
        endpoint: &Endpoint,
    ) -> Result<reqwest::Response, AttemptError> {
        let sent = tokio::time::timeout(self.options.first_byte_timeout, builder.send());
        let reply = match sent.await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => {
                let message = format!(
                    "{} did not answer within {} s.",
                    self.address,
                    self.options.first_byte_timeout.as_secs_f32()
                );
                return Err(self.failed_attempt("timeout", message, true));
            }
        };
        let status = reply.status();
        if status.is_success() {
            return Ok(reply);
        }
        if status.is_redirection() {
            let message = format!(
                "{} answers with a redirect ({status}), which is not followed because the key \
                 would go along. Give the right address with `--base-url`.",
                self.address
            );
            return Err(self.failed_attempt("protocol", message, false));
        }
        let wait = retry_after(reply.headers());
        let shown = |value: &HeaderValue| {
            let value = value.to_str().ok()?;
            Some(self.credentials.redact(value.to_owned()))
        };
        let headers: Vec<(String, String)> = reply
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), shown(value)?)))
            .collect();
        // The status says what happened also when the rest of the body does not come.
        let bounds = ReplyBounds {
            first_byte: self.options.idle_timeout,
            bytes: ERROR_BYTES,
            ..self.bounds()
        };
        let (body, _) = sse_reply::read_bounded(reply, &bounds).await;
        let body = self.credentials.redact_bytes(body);
        let error = self.wire.error(endpoint, status.as_u16(), &headers, &body);
        Err(AttemptError {
            retry_after: wait.or(error.retry_after),
            ..self.failed_attempt(&error.kind, error.message, error.retryable)
        })
    }

    /// The reply if it is whole; else an error with what came of it.
    fn require_complete(
        &self,
        decoded: Decoded,
        sink: &ReplySink,
    ) -> Result<Response, AttemptError> {
        let Decoded { response, error } = decoded;
        if error.is_none() && response.complete {
            return Ok(response);
        }
        let begun = sink.has_begun();
        let WireError {
            kind,
            message,
            retryable,
            retry_after,
        } = error.unwrap_or_else(|| WireError {
            kind: REPLY_CUT.to_owned(),
            message: if begun {
                "The reply broke off before its end. What came is kept; say something to go on."
                    .to_owned()
            } else {
                "The reply ended before it began.".to_owned()
            },
            retryable: !begun,
            retry_after: None,
        });
        let mut attempt = self.failed_attempt(&kind, message, retryable);
        attempt.retry_after = retry_after;
        attempt.error.partial = (!response.parts.is_empty()).then(|| Box::new(response));
        Err(attempt)
    }

    fn unreachable(&self, error: &reqwest::Error) -> AttemptError {
        let message = format!(
            "{} cannot be reached: {}. Check the network and `--base-url`.",
            self.address,
            root_cause(error)
        );
        self.failed_attempt("network", message, true)
    }

    pub(super) fn failed_attempt(&self, kind: &str, message: String, again: bool) -> AttemptError {
        // A server may repeat what it was sent.
        let message = self.credentials.redact(message);
        AttemptError {
            error: ProviderError::new(&self.endpoint.provider, kind, message),
            retryable: again,
            retry_after: None,
        }
    }

    pub(super) fn bounds(&self) -> ReplyBounds {
        ReplyBounds {
            first_byte: self.options.first_byte_timeout,
            idle: self.options.idle_timeout,
            total: self.options.reply_timeout,
            bytes: self.options.max_reply_bytes,
        }
    }
}

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        &self.endpoint.provider
    }

    fn target(&self, model: &str) -> RepairTarget {
        target(self.wire, &self.endpoint, model)
    }

    fn endpoint(&self, model: &str) -> Endpoint {
        self.endpoint.clone().with_model(model)
    }

    fn auth(&self) -> Option<&AuthName> {
        self.auth.as_ref()
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        self.answer(request, sink).boxed()
    }
}

/// Target of the repair of a conversation that goes to a model at an endpoint, over this wire.
pub fn target(wire: Wire, endpoint: &Endpoint, model: &str) -> RepairTarget {
    let target = RepairTarget::new(&endpoint.provider, model).with_wire(wire);
    match wire {
        Wire::OpenaiChat => RepairTarget {
            images: endpoint.dialect.images,
            files: endpoint.dialect.files,
            ..target
        },
        Wire::Anthropic | Wire::OpenaiResponses | Wire::Gemini => target,
    }
}

#[cfg(test)]
mod tests;
