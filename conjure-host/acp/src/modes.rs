//! The modes of a session: how much runs without being asked about.
//!
//! A mode is a way of answering for the person, and belongs to the connection: nothing of it is
//! saved. The policy of the session holds in every mode; no mode lets run what it denies.

use agent_client_protocol::v1::schema::{SessionMode, SessionModeState};
use conjure_config::PolicySpec;
use conjure_core::routing::EffectLevel;
use conjure_runtime::session::ToolPreview;

/// How much runs without being asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// What the policy asks about is asked.
    #[default]
    Ask,
    /// Changes of files in the working directory run; the rest is asked.
    AcceptEdits,
    /// Nothing runs that does more than read.
    ReadOnly,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Ask, Self::AcceptEdits, Self::ReadOnly];

    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
            Self::ReadOnly => "read-only",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ask => "Ask",
            Self::AcceptEdits => "Accept edits",
            Self::ReadOnly => "Read only",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Ask => "Asks before what the session's rules ask about",
            Self::AcceptEdits => {
                "Changes files in the working directory without asking, and asks about the rest"
            }
            Self::ReadOnly => "Runs nothing that does more than read",
        }
    }

    pub(crate) fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// All modes, this one being current.
    pub(crate) fn state(self) -> SessionModeState {
        let modes = Self::ALL.map(|mode| {
            SessionMode::new(mode.id(), mode.name()).description(mode.description().to_owned())
        });
        SessionModeState::new(self.id(), modes.to_vec())
    }
}

/// Rules that deny each of these tools that does more than read.
pub(crate) fn read_only_policy(tools: &ToolPreview) -> PolicySpec {
    let more = tools
        .routes()
        .filter(|route| route.definition.effects != EffectLevel::Read);
    PolicySpec {
        deny: more
            .filter_map(|route| route.name.as_str().parse().ok())
            .collect(),
        ..PolicySpec::default()
    }
}
