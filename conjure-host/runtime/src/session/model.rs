//! One model request of a session, on a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use conjure_core::chat::{Meta, Response, StreamEvent, Usage};
use conjure_core::log::Spending;
use conjure_core::request::ModelRequest;
use conjure_core::turn::{ModelFailure, TurnInput};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Span;

use super::wake_coalescer::WakeCoalescer;
use crate::backend::contributors::Share;
use crate::backend::reports::{Reports, TaskReport};
use crate::spans;
use conjure_providers::{Provider, ProviderError, ReplySink};

/// A model request that is being answered.
pub(crate) struct ActiveRequest {
    number: u64,
    task: JoinHandle<()>,
    pieces: Arc<ReplyPieces>,
    sink: Arc<ReplySink>,
    meta: Meta,
    begun: Instant,
    span: Span,
}

/// What came and was not yet looked at. Pieces of one text are one piece, so the reply itself
/// bounds it.
pub(crate) struct ReplyPieces {
    waiting: Mutex<Vec<ReplyPiece>>,
    arrived: Arc<Notify>,
    wakes: Arc<WakeCoalescer>,
}

/// A piece of a reply, or word about it.
pub(crate) enum ReplyPiece {
    Stream(StreamEvent),
    Notice(String),
}

impl ReplyPieces {
    fn new(wakes: Arc<WakeCoalescer>) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Arc::default(),
            wakes,
        }
    }

    fn push(&self, piece: ReplyPiece) {
        // Whoever is woken takes all that waits by then.
        if self.add([piece]) {
            self.wakes.wake(&self.arrived);
        }
    }

    /// Takes pieces that gathered already: nothing more is waited for.
    fn push_batch(&self, events: Vec<StreamEvent>) {
        if !events.is_empty() {
            self.add(events.into_iter().map(ReplyPiece::Stream));
            self.arrived.notify_one();
        }
    }

    /// Adds pieces to those that wait; whether they are the first.
    fn add(&self, pieces: impl IntoIterator<Item = ReplyPiece>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let are_first = waiting.is_empty();
        for piece in pieces {
            match (waiting.last_mut(), piece) {
                (
                    Some(ReplyPiece::Stream(StreamEvent::Content { delta })),
                    ReplyPiece::Stream(StreamEvent::Content { delta: more }),
                )
                | (
                    Some(ReplyPiece::Stream(StreamEvent::Thinking { delta })),
                    ReplyPiece::Stream(StreamEvent::Thinking { delta: more }),
                ) => delta.push_str(&more),
                (_, piece) => waiting.push(piece),
            }
        }
        are_first
    }

    /// Resolves a moment after something came.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> Vec<ReplyPiece> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ActiveRequest {
    /// Sends a request, with the share that backends have in it.
    pub(crate) fn send(
        number: u64,
        provider: Arc<dyn Provider>,
        meta: Meta,
        share: Share,
        span: Span,
        done: Reports,
        wakes: Arc<WakeCoalescer>,
    ) -> Self {
        let ticks = wakes.ticks();
        let pieces = Arc::new(ReplyPieces::new(wakes));
        let [stream, batches, notices] = [(); 3].map(|()| Arc::clone(&pieces));
        let sink = ReplySink::new(
            move |event| stream.push(ReplyPiece::Stream(event)),
            move |text| notices.push(ReplyPiece::Notice(text)),
        );
        let sink = Arc::new(sink.with_batches(ticks, move |events| batches.push_batch(events)));
        let begun = Instant::now();
        let task = tokio::spawn({
            let (sink, meta, span) = (Arc::clone(&sink), meta.clone(), span.clone());
            async move {
                let mut answer = respond(&*provider, &share.prepared().await, &sink).await;
                if let Err(error) = &answer
                    && error.partial.is_none()
                    && sink.partial().is_none()
                    && share.is_renewed(error).await
                {
                    answer = respond(&*provider, &share.prepared().await, &sink).await;
                }
                let nothing_came = answer.as_ref().is_err_and(|error| error.partial.is_none())
                    && sink.partial().is_none();
                if let Some(lost) = lost(&meta, &sink, nothing_came) {
                    let _ = done.send(TaskReport::Input(Box::new(lost))).await;
                }
                let input = match answer {
                    Ok(response) => TurnInput::ModelDone {
                        request: number,
                        meta: finished(meta, &response, begun, &sink),
                        response,
                    },
                    Err(error) => {
                        let partial = error.partial.clone().map(|p| *p).or_else(|| sink.partial());
                        TurnInput::ModelFailed {
                            request: number,
                            partial: partial.map(|response| {
                                let meta = finished(meta, &response, begun, &sink);
                                (response, meta)
                            }),
                            failure: ModelFailure {
                                error: error.to_string(),
                                kind: error.kind,
                            },
                        }
                    }
                };
                spans::replied(&span, &input);
                drop(span);
                // Nobody listens any more when the session is gone.
                let _ = done.send(TaskReport::Input(Box::new(input))).await;
            }
        });
        Self {
            number,
            task,
            pieces,
            sink,
            meta,
            begun,
            span,
        }
    }

    /// The end of a request that was stopped before it left.
    pub(crate) fn never_sent(number: u64) -> TurnInput {
        TurnInput::ModelFailed {
            request: number,
            failure: ModelFailure {
                error: "stopped".to_owned(),
                kind: "stopped".to_owned(),
            },
            partial: None,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn pieces(&self) -> &Arc<ReplyPieces> {
        &self.pieces
    }

    /// What a request that is stopped now has cost without anything that is kept.
    pub(crate) fn lost(&self) -> Option<TurnInput> {
        lost(&self.meta, &self.sink, self.sink.partial().is_none())
    }

    /// Ends the request; what came so far is kept.
    pub(crate) fn stop(self) -> TurnInput {
        self.task.abort();
        let partial = self.sink.partial().map(|response| {
            let meta = finished(self.meta, &response, self.begun, &self.sink);
            (response, meta)
        });
        let stopped = TurnInput::ModelFailed {
            request: self.number,
            failure: ModelFailure {
                error: "stopped".to_owned(),
                kind: "stopped".to_owned(),
            },
            partial,
        };
        spans::replied(&self.span, &stopped);
        stopped
    }
}

/// Asks the provider, whose code may be anybody's.
async fn respond(
    provider: &dyn Provider,
    request: &ModelRequest,
    sink: &ReplySink,
) -> Result<Response, ProviderError> {
    let answer = AssertUnwindSafe(provider.respond(request, sink)).catch_unwind();
    answer.await.unwrap_or_else(|_| {
        Err(ProviderError::new(
            provider.name(),
            "panic",
            "the provider's code panicked; this is a bug of it",
        ))
    })
}

/// What attempts have cost of which nothing is kept.
fn lost(meta: &Meta, sink: &ReplySink, newest: bool) -> Option<TurnInput> {
    let usage = sink.lost(newest);
    (usage != Usage::default()).then(|| TurnInput::Spent {
        on: Spending::Attempt,
        meta: Meta {
            usage,
            ..meta.clone()
        },
    })
}

fn finished(mut meta: Meta, response: &Response, begun: Instant, sink: &ReplySink) -> Meta {
    meta.retries = sink.retries();
    meta.usage = response.usage;
    meta.latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if !response.model.is_empty() {
        meta.model.clone_from(&response.model);
    }
    meta
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn content(text: &str) -> StreamEvent {
        StreamEvent::Content {
            delta: text.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_no_window_and_a_lone_piece_does() {
        let pieces = ReplyPieces::new(Arc::default());
        let begun = tokio::time::Instant::now();
        pieces.push_batch(vec![content("a"), content("b")]);
        pieces.arrived().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let taken = pieces.take();
        let [ReplyPiece::Stream(StreamEvent::Content { delta })] = taken.as_slice() else {
            panic!("{} pieces", taken.len());
        };
        assert_eq!(delta, "ab");
        pieces.push_batch(Vec::new());
        pieces.push(ReplyPiece::Stream(content("c")));
        pieces.arrived().await;
        assert!(begun.elapsed() > Duration::ZERO);
        assert_eq!(pieces.take().len(), 1);
    }
}
