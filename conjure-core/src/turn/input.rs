//! What goes into the machine and what comes out of it.

use serde_json::{Map, Value};

use super::TurnSettings;
use crate::chat::{Event, FunctionCall, FunctionCallOutput, Message, Meta, Response};
use crate::context::CallRefusal;
use crate::log::{CallEnd, EntryBody, Spending, TableChange};
use crate::routing::RouteRef;

/// An event that the turn machine is told.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnInput {
    /// The person said something. While a turn runs it waits for its end.
    User {
        /// The id of the turn that it begins.
        turn_id: String,
        /// What was said.
        message: Message,
    },
    /// The model is to go on from where the thread ends, with nothing new said. While a turn runs
    /// it waits for its end.
    Continue {
        /// The id of the turn that it begins.
        turn_id: String,
    },
    /// A reply is whole.
    ModelDone {
        /// Number of the request, as in [`HostAction::Request`].
        request: u64,
        /// The reply.
        response: Response,
        /// Origin of the reply: its model, usage and so on.
        meta: Meta,
    },
    /// A request failed, was stopped, or its reply was cut.
    ModelFailed {
        /// Number of the request, as in [`HostAction::Request`].
        request: u64,
        /// What failed; after [`HostAction::StopModel`] it is not looked at.
        failure: ModelFailure,
        /// What had come of the reply.
        partial: Option<(Response, Meta)>,
    },
    /// A call has its result; also after [`HostAction::StopCall`].
    CallDone {
        /// What the model reads.
        output: FunctionCallOutput,
        /// How the call ended.
        end: CallEnd,
        /// From start to result, in milliseconds.
        duration_ms: u64,
        /// Data for programs.
        meta: Option<Value>,
    },
    /// The backends have seen a reply; once for each [`HostAction::Observe`].
    Observed,
    /// A decision on a call that waited for a person.
    Decided {
        /// The call.
        call_id: String,
        /// The decision.
        decision: ApprovalDecision,
    },
    /// A call that waited for a person does not run: a rule forbids it now, or nobody is there.
    Refused {
        /// The call.
        call_id: String,
        /// What the model is told, and why.
        refusal: CallRefusal,
    },
    /// The person ends the turn.
    Cancel {
        /// Whether follow-ups that wait are dropped too.
        drop_queued: bool,
    },
    /// The session's settings change.
    Settings {
        /// The new settings.
        settings: Box<TurnSettings>,
        /// What the log says about the change.
        entry: Box<EntryBody>,
        /// Time from which the new settings hold.
        when: EffectiveFrom,
    },
    /// There is a new routing table. The running step keeps its own.
    Table(TableChange),
    /// The log was compacted, as [`HostAction::Compact`] asked.
    Compacted {
        /// The first entry that is shown as it is.
        visible_from: u64,
        /// What stands for those before.
        summary: String,
        /// How the summary was made, and what it cost.
        meta: Meta,
        /// Tokens of what the model reads now, about.
        tokens: u64,
    },
    /// The log could not be compacted.
    CompactionFailed {
        /// What failed, in words.
        error: String,
    },
    /// A person wants the model to read again what a compaction hides.
    Unfold {
        /// The compaction's entry.
        fold: u64,
        /// Tokens of what the model reads then, about.
        tokens: u64,
    },
    /// A model was asked for something that is no part of the conversation.
    Spent {
        /// Purpose of the request.
        purpose: Spending,
        /// How the answer came about, and what it cost.
        meta: Meta,
    },
    /// Something that the host watches is used up, such as the turn's time or the thread's money.
    Exhausted {
        /// Name of the limit, such as `wall_time_ms`.
        limit: String,
        /// Value of the limit.
        value: u64,
    },
}

/// Time from which new settings hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectiveFrom {
    /// At once: a reply that is streaming is stopped, and its request made again.
    Now,
    /// From the next turn on.
    NextTurn,
}

/// A person's decision on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// The call runs.
    Allow,
    /// The call does not run.
    Deny {
        /// What the person says about it; may be empty.
        reason: String,
    },
}

/// Why a request gave no whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFailure {
    /// What failed, why, and what to do.
    pub error: String,
    /// A word for programs, such as `overloaded`.
    pub kind: String,
}

/// An instruction of the turn machine to the host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostAction {
    /// Append to the log.
    Write(EntryBody),
    /// Show to subscribers.
    Publish(Event),
    /// From here on requests and calls use the newest routing table.
    UseTable {
        /// Version of the routing table.
        version: u64,
    },
    /// From here on requests use these settings.
    UseSettings(Box<TurnSettings>),
    /// Compile the log and ask the model.
    Request {
        /// Number of the request; comes back with the reply.
        request: u64,
        /// Number of the round, from 1 in each turn.
        round: u32,
    },
    /// End the request; its reply so far comes back as [`TurnInput::ModelFailed`].
    StopModel {
        /// The number of the request.
        request: u64,
    },
    /// Show a reply's server items to the backends that contributed to its request; comes back as
    /// [`TurnInput::Observed`]. The turn does not end before, since what they find belongs to it.
    Observe {
        /// The provider of the reply, which need not be the session's any more.
        provider: String,
        /// The model of the reply.
        model: String,
        /// The items, in order.
        server_items: Vec<Value>,
        /// Fields of the reply.
        fields: Map<String, Value>,
    },
    /// Run a call. Whatever else runs, this one may too.
    RunCall {
        /// The call.
        call: FunctionCall,
        /// Where its route stands, in the table by which it was judged.
        route: Option<RouteRef>,
    },
    /// End a call; its result comes back as [`TurnInput::CallDone`].
    StopCall {
        /// The id of the call.
        call_id: String,
    },
    /// Ask a person about a call.
    AskPerson {
        /// The call.
        call: FunctionCall,
        /// The rule that asks.
        reason: String,
    },
    /// Nobody has to decide about this call any more.
    WithdrawApproval {
        /// The id of the call.
        call_id: String,
    },
    /// Summarise the log with the session's own provider.
    Compact {
        /// Whether the provider refused the conversation as too long; then it is longer than the
        /// model's window, whatever is known of that.
        after_refusal: bool,
    },
    /// Give up summarising.
    StopCompaction,
    /// A message that waited was dropped: its turn never begins.
    Dropped {
        /// The turn that it would have begun.
        turn_id: String,
    },
    /// The turn is over; another may begin with the next actions.
    TurnOver {
        /// Id of the turn.
        turn_id: String,
    },
}
