//! What becomes of an open thread when its tools are others.

use conjure_core::chat::Event;
use conjure_core::turn::TurnInput;

use super::open_thread::OpenThread;
use super::showing;
use super::table_notices::table_notice;
use super::tools::{TableUpdate, ToolChange};

/// Something changed tools.
pub(super) fn follow(thread: &mut OpenThread, change: ToolChange) {
    match change {
        ToolChange::Plugins => {
            thread.tools.follow_plugins();
            tools_changed(thread);
        }
        ToolChange::Approved => tools_changed(thread),
        ToolChange::Backends => {
            let provider = thread.settings.spec().provider.as_ref();
            let reports = &thread.resources.reports;
            for told in thread.tools.take_backend_events(provider, reports) {
                thread.recorder.event(told);
            }
        }
        ToolChange::Renewed(catalogs) => {
            thread.tools.set_catalogs(catalogs);
            tools_changed(thread);
            use_newest(thread);
        }
        ToolChange::TransitionOver(finished) => {
            let was_awaited = thread.tools.is_renewing();
            if let Some(reason) = thread.tools.finish_transition(*finished) {
                showing::notice(&mut thread.recorder, reason);
            }
            tools_changed(thread);
            if was_awaited {
                use_newest(thread);
            }
        }
    }
}

/// The settings name other backends than before.
pub(super) fn backends_changed(thread: &mut OpenThread) {
    let backends = &thread.settings.spec().backends;
    for reason in thread.tools.set_backends(backends) {
        showing::notice(&mut thread.recorder, reason);
    }
    tools_changed(thread);
    use_newest(thread);
}

/// Makes the next snapshot, and says what is another one in it.
pub(super) fn tools_changed(thread: &mut OpenThread) {
    let TableUpdate { excluded, change } = thread.tools.update();
    for reason in excluded {
        showing::notice(&mut thread.recorder, reason);
    }
    let Some(change) = change else { return };
    let text = table_notice(&change);
    thread.recorder.event(Event::Notice { text });
    thread.input(TurnInput::Table(change));
    if !thread.is_busy() {
        // Nothing runs, so nothing holds on to the table before.
        thread.tools.use_newest();
    }
}

/// What is made again for other settings has the newest tools, unless a call runs or waits for a
/// decision: that was made on the table of its step.
fn use_newest(thread: &OpenThread) {
    if thread.calls.is_empty() && thread.pending().is_empty() {
        thread.tools.use_newest();
    }
}
