//! The provider `anthropic`: the Messages API over HTTP.

use conjure_core::chat::Response;
use conjure_core::request::ModelRequest;
use conjure_core::wire::{Decoded, WireError, anthropic as wire};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};

use super::http::{Attempt, HttpOptions, retry_after, with_retries};
use super::sse_reply::{self, Timeouts};
use super::{Provider, ProviderError, ReplySink};

/// Bytes of an error's body that are looked at.
const ERROR_BYTES: usize = 64 * 1024;

/// The provider `anthropic`.
pub struct Anthropic {
    key: SecretString,
    options: HttpOptions,
    client: reqwest::Client,
}

impl Anthropic {
    /// A provider that asks with this key.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(key: SecretString, options: HttpOptions) -> reqwest::Result<Self> {
        Ok(Self {
            key,
            client: options.client()?,
            options,
        })
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        sink: &ReplySink,
    ) -> Result<Response, ProviderError> {
        let encoded = wire::encode(request);
        for note in &encoded.notes {
            tracing::debug!(provider = wire::PROVIDER, "{note}");
        }
        let body = bytes::Bytes::from(encoded.body);
        let reply = with_retries(&self.options.retry, sink, || {
            self.send(body.clone(), &encoded.headers)
        })
        .await?;
        let timeouts = Timeouts {
            first_byte: self.options.first_byte_timeout,
            idle: self.options.idle_timeout,
        };
        let decoded =
            sse_reply::read(reply, wire::decoder(), wire::decode_body, sink, &timeouts).await;
        let Decoded { response, error } = decoded;
        match error {
            None if response.complete => Ok(response),
            error => Err(broken(response, error)),
        }
    }

    async fn send(
        &self,
        body: bytes::Bytes,
        headers: &[(String, String)],
    ) -> Result<reqwest::Response, Attempt> {
        let mut builder = self
            .client
            .post(format!("{}/v1/messages", self.options.base_url))
            .header("x-api-key", self.key.expose_secret())
            .header("content-type", "application/json");
        for (name, value) in headers.iter().chain(&self.options.headers) {
            builder = builder.header(name, value);
        }
        let sent = tokio::time::timeout(self.options.first_byte_timeout, builder.body(body).send());
        let reply = match sent.await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => {
                return Err(Attempt {
                    error: self.error(
                        "timeout",
                        format!(
                            "{} did not answer within {} s.",
                            self.options.base_url,
                            self.options.first_byte_timeout.as_secs()
                        ),
                    ),
                    again: true,
                    retry_after: None,
                });
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
                self.options.base_url
            );
            return Err(Attempt {
                error: self.error("protocol", message),
                again: false,
                retry_after: None,
            });
        }
        let wait = retry_after(reply.headers());
        let body = sse_reply::read_bounded(reply, ERROR_BYTES).await;
        let error = wire::error(status.as_u16(), &body);
        Err(Attempt {
            error: self.error(&error.kind, error.message),
            again: error.retryable,
            retry_after: wait,
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Attempt {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            reason = cause.to_string();
            source = cause.source();
        }
        let message = format!(
            "{} cannot be reached: {reason}. Check the network and `--base-url`.",
            self.options.base_url
        );
        Attempt {
            error: self.error("network", message),
            again: true,
            retry_after: None,
        }
    }

    fn error(&self, kind: &str, message: String) -> ProviderError {
        ProviderError::new(wire::PROVIDER, kind, message)
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &str {
        wire::PROVIDER
    }

    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>> {
        self.answer(request, sink).boxed()
    }
}

/// A reply that did not come to its end: what came goes along.
fn broken(response: Response, error: Option<WireError>) -> ProviderError {
    let (kind, message) = match error {
        Some(error) => (error.kind, error.message),
        None => (
            "cut".to_owned(),
            "The reply broke off before its end. What came is kept; say something to go on."
                .to_owned(),
        ),
    };
    let mut failed = ProviderError::new(wire::PROVIDER, kind, message);
    failed.partial = (!response.parts.is_empty()).then(|| Box::new(response));
    failed
}
