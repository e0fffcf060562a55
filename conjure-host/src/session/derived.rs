//! What follows from a session's spec.

use std::time::Duration;

use conjure_core::routing::{Decision as PolicyDecision, Pattern, Policy, Rule};
use conjure_core::turn;

use super::spec::SessionSpec;

/// The rules of the session file, those that deny first.
pub(crate) fn policy(spec: &SessionSpec) -> Policy {
    let rules = |patterns: &[Pattern], decision: PolicyDecision| {
        patterns
            .iter()
            .map(|pattern| Rule {
                pattern: pattern.clone(),
                decision,
            })
            .collect::<Vec<_>>()
    };
    let mut all = rules(&spec.policy.deny, PolicyDecision::Deny);
    all.extend(rules(&spec.policy.allow, PolicyDecision::Allow));
    all.extend(rules(&spec.policy.ask, PolicyDecision::Ask));
    Policy {
        rules: all,
        ..Policy::default()
    }
}

/// What the turn machine cares about.
pub(crate) fn turn_settings(spec: &SessionSpec) -> turn::Settings {
    let mut settings = turn::Settings::new(
        spec.provider.clone().unwrap_or_default(),
        spec.model.clone().unwrap_or_default(),
    );
    if let Some(most) = spec.max_iterations {
        settings.max_iterations = most;
    }
    settings.budget = turn::Budget {
        tokens: spec.budget.tokens,
        calls: spec.budget.calls,
        wall_ms: spec.budget.wall_ms,
    };
    settings.compact_at = spec.compact_at;
    settings
}

/// Time for a call where its tool says nothing else.
pub(crate) fn call_timeout(spec: &SessionSpec) -> Duration {
    Duration::from_millis(spec.call_timeout_ms.unwrap_or(30_000))
}

/// The most bytes of one result that the model reads.
pub(crate) fn most_bytes(spec: &SessionSpec) -> usize {
    spec.max_output_bytes.unwrap_or(32 * 1024)
}
