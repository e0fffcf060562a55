//! A plugin that a session has in another version than before, as the log keeps it.
//!
//! Data only: the words are made where it is shown.

use serde::{Deserialize, Serialize};

/// A plugin in another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginChange {
    /// Name of the plugin.
    pub plugin: String,
    /// The version before.
    pub from: String,
    /// The version from here on; the same where it was built, or only loaded, again.
    pub to: String,
    /// What becomes of the state that the plugin held for this session.
    pub state: StateHandover,
}

/// What becomes of a plugin's state when its version changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateHandover {
    /// The version before was never called, so it held nothing.
    None,
    /// The new version takes it over at its first call.
    Carried,
    /// One of the two versions cannot hand it over.
    Lost,
}

/// What has become of a plugin's state, which nobody knows before the first call of another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMove {
    /// The plugin.
    pub plugin: String,
    /// The version that held the state.
    pub from: String,
    /// The version that was to take it over; the same where it was built again or set up anew.
    pub to: String,
    /// Outcome of the move.
    pub fate: StateFate,
}

/// Outcome of moving a plugin's state to another version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StateFate {
    /// The new version has it.
    Carried,
    /// The plugin was set up anew in the same build, and has the state that it had.
    Kept,
    /// The new version could not take it over, so the version before goes on.
    Refused {
        /// What the new version said.
        reason: String,
    },
    /// The version before is in quarantine, so the new one begins without it.
    Lost {
        /// Why it is in quarantine.
        reason: String,
    },
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}

/// Relation of a version to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionStep {
    /// The version is newer.
    Upgrade,
    /// The version is older.
    Downgrade,
    /// The version is the same, of another build.
    Rebuild,
}

impl VersionStep {
    /// The step from one version to another. What is no version by semver counts as an upgrade, for
    /// nobody can tell.
    #[must_use]
    pub fn between(from: &str, to: &str) -> Self {
        let version = |text: &str| semver::Version::parse(text).ok();
        match (version(from), version(to)) {
            _ if from == to => Self::Rebuild,
            (Some(from), Some(to)) if to < from => Self::Downgrade,
            _ => Self::Upgrade,
        }
    }
}

impl PluginChange {
    /// Whether the plugin was upgraded.
    #[must_use]
    pub fn step(&self) -> VersionStep {
        VersionStep::between(&self.from, &self.to)
    }

    /// Two changes of one plugin as one. State that was lost on the way is lost.
    #[must_use]
    pub(super) fn followed_by(&self, next: &Self) -> Self {
        let state = match (self.state, next.state) {
            (StateHandover::Lost, _) | (_, StateHandover::Lost) => StateHandover::Lost,
            (StateHandover::Carried, _) | (_, StateHandover::Carried) => StateHandover::Carried,
            (StateHandover::None, StateHandover::None) => StateHandover::None,
        };
        Self {
            to: next.to.clone(),
            state,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(from: &str, to: &str, state: StateHandover) -> PluginChange {
        PluginChange {
            plugin: "p".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            state,
        }
    }

    #[test]
    fn a_step_is_up_down_or_a_rebuild() {
        let step = |from, to| change(from, to, StateHandover::None).step();
        assert_eq!(step("0.9.0", "0.10.0"), VersionStep::Upgrade);
        assert_eq!(step("0.10.0", "0.9.0"), VersionStep::Downgrade);
        assert_eq!(step("1.0.0", "1.0.0-rc.1"), VersionStep::Downgrade);
        assert_eq!(step("1.0.0", "1.0.0"), VersionStep::Rebuild);
    }

    #[test]
    fn state_that_was_lost_on_the_way_is_lost() {
        let lost = change("1.0.0", "2.0.0", StateHandover::Lost);
        let carried = change("2.0.0", "3.0.0", StateHandover::Carried);
        let both = lost.followed_by(&carried);
        assert_eq!(both, change("1.0.0", "3.0.0", StateHandover::Lost));
    }
}
