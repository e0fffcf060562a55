//! Recording a thread: what its requests are compiled with is put together here, for
//! [`record`] to do the rest. And replaying one that was recorded at once.
//!
//! Replaying a cassette needs no host: [`conjure_core::replay::replay`] does it with that alone.

mod request_size;

use std::collections::HashMap;

use async_recursion::async_recursion as boxed;
use conjure_core::context::instructions;
use conjure_core::log::Entry;
use conjure_core::replay::{
    Cassette, Recipient, RecordedTool, ReplayReport, ReplaySetup, record, replay,
};
use conjure_core::routing::Policy;

use crate::Host;
use crate::artifacts::{Artifact, digest_path};
use crate::backend::ToolSnapshot;
use crate::session::{
    LoadedThread, SessionError, ToolSession, compile_settings, room, thread_files, turn_settings,
    visible_instructions,
};
use conjure_config::SessionSpec;
use conjure_store::{StoreError, ThreadId};
use request_size::RequestSizes;

/// A model of a provider for which requests are encoded in place of whom they went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherModel {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// A thread that was recorded and replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedThread {
    /// Recording of the thread.
    pub cassette: Cassette,
    /// What the replay found.
    pub report: ReplayReport,
}

/// Why a thread is not replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The thread cannot be read, or its tools cannot be made ready.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// All of its requests together are more than may be in memory.
    #[error(
        "its requests have about {size} MiB in all, and {most} MiB may be in memory here: \
         `conjure thread export ID --cassette FILE` and `conjure replay FILE` do it at a terminal"
    )]
    TooLarge {
        /// About how many MiB they have.
        size: u64,
        /// How many they may have.
        most: u64,
    },
}

/// A thread that can be replayed: no backend is open for it any more.
pub struct PreparedReplay {
    thread: ThreadId,
    parts: RecordingParts,
}

/// What a recording is made of.
struct RecordingParts {
    entries: Vec<Entry>,
    setup: ReplaySetup,
    /// Another model, as it is spoken to.
    recipient: Option<Recipient>,
}

impl Host {
    /// Reads a thread and what its requests are compiled with, as [`Host::record`] does, for
    /// [`Host::replay`] to do the rest. With another model its requests are encoded for that too. Opens
    /// the backends and closes them again, which takes as long as they take.
    ///
    /// All requests of the thread are in memory when it is replayed, of which there may be `most` MiB.
    ///
    /// # Errors
    /// [`ReplayError`].
    #[boxed]
    pub async fn prepare_replay(
        &self,
        spec: SessionSpec,
        thread: &ThreadId,
        to: Option<&OtherModel>,
        most: u64,
    ) -> Result<PreparedReplay, ReplayError> {
        let spec = self.resolve_provider(spec).await?;
        let entries = self.recorded_entries(thread).await?;
        let (entries, sizes) = run_blocking(move || {
            let sizes = RequestSizes::of(&entries);
            (entries, sizes)
        })
        .await?;
        // Before backends are opened for a thread that is too large by itself.
        check_size(sizes.conversations(), most)?;
        // Behind a pointer: making backends ready is large, and this future would be as large.
        let parts = Box::pin(self.recording_parts(spec, entries, to)).await?;
        check_size(sizes.with(&parts.setup), most)?;
        Ok(PreparedReplay {
            thread: thread.clone(),
            parts,
        })
    }

    /// Records and replays a thread: nothing is sent, and no call runs.
    ///
    /// # Errors
    /// [`ReplayError`] when the host is about to end.
    #[boxed]
    pub async fn replay(&self, prepared: PreparedReplay) -> Result<ReplayedThread, ReplayError> {
        let PreparedReplay { thread, parts } = prepared;
        let (to, cassette) = self.cassette(&thread, parts).await?;
        let replayed = run_blocking(move || {
            let report = replay(&cassette, to.as_ref());
            ReplayedThread { cassette, report }
        });
        Ok(replayed.await?)
    }

    /// Records a thread as provider exchanges and tool results, with the tools, the rules and the
    /// settings that a session of this specification would have. Reads the thread and the files
    /// that are on this machine, opens the backends and closes them again; writes nothing, sends
    /// nothing and runs no call.
    ///
    /// What the thread itself tells of its settings wins over the specification.
    ///
    /// # Errors
    /// [`SessionError`] when there is no such thread, or the tools cannot be made ready.
    #[boxed]
    pub async fn record(
        &self,
        spec: SessionSpec,
        thread: &ThreadId,
    ) -> Result<Cassette, SessionError> {
        let entries = self.recorded_entries(thread).await?;
        let parts = Box::pin(self.recording_parts(spec, entries, None)).await?;
        let (_, cassette) = self.cassette(thread, parts).await?;
        Ok(cassette)
    }

    /// The entries of a thread as the next session finds them. Its events are not read where its last
    /// turn has ended.
    async fn recorded_entries(&self, thread: &ThreadId) -> Result<Vec<Entry>, SessionError> {
        let loaded = LoadedThread::read(&*self.shared.log, thread).await?;
        Ok(loaded.into_closed_entries())
    }

    async fn recording_parts(
        &self,
        spec: SessionSpec,
        entries: Vec<Entry>,
        to: Option<&OtherModel>,
    ) -> Result<RecordingParts, SessionError> {
        let spec = spec.with_provider_base_url();
        let policy = spec.call_policy();
        let calls = self.calls_unchecked(spec.clone()).await?;
        let setup = self.setup(&spec, policy, &calls, &entries);
        let to = to.map(|OtherModel { provider, model }| {
            let known = self.recipient_for(&spec, &calls.snapshot(), provider, model);
            known.unwrap_or_else(|| Recipient::of_name(provider, model))
        });
        calls.close().await;
        Ok(RecordingParts {
            entries,
            setup,
            recipient: to,
        })
    }

    async fn cassette(
        &self,
        thread: &ThreadId,
        parts: RecordingParts,
    ) -> Result<(Option<Recipient>, Cassette), SessionError> {
        let (thread, data_dir) = (thread.clone(), self.shared.instances.data_dir.clone());
        let recorded = run_blocking(move || {
            let RecordingParts {
                entries,
                setup,
                recipient: to,
            } = parts;
            let files = thread_files(&entries, &data_dir, &thread);
            let cassette = record(thread.as_str(), &entries, setup, &hashes(files));
            (to, cassette)
        });
        recorded.await
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
        setup.instructions = instructions(&visible_instructions(&policy, &snapshot));
        setup.thinking_tokens = spec.thinking_tokens;
        setup.policy = policy;
        setup.tools = snapshot
            .table()
            .routes()
            .iter()
            .map(RecordedTool::of)
            .collect();
        for (provider, model) in setup.requested_models(entries) {
            // A provider that nobody here knows is told of by the record.
            let known = self.recipient_for(spec, &snapshot, &provider, &model);
            setup.recipients.extend(known);
        }
        setup
    }

    /// How a model of a provider is spoken to; nothing where nobody here knows the provider.
    fn recipient_for(
        &self,
        spec: &SessionSpec,
        snapshot: &ToolSnapshot,
        provider: &str,
        model: &str,
    ) -> Option<Recipient> {
        let models = &self.shared.models;
        let mut of = spec.clone();
        of.provider = Some(provider.to_owned());
        of.model = Some(model.to_owned());
        let (target, endpoint) = self.shared.recipient(&of).ok()?;
        let settings = compile_settings(&of, models, snapshot, target.clone());
        Some(Recipient {
            provider: provider.to_owned(),
            model: model.to_owned(),
            wire: target.wire,
            endpoint,
            images: target.images,
            files: target.files,
            max_tokens: settings.max_tokens,
            window: room(&of, models).window,
        })
    }
}

/// Refuses requests of so many bytes where they are more than `most` MiB.
fn check_size(bytes: u64, most: u64) -> Result<(), ReplayError> {
    let size = bytes / (1024 * 1024);
    match size > most {
        true => Err(ReplayError::TooLarge { size, most }),
        false => Ok(()),
    }
}

/// Does what would keep a thread of the runtime from other work.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SessionError> {
    let done = tokio::task::spawn_blocking(work).await;
    // It ends early where the runtime does.
    done.map_err(|_| StoreError::Closed.into())
}

/// The hashes of a thread's files, by their handles, where they are on this machine.
fn hashes(files: Vec<Artifact>) -> HashMap<String, String> {
    files
        .into_iter()
        .filter_map(|file| {
            let (hash, _) = digest_path(file.path.as_deref()?).ok()?;
            Some((file.id, hash))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use conjure_config::BackendSpec;
    use conjure_core::chat::{Message, Meta, Usage};
    use conjure_core::log::{EntryBody, TurnOutcome};
    use conjure_core::wire::Wire;
    use conjure_store::Record;

    use super::*;

    async fn host_with(thread: &ThreadId, bodies: Vec<EntryBody>) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().data_dir(dir.path()).build().await.unwrap();
        let entries = bodies.into_iter().zip(1..).map(|(body, seq)| Entry {
            seq,
            turn: 1,
            at_ms: 5,
            body,
        });
        let records: Vec<Record> = entries.map(Record::Entry).collect();
        let mut log = host.log().open(thread).await.unwrap();
        log.append(&records, true).await.unwrap();
        drop(log);
        (dir, host)
    }

    fn turn(said: &str) -> Vec<EntryBody> {
        let meta = Meta {
            provider: "anthropic".to_owned(),
            model: "a-model".to_owned(),
            ..Meta::default()
        };
        let answer = Message {
            meta: Some(meta),
            ..Message::assistant("yes")
        };
        let message = |message| EntryBody::Message { message };
        vec![
            EntryBody::TurnStarted {
                turn_id: "t".to_owned(),
            },
            message(Message::user(said)),
            message(answer),
            EntryBody::TurnEnded {
                turn_id: "t".to_owned(),
                outcome: TurnOutcome::Completed,
                usage: Usage::default(),
                stop_reason: None,
            },
        ]
    }

    fn spec() -> SessionSpec {
        SessionSpec {
            provider: Some("anthropic".to_owned()),
            model: Some("a-model".to_owned()),
            backends: vec![BackendSpec::all_native()],
            ..SessionSpec::default()
        }
    }

    async fn replayed(
        host: &Host,
        spec: SessionSpec,
        thread: &ThreadId,
        to: Option<&OtherModel>,
    ) -> Result<ReplayedThread, ReplayError> {
        let prepared = host.prepare_replay(spec, thread, to, 1).await?;
        host.replay(prepared).await
    }

    #[tokio::test]
    async fn a_thread_is_replayed_without_a_key_for_whom_it_went_to_and_for_another_model() {
        let thread = ThreadId::parse("t").unwrap();
        let (_dir, host) = host_with(&thread, turn("hello")).await;
        let found = replayed(&host, spec(), &thread, None).await.unwrap();
        let exchanges = found.cassette.steps.iter();
        let exchanges: Vec<_> = exchanges.filter_map(|s| s.exchange.as_ref()).collect();
        assert_eq!(exchanges.len(), 1, "{found:?}");
        assert_eq!(exchanges[0].wire, Wire::Anthropic);
        assert_eq!(found.report.requests, 1);
        assert_eq!(found.report.divergence, None);
        let to = OtherModel {
            provider: "gemini".to_owned(),
            model: "another".to_owned(),
        };
        let other = replayed(&host, spec(), &thread, Some(&to)).await.unwrap();
        let elsewhere = other.report.elsewhere.unwrap();
        assert_eq!((elsewhere.requests, elsewhere.wire), (1, Wire::Gemini));
    }

    #[tokio::test]
    async fn a_thread_whose_requests_are_too_large_is_left_to_the_command_line() {
        let thread = ThreadId::parse("t").unwrap();
        let (_dir, host) = host_with(&thread, turn(&"x".repeat(2 << 20))).await;
        let error = replayed(&host, spec(), &thread, None).await.unwrap_err();
        assert!(
            matches!(error, ReplayError::TooLarge { size: 2, most: 1 }),
            "{error}"
        );
        assert!(error.to_string().contains("conjure replay FILE"), "{error}");
    }

    #[tokio::test]
    async fn instructions_that_make_all_requests_too_large_count_too() {
        let thread = ThreadId::parse("t").unwrap();
        let (_dir, host) = host_with(&thread, turn("hello")).await;
        let spec = SessionSpec {
            persona: Some("x".repeat(2 << 20)),
            ..spec()
        };
        let error = replayed(&host, spec, &thread, None).await.unwrap_err();
        assert!(
            matches!(error, ReplayError::TooLarge { size: 2, most: 1 }),
            "{error}"
        );
    }
}
