//! Requests to Anthropic, and what its errors mean.
//!
//! The key is asked of the host for each request and kept nowhere. What passes is tried again, as
//! long as nothing came.

use std::time::Duration;

use conjure_core::wire::{Encoded, Endpoint, Wire, anthropic};
use conjure_skill_sdk::{Cx, Error, Result};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::PROVIDER;
use crate::config::{AnthropicSettings, KEY_VARIABLE};
use crate::items::is_id;

/// Attempts in all at a request that nothing came of.
const MAX_ATTEMPTS: u32 = 3;
/// The longest wait between two of them.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(20);
/// The most bytes of an answer that is no file and no stream.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Time for an answer to begin.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);

/// The API of one configuration.
#[derive(Debug, Clone)]
pub(crate) struct AnthropicApi {
    client: reqwest::Client,
    base_url: String,
    model: String,
    betas: Option<String>,
}

/// The body of a request, as often as it is sent.
pub(crate) enum RequestBody<'a> {
    None,
    /// A request of the Messages API.
    Encoded(&'a Encoded),
    /// A file, as a form.
    File {
        path: &'a str,
        size: u64,
        name: &'a str,
        media_type: &'a str,
    },
}

impl RequestBody<'_> {
    async fn put_into(&self, request: RequestBuilder) -> Result<RequestBuilder> {
        Ok(match self {
            Self::None => request,
            Self::Encoded(encoded) => {
                let headers = encoded.headers.iter();
                headers
                    .filter(|(name, _)| name != "anthropic-version")
                    .fold(request, |request, (name, value)| {
                        request.header(name, value)
                    })
                    .body(encoded.body.clone())
            }
            Self::File {
                path,
                size,
                name,
                media_type,
            } => {
                let body = tokio::fs::File::open(path).await?;
                let part = Part::stream_with_length(body, *size)
                    .file_name((*name).to_owned())
                    .mime_str(media_type)?;
                request.multipart(Form::new().part("file", part))
            }
        })
    }
}

/// An answer that is not the one that was wanted.
#[derive(Debug)]
pub(crate) struct ApiFailure {
    /// The HTTP status; 0 when there was no answer.
    pub(crate) status: u16,
    /// Message: what failed, why and what to do.
    pub(crate) message: String,
    retryable: bool,
    wait: Option<Duration>,
}

impl From<ApiFailure> for Error {
    fn from(refused: ApiFailure) -> Self {
        Self::new(refused.message)
    }
}

impl ApiFailure {
    /// Something that is not sent again.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            status: 0,
            message: message.into(),
            retryable: false,
            wait: None,
        }
    }

    fn network(error: &reqwest::Error) -> Self {
        // The SDK says each cause behind the error.
        let message = Error::from(error);
        Self {
            // What was sent may have been done already, unless there was no connection.
            retryable: error.is_connect(),
            ..Self::new(format!(
                "Anthropic could not be reached: {message}. Check the network and `base_url`."
            ))
        }
    }
}

impl AnthropicApi {
    pub(crate) fn new(settings: &AnthropicSettings) -> Result<Self> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .read_timeout(settings.idle.max(Duration::from_millis(1)))
            .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")));
        let is_plain = settings.base_url.starts_with("http://");
        let client = if is_plain {
            client.tls_certs_only([]).build()
        } else {
            client.build()
        };
        Ok(Self {
            client: client?,
            base_url: settings.base_url.clone(),
            model: settings.model.clone(),
            betas: (!settings.betas.is_empty()).then(|| settings.betas.join(",")),
        })
    }

    /// Sends a request until something comes of it: an answer with a status of success. `body`
    /// makes the body of each attempt.
    pub(crate) async fn send(
        &self,
        cx: &Cx,
        (method, path): (Method, &str),
        body: RequestBody<'_>,
    ) -> Result<Response, ApiFailure> {
        let key = cx.secret_async(KEY_VARIABLE).await;
        let key = key.map_err(|error| ApiFailure::new(error.message()))?;
        let mut attempt = 1;
        loop {
            let request = self
                .client
                .request(method.clone(), format!("{}/v1/{path}", self.base_url))
                .header("x-api-key", &key)
                .header("anthropic-version", anthropic::API_VERSION);
            let request = match &self.betas {
                Some(betas) => request.header("anthropic-beta", betas),
                None => request,
            };
            let request = body.put_into(request).await;
            let request = request.map_err(|error| ApiFailure::new(error.message()))?;
            let refused = match self.send_once(request, self.endpoint(&body)).await {
                Ok(response) => return Ok(response),
                Err(refused) => refused,
            };
            if !refused.retryable || attempt >= MAX_ATTEMPTS || cx.cancelled() {
                return Err(refused);
            }
            let wait = refused.wait.unwrap_or(Duration::from_millis(500) * attempt);
            attempt += 1;
            tokio::time::sleep(wait.min(MAX_RETRY_DELAY)).await;
        }
    }

    /// Where a request goes, for the words of its errors; only one to a model has a model.
    fn endpoint(&self, body: &RequestBody<'_>) -> Endpoint {
        let endpoint = Endpoint::new(PROVIDER).at(&self.base_url);
        match body {
            RequestBody::Encoded(_) => endpoint.with_model(&self.model),
            RequestBody::None | RequestBody::File { .. } => endpoint,
        }
    }

    async fn send_once(
        &self,
        request: RequestBuilder,
        to: Endpoint,
    ) -> Result<Response, ApiFailure> {
        let response = match tokio::time::timeout(FIRST_BYTE_TIMEOUT, request.send()).await {
            Ok(response) => response.map_err(|error| ApiFailure::network(&error))?,
            Err(_) => {
                return Err(ApiFailure::new(format!(
                    "Anthropic gave no answer within {FIRST_BYTE_TIMEOUT:?}."
                )));
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let wait = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let body = read_body(response).await.unwrap_or_default();
        let error = Wire::Anthropic.error(&to, status.as_u16(), &[], &body);
        Err(ApiFailure {
            status: status.as_u16(),
            message: error.message,
            retryable: error.retryable,
            wait,
        })
    }

    /// An answer that is JSON.
    pub(crate) async fn json(&self, cx: &Cx, path: &str) -> Result<Value, ApiFailure> {
        let response = self
            .send(cx, (Method::GET, path), RequestBody::None)
            .await?;
        json(response).await
    }

    /// What a skill of the workspace is called, and what it is for: of a version, or its latest.
    /// Reads the shapes of today and of the beta.
    pub(crate) async fn skill(
        &self,
        cx: &Cx,
        id: &str,
        version: Option<&str>,
    ) -> Result<(String, String), ApiFailure> {
        let text = |value: &Value, names: &[&str]| {
            let mut found = names.iter().filter_map(|name| value.get(*name)?.as_str());
            found.next().unwrap_or_default().to_owned()
        };
        if !is_id(id) {
            return Err(ApiFailure::new(format!("`{id}` is no id of a skill")));
        }
        let version = match version.filter(|version| *version != "latest") {
            Some(version) => version.to_owned(),
            None => {
                let skill = self.json(cx, &format!("skills/{id}")).await?;
                text(&skill, &["latest_version_id", "latest_version"])
            }
        };
        if !is_id(&version) {
            return Err(ApiFailure::new(format!(
                "the skill `{id}` has no version `{version}`"
            )));
        }
        let version = self
            .json(cx, &format!("skills/{id}/versions/{version}"))
            .await?;
        let name = text(&version, &["name", "directory"]);
        if name.is_empty() {
            return Err(ApiFailure::new(format!("the skill `{id}` has no name")));
        }
        Ok((name, text(&version, &["description"])))
    }
}

/// The JSON of an answer.
pub(crate) async fn json(response: Response) -> Result<Value, ApiFailure> {
    let bytes = read_body(response).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiFailure::new(format!("Anthropic's answer is no JSON: {error}")))
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, ApiFailure> {
    let mut bytes = Vec::new();
    loop {
        let piece = response.chunk().await;
        let Some(piece) = piece.map_err(|error| ApiFailure::network(&error))? else {
            return Ok(bytes);
        };
        if bytes.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(ApiFailure::new("Anthropic's answer is too large."));
        }
        bytes.extend_from_slice(&piece);
    }
}
