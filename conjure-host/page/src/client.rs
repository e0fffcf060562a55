//! Calls of the API inside the process: method, path and JSON in, JSON or a problem out.
//!
//! What a form does goes through here, so that the checks and the words are the API's own.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tower::ServiceExt as _;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Calls operations. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct ApiClient {
    api: Router,
}

/// What an operation answered.
#[derive(Debug, Clone)]
pub(crate) struct ApiAnswer {
    /// Headers of the answer, `ETag` and `Location` among them.
    pub(crate) headers: HeaderMap,
    /// Body of the answer; null where there is none.
    pub(crate) body: Value,
}

/// Why an operation was not done (RFC 9457).
#[derive(Debug, Clone, PartialEq, Deserialize, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct ApiProblem {
    /// The kind in words.
    #[serde(default)]
    pub(crate) title: String,
    /// The status.
    #[serde(default)]
    pub(crate) status: u16,
    /// What failed, why, and what to do.
    #[serde(default)]
    pub(crate) detail: String,
    /// What the kind has beside these, such as `sessions` of `in-use`.
    #[serde(flatten)]
    pub(crate) more: Box<Map<String, Value>>,
}

impl ApiProblem {
    /// Whether it is of this kind, such as `in-flight`.
    pub(crate) fn is(&self, kind: &str) -> bool {
        let name = self.more.get("type").and_then(Value::as_str);
        name.and_then(|name| name.rsplit(':').next()) == Some(kind)
    }

    /// The member of what was sent that it is about, where it is about one.
    pub(crate) fn field(&self) -> Option<&str> {
        self.more.get("field")?.as_str()
    }

    fn of(status: StatusCode, body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| Self {
            title: status.canonical_reason().unwrap_or("Failed").to_owned(),
            status: status.as_u16(),
            detail: format!("the host answered {status} without saying why"),
            more: Box::default(),
        })
    }
}

impl ApiClient {
    pub(crate) fn new(api: Router) -> Self {
        Self { api }
    }

    /// What is at a path, with its query.
    ///
    /// # Errors
    /// The operation's problem, and one where its answer is not of this shape.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiProblem> {
        let answer = self.call(Method::GET, path, &[], None).await?;
        answer.read().map_err(|error| internal(&error))
    }

    /// Does something with a body, such as `POST` with JSON.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<T, ApiProblem> {
        let answer = self.call(method, path, &[], Some(body)).await?;
        answer.read().map_err(|error| internal(&error))
    }

    /// Does something without a body, such as `DELETE`.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub(crate) async fn send_empty<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<T, ApiProblem> {
        let answer = self.call(method, path, &[], None).await?;
        answer.read().map_err(|error| internal(&error))
    }

    /// The beginning of what is at a path, at most so many bytes, and whether more is behind it.
    ///
    /// # Errors
    /// The operation's problem.
    pub(crate) async fn read_prefix(
        &self,
        path: &str,
        most: u64,
    ) -> Result<(Vec<u8>, bool), ApiProblem> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut stream = self.content(path).await?.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.map_err(|error| internal(&error))?);
            if bytes.len() > most {
                break;
            }
        }
        let is_cut = bytes.len() > most;
        bytes.truncate(most);
        Ok((bytes, is_cut))
    }

    /// The bytes of what is at a path, as they come.
    ///
    /// # Errors
    /// The operation's problem.
    pub(crate) async fn content(&self, path: &str) -> Result<Body, ApiProblem> {
        let request = Request::builder().uri(path).body(Body::empty());
        let request = request.map_err(|error| internal(&error))?;
        let answer = self.api.clone().oneshot(request).await;
        let Ok(response) = answer;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let words = to_bytes(body, MAX_ANSWER_BYTES).await;
        let words = words.map_err(|error| internal(&error))?;
        Err(ApiProblem::of(head.status, &words))
    }

    /// Sends bytes of some media type as they come, once for a key where there is one.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub(crate) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        key: Option<&HeaderValue>,
        media_type: HeaderValue,
        body: Body,
    ) -> Result<T, ApiProblem> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, media_type);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(body).map_err(|error| internal(&error))?;
        let answer = self.answer(request).await?;
        answer.read().map_err(|error| internal(&error))
    }

    /// Any call, with headers such as `If-Match`, and the headers of its answer.
    ///
    /// # Errors
    /// The operation's problem.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Option<&Value>,
    ) -> Result<ApiAnswer, ApiProblem> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| internal(&error))?;
        self.answer(request).await
    }

    async fn answer(&self, request: Request<Body>) -> Result<ApiAnswer, ApiProblem> {
        let answer = self.api.clone().oneshot(request).await;
        let Ok(response) = answer;
        let (head, body) = response.into_parts();
        let body = to_bytes(body, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| internal(&error))?;
        if !head.status.is_success() {
            return Err(ApiProblem::of(head.status, &body));
        }
        let body = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&body).map_err(|error| internal(&error))?,
        };
        Ok(ApiAnswer {
            headers: head.headers,
            body,
        })
    }
}

impl ApiAnswer {
    fn read<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.body)
    }
}

fn internal(error: &dyn std::error::Error) -> ApiProblem {
    ApiProblem {
        title: "Host".to_owned(),
        status: 500,
        detail: format!("the page could not call the host: {error}"),
        more: Box::default(),
    }
}

/// Something in a path: every byte that is not a letter, a digit or one of `-._~` is escaped.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use axum::{Json, http};
    use serde_json::json;

    use super::*;

    fn client() -> ApiClient {
        let problem = || async {
            let body = json!({ "type": "urn:conjure:problem:in-use", "title": "In use",
                "status": 409, "detail": "it is in use", "sessions": ["a"] });
            (StatusCode::CONFLICT, Json(body))
        };
        let echo = |headers: HeaderMap, Json(body): Json<Value>| async move {
            let seen = headers
                .get(http::header::IF_MATCH)
                .map(http::HeaderValue::len);
            (
                [(http::header::ETAG, "\"2\"")],
                Json(json!({ "body": body, "seen": seen })),
            )
        };
        let router = Router::new()
            .route("/echo", post(echo))
            .route("/problem", get(problem))
            .route("/plain", get(|| async { (StatusCode::BAD_GATEWAY, "no") }))
            .route("/nothing", get(|| async { StatusCode::NO_CONTENT }));
        ApiClient::new(router)
    }

    #[tokio::test]
    async fn a_call_gives_json_headers_or_the_problem() {
        let client = client();
        let sent = [(header::IF_MATCH, HeaderValue::from_static("\"1\""))];
        let body = json!({ "a": 1 });
        let answer = client.call(Method::POST, "/echo", &sent, Some(&body)).await;
        let answer = answer.unwrap();
        assert_eq!(answer.body, json!({ "body": { "a": 1 }, "seen": 3 }));
        assert_eq!(answer.headers[header::ETAG], "\"2\"");
        client.get::<()>("/nothing").await.unwrap();
        let problem = client.get::<Value>("/problem").await.unwrap_err();
        assert_eq!(problem.more["sessions"], json!(["a"]));
        assert_eq!(problem.to_string(), "it is in use");
        assert!(problem.is("in-use") && !problem.is("use"));
        let problem = client.get::<Value>("/plain").await.unwrap_err();
        assert_eq!(problem.status, 502);
    }

    #[test]
    fn a_segment_is_one_segment() {
        assert_eq!(segment("a b/c?d#é"), "a%20b%2Fc%3Fd%23%C3%A9");
        assert_eq!(segment("A-1._~"), "A-1._~");
    }
}
