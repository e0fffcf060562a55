//! What an actor changes about its session while it may run: its settings, and what calls may do.

use conjure_core::chat::CallAnnounced;
use conjure_core::routing::{Pattern, PolicyDecision as Rules, Rule};
use conjure_core::turn::{ApprovalDecision, When};

use super::ManagerError;
use super::actor::SavedSessionActor;
use super::approvals::{Approval, DecisionScope};
use super::session_row::SavedChange;
use super::view::SessionPatch;
use conjure_store::SavedSession as Row;

impl SavedSessionActor {
    pub(super) fn approvals(&self) -> Vec<Approval> {
        let Some(open) = self.open.as_ref().filter(|_| self.running.is_some()) else {
            return Vec::new();
        };
        let pending = open.thread.pending();
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
        let asked = self.approvals();
        let asked = asked.into_iter().find(|asked| asked.call.id == call_id);
        let (Some(asked), Some(open)) = (asked, &mut self.open) else {
            return Err(ManagerError::NotFound {
                kind: "call that waits for a decision",
                id: call_id.to_owned(),
            });
        };
        let rules = match decision {
            ApprovalDecision::Allow => Rules::Allow,
            ApprovalDecision::Deny { .. } => Rules::Deny,
        };
        open.thread.decide(call_id.to_owned(), decision);
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
        let row = self.row.add_rule(&rule).await?;
        if let Some(open) = &mut self.open {
            if let Ok(spec) = super::spec::tools(&row.tools.0) {
                open.made.has_policy(&spec.policy);
            }
            open.thread.add_rule(rule);
        }
        Ok(())
    }

    pub(super) async fn update(
        &mut self,
        patch: &SessionPatch,
        when: When,
    ) -> Result<Row, ManagerError> {
        // Credentials may have to be asked for elsewhere.
        let (row, open) = (self.row.clone(), self.open.as_ref().map(|open| open.made));
        let saved = self.driving(Box::pin(row.save(patch, open))).await?;
        let SavedChange { row, made, ready } = saved;
        if when == When::Now {
            self.open_anew();
        }
        let Some(open) = &mut self.open else {
            return Ok(row);
        };
        if let Some(ready) = ready {
            if open.made != made {
                let when = match self.running {
                    Some(_) => when,
                    None => When::Now,
                };
                let spec = ready.with_base_url_at_its_provider();
                open.thread.reconfigure(spec, when)?;
                open.made = made;
            }
        } else {
            open.is_outdated = true;
            if let Some(running) = self.running.as_mut().filter(|_| when == When::Now) {
                running.goes_on = true;
                open.thread.cancel(false);
            }
        }
        Ok(row)
    }
}
