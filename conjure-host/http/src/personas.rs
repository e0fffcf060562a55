//! Personas: who a model is to be. A session that chooses one keeps a copy.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{Id, JsonBody, Params, PathParams, shown_name, text};
use super::operations::{Operations, routes};
use super::pages::{Page, Paging};
use super::problem::Problem;
use super::state::App;
use super::versions::{IfMatch, Tagged, VersionCondition};

/// The most characters of a name or a version.
const MAX_NAME_CHARS: usize = 100;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list, create))
        .routes(routes!(get, change, remove))
}

/// A persona.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Persona)]
struct PersonaView {
    id: String,
    name: String,
    version: String,
    /// What the model is told.
    persona_text: String,
    created_at_ms: i64,
    updated_at_ms: i64,
}

impl From<conjure_store::Persona> for PersonaView {
    fn from(persona: conjure_store::Persona) -> Self {
        Self {
            id: persona.id,
            name: persona.name,
            version: persona.version,
            persona_text: persona.persona_text,
            created_at_ms: persona.created_at_ms,
            updated_at_ms: persona.updated_at_ms,
        }
    }
}

/// A persona that is to be. Name and version together are its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPersona {
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// `1` without it.
    #[schema(min_length = 1, max_length = 100)]
    version: Option<String>,
    /// What the model is told.
    persona_text: String,
}

/// What is to be changed; the rest stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangePersona {
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    #[schema(min_length = 1, max_length = 100)]
    version: Option<String>,
    /// What the model is told.
    persona_text: Option<String>,
}

/// List personas, the oldest first
#[utoipa::path(get, path = "/api/v1/personas", operation_id = "list_personas", tag = "personas",
    params(Paging), responses((status = 200, description = "A page", body = Page<PersonaView>)))]
async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Page<PersonaView>>, Problem> {
    let limit = paging.limit()?;
    let after = paging.after()?;
    let found = app.store.personas(after.as_deref(), limit + 1).await?;
    let personas = found.into_iter().map(PersonaView::from).collect();
    Ok(Json(Page::from_items(
        personas,
        limit,
        |one: &PersonaView| &one.id,
    )))
}

/// Save a persona
#[utoipa::path(post, path = "/api/v1/personas", operation_id = "create_persona", tag = "personas",
    request_body = NewPersona,
    responses((status = 201, description = "It is saved", body = PersonaView,
            headers(("Location" = String, description = "Its address"))),
        (status = 409, description = "There is one of this name and version")))]
async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody<NewPersona>,
) -> Result<Response, Problem> {
    let persona = conjure_store::Persona::new(
        shown_name("name", &body.name, MAX_NAME_CHARS)?,
        shown_name(
            "version",
            body.version.as_deref().unwrap_or("1"),
            MAX_NAME_CHARS,
        )?,
        text("persona_text", &body.persona_text)?,
    );
    let persona = app.store.create_persona(persona).await?;
    let at = [(header::LOCATION, format!("/api/v1/personas/{}", persona.id))];
    Ok((StatusCode::CREATED, at, tagged_view(persona)).into_response())
}

/// Show a persona
#[utoipa::path(get, path = "/api/v1/personas/{persona}", operation_id = "get_persona",
    tag = "personas", params(("persona" = String, Path, description = "Its id")),
    responses((status = 200, description = "It", body = PersonaView,
        headers(("ETag" = String, description = "Which version of it this is")))))]
async fn get(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Response, Problem> {
    Ok(tagged_view(app.store.persona(&id).await?).into_response())
}

/// Change a persona; sessions keep the copy that they have
#[utoipa::path(patch, path = "/api/v1/personas/{persona}", operation_id = "change_persona",
    tag = "personas", params(("persona" = String, Path, description = "Its id"), IfMatch),
    request_body = ChangePersona,
    responses((status = 200, description = "As it is now", body = PersonaView,
            headers(("ETag" = String, description = "Which version of it this is"))),
        (status = 409, description = "There is one of this name and version"),
        (status = 412, description = "It is another version than the one of `If-Match`")))]
async fn change(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    wanted: VersionCondition,
    JsonBody(body): JsonBody<ChangePersona>,
) -> Result<Response, Problem> {
    let mut persona = app.store.persona(&id).await?;
    wanted.check(persona.updated_at_ms)?;
    // What it has already may be from before there was this rule.
    if let Some(given) = body.name.filter(|given| *given != persona.name) {
        persona.name = shown_name("name", &given, MAX_NAME_CHARS)?.to_owned();
    }
    if let Some(given) = body.version.filter(|given| *given != persona.version) {
        persona.version = shown_name("version", &given, MAX_NAME_CHARS)?.to_owned();
    }
    if let Some(persona_text) = &body.persona_text {
        persona.persona_text = text("persona_text", persona_text)?.to_owned();
    }
    let changed = app.store.update_persona(persona).await;
    let changed = changed.map_err(|error| wanted.explain_conflict(error.into()))?;
    Ok(tagged_view(changed).into_response())
}

/// A persona with its version.
fn tagged_view(persona: conjure_store::Persona) -> Tagged<PersonaView> {
    Tagged(persona.updated_at_ms, persona.into())
}

/// Remove a persona; sessions keep the copy that they have
#[utoipa::path(delete, path = "/api/v1/personas/{persona}", operation_id = "delete_persona",
    tag = "personas", params(("persona" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is removed")))]
async fn remove(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<StatusCode, Problem> {
    app.store.delete_persona(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
