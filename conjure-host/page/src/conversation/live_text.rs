//! A text that is being written: which blocks of it stay, and what of the one that does not is in the
//! page already.
//!
//! A block that nothing can change any more is sent once, and forgotten: a page that is followed holds no
//! copy of what it shows. A paragraph that only grows is sent what it gets; any other block that is being
//! written is sent again as a whole.

use conjure_core::foreign_text::clean;
use maud::{Markup, PreEscaped, html};

use super::markdown;
use crate::fingerprint::fingerprint;
use crate::respond::{Swap, piece};

/// How a paragraph begins and ends.
const PARAGRAPH: (&str, &str) = ("<p>", "</p>\n");

/// A text that is being written.
#[derive(Debug, Default)]
pub(super) struct LiveText {
    /// All of it at first, and from the first pieces on what is behind the blocks that were sent.
    text: String,
    /// Name of the model that writes the text; empty where it is not known.
    model: String,
    /// Bytes that are blocks which stay.
    finished_bytes: usize,
    /// How many of these are in the page.
    sent_bytes: usize,
    /// The block behind them, where it is in the page as a paragraph that may grow.
    open_paragraph: Option<ShownParagraph>,
}

/// A paragraph that is in the page, without its end: enough to know whether another text goes on with it.
#[derive(Debug)]
struct ShownParagraph {
    bytes: usize,
    fingerprint: u64,
}

impl ShownParagraph {
    /// Describes a block, where that is one paragraph.
    fn of(block: &str) -> Option<Self> {
        let (begin, end) = PARAGRAPH;
        let known = block.strip_suffix(end)?;
        let is_one = known.rfind(begin) == Some(0);
        is_one.then(|| Self {
            bytes: known.len(),
            fingerprint: fingerprint(known),
        })
    }

    /// What it has to get behind it to be this block. A browser lays out and paints what is new, and
    /// not all of a long paragraph ten times a second.
    fn grown<'a>(&self, block: &'a str) -> Option<&'a str> {
        let (begin, end) = PARAGRAPH;
        let (known, new) = block.strip_suffix(end)?.split_at_checked(self.bytes)?;
        let goes_on = fingerprint(known) == self.fingerprint && !new.contains(begin);
        goes_on.then_some(new)
    }
}

impl LiveText {
    pub(super) fn new(text: &str, model: String) -> Self {
        Self {
            text: text.to_owned(),
            model,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, delta: &str) {
        self.text.push_str(delta);
    }

    /// All of it will be in the page.
    pub(super) fn settle(&mut self) {
        self.find_finished();
        self.sent_bytes = self.finished_bytes;
        self.open_paragraph = ShownParagraph::of(&self.open());
    }

    /// All of it, as long as nothing of it was sent in pieces.
    pub(super) fn markup(&self, at: usize) -> Markup {
        html! {
            article.entry.model id={ "live-" (at) } {
                header.who { strong { @if self.model.is_empty() { "Model" } @else { (clean(&self.model)) } } }
                div.text id={ "live-" (at) "-done" } {
                    (markdown::render(self.text.get(..self.finished_bytes).unwrap_or_default()))
                }
                div.text id={ "live-" (at) "-open" } { (with_tail_id(at, &self.open())) }
            }
        }
    }

    /// What brings the page up to date.
    pub(super) fn difference(&mut self, at: usize, pieces: &mut Vec<Markup>) {
        self.find_finished();
        if self.finished_bytes > self.sent_bytes {
            let new = self.text.get(self.sent_bytes..self.finished_bytes);
            let new = markdown::render(new.unwrap_or_default());
            pieces.push(piece(Swap::Append, &format!("live-{at}-done"), &new));
            self.open_paragraph = None;
        }
        self.forget_finished();
        let open = self.open();
        match self
            .open_paragraph
            .as_ref()
            .and_then(|shown| shown.grown(&open))
        {
            Some("") => {}
            Some(new) => {
                let new = PreEscaped(new.to_owned());
                pieces.push(piece(Swap::Append, &format!("live-{at}-tail"), &new));
            }
            None => {
                let whole = with_tail_id(at, &open);
                pieces.push(piece(Swap::Inner, &format!("live-{at}-open"), &whole));
            }
        }
        self.open_paragraph = ShownParagraph::of(&open);
    }

    /// Lets go of the blocks that are in the page.
    fn forget_finished(&mut self) {
        if self.finished_bytes > 0 && self.text.is_char_boundary(self.finished_bytes) {
            self.text = self.text.split_off(self.finished_bytes);
            (self.finished_bytes, self.sent_bytes) = (0, 0);
        }
    }

    fn find_finished(&mut self) {
        let open = self.text.get(self.finished_bytes..).unwrap_or_default();
        self.finished_bytes += markdown::finished_bytes(open);
    }

    fn open(&self) -> String {
        let open = self.text.get(self.finished_bytes..).unwrap_or_default();
        markdown::render(open).into_string()
    }
}

/// A block that is being written; where it is a paragraph, it is found by an id.
fn with_tail_id(at: usize, open: &str) -> Markup {
    let (begin, _) = PARAGRAPH;
    PreEscaped(match open.strip_prefix(begin) {
        Some(rest) => format!("<p id=\"live-{at}-tail\">{rest}"),
        None => open.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &mut LiveText) -> String {
        let mut pieces = Vec::new();
        text.difference(3, &mut pieces);
        pieces.into_iter().map(Markup::into_string).collect()
    }

    #[test]
    fn a_paragraph_that_grows_is_sent_what_is_new() {
        let mut text = LiveText::new("One <b> & two ", "m".to_owned());
        text.settle();
        assert!(
            text.markup(3)
                .into_string()
                .contains("<p id=\"live-3-tail\">One")
        );
        text.push("three & *four* fi");
        let told = changes(&mut text);
        let expected = "<template data-swap=\"append\" data-target=\"live-3-tail\"> three &amp; \
                        <em>four</em> fi</template>";
        assert_eq!(told, expected);
        text.push("ve");
        assert!(changes(&mut text).contains("\"live-3-tail\">ve</template>"));
        assert_eq!(changes(&mut text), "");
    }

    #[test]
    fn blocks_that_are_in_the_page_are_held_no_more() {
        let mut text = LiveText::new("one\n\ntwo\n\nth", "m".to_owned());
        text.settle();
        assert!(text.markup(3).into_string().contains("<p>one</p>"));
        text.push("ree\n\nfour\n");
        let first = changes(&mut text);
        assert_eq!(text.text, "four\n");
        text.push("\nfive\n");
        let second = changes(&mut text);
        assert_eq!(text.text, "five\n");
        assert!(first.contains("<p>two</p>\n<p>three</p>"), "{first}");
        assert!(second.contains("<p>four</p>"), "{second}");
        for gone in ["<p>one", "<p>two", "<p>three"] {
            assert!(!second.contains(gone), "{second}");
        }
        assert!(!first.contains("<p>one"), "{first}");
    }

    #[test]
    fn what_changes_before_its_end_is_sent_as_a_whole() {
        for (first, second) in [
            ("one *two", "* three"),
            ("one", "\n\ntwo"),
            ("one", "\n==="),
            ("- one", "\n- two"),
            ("> one", " two"),
            ("a `b", "` c"),
        ] {
            let mut text = LiveText::new(first, String::new());
            text.settle();
            text.push(second);
            let told = changes(&mut text);
            assert!(told.contains("data-target=\"live-3-open\""), "{told}");
            assert!(!told.contains("\"live-3-tail\">\u{20}"), "{told}");
        }
    }
}
