//! How much a model of OpenAI thinks: a word, where other providers take tokens.

use crate::wire::model_family;

/// Whether the model reasons, so that it knows `reasoning` and can encrypt what it thought. Asking
/// another one for that is an error. Names that are not known are newer ones, and those reason.
pub(in crate::wire) fn reasons(model: &str) -> bool {
    let family = model_family(model);
    let plain = ["gpt-3", "gpt-4", "chatgpt", "davinci", "babbage"];
    !plain.iter().any(|name| family.starts_with(name)) && !family.contains("-chat")
}

/// The word for a budget in tokens.
pub(in crate::wire) fn effort(tokens: u32) -> &'static str {
    match tokens {
        0..=2_048 => "low",
        2_049..=12_288 => "medium",
        _ => "high",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_reason_and_models_that_do_not() {
        for model in [
            "gpt-5.2",
            "openai/gpt-5-nano",
            "o3",
            "o4-mini-2025-04-16",
            "gpt-oss-120b",
        ] {
            assert!(reasons(model), "{model}");
        }
        for model in [
            "gpt-4o",
            "gpt-4.1-nano-2025-04-14",
            "chatgpt-4o-latest",
            "gpt-5-chat-latest",
        ] {
            assert!(!reasons(model), "{model}");
        }
        assert_eq!([1, 4_096, 32_000].map(effort), ["low", "medium", "high"]);
    }
}
