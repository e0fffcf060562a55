//! Just enough of Rust's grammar to look for words in code.
//!
//! Blanks comments and literals, so that a rule does not trip over prose; finds words at
//! their boundaries. It is not a parser: macros and names brought in under another name go
//! past it.

/// The source with comments and the contents of literals replaced by spaces; every byte that
/// is left, and every line break, keeps its place.
pub(crate) fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let after_word = at > 0 && bytes.get(at - 1).is_some_and(|byte| is_word(*byte));
        let length = if rest.starts_with(b"//") {
            rest.iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest).filter(|_| !after_word) {
            length
        } else if rest.starts_with(b"\"") {
            quoted(rest, b'"')
        } else if rest.starts_with(b"'") {
            char_literal(rest)
        } else {
            0
        };
        for byte in code.iter_mut().skip(at).take(length) {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    // Blanking is by whole literals and comments, so what is left is still UTF-8.
    String::from_utf8_lossy(&code).into_owned()
}

/// The code with each item under `#[cfg(test)]` blanked: up to its `;` or its closing brace.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(MARK) {
        let (before, item) = rest.split_at(start);
        let end = item_end(item);
        let (item, after) = item.split_at(end);
        out.push_str(before);
        out.extend(
            item.bytes()
                .map(|byte| if byte == b'\n' { '\n' } else { ' ' }),
        );
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Where `word` stands as a word of its own, or as a path of whole words.
pub(crate) fn occurrences<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let is_edge = |position: Option<usize>| {
        position
            .and_then(|at| bytes.get(at))
            .is_none_or(|byte| !is_word(*byte))
    };
    let starts_with_word = word.as_bytes().first().is_some_and(|byte| is_word(*byte));
    let ends_with_word = word.as_bytes().last().is_some_and(|byte| is_word(*byte));
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            (!starts_with_word || is_edge(at.checked_sub(1)))
                && (!ends_with_word || is_edge(Some(at + word.len())))
        })
}

/// From an opening bracket at `at` to its partner, both included.
pub(crate) fn bracketed(code: &str, at: usize) -> &str {
    let rest = code.get(at..).unwrap_or_default();
    let mut depth = 0_usize;
    for (index, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return rest.get(..=index).unwrap_or(rest);
                }
            }
            _ => {}
        }
    }
    rest
}

/// The words of a piece of code.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|sign: char| !(sign.is_alphanumeric() || sign == '_'))
        .filter(|word| !word.is_empty())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 128
}

fn item_end(item: &str) -> usize {
    let opening = item.find(['{', ';']).unwrap_or(item.len());
    if item.as_bytes().get(opening) == Some(&b'{') {
        opening + bracketed(item, opening).len()
    } else {
        (opening + 1).min(item.len())
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, also behind `b` or `c`; `None` where no raw string begins.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = if matches!(rest.first(), Some(b'b' | b'c')) {
        2
    } else {
        1
    };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest
        .iter()
        .skip(prefix)
        .take_while(|byte| **byte == b'#')
        .count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let body = prefix + hashes + 1;
    let inner = rest.get(body..)?;
    let length = inner.windows(end.len()).position(|window| window == end);
    Some(length.map_or(rest.len(), |length| body + length + end.len()))
}

fn quoted(rest: &[u8], end: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte == end {
            return at;
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime or a label.
fn char_literal(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return quoted(rest, b'\'');
    }
    let text = std::str::from_utf8(rest.get(1..rest.len().min(6)).unwrap_or_default());
    let text = text.or_else(|error| {
        std::str::from_utf8(rest.get(1..=error.valid_up_to()).unwrap_or_default())
    });
    let width = text
        .ok()
        .and_then(|text| text.chars().next())
        .map_or(0, char::len_utf8);
    if width > 0 && rest.get(1 + width) == Some(&b'\'') {
        width + 2
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays_in_place() {
        let source = "let a = \"x \\\" y\"; // tokio\n/* a /* b */ c */ let b = r#\"std::fs \"q\" \"#;\nlet c = 'é'; let d: &'static str = b'\\'';";
        let code = code_of(source);
        assert_eq!(code.lines().count(), 3);
        assert!(!code.contains("tokio") && !code.contains("std::fs") && !code.contains('é'));
        assert!(code.starts_with("let a ="));
        assert_eq!(code.find("let b"), source.find("let b"));
        assert!(code.contains("&'static str"));
    }

    #[test]
    fn items_for_tests_only_are_blanked() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { x[1]; } }\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}\n";
        let shipped = without_tests(code);
        assert_eq!(shipped.len(), code.len());
        assert_eq!(
            words(&shipped).collect::<Vec<_>>(),
            ["fn", "a", "fn", "c", "fn", "d"]
        );
    }

    #[test]
    fn a_word_is_found_at_its_boundaries_only() {
        let code = "rand::x operand::y a.rand::z";
        assert_eq!(occurrences(code, "rand::").collect::<Vec<_>>(), [0, 21]);
        assert_eq!(
            occurrences("unsafe_code unsafe {}", "unsafe").collect::<Vec<_>>(),
            [12]
        );
    }

    #[test]
    fn brackets_are_matched() {
        assert_eq!(
            bracketed("#[allow(a, b = [1])] fn", 1),
            "[allow(a, b = [1])]"
        );
    }
}
