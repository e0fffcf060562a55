//! A form with a file, as a browser sends it: the file, the boxes that were ticked beside it, and what
//! the form is known by when it is sent again.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, Multipart};
use axum::http::{HeaderValue, StatusCode};
use axum::routing::MethodRouter;
use conjure_runtime::uploads::ReceiveLimits;
use maud::{Markup, html};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::PageState;
use crate::client::ApiProblem;
use crate::saved::invalid;

/// The most bytes of a form that are read. What a file has beyond its limit is thrown away: a browser that
/// cannot send all of it shows no answer.
const MAX_FORM_BYTES: usize = 256 * 1024 * 1024;
/// The most boxes of a form, and the most bytes of the name of one.
const MAX_BOXES: usize = 16;
const MAX_BOX_NAME: usize = 64;
/// The field that a form is known by, and the most bytes of what is in it.
const KEY_FIELD: &str = "once";
const MAX_KEY_BYTES: usize = 64;

/// What such a form sent.
#[derive(Debug)]
pub(crate) struct FileForm {
    /// What is in the file, of the field `file`.
    pub(crate) content: Bytes,
    ticked: Vec<String>,
    /// What the form is known by when it is sent again, where it has that.
    pub(crate) idempotency_key: Option<HeaderValue>,
    /// Room for what is in memory.
    _permit: OwnedSemaphorePermit,
}

/// Reads forms with files, few at the same time: each file is whole in memory. The limits are those of
/// the API, which each request has. Cloning it is cheap.
#[derive(Clone, Default)]
pub(crate) struct FileForms {
    permits: Arc<OnceLock<Arc<Semaphore>>>,
}

impl FileForms {
    fn permits(&self, limits: &ReceiveLimits) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(limits.at_once));
        Arc::clone(self.permits.get_or_init(new))
    }

    /// Reads a form, when there is room for its file.
    ///
    /// # Errors
    /// Where no file was chosen, it is empty or too large or not the only one, the form has too many
    /// fields, broke off or took too long, or others take all room for too long.
    pub(crate) async fn read(
        &self,
        sent: &mut Multipart,
        limits: &ReceiveLimits,
    ) -> Result<FileForm, ApiProblem> {
        let room = self.permits(limits).acquire_owned();
        let room = timeout(limits.queue_timeout, room).await;
        let Ok(Ok(room)) = room else {
            return Err(invalid(
                "other files are being received; try again when they are done",
            ));
        };
        let read = FileForm::read(sent, room, limits.most_bytes);
        match timeout(limits.arrival_timeout, read).await {
            Ok(read) => read,
            Err(_) => Err(invalid(format!(
                "the file took longer than {} s to arrive",
                limits.arrival_timeout.as_secs()
            ))),
        }
    }
}

impl FileForm {
    async fn read(
        sent: &mut Multipart,
        room: OwnedSemaphorePermit,
        most: usize,
    ) -> Result<Self, ApiProblem> {
        let (mut content, mut ticked, mut once) = (None, Vec::new(), None);
        let broken = |error: MultipartError| upload_error(&error, most);
        while let Some(field) = sent.next_field().await.map_err(broken)? {
            match field.name() {
                Some("file") if content.is_some() => {
                    return Err(invalid("the form has more than one file; send one"));
                }
                Some("file") => content = Some(read_content(field, most).await),
                Some(KEY_FIELD) => once = Some(read_key(field, most).await?),
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
            idempotency_key: once,
            _permit: room,
        })
    }

    /// Whether the box of this name was ticked.
    pub(crate) fn is_ticked(&self, name: &str) -> bool {
        self.ticked.iter().any(|ticked| ticked == name)
    }
}

/// What is in a file. One that is too large is read to its end, and nothing of it is kept.
async fn read_content(mut field: Field<'_>, most: usize) -> Result<Bytes, ApiProblem> {
    let mut content: Option<Vec<u8>> = Some(Vec::new());
    let broken = |error: MultipartError| upload_error(&error, most);
    while let Some(piece) = field.chunk().await.map_err(broken)? {
        content = content.filter(|content| content.len() + piece.len() <= most);
        if let Some(content) = &mut content {
            content.extend_from_slice(&piece);
        }
    }
    content.map(Bytes::from).ok_or_else(|| too_large(most))
}

/// What a form is known by.
async fn read_key(mut field: Field<'_>, most: usize) -> Result<HeaderValue, ApiProblem> {
    let unfit = || {
        invalid(format!(
            "the form's field `{KEY_FIELD}` is not one to {MAX_KEY_BYTES} plain characters; load the form anew"
        ))
    };
    let mut once = Vec::new();
    let broken = |error: MultipartError| upload_error(&error, most);
    while let Some(piece) = field.chunk().await.map_err(broken)? {
        once.extend_from_slice(&piece);
        if once.len() > MAX_KEY_BYTES {
            return Err(unfit());
        }
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    if once.is_empty() || !once.iter().all(is_plain) {
        return Err(unfit());
    }
    HeaderValue::from_bytes(&once).map_err(|_| unfit())
}

/// The field of a form that it is known by when it is sent again: another one for each form.
pub(crate) fn key_field(id: &str, once: &str) -> Markup {
    html! { input id=(id) type="hidden" name=(KEY_FIELD) value=(once); }
}

/// A form at a path that takes a file as large as the API does.
pub(crate) fn route(path: &str, form: MethodRouter<PageState>) -> Router<PageState> {
    Router::new().route(path, form.layer(DefaultBodyLimit::max(MAX_FORM_BYTES)))
}

fn upload_error(error: &MultipartError, most: usize) -> ApiProblem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(most),
        _ => invalid(format!(
            "the file did not arrive whole ({}); send it again",
            error.body_text()
        )),
    }
}

fn too_large(most: usize) -> ApiProblem {
    let most = most / (1024 * 1024);
    invalid(format!(
        "the file is too large: it may have {most} MiB at most"
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::body::Body;
    use axum::extract::FromRequest as _;
    use axum::http::{Request, header};
    use futures_util::stream;

    use super::*;

    const LIMITS: ReceiveLimits = ReceiveLimits {
        most_bytes: 8 * 1024 * 1024,
        at_once: 2,
        queue_timeout: Duration::from_secs(30),
        arrival_timeout: Duration::from_secs(600),
    };

    async fn form(body: impl Into<Body>) -> Multipart {
        let mut request = Request::builder()
            .method("POST")
            .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
            .body(body.into())
            .unwrap();
        DefaultBodyLimit::disable().apply(&mut request);
        Multipart::from_request(request, &()).await.unwrap()
    }

    async fn read(body: impl Into<Body>) -> Result<FileForm, ApiProblem> {
        let files = FileForms::default();
        files.read(&mut form(body).await, &LIMITS).await
    }

    #[tokio::test]
    async fn a_file_may_be_as_large_as_the_api_takes_and_a_larger_one_is_read_to_its_end() {
        let head = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        for (size, fits) in [(LIMITS.most_bytes, true), (LIMITS.most_bytes + 1, false)] {
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
                Err(problem) => assert!(!fits && problem.detail.contains("8 MiB"), "{problem}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_files_are_in_memory_at_once_and_one_that_never_arrives_frees_its_room() {
        let whole = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlines\r\n--x--\r\n";
        let files = FileForms::default();
        let first = files.read(&mut form(whole).await, &LIMITS).await.unwrap();
        let second = files.read(&mut form(whole).await, &LIMITS).await.unwrap();
        let third = files.read(&mut form(whole).await, &LIMITS).await;
        let problem = third.unwrap_err();
        assert!(problem.detail.contains("other files"), "{problem}");
        drop((first, second));
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let late = files.read(&mut form(silent).await, &LIMITS).await;
        let problem = late.unwrap_err();
        assert!(problem.detail.contains("took longer"), "{problem}");
        let room = files.permits(&LIMITS);
        assert_eq!(room.available_permits(), LIMITS.at_once);
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
    async fn a_form_says_what_it_is_known_by_in_few_plain_letters() {
        let form = |once: &str| {
            format!(
                "--x\r\ncontent-disposition: form-data; name=\"once\"\r\n\r\n{once}\r\n\
                 --x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nlines\r\n\
                 --x--\r\n"
            )
        };
        let sent = read(form("a-1")).await.unwrap();
        assert_eq!(sent.idempotency_key, Some(HeaderValue::from_static("a-1")));
        let long = "a".repeat(MAX_KEY_BYTES + 1);
        for wrong in ["", "a b", "é", long.as_str()] {
            let problem = read(form(wrong)).await.unwrap_err();
            assert!(problem.detail.contains("`once`"), "{wrong}: {problem}");
        }
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
