//! Sessions as they are saved: made, read, changed, deleted.

use async_recursion::async_recursion as boxed;
use conjure_core::switch::SwitchReport;
use conjure_core::turn::EffectiveFrom;
use serde_json::{Map, Value};

use super::changes::ActorStatus;
use super::remote::RemoteRequest;
use super::requests::ActorRequest;
use super::server_settings;
use super::session_names::check_name;
use super::session_script::SCRIPT;
use super::spec::{object, persona, tools};
use super::view::{ChatRetention, NewSession, SessionPatch, SessionState, SessionView, ThreadView};
use super::working_dir::{changed_directory, directory};
use super::{Manager, ManagerError, ManagerState};
use crate::backend::plugin_grants::PluginGrants;
use crate::session::ToolPreview;
use crate::session::check_compact_at;
use conjure_config::{PolicySpec, SessionSpec};
use conjure_providers::auths::MCP_SECRETS;
use conjure_store::{
    JsonText, Run, RunState, SavedAuth, SavedSession as Row, SessionCursor, StoreError, Thread,
    ThreadId,
};

/// Where the tools of a session say what single plugins are granted.
const PLUGINS: &str = "plugins";

impl Manager {
    /// Saves a new session.
    ///
    /// # Errors
    /// [`ManagerError::Invalid`] says what cannot be; [`ManagerError::NotFound`] when there is no
    /// such auth or thread; and the store's, also when the name is taken.
    #[boxed]
    pub async fn create(&self, new: NewSession) -> Result<SessionView, ManagerError> {
        let name = new.name.filter(|name| !name.is_empty());
        name.as_deref().map_or(Ok(()), check_name)?;
        server_settings::check(&new.tools, &new.mcps)?;
        let auth = self.inner.auth_of(&new.auth).await?;
        let mut row = Row::new(&auth.id, new.model, directory(&new.working_dir)?);
        row.name = name;
        row.persona = JsonText(serde_json::to_value(&new.persona).unwrap_or_default());
        row.memory = JsonText(new.memory.into());
        row.tools = JsonText(new.tools.clone().into());
        row.mcps = JsonText(new.mcps.clone().into());
        self.inner.check(&row, &auth)?;
        self.inner.check_script(&row, &auth).await?;
        self.inner.check_grants(&row)?;
        let thread = self.thread_of(&new.thread).await?;
        row.chat_thread_id = Some(thread.to_string());
        let created = self.create_sealed(row, new.tools, new.mcps).await;
        let row = self.with_thread(created, &new.thread, &thread).await?;
        self.inner.notify_saved(&row);
        self.view(row).await
    }

    /// Saves a new session with these settings, whose secrets are saved apart.
    async fn create_sealed(
        &self,
        mut row: Row,
        mut tools: Map<String, Value>,
        mut mcps: Map<String, Value>,
    ) -> Result<Row, ManagerError> {
        let mut sealing = self.sealing(None);
        sealing.mcps(&mut mcps).await?;
        sealing.tools(&mut tools).await?;
        row.tools = JsonText(tools.into());
        row.mcps = JsonText(mcps.into());
        let created = self.inner.store.create_session(row).await;
        sealing.finish(created).await
    }

    /// A session, by its id or its name.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn get(&self, session: &str) -> Result<SessionView, ManagerError> {
        let row = self.inner.row(session).await?;
        self.view(row).await
    }

    /// At most `limit` sessions behind the id `after`, the oldest first.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<SessionView>, ManagerError> {
        let mut views = Vec::new();
        for row in self.inner.store.sessions(after, limit).await? {
            views.push(self.view(row).await?);
        }
        Ok(views)
    }

    /// At most `limit` sessions that have all of these words in their name, model, working directory
    /// or the label of their thread; what was used last comes first. Each with where the list goes on
    /// behind it.
    ///
    /// # Errors
    /// The store's.
    #[boxed]
    pub async fn recent(
        &self,
        words: &str,
        behind: Option<&SessionCursor>,
        limit: u64,
    ) -> Result<Vec<(SessionView, SessionCursor)>, ManagerError> {
        let rows = self.inner.store.recent_sessions(words, behind, limit);
        let mut views = Vec::new();
        for (row, place) in rows.await? {
            views.push((self.view(row).await?, place));
        }
        Ok(views)
    }

    /// Changes a session. While a turn runs, a change holds at once or from the next turn on: at
    /// once stops the stream, keeps what came, and asks again with the new settings.
    ///
    /// # Errors
    /// As [`Manager::create`]; nothing changes then.
    #[boxed]
    pub async fn update(
        &self,
        session: &str,
        patch: SessionPatch,
        when: EffectiveFrom,
    ) -> Result<SessionView, ManagerError> {
        let before = self.inner.row(session).await?;
        let session = before.id.clone();
        let (patch, sealing) = self.seal_patch(before, patch).await?;
        let remote = || RemoteRequest::Update {
            session: session.clone(),
            patch: Box::new(patch.clone()),
            seen_ms: patch.seen_ms,
            now: when == EffectiveFrom::Now,
        };
        let updated = match self.at_owner(&session, remote).await {
            Ok(Some(())) => Ok(()),
            Ok(None) => self.update_here(&session, &patch, when).await,
            Err(error) => Err(error),
        };
        sealing.finish(updated).await?;
        let row = self.inner.store.session(&session).await?;
        self.view(row).await
    }

    pub(super) async fn update_here(
        &self,
        session: &str,
        patch: &SessionPatch,
        when: EffectiveFrom,
    ) -> Result<(), ManagerError> {
        let updated = self.ask(session, |done| ActorRequest::Update {
            patch: Box::new(patch.clone()),
            when,
            done,
        });
        updated.await?.map(drop)
    }

    /// What a change would change about the next request of the session's thread. Writes nothing
    /// and needs no key.
    ///
    /// # Errors
    /// As [`Manager::update`].
    #[boxed]
    pub async fn check(
        &self,
        session: &str,
        patch: &SessionPatch,
    ) -> Result<SwitchReport, ManagerError> {
        let mut row = self.inner.row(session).await?;
        let auth = self.inner.apply_patch(&mut row, patch).await?;
        let spec = self.inner.checked_spec_with_auth(&row, &auth).await?;
        let thread = active(&row)?;
        Ok(self.inner.host.check(spec, &thread).await?)
    }

    /// What the session's next request would be like with what is saved, as [`Manager::check`] tells it
    /// of a patch that changes nothing: of the thread as it is open here. Only where it is not open is
    /// its log read, and are its backends made ready for that.
    ///
    /// # Errors
    /// As [`Manager::check`], and [`ManagerError::Conflict`] while a turn runs.
    #[boxed]
    pub async fn measure(&self, session: &str) -> Result<SwitchReport, ManagerError> {
        let row = self.inner.row(session).await?;
        let (_, made) = self.inner.spec_and_digest(&row).await?;
        let thread = active(&row)?;
        let measured = self.ask_running(&row.id, |done| ActorRequest::Measure {
            thread: thread.clone(),
            settings_digest: made,
            done,
        });
        if let Some(report) = measured.await {
            return report;
        }
        let runs = self.inner.open_runs(&row.id).await?;
        if runs.iter().any(|run| run.state == RunState::Running) {
            return Err(turn_running_error());
        }
        let spec = self.inner.checked_spec(&row).await?;
        Ok(self.inner.host.check(spec, &thread).await?)
    }

    /// The tools that the session's next request would have, and what its rules say of them. Where
    /// the session is not open, its backends are made ready for that, and closed.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and when the tools cannot be made ready.
    #[boxed]
    pub async fn tools(&self, session: &str) -> Result<ToolPreview, ManagerError> {
        match self.open_tools(session).await? {
            Some(tool_preview) => Ok(tool_preview),
            None => self.tool_preview(session, &PolicySpec::default()).await,
        }
    }

    /// Like [`Self::tools`], for a session that is open here; `None` where it is not, so that no backend
    /// is made ready for it.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`].
    #[boxed]
    pub async fn open_tools(&self, session: &str) -> Result<Option<ToolPreview>, ManagerError> {
        let row = self.inner.row(session).await?;
        Ok(self.ask_running(&row.id, ActorRequest::Tools).await)
    }

    /// What the rules would decide in the session's next turn, with these beside its own. Its
    /// backends are made ready for that, and closed.
    ///
    /// # Errors
    /// As [`Manager::tools`].
    #[boxed]
    pub async fn tool_preview(
        &self,
        session: &str,
        policy: &PolicySpec,
    ) -> Result<ToolPreview, ManagerError> {
        let row = self.inner.row(session).await?;
        let mut spec = self.inner.checked_spec(&row).await?;
        spec.policy.allow.extend_from_slice(&policy.allow);
        spec.policy.ask.extend_from_slice(&policy.ask);
        spec.policy.deny.extend_from_slice(&policy.deny);
        // Behind a pointer: making backends ready is large, and every future around it would be too.
        Ok(Box::pin(self.inner.host.tool_preview(spec)).await?)
    }

    /// What a session's next turn is opened with.
    ///
    /// # Errors
    /// As [`Manager::tools`].
    #[boxed]
    pub async fn spec(&self, session: &str) -> Result<SessionSpec, ManagerError> {
        let row = self.inner.row(session).await?;
        let (spec, _) = self.inner.spec_and_digest(&row).await?;
        Ok(spec)
    }

    /// Deletes a session; what runs in it is ended first. Its threads stay, or the active one is
    /// deleted for good.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn delete(&self, session: &str, chat: ChatRetention) -> Result<(), ManagerError> {
        let row = self.inner.row(session).await?;
        let remote = || RemoteRequest::End {
            session: row.id.clone(),
        };
        if self.at_owner::<()>(&row.id, remote).await?.is_none() {
            self.end_here(&row.id).await;
        }
        self.inner.store.delete_session(&row.id).await?;
        self.inner.states.notify_deleted(&row.id);
        match active(&row) {
            Ok(thread) if chat == ChatRetention::Delete => self.remove_thread(&thread).await,
            _ => Ok(()),
        }
    }

    pub(super) async fn end_here(&self, session: &str) {
        let _ = self.ask_running(session, ActorRequest::End).await;
    }

    /// The id of a session that was named by its id or its name.
    pub(super) async fn id_of(&self, session: &str) -> Result<String, ManagerError> {
        Ok(self.inner.row(session).await?.id)
    }

    pub(super) async fn view(&self, row: Row) -> Result<SessionView, ManagerError> {
        let auth = self.inner.store.auth(&row.auth_id).await?;
        let thread = match active(&row) {
            Ok(thread) => match self.inner.store.thread(&thread).await {
                Ok(thread) => Some(ThreadView::of(thread)),
                Err(StoreError::NoThread { .. }) => None,
                Err(error) => return Err(error.into()),
            },
            Err(_) => None,
        };
        let status = self.inner.status(&row.id).await?;
        Ok(SessionView {
            auth: auth.full_name(),
            persona: persona(&row),
            memory: object(&row.memory.0).clone(),
            tools: object(&row.tools.0).clone(),
            mcps: object(&row.mcps.0).clone(),
            thread,
            state: status.state,
            turn: status.turn,
            queued: status.queued,
            id: row.id,
            name: row.name,
            auth_id: row.auth_id,
            model: row.model_id,
            working_dir: row.working_dir.into(),
            latest_entry: row.latest_chat_entry_id,
            created_at_ms: row.created_at_ms,
            updated_at_ms: row.updated_at_ms,
        })
    }
}

/// Why a session's next request is not measured.
pub(super) fn turn_running_error() -> ManagerError {
    ManagerError::Conflict {
        message: "a turn runs, and its requests have other sizes; ask when it is over".to_owned(),
    }
}

impl ManagerState {
    /// A session by its id or its name.
    pub(super) async fn row(&self, session: &str) -> Result<Row, ManagerError> {
        match self.store.session(session).await {
            Err(StoreError::NotFound { .. }) => Ok(self.store.session_named(session).await?),
            found => Ok(found?),
        }
    }

    /// The turns of a session that run or wait, the oldest first.
    pub(super) async fn open_runs(&self, session: &str) -> Result<Vec<Run>, StoreError> {
        let runs = self.store.open_runs(session).await?.into_iter();
        let runs = runs.map(|run| self.run_ends.applied_to(run));
        Ok(runs.filter(|run| !run.state.is_over()).collect())
    }

    /// Status of a session: here, or in another process that runs it.
    async fn status(&self, session: &str) -> Result<ActorStatus, ManagerError> {
        let here = self.states.of(session);
        if here != ActorStatus::default() {
            return Ok(here);
        }
        let runs = self.open_runs(session).await?;
        let queued = runs
            .iter()
            .filter(|run| run.state == RunState::Queued)
            .count();
        let running = runs.into_iter().find(|run| run.state == RunState::Running);
        let status = ActorStatus {
            queued,
            ..ActorStatus::default()
        };
        Ok(match running {
            Some(run) => ActorStatus {
                state: match run.waiting_since_ms {
                    Some(_) => SessionState::Waiting,
                    None => SessionState::Running,
                },
                turn: Some(run.id),
                thread: Some(run.thread),
                ..status
            },
            None => status,
        })
    }

    /// A saved auth by its id or its name.
    pub(super) async fn auth_of(&self, auth: &str) -> Result<SavedAuth, ManagerError> {
        match self.store.auth(auth).await {
            Err(StoreError::NotFound { .. }) => {}
            found => return Ok(found?),
        }
        let auths = self.host.shared.auths.as_ref();
        let auths = auths.ok_or_else(|| ManagerError::NotFound {
            kind: "saved auth",
            id: auth.to_owned(),
        })?;
        Ok(auths
            .find(
                &auth
                    .parse()
                    .map_err(conjure_providers::auths::AuthError::from)?,
                None,
            )
            .await?)
    }

    /// Takes a change over into a row, which is what could be saved then.
    pub(super) async fn apply_patch(
        &self,
        row: &mut Row,
        patch: &SessionPatch,
    ) -> Result<SavedAuth, ManagerError> {
        if patch.seen_ms.is_some_and(|seen| seen != row.updated_at_ms) {
            return Err(ManagerError::Store(StoreError::Changed {
                kind: "session",
                name: row.name.clone().unwrap_or_else(|| row.id.clone()),
            }));
        }
        // A name that it has already may be one from before there was this rule.
        if let Some(name) = &patch.name
            && row.name.as_ref() != Some(name)
        {
            let name = Some(name.clone()).filter(|name| !name.is_empty());
            name.as_deref().map_or(Ok(()), check_name)?;
            row.name = name;
        }
        let auth = match &patch.auth {
            Some(auth) => self.auth_of(auth).await?,
            None => self.store.auth(&row.auth_id).await?,
        };
        let names_another =
            |tools: &Map<String, Value>| tools.get(SCRIPT) != row.tools.0.get(SCRIPT);
        let grants_other =
            |tools: &Map<String, Value>| tools.get(PLUGINS) != row.tools.0.get(PLUGINS);
        let has_other_grants = patch.tools.as_ref().is_some_and(grants_other);
        let has_another_script =
            auth.id != row.auth_id || patch.tools.as_ref().is_some_and(names_another);
        row.auth_id.clone_from(&auth.id);
        if let Some(model) = &patch.model {
            row.model_id.clone_from(model);
        }
        if let Some(dir) = &patch.working_dir {
            row.working_dir = changed_directory(&row.working_dir, dir)?;
        }
        if let Some(persona) = &patch.persona {
            row.persona = JsonText(serde_json::to_value(persona).unwrap_or_default());
        }
        let replace = |old: &mut JsonText, new: &Option<Map<String, Value>>| {
            if let Some(new) = new {
                *old = JsonText(new.clone().into());
            }
        };
        server_settings::check_changed(patch, &row.tools.0, &row.mcps.0)?;
        replace(&mut row.memory, &patch.memory);
        replace(&mut row.tools, &patch.tools);
        replace(&mut row.mcps, &patch.mcps);
        self.check(row, &auth)?;
        // One that went away meanwhile keeps nobody from changing something else.
        if has_another_script {
            self.check_script(row, &auth).await?;
        }
        if has_other_grants {
            self.check_grants(row)?;
        }
        Ok(auth)
    }

    /// Whether a session could be opened with this, as far as can be said without opening it.
    fn check(&self, row: &Row, auth: &SavedAuth) -> Result<(), ManagerError> {
        let invalid = |field, message: &str| {
            Err(ManagerError::Invalid {
                field: Some(field),
                message: message.to_owned(),
            })
        };
        if row.model_id.trim().is_empty() {
            return invalid("model", "a session needs a model");
        }
        if auth.provider == MCP_SECRETS {
            return invalid(
                "auth",
                "this auth is a secret of MCP servers; a session needs one for a provider",
            );
        }
        let spec = SessionSpec {
            provider: Some(auth.provider.clone()),
            ..self.spec_with(row, auth)?
        };
        Ok(check_compact_at(&spec, &self.host.shared.models)?)
    }

    /// Whether its plugins can be granted what it says.
    fn check_grants(&self, row: &Row) -> Result<(), ManagerError> {
        let grants = PluginGrants::of(&tools(&row.tools.0)?.plugins);
        let loaded = self.host.shared.instances.registry.snapshot();
        grants
            .check(&loaded)
            .map_err(|error| ManagerError::Invalid {
                field: Some("tools"),
                message: error.to_string(),
            })
    }

    pub(super) fn notify_saved(&self, row: &Row) {
        self.states.notify_saved(&row.id, row.updated_at_ms);
    }
}

/// The active thread of a session.
pub(super) fn active(row: &Row) -> Result<ThreadId, ManagerError> {
    let thread = row.chat_thread_id.as_deref();
    let thread = thread.ok_or_else(|| ManagerError::Conflict {
        message: "the session has no thread any more: start a new chat, or choose one".to_owned(),
    })?;
    Ok(ThreadId::parse(thread)?)
}

impl ThreadView {
    fn of(thread: Thread) -> Self {
        let totals = thread.totals;
        let average = |sum: u64| sum.checked_div(totals.replies);
        let cost = thread.cost.as_deref();
        Self {
            id: thread.id,
            label: thread.label,
            last_seq: thread.last_seq,
            updated_at_ms: thread.updated_at_ms,
            turns: thread.last_turn,
            replies: totals.replies,
            usage: totals.usage,
            average_latency_ms: average(totals.latency_ms),
            average_tokens: average(totals.usage.total()),
            cost: cost.and_then(|cost| serde_json::from_str(cost).ok()),
        }
    }
}
