//! What is shown of a thread while a turn runs, beside the reply: what calls made, notices.

use conjure_core::chat::{Event, Meta, Usage};
use conjure_core::log::{EntryBody, NoticeReason, Spending, StateMove};
use conjure_core::turn::{TurnInput, describe_notice};
use conjure_skill_sdk::protocol::Spent;

use super::recorder::Recorder;
use crate::artifacts::{Artifact, Artifacts};
use crate::backend::CallReport;

/// Writes that there is a file, and shows it.
pub(super) fn file(
    recorder: &mut Recorder,
    artifact: &Artifact,
    source: &str,
    call_id: Option<&str>,
) {
    let call_id = call_id.map(str::to_owned);
    recorder.entry(EntryBody::File {
        artifact: artifact.reference(),
        source: source.to_owned(),
        call_id: call_id.clone(),
        place: artifact
            .path
            .as_ref()
            .map(|path| path.display().to_string()),
        remote: artifact.remote.clone(),
        holder: artifact.holder.clone(),
    });
    recorder.event(Event::File {
        artifact: artifact.reference(),
        source: source.to_owned(),
        call_id,
    });
}

/// Writes what came of a call beside its result; the turn machine is told the rest.
pub(super) fn call_report(
    recorder: &mut Recorder,
    artifacts: &Artifacts,
    report: CallReport,
) -> Vec<TurnInput> {
    let call_id = &report.output.call_id;
    for artifact in &report.files {
        let known = with_current_source(artifacts, artifact);
        // Meanwhile another call has found it too, or said that it made it.
        let is_calls = known.source == artifact.source;
        let call_id = is_calls.then_some(call_id.as_str());
        file(recorder, &known, &known.source, call_id);
    }
    for artifact in &report.other_files {
        let known = with_current_source(artifacts, artifact);
        file(recorder, &known, &known.source, None);
    }
    if let Some((backend, state)) = report.state {
        recorder.entry(EntryBody::BackendState { backend, state });
    }
    let spent = report.spent.into_iter();
    let spent = spent.map(|(backend, spent)| delegated(backend, spent));
    let done = TurnInput::CallDone {
        output: report.output,
        end: report.end,
        duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        meta: report.structured.or(report.server_items),
    };
    spent.chain([done]).collect()
}

/// The file of a report with the source that it has by now: reports are written in the order in which
/// they come, which need not be that in which the files were found.
fn with_current_source(artifacts: &Artifacts, artifact: &Artifact) -> Artifact {
    let mut known = artifact.clone();
    if let Some(current) = artifacts.current(&artifact.id) {
        known.source = current.source;
        known.holder = current.holder;
    }
    known
}

/// What a backend paid for at a model of its own.
fn delegated(backend: String, spent: Spent) -> TurnInput {
    TurnInput::Spent {
        purpose: Spending::Delegated { backend },
        meta: Meta {
            provider: spent.provider,
            model: spent.model,
            usage: Usage {
                input: spent.input,
                cache_read: spent.cache_read,
                cache_write: spent.cache_write,
                output: spent.output,
                reasoning: spent.reasoning,
            },
            ..Meta::default()
        },
    }
}

/// Tells a person something, and the thread, which keeps the reason.
pub(super) fn notice(recorder: &mut Recorder, reason: NoticeReason) {
    let text = describe_notice(&reason);
    recorder.entry(EntryBody::Notice {
        text: text.clone(),
        reason: Some(reason),
    });
    recorder.event(Event::Notice { text });
}

/// Tells a person what has become of a plugin's state, and the thread, out of which the model is told.
/// The turn machine does not count the tokens of that line: it is a few dozen of them, and the next
/// reply comes with the provider's own count.
pub(super) fn state_moved(recorder: &mut Recorder, moved: StateMove) {
    notice(recorder, NoticeReason::StateMoved(moved));
}
