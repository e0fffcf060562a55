//! One prompt: a turn of the session, shown to the client until it is over.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_client_protocol::Error;
use agent_client_protocol::RequestCancellation;
use agent_client_protocol::v1::schema::{
    PromptRequest, PromptResponse, SessionInfoUpdate, SessionUpdate, StopReason,
};
use conjure_core::chat::{CallAnnounced, Event, EventId};
use conjure_core::turn::ApprovalDecision;
use conjure_runtime::manager::{DecisionScope, EventStream, Manager, Turn, TurnRequest, TurnTerms};
use conjure_store::{Run, RunState, ThreadId};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::agent::AgentConnection;
use super::error::{failed, of_manager};
use super::modes::{Mode, read_only_policy};
use super::open_session::OpenSession;
use super::permission::{self, PermissionAnswer};
use super::request_queue::QueueTicket;
use super::shown_turn::ShownTurn;
use super::updates::{Updates, chunk};
use super::{content, edits, questions, unsaved};

/// How long the last events of a turn may take behind its end.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The reason that the model reads of a call that the mode does not let run.
const READ_ONLY: &str = "the session is in its read-only mode";

/// How many commands were run: what each says is a message of its own.
static COMMANDS_RUN: AtomicU64 = AtomicU64::new(0);

/// A prompt that has not begun.
pub(crate) struct QueuedPrompt {
    /// What the client sent.
    pub(crate) request: PromptRequest,
    /// The cancelling of its request.
    pub(crate) cancellation: RequestCancellation,
    /// Ticket of the prompt among what the client asked about the session.
    pub(crate) ticket: QueueTicket,
}

impl QueuedPrompt {
    /// Waits until the client cancels it, alone or with all that it asked so far.
    async fn cancelled(&self) {
        tokio::select! {
            () = self.ticket.cancelled() => {}
            () = self.cancellation.cancelled() => {}
        }
    }
}

/// Runs a turn, and answers when it is over.
pub(crate) async fn run(
    connection: Arc<AgentConnection>,
    session: Arc<OpenSession>,
    updates: Updates,
    prompt: QueuedPrompt,
) -> Result<PromptResponse, Error> {
    let manager = connection.manager();
    if let Some(commands) = connection.commands()
        && let Some(line) = commands.line(&prompt.request.prompt)
    {
        let running = async {
            prompt.ticket.wait_first().await;
            (commands.run)(session.id.clone(), line).await
        };
        let reason = command(running, &updates, &prompt).await;
        return Ok(PromptResponse::new(reason));
    }
    let begun = Box::pin(begin(&connection, &session, &updates, &prompt)).await?;
    let Some((turn, working_dir)) = begun else {
        return Ok(PromptResponse::new(StopReason::Cancelled));
    };
    let QueuedPrompt {
        request,
        cancellation,
        ticket,
    } = prompt;
    // The session has turns in the order in which they begin: from here on its own queue counts. What
    // the prompt holds, such as images, is the session's too.
    drop((request, ticket));
    let mut follower = PromptTurn {
        connection: &connection,
        session: &session,
        updates: &updates,
        turn: &turn,
        view: ShownTurn::new(&turn.id, working_dir.clone(), connection.supports_notices()),
        working_dir,
        pending_questions: HashMap::new(),
        stop: None,
    };
    let followed = Box::pin(follower.follow(cancellation)).await;
    let stop = follower.stop.take();
    // Who is still asked something is asked no more.
    drop(follower);
    if followed.is_err() {
        // Nobody would see it, or decide about its calls.
        let _ = manager.cancel_turn(&session.id, &turn.id).await;
    }
    connection.remove_running(&turn.id);
    let run = followed?;
    let now = manager.get(&session.id).await;
    let now = now.map_err(|error| of_manager(&error))?;
    if let Some(title) = session.new_title(&now) {
        let title = SessionInfoUpdate::new().title(title);
        updates.send(SessionUpdate::SessionInfoUpdate(title)).await;
    }
    answer(&run, stop.as_deref())
}

/// Begins the turn of a prompt, in the directory that is given back, when all that was asked before it
/// has taken effect; nothing where the client cancels it before that.
async fn begin(
    connection: &AgentConnection,
    session: &OpenSession,
    updates: &Updates,
    prompt: &QueuedPrompt,
) -> Result<Option<(Turn, PathBuf)>, Error> {
    let manager = connection.manager();
    let preparing = Box::pin(turn_request(connection, session, updates, prompt));
    let (request, working_dir) = tokio::select! {
        biased;
        () = prompt.cancelled() => return Ok(None),
        prepared = preparing => prepared?,
    };
    let turn = manager.begin(&session.id, request).await;
    let turn = turn.map_err(|error| of_manager(&error))?;
    connection.add_running(&session.id, &turn.id);
    if prompt.ticket.is_cancelled() {
        // While it began, so that there may have been no turn to end.
        let _ = manager.cancel_turn(&session.id, &turn.id).await;
    }
    Ok(Some((turn, working_dir)))
}

/// What a prompt asks of the session, with what holds for it when it is its turn, and the directory of
/// the session.
async fn turn_request(
    connection: &AgentConnection,
    session: &OpenSession,
    updates: &Updates,
    prompt: &QueuedPrompt,
) -> Result<(TurnRequest, PathBuf), Error> {
    let manager = connection.manager();
    let blocks = &prompt.request.prompt;
    let unsaved = if connection.supports_text_reads() {
        unsaved::read(updates, blocks).await
    } else {
        BTreeMap::new()
    };
    prompt.ticket.wait_first().await;
    let view = manager.get(&session.id).await;
    let view = view.map_err(|error| of_manager(&error))?;
    let terms = terms(manager, session).await?;
    // Last: files that are handed to the host are to be those of a turn.
    let message = content::message(manager.host(), blocks, &unsaved)?;
    let request = TurnRequest {
        message: Some(message),
        terms,
        ..TurnRequest::default()
    };
    Ok((request, view.working_dir))
}

/// Tells the client what a command says, unless it stops it before that. What a command began, such as
/// a summary, ends with the session's turns.
async fn command(
    running: impl Future<Output = String>,
    updates: &Updates,
    prompt: &QueuedPrompt,
) -> StopReason {
    let said = tokio::select! {
        biased;
        () = prompt.cancelled() => None,
        said = running => Some(said),
    };
    let Some(said) = said else {
        // Not before what it began is ended, unless the client waits no more.
        tokio::select! {
            () = prompt.ticket.wait_for_cancellations() => {}
            () = prompt.cancellation.cancelled() => {}
        }
        return StopReason::Cancelled;
    };
    let message = format!("command-{}", COMMANDS_RUN.fetch_add(1, Ordering::Relaxed));
    let said = SessionUpdate::AgentMessageChunk(chunk(said, &message));
    updates.send(said).await;
    StopReason::EndTurn
}

/// What holds for the turn beside the session's settings.
async fn terms(manager: &Manager, session: &OpenSession) -> Result<TurnTerms, Error> {
    let mut terms = TurnTerms::default();
    if session.mode() == Mode::ReadOnly {
        let tools = manager.tools(&session.id).await;
        terms.policy = read_only_policy(&tools.map_err(|error| of_manager(&error))?);
    }
    Ok(terms)
}

/// A number before all events that are still to come in a thread.
async fn latest_event(manager: &Manager, thread: &ThreadId) -> Result<Option<EventId>, Error> {
    let known = manager.store().thread(thread).await;
    let known = known.map_err(|error| failed(error.to_string()))?;
    // What is opened meanwhile has the next epoch; the turn may also run in this one.
    let epoch = known.epoch.checked_sub(1);
    Ok(epoch.map(|epoch| EventId {
        epoch,
        seq: u64::MAX,
    }))
}

/// Why the turn stopped, in the words of the protocol.
fn answer(run: &Run, stop: Option<&str>) -> Result<PromptResponse, Error> {
    let reason = match run.state {
        RunState::Completed if is_refusal(stop) => StopReason::Refusal,
        RunState::Completed => StopReason::EndTurn,
        RunState::CutShort if is_refusal(stop) => StopReason::Refusal,
        RunState::CutShort => StopReason::MaxTokens,
        RunState::Limit => StopReason::MaxTurnRequests,
        RunState::Cancelled => StopReason::Cancelled,
        state => {
            let why = run.error.clone();
            return Err(failed(why.unwrap_or_else(|| {
                format!("the turn was {}", state.as_str().replace('_', " "))
            })));
        }
    };
    Ok(PromptResponse::new(reason))
}

/// Whether the provider says that the model, or a filter, did not want to answer.
fn is_refusal(stop: Option<&str>) -> bool {
    let refusals = ["refusal", "content_filter", "safety", "prohibited_content"];
    stop.is_some_and(|stop| {
        refusals
            .iter()
            .any(|known| stop.eq_ignore_ascii_case(known))
    })
}

/// A turn that a prompt began, while its client follows it.
struct PromptTurn<'a> {
    connection: &'a Arc<AgentConnection>,
    session: &'a Arc<OpenSession>,
    updates: &'a Updates,
    turn: &'a Turn,
    working_dir: PathBuf,
    view: ShownTurn,
    /// What the client is being asked, by call or question.
    pending_questions: HashMap<String, AbortOnDropHandle<()>>,
    /// The stop reason as the provider gave it.
    stop: Option<String>,
}

impl PromptTurn<'_> {
    /// Shows the turn from its beginning until it is over.
    async fn follow(&mut self, cancelled: RequestCancellation) -> Result<Run, Error> {
        let manager = self.connection.manager();
        let after = latest_event(manager, &self.turn.thread).await?;
        let events = manager.events(&self.turn.thread, after).await;
        let events = events.map_err(|error| of_manager(&error))?;
        self.follow_to_end(events, cancelled).await
    }

    /// Shows what comes until the turn is over.
    async fn follow_to_end(
        &mut self,
        mut events: EventStream,
        cancelled: RequestCancellation,
    ) -> Result<Run, Error> {
        let manager = self.connection.manager().clone();
        let over = manager.wait(&self.turn.id);
        tokio::pin!(over);
        let cancelling = async {
            cancelled.cancelled().await;
            let _ = manager.cancel_turn(&self.session.id, &self.turn.id).await;
        };
        tokio::pin!(cancelling);
        let (mut run, mut is_cancelled) = (None::<Run>, false);
        let mut last = None;
        loop {
            let due = self.view.next_deadline();
            tokio::select! {
                biased;
                event = events.next() => {
                    let event = event.map_err(|error| of_manager(&error))?;
                    let is_last = match event {
                        Some(event) => self.show_event(&event.event).await,
                        None => true,
                    };
                    if is_last {
                        break;
                    }
                }
                () = wait_until(due) => {
                    let updates = self.view.flush_due(Instant::now());
                    self.updates.send_all(updates).await;
                }
                ended = &mut over, if run.is_none() => {
                    let ended = ended.map_err(|error| of_manager(&error))?;
                    // A turn that was dropped while it waited for others tells nothing of itself.
                    let began = ended.started_at_ms.is_some();
                    run = Some(ended);
                    if !began {
                        break;
                    }
                    last = Some(Instant::now() + LAST_EVENTS_TIMEOUT);
                }
                () = &mut cancelling, if !is_cancelled => is_cancelled = true,
                () = wait_until(last) => break,
            }
        }
        let rest = self.view.flush();
        self.updates.send_all(rest).await;
        match run {
            Some(run) => Ok(run),
            None => over.await.map_err(|error| of_manager(&error)),
        }
    }

    /// Shows an event; whether it is the turn's last.
    async fn show_event(&mut self, event: &Event) -> bool {
        if let Event::Round {
            table,
            provider,
            model,
            ..
        } = event
            && self.view.has_begun()
        {
            self.update_model(*table, provider, model).await;
        }
        let updates = self.view.show(event);
        self.updates.send_all(updates).await;
        if !self.view.has_begun() {
            return false;
        }
        match event {
            Event::Approval { call, .. } => self.decide(call),
            Event::CallStarted { call_id, .. } => drop(self.pending_questions.remove(call_id)),
            Event::FunctionCallOutput(output) => {
                drop(self.pending_questions.remove(&output.call_id));
            }
            Event::Question(question) => {
                let answering = questions::answer(
                    Arc::clone(self.connection),
                    Arc::clone(self.session),
                    self.updates.clone(),
                    question.clone(),
                );
                let answering = AbortOnDropHandle::new(tokio::spawn(answering));
                self.pending_questions
                    .insert(question.id.clone(), answering);
            }
            Event::QuestionOver { id, .. } => drop(self.pending_questions.remove(id)),
            Event::Done {
                turn_id,
                stop_reason,
                ..
            } if *turn_id == self.turn.id => {
                self.stop.clone_from(stop_reason);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Takes note of the tools and the model of a request.
    async fn update_model(&mut self, table: u64, provider: &str, model: &str) {
        let manager = self.connection.manager();
        let facts = manager.host().models().facts(provider, model);
        self.view.set_window(facts.and_then(|facts| facts.context));
        if self.view.table_version() == Some(table) {
            return;
        }
        match manager.tools(&self.session.id).await {
            Ok(tools) => self.view.set_table(Arc::clone(tools.table())),
            Err(error) => tracing::debug!("the tools of a turn are not known: {error}"),
        }
    }

    /// Has a call decided: by the mode, else by the person.
    fn decide(&mut self, call: &CallAnnounced) {
        let route = self.view.route(&call.name);
        let by_mode = match self.session.mode() {
            Mode::ReadOnly => Some(ApprovalDecision::Deny {
                reason: READ_ONLY.to_owned(),
            }),
            Mode::AcceptEdits if edits::stays_inside(&call.arguments, route, &self.working_dir) => {
                Some(ApprovalDecision::Allow)
            }
            Mode::AcceptEdits | Mode::Ask => None,
        };
        // Of a call that is decided nothing is shown.
        let asked = match by_mode {
            Some(decision) => Err(decision),
            None => Ok(self.view.ask_about(call)),
        };
        let key = call.id.clone();
        let (connection, session) = (Arc::clone(self.connection), Arc::clone(self.session));
        let (updates, call, turn) = (self.updates.clone(), call.clone(), self.turn.id.clone());
        let deciding = async move {
            let manager = connection.manager();
            let answer = match asked {
                Err(decision) => PermissionAnswer::Decided(decision, DecisionScope::Once),
                Ok(shown) => permission::ask(&updates, shown, &call).await,
            };
            let done = match answer {
                PermissionAnswer::Decided(decision, scope) => {
                    manager.decide(&session.id, &call.id, decision, scope).await
                }
                PermissionAnswer::Cancelled => manager.cancel_turn(&session.id, &turn).await,
            };
            // Where another client was faster, its decision counts.
            if let Err(error) = done
                && !error.is_not_found()
            {
                tracing::warn!("a decision about `{}` was not taken: {error}", call.name);
            }
        };
        let deciding = AbortOnDropHandle::new(tokio::spawn(deciding));
        self.pending_questions.insert(key, deciding);
    }
}

async fn wait_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
