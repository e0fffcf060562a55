//! The description of the API, as a server shows it.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use super::problem::Described;
use super::state::App;

/// Where the description is.
const PATH: &str = "/api/v1/openapi.json";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Conjure",
        description = "A host for AI agents. Errors are problem details (RFC 9457); lists come in \
                       pages with a cursor; a create that has an `Idempotency-Key` is done once.",
        version = "1"
    ),
    components(schemas(Described))
)]
struct Base;

/// What the description begins with.
pub(super) fn base() -> OpenApi {
    Base::openapi()
}

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
