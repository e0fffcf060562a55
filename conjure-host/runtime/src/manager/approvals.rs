//! Calls that wait for a person, and what is decided about them.

use async_recursion::async_recursion as boxed;
use conjure_core::chat::CallAnnounced;
use conjure_core::routing::Pattern;
use conjure_core::turn::ApprovalDecision;
use serde::{Deserialize, Serialize};

use super::remote::RemoteRequest;
use super::requests::ActorRequest;
use super::{Manager, ManagerError};
use crate::session::PendingApproval;

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The call.
    pub call: CallAnnounced,
    /// The rule that asks.
    pub reason: String,
    /// After how many milliseconds it is denied.
    pub denied_in_ms: Option<u64>,
}

impl From<PendingApproval> for Approval {
    fn from(pending: PendingApproval) -> Self {
        Self {
            call: CallAnnounced {
                id: pending.call.call_id,
                name: pending.call.name,
                arguments: pending.call.arguments,
            },
            reason: pending.reason,
            denied_in_ms: pending.denied_in_ms,
        }
    }
}

/// How far a decision goes. What goes further than the call is saved with the session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DecisionScope {
    /// Only the call that is decided about.
    #[default]
    Once,
    /// Every call of this tool in the session, from now on.
    Tool,
    /// Every call in the session that fits a pattern, from now on.
    Pattern {
        /// As in a policy.
        pattern: Pattern,
    },
}

impl DecisionScope {
    /// The pattern of the rule that a decision about a call of this tool makes. Nothing where it
    /// holds for the call only.
    pub(super) fn pattern(self, tool: &str) -> Result<Option<Pattern>, ManagerError> {
        match self {
            Self::Once => Ok(None),
            Self::Tool => match tool.parse::<Pattern>() {
                Ok(pattern) => Ok(Some(pattern)),
                Err(error) => Err(ManagerError::Invalid {
                    field: None,
                    message: error.to_string(),
                }),
            },
            Self::Pattern { pattern } => Ok(Some(pattern)),
        }
    }
}

impl Manager {
    /// The calls of a session that wait for a decision.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn approvals(&self, session: &str) -> Result<Vec<Approval>, ManagerError> {
        let session = self.id_of(session).await?;
        let remote = || RemoteRequest::Approvals {
            session: session.clone(),
        };
        match self.at_owner(&session, remote).await? {
            Some(approvals) => Ok(approvals),
            None => Ok(self.approvals_here(&session).await),
        }
    }

    pub(super) async fn approvals_here(&self, session: &str) -> Vec<Approval> {
        let approvals = self.ask_running(session, ActorRequest::Approvals).await;
        approvals.unwrap_or_default()
    }

    /// Decides about a call that waits. The first decision counts.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] when that call waits for nobody (any more), and the store's.
    #[boxed]
    pub async fn decide(
        &self,
        session: &str,
        call_id: &str,
        decision: ApprovalDecision,
        scope: DecisionScope,
    ) -> Result<(), ManagerError> {
        let session = self.id_of(session).await?;
        let remote = || RemoteRequest::Decide {
            session: session.clone(),
            call_id: call_id.to_owned(),
            denied: match &decision {
                ApprovalDecision::Allow => None,
                ApprovalDecision::Deny { reason } => Some(reason.clone()),
            },
            scope: scope.clone(),
        };
        match self.at_owner(&session, remote).await? {
            Some(()) => Ok(()),
            None => self.decide_here(&session, call_id, decision, scope).await,
        }
    }

    pub(super) async fn decide_here(
        &self,
        session: &str,
        call_id: &str,
        decision: ApprovalDecision,
        scope: DecisionScope,
    ) -> Result<(), ManagerError> {
        let decided = self.ask_running(session, |done| ActorRequest::Decide {
            call_id: call_id.to_owned(),
            decision,
            scope,
            done,
        });
        decided.await.unwrap_or_else(|| {
            Err(ManagerError::NotFound {
                kind: "call that waits for a decision",
                id: call_id.to_owned(),
            })
        })
    }
}
