//! Views that stay up to date: a stream of pieces of a page, for `data-stream`.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{Extensions, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use maud::Markup;

use crate::PageState;

/// How long a browser waits before it comes back.
const RETRY: Duration = Duration::from_secs(1);
/// After how long without a word a stream says that it lives: a connection of which nothing comes any
/// more is lost, which a browser does not notice by itself.
const ALIVE: Duration = Duration::from_secs(15);

/// Says so; the module listens for it.
pub(crate) fn keep_alive() -> KeepAlive {
    let alive = Event::default().event("alive").data("alive");
    KeepAlive::new().interval(ALIVE).event(alive)
}

/// Answers with pieces as they come, until the server ends.
pub(crate) fn live(
    app: &PageState,
    extensions: &Extensions,
    pieces: impl Stream<Item = Markup> + Send + 'static,
) -> Response {
    let place = match (app.follow)(extensions) {
        Ok(place) => place,
        Err(refused) => return *refused,
    };
    let ended = app.shutdown.clone();
    let begin = stream::iter([Ok::<_, Infallible>(Event::default().retry(RETRY))]);
    let told = pieces.map(move |pieces| {
        // The place among the streams is this one's for as long as it lives.
        let _held = &place;
        Ok(Event::default().data(pieces.into_string()))
    });
    let told = told.take_until(ended.cancelled_owned());
    let mut response = Sse::new(begin.chain(told))
        .keep_alive(keep_alive())
        .into_response();
    // Whatever stands between must not hold pieces back.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}
