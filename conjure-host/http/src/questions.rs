//! Questions of plugins and MCP servers that wait for a person, and the answers to them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::extract::{JsonBody, PathParams, Ref};
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::state::App;
use conjure_runtime::manager::{self, QuestionReply};

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(answer))
}

/// A question that waits for an answer: a form to fill in where it has a `schema`, a page to visit
/// where it has a `url`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Question)]
pub(super) struct QuestionView {
    id: String,
    /// The plugin that asks. An MCP server's question names the server in its `message`.
    plugin: String,
    /// The call during which it is asked.
    call_id: Option<String>,
    message: String,
    /// JSON Schema of the answer's `content`, a flat object.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// The page to visit.
    url: Option<String>,
    /// After how many milliseconds it is cancelled.
    cancelled_in_ms: u64,
}

/// What is answered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct QuestionAnswer {
    action: QuestionAction,
    /// The form, filled in. A field that is left out is its `default`.
    #[schema(value_type = Option<Object>)]
    content: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum QuestionAction {
    /// The form is filled in, or the page was visited.
    Accept,
    /// The person does not want to.
    Decline,
    /// The person looked away.
    Cancel,
}

/// List the questions of a session that wait for an answer, the oldest first
#[utoipa::path(get, path = "/api/v1/sessions/{session}/questions", operation_id = "list_questions",
    tag = "turns", params(("session" = String, Path, description = "The session's id or name")),
    responses((status = 200, description = "All of them", body = Page<QuestionView>)))]
async fn list(
    State(app): State<App>,
    PathParams(Ref(id)): PathParams<Ref>,
) -> Result<Json<Page<QuestionView>>, Problem> {
    let _client = app.presence_in_session(&id).await;
    let items = waiting(&app, &id).await?;
    Ok(Json(Page { items, next: None }))
}

/// The questions of a session that wait.
pub(super) async fn waiting(app: &App, session: &str) -> Result<Vec<QuestionView>, Problem> {
    let questions = app.manager.questions(session).await?;
    let views = questions.into_iter().map(
        |manager::PendingQuestion {
             question: asked,
             cancelled_in_ms,
         }| QuestionView {
            id: asked.id,
            plugin: asked.plugin,
            call_id: asked.call_id,
            message: asked.message,
            schema: asked.schema,
            url: asked.url,
            cancelled_in_ms,
        },
    );
    Ok(views.collect())
}

/// Answer a question that waits; the first answer counts
#[utoipa::path(post, path = "/api/v1/sessions/{session}/questions/{question}",
    operation_id = "answer_question", tag = "turns",
    params(("session" = String, Path, description = "The session's id or name"),
        ("question" = String, Path, description = "The question's id")),
    request_body = QuestionAnswer, responses((status = 204, description = "It is answered")))]
async fn answer(
    State(app): State<App>,
    PathParams((Ref(id), Ref(question))): PathParams<(Ref, Ref)>,
    JsonBody(body): JsonBody<QuestionAnswer>,
) -> Result<StatusCode, Problem> {
    let reply = match body.action {
        QuestionAction::Accept => QuestionReply::Accept(body.content.unwrap_or_default()),
        _ if body.content.is_some() => {
            return Err(Problem::invalid("`content` goes with the action `accept`"));
        }
        QuestionAction::Decline => QuestionReply::Decline,
        QuestionAction::Cancel => QuestionReply::Cancel,
    };
    app.manager.answer(&id, &question, reply).await?;
    Ok(StatusCode::NO_CONTENT)
}
