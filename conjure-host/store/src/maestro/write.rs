//! Writing what was read: in one transaction, all of it or nothing.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use conjure_core::label::numbered;

use crate::database::{Transaction, now_ms};
use crate::row::number;
use crate::saved::{free_name, new_id};
use crate::sql::Value;
use crate::writer::write_imported_thread;
use crate::{Store, StoreError, ThreadId};

use super::Maestro;
use super::plan::{ThreadImport, plan};
use super::report::{Left, MaestroReport};
use super::settings::MaestroSettings;
use super::threads::of_session;

/// Choices where the-maestro's data leave one open.
#[derive(Debug, Clone, Default)]
pub struct MaestroChoices {
    /// Ids of saved authentications here, by their ids there.
    pub auths: BTreeMap<String, String>,
    /// The saved authentication of sessions whose own is not among these.
    pub auth: Option<String>,
    /// The working directory of sessions that name none, or not an absolute one.
    pub working_dir: String,
    /// Whether all is taken back at the end.
    pub dry_run: bool,
}

impl Store {
    /// Writes sessions, threads, personas and MCP servers of the-maestro, all or nothing. What is
    /// here already, by its id or its name, stays as it is: a second import adds what is new there,
    /// and no turns to a thread that is here.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when one of the chosen authentications is not here, and what the
    /// database says.
    #[boxed]
    pub async fn import_maestro(
        &self,
        maestro: &Maestro,
        choices: &MaestroChoices,
    ) -> Result<MaestroReport, StoreError> {
        let settings: Vec<MaestroSettings> = maestro.settings().collect();
        let (planned, known) = plan(maestro, &settings, self).await?;
        let mut report = MaestroReport {
            known_threads: known,
            ..MaestroReport::default()
        };
        let tx = self.db().begin(true, "import the sessions").await?;
        auths(&tx, choices).await?;
        report.left_out.add(Left::Prompts, maestro.other_prompts);
        personas(&tx, maestro, &mut report).await?;
        servers(&tx, maestro, &mut report).await?;
        let mut labels = Labels::default();
        let by_id: BTreeMap<&str, &MaestroSettings> = settings
            .iter()
            .map(|session| (session.id.as_str(), session))
            .collect();
        for planned in &planned {
            let session = planned.thread.session.as_deref();
            let session = session.and_then(|id| by_id.get(id)).copied();
            let label = labels.of(planned, session);
            thread(&tx, planned, &label, &mut report).await?;
        }
        for session in &settings {
            self::session(&tx, maestro, session, choices, &mut report).await?;
        }
        if !choices.dry_run {
            tx.commit().await?;
        }
        Ok(report)
    }
}

/// In a dry run those that would be added are not here; it goes on as if they were.
async fn auths(tx: &Transaction<'_>, choices: &MaestroChoices) -> Result<(), StoreError> {
    for id in choices.auths.values().chain(&choices.auth) {
        let sql = "SELECT id FROM saved_authentications WHERE id = $1";
        if tx.one(sql, [id.as_str().into()]).await?.is_some() {
            continue;
        }
        if !choices.dry_run {
            return Err(StoreError::NotFound {
                kind: "saved auth",
                id: id.clone(),
            });
        }
        let sql = "INSERT INTO saved_authentications (id, provider, kind, name, sealed, \
                   created_at_ms, updated_at_ms) VALUES ($1, '', '', $1, $2, 0, 0)";
        let values: [Value; 2] = [id.as_str().into(), Vec::<u8>::new().into()];
        tx.execute(sql, values).await?;
    }
    Ok(())
}

async fn personas(
    tx: &Transaction<'_>,
    maestro: &Maestro,
    report: &mut MaestroReport,
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO personas (id, name, version, persona_text, created_at_ms, updated_at_ms) \
         VALUES ($1, $2, $3, $4, {now}, {now}) ON CONFLICT DO NOTHING",
        now = now_ms(tx.backend())
    );
    for persona in &maestro.personas {
        let values: [Value; 4] = [
            new_id().into(),
            persona.name.as_str().into(),
            persona.version.as_str().into(),
            persona.text.as_str().into(),
        ];
        report.personas += usize::from(tx.execute(&sql, values).await? > 0);
    }
    Ok(())
}

async fn servers(
    tx: &Transaction<'_>,
    maestro: &Maestro,
    report: &mut MaestroReport,
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO mcp_servers (id, name, settings, enabled, created_at_ms, updated_at_ms) \
         VALUES ($1, $2, $3, $4, {now}, {now}) ON CONFLICT DO NOTHING",
        now = now_ms(tx.backend())
    );
    for (name, settings, is_on) in maestro.servers() {
        let Some(settings) = settings else {
            report.secret_mcp_servers.push(name.to_owned());
            continue;
        };
        let values: [Value; 4] = [
            new_id().into(),
            name.into(),
            settings.to_string().into(),
            is_on.into(),
        ];
        report.mcp_servers += usize::from(tx.execute(&sql, values).await? > 0);
    }
    Ok(())
}

/// Labels that were given so far, by sessions.
#[derive(Default)]
struct Labels(BTreeMap<String, Vec<String>>);

impl Labels {
    /// A thread's own label, else its session's with a number where another thread of it has that.
    fn of(&mut self, planned: &ThreadImport<'_>, session: Option<&MaestroSettings>) -> String {
        let thread = planned.thread;
        let short = || {
            let of = thread.session.as_deref().unwrap_or(thread.id.as_str());
            let of = of.strip_prefix("the-maestro-").unwrap_or(of);
            format!("session-{}", of.chars().take(8).collect::<String>())
        };
        let base = session.map_or_else(short, MaestroSettings::label);
        let key = thread.session.clone().unwrap_or_default();
        let given = self.0.entry(key).or_default();
        let label = thread.label.clone().filter(|label| !label.is_empty());
        let label = label.unwrap_or_else(|| {
            let mut label = base.clone();
            let mut next = 2;
            while given.contains(&label) {
                label = numbered(&base, next);
                next += 1;
            }
            label
        });
        given.push(label.clone());
        label
    }
}

async fn thread(
    tx: &Transaction<'_>,
    planned: &ThreadImport<'_>,
    label: &str,
    report: &mut MaestroReport,
) -> Result<(), StoreError> {
    let id = &planned.thread.id;
    if !make(
        tx,
        id,
        label,
        planned.fork.as_ref(),
        planned.thread.span_ms(),
    )
    .await?
    {
        // Somebody was quicker.
        report.known_threads += 1;
        return Ok(());
    }
    write_imported_thread(tx, id, &planned.entries).await?;
    report.threads += 1;
    report.forks += usize::from(planned.fork.is_some());
    report.entries += planned.entries.len() as u64;
    report.turns += planned
        .entries
        .iter()
        .filter(|entry| matches!(entry.body, conjure_core::log::EntryBody::TurnStarted { .. }))
        .count() as u64;
    report.left_out.merge(&planned.left_out);
    Ok(())
}

/// Makes a thread without entries of its own; whether it was not there.
async fn make(
    tx: &Transaction<'_>,
    id: &ThreadId,
    label: &str,
    fork: Option<&(ThreadId, u64)>,
    span_ms: Option<(i64, i64)>,
) -> Result<bool, StoreError> {
    let now = now_ms(tx.backend());
    let (created, updated) = span_ms.unzip();
    let mut turn = 0;
    if let Some((parent, from)) = fork {
        let shown = crate::lineage::VisibleEntries::read(tx.inner(), parent).await?;
        if *from <= shown.floor || *from > shown.last {
            return Err(StoreError::NoEntry {
                thread: parent.clone(),
                seq: *from,
                first: shown.floor + 1,
                last: shown.last,
            });
        }
        turn = shown.turn_of(tx.inner(), *from).await?;
    }
    let (parent, from) = match fork {
        Some((parent, from)) => (Some(parent.as_str()), *from),
        None => (None, 0),
    };
    let sql = format!(
        "INSERT INTO threads (id, parent_thread_id, fork_from_seq, last_seq, last_turn, \
         thread_label, created_at_ms, updated_at_ms) VALUES ($1, $2, $3, $3, $4, $5, \
         COALESCE($6, {now}), COALESCE($7, {now})) ON CONFLICT (id) DO NOTHING"
    );
    let values: [Value; 7] = [
        id.as_str().into(),
        parent.into(),
        from.into(),
        turn.into(),
        label.into(),
        created.into(),
        updated.into(),
    ];
    if tx.execute(&sql, values).await? == 0 {
        return Ok(false);
    }
    let sql = format!(
        "INSERT INTO thread_labels (thread_id, number, label, at_ms) \
         VALUES ($1, 1, $2, COALESCE($3, {now}))"
    );
    let values: [Value; 3] = [id.as_str().into(), label.into(), updated.into()];
    tx.execute(&sql, values).await?;
    Ok(true)
}

async fn session(
    tx: &Transaction<'_>,
    maestro: &Maestro,
    session: &MaestroSettings,
    choices: &MaestroChoices,
    report: &mut MaestroReport,
) -> Result<(), StoreError> {
    let sql = "SELECT id FROM sessions WHERE id = $1";
    if tx.one(sql, [session.id.as_str().into()]).await?.is_some() {
        report.known_sessions += 1;
        return Ok(());
    }
    let own = session
        .auth
        .as_ref()
        .and_then(|auth| choices.auths.get(auth));
    let Some(auth) = own.or(choices.auth.as_ref()) else {
        report.without_auth.push(session.label());
        return Ok(());
    };
    let mut left_out = session.left_out.clone();
    let name = match &session.name {
        Some(name) => {
            let free = free_name(tx, &session.id, name).await?;
            if free != *name {
                left_out.count(Left::Names);
            }
            Some(free)
        }
        None => None,
    };
    let active = active(tx, maestro, session, report).await?;
    let model = session
        .model
        .clone()
        .or_else(|| last_model(maestro, session));
    let sql = format!(
        "INSERT INTO sessions (id, name, auth_id, model_id, working_dir, persona, memory, tools, \
         mcps, chat_thread_id, latest_chat_entry_id, created_at_ms, updated_at_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, '{{}}', $8, $9, $10, COALESCE($11, {now}), \
         COALESCE($12, {now}))",
        now = now_ms(tx.backend())
    );
    let latest = active.as_ref().filter(|(_, last)| *last > 0);
    let values: [Value; 12] = [
        session.id.as_str().into(),
        name.clone().into(),
        auth.as_str().into(),
        model.clone().unwrap_or_default().into(),
        session
            .working_dir
            .as_ref()
            .unwrap_or(&choices.working_dir)
            .as_str()
            .into(),
        session.persona.to_string().into(),
        session.memory.to_string().into(),
        session.mcps.to_string().into(),
        active.as_ref().map(|(thread, _)| thread.to_string()).into(),
        latest
            .map(|(thread, last)| format!("{thread}/{last}"))
            .into(),
        session.created_at_ms.into(),
        session.updated_at_ms.into(),
    ];
    tx.execute(&sql, values).await?;
    let called = name.unwrap_or_else(|| session.label());
    if own.is_none() {
        report.given_auth.push(called.clone());
    }
    if model.is_none() {
        report.without_model.push(called.clone());
    }
    if session.working_dir.is_none() {
        report.without_working_dir.push(called.clone());
    }
    report.sessions.push(called);
    report.left_out.merge(&left_out);
    Ok(())
}

/// The thread that a session goes on in, and its newest entry: the one of its newest row, else the
/// one that grew last, else a new one.
async fn active(
    tx: &Transaction<'_>,
    maestro: &Maestro,
    session: &MaestroSettings,
    report: &mut MaestroReport,
) -> Result<Option<(ThreadId, u64)>, StoreError> {
    let of_session = |thread: &&super::MaestroThread| thread.session.as_ref() == Some(&session.id);
    let threads = || maestro.threads.iter().filter(of_session);
    let has_latest = |thread: &&super::MaestroThread| {
        let latest = session.latest_row.as_ref();
        latest.is_some_and(|row| thread.rows.contains(row))
    };
    let newest = threads().max_by_key(|thread| thread.span_ms().map(|(_, last)| last));
    let latest = maestro.threads.iter().find(has_latest);
    let thread = match latest.or(newest) {
        Some(thread) => thread.id.clone(),
        None => {
            let Some(thread) = self::of_session(&session.id) else {
                return Ok(None);
            };
            let span_ms = session.created_at_ms.map(|at_ms| (at_ms, at_ms));
            let made = make(tx, &thread, &session.label(), None, span_ms).await?;
            report.threads += usize::from(made);
            thread
        }
    };
    let sql = "SELECT last_seq FROM threads WHERE id = $1 AND removed = FALSE";
    let row = tx.one(sql, [thread.as_str().into()]).await?;
    row.map(|row| Ok((thread, number(&row, "last_seq")?)))
        .transpose()
}

/// The model that answered last in a session's threads.
fn last_model(maestro: &Maestro, session: &MaestroSettings) -> Option<String> {
    let of_session = |thread: &&super::MaestroThread| thread.session.as_ref() == Some(&session.id);
    let newest = maestro.threads.iter().filter(of_session);
    let newest = newest.max_by_key(|thread| thread.span_ms().map(|(_, last)| last))?;
    let messages = newest.chat.get("messages")?.as_array()?;
    let model = |message: &serde_json::Value| {
        let model = message.pointer("/_meta/model")?.as_str()?;
        (!model.is_empty()).then(|| model.to_owned())
    };
    messages.iter().rev().find_map(model)
}
