//! What supervisors ask: whether the server lives, whether it can work, and its figures.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;

/// The format of Prometheus, as OpenMetrics writes it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long the database may take to say that it works.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) fn router() -> Operations {
    supervised().routes(routes!(metrics))
}

/// What a supervisor asks.
pub(super) fn supervised() -> Operations {
    Operations::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
}

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
struct HealthView {
    /// `ok`.
    status: &'static str,
}

/// Whether the server lives
#[utoipa::path(get, path = "/healthz", operation_id = "healthz", tag = "server",
    responses((status = 200, description = "It does", body = HealthView)))]
async fn healthz() -> Json<HealthView> {
    Json(HealthView { status: "ok" })
}

/// Whether the server can work: the database takes what is written, and it is not ending
#[utoipa::path(get, path = "/readyz", operation_id = "readyz", tag = "server",
    responses((status = 200, description = "It can", body = HealthView),
        (status = 503, description = "It cannot")))]
async fn readyz(State(app): State<App>) -> Result<Json<HealthView>, Problem> {
    if app.closing.is_cancelled() {
        return Err(Problem::unavailable("ending", "the server is ending"));
    }
    let looked = async {
        app.store.probe().await?;
        // Others read than write. Any row, or none: what counts is that the database says so.
        app.store.auths(None, 1).await.map(drop)
    };
    let unavailable = |why: String| Problem::unavailable("database", why);
    match tokio::time::timeout(DATABASE_TIMEOUT, looked).await {
        Ok(Ok(())) => Ok(Json(HealthView { status: "ok" })),
        Ok(Err(error)) => Err(unavailable(error.to_string())),
        Err(_) => Err(unavailable(format!(
            "the database did not answer within {} s",
            DATABASE_TIMEOUT.as_secs()
        ))),
    }
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
