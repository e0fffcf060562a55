//! What going on with another model would change, told before anything is sent.

use std::sync::Arc;

use conjure_core::log::Entry;
use conjure_core::request::{compile, conversation};
use conjure_core::switch::{self, SwitchReport};

use super::calls::ToolSession;
use super::derived::compile_settings;
use super::error::SessionError;
use super::host_state::HostState;
use super::loaded_thread::LoadedThread;
use crate::backend::ToolSnapshot;
use conjure_config::SessionSpec;
use conjure_store::ThreadId;

/// A check of a thread as it was when it was asked for. To make it takes as long as to compile a
/// request.
pub(crate) struct SwitchCheck {
    host: Arc<HostState>,
    spec: SessionSpec,
    snapshot: Arc<ToolSnapshot>,
    entries: Vec<Entry>,
}

impl SwitchCheck {
    pub(super) fn new(
        host: Arc<HostState>,
        spec: SessionSpec,
        snapshot: Arc<ToolSnapshot>,
        entries: &[Entry],
    ) -> Self {
        let entries = entries.to_vec();
        Self {
            host,
            spec,
            snapshot,
            entries,
        }
    }

    /// Makes it.
    ///
    /// # Errors
    /// When the specification names no provider that is known.
    pub(crate) fn report(&self) -> Result<SwitchReport, SessionError> {
        switch_report(&self.host, &self.spec, &self.snapshot, &self.entries)
    }
}

/// What going on with this specification would change about the next request of a thread with these
/// entries and tools.
fn switch_report(
    host: &HostState,
    spec: &SessionSpec,
    snapshot: &ToolSnapshot,
    entries: &[Entry],
) -> Result<SwitchReport, SessionError> {
    let (target, endpoint) = host.recipient(spec)?;
    let settings = compile_settings(spec, &host.models, snapshot, target.clone());
    let like = compile(entries, snapshot.table(), &settings);
    let conversation = conversation(entries);
    Ok(switch::check(&conversation, &target, &endpoint, like))
}

/// Switch report for a thread that nobody has open, with the tools that a session of this specification
/// would have. Writes nothing.
pub(crate) async fn check(
    shared: Arc<HostState>,
    spec: SessionSpec,
    thread: &ThreadId,
) -> Result<SwitchReport, SessionError> {
    let spec = spec.with_provider_base_url();
    // Before anything is opened for it.
    shared.recipient(&spec)?;
    let loaded = LoadedThread::read(&*shared.log, thread).await?;
    let entries = loaded.into_closed_entries();
    let calls = ToolSession::open(Arc::clone(&shared), spec.clone()).await?;
    let report = switch_report(&shared, &spec, &calls.snapshot(), &entries);
    calls.close().await;
    report
}
