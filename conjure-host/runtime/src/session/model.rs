//! One model request of a session, on a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use conjure_core::chat::{Event, Meta, Response, StreamEvent, Usage};
use conjure_core::log::Spending;
use conjure_core::request::ModelRequest;
use conjure_core::turn::{ModelFailure, TurnInput};
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tracing::Span;

use super::gather_window::GatherWindow;
use super::record_queue::RecordQueue;
use crate::backend::contributors::ContributedRequest;
use crate::backend::reports::{ReportSender, TaskReport};
use crate::spans;
use conjure_providers::{Provider, ProviderError, ReplySink};

/// A model request that is being answered.
pub(crate) struct ActiveRequest {
    number: u64,
    task: JoinHandle<()>,
    pieces: Option<Arc<ReplyPieces>>,
    sink: Arc<ReplySink>,
    meta: Meta,
    started_at: Instant,
    span: Span,
}

/// Where pieces of a reply go that is shown while it comes.
pub(crate) struct ReplyPieces {
    records: Arc<RecordQueue>,
    window: Arc<GatherWindow>,
    is_over: AtomicBool,
}

impl ReplyPieces {
    /// Into these records, which gather in this window.
    pub(crate) fn new(records: Arc<RecordQueue>, window: Arc<GatherWindow>) -> Self {
        Self {
            records,
            window,
            is_over: AtomicBool::new(false),
        }
    }

    /// What takes the pieces.
    fn sink(self: &Arc<Self>) -> ReplySink {
        let [pieces, batches, notices] = [(); 3].map(|()| Arc::clone(self));
        let sink = ReplySink::new(
            move |piece| {
                if let Some(event) = piece_event(piece) {
                    pieces.push(event);
                }
            },
            move |text| notices.push(Event::Notice { text }),
        );
        sink.with_batches(self.window.ticks(), move |events| {
            batches.push_batch(events);
        })
    }

    fn push(&self, event: Event) {
        if self.records.piece(event, &self.is_over) {
            self.window.add(&self.records);
        }
    }

    /// Takes pieces that gathered already: nothing more is waited for.
    fn push_batch(&self, events: Vec<StreamEvent>) {
        let events = events.into_iter().filter_map(piece_event);
        self.records.pieces(events, &self.is_over);
    }

    /// Takes none any more.
    fn end(&self) {
        self.records.end_reply(&self.is_over);
    }
}

/// What is shown of a piece.
fn piece_event(piece: StreamEvent) -> Option<Event> {
    match piece {
        StreamEvent::Content { delta } => Some(Event::Content { delta }),
        StreamEvent::Thinking { delta } => Some(Event::Thinking { delta }),
        _ => None,
    }
}

impl ActiveRequest {
    /// Sends a request, with the share that backends have in it; with where its pieces go, if they are
    /// shown.
    pub(crate) fn send(
        number: u64,
        provider: Arc<dyn Provider>,
        meta: Meta,
        share: ContributedRequest,
        span: Span,
        done: ReportSender,
        pieces: Option<ReplyPieces>,
    ) -> Self {
        let pieces = pieces.map(Arc::new);
        let sink = pieces.as_ref().map(ReplyPieces::sink);
        let sink = Arc::new(sink.unwrap_or_else(|| ReplySink::new(|_| {}, |_| {})));
        let begun = Instant::now();
        let task = tokio::spawn({
            let (sink, meta, span) = (Arc::clone(&sink), meta.clone(), span.clone());
            async move {
                let mut answer = respond(&*provider, &share.prepare().await, &sink).await;
                if let Err(error) = &answer
                    && error.partial.is_none()
                    && sink.partial().is_none()
                    && share.observe_failure(error).await
                {
                    answer = respond(&*provider, &share.prepare().await, &sink).await;
                }
                let nothing_came = answer.as_ref().is_err_and(|error| error.partial.is_none())
                    && sink.partial().is_none();
                if let Some(lost) = lost_usage(&meta, &sink, nothing_came) {
                    let _ = done.send(TaskReport::Input(Box::new(lost))).await;
                }
                let input = match answer {
                    Ok(response) => TurnInput::ModelDone {
                        request: number,
                        meta: finish_meta(meta, &response, begun, &sink),
                        response,
                    },
                    Err(error) => {
                        let partial = error.partial.clone().map(|p| *p).or_else(|| sink.partial());
                        TurnInput::ModelFailed {
                            request: number,
                            partial: partial.map(|response| {
                                let meta = finish_meta(meta, &response, begun, &sink);
                                (response, meta)
                            }),
                            failure: ModelFailure {
                                error: error.to_string(),
                                kind: error.kind,
                            },
                        }
                    }
                };
                spans::record_reply(&span, &input);
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
            started_at: begun,
            span,
        }
    }

    /// The end of a request that was stopped before it left.
    pub(crate) fn unsent_failure(number: u64) -> TurnInput {
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

    /// What a request that is stopped now has cost without anything that is kept.
    pub(crate) fn lost_usage(&self) -> Option<TurnInput> {
        lost_usage(&self.meta, &self.sink, self.sink.partial().is_none())
    }

    /// Ends the request; what came so far is kept.
    pub(crate) fn stop(self) -> TurnInput {
        self.task.abort();
        if let Some(pieces) = &self.pieces {
            pieces.end();
        }
        let partial = self.sink.partial().map(|response| {
            let meta = finish_meta(self.meta, &response, self.started_at, &self.sink);
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
        spans::record_reply(&self.span, &stopped);
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
fn lost_usage(meta: &Meta, sink: &ReplySink, newest: bool) -> Option<TurnInput> {
    let usage = sink.wasted_usage(newest);
    (usage != Usage::default()).then(|| TurnInput::Spent {
        purpose: Spending::Attempt,
        meta: Meta {
            usage,
            ..meta.clone()
        },
    })
}

fn finish_meta(mut meta: Meta, response: &Response, begun: Instant, sink: &ReplySink) -> Meta {
    meta.retries = sink.retries();
    meta.usage = response.usage;
    meta.latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if !response.model.is_empty() {
        meta.model.clone_from(&response.model);
    }
    meta
}
