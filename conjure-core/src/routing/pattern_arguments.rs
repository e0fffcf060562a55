//! The text between the parentheses of a pattern, and its readings as a command.
//!
//! Each reading is made once, when the first call is compared with it, and is shared by all copies of
//! the pattern. Two texts that are the same are the same arguments.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::command_pattern::CommandPattern;
use super::shell::WidePattern;

/// What a pattern says of the arguments of a call.
#[derive(Clone)]
pub(super) struct PatternArguments(Arc<ArgumentReadings>);

struct ArgumentReadings {
    text: String,
    /// The reading of a rule that allows.
    narrow: OnceLock<CommandPattern>,
    /// The reading of a rule that denies or asks.
    wide: OnceLock<WidePattern>,
}

impl PatternArguments {
    pub(super) fn new(text: &str) -> Self {
        Self(Arc::new(ArgumentReadings {
            text: text.to_owned(),
            narrow: OnceLock::new(),
            wide: OnceLock::new(),
        }))
    }

    pub(super) fn text(&self) -> &str {
        &self.0.text
    }

    /// What they allow of commands.
    pub(super) fn narrow(&self) -> &CommandPattern {
        let read = || CommandPattern::read(self.text());
        self.0.narrow.get_or_init(read)
    }

    /// What they deny of commands, or ask about.
    pub(super) fn wide(&self) -> &WidePattern {
        let read = || WidePattern::read(self.text());
        self.0.wide.get_or_init(read)
    }
}

impl fmt::Debug for PatternArguments {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(out)
    }
}

impl PartialEq for PatternArguments {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for PatternArguments {}

impl Hash for PatternArguments {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};
    use std::ptr;

    use super::*;

    #[test]
    fn a_text_is_read_once_for_all_its_copies() {
        let arguments = PatternArguments::new("git push *");
        let (narrow, wide) = (arguments.narrow(), arguments.wide());
        let copy = arguments.clone();
        for of in [&arguments, &copy] {
            assert!(ptr::eq(of.narrow(), narrow) && ptr::eq(of.wide(), wide));
        }
    }

    #[test]
    fn arguments_are_their_text_whatever_was_read_of_it() {
        let (one, other) = (PatternArguments::new("ls *"), PatternArguments::new("ls *"));
        one.wide();
        assert_eq!(one, other);
        assert_ne!(one, PatternArguments::new("ls"));
        assert_eq!(format!("{one:?}"), r#""ls *""#);
        let hasher = RandomState::new();
        assert_eq!(hasher.hash_one(&one), hasher.hash_one(&other));
    }
}
