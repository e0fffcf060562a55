//! What is known of each session: its containers, its uploads, and the files that it may fetch.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::delegated::NamedSkill;

/// The most files that a session remembers; of more the oldest are forgotten.
const MAX_FILES: usize = 2000;

/// The open sessions.
#[derive(Debug, Default)]
pub(crate) struct AnthropicSessions(Mutex<BTreeMap<String, AnthropicSession>>);

/// A session.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnthropicSession {
    /// The skills, each with what its tool is called, once that was wanted.
    pub(crate) skills: Option<Vec<NamedSkill>>,
    /// State that outlives the session.
    pub(crate) record: SessionRecord,
    /// Files that were uploaded, by what their content is known by.
    pub(crate) uploaded: BTreeMap<String, String>,
}

/// What is logged with the thread, and handed back when it goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionRecord {
    /// The container that the conversation runs in.
    pub(crate) container: Option<String>,
    /// Ids of files that it gets, of which nobody noted which call brought them.
    pub(crate) uploads: Vec<String>,
    /// Files that it gets, in their order, each with the call that brought it.
    pub(crate) brought: Vec<ContainerFile>,
    /// Ids of the files that it made.
    pub(crate) files: Vec<String>,
    /// The containers of delegated work, by skill.
    pub(crate) containers: BTreeMap<String, String>,
}

/// A file that a call brought into the container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerFile {
    /// The call.
    pub(crate) call: String,
    /// The file's id.
    pub(crate) file: String,
}

impl SessionRecord {
    /// Takes note of a file that a call brought. One that is there already stays where it is.
    pub(crate) fn note_upload(&mut self, call: &str, file: String) {
        let brought = self.brought.iter().map(|brought| &brought.file);
        if !self
            .uploads
            .iter()
            .chain(brought)
            .any(|known| *known == file)
        {
            let call = call.to_owned();
            self.brought.push(ContainerFile { call, file });
        }
    }

    /// What stands behind the results of calls: a file stays where it was brought, so that no
    /// later upload changes the beginning of a request.
    pub(crate) fn call_content(&self) -> BTreeMap<String, Vec<Value>> {
        let mut content: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let unknown = self.uploads.iter().map(|file| ("", file));
        let brought = self.brought.iter().map(|it| (it.call.as_str(), &it.file));
        for (call, file) in unknown.chain(brought) {
            let parts = content.entry(call.to_owned()).or_default();
            parts.push(json!({ "type": "container_upload", "file_id": file }));
        }
        content
    }

    /// Takes note of a file that was made. False when it is known.
    pub(crate) fn remember(&mut self, id: &str) -> bool {
        if self.files.iter().any(|known| known == id) {
            return false;
        }
        if self.files.len() >= MAX_FILES {
            self.files.remove(0);
        }
        self.files.push(id.to_owned());
        true
    }

    /// State for the host's log.
    pub(crate) fn state(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }
}

impl AnthropicSessions {
    pub(crate) fn open(&self, id: Option<&str>, state: Option<Value>) {
        let kept: SessionRecord = state
            .and_then(|state| serde_json::from_value(state).ok())
            .unwrap_or_default();
        let session = AnthropicSession {
            record: kept,
            ..AnthropicSession::default()
        };
        self.all()
            .insert(id.unwrap_or_default().to_owned(), session);
    }

    pub(crate) fn close(&self, id: Option<&str>) {
        self.all().remove(id.unwrap_or_default());
    }

    /// Looks at a session or changes it.
    pub(crate) fn with<T>(
        &self,
        id: Option<&str>,
        look: impl FnOnce(&mut AnthropicSession) -> T,
    ) -> Result<T> {
        let mut all = self.all();
        let session = all.get_mut(id.unwrap_or_default());
        let session = session.ok_or_else(|| Error::not_found("this session is not open"))?;
        Ok(look(session))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AnthropicSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
