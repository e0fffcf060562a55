//! The description of the API, as a server shows it.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::state::App;

/// Where the description is.
const PATH: &str = "/api/v1/openapi.json";

/// The description: the file `conjure-host/docs/openapi.json`, which a test compares with what the
/// operations say of themselves. Making it anew in every server would cost megabytes for nothing.
pub fn document() -> &'static str {
    include_str!("../../docs/openapi.json")
}

/// The route of the description.
pub(super) fn router() -> Router<App> {
    Router::new().route(PATH, get(show))
}

async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}
