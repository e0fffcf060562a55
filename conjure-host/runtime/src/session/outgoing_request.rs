//! Requests as they leave an open thread: made of its log, its tools and its settings.

use std::sync::Arc;

use conjure_core::chat::Meta;
use conjure_core::repair::RepairTarget;
use conjure_core::request::{ModelRequest, compile};
use conjure_core::turn;
use tracing::Span;

use super::compaction::{Compaction, SummaryPlan};
use super::current_settings::CurrentSettings;
use super::derived::compile_settings;
use super::model::{ActiveRequest, ReplyPieces};
use super::output_form::OutputForm;
use super::recorder::Recorder;
use super::thread_resources::ThreadResources;
use super::tools::Tools;
use crate::backend::contributors::{ContributedRequest, PendingObservation};
use crate::spans;

/// What a request is made of, and made with.
pub(super) struct OutgoingRequest<'a> {
    pub(super) resources: &'a ThreadResources,
    pub(super) settings: &'a CurrentSettings,
    /// The settings that the turn machine uses now.
    pub(super) turn_settings: &'a turn::TurnSettings,
    pub(super) tools: &'a mut Tools,
    pub(super) recorder: &'a Recorder,
    /// The span of the turn that it is part of.
    pub(super) turn: &'a Span,
    pub(super) observation: PendingObservation,
    /// The form that the answer must have.
    pub(super) form: Option<&'a OutputForm>,
}

impl OutgoingRequest<'_> {
    /// Asks for the reply that a turn waits for.
    pub(super) fn reply(self, number: u64) -> ActiveRequest {
        let request = ModelRequest {
            response_format: self.form.map(|form| form.format().clone()),
            ..self.compile_request()
        };
        let records = Arc::clone(self.recorder.queue());
        let window = Arc::clone(&self.resources.host.window);
        self.send(number, request, Some(ReplyPieces::new(records, window)))
    }

    /// Asks for a summary.
    pub(super) fn summary(self, plan: SummaryPlan) -> Compaction {
        let entries = self.recorder.entries();
        let request = plan.request(entries, &self.target(), self.compile_request());
        // Its own row of numbers: a summary is no request of the machine's.
        let number = u64::MAX - entries.len() as u64;
        plan.start(self.send(number, request, None))
    }

    /// Recipient of the conversation, and the wire that it is sent over: the name alone does not say it.
    fn target(&self) -> RepairTarget {
        let (provider, now) = (self.settings.provider().as_ref(), self.turn_settings);
        let models = &self.resources.host.models;
        models.target(&now.provider, provider, &now.model)
    }

    /// The request that the log, the tools of the step and the settings make.
    fn compile_request(&self) -> ModelRequest {
        let (spec, models) = (self.settings.spec(), &self.resources.host.models);
        let snapshot = self.tools.current();
        let settings = compile_settings(spec, models, &snapshot, self.target());
        compile(self.recorder.entries(), snapshot.table(), &settings)
    }

    /// Lets a request leave, with what backends add to it.
    fn send(
        self,
        number: u64,
        request: ModelRequest,
        pieces: Option<ReplyPieces>,
    ) -> ActiveRequest {
        let Self {
            resources, tools, ..
        } = self;
        let provider = Arc::clone(self.settings.provider());
        let auth = provider.auth();
        let meta = Meta {
            provider: request.provider.clone(),
            model: request.model.clone(),
            auth_type: auth.map(|auth| auth.kind.clone()),
            auth_name: auth.map(|auth| auth.name.clone()),
            tools: request.tools.len(),
            tool_tokens: tools.tokens(&request),
            ..Meta::default()
        };
        let share = ContributedRequest {
            contributors: tools.contributors(),
            request_context: resources.request_context.clone(),
            artifacts: Arc::clone(&resources.artifacts),
            observation: self.observation,
            reports: resources.reports.clone(),
            request,
        };
        let thread = self.recorder.thread().as_str();
        let span = spans::model_call(self.turn, thread, &meta.provider, &meta.model);
        let done = resources.reports.clone();
        ActiveRequest::send(number, provider, meta, share, span, done, pieces)
    }
}
