//! Questions of plugins and servers that wait for a person, and the answers to them.

use std::sync::Arc;

use super::remote::RemoteRequest;
use super::{Manager, ManagerError, lock};
use crate::session::{AnswerRefusal, Questions};

pub use crate::session::{PendingQuestion, QuestionReply};

impl Manager {
    /// The questions of a session that wait for an answer, the oldest first.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    pub async fn questions(&self, session: &str) -> Result<Vec<PendingQuestion>, ManagerError> {
        let session = self.id_of(session).await?;
        let remote = || RemoteRequest::Questions {
            session: session.clone(),
        };
        match self.at_owner(&session, remote).await? {
            Some(questions) => Ok(questions),
            None => Ok(self.questions_here(&session)),
        }
    }

    pub(super) fn questions_here(&self, session: &str) -> Vec<PendingQuestion> {
        let questions = self.questions_of(session);
        questions.iter().flat_map(|one| one.pending()).collect()
    }

    /// Answers a question that waits. The first answer counts.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] when that question waits for nobody (any more),
    /// [`ManagerError::Invalid`] when the answer does not fit the form,
    /// [`ManagerError::Elsewhere`] when it is a form that is filled in for another process, since
    /// what is filled in is written down nowhere, and the store's.
    pub async fn answer(
        &self,
        session: &str,
        question: &str,
        reply: QuestionReply,
    ) -> Result<(), ManagerError> {
        let session = self.id_of(session).await?;
        let declined = match &reply {
            QuestionReply::Accept(_) => {
                self.only_here(&session).await?;
                return self.answer_here(&session, question, &reply);
            }
            QuestionReply::Decline => true,
            QuestionReply::Cancel => false,
        };
        let remote = || RemoteRequest::Dismiss {
            session: session.clone(),
            question: question.to_owned(),
            declined,
        };
        match self.at_owner(&session, remote).await? {
            Some(()) => Ok(()),
            None => self.answer_here(&session, question, &reply),
        }
    }

    pub(super) fn answer_here(
        &self,
        session: &str,
        question: &str,
        reply: &QuestionReply,
    ) -> Result<(), ManagerError> {
        for questions in self.questions_of(session) {
            match questions.answer(question, reply.clone()) {
                Ok(()) => return Ok(()),
                Err(AnswerRefusal::Gone) => {}
                Err(AnswerRefusal::Unfit(message)) => {
                    return Err(ManagerError::Invalid {
                        field: None,
                        message,
                    });
                }
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
        own.filter_map(|live| live.handle.questions().cloned())
            .collect()
    }
}
