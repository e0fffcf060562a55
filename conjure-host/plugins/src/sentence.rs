//! What a plugin or the system says, ended as a sentence, so that words of the host's can follow it.

use std::borrow::Cow;

/// A reason with one full stop at its end, whatever it came with. A question, an exclamation and an
/// ellipsis stay as they are.
pub(crate) fn sentence(reason: &str) -> Cow<'_, str> {
    let reason = reason.trim_end();
    if reason.ends_with(['!', '?', '…']) || reason.ends_with("...") {
        return Cow::Borrowed(reason);
    }
    Cow::Owned(format!("{}.", reason.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_ends_in_one_full_stop_and_an_ellipsis_stays() {
        for reason in ["ended", "ended.", "ended..", "ended. \n"] {
            assert_eq!(sentence(reason), "ended.", "{reason:?}");
        }
        for reason in ["ended...", "ended…", "ended!", "ended?"] {
            assert_eq!(sentence(reason), reason);
        }
    }
}
