//! Texts of somebody else's, such as a model, a plugin or a server, as a terminal may show them and
//! as a model may read them.
//!
//! Takes out what steers a terminal and what nobody sees: a command that is approved by what is
//! shown of it is shown whole, and a person sees what a server tells the model. Everything that the
//! program prints or logs goes through here, so that no text is forgotten.

use std::borrow::Cow;

/// A text without control characters except line ends and tabs, without what turns the direction of
/// writing, and without characters that have no width. Joiners and the choice of a glyph stay
/// where they belong to a script or to an emoji.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        let stays = match c {
            '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => {
                before.is_some_and(|before: char| !before.is_ascii() && !is_invisible(before))
            }
            c => !is_invisible(c),
        };
        if stays {
            cleaned.push(c);
        }
        before = Some(c);
    }
    Cow::Owned(cleaned)
}

/// A text as [`clean`] leaves it, in one line: line ends and tabs are blanks. For a row that holds
/// somebody else's words, which could end there and go on as a row of the program's own.
#[must_use]
pub fn clean_line(text: &str) -> Cow<'_, str> {
    let is_break =
        |c: char| (c.is_control() && c.is_whitespace()) || matches!(c, '\u{2028}' | '\u{2029}');
    match text.contains(is_break) {
        true => Cow::Owned(clean(&text.replace(is_break, " ")).into_owned()),
        false => clean(text),
    }
}

/// A text in one line that loses nothing: where [`clean_line`] would change it, what it would take out
/// or turn into a blank is written as an escape, such as `\n`. For names of files and the like, which
/// are others without it.
#[must_use]
pub fn escape_line(text: &str) -> Cow<'_, str> {
    if clean_line(text) == text {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// The styles that the program itself prints; nothing else that steers a terminal stays.
const STYLES: [&str; 10] = [
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[3m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[34m",
    "\u{1b}[35m",
    "\u{1b}[36m",
];

/// A whole text as it is printed: cleaned but for the program's own styles.
#[must_use]
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, from) = rest.split_at(at);
        cleaned.push_str(&clean(before));
        let style = STYLES.into_iter().find(|style| from.starts_with(style));
        let kept = style.unwrap_or_default();
        cleaned.push_str(kept);
        // What steers without being a style of the program's loses what makes it steer.
        let taken = kept.len().max('\u{1b}'.len_utf8());
        rest = from.get(taken..).unwrap_or_default();
    }
    cleaned.push_str(&clean(rest));
    Cow::Owned(cleaned)
}

/// A text of JSON that means the same, with what a terminal would not show written as escapes.
#[must_use]
pub fn in_json(json: &str) -> Cow<'_, str> {
    // Outside of strings JSON has none of these.
    if !json.chars().any(is_invisible) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // A line of a file that came from elsewhere may end with both.
        if !is_invisible(c) || c == '\r' {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(escaped)
}

/// A character that steers a terminal or that nobody sees; line ends and tabs are none.
pub(crate) fn is_invisible(c: char) -> bool {
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
    fn what_stands_in_one_row_cannot_begin_another() {
        for (given, shown) in [
            ("plain text", "plain text"),
            ("weather\n  signed by  you", "weather   signed by  you"),
            ("a\tb\rc\u{b}d\u{85}e\u{2028}f", "a b c d e f"),
            ("\u{1b}[2Ja\u{200b}b\nc", "[2Jab c"),
        ] {
            assert_eq!(clean_line(given), shown, "{given:?}");
        }
    }

    #[test]
    fn a_name_in_one_row_loses_nothing() {
        for (given, shown) in [
            ("Grüße 👩\u{200d}💻.txt", "Grüße 👩\u{200d}💻.txt"),
            ("nl\nname\t.txt", "nl\\nname\\t.txt"),
            ("\u{1b}[2Ja\u{202e}b", "\\u{1b}[2Ja\\u{202e}b"),
        ] {
            assert_eq!(escape_line(given), shown, "{given:?}");
        }
    }

    #[test]
    fn the_programs_own_styles_stay_and_nothing_else_that_steers() {
        for (given, shown) in [
            ("\u{1b}[31merror:\u{1b}[0m a", "\u{1b}[31merror:\u{1b}[0m a"),
            ("\u{1b}[2Jx\u{1b}[2m\u{200b}y", "[2Jx\u{1b}[2my"),
            ("\u{1b}\u{1b}[8mx\u{1b}", "[8mx"),
            ("é\u{1b}é\u{9b}2Jx", "éé2Jx"),
        ] {
            assert_eq!(for_terminal(given), shown, "{given:?}");
        }
    }

    #[test]
    fn json_means_the_same_and_shows_everything() {
        let value = serde_json::json!({ "a\u{200b}": "\u{9b}2J\u{e0041}\u{1b}é\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = in_json(&text);
        assert!(!shown.chars().any(is_invisible), "{shown:?}");
        assert!(
            shown.contains("\\u200b") && shown.contains("\\udb40\\udc41"),
            "{shown}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
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
