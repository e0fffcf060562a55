//! Threads as lines of JSON, out and in.

use std::io::Write as _;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use conjure_core::log::EntryBody;
use tempfile::TempPath;

use super::extract::{Id, JsonLinesBody, PathParams};
use super::operations::{Operations, routes};
use super::page_parts::SharedThread;
use super::problem::Problem;
use super::state::App;
use super::threads::ThreadResponse;
use conjure_store::{Log as _, Record, StoreError, ThreadId, json_lines};

/// The media type of exports.
const JSONL: HeaderValue = HeaderValue::from_static("application/jsonl");

pub(super) fn export_router() -> Operations {
    Operations::new().routes(routes!(export))
}

pub(super) fn shared_router() -> Operations {
    Operations::new().routes(routes!(share))
}

pub(super) fn import_router() -> Operations {
    Operations::new().routes(routes!(import))
}

/// Export a thread as lines of JSON, one record a line
#[utoipa::path(get, path = "/api/v1/threads/{thread}/export", operation_id = "export_thread",
    tag = "threads", params(("thread" = String, Path, description = "The thread's id")),
    responses((status = 200, description = "Its records", body = String,
        content_type = "application/jsonl")))]
async fn export(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Response, Problem> {
    let id = ThreadId::parse(&id)?;
    let records = app.store.read(&id).await?;
    let lines = blocking(move || json_lines(&records)).await?;
    let lines = lines.map_err(|error| Problem::host(error.to_string()))?;
    let name = format!("attachment; filename=\"{id}.jsonl\"");
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    let said = [
        (header::CONTENT_TYPE, JSONL),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((said, lines).into_response())
}

/// Export a thread as one HTML file, to be read by others
///
/// The file has no script and fetches nothing: style and pictures are in it, pictures of at most
/// 2 MiB, and 16 MiB in all. Of other files it has the names.
#[utoipa::path(get, path = "/api/v1/threads/{thread}/export/html",
    operation_id = "export_thread_html", tag = "threads",
    params(("thread" = String, Path, description = "The thread's id")),
    responses((status = 200, description = "The file", body = String, content_type = "text/html"),
        (status = 501, description = "The server has no page, which makes it")))]
async fn share(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
) -> Result<Response, Problem> {
    let id = ThreadId::parse(&id)?;
    let Some(share) = &app.share else {
        return Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "no-page",
            "this server has no page, which makes such files; `conjure thread export --html` does",
        ));
    };
    let SharedThread { name, html } = share(app.store.clone(), id).await?;
    let name = format!("attachment; filename=\"{name}\"");
    let name = HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment"));
    let policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    let said = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (header::CONTENT_DISPOSITION, name),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(policy),
        ),
    ];
    Ok((said, html).into_response())
}

/// Import a thread that was exported, under a new id
///
/// Files that it names are not imported: where they were is of another machine.
#[utoipa::path(post, path = "/api/v1/threads/import", operation_id = "import_thread",
    tag = "threads",
    request_body(content = String, content_type = "application/jsonl",
        description = "Records, one a line"),
    responses((status = 201, description = "It is there", body = ThreadResponse,
        headers(("Location" = String, description = "Its address")))))]
async fn import(
    State(app): State<App>,
    JsonLinesBody(lines, _room): JsonLinesBody,
) -> Result<Response, Problem> {
    let dir = app.host.data_dir().join("tmp");
    let written = blocking(move || {
        let (records, numbers) = records(&lines)?;
        let failed =
            |error: std::io::Error| Problem::of_disk(&error, format!("cannot import: {error}"));
        conjure_config::fs::create_private_dir(&dir).map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(&dir).map_err(failed)?;
        let lines = json_lines(&records).map_err(|error| Problem::host(error.to_string()))?;
        file.write_all(&lines).map_err(failed)?;
        Ok::<_, Problem>((file.into_temp_path(), numbers))
    });
    let (path, numbers) = written.await??;
    let id = ThreadId::fresh();
    if let Err(error) = app.store.import_thread(&path, &id).await {
        return Err(refusal(error, path, numbers).await);
    }
    let thread = ThreadResponse::from(app.store.thread(&id).await?);
    let address = [(header::LOCATION, format!("/api/v1/threads/{id}"))];
    Ok((StatusCode::CREATED, address, Json(thread)).into_response())
}

/// Why records are no thread. The file that they were written to is one of this host's own, so what is
/// told is the line of what was sent, by the `numbers` of its records' lines.
async fn refusal(error: StoreError, path: TempPath, numbers: Vec<usize>) -> Problem {
    let StoreError::Damaged { line, reason, .. } = error else {
        return error.into();
    };
    let sent = blocking(move || {
        let written = conjure_config::fs::read(&path).ok()?;
        sent_line(&written, line, &numbers)
    });
    match sent.await {
        Ok(Some(line)) => Problem::invalid(format!("line {line}: {reason}")),
        _ => Problem::invalid(reason),
    }
}

/// The line that was sent of the record in this line of what was written, where a line more says before
/// a record that the thread was opened.
fn sent_line(written: &[u8], line: usize, numbers: &[usize]) -> Option<usize> {
    let opened = |line: &&[u8]| matches!(serde_json::from_slice(line), Ok(Record::Opened { .. }));
    let before = written
        .split(|byte| *byte == b'\n')
        .take(line.saturating_sub(1));
    let records = before.filter(|line| !opened(line)).count();
    numbers.get(records).copied()
}

/// Reads records, with the number of each one's line. What they say of places on the machine that they
/// come from is left out: it would be taken for places on this one.
fn records(lines: &Bytes) -> Result<(Vec<Record>, Vec<usize>), Problem> {
    let (mut records, mut numbers, mut has_some) = (Vec::new(), Vec::new(), false);
    for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let mut record: Record = serde_json::from_slice(line).map_err(|error| {
            Problem::invalid(format!("line {} is no record: {error}", number + 1))
        })?;
        has_some = true;
        if let Record::Entry(entry) = &mut record
            && let EntryBody::File {
                place,
                remote,
                holder,
                ..
            } = &mut entry.body
        {
            (*place, *remote, *holder) = (None, None, None);
        }
        // Its events say the same.
        if !matches!(record, Record::Opened { .. }) {
            records.push(record);
            numbers.push(number + 1);
        }
    }
    if !has_some {
        return Err(Problem::invalid("there is no record in it"));
    }
    Ok((records, numbers))
}

/// Does what would keep a thread of the runtime from other work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::host(format!("the work ended early: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_written_is_told_as_the_one_that_was_sent() {
        let written = b"{\"opened\":{\"epoch\":1}}\n{}\n{\"opened\":{\"epoch\":2}}\n{}\n";
        for (line, sent) in [
            (1, Some(3)),
            (2, Some(3)),
            (3, Some(7)),
            (4, Some(7)),
            (5, None),
        ] {
            assert_eq!(sent_line(written, line, &[3, 7]), sent, "{line}");
        }
    }
}
