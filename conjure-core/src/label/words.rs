//! The words of a text that say what it is about.

use super::credentials::{Expected, expected_after, is_linking, looks_secret};
use super::stop_words::is_stop_word;

/// The most characters of one word; what is longer is no word.
const MAX_WORD_CHARS: usize = 40;

/// The words of a text that may stand in a name, in their order, each with its first letter made a
/// capital.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    filter_words(text, |word| !is_stop_word(word))
}

/// Like [`words`], with the words that say little, for a text that has no others.
pub(super) fn all_words(text: &str) -> impl Iterator<Item = String> {
    filter_words(text, |_| true)
}

fn filter_words(text: &str, is_meant: fn(&str) -> bool) -> impl Iterator<Item = String> {
    let text = without_code(text);
    let mut kept: Vec<String> = Vec::new();
    let mut expected = Expected::Nothing;
    for raw in text.split_whitespace() {
        let plain = trimmed(raw).to_lowercase();
        let hidden = match expected {
            Expected::Nothing => false,
            Expected::Perhaps => plain.chars().any(|c| c.is_ascii_digit()),
            Expected::Secret => !is_stop_word(&plain),
        };
        expected = match expected {
            _ if hidden => Expected::Nothing,
            Expected::Perhaps | Expected::Secret if is_linking(&plain) => Expected::Secret,
            _ => expected_after(raw),
        };
        if !hidden {
            kept.extend(
                raw.split(is_separator)
                    .filter_map(|raw| word(raw, is_meant)),
            );
        }
    }
    kept.dedup_by(|later, first| later.eq_ignore_ascii_case(first));
    kept.into_iter()
}

/// What neither words nor paths nor assignments have in them.
fn is_separator(c: char) -> bool {
    let inside = "'\u{2019}_-.+#&@%/\\:=\"~?";
    !(c.is_alphanumeric() || inside.contains(c))
}

/// A piece of text as a word of a name.
fn word(raw: &str, is_meant: fn(&str) -> bool) -> Option<String> {
    if is_address(raw) || looks_secret(raw) {
        return None;
    }
    // `name=value` and `name:value` may hold anything in their second half, and a drive is none.
    let path = match raw.as_bytes() {
        [_, b':', b'\\' | b'/', ..] => raw.get(2..).unwrap_or_default(),
        _ => raw,
    };
    let mut parts = path.split(['=', '"', ':']);
    let raw = parts.find(|part| !trimmed(part).is_empty())?;
    let base = raw
        .trim_end_matches(['/', '\\'])
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(raw);
    let base = trimmed(base);
    if base.is_empty() || base.chars().count() > MAX_WORD_CHARS || looks_secret(base) {
        return None;
    }
    if !base.chars().any(char::is_alphanumeric) || !is_meant(&base.to_lowercase()) {
        return None;
    }
    // A control character has no place in a name, nor has what turns the direction of writing.
    if base.chars().any(|c| c.is_control() || is_invisible(c)) {
        return None;
    }
    Some(capitalised(base))
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn trimmed(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

fn is_address(raw: &str) -> bool {
    let lower = raw.to_ascii_lowercase();
    let start = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
    lower.contains("://")
        || start.starts_with("www.")
        || start.starts_with("mailto:")
        || start.starts_with("data:")
        || (lower.contains('@') && lower.contains('.'))
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// The text without its fenced blocks; one that is not closed goes to the end.
fn without_code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut fence: Option<(char, usize)> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = start.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| start.chars().take_while(|c| *c == mark).count());
        match (fence, mark) {
            (None, Some(mark)) if length >= 3 => fence = Some((mark, length)),
            (Some((open, least)), Some(mark)) if mark == open && length >= least => fence = None,
            (None, _) => {
                kept.push_str(line);
                kept.push('\n');
            }
            (Some(_), _) => {}
        }
    }
    kept
}
