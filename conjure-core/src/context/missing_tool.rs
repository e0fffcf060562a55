//! What the model is told of a call whose tool is not there: why, and which tools it may have meant.

use super::call_failure::{CallFailure, CallFailureKind, CallRefusal};
use crate::routing::{Route, RoutingError, RoutingTable};

/// How many tools a message names.
const MAX_LISTED: usize = 10;
/// How alike two names must be for the one to be offered for the other, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;
/// The most characters of an unknown name that are compared.
const NAME_CHARS: usize = 80;

/// What the model is told of a call whose tool is not there. `was_removed`: the session once had it.
#[must_use]
pub fn no_such_tool(table: &RoutingTable, name: &str, was_removed: bool) -> CallRefusal {
    if let Some(quarantined) = table.find_quarantined(name) {
        let reason = match &quarantined.error {
            RoutingError::Held(held) => format!(
                "it cannot be used: {}, and only the user can let it be offered again",
                held.reason
            ),
            error => format!("it cannot be used: {error}"),
        };
        let failure = CallFailure {
            tool: name,
            backend: Some(quarantined.source.backend.as_str()),
            kind: CallFailureKind::NotReady { reason: &reason },
        };
        return failure.into();
    }
    let reason = match was_removed {
        true => "the tool was removed while the session ran, and no backend has it now",
        false => "no backend of this session has such a tool",
    };
    let failure = CallFailure {
        tool: name,
        backend: None,
        kind: CallFailureKind::NoSuchTool {
            reason,
            alternatives: &describe_alternatives(table, name),
        },
    };
    failure.into()
}

/// Sentence about the tools that there are instead.
fn describe_alternatives(table: &RoutingTable, name: &str) -> String {
    let all = table.routes();
    match similar_routes(table, name).as_slice() {
        [] if all.is_empty() => {
            "This session has no tools; go on without them and say so.".to_owned()
        }
        [] => {
            let named: Vec<String> = all.iter().take(MAX_LISTED).map(quoted).collect();
            let more = match all.len().saturating_sub(MAX_LISTED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("The tools are {}{more}.", named.join(", "))
        }
        near => {
            let named: Vec<String> = near.iter().copied().map(quoted).collect();
            format!("Did you mean {}?", named.join(" or "))
        }
    }
}

/// Up to three tools whose names are like this one, the most alike first.
fn similar_routes<'t>(table: &'t RoutingTable, name: &str) -> Vec<&'t Route> {
    let wanted = normalised_name(name);
    let routes = table.routes().iter();
    let mut scored: Vec<(f64, &Route)> = routes
        .filter_map(|route| {
            let known = normalised_name(route.name.as_str());
            let score = if known == wanted {
                1.0
            } else if wanted.len() >= 3
                && (known.ends_with(&format!("_{wanted}"))
                    || wanted.ends_with(&format!("_{known}")))
            {
                0.9
            } else if known.len().abs_diff(wanted.len()) > known.len().max(wanted.len()) / 2 {
                0.0
            } else {
                strsim::normalized_damerau_levenshtein(&known, &wanted)
            };
            (score >= MIN_SIMILARITY).then_some((score, route))
        })
        .collect();
    // Stable, so equals keep the table's order.
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    if let Some((best, _)) = scored.first().copied()
        && best >= 1.0
    {
        scored.retain(|(score, _)| *score >= best);
    }
    scored.into_iter().take(3).map(|(_, route)| route).collect()
}

fn quoted(route: &Route) -> String {
    format!("`{}`", route.name)
}

/// A name without what models get wrong about names.
fn normalised_name(name: &str) -> String {
    name.chars()
        .take(NAME_CHARS)
        .map(|c| match c {
            '-' | '.' | '/' | ':' | ' ' => '_',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}
