//! Where a text without spaces may be broken into lines: beside wide characters, as texts in Chinese
//! and Japanese are.
//!
//! The rules are those of Unicode's line breaking (UAX #14) that prose needs: closing signs stay with
//! what is before them, opening ones with what is behind them. Korean has spaces and is broken there.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Signs that no line begins with: what closes, what ends a sentence, units, and marks and small
/// letters that belong to the letter before them.
const NOT_AT_BEGIN: &str = "、。，．！？：；）］｝〕〉》」』】〙〗〟｠…‥・〜゠％℃々〻ゝゞヽヾー\
                            ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ";
/// Signs that no line ends with: what opens, and currencies.
const NOT_AT_END: &str = "（［｛〔〈《「『【〘〖〝｟￥＄￡";

/// Whether a line may end between two words that no space parts.
pub(crate) fn is_between(before: &str, after: &str) -> bool {
    if before.is_ascii() && after.is_ascii() {
        return false;
    }
    let last = before.graphemes(true).next_back().unwrap_or_default();
    let first = after.graphemes(true).next().unwrap_or_default();
    let (is_wide_before, is_wide_after) = (last.width() > 1, first.width() > 1);
    // Narrow signs, such as quotes and brackets, stay with their neighbours.
    (is_wide_before || (is_wide_after && is_alphanumeric(last)))
        && (is_wide_after || is_alphanumeric(first))
        && !first.starts_with(|c: char| NOT_AT_BEGIN.contains(c))
        && !last.starts_with(|c: char| NOT_AT_END.contains(c))
}

fn is_alphanumeric(grapheme: &str) -> bool {
    grapheme.starts_with(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_beside_wide_letters_but_not_between_a_letter_and_its_sign() {
        for (before, after) in [
            ("世", "界"),
            ("は", "コンピューター"),
            ("版", "2"),
            ("word", "世"),
            ("。", "世"),
            ("」", "「"),
            ("か\u{3099}", "き"),
            ("✅", "世"),
        ] {
            assert!(is_between(before, after), "{before}|{after}");
        }
        for (before, after) in [
            ("界", "。"),
            ("界", "」"),
            ("」", "、"),
            ("「", "世"),
            ("（", "「"),
            ("き", "ゃ"),
            ("ら", "ー"),
            ("界", "."),
            ("(", "世"),
            ("“", "世"),
            ("one", "-"),
            ("one", "e\u{301}"),
        ] {
            assert!(!is_between(before, after), "{before}|{after}");
        }
    }
}
