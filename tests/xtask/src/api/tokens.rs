//! The text of tokens: one way of writing each type and signature, however its source is laid out.
//!
//! Paths lose the modules that they lead through, so that `std::fmt::Display` and `fmt::Display` are
//! the same. Two types of one name in different crates are told apart by nothing.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

/// Signs that are written as one.
const COMBINED: [&str; 7] = ["::", "->", "=>", "..", "...", "..=", "=="];

/// Words that a bracket does not belong to.
const KEYWORDS: [&str; 9] = [
    "as", "const", "dyn", "for", "impl", "in", "mut", "ref", "where",
];

#[derive(Debug, PartialEq, Eq)]
enum TokenPiece {
    Word(String),
    Sign(String),
    Open(char),
    Close(char),
}

/// The text of a type, a path or a signature, without the modules of its paths.
pub(super) fn text(tokens: &impl ToTokens) -> String {
    let mut pieces = Vec::new();
    collect(tokens.to_token_stream(), &mut pieces);
    joined(&without_modules(pieces))
}

/// The text of tokens as they are.
pub(super) fn raw(tokens: TokenStream) -> String {
    let mut pieces = Vec::new();
    collect(tokens, &mut pieces);
    joined(&pieces)
}

fn collect(tokens: TokenStream, pieces: &mut Vec<TokenPiece>) {
    let (mut is_joint, mut is_lifetime) = (false, false);
    for tree in tokens {
        match tree {
            TokenTree::Group(group) => {
                let brackets = match group.delimiter() {
                    Delimiter::Parenthesis => Some(('(', ')')),
                    Delimiter::Brace => Some(('{', '}')),
                    Delimiter::Bracket => Some(('[', ']')),
                    Delimiter::None => None,
                };
                pieces.extend(brackets.map(|(open, _)| TokenPiece::Open(open)));
                collect(group.stream(), pieces);
                if let Some((_, close)) = brackets {
                    without_comma(pieces);
                    pieces.push(TokenPiece::Close(close));
                }
                is_joint = false;
            }
            TokenTree::Ident(ident) => {
                let mark = if is_lifetime { "'" } else { "" };
                pieces.push(TokenPiece::Word(format!("{mark}{ident}")));
                (is_joint, is_lifetime) = (false, false);
            }
            TokenTree::Literal(literal) => {
                pieces.push(TokenPiece::Word(literal.to_string()));
                is_joint = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == '\'' => is_lifetime = true,
            TokenTree::Punct(punct) => {
                sign(punct.as_char(), is_joint, pieces);
                is_joint = punct.spacing() == Spacing::Joint;
            }
        }
    }
}

/// Adds a sign, or makes it one with the sign before it.
fn sign(sign: char, is_joint: bool, pieces: &mut Vec<TokenPiece>) {
    if is_joint && let Some(TokenPiece::Sign(before)) = pieces.last_mut() {
        let both = format!("{before}{sign}");
        if COMBINED.contains(&both.as_str()) {
            *before = both;
            return;
        }
    }
    if sign == '>' {
        without_comma(pieces);
    }
    pieces.push(TokenPiece::Sign(sign.to_string()));
}

/// A comma between the last of a list and its end says nothing.
fn without_comma(pieces: &mut Vec<TokenPiece>) {
    if let [.., last, TokenPiece::Sign(sign)] = pieces.as_slice()
        && sign == ","
        && !matches!(last, TokenPiece::Open(_))
    {
        pieces.pop();
    }
}

/// Leaves out the names of modules and crates: words in lower case before `::`.
fn without_modules(pieces: Vec<TokenPiece>) -> Vec<TokenPiece> {
    let is_path = |piece: Option<&TokenPiece>| piece == Some(&TokenPiece::Sign("::".to_owned()));
    let mut kept: Vec<TokenPiece> = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    while let Some(piece) = pieces.next() {
        let is_start = !matches!(kept.last(), Some(TokenPiece::Word(_)))
            && kept.last() != Some(&TokenPiece::Sign(">".to_owned()));
        let is_module = match &piece {
            TokenPiece::Word(word) => {
                word.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
                    && is_path(pieces.peek())
            }
            // In front of a path from the root.
            sign => is_start && is_path(Some(sign)),
        };
        if !is_module {
            kept.push(piece);
        } else if matches!(piece, TokenPiece::Word(_)) {
            pieces.next();
        }
    }
    kept
}

fn joined(pieces: &[TokenPiece]) -> String {
    let mut text = String::new();
    let mut before: Option<&TokenPiece> = None;
    for piece in pieces {
        if before.is_some_and(|before| is_spaced(before, piece)) {
            text.push(' ');
        }
        match piece {
            TokenPiece::Word(word) | TokenPiece::Sign(word) => text.push_str(word),
            TokenPiece::Open(bracket) | TokenPiece::Close(bracket) => text.push(*bracket),
        }
        before = Some(piece);
    }
    text
}

fn is_spaced(before: &TokenPiece, after: &TokenPiece) -> bool {
    match (before, after) {
        (_, TokenPiece::Sign(sign))
            if matches!(sign.as_str(), "," | ";" | ":" | "::" | ">" | "<") =>
        {
            false
        }
        (TokenPiece::Open('{'), _)
        | (_, TokenPiece::Close('}') | TokenPiece::Open('{'))
        | (TokenPiece::Close('}'), _) => true,
        (TokenPiece::Open(_), _)
        | (_, TokenPiece::Close(_))
        | (TokenPiece::Close(_), TokenPiece::Open(_)) => false,
        (TokenPiece::Sign(sign), _)
            if matches!(
                sign.as_str(),
                "&" | "::" | "<" | "*" | "#" | "!" | "?" | "$" | "."
            ) =>
        {
            false
        }
        (TokenPiece::Word(word), TokenPiece::Open(_)) => KEYWORDS.contains(&word.as_str()),
        (TokenPiece::Sign(sign), TokenPiece::Open(_)) => sign != ">",
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> String {
        text(&source.parse::<TokenStream>().unwrap())
    }

    #[test]
    fn a_type_has_one_text_however_it_is_written() {
        for (source, expected) in [
            ("std :: fmt :: Display", "Display"),
            ("::serde_json::Value", "Value"),
            ("& 'static  mut [ u8 ]", "&'static mut [u8]"),
            (
                "Box<dyn Fn(&str,u8,) -> crate::Result<(A, B,)> + Send>",
                "Box<dyn Fn(&str, u8) -> Result<(A, B)> + Send>",
            ),
            ("<T as std::iter::Iterator>::Item", "<T as Iterator>::Item"),
            ("Self::Output", "Self::Output"),
            (
                "impl Into < Option<String> , >",
                "impl Into<Option<String>>",
            ),
            (
                "where T: ?Sized + 'a, U: Clone",
                "where T: ?Sized + 'a, U: Clone",
            ),
        ] {
            assert_eq!(shown(source), expected);
        }
    }

    #[test]
    fn what_a_macro_takes_keeps_its_paths() {
        let tokens = "$make:path $(, name = $name:expr)?".parse().unwrap();
        assert_eq!(raw(tokens), "$make: path $(, name = $name: expr) ?");
    }
}
