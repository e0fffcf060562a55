//! Keeps replies within what may cross a plugin's boundary inline.

/// How many bytes of JSON the texts of a reply may take: the 64 KiB that cross inline, less what
/// the reply's other fields take.
pub const TEXT_BUDGET: usize = (64 - 12) * 1024;

/// How many bytes a text takes as JSON, without its quotes.
pub fn json_len(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}

/// Drops about a quarter of a text, from its beginning.
pub fn drop_start(text: &mut String) {
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
