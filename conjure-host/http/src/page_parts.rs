//! What a page is made over: the operations of the API without their admission, for calls inside the
//! process, and what lasts as long as the server.
//!
//! The page itself is another face. It stands behind the same admission as the API, and is given as
//! a function, so that neither knows the other.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conjure_runtime::manager::Manager;
use conjure_store::{Store, StoreError, ThreadId};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::middleware::ClientName;
use super::state::App;

/// What a page is made over.
pub struct PageParts {
    /// The operations of the API, for calls inside the process: a request to it is already admitted.
    pub api: Router,
    /// The sessions.
    pub manager: Manager,
    /// Cancelled when the server ends and no turn runs any more: streams of the page end then.
    pub shutdown: CancellationToken,
    /// Begins a stream for the client that a request's extensions name.
    pub follow: FollowStream,
}

/// Takes a place among the open streams, which dropping what it gives frees; the response says why
/// there is none.
pub type FollowStream =
    Arc<dyn Fn(&Extensions) -> Result<Box<dyn Any + Send + Sync>, Box<Response>> + Send + Sync>;

/// A page for browsers.
pub struct BrowserPage {
    /// Routes of the page; none of them is an operation's. Each request has the limits of files that are
    /// received as an extension, a [`ReceiveLimits`](conjure_runtime::uploads::ReceiveLimits).
    pub router: Router,
    /// Shows a problem to a person.
    pub problem: ShowProblem,
}

/// Makes the response that shows a problem.
pub type ShowProblem = Arc<dyn Fn(&ShownProblem, &HeaderMap) -> Response + Send + Sync>;

/// Makes the page when the server begins to serve.
pub type MakePage = Box<dyn FnOnce(PageParts) -> BrowserPage + Send>;

/// Makes the file of a thread that is given to others.
pub type ShareThread = Arc<
    dyn Fn(Store, ThreadId) -> BoxFuture<'static, Result<SharedThread, StoreError>> + Send + Sync,
>;

/// A thread as a file for others.
#[derive(Debug, Clone)]
pub struct SharedThread {
    /// What the file is called: letters, digits and `-` before its ending.
    pub name: String,
    /// What is in it.
    pub html: String,
}

/// A problem, for people.
#[derive(Debug, Clone)]
pub struct ShownProblem {
    /// The status of the answer.
    pub status: StatusCode,
    /// Kind of the problem, such as `no-token`.
    pub kind: &'static str,
    /// The kind in words.
    pub title: String,
    /// What failed, why, and what to do.
    pub detail: String,
}

/// A place among the streams, in the form that a page takes it.
pub(super) fn follow(app: &App) -> FollowStream {
    let app = app.clone();
    Arc::new(move |extensions| {
        let client = extensions.get::<ClientName>().cloned().unwrap_or_default();
        let place = app.streams.follow(&client);
        place
            .map(|place| Box::new(place) as Box<dyn Any + Send + Sync>)
            .map_err(|problem| Box::new(problem.into_response()))
    })
}

/// Gives a call inside the process the name that a browser has.
pub(super) async fn as_browser(mut request: Request, next: Next) -> Response {
    if request.extensions().get::<ClientName>().is_none() {
        let browser = ClientName(Some(Arc::from("browser")));
        request.extensions_mut().insert(browser);
    }
    next.run(request).await
}

/// Whether a person's browser asks for a page to look at.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    accepted
        .filter_map(|accepted| accepted.to_str().ok())
        .any(|accepted| accepted.contains("text/html"))
}

/// The problem that a response tells, as a page where there is one.
pub(super) fn problem_page(
    show: &ShowProblem,
    headers: &HeaderMap,
    response: Response,
) -> Response {
    let Some(problem) = response.extensions().get::<ShownProblem>() else {
        return response;
    };
    let page = show(problem, headers);
    let (mut parts, _) = response.into_parts();
    let (head, body) = page.into_parts();
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
    parts.headers.extend(head.headers);
    (parts, body).into_response()
}
