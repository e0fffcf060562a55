//! What the words of a piece of code are (a keyword, a comment, a name of a function), for faces that
//! colour it: the page by class names, a terminal by colours.
//!
//! Decides and touches nothing: text in, pieces of text out. The grammars are those of `bat` and
//! Sublime Text, compiled in and read at first use. What is not known, too long or too hard to read
//! comes back plain: never an error, and never other text than what was given. Begin at
//! [`Highlighter`].

mod kind;

use std::sync::LazyLock;

use syntect::parsing::{ParseState, ScopeStack, SyntaxReference, SyntaxSet};

pub use kind::CodeKind;

/// The most bytes of a line that is coloured: nobody reads a longer one, and reading it takes long.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// The most bytes of a text that are coloured; the rest of it is plain.
const MAX_TEXT_BYTES: usize = 256 * 1024;

static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// A part of a line of one kind, without the end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePiece<'a> {
    /// Kind of the piece.
    pub kind: CodeKind,
    /// Text of the piece, never empty.
    pub text: &'a str,
}

/// Reads a text line by line, as it comes.
#[derive(Debug, Clone)]
pub struct Highlighter {
    reading: Option<GrammarState>,
    /// Bytes that may still be read.
    remaining: usize,
}

/// State of a grammar within a text.
#[derive(Debug, Clone)]
struct GrammarState {
    state: ParseState,
    scopes: ScopeStack,
}

/// Whether there is a grammar for a language, by what stands behind the fence of a block of code or
/// by the ending of a file's name: `rust`, `rs`, `Rust`, `console`.
#[must_use]
pub fn has_grammar(language: &str) -> bool {
    grammar(language).is_some()
}

/// Each line of a text in pieces; for a language as [`has_grammar`] takes it.
#[must_use]
pub fn highlight<'a>(language: &str, text: &'a str) -> Vec<Vec<CodePiece<'a>>> {
    let mut highlighter = Highlighter::new(language);
    text.lines().map(|line| highlighter.line(line)).collect()
}

impl Highlighter {
    /// For a text in a language, as [`has_grammar`] takes it; for an unknown one everything is plain.
    #[must_use]
    pub fn new(language: &str) -> Self {
        let reading = grammar(language).map(|grammar| GrammarState {
            state: ParseState::new(grammar),
            scopes: ScopeStack::new(),
        });
        Self {
            reading,
            remaining: MAX_TEXT_BYTES,
        }
    }

    /// The next line of the text, which ends without a line feed.
    pub fn line<'a>(&mut self, line: &'a str) -> Vec<CodePiece<'a>> {
        let pieces = self.read(line);
        if pieces.is_none() {
            // What comes behind a line that was not read would be read wrongly.
            self.reading = None;
        }
        pieces.unwrap_or_else(|| plain(line))
    }

    fn read<'a>(&mut self, line: &'a str) -> Option<Vec<CodePiece<'a>>> {
        let reading = self.reading.as_mut()?;
        self.remaining = self.remaining.checked_sub(line.len() + 1)?;
        if line.len() > MAX_LINE_BYTES {
            return None;
        }
        let changes = reading
            .state
            .parse_line(&format!("{line}\n"), &GRAMMARS)
            .ok()?;
        let mut pieces = LineSplitter::of(line);
        for (at, change) in changes {
            pieces.until(at, &reading.scopes);
            reading.scopes.apply(&change).ok()?;
        }
        pieces.until(line.len(), &reading.scopes);
        Some(pieces.pieces)
    }
}

/// A line that is taken apart.
struct LineSplitter<'a> {
    line: &'a str,
    begin: usize,
    pieces: Vec<CodePiece<'a>>,
}

impl<'a> LineSplitter<'a> {
    fn of(line: &'a str) -> Self {
        Self {
            line,
            begin: 0,
            pieces: Vec::new(),
        }
    }

    fn until(&mut self, end: usize, scopes: &ScopeStack) {
        // The line feed, which grammars read too, is no part of the line.
        let end = end.min(self.line.len());
        let Some(text) = self
            .line
            .get(self.begin..end)
            .filter(|text| !text.is_empty())
        else {
            return;
        };
        let kind = CodeKind::of(scopes.as_slice());
        match self.pieces.last_mut() {
            Some(last) if last.kind == kind => {
                let begin = self.begin - last.text.len();
                last.text = self.line.get(begin..end).unwrap_or(text);
            }
            _ => self.pieces.push(CodePiece { kind, text }),
        }
        self.begin = end;
    }
}

fn plain(line: &str) -> Vec<CodePiece<'_>> {
    let piece = CodePiece {
        kind: CodeKind::Plain,
        text: line,
    };
    if line.is_empty() {
        Vec::new()
    } else {
        vec![piece]
    }
}

/// The grammar of a language.
fn grammar(language: &str) -> Option<&'static SyntaxReference> {
    // Behind the language may stand more: `rust,ignore`, `python title="a.py"`, `{.rust}`.
    let word = language
        .trim_start_matches(['{', '.', ' '])
        .split([',', ' ', '{', '}', ':'])
        .next()?;
    if word.is_empty() || word.len() > 40 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let name = match word.as_str() {
        "text" | "txt" | "plain" | "plaintext" | "output" => return None,
        "console" | "shell" | "shell-session" | "sh" | "zsh" | "shellsession" => "bash",
        "jsonc" | "json5" | "jsonl" | "ndjson" => "json",
        "js" | "mjs" | "cjs" | "node" => "javascript",
        "jsx" => "tsx",
        "py3" | "python3" => "python",
        "golang" => "go",
        "c++" => "cpp",
        "c#" => "cs",
        "yml" => "yaml",
        "patch" => "diff",
        other => other,
    };
    GRAMMARS.find_syntax_by_token(name)
}

#[cfg(test)]
mod tests;
