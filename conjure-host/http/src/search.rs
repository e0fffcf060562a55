//! Search over what was said in all threads.

use axum::Json;
use axum::extract::State;
use conjure_core::chat::Role;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Params, line};
use super::operations::{Operations, routes};
use super::pages::{self, Page};
use super::problem::Problem;
use super::state::App;
use conjure_store::{SearchHit, ThreadId};

/// The most characters of a question.
const MAX_QUERY_CHARS: usize = 500;

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(search))
}

/// What is looked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// Words, in any order and in upper or lower case; the last one may go on.
    #[param(min_length = 1, max_length = 500)]
    q: String,
    /// The most hits.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
    /// Only what this thread shows, what it was forked from included.
    thread: Option<String>,
}

/// Something that was said and has the words.
#[derive(Debug, Serialize, ToSchema)]
struct Hit {
    /// The thread that has the entry.
    thread: String,
    /// Label of the thread; empty where it has none.
    label: String,
    /// Id of the session that last spoke in the thread.
    session: Option<String>,
    /// The entry's number.
    seq: u64,
    said_by: SaidBy,
    /// Time of the entry, in milliseconds since 1970.
    at_ms: i64,
    /// The words with what stands around them, in pieces.
    excerpt: Vec<ExcerptPiece>,
}

/// Speaker of an entry.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SaidBy {
    Person,
    Model,
}

/// A piece of an excerpt.
#[derive(Debug, Serialize, ToSchema)]
struct ExcerptPiece {
    text: String,
    /// Whether it is a word that was looked for.
    is_hit: bool,
}

impl From<SearchHit> for Hit {
    fn from(found: SearchHit) -> Self {
        let pieces = found.excerpt.into_iter();
        Self {
            thread: found.thread.to_string(),
            label: found.label,
            session: found.session,
            seq: found.seq,
            said_by: match found.role {
                Role::Assistant => SaidBy::Model,
                Role::User | Role::System | Role::Tool => SaidBy::Person,
            },
            at_ms: found.at_ms,
            excerpt: pieces
                .map(|piece| ExcerptPiece {
                    text: piece.text,
                    is_hit: piece.is_hit,
                })
                .collect(),
        }
    }
}

/// Search what people and models said in all threads, the newest first
///
/// Reasoning and results of calls are not searched, nor what was cleared.
#[utoipa::path(get, path = "/api/v1/search", operation_id = "search", tag = "threads",
    params(SearchQuery),
    responses((status = 200, description = "What has all the words", body = Page<Hit>),
        (status = 404, description = "There is no such thread")))]
async fn search(
    State(app): State<App>,
    Params(query): Params<SearchQuery>,
) -> Result<Json<Page<Hit>>, Problem> {
    let words = line("q", &query.q, MAX_QUERY_CHARS)?;
    let limit = pages::limit(query.limit)?;
    let found = match query.thread.as_deref() {
        Some(thread) => {
            let thread = ThreadId::parse(thread);
            let thread = thread.map_err(|error| Problem::from(error).at("thread"))?;
            app.store.search_in(&thread, words, limit).await?
        }
        None => app.store.search(words, limit).await?,
    };
    Ok(Json(Page {
        items: found.into_iter().map(Hit::from).collect(),
        next: None,
    }))
}
