//! Names that people are shown in lists: none with characters that nobody sees, under which it would
//! be taken for another.

use std::borrow::Cow;

use conjure_core::foreign_text::clean;

/// The first character of a name that is not shown, or changes how the others are.
pub fn hidden_character(name: &str) -> Option<char> {
    let Cow::Owned(shown) = clean(name) else {
        return None;
    };
    let mut shown = shown.chars().peekable();
    name.chars().find(|c| shown.next_if_eq(c).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_found() {
        for fine in ["site", "Grüße, 世界", "\u{1f469}\u{200d}\u{1f4bb} work"] {
            assert_eq!(hidden_character(fine), None, "{fine}");
        }
        for (name, hidden) in [
            ("site\u{202e}nalp", '\u{202e}'),
            ("si\u{200b}te", '\u{200b}'),
            ("\u{feff}site", '\u{feff}'),
            ("site\u{2066}", '\u{2066}'),
        ] {
            assert_eq!(hidden_character(name), Some(hidden));
        }
    }
}
