//! The words of a shell command, of which some are replaced by paths.
//!
//! Enough of the shell's grammar to know a whole word from a part of one, and how a path is quoted
//! where it stands. Nothing else of a command is touched.

/// Role of a word in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordRole {
    /// A word that a command reads or runs.
    Word,
    /// A word behind a change of directory: nobody can say what a relative path means there.
    AfterCd,
    /// A path that a redirection writes to.
    Target,
    /// A word in a here-document.
    Data,
}

/// The command with the words replaced that `replace` gives a path for, quoted as they were.
pub(super) fn replace_words(
    command: &str,
    replace: impl FnMut(&str, WordRole) -> Option<String>,
) -> String {
    let mut words = WordReplacer {
        out: String::with_capacity(command.len()),
        word: String::new(),
        after_cd: false,
        target: false,
        data: false,
        replace,
    };
    let mut quote = None;
    let mut escaped = false;
    let mut before = ' ';
    for c in command.chars() {
        let ends_word = match quote {
            None => is_operator(c) || c.is_whitespace(),
            Some(open) => c == open,
        };
        if ends_word && !escaped {
            words.flush(quote);
            words.out.push(c);
            quote = match (quote, c) {
                (None, '\'' | '"') => Some(c),
                (Some(open), c) if open == c => None,
                (quote, _) => quote,
            };
            if quote.is_none() && c == '<' && before == '<' {
                words.data = true;
            } else if quote.is_none() && c == '>' {
                words.target = true;
            }
        } else {
            words.word.push(c);
        }
        escaped = c == '\\' && !escaped && quote != Some('\'');
        before = c;
    }
    words.flush(quote);
    words.out
}

fn is_operator(c: char) -> bool {
    matches!(
        c,
        ';' | '|' | '&' | '<' | '>' | '(' | ')' | '\'' | '"' | '=' | '`'
    )
}

struct WordReplacer<F> {
    out: String,
    /// The word that is being read.
    word: String,
    after_cd: bool,
    target: bool,
    data: bool,
    replace: F,
}

impl<F: FnMut(&str, WordRole) -> Option<String>> WordReplacer<F> {
    /// Writes the word, or what it is replaced by.
    fn flush(&mut self, quote: Option<char>) {
        if self.word.is_empty() {
            return;
        }
        let role = match (self.data, self.target, self.after_cd) {
            (true, ..) => WordRole::Data,
            (_, true, _) => WordRole::Target,
            (.., true) => WordRole::AfterCd,
            _ => WordRole::Word,
        };
        match ((self.replace)(&self.word, role), quote) {
            (None, _) => self.out.push_str(&self.word),
            (Some(path), None) => self.out.push_str(&quoted_word(&path)),
            (Some(path), Some('"')) => self.out.push_str(&escaped_in_double_quotes(&path)),
            // A single quote cannot be written inside single quotes: leave them for a moment.
            (Some(path), Some(_)) => self.out.push_str(&path.replace('\'', r"'\''")),
        }
        if role == WordRole::Word && matches!(self.word.as_str(), "cd" | "pushd") {
            self.after_cd = true;
        }
        self.target = false;
        self.word.clear();
    }
}

/// A word as a shell reads it: as it is where nothing in it means something else, in quotes otherwise.
#[must_use]
pub fn quoted_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_+,@%=:".contains(c);
    // Some shells look for a program of the name behind a `=`.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn escaped_in_double_quotes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_that_was_meant() {
        for (word, wanted) in [
            ("a/b.toml", "a/b.toml"),
            ("--url=http://x:1", "--url=http://x:1"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("=ls", "'=ls'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(quoted_word(word), wanted);
        }
    }
}
