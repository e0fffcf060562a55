//! What the person at a face decided or answered, on its way to the session.

use conjure_core::routing::{Pattern, PolicyDecision, Rule};
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::DecisionScope;
use conjure_skill_sdk::protocol::Elicited;
use conjure_terminal::{Decision, Update};
use serde_json::{Map, Value};

use super::chat_face::FacedChat;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::output::{DIM, RESET, aside, clean};
use super::sessions::AnswerResult;
use super::{chat_commands, chat_rules, person};

impl FacedChat<'_> {
    /// Lets a call run or not, as the person decided.
    pub(crate) async fn decide(
        &mut self,
        call_id: &str,
        decision: Decision,
    ) -> Result<(), CliError> {
        let (pattern, always, decision) = match decision {
            Decision::Once => (None, false, ApprovalDecision::Allow),
            Decision::Session(pattern) => (Some(pattern), false, ApprovalDecision::Allow),
            Decision::Always(pattern) => (Some(pattern), true, ApprovalDecision::Allow),
            Decision::No(reason) => (None, false, ApprovalDecision::Deny { reason }),
        };
        // What is no pattern is offered for no rule; nothing wider takes its place.
        let pattern: Option<Pattern> = pattern.and_then(|text| text.parse().ok());
        match &self.chat {
            ChatSession::Own(own) => {
                if let Some(pattern) = pattern.clone() {
                    let rule = Rule {
                        pattern,
                        decision: PolicyDecision::Allow,
                    };
                    own.session.add_rule(rule).await;
                }
                own.session.decide(call_id, decision).await;
            }
            ChatSession::Saved(saved) => {
                let scope = match pattern.clone() {
                    Some(pattern) => DecisionScope::Pattern { pattern },
                    None => DecisionScope::Once,
                };
                let decided = saved.sessions.decide(&saved.id, call_id, decision, scope);
                if !decided.await? {
                    aside("Somebody else has decided about it.");
                }
            }
        }
        match pattern {
            Some(pattern) if always => self.write_rule(&pattern),
            _ => Ok(()),
        }
    }

    /// Writes a rule where this chat's rules are, and shows it.
    fn write_rule(&self, pattern: &Pattern) -> Result<(), CliError> {
        let place = match &self.chat {
            ChatSession::Own(_) => {
                let file = chat_rules::add(self.global, &self.directory, pattern)?;
                format!("{}, for {}", file.display(), self.directory.display())
            }
            // What holds in a saved session is kept with it.
            ChatSession::Saved(saved) => format!("the session {}", saved.name),
        };
        aside(format_args!(
            "{DIM}Written to {}: allow = [\"{}\"]{RESET}",
            clean(&place),
            clean(&pattern.to_string())
        ));
        Ok(())
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
