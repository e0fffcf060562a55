//! State of the conversation that a face shows: what was said before, who answers, and what it has used.

use conjure_runtime::session::SessionSettings;
use conjure_terminal::{ConversationStatus, Update};

use super::chat_face::FacedChat;
use super::chat_session::ChatSession;
use super::error::CliError;
use super::past_turns;

impl FacedChat<'_> {
    /// What was said before, and what it came to.
    pub(crate) async fn show_history(&mut self) -> Result<(), CliError> {
        let thread = self.chat.thread().await?;
        if let ChatSession::Saved(saved) = &mut self.chat {
            let store = saved.sessions.manager().store();
            saved.shown_turn = past_turns::newest_ended_turn(store, &thread).await?;
            saved.shown_thread = Some(thread.clone());
        }
        if std::mem::take(&mut self.is_shown) {
            self.was_used = true;
        } else {
            let said = past_turns::recent_items(self.chat.store(), &thread, self.turn.id()).await?;
            if !said.is_empty() {
                self.was_used = true;
                self.send_update(Update::History(said)).await;
            }
        }
        let (provider, model) = self.answerer().await?;
        self.set_model(&provider, &model);
        if self.was_used {
            self.update_totals().await?;
        }
        self.send_update(Update::Status(self.status.clone())).await;
        Ok(())
    }

    /// What the conversation came to so far.
    pub(crate) async fn update_totals(&mut self) -> Result<(), CliError> {
        let cost = self.chat.cost().await?;
        self.status.tokens = cost.cost.usage.total();
        self.status.usd = cost.cost.usd;
        self.measure().await;
        Ok(())
    }

    /// The provider and the model that answer.
    async fn answerer(&self) -> Result<(String, String), CliError> {
        let (provider, model) = match &self.chat {
            ChatSession::Own(own) => (own.spec.provider.clone(), own.spec.model.clone()),
            ChatSession::Saved(saved) => {
                let view = saved.sessions.manager().get(&saved.id).await?;
                (Some(view.auth.provider), Some(view.model))
            }
        };
        Ok((provider.unwrap_or_default(), model.unwrap_or_default()))
    }

    /// Puts the model that answers, and its window, into the status.
    pub(crate) fn set_model(&mut self, provider: &str, model: &str) {
        self.status.model = match (provider, model) {
            ("", model) => model.to_owned(),
            (provider, "") => provider.to_owned(),
            (provider, model) => format!("{provider}/{model}"),
        };
        self.status.window = self.chat.window(provider, model);
    }

    /// Measures how much the next request would have.
    pub(crate) async fn measure(&mut self) {
        let report = match &self.chat {
            ChatSession::Own(own) => own.session.check(SessionSettings::default()).await.ok(),
            ChatSession::Saved(saved) => {
                let manager = saved.sessions.manager();
                manager.measure(&saved.id).await.ok()
            }
        };
        if let Some(report) = report {
            self.status.context = report.tokens;
        }
    }

    /// Shows the thread that the chat has gone to.
    pub(crate) async fn show_current_thread(&mut self) -> Result<(), CliError> {
        self.withdraw_others().await;
        self.status = ConversationStatus {
            directory: self.status.directory.clone(),
            ..ConversationStatus::default()
        };
        self.show_history().await
    }

    /// The status after something may have changed.
    pub(crate) async fn status_now(&mut self) -> Result<(), CliError> {
        let (provider, model) = self.answerer().await?;
        self.set_model(&provider, &model);
        if self.was_used {
            self.measure().await;
        }
        self.send_update(Update::Status(self.status.clone())).await;
        Ok(())
    }
}
