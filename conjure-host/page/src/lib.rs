//! The page: a Conjure host for people with a browser.
//!
//! HTML that is made here and styles and a script of ours, nothing from elsewhere. Reads the live
//! conversation through the runtime, as the API does; manages and changes things by calling the API
//! inside the process, so that its checks and its words hold here too. A face: nothing below knows
//! it, and it does not know the server that it stands in. Begin at `layout.rs`, then at a view, such
//! as `dashboard.rs`.

mod assets;
mod auths;
mod backend_states;
mod chat_history;
mod client;
mod config;
mod conversation;
mod create;
mod dashboard;
mod failure;
mod file_form;
mod fingerprint;
mod forms;
mod held_tools;
mod json_form;
mod layout;
mod live;
mod mcp;
mod mcp_import;
mod mcp_login;
mod personas;
mod plugin_add;
mod plugin_card;
mod plugins;
mod preferences;
mod problem_page;
mod request;
mod respond;
mod routes;
mod saved;
mod search;
mod session_form;
mod sheet;
mod timestamps;
mod tools_form;
mod usage;
mod usage_picture;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::middleware::from_fn;
use axum::response::Response;
use conjure_config::SyncBox;
use conjure_runtime::manager::Manager;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use client::ApiClient;
use conversation::ReplayRooms;
use file_form::FileForms;
use held_tools::HeldTools;

pub use conversation::{shared_file_name, shared_html};

/// What the server gives the page: the API, the sessions and what lasts as long as it does.
pub struct PageServices {
    /// The operations of the API, for calls inside the process.
    pub api: Router,
    /// The sessions.
    pub manager: Manager,
    /// Cancelled when the server ends and no turn runs any more: streams end then.
    pub shutdown: CancellationToken,
    /// Takes a place among the server's streams for the client that a request's extensions name;
    /// dropping it frees the place.
    pub follow: StreamAdmission,
}

/// Begins a stream, or says why there is none.
pub type StreamAdmission =
    Arc<dyn Fn(&Extensions) -> Result<Box<dyn Any + Send + Sync>, Box<Response>> + Send + Sync>;

/// What all requests share. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct PageState(Arc<SyncBox<PageStateParts>>);

/// What [`PageState`] consists of.
pub(crate) struct PageStateParts {
    pub(crate) api: ApiClient,
    pub(crate) manager: Manager,
    pub(crate) shutdown: CancellationToken,
    pub(crate) follow: StreamAdmission,
    /// What is held until somebody approves it.
    pub(crate) held_tools: HeldTools,
    /// Routing tables that may be made at the same time for streams: each asks backends. Where
    /// they take long, more are made.
    pub(crate) redraws: Arc<Semaphore>,
    /// Room for chats that are replayed.
    pub(crate) replays: ReplayRooms,
    /// Forms with files.
    pub(crate) file_forms: FileForms,
}

impl Deref for PageState {
    type Target = PageStateParts;

    fn deref(&self) -> &PageStateParts {
        &self.0
    }
}

/// Routing tables that are made at the same time when all pages of them change.
const MAX_REDRAWS: usize = 4;

/// The routes of the page.
pub fn router(parts: PageServices) -> Router {
    let api = ApiClient::new(parts.api);
    let app = PageState(Arc::new(SyncBox::new(PageStateParts {
        held_tools: HeldTools::new(api.clone()),
        redraws: Arc::new(Semaphore::new(MAX_REDRAWS)),
        replays: ReplayRooms::default(),
        file_forms: FileForms::default(),
        api,
        manager: parts.manager,
        shutdown: parts.shutdown,
        follow: parts.follow,
    })));
    Router::new()
        .merge(assets::router())
        .merge(preferences::router())
        .merge(auths::router())
        .merge(config::router())
        .merge(conversation::router())
        .merge(create::router())
        .merge(dashboard::router())
        .merge(mcp::router())
        .merge(mcp_import::router())
        .merge(mcp_login::router())
        .merge(personas::router())
        .merge(plugin_add::router())
        .merge(plugins::router())
        .merge(routes::router())
        .merge(search::router())
        .merge(usage::router())
        .layer(from_fn(failure::show))
        .layer(from_fn(request::refuse_foreign))
        .layer(from_fn(respond::with_headers))
        .with_state(app)
}

/// Shows a problem of the server's to a person: a browser that was not let in, a path where nothing
/// is. `kind` is the word for programs, such as `no-token`.
pub fn problem(
    status: StatusCode,
    kind: &str,
    title: &str,
    detail: &str,
    headers: &HeaderMap,
) -> Response {
    problem_page::of(status, kind, title, detail, headers)
}
