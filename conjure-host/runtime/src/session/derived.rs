//! What follows from a session's spec.

use std::time::Duration;

use conjure_core::chat::Message;
use conjure_core::context::{BackendInstructions, instructions};
use conjure_core::repair::RepairTarget;
use conjure_core::request::{CompileSettings, Room, message_tokens};
use conjure_core::routing::{Policy, PolicyDecision, Route};
use conjure_core::turn;
use conjure_skill_sdk::protocol::CatalogRequest;
use serde_json::json;

use crate::backend::ToolSnapshot;
use conjure_config::{CompactAt, SessionSpec, SpecError};
use conjure_providers::{ModelBook, ModelFacts};

/// The most tokens of one reply, where nothing else is said.
const MAX_TOKENS: u32 = 8192;

/// Provider and model that the session talks to, as backends are told.
pub(crate) fn catalog_request(spec: &SessionSpec) -> CatalogRequest {
    CatalogRequest {
        provider: spec.provider.clone(),
        model: spec.model.clone(),
    }
}

/// What the turn machine cares about.
pub(crate) fn turn_settings(spec: &SessionSpec, models: &ModelBook) -> turn::TurnSettings {
    let mut settings = turn::TurnSettings::new(
        spec.provider.clone().unwrap_or_default(),
        spec.model.clone().unwrap_or_default(),
    );
    if let Some(most) = spec.max_iterations {
        settings.max_iterations = most;
    }
    settings.budget = turn::TurnBudget {
        tokens: spec.budget.tokens,
        calls: spec.budget.calls,
    };
    settings.full_at = window_room(spec, models).compact_at;
    settings.compaction = match (spec.compact_at, room(spec, models).compact_at) {
        (Some(CompactAt::Never), _) => turn::CompactionTrigger::Never,
        (_, Some(tokens)) => turn::CompactionTrigger::At(tokens),
        (_, None) => turn::CompactionTrigger::Refused,
    };
    settings
}

/// The room that the session's model has, and where a compaction is due.
pub(crate) fn room(spec: &SessionSpec, models: &ModelBook) -> Room {
    let room = window_room(spec, models);
    match spec.compact_at {
        Some(CompactAt::Tokens(tokens)) => Room {
            compact_at: Some(tokens),
            ..room
        },
        _ => room,
    }
}

/// The room in the model's window, where that is known, whatever the session says.
fn window_room(spec: &SessionSpec, models: &ModelBook) -> Room {
    let window = facts(spec, models).context;
    window.map_or_else(Room::default, |window| {
        Room::of(window, max_tokens(spec, models))
    })
}

/// Whether a compaction can ever be due where the session says that it is.
///
/// # Errors
/// [`SpecError::Invalid`] says the least that `compact_at` may be.
pub(crate) fn check_compact_at(spec: &SessionSpec, models: &ModelBook) -> Result<(), SpecError> {
    let Some(CompactAt::Tokens(tokens)) = spec.compact_at else {
        return Ok(());
    };
    // Every request begins with it, and no summary takes its place.
    let persona = spec.persona.as_deref();
    let persona = persona.map_or(0, |persona| message_tokens(&Message::user(persona)));
    let least = room(spec, models).min_compact_at() + persona;
    if tokens >= least {
        return Ok(());
    }
    Err(SpecError::Invalid {
        message: format!(
            "`compact_at` = {tokens} can never apply: the persona and the newest part of a \
             conversation stay as they are, and a summary takes room too, which comes to {least} \
             tokens for this model; write {least} or more, or \"never\""
        ),
    })
}

/// What a request of the session is compiled with.
pub(crate) fn compile_settings(
    spec: &SessionSpec,
    models: &ModelBook,
    snapshot: &ToolSnapshot,
    target: RepairTarget,
) -> CompileSettings {
    CompileSettings {
        persona: spec.persona.clone(),
        memory: spec.memory.clone(),
        max_tokens: max_tokens(spec, models),
        thinking_tokens: spec.thinking_tokens,
        working_dir: Some(snapshot.working_dir().to_owned()),
        skills_prompt: snapshot.skills_prompt().to_owned(),
        instructions: instructions(&visible_instructions(&spec.call_policy(), snapshot)),
        ..CompileSettings::new(target)
    }
}

/// What the backends say about their use, for the model or a client. A backend, or a server behind
/// one, of whose tools none may be called says nothing: the session leaves them out, or its rules
/// deny them whatever the arguments are.
pub(crate) fn visible_instructions(
    policy: &Policy,
    snapshot: &ToolSnapshot,
) -> Vec<BackendInstructions> {
    let may_be_called =
        |route: &Route| policy.verdict_for(route, &json!({})).decision != PolicyDecision::Deny;
    let said = snapshot.instructions();
    let told = said.filter(|said| {
        let server = said.server.as_deref();
        let is_its = |route: &Route| {
            *route.backend == *said.backend && (server.is_none() || route.skill() == server)
        };
        let mut routes = snapshot.table().routes().iter();
        !snapshot.offers_tools(&said.backend, server)
            || routes.any(|route| is_its(route) && may_be_called(route))
    });
    told.collect()
}

/// The most tokens of one reply.
fn max_tokens(spec: &SessionSpec, models: &ModelBook) -> u32 {
    let most = facts(spec, models).max_output;
    let most = most.and_then(|most| u32::try_from(most).ok());
    spec.max_tokens
        .unwrap_or(MAX_TOKENS.min(most.unwrap_or(MAX_TOKENS)))
}

fn facts(spec: &SessionSpec, models: &ModelBook) -> ModelFacts {
    let known = spec.provider.as_deref().zip(spec.model.as_deref());
    known
        .and_then(|(provider, model)| models.facts(provider, model))
        .unwrap_or_default()
}

/// Time for a call where its tool says nothing else.
pub(crate) fn call_timeout(spec: &SessionSpec) -> Duration {
    Duration::from_millis(spec.call_timeout_ms.unwrap_or(30_000))
}

/// The most bytes of one result that the model reads.
pub(crate) fn most_bytes(spec: &SessionSpec) -> usize {
    spec.max_output_bytes.unwrap_or(32 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persona_counts_to_the_least_that_compact_at_may_be() {
        let checked = |persona: Option<String>| {
            let spec = SessionSpec {
                persona,
                compact_at: Some(CompactAt::Tokens(4_100)),
                ..SessionSpec::default()
            };
            check_compact_at(&spec, &ModelBook::default())
        };
        assert!(checked(None).is_ok());
        assert!(checked(Some("Be brief.".to_owned())).is_ok());
        let refused = checked(Some("word ".repeat(8_000))).unwrap_err();
        assert!(matches!(refused, SpecError::Invalid { .. }), "{refused}");
    }
}
