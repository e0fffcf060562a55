//! What happens, as it happens: server-sent events of a thread and of all sessions.
//!
//! A thread's events have numbers. A client that comes back says which it saw last and gets what
//! it missed, each once and in order; a run never waits for a client.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use conjure_core::chat::{Event, EventId};
use futures_util::{Stream, stream};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Id, Params, PathParams};
use super::metrics::StreamCount;
use super::middleware::ClientName;
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use conjure_runtime::manager::{Attendant, EventStream, SessionChange, SessionChangeStream};
use conjure_store::ThreadId;

/// The header with the number that a client saw last.
const LAST_EVENT_ID: &str = "last-event-id";
/// How long a client waits before it comes back.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often a stream without events shows that it lives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(of_thread))
        .routes(routes!(of_sessions))
}

/// An event, as a stream has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is written line by line")]
pub(super) struct Streamed {
    /// Number of the event in its thread, `epoch.seq`.
    id: Option<String>,
    /// Kind of the event.
    event: String,
    /// The event as JSON.
    data: String,
}

/// Beginning of the stream, and whether a person follows it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// The number of the last event that was seen, as `Last-Event-ID` has it; that wins.
    #[param(pattern = "^[0-9]{1,18}[.][0-9]{1,18}$")]
    after: Option<String>,
    /// Whether a person follows who can decide about calls and answer questions: what asks in an
    /// `unattended` turn of the thread waits for them. A client that does not say so is a program
    /// that looks on; it can answer what waits all the same.
    #[param(default = false)]
    attended: Option<bool>,
}

/// Whether a person follows the sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionsQuery {
    /// Whether a person follows, as for the events of a thread, but for every thread.
    #[param(default = false)]
    attended: Option<bool>,
}

/// Follow the events of a thread
///
/// Server-sent events: `id` is the number (`epoch.seq`), `event` the kind, `data` the event as
/// JSON. Begins behind `Last-Event-ID`, or at the beginning of the thread, and goes on with what
/// happens until the server ends.
#[utoipa::path(get, path = "/api/v1/threads/{thread}/events", operation_id = "follow_thread",
    tag = "events",
    params(("thread" = String, Path, description = "The thread's id"), EventQuery,
        ("Last-Event-ID" = Option<String>, Header,
            description = "The number of the last event that was seen")),
    responses((status = 200, description = "The stream", body = Streamed,
        content_type = "text/event-stream")))]
async fn of_thread(
    State(app): State<App>,
    PathParams(Id(id)): PathParams<Id>,
    Params(query): Params<EventQuery>,
    Extension(client): Extension<ClientName>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = last_seen_event(&headers, query.after.as_deref())?;
    let following = app.streams.follow(&client)?;
    let thread = ThreadId::parse(&id)?;
    let events = app.manager.events(&thread, after).await?;
    let open = (
        StreamCount::new(&app.metrics),
        attend(&app, Some(&thread), query.attended),
        following,
    );
    Ok(event_stream(stream::unfold(
        (events, app, open),
        |(mut events, app, open)| async move {
            let event = next(&mut events, &app).await?;
            Some((Ok(event), (events, app, open)))
        },
    )))
}

/// The person who follows a thread, or all, if one does.
fn attend(app: &App, thread: Option<&ThreadId>, attended: Option<bool>) -> Option<Attendant> {
    let attended = attended.unwrap_or_default();
    attended.then(|| app.manager.attend(thread))
}

/// The next event of a thread; nothing at the end.
async fn next(events: &mut EventStream, app: &App) -> Option<Sent> {
    let stamped = tokio::select! {
        biased;
        stamped = events.next() => stamped,
        () = app.shutdown.cancelled() => return None,
    };
    match stamped {
        Ok(Some(stamped)) => {
            let event = Sent::default()
                .id(stamped.id.to_string())
                .event(kind(&stamped.event));
            match event.json_data(&stamped.event) {
                Ok(event) => Some(event),
                Err(error) => {
                    tracing::error!("an event cannot be told: {error}");
                    None
                }
            }
        }
        Ok(None) => None,
        Err(error) => {
            // The client comes back and goes on where it was.
            tracing::warn!("a stream of events ends: {error}");
            None
        }
    }
}

/// Follow the sessions
///
/// Server-sent events without numbers, of the kinds `state`, `saved`, `deleted`, `thread` and
/// `missed`. `thread` says that one was named, cleared or removed, with its `label`, `cleared_upto`
/// and `removed`; what another program does is told of threads that somebody follows. It begins
/// with `missed`: what is known of the sessions is to be read anew, as whenever it comes.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "follow_sessions", tag = "events",
    params(SessionsQuery), responses((status = 200, description = "The stream", body = Streamed,
        content_type = "text/event-stream")))]
async fn of_sessions(
    State(app): State<App>,
    Params(query): Params<SessionsQuery>,
    Extension(client): Extension<ClientName>,
) -> Result<Response, Problem> {
    let following = app.streams.follow(&client)?;
    let mut changes = app.manager.changes();
    changes.ready().await;
    let open = (
        StreamCount::new(&app.metrics),
        attend(&app, None, query.attended),
        following,
    );
    let begin = Some(SessionChange::Missed);
    Ok(event_stream(stream::unfold(
        (begin, changes, app, open),
        |(begin, mut changes, app, open)| async move {
            let change = match begin {
                Some(change) => change,
                None => next_change(&mut changes, &app).await?,
            };
            let name = match &change {
                SessionChange::State { .. } => "state",
                SessionChange::Saved { .. } => "saved",
                SessionChange::Deleted { .. } => "deleted",
                SessionChange::Thread { .. } => "thread",
                SessionChange::Missed => "missed",
            };
            let event = Sent::default().event(name).json_data(&change).ok()?;
            Some((Ok(event), (None, changes, app, open)))
        },
    )))
}

async fn next_change(changes: &mut SessionChangeStream, app: &App) -> Option<SessionChange> {
    tokio::select! {
        biased;
        change = changes.next() => change,
        () = app.shutdown.cancelled() => None,
    }
}

pub(super) fn event_stream(
    events: impl Stream<Item = Result<Sent, Infallible>> + Send + 'static,
) -> Response {
    let begin = stream::iter([Ok(Sent::default().retry(RETRY_DELAY))]);
    let all = futures_util::StreamExt::chain(begin, events);
    let mut response = Sse::new(all)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
        .into_response();
    // Whatever stands between must not hold events back.
    response.headers_mut().insert(
        header::HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// The last event that a client saw.
fn last_seen_event(headers: &HeaderMap, after: Option<&str>) -> Result<Option<EventId>, Problem> {
    let mut given = headers.get_all(LAST_EVENT_ID).iter();
    let text = match (given.next(), given.next()) {
        (None, _) => after,
        (Some(one), None) => Some(one.to_str().map_err(|_| bad())?),
        (Some(_), Some(_)) => return Err(bad()),
    };
    // A browser that has seen nothing yet says so with nothing.
    match text.filter(|text| !text.is_empty()) {
        Some(text) => number(text).map(Some).ok_or_else(bad),
        None => Ok(None),
    }
}

fn number(text: &str) -> Option<EventId> {
    let part = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| digits)?;
        u64::try_from(number).ok()
    };
    let (epoch, seq) = text.split_once('.')?;
    Some(EventId {
        epoch: part(epoch)?,
        seq: part(seq)?,
    })
}

fn bad() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "event-id",
        "that is no number of an event: take the `id` of the last one that was seen, such as `3.17`",
    )
}

/// The kind of an event, as its JSON has it in `type`.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::TurnStarted { .. } => "turn_started",
        Event::Round { .. } => "round",
        Event::Thinking { .. } => "thinking",
        Event::Content { .. } => "content",
        Event::FunctionCall { .. } => "function_call",
        Event::Approval { .. } => "approval",
        Event::ApprovalOver { .. } => "approval_over",
        Event::Question(_) => "question",
        Event::QuestionOver { .. } => "question_over",
        Event::CallStarted { .. } => "call_started",
        Event::ToolOutput { .. } => "tool_output",
        Event::FunctionCallOutput(_) => "function_call_output",
        Event::File { .. } => "file",
        Event::Usage(_) => "usage",
        Event::Cost { .. } => "cost",
        Event::Notice { .. } => "notice",
        Event::Error(_) => "error",
        Event::Done { .. } => "done",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_two_numbers() {
        let id = |epoch, seq| Some(EventId { epoch, seq });
        assert_eq!(number("3.17"), id(3, 17));
        assert_eq!(number("0.0"), id(0, 0));
        for wrong in [
            "3",
            "3.",
            ".3",
            "3.1.7",
            "-1.2",
            "+1.2",
            "a.b",
            " 1.2",
            "1.99999999999999999999",
        ] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_header_wins_and_an_empty_one_is_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_seen_event(&headers, None).unwrap(), None);
        assert_eq!(
            last_seen_event(&headers, Some("1.2")).unwrap(),
            number("1.2")
        );
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static(""));
        assert_eq!(last_seen_event(&headers, Some("1.2")).unwrap(), None);
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static("2.1"));
        assert_eq!(
            last_seen_event(&headers, Some("1.2")).unwrap(),
            number("2.1")
        );
        headers.append(LAST_EVENT_ID, HeaderValue::from_static("2.2"));
        assert!(last_seen_event(&headers, None).is_err());
    }

    #[test]
    fn the_kind_of_an_event_is_its_type() {
        let events = [
            Event::Notice {
                text: String::new(),
            },
            Event::Content {
                delta: String::new(),
            },
            Event::TurnStarted {
                turn_id: String::new(),
            },
        ];
        for event in events {
            assert_eq!(serde_json::to_value(&event).unwrap()["type"], kind(&event));
        }
    }
}
