//! Where a provider puts what comes in, piece by piece.

use std::sync::{Arc, Mutex, PoisonError};

use conjure_core::chat::{Content, Part, Response, StreamEvent, Usage};

use crate::ReadTicks;

type Listener = Arc<dyn Fn(StreamEvent) + Send + Sync>;
type BatchListener = Arc<dyn Fn(Vec<StreamEvent>) + Send + Sync>;

/// Takes the pieces of one reply: hands them to the session, and keeps what would be lost when the
/// request is dropped. Its clones are the same sink.
#[derive(Clone)]
pub struct ReplySink {
    listener: Listener,
    /// When pieces that come fast may be read, and who takes them in a batch.
    on_batch: Option<(ReadTicks, BatchListener)>,
    notice: Arc<dyn Fn(String) + Send + Sync>,
    progress: Arc<Mutex<ReplyProgress>>,
}

#[derive(Default)]
struct ReplyProgress {
    parts: Vec<Part>,
    usage: Usage,
    begun: bool,
    retries: u32,
    /// Usage of the attempts before this one.
    wasted_usage: Usage,
}

impl ReplySink {
    /// A sink in front of a listener. Both closures are short and never block: they are called on the thread
    /// that reads all replies of the process.
    pub fn new(
        listener: impl Fn(StreamEvent) + Send + Sync + 'static,
        notice: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        Self {
            listener: Arc::new(listener),
            on_batch: None,
            notice: Arc::new(notice),
            progress: Arc::default(),
        }
    }

    /// Returns the sink with a closure of its own for batches: a provider may let pieces that come fast
    /// gather until the next of these moments.
    #[must_use]
    pub fn with_batches(
        mut self,
        ticks: ReadTicks,
        on_batch: impl Fn(Vec<StreamEvent>) + Send + Sync + 'static,
    ) -> Self {
        self.on_batch = Some((ticks, Arc::new(on_batch)));
        self
    }

    /// Takes one piece.
    pub fn push(&self, event: StreamEvent) {
        self.record(&event);
        (self.listener)(event);
    }

    /// When pieces that come fast may be read; nothing where each is to be given at once.
    pub fn ticks(&self) -> Option<ReadTicks> {
        self.on_batch.as_ref().map(|(ticks, _)| *ticks)
    }

    /// Takes a batch: pieces that gathered already, so that nobody need wait for more.
    pub fn push_batch(&self, events: Vec<StreamEvent>) {
        events.iter().for_each(|event| self.record(event));
        match &self.on_batch {
            Some((_, on_batch)) => on_batch(events),
            None => events.into_iter().for_each(&*self.listener),
        }
    }

    fn record(&self, event: &StreamEvent) {
        let mut so_far = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        // Providers tell what a request costs before they begin to answer it, and of a call that
        // is being written nobody is told anything and nothing runs.
        so_far.begun |= !matches!(
            event,
            StreamEvent::Usage(_) | StreamEvent::CallStarted { .. } | StreamEvent::Call { .. }
        );
        match event {
            StreamEvent::Content { delta } => match so_far.parts.last_mut() {
                Some(Part {
                    content: Content::Text { text },
                    ..
                }) => text.push_str(delta),
                _ => so_far.parts.push(Part::text(delta.clone())),
            },
            StreamEvent::Thinking { delta } => match so_far.parts.last_mut() {
                Some(Part {
                    content: Content::Reasoning { text },
                    ..
                }) => text.push_str(delta),
                _ => so_far.parts.push(
                    Content::Reasoning {
                        text: delta.clone(),
                    }
                    .into(),
                ),
            },
            StreamEvent::Usage(usage) => so_far.usage = *usage,
            _ => {}
        }
    }

    /// Tells a person something about the request, such as that it is tried again.
    pub fn notice(&self, text: String) {
        (self.notice)(text);
    }

    /// Tells a person that the request is made again, and why.
    pub fn notify_retry(&self, text: String) {
        {
            let mut so_far = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.retries += 1;
            let spent = std::mem::take(&mut so_far.usage);
            so_far.wasted_usage += spent;
        }
        (self.notice)(text);
    }

    /// Tokens of attempts that came to nothing: of those that were made again, and of the newest
    /// where `newest` came to nothing too.
    pub fn wasted_usage(&self, newest: bool) -> Usage {
        let so_far = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = so_far.wasted_usage;
        if newest {
            lost += so_far.usage;
        }
        lost
    }

    /// How often the request was made again.
    pub fn retries(&self) -> u32 {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retries
    }

    /// Whether any output came. After that a request is never tried again.
    pub fn has_begun(&self) -> bool {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .begun
    }

    /// What came so far, as an unfinished reply; nothing when nothing came.
    pub fn partial(&self) -> Option<Response> {
        let so_far = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        so_far.begun.then(|| Response {
            parts: so_far.parts.clone(),
            usage: so_far.usage,
            complete: false,
            ..Response::default()
        })
    }
}
