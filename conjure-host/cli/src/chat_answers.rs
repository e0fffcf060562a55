//! What the person at a face decided or answered, on its way to the session.

use conjure_core::chat::{CallAnnounced, Event};
use conjure_skill_sdk::protocol::Elicited;
use conjure_terminal::{Decision, PersonRequest, Update};
use serde_json::{Map, Value};

use super::chat_face::FacedChat;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::output::print_note;
use super::sessions::AnswerResult;
use super::{chat_commands, chat_rules, overwritten, person};

impl FacedChat<'_> {
    /// Tells the face of a call that waits for the person, with what a file has that it would write,
    /// where that is in the working directory and on this machine.
    pub(crate) async fn show_approval(&self, call: &CallAnnounced, reason: &str) {
        let overwritten = match &self.chat {
            ChatSession::Own(own) => overwritten::text(&own.session, &self.directory, call).await,
            ChatSession::Saved(saved) => {
                overwritten::text_in_saved_session(saved.sessions.manager(), &saved.id, call).await
            }
        };
        let (call, reason) = (call.clone(), reason.to_owned());
        self.send_update(Update::Approval {
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
                let is_first = decided.await?;
                // It may have been told again before it was decided.
                let is_of_others = self.withdraw(call_id).await;
                if !is_first {
                    print_note(if is_of_others {
                        // Its turn may have ended with its process.
                        "No answer is needed any more."
                    } else {
                        "Somebody else has decided about it."
                    });
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
            AnswerResult::Accepted => {}
            // The turn that asked is over.
            AnswerResult::Late if is_declined => {}
            AnswerResult::Late => print_note("No answer is needed any more."),
            AnswerResult::Invalid(error) => {
                chat_commands::report_error(&error);
                Box::pin(self.repeat_prompts(id)).await;
                return Ok(());
            }
        }
        self.withdraw(id).await;
        Ok(())
    }

    /// Tells again what a person answered whose answer was not taken, and what else of others waits. What
    /// a session of the chat's own asked has its answer whatever else fails.
    pub(crate) async fn repeat_prompts(&self, id: &str) {
        let is_saved = matches!(self.chat, ChatSession::Saved(_));
        match self.open.get(id).filter(|_| is_saved) {
            Some(Event::Approval { call, reason }) => self.show_approval(call, reason).await,
            Some(Event::Question(asked)) => self.send_update(Update::Question(asked.clone())).await,
            _ => {}
        }
        self.repeat_others_prompts().await;
    }
}

/// The id of the call or the question that a person answers.
pub(crate) fn answered_prompt_id(request: &PersonRequest) -> Option<&str> {
    match request {
        PersonRequest::Decide { call_id, .. } => Some(call_id),
        PersonRequest::Answer { id, .. } => Some(id),
        _ => None,
    }
}
