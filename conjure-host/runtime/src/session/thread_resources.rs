//! What the requests and the calls of an open thread are made in: its host, its directories, and
//! the way on which their tasks report.

use std::sync::Arc;

use conjure_providers::Provider;
use tokio::sync::mpsc;

use super::host_state::HostState;
use super::session_dirs::{Exchange, SessionDirs};
use crate::artifacts::Artifacts;
use crate::backend::reports::{ReportSender, TaskReport};
use crate::backend::request_context::RequestContext;
use crate::backend::sampling::{CurrentModel, SamplingModel};

/// What the tasks of an open thread are given, and where their reports arrive.
pub(super) struct ThreadResources {
    pub(super) host: Arc<HostState>,
    pub(super) request_context: RequestContext,
    pub(super) artifacts: Arc<Artifacts>,
    /// Model that answers plugins that ask one.
    current_model: CurrentModel,
    /// Ends with the thread.
    _exchange: Exchange,
    pub(super) reports: ReportSender,
    pub(super) report_receiver: mpsc::Receiver<Box<TaskReport>>,
}

impl ThreadResources {
    pub(super) fn new(host: Arc<HostState>, dirs: SessionDirs) -> Self {
        let (reports, received) = ReportSender::channel();
        Self {
            host,
            request_context: dirs.request_context,
            artifacts: dirs.services.artifacts,
            current_model: dirs.current_model,
            _exchange: dirs.exchange,
            reports,
            report_receiver: received,
        }
    }

    /// From here on this model answers plugins that ask for one; the session pays.
    pub(super) fn set_current_model(&self, provider: &Arc<dyn Provider>, model: &str) {
        self.current_model.store(Some(Arc::new(SamplingModel {
            provider: Arc::clone(provider),
            model: model.to_owned(),
            session: Some(self.reports.clone()),
        })));
    }
}
