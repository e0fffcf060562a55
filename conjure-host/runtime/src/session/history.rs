//! What a thread's log says of its session's settings: with which it began, and what changed.

use std::path::{Path, PathBuf};

use conjure_core::chat::{Message, Part, Role};
use conjure_core::context::changed_working_dir;
use conjure_core::log::{Entry, EntryBody};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::recorder::Recorder;
use conjure_config::SessionSpec;

/// The settings that a conversation depends on, as the log keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SettingsRecord {
    provider: String,
    model: String,
    working_dir: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    persona: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    memory: Map<String, Value>,
}

impl SettingsRecord {
    pub(super) fn of(spec: &SessionSpec, working_dir: &Path) -> Self {
        Self {
            provider: spec.provider.clone().unwrap_or_default(),
            model: spec.model.clone().unwrap_or_default(),
            working_dir: working_dir.display().to_string(),
            persona: spec.persona.clone(),
            memory: spec.memory.clone(),
        }
    }

    pub(super) fn entry(&self) -> EntryBody {
        EntryBody::SettingsChanged {
            summary: format!("{} / {}", self.provider, self.model),
            settings: serde_json::to_value(self).unwrap_or_default(),
        }
    }

    /// The newest one of a thread.
    fn last(entries: &[Entry]) -> Option<Self> {
        entries.iter().rev().find_map(|entry| match &entry.body {
            EntryBody::SettingsChanged { settings, .. } => {
                serde_json::from_value(settings.clone()).ok()
            }
            _ => None,
        })
    }
}

/// The working directory that an entry tells, without links.
pub(crate) fn recorded_working_dir(entry: &Entry) -> Option<PathBuf> {
    let told = SettingsRecord::last(std::slice::from_ref(entry))?;
    Some(told.working_dir.into())
}

/// Says in the log what the settings are, where they are not those that it says already. A working
/// directory that changed is told to the model too.
pub(super) fn record_settings(recorder: &mut Recorder, spec: &SessionSpec, working_dir: &Path) {
    let now = SettingsRecord::of(spec, working_dir);
    let before = SettingsRecord::last(recorder.entries());
    if before.as_ref() == Some(&now) {
        return;
    }
    recorder.entry(now.entry());
    let moved = before.filter(|before| before.working_dir != now.working_dir);
    if let Some(before) = moved {
        let text = changed_working_dir(&now.working_dir, &before.working_dir);
        recorder.entry(EntryBody::Message {
            message: Message::new(Role::System, vec![Part::text(text)]),
        });
    }
}
