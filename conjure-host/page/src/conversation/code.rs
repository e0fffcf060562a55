//! A block of code, with what it is, its words told apart by classes, and a button that copies it.

use conjure_core::foreign_text::clean;
use conjure_highlight::{CodeKind, has_grammar, highlight};
use maud::{Markup, html};

/// Longer code is plain, in bytes: nobody reads it for its colours.
const MAX_BYTES: usize = 16 * 1024;
/// The most pieces of a block that are told apart: each is an element of the page.
const MAX_PIECES: usize = 250;

/// The classes of pieces of code.
pub(crate) const CLASSES: [&str; 9] = [
    "c-comment",
    "c-word",
    "c-text",
    "c-number",
    "c-name",
    "c-type",
    "c-key",
    "c-in",
    "c-out",
];

/// The block. `info` is what stands behind the fence.
pub(crate) fn block(info: &str, literal: &str) -> Markup {
    let language: String = info
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .chars()
        .take(30)
        .collect();
    html! {
        figure.code {
            figcaption {
                span { (clean(&language)) }
                button.plain type="button" data-copy="" { "Copy" }
            }
            pre tabindex="0" { code { (highlight_html(&language, &clean(literal))) } }
        }
    }
}

/// The words of a text in a language, with their classes.
pub(crate) fn highlight_html(language: &str, text: &str) -> Markup {
    if text.len() > MAX_BYTES || !has_grammar(language) {
        return html! { (text) };
    }
    let mut pieces: Vec<(Option<&'static str>, String)> = Vec::new();
    for line in highlight(language, text) {
        let end = (None, "\n");
        let line = line.iter().map(|piece| (class(piece.kind), piece.text));
        for (class, text) in line.chain([end]) {
            match pieces.last_mut() {
                // What has no colour goes with whatever is before it.
                Some((last, before)) if *last == class || text.trim().is_empty() => {
                    before.push_str(text);
                }
                _ => pieces.push((class, text.to_owned())),
            }
        }
    }
    if pieces.len() > MAX_PIECES {
        return html! { (text) };
    }
    html! {
        @for (class, text) in &pieces {
            @match class {
                Some(class) => span class=(class) { (text) },
                None => (text),
            }
        }
    }
}

fn class(kind: CodeKind) -> Option<&'static str> {
    match kind {
        CodeKind::Comment => Some("c-comment"),
        CodeKind::Keyword => Some("c-word"),
        CodeKind::String | CodeKind::Escape => Some("c-text"),
        CodeKind::Number | CodeKind::Constant => Some("c-number"),
        CodeKind::Function | CodeKind::Heading => Some("c-name"),
        CodeKind::Type => Some("c-type"),
        CodeKind::Tag | CodeKind::Attribute => Some("c-key"),
        CodeKind::Inserted => Some("c-in"),
        CodeKind::Deleted => Some("c-out"),
        CodeKind::Plain | CodeKind::Variable | CodeKind::Operator | CodeKind::Punctuation => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_known_language_have_classes_and_the_text_stays() {
        let shown = block("rust", "fn main() {\n    // <b>\n}\n").into_string();
        assert!(shown.contains("<span class=\"c-word\">fn"), "{shown}");
        assert!(shown.contains("c-comment"), "{shown}");
        assert!(shown.contains("&lt;b&gt;"), "{shown}");
        let shown = block("no-such<script>", "a < b").into_string();
        assert!(shown.contains("a &lt; b"), "{shown}");
        assert!(!shown.contains("<script>"), "{shown}");
    }

    #[test]
    fn a_block_has_few_elements() {
        let text = "let a = 1; ".repeat(1000);
        let shown = block("rust", &text).into_string();
        assert!(shown.matches('<').count() < 2 * MAX_PIECES + 20);
    }
}
