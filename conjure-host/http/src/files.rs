//! The files of a thread: what there are, and their bytes.
//!
//! A file is found by its handle among those that the thread's entries name; nothing of a request
//! becomes a path. One that is still with its backend is fetched when its bytes are asked for.
//! Bytes are given as something to save, never to be shown in the server's name.

use std::path::Path;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Id, Params, PathParams};
use super::fetching::{self, FetchedLocation};
use super::operations::{Operations, routes};
use super::pages::Page;
use super::problem::Problem;
use super::ranges::{RangeRequest, requested_range};
use super::state::App;
use conjure_config::file_name::safe_name;
use conjure_store::{ArtifactRow, Store, ThreadId};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(list))
        .routes(routes!(content))
}

/// A file of a thread.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct File {
    /// Handle of the file, such as `file-3`.
    id: String,
    /// Name for people; one component of a path.
    name: String,
    media_type: String,
    /// Size in bytes, when known.
    size: Option<u64>,
    /// The backend instance that made it.
    source: String,
    /// The call that made it.
    call_id: Option<String>,
    /// The entry that names it.
    entry_seq: u64,
    /// Whether the bytes of the file are here, or still with its backend.
    here: bool,
}

/// Through whom a file is fetched.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ContentQuery {
    /// The session whose backend is asked for a file that is still there, by its id or name.
    /// Without it the one that has the thread.
    session: Option<String>,
}

/// List the files that a thread's calls made, in their order
#[utoipa::path(get, path = "/api/v1/threads/{thread}/files", operation_id = "list_files",
    tag = "files", params(("thread" = String, Path, description = "The thread's id")),
    responses((status = 200, description = "All of them", body = Page<File>)))]
async fn list(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Json<Page<File>>, Problem> {
    let files = files(&app.store, &ThreadId::parse(&id)?).await?;
    let described = |file: ArtifactRow| File {
        here: file.blob.is_some() || local(&file).is_some(),
        name: safe_name(&file.name),
        id: file.id,
        media_type: file.media_type,
        size: file.size,
        source: file.source,
        call_id: file.call_id,
        entry_seq: file.entry_seq,
    };
    Ok(Json(Page {
        items: files.into_iter().map(described).collect(),
        next: None,
    }))
}

/// Get the bytes of a file
///
/// `Range` asks for a part of it: one range of bytes. A file that is still with its backend is
/// fetched first, once.
#[utoipa::path(get, path = "/api/v1/threads/{thread}/files/{file}/content",
    operation_id = "get_file_content", tag = "files",
    params(("thread" = String, Path, description = "The thread's id"),
        ("file" = String, Path, description = "The file's handle, such as `file-3`"), ContentQuery,
        ("Range" = Option<String>, Header, description = "Such as `bytes=0-1023`"),
        ("If-Range" = Option<String>, Header, description = "The `ETag` that the range is of"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` that is known")),
    responses(
        (status = 200, description = "All of it", body = Vec<u8>, content_type = "*/*"),
        (status = 206, description = "The part", body = Vec<u8>, content_type = "*/*"),
        (status = 304, description = "It is still the one of `If-None-Match`"),
        (status = 409, description = "Its bytes are not here, and nobody can fetch them"),
        (status = 416, description = "It has no such part"),
        (status = 502, description = "Its backend did not give it")))]
async fn content(
    State(app): State<App>,
    PathParams((Id(thread), Id(handle))): PathParams<(Id, Id)>,
    Params(query): Params<ContentQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let thread = ThreadId::parse(&thread)?;
    let mut file = find_file(&app.store, &thread, &handle).await?;
    if file.blob.is_none() && local(&file).is_none() && file.remote.is_some() {
        let session = query.session.as_deref();
        match fetching::fetch(&app, &thread, &file, session).await? {
            FetchedLocation::Blob(blob) => file.blob = Some(blob),
            FetchedLocation::Path(path) => {
                file.location = Some(path.display().to_string());
            }
        }
    }
    let bytes = FileBytes::open(&app.store, &file).await?;
    let (size, tag) = (bytes.size, &bytes.tag);
    let mut said = HeaderMap::new();
    said.insert(header::ETAG, value(tag));
    said.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    said.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    if headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .any(|known| known == tag.as_str())
    {
        return Ok((StatusCode::NOT_MODIFIED, said).into_response());
    }
    said.insert(header::CONTENT_TYPE, media_type(&file.media_type));
    said.insert(header::CONTENT_DISPOSITION, value(&disposition(&file.name)));
    // Whatever shows it all the same runs no script of it.
    let policy = "sandbox; default-src 'none'";
    said.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    );
    let (status, from, length) = match requested_range(&headers, tag, size) {
        RangeRequest::All => (StatusCode::OK, 0, size),
        RangeRequest::Part { from, length } => {
            let part = format!("bytes {from}-{}/{size}", from + length.saturating_sub(1));
            said.insert(header::CONTENT_RANGE, value(&part));
            (StatusCode::PARTIAL_CONTENT, from, length)
        }
        RangeRequest::None => {
            return Err(Problem::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range",
                format!("the file has {size} bytes"),
            )
            .header(header::CONTENT_RANGE, value(&format!("bytes */{size}"))));
        }
    };
    said.insert(header::CONTENT_LENGTH, length.into());
    let body = bytes.body(app.store.clone(), from, length).await?;
    Ok((status, said, body).into_response())
}

/// A file of a thread.
pub(super) async fn find_file(
    store: &Store,
    thread: &ThreadId,
    handle: &str,
) -> Result<ArtifactRow, Problem> {
    let files = files(store, thread).await?;
    let file = files.into_iter().find(|file| file.id == handle);
    file.ok_or_else(|| Problem::not_found(format!("there is no file {handle}")))
}

/// The files of a thread; of a handle that is there twice the later one.
async fn files(store: &Store, thread: &ThreadId) -> Result<Vec<ArtifactRow>, Problem> {
    let mut files: Vec<ArtifactRow> = Vec::new();
    for file in store.artifacts(thread).await? {
        match files.iter_mut().find(|known| known.id == file.id) {
            Some(known) => *known = file,
            None => files.push(file),
        }
    }
    Ok(files)
}

/// Where a file is on this machine, as the host wrote it down when it was made.
fn local(file: &ArtifactRow) -> Option<&Path> {
    let place = Path::new(file.location.as_deref()?);
    let is_there = place.is_absolute() && place.is_file();
    is_there.then_some(place)
}

/// The bytes of a file, to be read.
struct FileBytes {
    size: u64,
    /// Another one for other bytes.
    tag: String,
    source: FileByteSource,
}

enum FileByteSource {
    Blob(String),
    Disk(tokio::fs::File),
}

impl FileBytes {
    async fn open(store: &Store, file: &ArtifactRow) -> Result<Self, Problem> {
        if let Some(blob) = &file.blob {
            let blob = store.blob(blob).await?;
            return Ok(Self {
                size: blob.size,
                tag: format!("\"{}\"", blob.sha256),
                source: FileByteSource::Blob(blob.sha256),
            });
        }
        let away = |why: &str| {
            Problem::conflict(
                "not-here",
                format!("the bytes of {} are not here: {why}", file.id),
            )
        };
        let Some(place) = local(file) else {
            return Err(away("they were removed"));
        };
        let place = place.to_owned();
        let opened =
            tokio::task::spawn_blocking(move || conjure_config::fs::open_no_follow(&place)).await;
        let (disk, size, changed) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::info!(file = file.id, "not given: {error}");
                return Err(away(
                    "what is in their place cannot be read, or is another thing",
                ));
            }
            Err(error) => return Err(Problem::host(format!("reading ended early: {error}"))),
        };
        Ok(Self {
            size,
            tag: format!("\"{size:x}-{changed:x}\""),
            source: FileByteSource::Disk(tokio::fs::File::from_std(disk)),
        })
    }

    /// A body of `length` bytes from `from` on. It breaks off where the file has become shorter.
    async fn body(self, store: Store, from: u64, length: u64) -> Result<Body, Problem> {
        Ok(match self.source {
            FileByteSource::Blob(sha256) => Body::from_stream(stream::try_unfold(
                (store, sha256, from, length),
                async |(store, sha256, at, left)| {
                    let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
                    if wanted == 0 {
                        return Ok(None);
                    }
                    let read = store.read_blob(&sha256, at, wanted).await;
                    let piece = Bytes::from(read.map_err(std::io::Error::other)?);
                    let read = piece.len() as u64;
                    if read == 0 {
                        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
                    }
                    let next = (store, sha256, at + read, left.saturating_sub(read));
                    Ok(Some((piece, next)))
                },
            )),
            FileByteSource::Disk(mut disk) => {
                let sought = disk.seek(std::io::SeekFrom::Start(from)).await;
                sought.map_err(|error| Problem::host(format!("a file cannot be read: {error}")))?;
                Body::from_stream(stream::try_unfold(
                    (disk, length),
                    async |(mut disk, left)| {
                        let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
                        if wanted == 0 {
                            return Ok(None);
                        }
                        let mut piece = vec![0; wanted];
                        let read = disk.read(&mut piece).await?;
                        if read == 0 {
                            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
                        }
                        piece.truncate(read);
                        Ok(Some((Bytes::from(piece), (disk, left - read as u64))))
                    },
                ))
            }
        })
    }
}

/// `attachment` with a name that every client reads in one way (RFC 6266): plain ASCII, and all of
/// it where that is not enough.
fn disposition(name: &str) -> String {
    let name = safe_name(name);
    let plain: String = name
        .chars()
        .map(|c| match c {
            ' ' | '!' | '#'..='$' | '&'..='+' | '-'..='.' | '0'..='9' | '@'..='Z' | '^'..='z' => c,
            _ => '_',
        })
        .collect();
    let mut said = format!("attachment; filename=\"{plain}\"");
    if plain != name {
        said.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' => {
                    said.push(char::from(byte));
                }
                _ => said.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    said
}

/// A media type that can stand in a header; what cannot is bytes and nothing more.
fn media_type(text: &str) -> HeaderValue {
    let bytes = HeaderValue::from_static("application/octet-stream");
    let letters = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
    let kind = text.split(';').next().unwrap_or_default().trim();
    let is_kind = kind.split_once('/').is_some_and(|(one, two)| {
        !one.is_empty() && !two.is_empty() && one.chars().all(letters) && two.chars().all(letters)
    });
    if is_kind {
        HeaderValue::from_str(text).unwrap_or(bytes)
    } else {
        bytes
    }
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_add_to_a_header() {
        for (name, plain) in [
            ("report.csv", "report.csv"),
            ("a\"; filename=\"b", "a__ filename__b"),
            ("x\r\nSet-Cookie: y", "x__Set-Cookie_ y"),
            ("../../etc/passwd", "passwd"),
            ("Grüße.txt", "Gr__e.txt"),
        ] {
            let given = disposition(name);
            let begin = format!("attachment; filename=\"{plain}\"");
            assert!(given.starts_with(&begin), "{given}");
            assert!(
                HeaderValue::from_str(&given).is_ok() && given.is_ascii(),
                "{given}"
            );
        }
        assert!(disposition("Grüße.txt").ends_with("; filename*=UTF-8''Gr%C3%BC%C3%9Fe.txt"));
    }

    #[test]
    fn a_media_type_is_one_or_bytes() {
        assert_eq!(
            media_type("text/csv; charset=utf-8"),
            "text/csv; charset=utf-8"
        );
        for wrong in [
            "",
            "text",
            "text/",
            "a b/c",
            "text/html\r\nX: y",
            "text/x;\u{1}",
        ] {
            assert_eq!(media_type(wrong), "application/octet-stream", "{wrong}");
        }
    }
}
