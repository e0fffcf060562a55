//! What an actor changes about its session: what is saved, the thread, and what calls may do.

use std::sync::Arc;

use conjure_core::chat::CallAnnounced;
use conjure_core::routing::{Pattern, PolicyDecision as Rules, Rule};
use conjure_core::turn::{ApprovalDecision, When};
use serde_json::{Value, json};

use super::ManagerError;
use super::actor::SavedSessionActor;
use super::approvals::{Approval, DecisionScope};
use super::spec::MadeOf;
use super::view::SessionPatch;
use conjure_config::SessionSpec;
use conjure_store::{SavedSession as Row, StoreError, ThreadId};

/// How often a change is tried that others overtake.
const TRIES: usize = 5;

impl SavedSessionActor {
    pub(super) async fn approvals(&self) -> Vec<Approval> {
        let Some(open) = self.open.as_ref().filter(|_| self.running.is_some()) else {
            return Vec::new();
        };
        let pending = open.opened.live.session.pending().await;
        pending
            .into_iter()
            .map(|pending| Approval {
                call: CallAnnounced {
                    id: pending.call.call_id,
                    name: pending.call.name,
                    arguments: pending.call.arguments,
                },
                reason: pending.reason,
                denied_in_ms: pending.denied_in_ms,
            })
            .collect()
    }

    pub(super) async fn decide(
        &mut self,
        call_id: &str,
        decision: ApprovalDecision,
        scope: DecisionScope,
    ) -> Result<(), ManagerError> {
        let asked = self.approvals().await;
        let asked = asked.into_iter().find(|asked| asked.call.id == call_id);
        let (Some(asked), Some(open)) = (asked, &self.open) else {
            return Err(ManagerError::NotFound {
                kind: "call that waits for a decision",
                id: call_id.to_owned(),
            });
        };
        let rules = match decision {
            ApprovalDecision::Allow => Rules::Allow,
            ApprovalDecision::Deny { .. } => Rules::Deny,
        };
        let session = Arc::clone(&open.opened.live.session);
        session.decide(call_id, decision).await;
        let pattern = match scope {
            DecisionScope::Once => return Ok(()),
            DecisionScope::Tool => {
                asked
                    .call
                    .name
                    .parse::<Pattern>()
                    .map_err(|error| ManagerError::Invalid {
                        message: error.to_string(),
                    })?
            }
            DecisionScope::Pattern { pattern } => pattern,
        };
        let rule = Rule {
            pattern,
            decision: rules,
        };
        self.save_rule(&rule).await?;
        session.add_rule(rule).await;
        Ok(())
    }

    /// Changes what is saved; once more where somebody else changed it meanwhile.
    async fn change_row(&self, change: impl Fn(&mut Row)) -> Result<Row, StoreError> {
        let mut tries = 0;
        loop {
            let mut row = self.inner.store.session(&self.id).await?;
            change(&mut row);
            tries += 1;
            match self.inner.store.update_session(row).await {
                Err(StoreError::Changed { .. }) if tries < TRIES => {}
                done => return done,
            }
        }
    }

    /// Saves a rule with the session, for the next time that it is opened.
    async fn save_rule(&mut self, rule: &Rule) -> Result<(), ManagerError> {
        let list = match rule.decision {
            Rules::Allow => "allow",
            Rules::Deny => "deny",
            Rules::Ask => "ask",
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
        let row = self.change_row(add).await?;
        if let Some(open) = &mut self.open
            && let Ok(spec) = super::spec::tools(&row.tools.0)
        {
            open.opened.made.has_policy(&spec.policy);
        }
        self.inner.tell_saved(&self.id);
        Ok(())
    }

    /// Saves a change. The row, what it is opened with, and that with its credentials where the open
    /// session can take it over.
    async fn save(
        &self,
        patch: &SessionPatch,
    ) -> Result<(Row, MadeOf, Option<SessionSpec>), ManagerError> {
        let mut row = self.inner.store.session(&self.id).await?;
        let auth = self.inner.patched(&mut row, patch).await?;
        let spec = self.inner.spec_with(&row, &auth)?;
        let made = MadeOf::of(&spec, &auth);
        let takes_over = self
            .open
            .as_ref()
            .is_some_and(|open| open.opened.made.is_same_place(&made));
        let credentials = match takes_over {
            true => Some(self.inner.host.shared.with_auths(spec, true).await?),
            false => None,
        };
        let row = self.inner.store.update_session(row).await?;
        Ok((row, made, credentials))
    }

    pub(super) async fn update(
        &mut self,
        patch: &SessionPatch,
        when: When,
    ) -> Result<Row, ManagerError> {
        let mut tries = 0;
        let (row, made, credentials) = loop {
            tries += 1;
            match self.save(patch).await {
                // Where somebody was to be the only one, the next try says so.
                Err(ManagerError::Store(StoreError::Changed { .. })) if tries < TRIES => {}
                done => break done?,
            }
        };
        self.inner.tell_saved(&self.id);
        if when == When::Now {
            self.open_anew();
        }
        let Some(open) = &mut self.open else {
            return Ok(row);
        };
        if let Some(ready) = credentials {
            if open.opened.made != made {
                let when = match self.running {
                    Some(_) => when,
                    None => When::Now,
                };
                open.opened.live.session.reconfigure(ready, when).await?;
                open.opened.made = made;
            }
        } else {
            open.is_outdated = true;
            if let Some(running) = self.running.as_mut().filter(|_| when == When::Now) {
                running.goes_on = true;
                open.opened.live.session.cancel(false).await;
            }
        }
        Ok(row)
    }

    pub(super) async fn choose(&mut self, thread: &ThreadId) -> Result<Row, ManagerError> {
        let choose = |row: &mut Row| {
            row.chat_thread_id = Some(thread.to_string());
            row.latest_chat_entry_id = None;
        };
        self.change_row(choose).await?;
        self.inner.note_latest(&self.id, thread).await;
        self.inner.tell_saved(&self.id);
        Ok(self.inner.store.session(&self.id).await?)
    }
}
