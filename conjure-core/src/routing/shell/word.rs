//! A word of a command after quote removal.
//!
//! Works on the source of the word, by the rules of POSIX for `\`, `'…'` and `"…"`, and gives up at
//! anything that a shell would expand to something else; only the stars and question marks of file
//! names are kept, marked as such.

/// A word.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum ShellWord {
    /// The word's characters are known.
    Known {
        pieces: Vec<WordPiece>,
        /// The characters in a row.
        text: String,
    },
    /// A variable or the output of a command is in it, so its value is known only when it runs.
    Unknown {
        /// The word as it is written.
        source: String,
    },
}

/// A character of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum WordPiece {
    /// A character that stands for itself.
    Char(char),
    /// An unquoted `*`.
    Star,
    /// An unquoted `?`.
    AnyChar,
}

impl ShellWord {
    /// Reads the source of a word in which nothing is expanded; none where something is.
    pub(super) fn read(source: &str) -> Option<Self> {
        let pieces = pieces(source)?;
        let text = pieces.iter().map(|piece| piece.as_char()).collect();
        Some(Self::Known { pieces, text })
    }

    /// A word that stands for itself.
    pub(super) fn of_text(text: &str) -> Self {
        Self::Known {
            pieces: text.chars().map(WordPiece::Char).collect(),
            text: text.to_owned(),
        }
    }

    /// The characters, if they are known.
    pub(in super::super) fn text(&self) -> Option<&str> {
        match self {
            Self::Known { text, .. } => Some(text),
            Self::Unknown { .. } => None,
        }
    }

    /// The characters, or how the word is written.
    pub(in super::super) fn display_text(&self) -> &str {
        match self {
            Self::Known { text, .. } => text,
            Self::Unknown { source } => source,
        }
    }

    pub(in super::super) fn pieces(&self) -> Option<&[WordPiece]> {
        match self {
            Self::Known { pieces, .. } => Some(pieces),
            Self::Unknown { .. } => None,
        }
    }

    /// Whether a shell replaces it by the names of files.
    pub(in super::super) fn has_glob(&self) -> bool {
        let active = |piece: &WordPiece| !matches!(piece, WordPiece::Char(_));
        self.pieces()
            .is_some_and(|pieces| pieces.iter().any(active))
    }

    /// Whether it may become an option of a program: its first character is not known.
    pub(in super::super) fn may_be_option(&self) -> bool {
        match self.pieces().map(<[WordPiece]>::first) {
            Some(Some(WordPiece::Char(first))) => *first == '-',
            Some(Some(_)) | None => true,
            Some(None) => false,
        }
    }

    /// Whether a file name that it stands for may begin with a dot where `.` and `..` are names too.
    pub(in super::super) fn globs_dots(&self) -> bool {
        let Some(pieces) = self.pieces() else {
            return false;
        };
        pieces
            .split(|piece| *piece == WordPiece::Char('/'))
            .any(|part| {
                part.first() == Some(&WordPiece::Char('.'))
                    && part
                        .iter()
                        .any(|piece| !matches!(piece, WordPiece::Char(_)))
            })
    }
}

impl WordPiece {
    /// A character of a pattern's text, in which nothing is quoted any more.
    pub(in super::super) fn of_pattern(c: char) -> Self {
        if c == '*' { Self::Star } else { Self::Char(c) }
    }

    /// The character as it is written.
    pub(in super::super) fn as_char(self) -> char {
        match self {
            Self::Char(c) => c,
            Self::Star => '*',
            Self::AnyChar => '?',
        }
    }
}

fn pieces(source: &str) -> Option<Vec<WordPiece>> {
    let mut pieces = Vec::new();
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                '\n' => {}
                escaped => pieces.push(WordPiece::Char(escaped)),
            },
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    quoted => pieces.push(WordPiece::Char(quoted)),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        '\n' => {}
                        escaped @ ('$' | '`' | '"' | '\\') => pieces.push(WordPiece::Char(escaped)),
                        other => pieces.extend([WordPiece::Char('\\'), WordPiece::Char(other)]),
                    },
                    '$' | '`' => return None,
                    quoted => pieces.push(WordPiece::Char(quoted)),
                }
            },
            '*' => pieces.push(WordPiece::Star),
            '?' => pieces.push(WordPiece::AnyChar),
            // The program `[`, and `{}`, which is no expansion.
            '[' if source == "[" => pieces.push(WordPiece::Char('[')),
            // Where another brace follows, bash expands `{},x}` to `}` and `x`.
            '{' if is_empty_braces(chars.clone()) => pieces.push(WordPiece::Char('{')),
            '$' | '`' | '[' | '{' | '(' | ')' | '<' | '>' | '|' | '&' | ';' => return None,
            c if c.is_whitespace() => return None,
            c => pieces.push(WordPiece::Char(c)),
        }
    }
    Some(pieces)
}

/// Whether what follows an open brace closes it, and nothing after it closes another one.
fn is_empty_braces(mut rest: impl Iterator<Item = char>) -> bool {
    rest.next() == Some('}') && !rest.any(|c| c == '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_removed_as_a_shell_does() {
        for (source, text) in [
            ("rm", "rm"),
            (r#"r"m""#, "rm"),
            ("r'm'", "rm"),
            (r"r\m", "rm"),
            ("r\\\nm", "rm"),
            ("''", ""),
            (r#""a b"c"#, "a bc"),
            (r#""a\b\"\\\$""#, r#"a\b"\$"#),
            (r"'a\b'", r"a\b"),
            ("{}", "{}"),
            ("[", "["),
        ] {
            let word = ShellWord::read(source);
            assert_eq!(
                word.as_ref().and_then(ShellWord::text),
                Some(text),
                "{source}"
            );
        }
    }

    #[test]
    fn what_a_shell_would_expand_is_not_known() {
        for source in [
            "$a", "\"$a\"", "`a`", "\"`a`\"", "$'a'", "$\"a\"", "{a,b}", "{1..3}", "{},-x}",
            "a{},b}", "[ab]", "a(b)", "a b", "a'", "\"a", "a\\", "<(a)", "a;b",
        ] {
            assert_eq!(ShellWord::read(source), None, "{source}");
        }
    }

    #[test]
    fn only_unquoted_stars_are_stars() {
        for (source, globs, dots) in [
            ("a*", true, false),
            ("a?", true, false),
            ("'a*'", false, false),
            (r"a\*", false, false),
            ("docs/.*/x", true, true),
            ("docs/.a/*", true, false),
        ] {
            let word = ShellWord::read(source).unwrap();
            assert_eq!(
                (word.has_glob(), word.globs_dots()),
                (globs, dots),
                "{source}"
            );
        }
    }
}
