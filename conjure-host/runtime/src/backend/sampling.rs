//! What plugins ask a session's own model.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use conjure_core::chat::{Message, Meta, Part, Usage};
use conjure_core::log::Spending;
use conjure_core::repair::RepairTarget;
use conjure_core::request::ModelRequest;
use conjure_core::turn::TurnInput;
use conjure_skill_sdk::protocol::{Sample, Sampled};

use super::reports::{ReportSender, TaskReport};
use conjure_providers::{Provider, ReplySink};

/// The session's present provider and model. Empty for a session without a model.
pub(crate) type CurrentModel = Arc<ArcSwapOption<SamplingModel>>;

/// A model that plugins may ask.
pub(crate) struct SamplingModel {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) model: String,
    /// The session that pays, once it runs.
    pub(crate) session: Option<ReportSender>,
}

/// Asks in the name of a plugin. What it cost is the session's.
pub(crate) async fn sample(
    asked: &CurrentModel,
    plugin: &str,
    sample: Sample,
) -> Result<Sampled, String> {
    let Some(now) = asked.load_full() else {
        return Err("this session has no model".to_owned());
    };
    let request = request(&now.provider.target(&now.model), sample);
    let sink = ReplySink::new(|_| {}, |_| {});
    let begun = Instant::now();
    let answer = now.provider.respond(&request, &sink).await;
    let paid = match &answer {
        Ok(response) => Some(response.clone()),
        Err(error) => error.partial.as_deref().cloned().or_else(|| sink.partial()),
    };
    let mut usage = sink.wasted_usage(paid.is_none());
    if paid.is_some() || usage != Usage::default() {
        let response = paid.unwrap_or_default();
        usage += response.usage;
        let meta = Meta {
            provider: request.provider.clone(),
            model: non_empty_or(&response.model, &now.model),
            usage,
            retries: sink.retries(),
            latency_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            partial: answer.is_err(),
            ..Meta::default()
        };
        let on = Spending::Sample {
            plugin: plugin.to_owned(),
        };
        let input = Box::new(TurnInput::Spent { purpose: on, meta });
        if let Some(session) = &now.session {
            // Nobody listens any more when the session is gone.
            let _ = session.send(TaskReport::Input(input)).await;
        }
    }
    let response = answer.map_err(|error| error.to_string())?;
    Ok(Sampled {
        model: non_empty_or(&response.model, &now.model),
        text: response.parts.iter().filter_map(Part::as_text).collect(),
        content: None,
        stop_reason: response.stop.map(|stop| stop.raw),
    })
}

fn non_empty_or(told: &str, known: &str) -> String {
    if told.is_empty() { known } else { told }.to_owned()
}

fn request(target: &RepairTarget, sample: Sample) -> ModelRequest {
    let messages = sample
        .messages
        .into_iter()
        .map(|message| match message.role.as_str() {
            "assistant" => Message::assistant(message.text),
            _ => Message::user(message.text),
        })
        .collect();
    let mut request = ModelRequest::bare(target, messages);
    request.system = sample.system.into_iter().collect();
    request.max_tokens = sample.max_tokens.unwrap_or(1024);
    request
}
