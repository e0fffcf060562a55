//! An authorization server in front of the MCP server, as hostile as its traits say.
//!
//! Everything is at one address: the issuer is `/as`. `POST /expire` makes every access token
//! worthless, `GET /granted` tells how many tokens were given for codes and how many for refresh
//! tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

use crate::server::Server;

/// The traits that make an MCP server want a login:
///
/// - `oauth`: it does;
/// - `wrong-iss`: the answer to the browser names another issuer;
/// - `wrong-resource`: the metadata is of another resource;
/// - `pkce-plain`, `pkce-unsaid`: it does not say that it knows S256;
/// - `plain-http`: its endpoints are elsewhere, in the clear;
/// - `no-registration`: programs cannot register themselves;
/// - `refuses-login`: the person may not;
/// - `no-refresh`: an answer to a refresh has no refresh token;
/// - `rotates`: a refresh token is good once, and a second use ends all of its kind;
/// - `refresh-fails`: refreshing does not work for now;
/// - `revokes`, `revokes-not`: it takes tokens back; it says so and does not;
/// - `short`: tokens are over as soon as they are given; `brief`: they last for 29 s;
/// - `over`: tokens are said to be over at once, and none comes with one to refresh it;
/// - `calls-only`: only calls want a login; a token that is not good is refused at everything;
/// - `steps`: the tool `count` wants the right `write`.
pub(crate) struct Login {
    server: Arc<Server>,
    state: Mutex<Tokens>,
}

#[derive(Default)]
struct Tokens {
    next: u64,
    clients: BTreeSet<String>,
    codes: BTreeMap<String, Code>,
    access: BTreeMap<String, String>,
    refresh: BTreeMap<String, String>,
    used: BTreeSet<String>,
    grant_count: u64,
    refreshed: u64,
}

struct Code {
    challenge: String,
    redirect_uri: String,
    scope: String,
}

impl Login {
    pub(crate) fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server,
            state: Mutex::default(),
        })
    }

    pub(crate) fn routes(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server/as", get(metadata))
            .route("/as/register", post(register))
            .route("/as/authorize", get(authorize))
            .route("/as/token", post(token))
            .route("/as/revoke", post(revoke))
            .route("/expire", post(expire))
            .route("/granted", get(token_counts))
            .with_state(Arc::clone(self))
    }

    /// The refusal of a request that has no token which is good for it.
    pub(crate) fn refusal(&self, headers: &HeaderMap, message: &Value) -> Option<Response> {
        if !self.server.has("oauth") {
            return None;
        }
        let sent = headers
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.strip_prefix("Bearer "));
        let scope = sent.and_then(|token| self.lock().access.get(token).cloned());
        let is_call = message["method"] == "tools/call";
        if self.server.has("calls-only") && sent.is_none() && !is_call {
            return None;
        }
        let metadata = format!(
            "resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"",
            base(headers)
        );
        let refuse = |status: StatusCode, challenge: String| {
            Some((status, [("www-authenticate", challenge)], "").into_response())
        };
        let Some(scope) = scope else {
            let challenge = format!("Bearer {metadata}, scope=\"read\"");
            return refuse(StatusCode::UNAUTHORIZED, challenge);
        };
        let counts = message["params"]["name"] == "count";
        if self.server.has("steps") && counts && !scope.split(' ').any(|scope| scope == "write") {
            let challenge =
                format!("Bearer error=\"insufficient_scope\", scope=\"write\", {metadata}");
            return refuse(StatusCode::FORBIDDEN, challenge);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Tokens> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, name: &str) -> bool {
        self.server.has(name)
    }

    fn issue(&self, tokens: &mut Tokens, scope: &str, with_refresh: bool) -> Value {
        tokens.next += 1;
        let number = tokens.next;
        let (access, refresh) = (format!("access-{number}"), format!("refresh-{number}"));
        tokens.access.insert(access.clone(), scope.to_owned());
        let lasts = match () {
            () if self.has("over") => 0,
            () if self.has("short") => 0,
            () if self.has("brief") => 29,
            () => 3600,
        };
        let mut given = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": lasts, "scope": scope,
        });
        if with_refresh && !self.has("over") {
            tokens.refresh.insert(refresh.clone(), scope.to_owned());
            given["refresh_token"] = refresh.into();
        }
        given
    }
}

type SharedLogin = State<Arc<Login>>;

/// Where everything is, as the client sees it.
fn base(headers: &HeaderMap) -> String {
    let host = headers.get("host").and_then(|host| host.to_str().ok());
    format!("http://{}", host.unwrap_or_default())
}

fn fields(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes())
        .into_owned()
        .collect()
}

async fn resource(State(login): SharedLogin, headers: HeaderMap) -> Response {
    let base = base(&headers);
    let resource = if login.has("wrong-resource") {
        "https://other.example/mcp".to_owned()
    } else {
        format!("{base}/mcp")
    };
    json_of(&json!({ "resource": resource, "authorization_servers": [format!("{base}/as")] }))
}

async fn metadata(State(login): SharedLogin, headers: HeaderMap) -> Response {
    let base = base(&headers);
    let at = if login.has("plain-http") {
        "http://elsewhere.example".to_owned()
    } else {
        base.clone()
    };
    let mut metadata = json!({
        "issuer": format!("{base}/as"),
        "authorization_endpoint": format!("{at}/as/authorize"),
        "token_endpoint": format!("{base}/as/token"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "token_endpoint_auth_methods_supported": ["none"],
    });
    if !login.has("no-registration") {
        metadata["registration_endpoint"] = format!("{base}/as/register").into();
    }
    if login.has("revokes") || login.has("revokes-not") {
        metadata["revocation_endpoint"] = format!("{base}/as/revoke").into();
    }
    if login.has("pkce-plain") {
        metadata["code_challenge_methods_supported"] = json!(["plain"]);
    }
    if login.has("pkce-unsaid")
        && let Some(fields) = metadata.as_object_mut()
    {
        fields.remove("code_challenge_methods_supported");
    }
    json_of(&metadata)
}

async fn register(State(login): SharedLogin, body: String) -> Response {
    let asked: Value = serde_json::from_str(&body).unwrap_or_default();
    login.server.append_log(&json!({ "register": asked }));
    let mut tokens = login.lock();
    tokens.next += 1;
    let id = format!("client-{}", tokens.next);
    tokens.clients.insert(id.clone());
    json_of(&json!({ "client_id": id, "redirect_uris": asked["redirect_uris"] }))
}

async fn authorize(
    State(login): SharedLogin,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = fields(&query.unwrap_or_default());
    login.server.append_log(&json!({ "authorize": asked }));
    let base = base(&headers);
    let get = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let known = login.lock().clients.contains(&get("client_id")) || get("client_id") == "by-hand";
    let fits = known
        && get("code_challenge_method") == "S256"
        && get("resource") == format!("{base}/mcp")
        && get("response_type") == "code";
    if !fits {
        return (StatusCode::BAD_REQUEST, "this is not how it is asked").into_response();
    }
    let issuer = if login.has("wrong-iss") {
        "https://evil.example"
    } else {
        &format!("{base}/as")
    };
    let mut answer = form_urlencoded::Serializer::new(String::new());
    answer.append_pair("state", &get("state"));
    answer.append_pair("iss", issuer);
    if login.has("refuses-login") {
        answer.append_pair("error", "access_denied");
    } else {
        let mut tokens = login.lock();
        tokens.next += 1;
        let code = format!("code-{}", tokens.next);
        answer.append_pair("code", &code);
        let code_of = Code {
            challenge: get("code_challenge"),
            redirect_uri: get("redirect_uri"),
            scope: get("scope"),
        };
        tokens.codes.insert(code, code_of);
    }
    let location = format!("{}?{}", get("redirect_uri"), answer.finish());
    (StatusCode::FOUND, [("location", location)], "").into_response()
}

async fn token(State(login): SharedLogin, headers: HeaderMap, body: String) -> Response {
    let asked = fields(&body);
    let get = |name: &str| asked.get(name).cloned().unwrap_or_default();
    login.server.append_log(
        &json!({ "token": { "grant": get("grant_type"), "resource": get("resource") } }),
    );
    let refuse = |error: &str| {
        (
            StatusCode::BAD_REQUEST,
            axum::Json(json!({ "error": error })),
        )
            .into_response()
    };
    if get("resource") != format!("{}/mcp", base(&headers)) {
        return refuse("invalid_target");
    }
    if get("grant_type") == "refresh_token" {
        // Two that ask at once do so at the same time.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return login.renew(&get("refresh_token")).unwrap_or_else(refuse);
    }
    let mut tokens = login.lock();
    let Some(code) = tokens.codes.remove(&get("code")) else {
        return refuse("invalid_grant");
    };
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
    if challenge != code.challenge || get("redirect_uri") != code.redirect_uri {
        return refuse("invalid_grant");
    }
    tokens.grant_count += 1;
    let given = login.issue(&mut tokens, &code.scope, true);
    json_of(&given)
}

impl Login {
    fn renew(&self, refresh: &str) -> Result<Response, &'static str> {
        if self.has("refresh-fails") {
            return Err("temporarily_unavailable");
        }
        let mut tokens = self.lock();
        if self.has("rotates") && tokens.used.contains(refresh) {
            tokens.refresh.clear();
            tokens.access.clear();
            return Err("invalid_grant");
        }
        let scope = tokens
            .refresh
            .get(refresh)
            .cloned()
            .ok_or("invalid_grant")?;
        tokens.refreshed += 1;
        if self.has("rotates") {
            tokens.refresh.remove(refresh);
            tokens.used.insert(refresh.to_owned());
        }
        let given = self.issue(&mut tokens, &scope, !self.has("no-refresh"));
        Ok(json_of(&given))
    }
}

async fn revoke(State(login): SharedLogin, body: String) -> StatusCode {
    let asked = fields(&body);
    login.server.append_log(&json!({ "revoke": asked }));
    if login.has("revokes-not") {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let mut tokens = login.lock();
    let token = asked.get("token").cloned().unwrap_or_default();
    tokens.access.remove(&token);
    tokens.refresh.remove(&token);
    StatusCode::OK
}

async fn expire(State(login): SharedLogin) -> StatusCode {
    login.lock().access.clear();
    StatusCode::OK
}

async fn token_counts(State(login): SharedLogin) -> String {
    let tokens = login.lock();
    format!("{} {}", tokens.grant_count, tokens.refreshed)
}

fn json_of(value: &Value) -> Response {
    axum::Json(value.clone()).into_response()
}
