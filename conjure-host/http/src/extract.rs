//! What a request says, read with its bounds: body, query, path. What cannot be read is a problem
//! that says why.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_path_to_error::Segment;
use tokio::sync::OwnedSemaphorePermit;

use super::problem::Problem;
use super::state::App;
use super::wording;
use conjure_config::shown_name::hidden_character;

/// The most bytes of a body that is no import.
pub(super) const MAX_BODY_BYTES: usize = 1024 * 1024;
/// The most bytes of an import.
pub(super) const MAX_IMPORT_BYTES: usize = 64 * 1024 * 1024;

/// A JSON body.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "the body has to be JSON: `Content-Type: application/json`",
            ));
        }
        let body = read_body(
            &parts.headers,
            body,
            MAX_BODY_BYTES,
            app.options.body_timeout,
        )
        .await?;
        wording::read(&body).map(Self)
    }
}

/// Room for an import, which is whole in memory: there is room for few at the same time.
#[derive(Clone)]
pub(super) struct ImportPermit {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl ImportPermit {
    /// Waits for room, for as long as a body may take.
    pub(super) async fn wait(app: &App) -> Result<Self, Problem> {
        let room = Arc::clone(&app.imports).acquire_owned();
        match tokio::time::timeout(app.options.body_timeout, room).await {
            Ok(Ok(room)) => Ok(Self {
                _permit: Arc::new(room),
            }),
            _ => Err(Problem::unavailable(
                "busy",
                "other files are being received; try again when they are done",
            )),
        }
    }
}

/// A body of lines of JSON, as it came, with the room for it.
pub(super) struct JsonLinesBody(pub(super) Bytes, pub(super) ImportPermit);

impl FromRequest<App> for JsonLinesBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let kinds = [
            "application/jsonl",
            "application/x-ndjson",
            "application/octet-stream",
        ];
        let what = "the body has to be lines of JSON: `Content-Type: application/jsonl`";
        let (body, room) = read_large_body(request, app, &kinds, what).await?;
        Ok(Self(body, room))
    }
}

/// A body of an import, with the room for it. `what` says what it has to be, where its media type
/// is none of `kinds`.
pub(super) async fn read_large_body(
    request: Request,
    app: &App,
    kinds: &[&str],
    what: &str,
) -> Result<(Bytes, ImportPermit), Problem> {
    if !kinds.contains(&media_type(request.headers()).as_str()) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            what,
        ));
    }
    read_large_body_of_any_type(request, app).await
}

/// A body of as many bytes as an import may have, with the room for it.
pub(super) async fn read_large_body_of_any_type(
    request: Request,
    app: &App,
) -> Result<(Bytes, ImportPermit), Problem> {
    let (parts, body) = request.into_parts();
    // A request that is done once has it already, and so its body.
    let room = match parts.extensions.get::<ImportPermit>() {
        Some(room) => room.clone(),
        None => ImportPermit::wait(app).await?,
    };
    let timeout = app.options.import_timeout;
    let body = read_body(&parts.headers, body, MAX_IMPORT_BYTES, timeout).await?;
    Ok((body, room))
}

/// The whole of a body of at most `limit` bytes, which has this long to arrive.
pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            format!("the body may have {limit} bytes at most"),
        )
    };
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let reading = async {
        let mut stream = body.into_data_stream();
        let mut only: Option<Bytes> = None;
        let mut whole = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece
                .map_err(|error| Problem::malformed(format!("the body broke off: {error}")))?;
            let length = only.as_ref().map_or(whole.len(), Bytes::len);
            if length + piece.len() > limit {
                return Err(too_large());
            }
            // A body in one piece stays where it is.
            if let Some(one) = only.take() {
                whole = Vec::from(one);
            } else if whole.is_empty() {
                only = Some(piece);
                continue;
            }
            whole.extend_from_slice(&piece);
        }
        Ok(only.unwrap_or_else(|| Bytes::from(whole)))
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            format!("the body took longer than {} s", timeout.as_secs()),
        )
        // What is left of the body would be taken for the next request.
        .header(
            header::CONNECTION,
            header::HeaderValue::from_static("close"),
        )),
    }
}

/// Whether a body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The media type without its parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = value.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// The query.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(query) => Ok(Self(query.0)),
            Err(error) => Err(unfit_query(&error)),
        }
    }
}

/// The problem that names the wrong parameter of a query, and says why.
fn unfit_query(error: &QueryRejection) -> Problem {
    let unfit = |why: &str| Problem::invalid(format!("the query is not as it should be: {why}"));
    let mut reason = error.source();
    let found = loop {
        let Some(next) = reason else {
            return unfit(&error.to_string());
        };
        match next.downcast_ref::<UnfitParameter>() {
            Some(found) => break found,
            None => reason = next.source(),
        }
    };
    let why = found.inner().to_string();
    let why = wording::query_error_text(&why);
    match found.path().iter().next() {
        Some(Segment::Map { key }) => unfit(&format!("`{key}`: {why}")).at(key),
        _ => unfit(why),
    }
}

/// What reads a query says, with the parameter.
type UnfitParameter = serde_path_to_error::Error<serde::de::value::Error>;

/// What stands in the path.
pub(super) struct PathParams<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(path) => Ok(Self(path.0)),
            Err(PathRejection::FailedToDeserializePathParams(error)) => Err(Problem::not_found(
                format!("there is nothing at this path: {}", error.body_text()),
            )),
            Err(error) => Err(Problem::host(error.to_string())),
        }
    }
}

/// An id in a path: 1 to 64 letters, digits, `-` and `_`.
#[derive(Debug, Clone)]
pub(super) struct Id(pub(super) String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if (1..=64).contains(&text.len()) && text.bytes().all(letters) {
            Ok(Self(text))
        } else {
            Err(D::Error::custom(
                "an id has 1 to 64 letters, digits, `-` and `_`",
            ))
        }
    }
}

/// A name or an id in a path that somebody else chose: 1 to 200 characters without line ends.
#[derive(Debug, Clone)]
pub(super) struct Ref(pub(super) String);

impl<'de> Deserialize<'de> for Ref {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if (1..=200).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err(D::Error::custom(
                "a name is one line of 1 to 200 characters",
            ))
        }
    }
}

/// A name that can be shown in a line: 1 to `most` characters without line ends.
pub(super) fn line<'a>(what: &str, text: &'a str, most: usize) -> Result<&'a str, Problem> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > most || text.chars().any(char::is_control) {
        return Err(
            Problem::invalid(format!("`{what}` is one line of 1 to {most} characters")).at(what),
        );
    }
    Ok(text)
}

/// Like [`line`], for a name of which nothing is hidden from whoever reads it in a list.
pub(super) fn shown_name<'a>(what: &str, text: &'a str, most: usize) -> Result<&'a str, Problem> {
    let text = line(what, text, most)?;
    match hidden_character(text) {
        Some(hidden) => Err(Problem::invalid(format!(
            "`{what}` has the character U+{:04X}, which is not shown or changes how the others \
             are; write it without that",
            u32::from(hidden)
        ))
        .at(what)),
        None => Ok(text),
    }
}

/// Text that a database of either kind takes.
pub(super) fn text<'a>(what: &str, text: &'a str) -> Result<&'a str, Problem> {
    if text.contains('\0') {
        let detail = format!("`{what}` has a zero character");
        return Err(Problem::invalid(detail).at(what));
    }
    Ok(text)
}
