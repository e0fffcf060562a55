//! Questions of plugins and servers that wait for a person, and the answers to them.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;

use super::remote::{RemoteError, RemoteErrorKind, RemoteRequest};
use super::{Manager, ManagerError, lock};
use crate::session::{AnswerRefusal, Questions};

pub use crate::session::{PendingQuestion, QuestionReply};

impl Manager {
    /// The questions of a session that wait for an answer, the oldest first.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
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

    /// Answers a question that waits, in whichever process. The first answer counts.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] when that question waits for nobody (any more),
    /// [`ManagerError::Invalid`] when the answer does not fit the form,
    /// [`ManagerError::Elsewhere`] when another process asks and does not take the answer, and the
    /// store's.
    #[boxed]
    pub async fn answer(
        &self,
        session: &str,
        question: &str,
        reply: QuestionReply,
    ) -> Result<(), ManagerError> {
        let session = self.id_of(session).await?;
        let remote = || remote_answer(&session, question, &reply);
        match self.at_owner(&session, remote).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => self.answer_here(&session, question, &reply),
            // It looked at the form, as would be done here.
            Err(ManagerError::Remote(RemoteError {
                kind: RemoteErrorKind::Invalid,
                message,
            })) => Err(ManagerError::Invalid {
                field: None,
                message,
            }),
            Err(error) => Err(error),
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

    /// Questions of the threads that a session has open.
    fn questions_of(&self, session: &str) -> Vec<Arc<Questions>> {
        let live = lock(&self.inner.active_threads);
        let own = live.values().filter(|live| live.owner == session);
        own.filter_map(|live| live.handle.questions().cloned())
            .collect()
    }
}

/// An answer as it goes to the process that asks.
fn remote_answer(session: &str, question: &str, reply: &QuestionReply) -> RemoteRequest {
    let (session, question) = (session.to_owned(), question.to_owned());
    match reply {
        QuestionReply::Accept(content) => RemoteRequest::FillIn {
            session,
            question,
            content: content.clone(),
        },
        QuestionReply::Decline | QuestionReply::Cancel => RemoteRequest::Dismiss {
            session,
            question,
            declined: *reply == QuestionReply::Decline,
        },
    }
}
