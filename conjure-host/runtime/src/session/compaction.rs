//! How much of its log a session's model reads: summaries that stand for the older part, and
//! taking them back.

use conjure_core::chat::{Meta, Part, Response, StopReason};
use conjure_core::log::{Entry, EntryBody, FoldState, Spending, folds, limit_words};
use conjure_core::request::ToolChoice;
use conjure_core::request::{Room, cut_point, summary_request, view_tokens};
use conjure_core::turn::Input;
use conjure_skill_sdk::protocol::Observe;
use tokio::sync::oneshot;

use super::actor::Actor;
use super::derived::room;
use super::model::Request;

/// A summary that is on its way.
pub(super) struct Compaction {
    pub(super) request: Request,
    upto: u64,
    room: Room,
    choice: ToolChoice,
}

impl Compaction {
    /// Gives the summary up; what had come of it was paid.
    pub(super) fn stop(self) -> Option<Input> {
        let lost = self.request.lost();
        match self.request.stop() {
            Input::ModelFailed {
                partial: Some((_, meta)),
                ..
            } => Some(in_vain(meta)),
            _ => lost,
        }
    }
}

/// What was paid for a summary that came to nothing.
fn in_vain(meta: Meta) -> Input {
    Input::Spent {
        on: Spending::Summary,
        meta,
    }
}

/// What a person's compaction came to: its entry, and how many tokens of the conversation the model
/// reads now, about.
pub(super) type Compacted = Result<(u64, u64), CompactError>;

/// Why nothing is summarised that a person wants to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// A turn runs, or another summary is on its way.
    #[error("a turn runs, or a summary is on its way: wait for its end, or cancel it")]
    Busy,
    /// All of it is the newest part.
    #[error(
        "there is nothing to summarise: before the newest part, which the model goes on reading as \
         it is, there is not more than a summary would be"
    )]
    Nothing,
    /// No summary came.
    #[error("the conversation is not summarised: {error}")]
    Failed {
        /// Why.
        error: String,
    },
    /// The session ended.
    #[error("the session ended")]
    Ended,
}

/// A fold that cannot be taken back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfoldError {
    /// No compaction stands.
    #[error("nothing is folded: the model reads all of the conversation as it is")]
    NothingFolded,
    /// The thread has no such compaction.
    #[error("entry {fold} of this thread is no compaction{}", listed(.known))]
    NoFold {
        /// What was asked for.
        fold: u64,
        /// The compactions that there are.
        known: Vec<u64>,
    },
    /// A later one stands for what it stood for.
    #[error("the compaction {fold} is part of the later one {by}: unfold that first")]
    Inside {
        /// What was asked for.
        fold: u64,
        /// The later one.
        by: u64,
    },
    /// It was taken back before.
    #[error("the compaction {fold} is unfolded already")]
    Already {
        /// What was asked for.
        fold: u64,
    },
    /// The session ended.
    #[error("the session ended")]
    Ended,
}

fn listed(folds: &[u64]) -> String {
    if folds.is_empty() {
        return "; it has none".to_owned();
    }
    let folds: Vec<String> = folds.iter().map(u64::to_string).collect();
    format!("; there are: {}", folds.join(", "))
}

impl Actor {
    /// Asks the session's own provider for a summary of the older part of the log.
    pub(super) fn compact(&mut self, refused: bool) -> Option<Input> {
        let entries = self.recorder.entries();
        let mut room = room(&self.spec, &self.shared.models);
        if refused {
            // Whatever is known of the window: so much was too much for it.
            let tokens = self.machine.next_input();
            room.window = Some(room.window.unwrap_or(tokens).min(tokens));
        }
        let Some(upto) = cut_point(entries, &room) else {
            return Some(Input::CompactionFailed {
                error: "there is nothing before its newest part that is worth it".to_owned(),
            });
        };
        self.ask_for_summary(upto, room, ToolChoice::Auto);
        None
    }

    /// The same because a person wants it, while no turn runs.
    pub(super) fn compact_for_person(&mut self, done: oneshot::Sender<Compacted>) {
        let refused = if self.machine.is_busy() || self.compaction.is_some() {
            Some(CompactError::Busy)
        } else if let Some(Input::Exhausted { limit, value }) = self.exhausted() {
            Some(CompactError::Failed {
                error: format!("the limit {} is reached", limit_words(&limit, value)),
            })
        } else {
            let room = room(&self.spec, &self.shared.models);
            match cut_point(self.recorder.entries(), &room) {
                Some(upto) => {
                    self.ask_for_summary(upto, room, ToolChoice::Auto);
                    None
                }
                None => Some(CompactError::Nothing),
            }
        };
        match refused {
            Some(error) => drop(done.send(Err(error))),
            None => self.wanted = Some(done),
        }
    }

    /// Gives up the summary that a person wanted.
    pub(super) fn stop_compacting(&mut self) {
        let Some(done) = self.wanted.take() else {
            return;
        };
        if let Some(paid) = self.compaction.take().and_then(|asked| asked.stop()) {
            self.input(paid);
        }
        let error = "it was cancelled".to_owned();
        let _ = done.send(Err(CompactError::Failed { error }));
    }

    /// Tells the person what came of the summary that they wanted.
    fn compacted_for_person(&mut self, done: oneshot::Sender<Compacted>, input: Input) {
        let told = match input {
            Input::CompactionFailed { error } => Err(CompactError::Failed { error }),
            Input::Compacted { tokens, .. } => {
                self.input(input);
                let folds = folds(self.recorder.entries());
                let newest = folds.last().map_or(0, |fold| fold.seq);
                Ok((newest, tokens))
            }
            other => {
                self.input(other);
                Err(CompactError::Ended)
            }
        };
        let _ = done.send(told);
    }

    fn ask_for_summary(&mut self, upto: u64, room: Room, choice: ToolChoice) {
        let like = self.compile(&self.current.load_full());
        let target = self.target();
        let mut request = summary_request(self.recorder.entries(), upto, &target, &room, like);
        request.tool_choice = choice.clone();
        let meta = self.meta(&request);
        // Its own row of numbers: a summary is no request of the machine's.
        let number = u64::MAX - self.recorder.entries().len() as u64;
        let request = self.begin(number, request, meta);
        self.compaction = Some(Box::new(Compaction {
            request,
            upto,
            room,
            choice,
        }));
    }

    /// Takes the answer to the request for a summary.
    pub(super) fn compacted(&mut self, answer: Input) {
        let Some(asked) = self.compaction.take() else {
            return;
        };
        let input = match answer {
            Input::ModelDone {
                response, mut meta, ..
            } => {
                meta.stop_reason = response.stop.as_ref().map(|stop| stop.raw.clone());
                self.observe(Observe {
                    provider: meta.provider.clone(),
                    model: meta.model.clone(),
                    server_items: response.server_items().cloned().collect(),
                    fields: response.fields.clone(),
                    error: None,
                });
                match summary(&response) {
                    Ok(summary) => self.folded(asked.upto, summary, meta),
                    Err(error) => {
                        self.input(in_vain(meta));
                        if asked.choice == ToolChoice::Auto {
                            // Mostly it went on with the work: once more, without its tools.
                            self.ask_for_summary(asked.upto, asked.room, ToolChoice::None);
                            return;
                        }
                        Input::CompactionFailed { error }
                    }
                }
            }
            Input::ModelFailed {
                failure, partial, ..
            } => {
                if let Some((_, meta)) = partial {
                    self.input(in_vain(meta));
                }
                let error = failure.error;
                Input::CompactionFailed { error }
            }
            other => other,
        };
        match self.wanted.take() {
            Some(done) => self.compacted_for_person(done, input),
            None => self.input(input),
        }
    }

    fn folded(&self, upto: u64, summary: String, meta: Meta) -> Input {
        let body = EntryBody::Compacted {
            upto,
            summary: summary.clone(),
            meta: None,
        };
        Input::Compacted {
            upto,
            summary,
            meta,
            tokens: tokens_with(self.recorder.entries(), body),
        }
    }

    /// Lets the model read again what a compaction hides.
    pub(super) fn unfold(&mut self, fold: Option<u64>) -> Result<(u64, u64), UnfoldError> {
        let (fold, tokens) = unfolding(self.recorder.entries(), fold)?;
        self.input(Input::Unfold { fold, tokens });
        Ok((fold, tokens))
    }
}

/// Whether a compaction can be taken back, the one that stands or that of this entry; gives back
/// which it is, and how many tokens the model would read then, about.
pub(crate) fn unfolding(entries: &[Entry], fold: Option<u64>) -> Result<(u64, u64), UnfoldError> {
    let folds = folds(entries);
    let standing = || {
        folds
            .iter()
            .find(|known| known.state == FoldState::Standing)
    };
    let Some(fold) = fold.or_else(|| standing().map(|known| known.seq)) else {
        return Err(UnfoldError::NothingFolded);
    };
    let found = folds.iter().find(|known| known.seq == fold);
    match found.map(|found| found.state) {
        None => Err(UnfoldError::NoFold {
            fold,
            known: folds.iter().map(|known| known.seq).collect(),
        }),
        Some(FoldState::Inside { by }) => Err(UnfoldError::Inside { fold, by }),
        Some(FoldState::Unfolded) => Err(UnfoldError::Already { fold }),
        Some(FoldState::Standing) => {
            let tokens = tokens_with(entries, EntryBody::Unfolded { fold });
            Ok((fold, tokens))
        }
    }
}

/// Tokens of what the model would read with one entry more, about.
fn tokens_with(entries: &[Entry], body: EntryBody) -> u64 {
    let mut entries = entries.to_vec();
    entries.push(Entry {
        seq: entries.last().map_or(1, |last| last.seq + 1),
        turn: entries.last().map_or(0, |last| last.turn),
        at_ms: 0,
        body,
    });
    view_tokens(&entries)
}

/// The summary that a reply is, or why it is none: one that goes on with the work in place of
/// summing it up would stand for the conversation from then on.
fn summary(response: &Response) -> Result<String, String> {
    let reason = response.stop.as_ref().map(|stop| stop.reason);
    let text: String = response.parts.iter().filter_map(Part::as_text).collect();
    if response.parts.iter().any(|part| part.as_call().is_some()) {
        return Err("the model called a tool in place of writing the summary".to_owned());
    }
    match reason {
        Some(StopReason::Pause | StopReason::Refusal | StopReason::ContextWindow) => Err(format!(
            "the model ended its reply with `{}`",
            response.stop.as_ref().map_or("", |stop| stop.raw.as_str())
        )),
        _ if text.trim().is_empty() => Err("the summary is empty".to_owned()),
        _ => Ok(text),
    }
}
