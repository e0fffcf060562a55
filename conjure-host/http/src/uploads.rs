//! Files that a person hands over, to be attached to a turn.

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use conjure_runtime::uploads::{MOST_ATTACHED, Upload, UploadError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{self, ImportPermit, Params, line};
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use axum::body::Bytes;

/// Path of the operation that takes files.
pub(super) const PATH: &str = "/api/v1/uploads";
/// The most characters of a name.
const MAX_NAME_CHARS: usize = 255;

pub(super) fn router() -> Operations {
    Operations::new().routes(routes!(upload))
}

/// A file that waits for a turn.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Upload)]
struct UploadView {
    /// What `attachments` of a turn names it by.
    id: String,
    name: String,
    /// What its bytes say, else what the request says, else what its name says.
    media_type: String,
    /// Bytes.
    size: u64,
    /// Whether a model that can look at images is shown it as one.
    is_image: bool,
}

impl From<Upload> for UploadView {
    fn from(upload: Upload) -> Self {
        let Upload {
            id,
            name,
            media_type,
            size,
            is_image,
        } = upload;
        Self {
            id,
            name,
            media_type,
            size,
            is_image,
        }
    }
}

/// What the file is called.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UploadQuery {
    /// What a person calls it; of a path the last component.
    #[param(min_length = 1, max_length = 255)]
    name: String,
}

/// The bytes of a file, with the room for them.
struct FileBody {
    bytes: Bytes,
    media_type: String,
    _permit: ImportPermit,
}

impl FromRequest<App> for FileBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let media_type = extract::media_type(request.headers());
        let (bytes, room) = extract::read_large_body_of_any_type(request, app).await?;
        Ok(Self {
            bytes,
            media_type,
            _permit: room,
        })
    }
}

/// Hand a file over, to be attached to a turn
///
/// The file is kept for a day, or until a turn names it in `attachments`.
#[utoipa::path(post, path = "/api/v1/uploads", operation_id = "upload_file", tag = "files",
    params(UploadQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "Its bytes, as any media type"),
    responses((status = 201, description = "It is kept", body = UploadView),
        (status = 413, description = "It is larger than 64 MiB"),
        (status = 422, description = "It is empty")))]
async fn upload(
    State(app): State<App>,
    Params(query): Params<UploadQuery>,
    file: FileBody,
) -> Result<(StatusCode, Json<UploadView>), Problem> {
    let name = line("name", &query.name, MAX_NAME_CHARS)?.to_owned();
    let kept = tokio::task::spawn_blocking(move || {
        app.host.upload(&name, Some(&file.media_type), &file.bytes)
    });
    let kept = kept.await;
    let kept = kept.map_err(|error| Problem::host(format!("it was not kept: {error}")))?;
    Ok((StatusCode::CREATED, Json(kept?.into())))
}

/// What a turn attaches, by the ids of uploads. A turn that is asked for by its id once more has them
/// already.
pub(super) fn resolve_attachments(
    app: &App,
    turn: Option<&str>,
    ids: &[String],
) -> Result<Vec<Upload>, Problem> {
    if ids.len() > MOST_ATTACHED {
        return Err(Problem::invalid(format!(
            "a turn takes {MOST_ATTACHED} attachments at most"
        )));
    }
    let known = ids.iter().enumerate().map(|(at, id)| {
        if ids.iter().take(at).any(|before| before == id) {
            return Err(Problem::invalid(format!(
                "`attachments` names `{id}` twice"
            )));
        }
        Ok(match turn {
            Some(turn) => app.host.upload_for_turn(turn, id)?,
            None => app.host.pending_upload(id)?,
        })
    });
    known.collect()
}

impl From<UploadError> for Problem {
    fn from(error: UploadError) -> Self {
        let said = error.to_string();
        match error {
            UploadError::Disk { source, .. } => Self::of_disk(&source, said),
            UploadError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", said)
            }
            UploadError::Empty { .. } | UploadError::Unknown { .. } => Self::invalid(said),
        }
    }
}
