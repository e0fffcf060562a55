//! What a person reads of an answer that is none, or not a whole one.

use conjure_core::chat::Event;
use conjure_core::log::TurnOutcome;

use super::output::{RESET, YELLOW, print_note};

/// Providers' words for a refusal: one for it, and those for an end as any other, with which an answer
/// is cut short only where what came is marked as a refusal.
const REFUSALS: [&str; 5] = ["refusal", "completed", "stop", "eos", "end_turn"];

/// Says so where a turn ended as it should and no text came in it.
pub(crate) fn note_empty_answer(event: &Event) {
    if let Event::Done { outcome, text, .. } = event
        && outcome == TurnOutcome::Completed.as_str()
        && text.trim().is_empty()
    {
        print_note(format_args!(
            "{YELLOW}note:{RESET} the model answered nothing"
        ));
    }
}

/// Why an answer was cut short of whose end nothing was seen.
pub(crate) const CUT_SHORT: &str = "the answer was cut short by the provider";

/// Why an answer was cut short: by the provider's stop reason, with the text that came.
pub(crate) fn cut_short(stop_reason: Option<&str>, text: &str) -> String {
    let reason = stop_reason.unwrap_or_default();
    let refuses = REFUSALS
        .iter()
        .any(|word| word.eq_ignore_ascii_case(reason));
    let what = match reason {
        _ if refuses => "the model refused to answer".to_owned(),
        "" => CUT_SHORT.to_owned(),
        reason => format!("{CUT_SHORT} ({reason})"),
    };
    let came = match text.trim().is_empty() {
        true => "no text came",
        false => "what came is above",
    };
    format!("{what}; {came}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_as_one_and_what_did_not_come_is_not_above() {
        for (reason, text, words) in [
            (
                Some("max_tokens"),
                "One,",
                "the answer was cut short by the provider (max_tokens); what came is above",
            ),
            (
                Some("max_tokens"),
                "",
                "the answer was cut short by the provider (max_tokens); no text came",
            ),
            (
                None,
                "One,",
                "the answer was cut short by the provider; what came is above",
            ),
            (
                Some("completed"),
                "I can't.",
                "the model refused to answer; what came is above",
            ),
            (
                Some("STOP"),
                "",
                "the model refused to answer; no text came",
            ),
        ] {
            assert_eq!(cut_short(reason, text), words);
        }
    }
}
