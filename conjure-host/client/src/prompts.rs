//! What waits for a person in a session of a server: calls and questions, and the answers to them.

use async_recursion::async_recursion as boxed;
use conjure_core::turn::ApprovalDecision;
use conjure_skill_sdk::protocol::Elicited;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::{RemoteServer, ServerError, encode_segment};
use conjure_runtime::manager::{Approval, DecisionScope, PendingQuestion};

/// All of them, as a list of the API is.
#[derive(Deserialize)]
struct ListBody<T> {
    items: Vec<T>,
}

impl RemoteServer {
    /// The calls of a session that wait for a decision.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn approvals(&self, session: &str) -> Result<Vec<Approval>, ServerError> {
        let path = format!("sessions/{}/approvals", encode_segment(session));
        let listed = self.ask(Method::GET, &path, None).await?;
        Ok(self.read::<ListBody<Approval>>(&listed)?.items)
    }

    /// The questions of a session that wait for an answer, the oldest first.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn questions(&self, session: &str) -> Result<Vec<PendingQuestion>, ServerError> {
        let path = format!("sessions/{}/questions", encode_segment(session));
        let listed = self.ask(Method::GET, &path, None).await?;
        Ok(self.read::<ListBody<PendingQuestion>>(&listed)?.items)
    }

    /// Decides about a call that waits.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn decide(
        &self,
        session: &str,
        call: &str,
        decision: &ApprovalDecision,
        scope: &DecisionScope,
    ) -> Result<(), ServerError> {
        let body = match decision {
            ApprovalDecision::Allow => json!({ "scope": scope, "decision": "allow" }),
            ApprovalDecision::Deny { reason } => {
                json!({ "scope": scope, "decision": "deny", "reason": reason })
            }
        };
        let path = format!("sessions/{session}/approvals/{}", encode_segment(call));
        self.ask(Method::POST, &path, Some(body)).await.map(drop)
    }

    /// Answers a question that waits.
    ///
    /// # Errors
    /// [`ServerError`]; `Refused` with 422 where the answer does not fit the form, and with 404 where
    /// the question waits no more.
    #[boxed]
    pub async fn answer(
        &self,
        session: &str,
        question: &str,
        answer: &Elicited,
    ) -> Result<(), ServerError> {
        let body = match answer.action.as_str() {
            "accept" => json!({ "action": "accept", "content": answer.content }),
            action => json!({ "action": action }),
        };
        let path = format!("sessions/{session}/questions/{}", encode_segment(question));
        self.ask(Method::POST, &path, Some(body)).await.map(drop)
    }
}
