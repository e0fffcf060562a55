//! What the person at a face decided or answered, on its way to the session.

use conjure_core::chat::CallAnnounced;
use conjure_skill_sdk::protocol::Elicited;
use conjure_terminal::{Decision, Update};
use serde_json::{Map, Value};

use super::chat_face::FacedChat;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::output::aside;
use super::sessions::AnswerResult;
use super::{chat_commands, chat_rules, overwritten, person};

impl FacedChat<'_> {
    /// Tells the face of a call that waits for the person, with what a file has that it would write,
    /// where that is in the working directory and on this machine.
    pub(crate) async fn tell_approval(&self, call: &CallAnnounced, reason: &str) {
        let overwritten = match &self.chat {
            ChatSession::Own(own) => overwritten::text(&own.session, &self.directory, call).await,
            ChatSession::Saved(_) => None,
        };
        let (call, reason) = (call.clone(), reason.to_owned());
        self.tell(Update::Approval {
            call,
            reason,
            overwritten,
        })
        .await;
    }

    /// Lets a call run or not, as the person decided.
    pub(crate) async fn decide(
        &mut self,
        call_id: &str,
        decision: Decision,
    ) -> Result<(), CliError> {
        match &self.chat {
            ChatSession::Own(own) => {
                let decided = chat_rules::decide(
                    self.global,
                    &self.directory,
                    &own.session,
                    call_id,
                    decision,
                );
                decided.await
            }
            ChatSession::Saved(saved) => {
                let session = (saved.id.as_str(), saved.name.as_str());
                let decided = chat_rules::decide_saved(&saved.sessions, session, call_id, decision);
                if !decided.await? {
                    aside("Somebody else has decided about it.");
                }
                Ok(())
            }
        }
    }

    /// Hands an answer to whoever asked.
    pub(crate) async fn answer(
        &mut self,
        id: &str,
        content: Option<Map<String, Value>>,
    ) -> Result<(), CliError> {
        let saved = match &self.chat {
            ChatSession::Own(_) => {
                person::answer_in_face(id, content);
                return Ok(());
            }
            ChatSession::Saved(saved) => saved,
        };
        let is_declined = content.is_none();
        let answer = Elicited {
            action: if content.is_some() {
                "accept"
            } else {
                "decline"
            }
            .to_owned(),
            content: content.unwrap_or_default().into_iter().collect(),
        };
        match saved.sessions.answer(&saved.id, id, &answer).await? {
            AnswerResult::Taken => {}
            // The turn that asked is over.
            AnswerResult::Late if is_declined => {}
            AnswerResult::Late => aside("No answer is needed any more."),
            AnswerResult::Unfit(error) => {
                chat_commands::told(&error);
                if let Some(asked) = self.questions.get(id).cloned() {
                    self.tell(Update::Question(asked)).await;
                }
            }
        }
        Ok(())
    }
}
