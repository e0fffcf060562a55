//! Why an entry is in a log, as data. The words beside it are made of this and are for people and
//! for the model; programs read the reason.

use serde::{Deserialize, Serialize};

use super::plugin_change::StateMove;
use super::unshown_file::{LostFile, UnshownFile};

/// Why a call was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NotRun {
    /// The session has no such tool.
    NoSuchTool,
    /// The arguments are no JSON object, or do not fit the tool's schema.
    BadArguments,
    /// The session's policy denies it.
    Denied,
    /// A person would have to allow it, and nobody is there.
    NobodyToAsk,
    /// A person was asked and said no.
    PersonRefused {
        /// What they said; may be empty.
        said: String,
    },
    /// The call's turn was ended first.
    TurnEnded,
    /// The session's settings changed first.
    SettingsChanged,
    /// The reply that asked for it was cut short by a limit or by the provider.
    ReplyCutShort,
    /// The reply that asked for it broke off.
    ReplyBrokeOff,
    /// A limit of the session is reached.
    OverLimit {
        /// Name of the limit, such as `max_iterations`.
        limit: String,
        /// Value of the limit.
        value: u64,
    },
    /// Something that the call needs is not there, such as the plugin.
    NotReady,
    /// Too much was going on at once.
    Busy,
    /// The host ended first.
    HostEnded,
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}

/// What a person is told: what the turn machine noticed, and what became of tools and files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NoticeReason {
    /// A provider refused a request as too long, so the conversation is summarised.
    TooLong {
        /// What the provider said.
        error: String,
    },
    /// The conversation could not be summarised.
    NotSummarised {
        /// What failed, in words.
        error: String,
    },
    /// The conversation was summarised.
    Summarised {
        /// Tokens that the model reads of it now, about.
        tokens: u64,
    },
    /// Messages that waited for the end of a turn were dropped.
    Dropped {
        /// Number of the messages.
        messages: u64,
    },
    /// A plugin's state was to move to another version.
    StateMoved(StateMove),
    /// Tools are kept out of the table, all for one reason.
    ToolsExcluded {
        /// The names that they would have.
        names: Vec<String>,
        /// Why, and how to resolve it, in words.
        error: String,
    },
    /// A plugin is not loaded that the session's settings name.
    NotLoaded {
        /// The backend instance.
        backend: String,
        /// What is missing, and what there is, in words.
        error: String,
    },
    /// A backend could not be made ready, so there are no tools of it.
    NotReady {
        /// The backend instance.
        backend: String,
        /// What failed, in words.
        error: String,
    },
    /// A backend could not be made ready with another plugin, and goes on with the one it has.
    BackendKept {
        /// The backend instance.
        backend: String,
        /// The plugin that goes on, and its version.
        plugin: String,
        /// The plugin that could not be made ready, and its version.
        refused: String,
        /// What failed, in words.
        error: String,
    },
    /// A backend is another instance of the same plugin.
    BackendRenewed {
        /// The backend instance.
        backend: String,
    },
    /// Attached files are lost.
    FilesLost {
        /// The lost files, in their order.
        files: Vec<LostFile>,
    },
    /// The model is not shown what is in attached files.
    FilesUnshown {
        /// The files that are not shown, in their order.
        files: Vec<UnshownFile>,
    },
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}
