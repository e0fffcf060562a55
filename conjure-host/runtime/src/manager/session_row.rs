//! What is saved of one session, as its actor changes it.

use std::sync::Arc;

use conjure_core::routing::{PolicyDecision, Rule};
use serde_json::{Value, json};

use super::spec::SettingsDigest;
use super::view::SessionPatch;
use super::{ManagerError, ManagerState};
use conjure_config::SessionSpec;
use conjure_store::{SavedSession as Row, StoreError, ThreadId};

/// How often a change is tried that others overtake.
const TRIES: usize = 5;

/// A session's row in the store.
#[derive(Clone)]
pub(super) struct SessionRow {
    manager: Arc<ManagerState>,
    id: String,
}

/// A change that was saved.
pub(super) struct SavedChange {
    pub(super) row: Row,
    /// What the session is opened with from now on.
    pub(super) settings_digest: SettingsDigest,
    /// Specification with its credentials, where the open session can take it over.
    pub(super) open_spec: Option<SessionSpec>,
}

impl SessionRow {
    pub(super) fn new(manager: Arc<ManagerState>, id: &str) -> Self {
        Self {
            manager,
            id: id.to_owned(),
        }
    }

    /// What is saved, and what the session is opened with now.
    ///
    /// # Errors
    /// The store's, and why it cannot be opened.
    pub(super) async fn read(&self) -> Result<(Row, SettingsDigest), ManagerError> {
        let row = self.manager.store.session(&self.id).await?;
        let (_, made) = self.manager.spec_and_digest(&row).await?;
        Ok((row, made))
    }

    /// Saves a change of settings, for a session that was opened with `open`.
    ///
    /// # Errors
    /// [`ManagerError::Invalid`] when the session could not be opened with it, and the store's, also
    /// where somebody else changed it since the one who asks has seen it.
    pub(super) async fn save(
        &self,
        patch: &SessionPatch,
        open: Option<SettingsDigest>,
    ) -> Result<SavedChange, ManagerError> {
        let mut tries = 0;
        let saved = loop {
            tries += 1;
            match self.try_save(patch, open).await {
                // Where somebody was to be the only one, the next try says so.
                Err(ManagerError::Store(StoreError::Changed { .. })) if tries < TRIES => {}
                done => break done?,
            }
        };
        self.manager.notify_saved(&saved.row);
        Ok(saved)
    }

    async fn try_save(
        &self,
        patch: &SessionPatch,
        open: Option<SettingsDigest>,
    ) -> Result<SavedChange, ManagerError> {
        let mut row = self.manager.store.session(&self.id).await?;
        let auth = self.manager.apply_patch(&mut row, patch).await?;
        let spec = self.manager.spec_with(&row, &auth)?;
        let made = SettingsDigest::of(&spec, &auth);
        let ready = match open.is_some_and(|open| open.is_compatible(&made)) {
            true => Some(self.resolve_spec(spec).await?),
            false => None,
        };
        let row = self.manager.store.update_session(row).await?;
        Ok(SavedChange {
            row,
            settings_digest: made,
            open_spec: ready,
        })
    }

    /// What an open session would take over, with its credentials. What it could not take over is
    /// found before it is saved.
    async fn resolve_spec(&self, spec: SessionSpec) -> Result<SessionSpec, ManagerError> {
        let shared = &self.manager.host.shared;
        let spec = shared.with_auths(spec, true).await?;
        let spec = spec.with_provider_base_url();
        match shared.provider(&spec) {
            Ok(_) => Ok(spec),
            Err(error) => Err(ManagerError::Invalid {
                field: None,
                message: error.to_string(),
            }),
        }
    }

    /// Saves a rule with the session, for the next time that it is opened.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn add_rule(&self, rule: &Rule) -> Result<Row, ManagerError> {
        let list = match rule.decision {
            PolicyDecision::Allow => "allow",
            PolicyDecision::Deny => "deny",
            PolicyDecision::Ask => "ask",
        };
        let add = |row: &mut Row| {
            let tools = row.tools.0.as_object_mut();
            let policy = tools.map(|tools| tools.entry("policy").or_insert_with(|| json!({})));
            let Some(policy) = policy.and_then(Value::as_object_mut) else {
                return;
            };
            let rules = policy.entry(list).or_insert_with(|| json!([]));
            let pattern = Value::from(rule.pattern.to_string());
            if let Some(rules) = rules.as_array_mut()
                && !rules.contains(&pattern)
            {
                rules.push(pattern);
            }
        };
        let row = self.change(add).await?;
        self.manager.notify_saved(&row);
        Ok(row)
    }

    /// Has the session go on with a thread from the next turn on.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn choose(&self, thread: &ThreadId) -> Result<Row, ManagerError> {
        let choose = |row: &mut Row| {
            row.chat_thread_id = Some(thread.to_string());
            row.latest_chat_entry_id = None;
        };
        self.change(choose).await?;
        self.manager.note_latest(&self.id, thread).await;
        let row = self.manager.store.session(&self.id).await?;
        self.manager.notify_saved(&row);
        Ok(row)
    }

    /// Has the session go on where it did before a thread was chosen, unless somebody chose another one
    /// since.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn restore_choice(
        &self,
        chosen: &ThreadId,
        before: &Row,
    ) -> Result<(), ManagerError> {
        let back = |row: &mut Row| {
            if row.chat_thread_id.as_deref() == Some(chosen.as_str()) {
                row.chat_thread_id.clone_from(&before.chat_thread_id);
                row.latest_chat_entry_id
                    .clone_from(&before.latest_chat_entry_id);
            }
        };
        let row = self.change(back).await?;
        self.manager.notify_saved(&row);
        Ok(())
    }

    /// Changes what is saved; once more where somebody else changed it meanwhile.
    async fn change(&self, change: impl Fn(&mut Row)) -> Result<Row, StoreError> {
        let mut tries = 0;
        loop {
            let mut row = self.manager.store.session(&self.id).await?;
            change(&mut row);
            tries += 1;
            match self.manager.store.update_session(row).await {
                Err(StoreError::Changed { .. }) if tries < TRIES => {}
                done => return done,
            }
        }
    }
}
