//! Whether and how a request asks for thoughts.
//!
//! A budget (`enabled`) is what models up to 4.5 know; from 4.6 on they decide themselves
//! (`adaptive`), and from 4.7 on a budget is an error. What conflicts with thinking wins over it.

use serde_json::{Value, json};

use crate::chat::{Content, Message, Role};
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::model_family;

/// The least budget that the API takes.
const LEAST_BUDGET: u32 = 1024;

/// The `thinking` field, or none; why there is none although it was asked for goes to `notes`.
pub(super) fn thinking(request: &ModelRequest, notes: &mut Vec<String>) -> Option<Value> {
    let wanted = request.thinking_tokens.filter(|tokens| *tokens > 0)?;
    let forced = matches!(request.tool_choice, ToolChoice::Any | ToolChoice::Tool(_));
    if forced && !request.tools.is_empty() {
        notes.push(
            "thinking is off: it cannot be combined with a tool that must be called".to_owned(),
        );
        return None;
    }
    if thinks_adaptively(&request.model) {
        // Without `display` the newer of these models send thoughts without text.
        return Some(json!({"type": "adaptive", "display": "summarized"}));
    }
    if lacks_thoughts(request.messages.messages()) {
        notes.push(
            "thinking is off until the next message: the calls that are being answered were made \
             without thoughts of this model"
                .to_owned(),
        );
        return None;
    }
    // The budget is a part of max_tokens; a quarter stays for the answer.
    let most = request.max_tokens / 4 * 3;
    if most < LEAST_BUDGET {
        notes.push(format!(
            "thinking is off: max_tokens {} leaves no room for it",
            request.max_tokens
        ));
        return None;
    }
    let budget = wanted.clamp(LEAST_BUDGET, most);
    if budget != wanted {
        notes.push(format!("thinking budget {wanted} is sent as {budget}"));
    }
    Some(json!({"type": "enabled", "budget_tokens": budget}))
}

/// Whether the model decides itself how much it thinks. Models of other makers that speak this
/// wire know budgets.
fn thinks_adaptively(model: &str) -> bool {
    let family = model_family(model);
    let Some(rest) = family.strip_prefix("claude-") else {
        return false;
    };
    // `claude-3-7-sonnet`, `claude-opus-4-6`, `claude-opus-5`.
    let numbers: Vec<u32> = rest
        .split(['-', '.'])
        .filter_map(|word| word.parse().ok())
        .filter(|number| *number < 1000)
        .collect();
    match numbers.as_slice() {
        // A name without a number is newer than those that are listed here.
        [] => true,
        [major] => *major > 4,
        [major, minor, ..] => (*major, *minor) >= (4, 6),
    }
}

/// Whether the calls that are being answered were made without a thought in front. With a budget
/// this API rejects such a turn; it comes from another provider, or from before thinking was on.
fn lacks_thoughts(messages: &[Message]) -> bool {
    let last_user = messages.iter().rposition(|m| m.role == Role::User);
    let turn = messages
        .get(last_user.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let calls = turn.iter().any(|message| message.calls().next().is_some());
    let first = turn.iter().find(|m| m.role == Role::Assistant);
    let thinks = first
        .and_then(|message| message.content.first())
        .is_some_and(|part| matches!(part.content, Content::Reasoning { .. }));
    calls && !thinks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_take_a_budget_and_models_that_decide_themselves() {
        for model in [
            "claude-3-7-sonnet-20250219",
            "claude-sonnet-4-20250514",
            "claude-opus-4-1",
            "claude-haiku-4-5-20251001",
            "claude-sonnet-4.5",
            "other-model-9",
        ] {
            assert!(!thinks_adaptively(model), "{model}");
        }
        for model in [
            "claude-opus-4-6",
            "claude-sonnet-4-6",
            "claude-opus-4-7",
            "claude-opus-5",
            "claude-sonnet-5-20260801",
            "claude-mythos-preview",
        ] {
            assert!(thinks_adaptively(model), "{model}");
        }
    }
}
