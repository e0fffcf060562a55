//! How a thread is opened: its log, its directories, its backends, and what there is to say about
//! it being open again.

use std::sync::Arc;

use conjure_core::chat::Event;
use conjure_core::turn::{Machine, TurnInput};

use super::after_log::AfterLog;
use super::approvals::{ApprovalMode, Approvals};
use super::budget::{Budget, PriorUsage};
use super::current_settings::CurrentSettings;
use super::derived::{check_compact_at, turn_settings};
use super::error::SessionError;
use super::history::record_settings;
use super::host_state::HostState;
use super::model_requests::ModelRequests;
use super::open_thread::OpenThread;
use super::questions::Questions;
use super::recorder::Recorder;
use super::running_calls::RunningCalls;
use super::session_dirs::SessionDirs;
use super::showing;
use super::table_notices::reopened_notice;
use super::thread_files::recorded_files;
use super::thread_handle::ThreadHandle;
use super::thread_name::ThreadName;
use super::thread_resources::ThreadResources;
use super::tools::{Tools, exclusion_notices};
use super::turns::Turns;
use crate::backend::plugin_grants::PluginGrants;
use conjure_config::SessionSpec;
use conjure_providers::Provider;
use conjure_store::ThreadId;

/// What is known of a saved session beside its specification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SavedSessionState {
    /// What it used up before.
    pub(crate) spent: PriorUsage,
    pub(crate) approvals: ApprovalMode,
}

impl SavedSessionState {
    /// Questions of plugins, where somebody may come: they wait as long as calls do.
    fn questions(self) -> Option<Arc<Questions>> {
        match self.approvals {
            ApprovalMode::Within(patience) => Some(Questions::new(patience)),
            ApprovalMode::Attended | ApprovalMode::Unattended => None,
        }
    }
}

/// Opens a thread, a new one where none is named. What it gives back is driven by whoever has it,
/// and seen by others through the handle.
///
/// # Errors
/// [`SessionError`]; nothing stays open then.
pub(crate) async fn open(
    host: Arc<HostState>,
    spec: SessionSpec,
    thread: Option<ThreadId>,
    saved: Option<SavedSessionState>,
) -> Result<(Box<OpenThread>, ThreadHandle), SessionError> {
    spec.check()?;
    // Of a saved session it was looked at when it was set.
    if saved.is_none() {
        check_compact_at(&spec, &host.models)?;
        PluginGrants::of(&spec.plugins).check(&host.instances.registry.snapshot())?;
    }
    let spec = spec.with_provider_base_url();
    let provider = host.provider(&spec)?;
    let thread = thread.unwrap_or_else(ThreadId::fresh);
    let recorder = Recorder::open(&*host.log, &thread).await?;
    attach(host, spec, saved, recorder, provider).await
}

async fn attach(
    host: Arc<HostState>,
    spec: SessionSpec,
    saved: Option<SavedSessionState>,
    recorder: Recorder,
    provider: Arc<dyn Provider>,
) -> Result<(Box<OpenThread>, ThreadHandle), SessionError> {
    let mut dirs = SessionDirs::make(&host, &spec, recorder.thread(), Some(&provider), None)?;
    if saved.is_some() {
        dirs.check_working_dir(&spec)?;
    }
    let questions = saved.and_then(SavedSessionState::questions);
    if let Some(questions) = &questions {
        dirs.set_asker(questions.asker(Arc::clone(&host.asker)));
    }
    // Before the first look at the plugins, so that no change is lost.
    let registry = host.instances.registry.subscribe();
    let mut toolbox = dirs.attach(&spec, recorder.entries()).await?;
    let snapshot = match toolbox.snapshot() {
        Ok(snapshot) => Arc::new(snapshot),
        Err(error) => {
            toolbox.close().await;
            return Err(error.into());
        }
    };
    let files = recorded_files(recorder.entries());
    let fetch = |backend: &str| toolbox.fetch(backend);
    dirs.services.artifacts.restore(&files, fetch);
    let resources = ThreadResources::new(host, dirs);
    if let Some(questions) = &questions {
        questions.set_actor(resources.reports.clone());
    }
    let model = spec.model.clone().unwrap_or_default();
    resources.set_current_model(&provider, &model);
    let approvals = saved.map_or(ApprovalMode::Unattended, |saved| saved.approvals);
    let tools = Tools::new(toolbox, registry, snapshot, recorder.entries());
    let handle = ThreadHandle::new(&recorder, &resources, &tools, questions.clone());
    let mut thread = Box::new(OpenThread {
        machine: Machine::new(
            turn_settings(&spec, &resources.host.models),
            tools.newest().table().version(),
            recorder.entries(),
        ),
        approvals: Approvals::new(&spec, approvals, questions),
        settings: CurrentSettings::new(spec, provider),
        tools,
        recorder,
        resources,
        after_log: AfterLog::default(),
        model: ModelRequests::default(),
        calls: RunningCalls::default(),
        budget: Budget::new(saved.map(|saved| saved.spent).unwrap_or_default()),
        turns: Turns::default(),
        name: ThreadName::default(),
    });
    begin(&mut thread);
    Ok((thread, handle))
}

/// Writes what there is to say about a thread that was opened: its session's settings, and what is
/// other than it was.
fn begin(thread: &mut OpenThread) {
    thread.recorder.recover();
    let working_dir = &thread.resources.request_context.working_dir;
    record_settings(&mut thread.recorder, thread.settings.spec(), working_dir);
    if let Some(change) = thread.tools.versions_since(thread.recorder.entries()) {
        let text = reopened_notice(&change);
        thread.recorder.event(Event::Notice { text });
        thread.input(TurnInput::Table(change));
    }
    for reason in exclusion_notices(thread.tools.newest().table().quarantined()) {
        showing::notice(&mut thread.recorder, reason);
    }
    if let Some(text) = thread.settings.provider().notice() {
        thread.recorder.event(Event::Notice { text });
    }
}
