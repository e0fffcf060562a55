//! Providers that are known, and the models of one that a saved auth is for.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::auths;
use super::extract::{Id, PathParams};
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::state::App;
use conjure_providers::{BUILT_IN_PROVIDERS, KNOWN_PROVIDERS, ListedModel, ModelBook};

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(models))
}

/// A provider that is known by its name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Provider)]
struct ProviderView {
    name: &'static str,
    /// Wire that the provider speaks: `anthropic`, `openai-responses`, `openai-chat`, `gemini`.
    wire: String,
    /// Base URL of the provider; null where a saved auth has to say it.
    base_url: Option<&'static str>,
    /// Whether the provider asks for a key at all.
    needs_key: bool,
}

/// A model, as its provider lists it, with what is known of it. What is null is not known.
#[derive(Debug, Serialize, ToSchema)]
struct Model {
    /// Name of the model, as a session has it.
    model: String,
    provider: String,
    /// Tokens of input and output together.
    context: Option<u64>,
    /// The most tokens of one answer.
    max_output: Option<u64>,
    price: ModelPrice,
}

/// US dollars for a million tokens.
#[derive(Debug, Serialize, ToSchema)]
struct ModelPrice {
    input: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    output: Option<f64>,
}

/// List the providers that are known by name
#[utoipa::path(get, path = "/api/v1/providers", operation_id = "list_providers", tag = "providers",
    responses((status = 200, description = "All of them", body = Page<ProviderView>)))]
async fn list() -> Json<Page<ProviderView>> {
    let known = KNOWN_PROVIDERS.iter().map(|known| ProviderView {
        name: known.name,
        wire: known.wire.to_string(),
        base_url: known.base_url,
        needs_key: known.needs_key,
    });
    Json(Page {
        items: known.collect(),
        next: None,
    })
}

/// Ask the provider of a saved auth for its models
#[utoipa::path(get, path = "/api/v1/auths/{auth}/models", operation_id = "list_models",
    tag = "providers", params(("auth" = String, Path, description = "The auth's id")),
    responses((status = 200, description = "All of them", body = Page<Model>),
        (status = 409, description = "The credential cannot be read"),
        (status = 422, description = "The auth is for no provider"),
        (status = 502, description = "The provider gave no list")))]
async fn models(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<Page<Model>>, Problem> {
    let name = app.auths.get(&id).await?.provider;
    let listed = if BUILT_IN_PROVIDERS.contains(&name.as_str()) {
        vec![ListedModel {
            name: name.clone(),
            context: None,
            max_output: None,
        }]
    } else {
        auths::provider(&app, &id).await?.models().await?
    };
    let book = app.host.models();
    let models = listed
        .into_iter()
        .map(|listed| model_view(&name, listed, book));
    Ok(Json(Page {
        items: models.collect(),
        next: None,
    }))
}

fn model_view(provider: &str, listed: ListedModel, book: &ModelBook) -> Model {
    let facts = book.facts(provider, &listed.name).unwrap_or_default();
    Model {
        model: listed.name,
        provider: provider.to_owned(),
        context: facts.context.or(listed.context),
        max_output: facts.max_output.or(listed.max_output),
        price: ModelPrice {
            input: facts.price.input,
            cache_read: facts.price.cache_read,
            cache_write: facts.price.cache_write,
            output: facts.price.output,
        },
    }
}
