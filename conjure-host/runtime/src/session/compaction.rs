//! How much of its log a session's model reads: summaries that stand for the older part, and
//! taking them back.

use conjure_core::chat::{Meta, Part, Response, StopReason};
use conjure_core::log::{Entry, EntryBody, FoldState, Spending, folds};
use conjure_core::repair::RepairTarget;
use conjure_core::request::{
    ModelRequest, Room, ToolChoice, cut_point, summary_request, view_tokens,
};
use conjure_core::turn::TurnInput;
use conjure_skill_sdk::protocol::Observe;

use super::model::ActiveRequest;

/// A summary that is on its way.
pub(super) struct Compaction {
    request: ActiveRequest,
    plan: SummaryPlan,
}

/// What a summary is to stand for, and how it is asked for.
pub(super) struct SummaryPlan {
    /// The first entry that stays as it is.
    first_kept: u64,
    room: Room,
    choice: ToolChoice,
}

/// What came of the request for a summary.
pub(super) struct SummaryEnd {
    /// What the backends are shown of it.
    pub(super) observe: Option<Observe>,
    /// What was paid in vain.
    pub(super) wasted: Option<TurnInput>,
    pub(super) next: AfterSummary,
}

/// Next step after the request for a summary.
pub(super) enum AfterSummary {
    /// The summary is asked for once more.
    Retry(SummaryPlan),
    /// The summary is over: the turn machine is told this.
    Done(Box<TurnInput>),
}

impl SummaryPlan {
    /// What of these entries is worth summing up; nothing where nothing is.
    pub(super) fn of(entries: &[Entry], room: Room) -> Option<Self> {
        Some(Self {
            first_kept: cut_point(entries, &room)?,
            room,
            choice: ToolChoice::Auto,
        })
    }

    /// The request for it, in which the conversation is as in `like`.
    pub(super) fn request(
        &self,
        entries: &[Entry],
        target: &RepairTarget,
        like: ModelRequest,
    ) -> ModelRequest {
        ModelRequest {
            tool_choice: self.choice.clone(),
            ..summary_request(entries, self.first_kept, target, &self.room, like)
        }
    }

    /// Begins the compaction, whose request is on its way.
    pub(super) fn start(self, request: ActiveRequest) -> Compaction {
        let plan = self;
        Compaction { request, plan }
    }
}

impl Compaction {
    /// Whether this is its request.
    pub(super) fn has_request(&self, request: u64) -> bool {
        self.request.number() == request
    }

    /// Gives the summary up; what had come of it was paid.
    pub(super) fn stop(self) -> Option<TurnInput> {
        let lost = self.request.lost_usage();
        match self.request.stop() {
            TurnInput::ModelFailed {
                partial: Some((_, meta)),
                ..
            } => Some(wasted_spend(meta)),
            _ => lost,
        }
    }

    /// Takes the answer to its request.
    pub(super) fn end(self, answer: TurnInput, entries: &[Entry]) -> SummaryEnd {
        let (mut observe, mut paid) = (None, None);
        let next = match answer {
            TurnInput::ModelDone {
                response, mut meta, ..
            } => {
                meta.stop_reason = response.stop.as_ref().map(|stop| stop.raw.clone());
                observe = Some(Observe {
                    provider: meta.provider.clone(),
                    model: meta.model.clone(),
                    server_items: response.server_items().cloned().collect(),
                    fields: response.fields.clone(),
                    error: None,
                });
                match summary(&response) {
                    Ok(summary) => AfterSummary::Done(Box::new(compacted_input(
                        entries,
                        self.plan.first_kept,
                        summary,
                        meta,
                    ))),
                    Err(error) => {
                        paid = Some(wasted_spend(meta));
                        if self.plan.choice == ToolChoice::Auto {
                            // Mostly it went on with the work: once more, without its tools.
                            AfterSummary::Retry(SummaryPlan {
                                choice: ToolChoice::None,
                                ..self.plan
                            })
                        } else {
                            AfterSummary::Done(Box::new(TurnInput::CompactionFailed { error }))
                        }
                    }
                }
            }
            TurnInput::ModelFailed {
                failure, partial, ..
            } => {
                paid = partial.map(|(_, meta)| wasted_spend(meta));
                let error = failure.error;
                AfterSummary::Done(Box::new(TurnInput::CompactionFailed { error }))
            }
            other => AfterSummary::Done(Box::new(other)),
        };
        SummaryEnd {
            observe,
            wasted: paid,
            next,
        }
    }
}

/// What was paid for a summary that came to nothing.
fn wasted_spend(meta: Meta) -> TurnInput {
    TurnInput::Spent {
        purpose: Spending::Summary,
        meta,
    }
}

fn compacted_input(entries: &[Entry], upto: u64, summary: String, meta: Meta) -> TurnInput {
    let body = EntryBody::Compacted {
        upto,
        summary: summary.clone(),
        meta: None,
    };
    TurnInput::Compacted {
        visible_from: upto,
        summary,
        meta,
        tokens: tokens_with(entries, body),
    }
}

/// What a person's compaction came to: its entry, and how many tokens of the conversation the model
/// reads now, about.
pub(crate) type CompactionResult = Result<(u64, u64), CompactError>;

/// Like [`CompactionResult`], for a compaction that is taken back.
pub(crate) type UnfoldResult = Result<(u64, u64), UnfoldError>;

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
        /// What failed, in words.
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
    /// The compaction was taken back before.
    #[error("the compaction {fold} is unfolded already")]
    AlreadyUnfolded {
        /// What was asked for.
        fold: u64,
    },
    /// The log could not be written.
    #[error("it is not taken back, as the log could not be written: {error}")]
    Failed {
        /// What failed, in words.
        error: String,
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

/// Whether a compaction can be taken back, the one that stands or that of this entry; gives back
/// which it is, and how many tokens the model would read then, about.
pub(crate) fn check_unfold(
    entries: &[Entry],
    fold: Option<u64>,
) -> Result<(u64, u64), UnfoldError> {
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
        Some(FoldState::Inside { outer: by }) => Err(UnfoldError::Inside { fold, by }),
        Some(FoldState::Unfolded) => Err(UnfoldError::AlreadyUnfolded { fold }),
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
