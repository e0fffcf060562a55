//! Whether and how a request asks for thoughts, and which of those that are there it holds.
//!
//! A budget (`enabled`) is what models up to 4.5 know; from 4.6 on they decide themselves
//! (`adaptive`), and from 4.7 on a budget is an error. What conflicts with thinking wins over it.
//!
//! To the API all replies since the person spoke are one turn, and a turn thinks or it does not
//! ("Toggling thinking modes in conversations" in its documentation). With a budget the turn has to
//! begin with a thought; replies to results may go on without one, as the model itself does. Without
//! thinking the turn must hold no thought at all. Newer models take away what does not fit; those
//! that know budgets refuse.

use serde_json::{Value, json};

use crate::chat::{Content, Message, Part, Role};
use crate::request::{ModelRequest, ToolChoice};
use crate::wire::model_family;

/// The least budget that the API takes.
const MIN_BUDGET: u32 = 1024;

/// What a request says about thinking.
pub(super) struct Thinking {
    /// The `thinking` field. None: the model's default.
    pub(super) field: Option<Value>,
    /// The message from which on no thought is sent.
    pub(super) thoughts_end: usize,
}

/// What a request says about thinking; why that is not what was asked for goes to `notes`.
pub(super) fn thinking(request: &ModelRequest, notes: &mut Vec<String>) -> Thinking {
    let messages = request.messages.messages();
    let turn = turn_start(messages);
    let field = field(request, turn, notes);
    let refused = field.is_none() && is_claude_with_budget(&request.model);
    let thoughts_end = if refused { turn } else { messages.len() };
    let unsent = messages.get(thoughts_end..).unwrap_or_default();
    if unsent.iter().flat_map(|it| &it.content).any(is_thought) {
        notes.push("the thoughts of this turn are left out: thinking is off in it now".to_owned());
    }
    Thinking {
        field,
        thoughts_end,
    }
}

/// Whether a part is a thought.
pub(super) fn is_thought(part: &Part) -> bool {
    matches!(part.content, Content::Reasoning { .. })
}

fn field(request: &ModelRequest, turn: usize, notes: &mut Vec<String>) -> Option<Value> {
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
    if lacks_thoughts(request.messages.messages(), turn) {
        notes.push(
            "thinking is off until the next message: this turn did not begin with thoughts of \
             this model"
                .to_owned(),
        );
        return None;
    }
    // The budget is a part of max_tokens; a quarter stays for the answer.
    let most = request.max_tokens / 4 * 3;
    if most < MIN_BUDGET {
        notes.push(format!(
            "thinking is off: max_tokens {} leaves no room for it",
            request.max_tokens
        ));
        return None;
    }
    let budget = wanted.clamp(MIN_BUDGET, most);
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

/// Whether it is one of Anthropic's models that know budgets: those hold to the rules of turns.
fn is_claude_with_budget(model: &str) -> bool {
    model_family(model).starts_with("claude-") && !thinks_adaptively(model)
}

/// The place behind the message of the person's that the running turn answers. What the person says
/// beside results is in the same message as these, and ends no turn for certain.
fn turn_start(messages: &[Message]) -> usize {
    let begins = |(at, message): (usize, &Message)| {
        message.role == Role::User && !follows(messages, at, Role::Tool)
    };
    let newest = messages.iter().enumerate().rposition(begins);
    newest.map_or(0, |at| at + 1)
}

/// Whether what begins the running turn, or begins it anew if words beside results do that, is no
/// thought. It comes from another provider, or from a time when thinking was off.
fn lacks_thoughts(messages: &[Message], turn: usize) -> bool {
    let mut replies = messages.iter().enumerate().skip(turn);
    replies.any(|(at, message)| {
        message.role == Role::Assistant
            && !follows(messages, at, Role::Tool)
            && !message.content.first().is_some_and(is_thought)
    })
}

/// Whether the message at `at` comes right behind one of this role.
fn follows(messages: &[Message], at: usize, role: Role) -> bool {
    let before = at.checked_sub(1).and_then(|at| messages.get(at));
    before.is_some_and(|before| before.role == role)
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
