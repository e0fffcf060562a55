//! A session, as its clients hold it.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{EventId, Message};
use conjure_core::cost::ThreadCost;
use conjure_core::log::Entry;
use conjure_core::routing::{RoutingTable, Rule};
use conjure_core::switch::SwitchReport;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::actor::Actor;
use super::approvals::{ApprovalMode, PendingApproval};
use super::compaction::{CompactError, UnfoldError};
use super::error::{ChatError, SessionError};
use super::host_state::HostState;
use super::hub::Subscription;
use super::mailbox::{MAILBOX, SessionCommand};
use super::opening;
use super::output_form::OutputForm;
use super::settings::SessionSettings;
use super::thread_handle::ThreadHandle;
use super::tool_preview::ToolPreview;
use super::turn_summary::TurnSummary;
use crate::artifacts::{Artifact, FileError};
use crate::backend::BackendStatus;
use conjure_config::SessionSpec;
use conjure_store::ThreadId;

/// A conversation with a model that has the tools of several backends.
///
/// A run belongs to no client: dropping what follows it ends nothing. Dropping the session ends
/// it, with everything that it started.
pub struct Session {
    open: ThreadHandle,
    mailbox: mpsc::Sender<Box<SessionCommand>>,
    ended: CancellationToken,
    /// What has to live as long as the session, such as a host that nobody else holds.
    keep_alive: Option<Box<dyn Any + Send + Sync>>,
}

impl Session {
    pub(crate) async fn open(
        shared: Arc<HostState>,
        spec: SessionSpec,
        thread: Option<ThreadId>,
    ) -> Result<Self, SessionError> {
        let (thread, open) = opening::open(shared, spec, thread, None).await?;
        let (mailbox, commands) = mpsc::channel(MAILBOX);
        let ended = CancellationToken::new();
        Actor::start(thread, commands, ended.clone().drop_guard());
        Ok(Self {
            open,
            mailbox,
            ended,
            keep_alive: None,
        })
    }

    /// Keeps this, such as its host, for as long as the session lives.
    pub(crate) fn keep_alive(&mut self, what: Box<dyn Any + Send + Sync>) {
        self.keep_alive = Some(what);
    }

    /// The thread that it writes.
    pub fn thread(&self) -> &ThreadId {
        self.open.thread()
    }

    /// Says something and waits for the answer. While a turn runs, it waits for its end first.
    ///
    /// # Errors
    /// [`ChatError`]; the history is kept.
    pub async fn chat(&self, text: impl Into<String>) -> Result<TurnSummary, ChatError> {
        self.say(Message::user(text)).await
    }

    /// [`Session::chat`] with a message of any parts.
    ///
    /// # Errors
    /// As [`Session::chat`].
    #[boxed]
    pub async fn say(&self, message: Message) -> Result<TurnSummary, ChatError> {
        let turn_id = uuid::Uuid::now_v7().to_string();
        self.begin(turn_id, Some(message)).await.await
    }

    /// Begins a turn of this id, in which this is said, or nothing new. What comes back is its
    /// answer; whatever is asked of the session from here on comes behind it.
    pub(crate) async fn begin(
        &self,
        turn_id: String,
        message: Option<Message>,
    ) -> impl Future<Output = Result<TurnSummary, ChatError>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let command = SessionCommand::Begin {
            turn_id,
            message,
            done,
        };
        self.send_command(command).await;
        async {
            let answer = answer.await;
            answer.unwrap_or(Err(ChatError::Ended { reason: None }))
        }
    }

    /// Lets the model go on from where the thread ends, with nothing new said, as after a turn
    /// that was cancelled. Waits as [`Session::chat`] does.
    ///
    /// # Errors
    /// As [`Session::chat`].
    #[boxed]
    pub async fn continue_thread(&self) -> Result<TurnSummary, ChatError> {
        let turn_id = uuid::Uuid::now_v7().to_string();
        self.begin(turn_id, None).await.await
    }

    /// Follows the thread's events: behind `after`, or from its beginning.
    pub fn events(&self, after: Option<EventId>) -> Subscription {
        self.open.events(after)
    }

    /// Follows the thread's events since this session was opened, behind those that end a turn whose
    /// host was gone.
    pub fn events_since_opened(&self) -> Subscription {
        self.open.events_since_opened()
    }

    /// Follows the thread's events from now on.
    pub fn events_from_now(&self) -> Subscription {
        self.open.events_from_now()
    }

    /// Ends the running turn. What came so far is kept.
    #[boxed]
    pub async fn cancel(&self, drop_queued: bool) {
        self.send_command(SessionCommand::Cancel { drop_queued })
            .await;
    }

    /// Decides about a call that waits.
    pub async fn decide(&self, call_id: impl Into<String>, decision: ApprovalDecision) {
        self.send_command(SessionCommand::Decide {
            call_id: call_id.into(),
            decision,
        })
        .await;
    }

    /// Says whether somebody is there to decide.
    #[boxed]
    pub async fn attend(&self, mode: ApprovalMode) {
        self.send_command(SessionCommand::Attend(mode)).await;
    }

    /// Has each answer from the next turn on be one JSON value that fits a schema, or be what the
    /// model likes. Where an answer does not fit, the model is asked again, twice at most; then the
    /// turn fails.
    #[boxed]
    pub async fn answer_in_form(&self, form: Option<OutputForm>) {
        self.send_command(SessionCommand::Form(form.map(Arc::new)))
            .await;
    }

    /// Adds a rule to the session's policy.
    #[boxed]
    pub async fn add_rule(&self, rule: Rule) {
        self.send_command(SessionCommand::Allow(rule)).await;
    }

    /// The calls that wait for a decision.
    #[boxed]
    pub async fn pending(&self) -> Vec<PendingApproval> {
        self.ask(SessionCommand::Pending).await.unwrap_or_default()
    }

    /// Changes settings, now or from the next turn on.
    ///
    /// # Errors
    /// [`SessionError::Provider`] when the provider is not to be had; nothing changes then.
    #[boxed]
    pub async fn change(
        &self,
        settings: SessionSettings,
        when: EffectiveFrom,
    ) -> Result<(), SessionError> {
        self.ask(|done| SessionCommand::Change {
            settings,
            when,
            done,
        })
        .await
        .ok_or_else(session_ended)?
    }

    /// What changing settings would change about the next request: parts left out or told
    /// otherwise, ids renamed, tools that would not be offered, tokens, and whether what the
    /// prompt cache holds would be lost. Sends nothing and needs no key.
    ///
    /// # Errors
    /// [`SessionError::Provider`] when nobody knows the provider.
    #[boxed]
    pub async fn check(&self, settings: SessionSettings) -> Result<SwitchReport, SessionError> {
        self.ask(|done| SessionCommand::Check { settings, done })
            .await
            .ok_or_else(session_ended)?
    }

    /// The conversation, as messages.
    #[boxed]
    pub async fn messages(&self) -> Vec<Message> {
        self.ask(SessionCommand::Messages).await.unwrap_or_default()
    }

    /// The entries of the thread: all that was said and done, also where a summary stands for it.
    #[boxed]
    pub async fn entries(&self) -> Vec<Entry> {
        self.ask(SessionCommand::Entries).await.unwrap_or_default()
    }

    /// What the thread costs so far, and why.
    #[boxed]
    pub async fn cost(&self) -> ThreadCost {
        self.ask(SessionCommand::Cost).await.unwrap_or_default()
    }

    /// Puts a summary in place of the older part of the conversation, as far as the model reads it,
    /// while no turn runs. Gives back the compaction's entry, and how many tokens of the
    /// conversation the model reads now, about. What is said meanwhile waits for it; a cancel ends
    /// it.
    ///
    /// # Errors
    /// [`CompactError`] says why nothing was summarised.
    #[boxed]
    pub async fn compact(&self) -> Result<(u64, u64), CompactError> {
        self.ask(SessionCommand::Compact)
            .await
            .unwrap_or(Err(CompactError::Ended))
    }

    /// Takes a compaction back, the one that stands or that of an entry: from the next request on
    /// the model reads again what it hid. Gives back the compaction's entry, and how many tokens
    /// of the conversation that makes, about. It holds until somebody asks for another compaction,
    /// or the provider refuses the conversation as too long.
    ///
    /// # Errors
    /// [`UnfoldError`] says what stands in the way.
    #[boxed]
    pub async fn unfold(&self, fold: Option<u64>) -> Result<(u64, u64), UnfoldError> {
        self.ask(|done| SessionCommand::Unfold { fold, done })
            .await
            .unwrap_or(Err(UnfoldError::Ended))
    }

    /// How the backends are.
    #[boxed]
    pub async fn backends(&self) -> Vec<BackendStatus> {
        self.ask(SessionCommand::Status).await.unwrap_or_default()
    }

    /// Every file that a call made, with the backend that made it.
    pub fn created_files(&self) -> Vec<Artifact> {
        self.open.created_files()
    }

    /// Where a file is on this machine; a remote one is fetched first, once.
    ///
    /// # Errors
    /// [`FileError`], but [`FileError::Refused`].
    #[boxed]
    pub async fn resolve(&self, file: &str) -> Result<PathBuf, FileError> {
        self.open.resolve(file).await
    }

    /// The routing table that the next request would use.
    pub fn table(&self) -> Arc<RoutingTable> {
        self.open.table()
    }

    /// The tools that the next request would have, those that run at the provider among them, and
    /// what the rules say of each. None once the session has ended.
    pub fn tool_preview(&self) -> impl Future<Output = Option<ToolPreview>> + Send + use<> {
        let mailbox = self.mailbox.clone();
        async move {
            let (done, answer) = oneshot::channel();
            let asked = Box::new(SessionCommand::ToolPreview(done));
            mailbox.send(asked).await.ok()?;
            answer.await.ok()
        }
    }

    /// Ends the session and everything that it started, and waits for that.
    pub async fn close(self) {
        self.end().await;
    }

    /// [`Session::close`] for whoever shares it. What is asked of it afterwards is told that it
    /// ended.
    #[boxed]
    pub async fn end(&self) {
        self.send_command(SessionCommand::End).await;
        self.ended.cancelled().await;
    }

    /// A session that ended is told nothing.
    async fn send_command(&self, command: SessionCommand) {
        let _ = self.mailbox.send(Box::new(command)).await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> SessionCommand,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.mailbox.send(Box::new(command(done))).await.ok()?;
        answer.await.ok()
    }
}

fn session_ended() -> SessionError {
    SessionError::Provider {
        message: "the session ended".to_owned(),
    }
}
