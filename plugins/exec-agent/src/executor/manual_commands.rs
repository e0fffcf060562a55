//! Commands that an error tells a person to type.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_that_was_meant() {
        for (word, quoted) in [
            ("/k/me@h:22", "/k/me@h:22"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("~", "'~'"),
            ("=ls", "'=ls'"),
            ("a=ls", "a=ls"),
        ] {
            assert_eq!(quoted_word(word), quoted);
        }
    }
}
