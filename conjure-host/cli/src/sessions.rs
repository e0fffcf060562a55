//! The saved sessions, for verbs that look at them or run them. What is only read comes from the
//! store. Where a server runs for the data directory and answers, what runs is asked of it.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_client::{EndedTurn, RemoteServer, ServerError};
use conjure_core::chat::EventId;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use conjure_runtime::manager::{
    Approval, ChatRetention, DecisionScope, Manager, ManagerError, ManagerOptions, PendingQuestion,
    QuestionReply, SessionPatch, SessionView, TurnRequest, TurnTerms,
};
use conjure_runtime::{Host, HostBuilder};
use conjure_skill_sdk::protocol::Elicited;
use conjure_store::{Run, RunState, Store, ThreadId};

use super::announced_server::{AnnouncedServer, EventFeed, ServerFeed};
use super::args::Global;
use super::attachments::AttachedMessage;
use super::error::CliError;
use super::person::Terminal;
use super::plugin_args::PluginArgs;

/// How long what runs may take to come to its end when the program does.
const ENDING: Duration = Duration::from_secs(5);
/// How long to wait before a server is asked again that could not be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How a command line keeps sessions: one that only looks runs nothing that was said elsewhere, and one
/// that says something runs what waits in its session.
fn options() -> ManagerOptions {
    ManagerOptions {
        adopts: false,
        ..ManagerOptions::default()
    }
}

/// The saved sessions of a data directory. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct SavedSessions {
    manager: Manager,
    announced: Option<AnnouncedServer>,
    /// The turns that a server began from here and that are waited for, each with its session.
    started_turns: Arc<Mutex<BTreeMap<String, String>>>,
}

/// A turn that was started, or waits in the queue.
pub(crate) struct StartedTurn {
    pub(crate) id: String,
    pub(crate) thread: ThreadId,
}

/// The result of sending an answer to a question.
pub(crate) enum AnswerResult {
    Accepted,
    /// The question did not wait any more.
    Late,
    /// The answer does not fit the form; the question still waits.
    Invalid(CliError),
}

impl SavedSessions {
    /// Opens the store, for verbs that run no tools.
    pub(crate) async fn open(global: &Global) -> Result<Self, CliError> {
        let store = global.store().await?;
        let host = Host::builder().data_dir(global.data_dir());
        Self::of(global, store, host, options()).await
    }

    /// Opens the store and makes the plugins ready.
    pub(crate) async fn with_plugins(
        global: &Global,
        plugins: &PluginArgs,
    ) -> Result<Self, CliError> {
        Self::with_store(global, global.store().await?, plugins).await
    }

    /// Like [`Self::with_plugins`], in a store that is open.
    pub(crate) async fn with_store(
        global: &Global,
        store: Store,
        plugins: &PluginArgs,
    ) -> Result<Self, CliError> {
        let host = plugins.named_host(global)?.watch(true);
        Self::of(global, store, host, options()).await
    }

    /// Like [`Self::with_store`], for a program that ends with its own turn: what other processes ask
    /// for meanwhile and has not begun by then is left to them.
    pub(crate) async fn for_one_turn(
        global: &Global,
        store: Store,
        plugins: &PluginArgs,
    ) -> Result<Self, CliError> {
        let options = ManagerOptions {
            begins_for_others: false,
            ..options()
        };
        let host = plugins.named_host(global)?.watch(true);
        Self::of(global, store, host, options).await
    }

    /// Sessions of a manager that runs here.
    pub(crate) fn with_manager(manager: Manager) -> Self {
        Self {
            manager,
            announced: None,
            started_turns: Arc::default(),
        }
    }

    async fn of(
        global: &Global,
        store: Store,
        builder: HostBuilder,
        options: ManagerOptions,
    ) -> Result<Self, CliError> {
        let announced = AnnouncedServer::find(&global.data_dir());
        let host = builder
            .auths(global.auths_over(&store))
            .log(store.clone())
            .asker(Terminal)
            .build()
            .await?;
        let manager = Manager::start(host, store, options).await?;
        Ok(Self {
            manager,
            announced,
            started_turns: Arc::default(),
        })
    }

    /// The server, where one runs and answers.
    async fn server(&self) -> Option<&RemoteServer> {
        match &self.announced {
            Some(announced) => announced.responsive_server().await,
            None => None,
        }
    }

    fn started_turns(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.started_turns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// For what is read, and what is saved where nothing runs.
    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Ends what runs here, and what writes it: that needs the runtime, which ends with the program.
    pub(crate) async fn close(self) {
        self.manager.shutdown(ENDING).await;
        self.manager.store().close().await;
    }

    pub(crate) async fn say(
        &self,
        session: &str,
        said: &AttachedMessage,
        terms: &TurnTerms,
    ) -> Result<StartedTurn, CliError> {
        match self.server().await {
            Some(server) => {
                let turn = server
                    .say(session, said.text(), &said.attachments(), terms)
                    .await?;
                self.started_turns()
                    .insert(turn.id.clone(), session.to_owned());
                Ok(StartedTurn {
                    id: turn.id,
                    thread: turn.thread,
                })
            }
            None => {
                let request = TurnRequest {
                    message: Some(said.message()),
                    terms: terms.clone(),
                    ..TurnRequest::default()
                };
                let turn = self.manager.begin(session, request).await?;
                Ok(StartedTurn {
                    id: turn.id,
                    thread: turn.thread,
                })
            }
        }
    }

    /// Waits until a turn is over: in the database, or at the server, which knows that first where
    /// the database takes nothing for a while. What was said from here, and waits when the server is
    /// gone, goes on here.
    pub(crate) async fn wait(&self, turn: &str) -> Result<Run, CliError> {
        let Some(announced) = &self.announced else {
            return Ok(self.manager.wait(turn).await?);
        };
        let run = tokio::select! {
            biased;
            run = self.manager.wait(turn) => run?,
            ended = self.wait_on_server(announced.server(), turn) => {
                let run = self.manager.run(turn).await?;
                match run.state.is_over() {
                    true => run,
                    false => Run {
                        state: ended.state,
                        error: ended.error,
                        ..run
                    },
                }
            }
        };
        self.started_turns().remove(turn);
        Ok(run)
    }

    /// The end of a turn, as the server has it; none where that does not say. Where the server is gone,
    /// the turn is taken over.
    async fn wait_on_server(&self, server: &RemoteServer, turn: &str) -> EndedTurn {
        loop {
            match server.ended_turn(turn).await {
                Ok(ended) => return ended,
                Err(ServerError::Unreachable { .. }) => {}
                Err(_) => return pending().await,
            }
            match self.take_over(turn).await {
                Ok(()) => return pending().await,
                Err(error) => tracing::debug!(turn, "it is not taken over yet: {error}"),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Has a turn that was said from here, and waits, begin here where the server that had it is gone.
    async fn take_over(&self, turn: &str) -> Result<(), CliError> {
        let session = self.started_turns().get(turn).cloned();
        let Some(session) = session else {
            return Ok(());
        };
        if self.manager.run(turn).await?.state != RunState::Queued {
            return Ok(());
        }
        // An id that is known begins nothing anew, and makes the turn one of this process.
        let request = TurnRequest {
            turn_id: Some(turn.to_owned()),
            ..TurnRequest::default()
        };
        self.manager.begin(&session, request).await?;
        Ok(())
    }

    /// Ends the turn that runs, and with `drop_queued` those that wait.
    pub(crate) async fn cancel(&self, session: &str, drop_queued: bool) -> Result<(), CliError> {
        match self.server().await {
            Some(server) => Ok(server.cancel(session, drop_queued).await?),
            None => Ok(self.manager.cancel(session, drop_queued).await?),
        }
    }

    /// Ends one turn.
    pub(crate) async fn cancel_turn(&self, session: &str, turn_id: &str) -> Result<(), CliError> {
        match self.server().await {
            Some(server) => Ok(server.cancel_turn(session, turn_id).await?),
            None => Ok(self.manager.cancel_turn(session, turn_id).await?),
        }
    }

    /// The calls that wait for a decision.
    pub(crate) async fn approvals(&self, session: &str) -> Result<Vec<Approval>, CliError> {
        Ok(match self.server().await {
            Some(server) => server.approvals(session).await?,
            None => self.manager.approvals(session).await?,
        })
    }

    /// The questions that wait for an answer.
    pub(crate) async fn questions(&self, session: &str) -> Result<Vec<PendingQuestion>, CliError> {
        Ok(match self.server().await {
            Some(server) => server.questions(session).await?,
            None => self.manager.questions(session).await?,
        })
    }

    /// Decides about a call; whether it still waited. Where another client was faster, its decision
    /// counts.
    pub(crate) async fn decide(
        &self,
        session: &str,
        call: &str,
        decision: ApprovalDecision,
        scope: DecisionScope,
    ) -> Result<bool, CliError> {
        match self.server().await {
            Some(server) => match server.decide(session, call, &decision, &scope).await {
                Ok(()) => Ok(true),
                Err(ServerError::Refused { status: 404, .. }) => Ok(false),
                Err(error) => Err(error.into()),
            },
            None => match self.manager.decide(session, call, decision, scope).await {
                Ok(()) => Ok(true),
                Err(error) if error.is_not_found() => Ok(false),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Answers a question of a plugin. Where another client was faster, its answer counts.
    pub(crate) async fn answer(
        &self,
        session: &str,
        question: &str,
        answer: &Elicited,
    ) -> Result<AnswerResult, CliError> {
        let Some(server) = self.server().await else {
            let reply = match answer.action.as_str() {
                "accept" => QuestionReply::Accept(answer.content.clone().into_iter().collect()),
                "decline" => QuestionReply::Decline,
                _ => QuestionReply::Cancel,
            };
            return match self.manager.answer(session, question, reply).await {
                Ok(()) => Ok(AnswerResult::Accepted),
                Err(error) if error.is_not_found() => Ok(AnswerResult::Late),
                Err(error @ ManagerError::Invalid { .. }) => {
                    Ok(AnswerResult::Invalid(error.into()))
                }
                Err(error) => Err(error.into()),
            };
        };
        match server.answer(session, question, answer).await {
            Ok(()) => Ok(AnswerResult::Accepted),
            Err(ServerError::Refused { status: 404, .. }) => Ok(AnswerResult::Late),
            Err(error @ ServerError::Refused { status: 422, .. }) => {
                Ok(AnswerResult::Invalid(error.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn update(
        &self,
        session: &str,
        patch: SessionPatch,
        when: EffectiveFrom,
    ) -> Result<SessionView, CliError> {
        let Some(server) = self.server().await else {
            return Ok(self.manager.update(session, patch, when).await?);
        };
        let id = self.manager.get(session).await?.id;
        server.update(&id, &patch, when).await?;
        Ok(self.manager.get(&id).await?)
    }

    pub(crate) async fn delete(&self, session: &str, chat: ChatRetention) -> Result<(), CliError> {
        match self.server().await {
            Some(server) => Ok(server.delete(session, chat).await?),
            None => Ok(self.manager.delete(session, chat).await?),
        }
    }

    /// Deletes what a thread shows. Another process that has it open is asked to leave it.
    pub(crate) async fn clear_thread(&self, thread: &ThreadId) -> Result<(), CliError> {
        if let Some(server) = self.server().await {
            return Ok(server.clear_thread(thread).await?);
        }
        self.manager.clear_thread(thread).await?;
        self.manager.store().collect_blobs().await?;
        Ok(())
    }

    /// Follows a thread's events behind `after`. Who is `attended` by a person is waited for where
    /// something asks.
    pub(crate) async fn events(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
        attended: bool,
    ) -> Result<EventFeed, CliError> {
        if let Some(server) = self.server().await {
            return Ok(self.server_events(server, thread, after, attended));
        }
        Ok(EventFeed::Local {
            events: Box::new(self.manager.events(thread, after).await?),
            _person: attended.then(|| self.manager.attend(Some(thread))),
        })
    }

    /// A thread's events behind `after`, from the server.
    fn server_events(
        &self,
        server: &RemoteServer,
        thread: &ThreadId,
        after: Option<EventId>,
        attended: bool,
    ) -> EventFeed {
        EventFeed::Remote(Box::new(ServerFeed {
            events: server.events(thread, after, attended),
            manager: self.manager.clone(),
            attended,
        }))
    }

    /// Follows a thread's events, for a person who is there, from the beginning of the turn that runs, or
    /// from now on where none does. A server tells again what happened since the thread was opened, also
    /// in turns that are over by now.
    pub(crate) async fn events_of_turn(&self, thread: &ThreadId) -> Result<EventFeed, CliError> {
        if let Some(server) = self.server().await {
            let known = self.manager.store().thread(thread).await?;
            return Ok(self.server_events(server, thread, known.history_end(), true));
        }
        Ok(EventFeed::Local {
            events: Box::new(self.manager.events_of_turn(thread).await?),
            _person: Some(self.manager.attend(Some(thread))),
        })
    }
}
