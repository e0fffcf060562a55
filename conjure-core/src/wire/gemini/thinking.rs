//! How much a model of Google's thinks: tokens up to 2.5, a word from 3 on.

use serde_json::{Value, json};

use crate::request::ModelRequest;
use crate::wire::model_family;

/// Whether a model is of the third generation or newer. Names without a number are.
pub(super) fn is_third(model: &str) -> bool {
    let family = model_family(model);
    let Some(rest) = family.strip_prefix("gemini-") else {
        return false;
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u32>().map_or(true, |number| number >= 3)
}

/// The `thinkingConfig` field, or none: models that always think reject a budget of 0.
pub(super) fn thinking(request: &ModelRequest, notes: &mut Vec<String>) -> Option<Value> {
    let family = model_family(&request.model);
    let wanted = request.thinking_tokens.filter(|tokens| *tokens > 0);
    if is_third(&request.model) {
        let tokens = wanted?;
        let level = if tokens <= 4_096 { "low" } else { "high" };
        return Some(json!({"includeThoughts": true, "thinkingLevel": level}));
    }
    if !family.starts_with("gemini-2.5") {
        if wanted.is_some() {
            notes.push(format!(
                "thinking is left out: {} does not think",
                request.model
            ));
        }
        return None;
    }
    let (least, most, must) = if family.contains("flash-lite") {
        (512, 24_576, false)
    } else if family.contains("flash") {
        (1, 24_576, false)
    } else {
        (128, 32_768, true)
    };
    match wanted {
        None if must => None,
        None => Some(json!({"thinkingBudget": 0})),
        Some(wanted) => {
            let budget = wanted.clamp(least, most);
            if budget != wanted {
                notes.push(format!("thinking budget {wanted} is sent as {budget}"));
            }
            Some(json!({"includeThoughts": true, "thinkingBudget": budget}))
        }
    }
}
