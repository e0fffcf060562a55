//! The entries of a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plugin_change::PluginChange;
use super::reason::{NotRun, NoticeReason};
use crate::chat::{ArtifactRef, FunctionCallOutput, Message, Meta, Usage};

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from 1 in its thread, without gaps.
    pub seq: u64,
    /// The turn that it belongs to, counted from 1; 0 before the first.
    pub turn: u64,
    /// When it was written, in milliseconds since 1970; the host's clock.
    #[serde(default)]
    pub at_ms: i64,
    /// What the entry says.
    #[serde(flatten)]
    pub body: EntryBody,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum EntryBody {
    /// A turn begins.
    TurnStarted {
        /// Id of the turn.
        turn_id: String,
    },
    /// Somebody said something: the person, the model, or the host.
    Message {
        /// What was said, and by whom.
        message: Message,
    },
    /// A call begins to run. With no [`EntryBody::CallEnded`] after it, nobody knows what it did.
    CallStarted {
        /// The call.
        call_id: String,
        /// The backend instance that runs it.
        backend: String,
        /// The plugin and its version, when one is behind it, as the routing table names them. Where
        /// that version could not take over the state of one before, that one goes on in its place:
        /// of the call that was the first to try, a notice before its result says that, and later ones
        /// name the version that runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<String>,
    },
    /// A call has its one terminal result.
    CallEnded {
        /// What the model reads.
        output: FunctionCallOutput,
        /// How the call ended.
        end: CallEnd,
        /// Why the call was not run; absent where it ran, and in older threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<NotRun>,
        /// From start to result, in milliseconds; 0 when it never ran.
        #[serde(default)]
        duration_ms: u64,
        /// Data for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meta: Option<Value>,
    },
    /// A file was made.
    File {
        /// The file.
        artifact: ArtifactRef,
        /// The backend instance that made it.
        source: String,
        /// The call that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Where its bytes are, in the host's terms; absent while they are elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<String>,
        /// What the backend calls it, which can be asked for it again; absent where it has no such
        /// name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
        /// The backend instance that hands it out by that name; absent where that is its source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<String>,
    },
    /// The routing table is another one from the next request on.
    TableChanged(TableChange),
    /// The session's settings are other ones from here on.
    SettingsChanged {
        /// What changed, for people and for the model's context.
        summary: String,
        /// The settings, in the host's form.
        settings: Value,
    },
    /// What a backend wants to be told when its session is opened again.
    BackendState {
        /// The backend instance.
        backend: String,
        /// Opaque.
        state: Value,
    },
    /// A view over the log: what is before `upto` is told by a summary. Nothing is deleted.
    Compacted {
        /// The first entry that is shown as it is.
        upto: u64,
        /// What the model reads in place of what is before.
        summary: String,
        /// How the summary was made, and what it cost.
        #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Meta>,
    },
    /// A compaction is taken back: the model reads again what it hid.
    Unfolded {
        /// The compaction's entry.
        fold: u64,
    },
    /// A model was asked for something that is no part of the conversation, or answered nothing.
    Spent {
        /// Purpose of the request.
        on: Spending,
        /// How the answer came about, and what it cost.
        #[serde(rename = "_meta")]
        meta: Meta,
    },
    /// Something that a person should know.
    Notice {
        /// The notice in the words of the version that wrote it.
        text: String,
        /// The notice as data, of which the words are made anew where it is shown; absent in older
        /// threads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<NoticeReason>,
    },
    /// A turn is over.
    TurnEnded {
        /// Id of the turn.
        turn_id: String,
        /// How the turn ended.
        outcome: TurnOutcome,
        /// Tokens of all its rounds.
        usage: Usage,
        /// The stop reason as the provider gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
    },
}

/// What a model was asked for that no message shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Spending {
    /// Something that a plugin wanted to know.
    Sample {
        /// The plugin.
        plugin: String,
    },
    /// Work that a backend gave to a model of its own.
    Delegated {
        /// The backend instance.
        backend: String,
    },
    /// A summary that came to nothing.
    Summary,
    /// Replies that broke off before anything of them could be kept.
    Attempt,
    /// The conversation's next reply, which says nothing.
    Reply,
}

impl EntryBody {
    /// A notice in words alone, as older threads have them.
    #[must_use]
    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice {
            text: text.into(),
            reason: None,
        }
    }

    /// How a reply of a model came about, also where no message shows it; nothing on other entries.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        match self {
            Self::Message { message } => message.meta.as_ref(),
            Self::Compacted { meta, .. } => meta.as_ref(),
            Self::Spent { meta, .. } => Some(meta),
            _ => None,
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// The call ran, and its output is what it gave back.
    Done,
    /// The call ran or tried to, and failed.
    Failed,
    /// The call was never run: unknown tool, bad arguments, denied, cut off, over a limit.
    Refused,
    /// The call was cancelled.
    Cancelled,
    /// The call took too long and was ended.
    TimedOut,
    /// The call was started and its result was never seen.
    Indeterminate,
}

/// A change of the routing table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableChange {
    /// The version that is used from here on.
    pub version: u64,
    /// Public names that are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Public names that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Public names that lead elsewhere or look otherwise now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Plugins that are there in another version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PluginChange>,
}

impl TableChange {
    /// Two changes as one: a name that came and went was never there.
    #[must_use]
    pub fn followed_by(&self, next: &Self) -> Self {
        let came_and_went = common(&self.added, &next.removed);
        let went_and_came = common(&self.removed, &next.added);
        let back = [&came_and_went, &went_and_came];
        let added = union(&self.added, &next.added, &back);
        let removed = union(&self.removed, &next.removed, &back);
        let elsewhere = [&added, &removed, &came_and_went, &went_and_came];
        let mut changed = union(&self.changed, &next.changed, &elsewhere);
        changed.extend(went_and_came);
        let mut plugins = self.plugins.clone();
        for change in &next.plugins {
            let known = plugins
                .iter_mut()
                .find(|known| known.plugin == change.plugin);
            match known {
                Some(known) => *known = known.followed_by(change),
                None => plugins.push(change.clone()),
            }
        }
        Self {
            version: next.version,
            added,
            removed,
            changed,
            plugins,
        }
    }
}

fn common(one: &[String], two: &[String]) -> Vec<String> {
    one.iter()
        .filter(|name| two.contains(name))
        .cloned()
        .collect()
}

/// The names of both, each once, without those of `but`.
fn union(one: &[String], two: &[String], but: &[&Vec<String>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in one.iter().chain(two) {
        if !names.contains(name) && !but.iter().any(|other| other.contains(name)) {
            names.push(name.clone());
        }
    }
    names
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The turn ended with the model's answer.
    Completed,
    /// The person ended the turn.
    Cancelled,
    /// A limit ended the turn.
    Limit {
        /// Name of the limit, such as `max_iterations`.
        limit: String,
        /// Value of the limit.
        value: u64,
    },
    /// The model was cut short or refused; the stop reason tells.
    CutShort,
    /// The provider failed.
    Failed {
        /// What failed, why, and what to do.
        error: String,
        /// A word for programs.
        kind: String,
    },
    /// The host ended before the turn did.
    Interrupted,
}

impl TurnOutcome {
    /// A word for people and programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Limit { .. } => "limit",
            Self::CutShort => "cut_short",
            Self::Failed { .. } => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}
