//! Why a view shows nothing: a problem of the API's or of the runtime's, as a page or as a toast.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use conjure_runtime::manager::ManagerError;
use conjure_store::StoreError;
use maud::html;

use crate::client::ApiProblem;
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::{html_response, toast};

/// A failure, with what to do about it in its words.
#[derive(Debug, Clone)]
pub(crate) struct PageFailure {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
}

impl PageFailure {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

impl From<ApiProblem> for PageFailure {
    fn from(problem: ApiProblem) -> Self {
        let status = StatusCode::from_u16(problem.status);
        Self::new(
            status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            problem.detail,
        )
    }
}

impl From<ManagerError> for PageFailure {
    fn from(error: ManagerError) -> Self {
        let status = match &error {
            error if error.is_not_found() => StatusCode::NOT_FOUND,
            ManagerError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            ManagerError::Conflict { .. } => StatusCode::CONFLICT,
            ManagerError::Full { .. } => StatusCode::TOO_MANY_REQUESTS,
            ManagerError::Closing | ManagerError::Elsewhere { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<StoreError> for PageFailure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadId { .. } => Self::not_found(error.to_string()),
            error => ManagerError::from(error).into(),
        }
    }
}

impl IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.detail.clone()).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Shows failures in the form that the request takes.
pub(crate) async fn show(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let asked = PageRequest::of(&parts);
    let response = next.run(Request::from_parts(parts, body)).await;
    let Some(failure) = response.extensions().get::<PageFailure>() else {
        return response;
    };
    if asked.pieces {
        return html_response(failure.status, toast(&failure.detail));
    }
    let title = failure.status.canonical_reason().unwrap_or("Failed");
    let body = html! {
        section.problem {
            h1 { (title) }
            p { (failure.detail) }
            p { a href="/" { "All sessions" } }
        }
    };
    let mut page = layout(&asked, &PageFrame::new(Nav::None, title), &body);
    *page.status_mut() = failure.status;
    page
}
