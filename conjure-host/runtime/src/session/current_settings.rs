//! The settings that an open thread runs with, and those that were asked for and do not hold yet.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use conjure_core::turn::{EffectiveFrom, TurnInput};

use super::derived::turn_settings;
use super::history::SettingsRecord;
use super::settings::SessionSettings;
use conjure_config::SessionSpec;
use conjure_providers::{ModelBook, Provider};

/// The settings of now, and those that come.
pub(super) struct CurrentSettings {
    spec: SessionSpec,
    provider: Arc<dyn Provider>,
    /// What was asked for and is not used yet, by its number.
    revisions: BTreeMap<u64, SessionSpec>,
    /// The newest number.
    revision: u64,
}

impl CurrentSettings {
    pub(super) fn new(spec: SessionSpec, provider: Arc<dyn Provider>) -> Self {
        Self {
            spec,
            provider,
            revisions: BTreeMap::new(),
            revision: 0,
        }
    }

    pub(super) fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    pub(super) fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// A change on top of what holds and of what is still to come.
    pub(super) fn with_change(&self, change: &SessionSettings) -> SessionSpec {
        let newest = self.revisions.last_key_value().map(|(_, spec)| spec);
        change.applied_to(newest.unwrap_or(&self.spec))
    }

    /// Takes settings in that hold from a later moment on; the turn machine is told which.
    pub(super) fn revise(
        &mut self,
        spec: SessionSpec,
        models: &ModelBook,
        working_dir: &Path,
        when: EffectiveFrom,
    ) -> TurnInput {
        let entry = SettingsRecord::of(&spec, working_dir).entry();
        let mut settings = turn_settings(&spec, models);
        self.revision += 1;
        settings.revision = self.revision;
        self.revisions.insert(self.revision, spec);
        TurnInput::Settings {
            settings: Box::new(settings),
            entry: Box::new(entry),
            when,
        }
    }

    /// The settings of this number, which hold from here on. Those before are part of them, or were
    /// given up for them.
    pub(super) fn take_revision(&mut self, revision: u64) -> Option<SessionSpec> {
        let spec = self.revisions.remove(&revision)?;
        self.revisions = self.revisions.split_off(&revision);
        Some(spec)
    }

    pub(super) fn replace(&mut self, spec: SessionSpec, provider: Arc<dyn Provider>) {
        self.spec = spec;
        self.provider = provider;
    }
}
