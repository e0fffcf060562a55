//! Saved auths: a secret goes in and never comes out.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::extract::{Id, JsonBody, Params, PathParams};
use super::operations::{Operations, routes};
use super::pages::{Page, Paging};
use super::problem::Problem;
use super::state::App;
use conjure_config::SessionSpec;
use conjure_providers::auths::{AuthError, AuthKind, Credential, MCP_SECRETS, NewAuth};
use conjure_providers::{BUILT_IN_PROVIDERS, HttpProvider, ProviderError};
use conjure_runtime::session::SessionError;
use conjure_store::SavedAuth;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change, remove))
        .routes(routes!(test))
}

/// A saved auth, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Auth)]
pub(super) struct AuthView {
    id: String,
    provider: String,
    kind: String,
    name: String,
    /// Where the provider is, when not at its usual place.
    base_url: Option<String>,
    created_at_ms: i64,
    updated_at_ms: i64,
}

impl From<SavedAuth> for AuthView {
    fn from(auth: SavedAuth) -> Self {
        Self {
            id: auth.id,
            provider: auth.provider,
            kind: auth.kind,
            name: auth.name,
            base_url: auth.base_url,
            created_at_ms: auth.created_at_ms,
            updated_at_ms: auth.updated_at_ms,
        }
    }
}

/// What a credential is.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuthKind)]
enum AuthKindBody {
    ApiKey,
    BearerToken,
    CustomHeaders,
    BaseUrl,
}

impl From<AuthKindBody> for AuthKind {
    fn from(kind: AuthKindBody) -> Self {
        match kind {
            AuthKindBody::ApiKey => Self::ApiKey,
            AuthKindBody::BearerToken => Self::BearerToken,
            AuthKindBody::CustomHeaders => Self::CustomHeaders,
            AuthKindBody::BaseUrl => Self::BaseUrl,
        }
    }
}

/// A saved auth that is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAuth)]
struct NewAuthBody {
    /// 3 to 50 letters, digits, `_` and `-`.
    #[schema(min_length = 3, max_length = 50, pattern = "^[A-Za-z0-9_-]{3,50}$")]
    name: String,
    /// Such as `anthropic`, or a name of your own with `base_url`.
    provider: String,
    kind: AuthKindBody,
    /// A key or a token in one line; of `custom_headers`, `Name: value` in each line; absent for
    /// `base_url`.
    #[serde(default, deserialize_with = "secret")]
    #[schema(value_type = Option<String>, write_only)]
    secret: Option<SecretString>,
    /// Where the provider is, when not at its usual place.
    base_url: Option<String>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(SecretString::from))
}

/// What is to be changed; the rest stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeAuth)]
struct ChangeAuthBody {
    #[schema(min_length = 3, max_length = 50, pattern = "^[A-Za-z0-9_-]{3,50}$")]
    name: Option<String>,
    /// Another secret, of the same kind.
    #[serde(default, deserialize_with = "secret")]
    #[schema(value_type = Option<String>, write_only)]
    secret: Option<SecretString>,
}

/// Whether a provider answers to a saved auth.
#[derive(Debug, Serialize, ToSchema)]
struct AuthTest {
    works: bool,
    /// How many models the provider lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<usize>,
    /// A word for programs, such as `auth` or `network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// What failed, why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// List saved auths, the oldest first
#[utoipa::path(get, path = "/api/v1/auths", operation_id = "list_auths", tag = "auths",
    params(Paging), responses((status = 200, description = "A page", body = Page<AuthView>)))]
async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<AuthView>>, Problem> {
    let limit = paging.limit()?;
    let found = app
        .store
        .auths(paging.after()?.as_deref(), limit + 1)
        .await?;
    let auths = found.into_iter().map(AuthView::from).collect();
    Ok(Json(Page::from_items(auths, limit, |auth: &AuthView| {
        &auth.id
    })))
}

/// Save a credential, encrypted
#[utoipa::path(post, path = "/api/v1/auths", operation_id = "create_auth", tag = "auths",
    request_body = NewAuthBody,
    responses((status = 201, description = "It is saved", body = AuthView,
            headers(("Location" = String, description = "Its address"))),
        (status = 409, description = "The name is taken")))]
async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody<NewAuthBody>,
) -> Result<Response, Problem> {
    let kind = AuthKind::from(body.kind);
    let new = NewAuth {
        name: body.name,
        provider: body.provider,
        base_url: body.base_url,
    };
    new.check(kind)?;
    let auth = app.auths.add(new, credential(kind, body.secret)?).await?;
    let at = [(header::LOCATION, format!("/api/v1/auths/{}", auth.id))];
    Ok((StatusCode::CREATED, at, Json(AuthView::from(auth))).into_response())
}

/// Show a saved auth
#[utoipa::path(get, path = "/api/v1/auths/{auth}", operation_id = "get_auth", tag = "auths",
    params(("auth" = String, Path, description = "Its id")),
    responses((status = 200, description = "It", body = AuthView)))]
async fn get(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<AuthView>, Problem> {
    Ok(Json(app.auths.get(&id).await?.into()))
}

/// Rename a saved auth, or give it another secret
#[utoipa::path(patch, path = "/api/v1/auths/{auth}", operation_id = "change_auth", tag = "auths",
    params(("auth" = String, Path, description = "Its id")), request_body = ChangeAuthBody,
    responses((status = 200, description = "As it is now", body = AuthView),
        (status = 409, description = "The name is taken")))]
async fn change(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    JsonBody(body): JsonBody<ChangeAuthBody>,
) -> Result<Json<AuthView>, Problem> {
    let mut auth = app.auths.get(&id).await?;
    let kind: AuthKind = auth.kind.parse().map_err(AuthError::from)?;
    // Whatever can be wrong is found before anything is changed.
    let secret = body.secret.map(|secret| credential(kind, Some(secret)));
    let secret = secret.transpose()?;
    if let Some(name) = &body.name {
        auth = app.auths.rename(&auth.full_name().into(), name).await?;
    }
    if let Some(credential) = secret {
        auth = app
            .auths
            .replace(&auth.full_name().into(), credential)
            .await?;
    }
    Ok(Json(auth.into()))
}

/// Remove a saved auth for good
///
/// One that sessions use stays; the problem names them in `sessions`. So does a secret of MCP servers
/// that the settings of one or of a session name.
#[utoipa::path(delete, path = "/api/v1/auths/{auth}", operation_id = "delete_auth", tag = "auths",
    params(("auth" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is removed"),
        (status = 409, description = "Sessions or MCP servers use it")))]
async fn remove(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<StatusCode, Problem> {
    let auth = app.auths.get(&id).await?;
    app.auths.remove(&auth.full_name().into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ask the provider for its models with a saved auth
#[utoipa::path(post, path = "/api/v1/auths/{auth}/test", operation_id = "test_auth", tag = "auths",
    params(("auth" = String, Path, description = "Its id")),
    responses((status = 200, description = "Whether it works", body = AuthTest),
        (status = 409, description = "Its credential cannot be read")))]
async fn test(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<AuthTest>, Problem> {
    let is_built_in = BUILT_IN_PROVIDERS.contains(&app.auths.get(&id).await?.provider.as_str());
    let answer: Result<usize, ProviderError> = match is_built_in {
        // It asks nobody, and its one model is itself.
        true => Ok(1),
        false => {
            let listed = provider(&app, &id).await?.models().await;
            listed.map(|models| models.len())
        }
    };
    Ok(Json(match answer {
        Ok(models) => AuthTest {
            works: true,
            models: Some(models),
            kind: None,
            error: None,
        },
        Err(error) => AuthTest {
            works: false,
            models: None,
            kind: Some(error.kind),
            error: Some(error.message),
        },
    }))
}

/// The provider of a saved auth, to be asked with it.
pub(super) async fn provider(app: &App, id: &str) -> Result<HttpProvider, Problem> {
    let auth = app.auths.get(id).await?;
    if auth.provider == MCP_SECRETS {
        return Err(Problem::invalid(
            "this auth is a secret of MCP servers; what tries it is the test of such a server",
        ));
    }
    let spec = SessionSpec {
        auth: Some(auth.full_name().into()),
        ..SessionSpec::default()
    };
    let spec = app.auths.open(spec).await?;
    Ok(HttpProvider::of(&auth.provider, &spec).map_err(SessionError::from)?)
}

fn credential(kind: AuthKind, secret: Option<SecretString>) -> Result<Credential, Problem> {
    let secret = secret.unwrap_or_default();
    Ok(Credential::read(kind, &secret).map_err(AuthError::from)?)
}
