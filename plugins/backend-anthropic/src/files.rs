//! The Files API: files of the host go up, files that skills made come down.
//!
//! A name from either side never becomes a path, and what comes down has the size that was told.

use std::path::Path;

use conjure_skill_sdk::protocol::{FileRef, FilesGet};
use conjure_skill_sdk::{Cx, Error, Result};
use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::Hosted;
use crate::api::{self, ApiFailure, RequestBody};
use crate::items::is_id;

/// The most bytes of a file.
const MAX_FILE_BYTES: u64 = 500 * 1024 * 1024;
/// The most questions about files at the same time.
const MAX_REQUESTS: usize = 8;
/// The most characters of a name.
const MAX_NAME_CHARS: usize = 255;

/// Brings a file to the provider. The same content under the same name goes up once a session.
pub(crate) async fn put(hosted: &Hosted, cx: &Cx, file: &FileRef) -> Result<FileRef> {
    let path = file.path.as_deref().ok_or_else(|| {
        Error::invalid(format!(
            "the file `{}` has no path, so it cannot be uploaded",
            file.name
        ))
    })?;
    let about = tokio::fs::metadata(path).await;
    let about = about.map_err(|error| Error::new(format!("`{path}` cannot be read: {error}")))?;
    let size = about.len();
    if !about.is_file() || size == 0 || size > MAX_FILE_BYTES {
        return Err(Error::invalid(format!(
            "`{}` cannot be uploaded: Anthropic takes files of 1 byte to {MAX_FILE_BYTES} bytes, \
             and it has {size}",
            file.name
        )));
    }
    let name = safe_name(&file.name);
    let key = file.sha256.as_ref().map(|hash| format!("{hash} {name}"));
    if let Some(key) = &key {
        let known = hosted
            .sessions
            .with(cx.session(), |it| it.uploaded.get(key).cloned())?;
        if let Some(id) = known {
            return Ok(uploaded(file, name, size, id));
        }
    }
    let media_type = file
        .media_type
        .as_deref()
        .unwrap_or("application/octet-stream");
    let request = (Method::POST, "files");
    let body = RequestBody::File {
        path,
        size,
        name: &name,
        media_type,
    };
    let response = hosted.api.send(cx, request, body).await?;
    let told = api::json(response).await?;
    let id = text(&told, "id");
    let arrived = told.get("size_bytes").and_then(Value::as_u64);
    if !is_id(id) {
        return Err(Error::new("Anthropic gave the uploaded file no id"));
    }
    if arrived.is_some_and(|arrived| arrived != size) {
        return Err(Error::new(format!(
            "of the {size} bytes of `{name}`, {} arrived at Anthropic; upload it again",
            arrived.unwrap_or_default()
        )));
    }
    if let Some(key) = key {
        hosted.sessions.with(cx.session(), |it| {
            it.uploaded.insert(key, id.to_owned());
        })?;
    }
    Ok(uploaded(file, name, size, id.to_owned()))
}

fn uploaded(file: &FileRef, name: String, size: u64, id: String) -> FileRef {
    FileRef {
        name,
        path: None,
        id: Some(id),
        media_type: file.media_type.clone(),
        size: Some(size),
        sha256: file.sha256.clone(),
    }
}

/// What the provider knows of a file that a call made. One that it tells nothing of keeps its id
/// as its name.
async fn describe_file(hosted: &Hosted, cx: &Cx, id: &str) -> FileRef {
    match hosted.api.json(cx, &format!("files/{id}")).await {
        Ok(told) => {
            let name = Some(text(&told, "filename")).filter(|name| !name.is_empty());
            // Where nothing is known of a type, its name says more.
            let media_type = Some(text(&told, "mime_type"))
                .filter(|it| !it.is_empty() && *it != "application/octet-stream");
            FileRef {
                size: told.get("size_bytes").and_then(Value::as_u64),
                media_type: media_type.map(str::to_owned),
                ..FileRef::lazy(id, safe_name(name.unwrap_or(id)))
            }
        }
        Err(_) => FileRef::lazy(id, id),
    }
}

/// [`describe_file`] of several, asked for at the same time.
pub(crate) async fn all_described(hosted: &Hosted, cx: &Cx, ids: &[String]) -> Vec<FileRef> {
    stream::iter(ids.to_vec())
        .map(|id| async move { describe_file(hosted, cx, &id).await })
        .buffered(MAX_REQUESTS)
        .collect()
        .await
}

/// Fetches a file that a call of this session made.
pub(crate) async fn get(hosted: &Hosted, cx: &Cx, request: &FilesGet) -> Result<FileRef> {
    let id = request.id.as_str();
    let known = hosted.sessions.with(cx.session(), |it| {
        it.record.files.iter().any(|known| known == id)
    })?;
    if !known || !is_id(id) {
        return Err(Error::not_found(format!(
            "`{id}` is no file that a hosted skill made in this session"
        )));
    }
    let told = hosted.api.json(cx, &format!("files/{id}")).await;
    let told = told.map_err(|refused| fetch_error(refused, id))?;
    if told.get("downloadable").and_then(Value::as_bool) == Some(false) {
        return Err(Error::new(format!(
            "Anthropic does not hand out the file `{id}`: only files that code execution made can \
             be downloaded"
        )));
    }
    let size = told.get("size_bytes").and_then(Value::as_u64);
    if size.is_some_and(|size| size > MAX_FILE_BYTES) {
        return Err(too_large(id));
    }
    let to = Path::new(&request.to);
    let written = content(hosted, cx, id, to, size).await;
    if let Err(error) = written {
        // What came of it is nothing to keep.
        let _ = tokio::fs::remove_file(to).await;
        return Err(error);
    }
    let name = safe_name(text(&told, "filename"));
    Ok(FileRef {
        name: if name.is_empty() { id.to_owned() } else { name },
        path: Some(request.to.clone()),
        id: Some(id.to_owned()),
        size: written.ok(),
        ..FileRef::default()
    })
}

async fn content(hosted: &Hosted, cx: &Cx, id: &str, to: &Path, told: Option<u64>) -> Result<u64> {
    let path = format!("files/{id}/content");
    let response = hosted
        .api
        .send(cx, (Method::GET, &path), RequestBody::None)
        .await;
    let mut response = response.map_err(|refused| fetch_error(refused, id))?;
    let mut file = tokio::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(to)
        .await?;
    let mut size = 0_u64;
    while let Some(piece) = response.chunk().await? {
        size = size.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if size > MAX_FILE_BYTES {
            return Err(too_large(id));
        }
        cx.check()?;
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    match told {
        Some(told) if told != size => Err(Error::new(format!(
            "the file `{id}` has {told} bytes, but {size} came; fetch it again"
        ))),
        _ => Ok(size),
    }
}

fn too_large(id: &str) -> Error {
    Error::new(format!(
        "the file `{id}` is larger than {MAX_FILE_BYTES} bytes, the most that is fetched"
    ))
}

fn fetch_error(refused: ApiFailure, id: &str) -> Error {
    if refused.status == 404 {
        return Error::not_found(format!(
            "the file `{id}` is no longer at Anthropic ({}); let the skill make it again",
            refused.message
        ));
    }
    refused.into()
}

/// A name that the API takes: one component of 1 to 255 characters, without what a path or a
/// pattern could hold.
pub(crate) fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let fits = |c: char| !("<>:\"|?*".contains(c) || c.is_control());
    let safe = |c: char| if fits(c) { c } else { '_' };
    let name: String = last.chars().map(safe).collect();
    let name = name.trim();
    if name.is_empty() || name.chars().all(|c| c == '.') {
        return "file".to_owned();
    }
    let too_long = name.chars().count().saturating_sub(MAX_NAME_CHARS);
    name.chars().skip(too_long).collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
