//! What going on with another model would change, told before anything is sent.

use std::sync::Arc;

use conjure_core::request::{compile, conversation};
use conjure_core::switch::{self, SwitchReport};

use super::actor::Actor;
use super::calls::Calls;
use super::derived::compile_settings;
use super::handle::{SessionError, Settings};
use super::reading::Thread;
use conjure_config::SessionSpec;

use super::host_state::HostState;
use conjure_store::ThreadId;

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
    shared: Arc<HostState>,
    spec: SessionSpec,
    thread: &ThreadId,
) -> Result<SwitchReport, SessionError> {
    let spec = spec.with_base_url_at_its_provider();
    let (target, endpoint) = shared.recipient(&spec)?;
    let entries = Thread::of(shared.log.read(thread).await?).closed();
    let calls = Calls::open(Arc::clone(&shared), spec.clone()).await?;
    let settings = compile_settings(&spec, &shared.models, &calls.snapshot(), target.clone());
    let like = compile(&entries, &calls.table(), &settings);
    calls.close().await;
    Ok(switch::check(
        &conversation(&entries),
        &target,
        &endpoint,
        like,
    ))
}
