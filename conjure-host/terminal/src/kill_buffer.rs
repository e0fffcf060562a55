//! What was cut out of a text. It has the texts of pastes: the characters that stand for them mean
//! other pastes, or none, in the next text.

/// A piece of what was cut out.
#[derive(Debug, Clone)]
pub(crate) enum KilledPiece {
    Typed(String),
    Pasted(String),
}

/// The pieces of a text, of which some characters stand for pastes.
pub(crate) fn pieces<'a>(
    text: &str,
    paste_of: impl Fn(char) -> Option<&'a str>,
) -> Vec<KilledPiece> {
    let mut pieces: Vec<KilledPiece> = Vec::new();
    for c in text.chars() {
        match (paste_of(c), pieces.last_mut()) {
            (Some(paste), _) => pieces.push(KilledPiece::Pasted(paste.to_owned())),
            (None, Some(KilledPiece::Typed(typed))) => typed.push(c),
            (None, _) => pieces.push(KilledPiece::Typed(c.to_string())),
        }
    }
    pieces
}
