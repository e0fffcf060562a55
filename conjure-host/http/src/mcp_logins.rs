//! Logins to MCP servers over HTTP: begun here, done in a person's browser, looked at and cancelled
//! from wherever the page is.
//!
//! The plugin waits for the browser on a port of this machine. Where the browser is on another one,
//! the address at which it ended is sent here. Tokens stay with the plugin.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_skill_sdk::protocol::{BackendCall, Elicit, Elicited};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::extract::{Id, JsonBody, PathParams, line};
use super::mcp_servers::enabled_settings;
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use conjure_config::BackendSpec;
use conjure_runtime::backend::Asker;
use conjure_runtime::mcp_status::KIND;
use conjure_store::McpServer;

/// Logins that may be under way at the same time.
const MAX_LOGINS: usize = 16;
/// How long a login may take in all: the plugin gives a person 5 minutes.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// How long the answer to a beginning waits for the page to visit.
const PAGE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long it is told what became of a login.
const OUTCOME_RETENTION: Duration = Duration::from_secs(15 * 60);
/// How long a logout may take.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(60);
/// The most characters of an address.
const MAX_ADDRESS_CHARS: usize = 16 * 1024;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(show, begin, cancel))
        .routes(routes!(address))
        .routes(routes!(logout))
}

/// A login to an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
struct McpLogin {
    state: LoginState,
    /// What the person is told.
    message: Option<String>,
    /// The page to open in a browser.
    url: Option<String>,
    /// Why it failed, and what to do.
    error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = McpLoginState)]
enum LoginState {
    /// The server is asked how one logs in.
    Starting,
    /// The person is to open `url`.
    Waiting,
    /// The server lets in.
    Done,
    Failed,
    Cancelled,
}

impl LoginState {
    fn is_over(self) -> bool {
        !matches!(self, Self::Starting | Self::Waiting)
    }
}

/// Where a browser ended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoginAddress {
    /// The whole address, as the browser shows it.
    address: String,
}

/// What a logout did.
#[derive(Debug, Serialize, ToSchema)]
struct McpLogout {
    /// In words; also whether the tokens are good elsewhere still.
    done: String,
}

/// The newest login of each server.
#[derive(Default)]
pub(super) struct Logins(Mutex<HashMap<String, Arc<Login>>>);

/// A login.
struct Login {
    progress: watch::Sender<McpLogin>,
    address: watch::Sender<String>,
    ended_at: Mutex<Option<Instant>>,
    cancel: CancellationToken,
}

impl Logins {
    /// The newest login of a server.
    fn of(&self, server: &str) -> Option<Arc<Login>> {
        let mut all = self.lock();
        all.retain(|_, login| !login.is_forgotten());
        all.get(server).cloned()
    }

    /// A new login of a server, or the one that is under way. Whether it is new.
    fn begin(&self, server: &str) -> Result<(Arc<Login>, bool), Problem> {
        let mut all = self.lock();
        all.retain(|_, login| !login.is_forgotten());
        if let Some(login) = all.get(server).filter(|login| !login.is_over()) {
            return Ok((Arc::clone(login), false));
        }
        if all.values().filter(|login| !login.is_over()).count() >= MAX_LOGINS {
            return Err(Problem::unavailable(
                "busy",
                "other logins are under way; finish or cancel one of them",
            ));
        }
        let login = Arc::new(Login::new());
        all.insert(server.to_owned(), Arc::clone(&login));
        Ok((login, true))
    }

    /// The server is gone, or what was logged in to is forgotten, and so is the login.
    pub(super) fn forget(&self, server: &str) {
        if let Some(login) = self.lock().remove(server) {
            login.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Login>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Login {
    fn new() -> Self {
        Self {
            progress: watch::Sender::new(McpLogin {
                state: LoginState::Starting,
                message: None,
                url: None,
                error: None,
            }),
            address: watch::Sender::new(String::new()),
            ended_at: Mutex::default(),
            cancel: CancellationToken::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.progress.borrow().state.is_over()
    }

    fn is_forgotten(&self) -> bool {
        let ended = self.ended_at.lock().unwrap_or_else(PoisonError::into_inner);
        ended.is_some_and(|ended| ended.elapsed() > OUTCOME_RETENTION)
    }

    fn stop(&self) {
        self.end(LoginState::Cancelled, None);
        self.cancel.cancel();
    }

    /// The first end counts. The page to visit is of no use from then on.
    fn end(&self, state: LoginState, error: Option<String>) {
        let mut ended = self.ended_at.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_some() {
            return;
        }
        *ended = Some(Instant::now());
        self.progress.send_replace(McpLogin {
            state,
            message: None,
            url: None,
            error,
        });
    }
}

/// Asks the person of a login over the API, wherever their page is open.
struct WebLoginPrompt {
    now: watch::Sender<McpLogin>,
    address: watch::Receiver<String>,
}

impl Asker for WebLoginPrompt {
    fn elicit(&self, _plugin: String, question: Elicit) -> BoxFuture<'static, Elicited> {
        // What was sent before is of another page.
        let mut address = self.address.clone();
        address.mark_unchanged();
        self.now.send_if_modified(|now| {
            let may_wait = !now.state.is_over();
            if may_wait {
                now.state = LoginState::Waiting;
                now.message = Some(question.message);
                now.url = question.url;
            }
            may_wait
        });
        async move {
            if address.changed().await.is_err() {
                return Elicited {
                    action: "cancel".to_owned(),
                    content: BTreeMap::new(),
                };
            }
            let address = Value::from(address.borrow().as_str());
            Elicited {
                action: "accept".to_owned(),
                content: BTreeMap::from([("address".to_owned(), address)]),
            }
        }
        .boxed()
    }
}

/// Log in to an MCP server over HTTP
///
/// Answered once it is known which page the person is to open, or after 15 s. A login that is under
/// way is gone on with.
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/login", operation_id = "begin_mcp_login",
    tag = "mcp-servers", params(("server" = String, Path, description = "The server's id")),
    responses((status = 202, description = "How it is with it", body = McpLogin,
        headers(("Location" = String, description = "Where it is looked at")))))]
async fn begin(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Response, Problem> {
    let server = app.store.mcp_server(&id).await?;
    let (login, is_new) = app.logins.begin(&id)?;
    if is_new {
        tokio::spawn(log_in(app.clone(), server, Arc::clone(&login)));
    }
    let mut now = login.progress.subscribe();
    let known = now.wait_for(|now| now.state != LoginState::Starting);
    tokio::select! {
        _ = tokio::time::timeout(PAGE_TIMEOUT, known) => {}
        () = app.closing.cancelled() => {}
    }
    let at = [(header::LOCATION, format!("/api/v1/mcp-servers/{id}/login"))];
    let now = login.progress.borrow().clone();
    Ok((StatusCode::ACCEPTED, at, Json(now)).into_response())
}

/// Say how it is with the newest login to an MCP server
#[utoipa::path(get, path = "/api/v1/mcp-servers/{server}/login", operation_id = "get_mcp_login",
    tag = "mcp-servers", params(("server" = String, Path, description = "The server's id")),
    responses((status = 200, description = "How it is with it", body = McpLogin)))]
async fn show(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<McpLogin>, Problem> {
    let login = app.logins.of(&id).ok_or_else(no_login)?;
    let now = login.progress.borrow().clone();
    Ok(Json(now))
}

/// Cancel a login to an MCP server; tokens from before stay
#[utoipa::path(delete, path = "/api/v1/mcp-servers/{server}/login",
    operation_id = "cancel_mcp_login", tag = "mcp-servers",
    params(("server" = String, Path, description = "The server's id")),
    responses((status = 204, description = "It is over")))]
async fn cancel(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<StatusCode, Problem> {
    let login = app.logins.of(&id).ok_or_else(no_login)?;
    login.stop();
    Ok(StatusCode::NO_CONTENT)
}

/// Say where the browser ended that is on another machine
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/login/address",
    operation_id = "finish_mcp_login", tag = "mcp-servers",
    params(("server" = String, Path, description = "The server's id")),
    request_body = LoginAddress,
    responses((status = 204, description = "The login goes on with it"),
        (status = 409, description = "No login waits for it")))]
async fn address(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<LoginAddress>,
) -> Result<StatusCode, Problem> {
    let address = line("address", &body.address, MAX_ADDRESS_CHARS)?;
    let login = app.logins.of(&id).ok_or_else(no_login)?;
    if login.progress.borrow().state != LoginState::Waiting {
        return Err(Problem::conflict(
            "conflict",
            "the login waits for no address; begin it anew",
        ));
    }
    login.address.send_replace(address.to_owned());
    Ok(StatusCode::NO_CONTENT)
}

/// Forget the login to an MCP server, and give its tokens back where that is possible
#[utoipa::path(post, path = "/api/v1/mcp-servers/{server}/logout", operation_id = "mcp_logout",
    tag = "mcp-servers", params(("server" = String, Path, description = "The server's id")),
    responses((status = 200, description = "What it did", body = McpLogout),
        (status = 409, description = "The plugin for MCP servers is not loaded"),
        (status = 502, description = "It did not work")))]
async fn logout(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<McpLogout>, Problem> {
    let server = app.store.mcp_server(&id).await?;
    let name = server.name.clone();
    let _trial = app.trial_permit().await?;
    let asker = Arc::new(conjure_runtime::backend::NoAsker);
    let alone = app
        .host
        .open_backend_with_asker(&backend(server), None, asker)
        .await?;
    let done = tokio::time::timeout(LOGOUT_TIMEOUT, alone.call(managing("logout", &name))).await;
    alone.close().await;
    let failed = |why: String| {
        let said = format!("the logout of `{name}` did not work: {why}");
        Problem::new(StatusCode::BAD_GATEWAY, "backend", said).with_member("backend", KIND)
    };
    match done {
        Ok(Ok(done)) => {
            app.logins.forget(&id);
            Ok(Json(McpLogout {
                done: done.joined_text(),
            }))
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "it took longer than {} s",
            LOGOUT_TIMEOUT.as_secs()
        ))),
    }
}

fn no_login() -> Problem {
    Problem::not_found("no login to this MCP server was begun of late")
}

/// Lets the plugin log in, and notes what became of it.
async fn log_in(app: App, server: McpServer, login: Arc<Login>) {
    let person = Arc::new(WebLoginPrompt {
        now: login.progress.clone(),
        address: login.address.subscribe(),
    });
    let name = server.name.clone();
    let logging_in = async {
        let alone = app
            .host
            .open_backend_with_asker(&backend(server), None, person)
            .await;
        let alone = alone.map_err(|error| error.to_string())?;
        let done = tokio::select! {
            done = alone.call(managing("login", &name)) => {
                done.map(drop).map_err(|error| error.to_string())
            }
            () = login.cancel.cancelled() => Err("it was cancelled".to_owned()),
            () = app.closing.cancelled() => Err("the server is ending".to_owned()),
            () = tokio::time::sleep(LOGIN_TIMEOUT) => {
                Err(format!("it took longer than {} minutes", LOGIN_TIMEOUT.as_secs() / 60))
            }
        };
        alone.close().await;
        done
    };
    match logging_in.await {
        Ok(()) => login.end(LoginState::Done, None),
        Err(error) => login.end(LoginState::Failed, Some(error)),
    }
}

/// The backend of one server.
fn backend(server: McpServer) -> BackendSpec {
    BackendSpec {
        kind: KIND.to_owned(),
        config: Some(json!({ "servers": enabled_settings(server) })),
        ..BackendSpec::default()
    }
}

/// What is done to a server and not by it.
fn managing(what: &str, server: &str) -> BackendCall {
    BackendCall {
        name: what.to_owned(),
        skill: None,
        arguments: json!({ "server": server }),
        files: Vec::new(),
    }
}
