//! What supervisors ask: whether the server lives, whether it can work, and its figures.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::state::App;
use crate::store::StoreError;

/// The format of Prometheus, as OpenMetrics writes it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
}

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether the server lives
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "server",
    responses((status = 200, description = "It does", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the server can work: the database answers, and it is not ending
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "server",
    responses((status = 200, description = "It can", body = Health),
        (status = 503, description = "It cannot")))]
async fn readyz(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.closing.is_cancelled() {
        return Err(Problem::unavailable("ending", "the server is ending"));
    }
    // Any row, or none: what counts is that the database says so.
    app.store
        .auths(None, 1)
        .await
        .map_err(|error: StoreError| Problem::unavailable("database", error.to_string()))?;
    Ok(Json(Health { status: "ok" }))
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "server",
    responses((status = 200, description = "The figures", body = String,
        content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let text = app.metrics.text(app.manager.running());
    let text = text.map_err(|_| Problem::host("the figures cannot be written"))?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response())
}
