//! What going on with another model would change, told before anything is sent.

use std::sync::Arc;

use conjure_core::context::{compile, conversation};
use conjure_core::log::{Entry, recover};
use conjure_core::switch::{self, SwitchReport};

use super::actor::Actor;
use super::calls::Calls;
use super::derived::compile_settings;
use super::handle::{SessionError, Settings};
use super::spec::SessionSpec;
use super::streamed::unfinished;
use crate::shared::Shared;
use crate::store::{Record, ThreadId};

impl Actor {
    /// What changing these settings would change about the next request.
    pub(super) fn check(&self, change: &Settings) -> Result<SwitchReport, SessionError> {
        let spec = change.applied_to(&self.spec);
        let (target, endpoint) = self.shared.recipient(&spec)?;
        let snapshot = self.current.load_full();
        let settings = compile_settings(&spec, &self.shared.models, &snapshot, target.clone());
        let entries = self.recorder.entries();
        let like = compile(entries, snapshot.table(), &settings);
        Ok(switch::check(
            &conversation(entries),
            &target,
            &endpoint,
            like,
        ))
    }
}

/// The same for a thread that nobody has open: with the tools that a session of this specification
/// would have. Writes nothing.
pub(crate) async fn check(
    shared: Arc<Shared>,
    spec: SessionSpec,
    thread: &ThreadId,
) -> Result<SwitchReport, SessionError> {
    let spec = spec.with_base_url_at_its_provider();
    let (target, endpoint) = shared.recipient(&spec)?;
    let entries = entries(shared.log.read(thread)?);
    let calls = Calls::open(Arc::clone(&shared), spec.clone()).await?;
    let settings = compile_settings(&spec, &shared.models, calls.snapshot(), target.clone());
    let like = compile(&entries, calls.table(), &settings);
    calls.close().await;
    Ok(switch::check(
        &conversation(&entries),
        &target,
        &endpoint,
        like,
    ))
}

/// The entries of a thread as the next session would find them: what a crash left open is closed.
fn entries(records: Vec<Record>) -> Vec<Entry> {
    let unfinished = unfinished(&records);
    let mut entries: Vec<Entry> = records
        .into_iter()
        .filter_map(|record| match record {
            Record::Entry(entry) => Some(entry),
            _ => None,
        })
        .collect();
    let add = |entries: &mut Vec<Entry>, body| {
        entries.push(Entry {
            seq: entries.last().map_or(1, |last| last.seq + 1),
            turn: entries.last().map_or(0, |last| last.turn),
            at_ms: 0,
            body,
        });
    };
    unfinished
        .into_iter()
        .for_each(|body| add(&mut entries, body));
    for body in recover(&entries) {
        add(&mut entries, body);
    }
    entries
}
