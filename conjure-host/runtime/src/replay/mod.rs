//! Recording a thread: what its requests are compiled with is put together here, for
//! [`record`] to do the rest.
//!
//! Replaying needs no host: [`conjure_core::replay::replay`] does it with the cassette alone.

use std::collections::HashMap;

use conjure_core::context::instructions;
use conjure_core::log::Entry;
use conjure_core::replay::{Cassette, Recipient, RecordedTool, ReplaySetup, record};
use conjure_core::routing::Policy;

use crate::Host;
use crate::artifacts::{Artifact, digest_aside};
use crate::session::{
    LoadedThread, SessionError, ToolSession, compile_settings, instructions_told, room,
    thread_files, turn_settings,
};
use conjure_config::SessionSpec;
use conjure_store::ThreadId;

impl Host {
    /// Records a thread as provider exchanges and tool results, with the tools, the rules and the
    /// settings that a session of this specification would have. Reads the thread and the files
    /// that are on this machine, opens the backends and closes them again; writes nothing, sends
    /// nothing and runs no call.
    ///
    /// What the thread itself tells of its settings wins over the specification.
    ///
    /// # Errors
    /// [`SessionError`] when there is no such thread, or the tools cannot be made ready.
    pub async fn record(
        &self,
        spec: SessionSpec,
        thread: &ThreadId,
    ) -> Result<Cassette, SessionError> {
        let records = self.shared.log.read(thread).await?;
        let entries = LoadedThread::of(records).closed();
        let spec = spec.with_base_url_at_its_provider();
        let policy = spec.call_policy();
        let calls = self.calls_unchecked(spec.clone()).await?;
        let setup = self.setup(&spec, policy, &calls, &entries);
        calls.close().await;
        let files = thread_files(&entries, &self.shared.instances.data_dir, thread);
        Ok(record(thread.as_str(), &entries, setup, &hashes(files)))
    }

    fn setup(
        &self,
        spec: &SessionSpec,
        policy: Policy,
        calls: &ToolSession,
        entries: &[Entry],
    ) -> ReplaySetup {
        let models = &self.shared.models;
        let snapshot = calls.snapshot();
        let mut setup = ReplaySetup::new(turn_settings(spec, models));
        setup.persona = spec.persona.clone();
        setup.memory = spec.memory.clone();
        setup.working_dir = Some(snapshot.working_dir().to_owned());
        setup.skills_prompt = snapshot.skills_prompt().to_owned();
        setup.instructions = instructions(&instructions_told(&policy, &snapshot));
        setup.thinking_tokens = spec.thinking_tokens;
        setup.policy = policy;
        setup.tools = snapshot
            .table()
            .routes()
            .iter()
            .map(RecordedTool::of)
            .collect();
        for (provider, model) in setup.asked(entries) {
            let mut of = spec.clone();
            of.provider = Some(provider.clone());
            of.model = Some(model.clone());
            // A provider that nobody here knows is told of by the record.
            let Ok((target, endpoint)) = self.shared.recipient(&of) else {
                continue;
            };
            let settings = compile_settings(&of, models, &snapshot, target.clone());
            setup.recipients.push(Recipient {
                provider,
                model,
                wire: target.wire,
                endpoint,
                images: target.images,
                files: target.files,
                max_tokens: settings.max_tokens,
                window: room(&of, models).window,
            });
        }
        setup
    }
}

/// The hashes of a thread's files, by their handles, where they are on this machine.
fn hashes(files: Vec<Artifact>) -> HashMap<String, String> {
    files
        .into_iter()
        .filter_map(|file| {
            let (hash, _) = digest_aside(file.path.as_deref()?).ok()?;
            Some((file.id, hash))
        })
        .collect()
}
