//! Questions of plugins and servers that wait for a person, and the answers to them.

use std::sync::Arc;

use conjure_core::chat::QuestionAsked;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Manager, ManagerError, lock};
use crate::session::{NotTaken, PendingQuestion, Questions, Reply};

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// What is asked.
    #[serde(flatten)]
    pub asked: QuestionAsked,
    /// After how many milliseconds it is cancelled.
    pub cancelled_in_ms: u64,
}

/// What a person answers.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionReply {
    /// The form, filled in; nothing where a page was to be visited.
    Accept(Map<String, Value>),
    /// They do not want to.
    Decline,
    /// They looked away.
    Cancel,
}

impl From<PendingQuestion> for Question {
    fn from(pending: PendingQuestion) -> Self {
        Self {
            asked: pending.asked,
            cancelled_in_ms: pending.cancelled_in_ms,
        }
    }
}

impl Manager {
    /// The questions of a session that wait for an answer, the oldest first.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    pub async fn questions(&self, session: &str) -> Result<Vec<Question>, ManagerError> {
        let session = self.id_of(session).await?;
        let questions = self.questions_of(&session);
        let pending = questions.iter().flat_map(|one| one.pending());
        Ok(pending.map(Question::from).collect())
    }

    /// Answers a question that waits. The first answer counts.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] when that question waits for nobody (any more),
    /// [`ManagerError::Invalid`] when the answer does not fit the form, and the store's.
    pub async fn answer(
        &self,
        session: &str,
        question: &str,
        reply: QuestionReply,
    ) -> Result<(), ManagerError> {
        let session = self.id_of(session).await?;
        let reply = match reply {
            QuestionReply::Accept(content) => Reply::Accept(content),
            QuestionReply::Decline => Reply::Decline,
            QuestionReply::Cancel => Reply::Cancel,
        };
        for questions in self.questions_of(&session) {
            match questions.answer(question, reply.clone()) {
                Ok(()) => return Ok(()),
                Err(NotTaken::Gone) => {}
                Err(NotTaken::Unfit(message)) => return Err(ManagerError::Invalid { message }),
            }
        }
        Err(ManagerError::NotFound {
            kind: "question that waits for an answer",
            id: question.to_owned(),
        })
    }

    /// Those of the threads that a session has open.
    fn questions_of(&self, session: &str) -> Vec<Arc<Questions>> {
        let live = lock(&self.inner.live);
        let own = live.values().filter(|live| live.owner == session);
        own.filter_map(|live| live.session.questions().cloned())
            .collect()
    }
}
