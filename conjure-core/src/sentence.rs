//! What others say, ended as a sentence, so that words of the host's can follow it.

use std::borrow::Cow;

/// A reason with one full stop at its end, whatever it came with. A question, an exclamation and an
/// ellipsis stay as they are.
#[must_use]
pub fn sentence(reason: &str) -> Cow<'_, str> {
    let reason = reason.trim();
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
        for reason in ["no disk", "no disk.", "no disk..", " no disk. "] {
            assert_eq!(sentence(reason), "no disk.", "{reason:?}");
        }
        for reason in ["no disk...", "no disk…", "no disk!", "no disk?"] {
            assert_eq!(sentence(reason), reason);
        }
    }
}
