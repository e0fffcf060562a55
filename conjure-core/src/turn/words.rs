//! Sentences of the machine that a replay knows again in a log. Whoever changes one makes older
//! threads replay less far.

/// Stands in the result of a call whose turn was ended first.
pub(crate) const ENDED_BEFORE: &str = "turn was ended before this call was run";
/// Stands in the result of a call in a reply that was cut short.
pub(crate) const CUT_SHORT: &str = "reply was cut short";
/// Opens the notice that a request was refused as too long; the provider's words stand behind it.
pub(crate) const TOO_LONG: &str =
    "The conversation is too long for the model, so its older part is summarised. ";
/// Opens the notice that there is no summary; the reason stands behind it.
pub(crate) const NOT_SUMMARISED: &str = "The conversation could not be summarised: ";
/// Ends the notice that follow-ups were dropped; their number stands in front of it.
pub(crate) const DROPPED: &str = " waiting message(s) dropped.";
/// Stands in the result of a call that a limit keeps from running; the limit stands behind it.
pub(crate) const OVER_LIMIT: &str = "was not run: the limit ";
