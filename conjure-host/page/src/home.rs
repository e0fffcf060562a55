//! The first page: the sessions that there are.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use conjure_runtime::manager::SessionState;
use maud::html;
use serde::Deserialize;

use crate::App;
use crate::client::segment;
use crate::failure::Failure;
use crate::layout::{Nav, View, layout};
use crate::request::PageRequest;

/// A session, as far as it is listed.
#[derive(Deserialize)]
struct Listed {
    id: String,
    name: Option<String>,
    model: String,
    state: SessionState,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Listed>,
}

pub(crate) fn router() -> Router<App> {
    Router::new().route("/", get(show))
}

async fn show(State(app): State<App>, request: PageRequest) -> Result<Response, Failure> {
    let sessions: Page = app.api.get("/api/v1/sessions?limit=200").await?;
    let body = html! {
        h1 { "Sessions" }
        @if sessions.items.is_empty() {
            p { "There is no session yet." }
        }
        ul.cards #sessions {
            @for session in &sessions.items {
                @let name = session.name.as_deref().unwrap_or(&session.id);
                li.card id={ "session-" (session.id) } {
                    h2 { a href={ "/sessions/" (segment(name)) } { (name) } }
                    p.muted { (session.model) }
                    @if session.state != SessionState::Idle { span.badge { "ACTIVE" } }
                }
            }
        }
    };
    Ok(layout(
        &request,
        &View::new(Nav::Sessions, "Sessions"),
        &body,
    ))
}
