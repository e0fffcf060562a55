//! Whether a call runs, as this session sees it: its table and its policy.

use conjure_core::chat::FunctionCall;
use conjure_core::routing::{Decision, Effects, Mode, Policy, PolicyCall};
use conjure_core::turn::{Judge, Verdict};

use crate::backend::Snapshot;

/// Judges calls by the table of a step and the session's policy.
pub(crate) struct SessionJudge<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
}

impl Judge for SessionJudge<'_> {
    fn judge(&self, call: &FunctionCall) -> Verdict {
        let Some(route) = self.snapshot.table().route(&call.name) else {
            return Verdict::Refuse {
                text: self.unknown(&call.name),
            };
        };
        let definition = &route.definition;
        let backend = route.backend.to_string();
        let plugin = definition.origin.plugin.as_ref().map(|name| {
            let version = definition.origin.version.as_deref().unwrap_or("?");
            format!("{name} {version}")
        });
        let lane = match definition.mode {
            Mode::Stateless => None,
            Mode::Stateful if &*route.kind == "native" => Some(format!(
                "{backend}\u{0}{}",
                route.skill().unwrap_or_default()
            )),
            Mode::Stateful => Some(backend.clone()),
        };
        let verdict = self.policy.decide(&PolicyCall {
            name: &call.name,
            backend: &backend,
            effects: definition.effects,
            arguments: &call.arguments,
        });
        let reason = match &verdict.rule {
            Some(rule) => format!("rule `{rule}`"),
            None => match definition.effects {
                Effects::Read => "it reads".to_owned(),
                Effects::Write => "it changes something".to_owned(),
                Effects::Destructive => "it may destroy something".to_owned(),
            },
        };
        match verdict.decision {
            Decision::Allow => Verdict::Run {
                backend,
                plugin,
                lane,
            },
            Decision::Ask => Verdict::Ask {
                backend,
                plugin,
                lane,
                reason,
            },
            Decision::Deny => Verdict::Refuse {
                text: format!("The call of `{}` is denied: {reason}.", call.name),
            },
        }
    }
}

impl SessionJudge<'_> {
    fn unknown(&self, name: &str) -> String {
        let known: Vec<&str> = self
            .snapshot
            .table()
            .routes()
            .iter()
            .take(50)
            .map(|r| r.name.as_str())
            .collect();
        if known.is_empty() {
            return format!("There is no tool `{name}`; this session has none.");
        }
        format!(
            "There is no tool `{name}`. The tools are: {}.",
            known.join(", ")
        )
    }
}
