//! Texts of somebody else's, such as a model or a plugin, as a terminal may show them.
//!
//! Takes out what steers a terminal and what nobody sees: a command that is approved by what is
//! shown of it is shown whole.

use std::borrow::Cow;

/// A text without control characters except line ends and tabs, without what turns the direction of
/// writing, and without characters that have no width. Joiners and the choice of a glyph stay
/// where they belong to a script or to an emoji.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_suspect) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        let stays = match c {
            '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => {
                before.is_some_and(|before: char| !before.is_ascii() && !is_suspect(before))
            }
            c => !is_suspect(c),
        };
        if stays {
            cleaned.push(c);
        }
        before = Some(c);
    }
    Cow::Owned(cleaned)
}

fn is_suspect(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c,
            // Direction of writing.
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // Without width.
            | '\u{00ad}' | '\u{034f}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
            | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            // Letters that are blank.
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
            // Tags and the rest of the plane of such characters.
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_somebody_elses_cannot_steer_the_terminal() {
        for (given, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}]0;title\u{7}\u{1b}[2Jx", "]0;title[2Jx"),
            ("rm -rf /\rls", "rm -rf /ls"),
            ("\u{9b}31mred", "31mred"),
            ("a\u{202e}b\u{2066}c", "abc"),
            ("Grüße, 世界", "Grüße, 世界"),
        ] {
            assert_eq!(clean(given), shown, "{given:?}");
        }
    }

    #[test]
    fn what_nobody_sees_is_not_there() {
        for (given, shown) in [
            ("r\u{200b}m", "rm"),
            ("r\u{200d}m", "rm"),
            ("ls\u{feff} \u{2060}-la\u{ad}", "ls -la"),
            ("ls\u{e0041}\u{e0020}\u{e007f}", "ls"),
            ("a\u{fe01}\u{e0100}\u{3164}b", "ab"),
            ("one\u{2028}two", "onetwo"),
            // Of a script and of an emoji they are a part.
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
            ("👩\u{200d}💻 ❤\u{fe0f}", "👩\u{200d}💻 ❤\u{fe0f}"),
            ("é\u{200d}\u{200d}\u{200d}x", "é\u{200d}x"),
        ] {
            assert_eq!(clean(given), shown, "{given:?}");
        }
    }
}
