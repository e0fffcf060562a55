//! What the face and whoever holds the conversation tell each other.

use std::path::PathBuf;

use conjure_core::chat::{CallAnnounced, Event, QuestionAsked};
use serde_json::{Map, Value};

use crate::picker::{Picker, PickerItem};

/// What the person wants.
#[derive(Debug, Clone, PartialEq)]
pub enum PersonRequest {
    /// Say this to the model.
    Say(String),
    /// Run this command of the host's: a line that begins with a slash.
    Command(String),
    /// Run this command of the person's own.
    Shell(String),
    /// Stop what runs.
    Stop,
    /// Decide about a call that waits.
    Decide {
        /// The call.
        call_id: String,
        /// What is decided.
        decision: Decision,
    },
    /// Answer a question.
    Answer {
        /// The question.
        id: String,
        /// The answer; nothing where the person does not want to.
        content: Option<Map<String, Value>>,
    },
    /// Search for more that a list can have; the answer is [`Update::SearchResults`].
    Search {
        /// The list.
        list: String,
        /// What is typed at it.
        words: String,
    },
    /// Something was picked from a list.
    Pick {
        /// The list.
        list: String,
        /// What was picked of it; nothing where the list was left.
        id: Option<String>,
    },
}

/// The person's decision about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The call runs.
    Once,
    /// The call runs, and so do calls in this session that fit the pattern.
    Session(String),
    /// The call runs, and so do calls from now on that fit the pattern.
    Always(String),
    /// The call does not run; the model reads the reason.
    No(String),
}

/// What whoever holds the conversation tells the face.
#[derive(Debug, Clone)]
pub enum Update {
    /// An event of the turn.
    Event(Event),
    /// Text of the program's own, with its styles.
    Print(String),
    /// An image that goes with what is said, or that a call made.
    Image {
        /// What a person calls it.
        name: String,
        /// Path of the image on this machine.
        path: PathBuf,
    },
    /// Status of the conversation.
    Status(ConversationStatus),
    /// The request is done, and the next one can be made.
    Ready,
    /// The request was stopped or failed: messages that wait behind it are not said by themselves.
    Halted,
    /// A call waits for the person.
    Approval {
        /// The call that would run.
        call: CallAnnounced,
        /// Reason why the person is asked.
        reason: String,
        /// Present text of the file that the call would write, where that can be told.
        overwritten: Option<String>,
    },
    /// A question that is no event of the turn.
    Question(QuestionAsked),
    /// What waits for the person in a turn that somebody else began.
    Others(OthersPrompt),
    /// A list to pick from.
    Pick(Picker),
    /// What a search for a list found.
    SearchResults {
        /// The list.
        list: String,
        /// What was searched for.
        words: String,
        /// What the list can have too.
        choices: Vec<PickerItem>,
    },
    /// A text to go on typing at.
    Edit(String),
    /// What was said before, the oldest first.
    History(Vec<PastItem>),
    /// What somebody else said in the conversation, and what came of it, the oldest first.
    OthersItems(Vec<PastItem>),
    /// The end.
    Quit,
}

/// What waits for the person in a turn that somebody else began: it does not end with what was asked for
/// here. What is told again while it waits is shown once.
#[derive(Debug, Clone)]
pub enum OthersPrompt {
    /// A call.
    Approval {
        /// The call that would run.
        call: CallAnnounced,
        /// Reason why the person is asked.
        reason: String,
        /// Present text of the file that the call would write, where that can be told.
        overwritten: Option<String>,
    },
    /// A question.
    Question(QuestionAsked),
    /// A call or a question waits no longer.
    Settled {
        /// Id of the call or the question.
        id: String,
    },
}

/// Something that was said before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastItem {
    /// By the person.
    Person(String),
    /// A file that went with what the person said, by its name.
    File(String),
    /// By the model.
    Model(String),
    /// A call, on a line.
    Call {
        /// Name of the tool.
        name: String,
        /// Summary of what the call did.
        summary: String,
        /// Outcome of the call.
        end: PastCallEnd,
    },
    /// Something about what is shown.
    Note(String),
}

/// How a call that was made before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastCallEnd {
    /// The call worked.
    Worked,
    /// The call failed, or did not run.
    Failed,
    /// Nobody saw its result: nobody knows what it did.
    Unknown,
}

impl PastCallEnd {
    /// The words behind a call whose mark alone does not say how it ended.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Worked | Self::Failed => "",
            Self::Unknown => "  no result was seen",
        }
    }
}

/// Status of the conversation, for the line below what is typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationStatus {
    /// The model, with its provider.
    pub model: String,
    /// Directory in which calls work.
    pub directory: String,
    /// Tokens so far.
    pub tokens: u64,
    /// Dollars so far, as far as prices are known.
    pub usd: f64,
    /// Tokens of the last request.
    pub context: u64,
    /// Tokens that the model takes, where that is known.
    pub window: Option<u64>,
}
