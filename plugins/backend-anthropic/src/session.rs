//! What is known of each session: its containers, its uploads, and the files that it may fetch.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delegated::NamedSkill;

/// The most files that a session remembers; of more the oldest are forgotten.
const MOST_FILES: usize = 2000;

/// The open sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<String, Session>>);

/// A session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    /// The skills, each with what its tool is called, once that was wanted.
    pub(crate) skills: Option<Vec<NamedSkill>>,
    /// What outlives the session.
    pub(crate) kept: Kept,
    /// Files that were uploaded, by what their content is known by.
    pub(crate) uploaded: BTreeMap<String, String>,
}

/// What is logged with the thread, and handed back when it goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// The container that the conversation runs in.
    pub(crate) container: Option<String>,
    /// Ids of the files that it gets.
    pub(crate) uploads: Vec<String>,
    /// Ids of the files that it made.
    pub(crate) files: Vec<String>,
    /// The containers of delegated work, by skill.
    pub(crate) containers: BTreeMap<String, String>,
}

impl Kept {
    /// Takes note of a file that was made. False when it is known.
    pub(crate) fn made(&mut self, id: &str) -> bool {
        if self.files.iter().any(|known| known == id) {
            return false;
        }
        if self.files.len() >= MOST_FILES {
            self.files.remove(0);
        }
        self.files.push(id.to_owned());
        true
    }

    /// As the host logs it.
    pub(crate) fn state(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }
}

impl Sessions {
    pub(crate) fn open(&self, id: Option<&str>, state: Option<Value>) {
        let kept: Kept = state
            .and_then(|state| serde_json::from_value(state).ok())
            .unwrap_or_default();
        let session = Session {
            kept,
            ..Session::default()
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
        look: impl FnOnce(&mut Session) -> T,
    ) -> Result<T> {
        let mut all = self.all();
        let session = all.get_mut(id.unwrap_or_default());
        let session = session.ok_or_else(|| Error::not_found("this session is not open"))?;
        Ok(look(session))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
