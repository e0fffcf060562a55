//! A form with a file, as a browser sends it: the file, and the boxes that were ticked beside it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, Multipart};
use axum::http::StatusCode;
use axum::routing::MethodRouter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::PageState;
use crate::client::ApiProblem;
use crate::saved::invalid;

/// The most bytes of a file: what the API takes of one.
const MAX_FILE_BYTES: usize = 64 * 1024 * 1024;
/// The most bytes of a form that are read. What a file has beyond its limit is thrown away: a browser that
/// cannot send all of it shows no answer.
const MAX_FORM_BYTES: usize = 256 * 1024 * 1024;
/// The most boxes of a form, and the most bytes of the name of one.
const MAX_BOXES: usize = 16;
const MAX_BOX_NAME: usize = 64;
/// Files that are in memory at the same time, as many as the API reads.
const MAX_FILES: usize = 2;
/// How long a form waits until it is read, which is how long the API waits.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a form may take to arrive, which is what the API gives an import by default.
const FORM_TIMEOUT: Duration = Duration::from_secs(600);

/// What such a form sent.
#[derive(Debug)]
pub(crate) struct SentFile {
    /// What is in the file, of the field `file`.
    pub(crate) content: Bytes,
    ticked: Vec<String>,
    /// Room for what is in memory.
    _room: OwnedSemaphorePermit,
}

/// Reads forms with files, few at the same time: each file is whole in memory. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct SentFiles {
    room: Arc<Semaphore>,
}

impl SentFiles {
    pub(crate) fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_FILES)),
        }
    }

    /// Reads a form, when there is room for its file.
    ///
    /// # Errors
    /// Where no file was chosen, it is empty or too large or not the only one, the form has too many
    /// fields, broke off or took too long, or others take all room for too long.
    pub(crate) async fn read(&self, sent: &mut Multipart) -> Result<SentFile, ApiProblem> {
        let room = timeout(ROOM_TIMEOUT, Arc::clone(&self.room).acquire_owned()).await;
        let Ok(Ok(room)) = room else {
            return Err(invalid(
                "other files are being received; try again when they are done",
            ));
        };
        match timeout(FORM_TIMEOUT, SentFile::read(sent, room)).await {
            Ok(read) => read,
            Err(_) => Err(invalid(format!(
                "the file took longer than {} s to arrive",
                FORM_TIMEOUT.as_secs()
            ))),
        }
    }
}

impl SentFile {
    async fn read(sent: &mut Multipart, room: OwnedSemaphorePermit) -> Result<Self, ApiProblem> {
        let (mut content, mut ticked) = (None, Vec::new());
        while let Some(field) = sent.next_field().await.map_err(|error| broken(&error))? {
            match field.name() {
                Some("file") if content.is_some() => {
                    return Err(invalid("the form has more than one file; send one"));
                }
                Some("file") => content = Some(read_content(field).await),
                Some(name) if ticked.len() == MAX_BOXES || name.len() > MAX_BOX_NAME => {
                    return Err(invalid(format!(
                        "the form has more than {MAX_BOXES} fields beside its file, or one with a \
                         name of more than {MAX_BOX_NAME} bytes; send what the page's own form has"
                    )));
                }
                Some(name) => ticked.push(name.to_owned()),
                None => {}
            }
        }
        let content = content.transpose()?.filter(|content| !content.is_empty());
        let content = content.ok_or_else(|| invalid("choose a file that is not empty"))?;
        Ok(Self {
            content,
            ticked,
            _room: room,
        })
    }

    /// Whether the box of this name was ticked.
    pub(crate) fn is_ticked(&self, name: &str) -> bool {
        self.ticked.iter().any(|ticked| ticked == name)
    }
}

/// What is in a file. One that is too large is read to its end, and nothing of it is kept.
async fn read_content(mut field: Field<'_>) -> Result<Bytes, ApiProblem> {
    let mut content: Option<Vec<u8>> = Some(Vec::new());
    while let Some(piece) = field.chunk().await.map_err(|error| broken(&error))? {
        content = content.filter(|content| content.len() + piece.len() <= MAX_FILE_BYTES);
        if let Some(content) = &mut content {
            content.extend_from_slice(&piece);
        }
    }
    content.map(Bytes::from).ok_or_else(too_large)
}

/// A form at a path that takes a file as large as the API does.
pub(crate) fn route(path: &str, form: MethodRouter<PageState>) -> Router<PageState> {
    Router::new().route(path, form.layer(DefaultBodyLimit::max(MAX_FORM_BYTES)))
}

fn broken(error: &MultipartError) -> ApiProblem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => invalid(format!(
            "the file did not arrive whole ({}); send it again",
            error.body_text()
        )),
    }
}

fn too_large() -> ApiProblem {
    let most = MAX_FILE_BYTES / (1024 * 1024);
    invalid(format!(
        "the file is too large: it may have {most} MiB at most"
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use axum::extract::FromRequest as _;
    use axum::http::{Request, header};
    use futures_util::stream;

    use super::*;

    async fn form(body: impl Into<Body>) -> Multipart {
        let mut request = Request::builder()
            .method("POST")
            .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
            .body(body.into())
            .unwrap();
        DefaultBodyLimit::disable().apply(&mut request);
        Multipart::from_request(request, &()).await.unwrap()
    }

    async fn read(body: impl Into<Body>) -> Result<SentFile, ApiProblem> {
        SentFiles::new().read(&mut form(body).await).await
    }

    #[tokio::test]
    async fn a_file_may_be_as_large_as_the_api_takes_and_a_larger_one_is_read_to_its_end() {
        let head = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        for (size, fits) in [(MAX_FILE_BYTES, true), (MAX_FILE_BYTES + 1, false)] {
            let whole = [head.as_bytes(), &vec![b'a'; size], b"\r\n--x--\r\n"].concat();
            // In pieces, of which all are taken.
            let left = Arc::new(AtomicUsize::new(whole.len()));
            let counted = Arc::clone(&left);
            let pieces = Bytes::from(whole);
            let pieces = stream::unfold(pieces, move |mut rest| {
                let piece = rest.split_to(rest.len().min(1024 * 1024));
                counted.fetch_sub(piece.len(), Ordering::Relaxed);
                let next = (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), rest));
                async move { next }
            });
            let read = read(Body::from_stream(pieces)).await;
            assert_eq!(left.load(Ordering::Relaxed), 0, "{size}");
            match read {
                Ok(file) => assert!(fits && file.content.len() == size),
                Err(problem) => assert!(!fits && problem.detail.contains("64 MiB"), "{problem}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_files_are_in_memory_at_once_and_one_that_never_arrives_frees_its_room() {
        let whole = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlines\r\n--x--\r\n";
        let files = SentFiles::new();
        let first = files.read(&mut form(whole).await).await.unwrap();
        let second = files.read(&mut form(whole).await).await.unwrap();
        let problem = files.read(&mut form(whole).await).await.unwrap_err();
        assert!(problem.detail.contains("other files"), "{problem}");
        drop((first, second));
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let problem = files.read(&mut form(silent).await).await.unwrap_err();
        assert!(problem.detail.contains("took longer"), "{problem}");
        assert_eq!(files.room.available_permits(), MAX_FILES);
    }

    #[tokio::test]
    async fn a_form_gives_its_file_and_what_was_ticked() {
        let whole = "--x\r\ncontent-disposition: form-data; name=\"yes\"\r\n\r\nyes\r\n\
                     --x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlines\r\n\
                     --x--\r\n";
        let sent = read(whole).await.unwrap();
        assert_eq!(sent.content.as_ref(), b"lines");
        assert!(sent.is_ticked("yes") && !sent.is_ticked("no"));
    }

    #[tokio::test]
    async fn a_form_with_two_files_or_many_boxes_is_refused() {
        let field = |name: &str| {
            format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\non\r\n")
        };
        let sent = |names: &[&str]| {
            let fields: String = names.iter().map(|name| field(name)).collect();
            read(fields + "--x--\r\n")
        };
        let problem = sent(&["file", "file"]).await.unwrap_err();
        assert!(problem.detail.contains("more than one file"), "{problem}");
        let most = [&["file"][..], &["a"; MAX_BOXES]].concat();
        assert!(sent(&most).await.unwrap().is_ticked("a"));
        let long = "a".repeat(MAX_BOX_NAME + 1);
        for more in [[&most[..], &["a"]].concat(), vec!["file", long.as_str()]] {
            let problem = sent(&more).await.unwrap_err();
            assert!(problem.detail.contains("16 fields"), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_form_without_a_file_and_one_that_broke_off_say_so() {
        let empty = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"\"\r\n\r\n\r\n--x--\r\n";
        let problem = read(empty).await.unwrap_err();
        assert!(problem.detail.contains("choose a file"), "{problem}");
        let cut = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlin";
        let problem = read(cut).await.unwrap_err();
        assert!(problem.detail.contains("send it again"), "{problem}");
    }
}
