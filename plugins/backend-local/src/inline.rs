//! Keeps replies within what may cross the boundary inline.

use conjure_skill_sdk::protocol::INLINE_LIMIT;

/// How many bytes of JSON the texts of a reply may take; the rest is for its other fields.
pub(crate) const TEXT_BUDGET: usize = INLINE_LIMIT - 12 * 1024;

/// How many bytes a text takes as JSON, without its quotes.
pub(crate) fn json_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}

/// Drops about a quarter of a text, from its beginning.
pub(crate) fn drop_start(text: &mut String) {
    let mut cut = text.len().min(text.len() / 4 + 1);
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    text.drain(..cut);
}

/// Drops about a quarter of a text, from its end.
pub(crate) fn drop_end(text: &mut String) {
    let mut cut = text.len() * 3 / 4;
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    text.truncate(cut);
}
