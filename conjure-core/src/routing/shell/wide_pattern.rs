//! Patterns of rules that deny or ask, in their widest reading: which commands each is for, word by
//! word, beside those that it fits as a text.
//!
//! Only for patterns whose first word names a program, and only where a command runs it. A star that
//! is a word may stand for no word where it is the last one or before an option. Options of a command
//! that the pattern does not name are passed over. Options of the pattern are wanted anywhere behind
//! what stands before them, in any order and bundle of letters, and under the name that the program
//! has beside; before the first word that is no option where what stands behind it is another
//! program's or a subcommand's. Allows nothing.

use super::expansion::{Atom, Atoms, MatchStates, resolved};
use super::option_names::{
    OptionNaming, has_one_dash, is_abbreviation, is_option, letters, takes_value,
};
use super::{ShellScript, base_name, program as known_program};

/// Programs whose options before a subcommand are others than those behind it.
const OWN_OPTIONS_FIRST: &[&str] = &[
    "git", "docker", "podman", "nerdctl", "cargo", "tmux", "ip", "hg", "go",
];

/// A pattern for commands.
#[derive(Debug)]
pub(in super::super) struct WidePattern {
    /// Empty where the pattern names no program.
    items: Vec<PatternItem>,
    /// The program by whose options those of a command are judged.
    program: String,
    naming: OptionNaming,
}

/// The words of a command as it is or as a shell may expand it.
#[derive(Debug)]
pub(in super::super) struct CommandWords {
    pub(super) words: Vec<Atoms>,
    /// The words at which programs begin that are run.
    pub(super) program_positions: Vec<usize>,
}

#[derive(Debug)]
enum PatternItem {
    /// A word that fits.
    Word(Vec<char>),
    /// Any words, also none.
    Any,
    /// One word or more.
    OneOrMore,
    /// Options somewhere behind.
    Options {
        required: Vec<RequiredOption>,
        /// Whether they count before the first word only that is no option.
        is_first: bool,
    },
}

#[derive(Debug)]
enum RequiredOption {
    Letter(char),
    Named {
        glob: Vec<char>,
        /// The name before a `=`.
        name: String,
        /// What stands behind the `=`.
        value: Option<Vec<char>>,
    },
}

impl WidePattern {
    pub(in super::super) fn read(text: &str) -> Self {
        let words = pattern_words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let program = words.first().and_then(|first| named_program(first));
        let naming = OptionNaming::of(&words);
        let Some(program) = program else {
            return Self {
                items: Vec::new(),
                program: String::new(),
                naming,
            };
        };
        let one_dash = has_one_dash(program);
        let mut own_first = has_own_options_first(program);
        let mut items = vec![PatternItem::Word(program.chars().collect())];
        if words.first().is_some_and(|first| first.ends_with('*')) {
            items.push(PatternItem::Any);
        }
        for (at, word) in words.iter().enumerate().skip(1) {
            let core = word.trim_matches('*');
            if core.is_empty() {
                let next = words.get(at + 1).map(|next| next.trim_matches('*'));
                let is_before_word = next.is_some_and(|next| !next.is_empty() && !is_option(next));
                items.push(match is_before_word {
                    true => PatternItem::OneOrMore,
                    false => PatternItem::Any,
                });
                continue;
            }
            items.push(match is_option(core) && !word.starts_with('*') {
                true => PatternItem::Options {
                    required: required_options(word, one_dash),
                    is_first: own_first,
                },
                false => {
                    own_first = false;
                    PatternItem::Word(word.chars().collect())
                }
            });
            if word.ends_with('*') {
                items.push(PatternItem::Any);
            }
        }
        let program = match words.get(1) {
            Some(&"compose") => "docker-compose",
            _ => program,
        };
        Self {
            items,
            program: program.to_owned(),
            naming,
        }
    }

    /// Whether the pattern is for a command.
    pub(in super::super) fn fits(&self, command: &CommandWords) -> bool {
        let mut places = command.program_positions.iter();
        places.any(|place| {
            let words = command.words.get(*place..).unwrap_or_default();
            self.fits_words(words)
        })
    }

    fn fits_words(&self, words: &[Atoms]) -> bool {
        let mut states = MatchStates::default();
        let Some((PatternItem::Word(program), Some(first))) =
            self.items.first().map(|item| (item, words.first()))
        else {
            return false;
        };
        if !word_fits(program, first, true, &mut states) {
            return false;
        }
        let mut after = self.ends(words);
        for (index, item) in self.items.iter().enumerate().rev() {
            let mut here = vec![false; words.len() + 1];
            let until = match item {
                PatternItem::Options {
                    required: wanted,
                    is_first,
                } => {
                    let words = match is_first {
                        true => words.get(..self.own_options_end(words)).unwrap_or(words),
                        false => words,
                    };
                    self.last_position(wanted, words, &mut states)
                }
                PatternItem::Word(_) | PatternItem::Any | PatternItem::OneOrMore => None,
            };
            for at in (0..=words.len()).rev() {
                let word = words.get(at);
                let is_at = |row: &[bool], at: usize| row.get(at).copied().unwrap_or_default();
                let fits = match (item, word) {
                    (PatternItem::Any, _) => is_at(&after, at) || is_at(&here, at + 1),
                    (PatternItem::OneOrMore, _) => is_at(&after, at + 1) || is_at(&here, at + 1),
                    (PatternItem::Options { .. }, _) => {
                        is_at(&after, at) && until.is_some_and(|until| at <= until)
                    }
                    (PatternItem::Word(_), None) => false,
                    (PatternItem::Word(glob), Some(word)) => {
                        let goes_on =
                            is_at(&after, at + 1) || (has_wildcard(word) && is_at(&after, at));
                        let passed = || {
                            let (is_value, is_none) =
                                self.value_after_option(word, words.get(at + 1));
                            (is_none && is_at(&here, at + 1)) || (is_value && is_at(&here, at + 2))
                        };
                        (goes_on && word_fits(glob, word, index == 0, &mut states))
                            || (index > 0 && may_be_option(word) && passed())
                    }
                };
                if let Some(place) = here.get_mut(at) {
                    *place = fits;
                }
            }
            after = here;
        }
        after.first().copied().unwrap_or_default()
    }

    /// Where the options end that stand directly behind the program.
    fn own_options_end(&self, words: &[Atoms]) -> usize {
        let mut at = 1;
        while let Some(word) = words.get(at)
            && may_be_option(word)
        {
            at += 1 + usize::from(takes_value(&self.program, &text(word)));
        }
        at.min(words.len())
    }

    /// Whether the word behind an option may be its value, and whether it may be none.
    fn value_after_option(&self, option: &Atoms, next: Option<&Atoms>) -> (bool, bool) {
        let is_digit = |atom: &Atom| matches!(atom, Atom::Char(c) if c.is_ascii_digit());
        if has_wildcard(option) || next.is_some_and(|next| next.iter().all(is_digit)) {
            return (true, true);
        }
        let takes_value = takes_value(&self.program, &text(option));
        (takes_value, !takes_value)
    }

    /// The last place of a command before which all the options still stand; none where one is not
    /// there.
    fn last_position(
        &self,
        wanted: &[RequiredOption],
        words: &[Atoms],
        states: &mut MatchStates,
    ) -> Option<usize> {
        let mut last = |option: &RequiredOption| {
            let mut places = words.iter().enumerate().rev();
            let found = places.find(|(at, word)| {
                *at > 0 && option.is_in(word, words.get(at + 1), &self.naming, states)
            });
            found.map(|(at, _)| at)
        };
        let mut until = usize::MAX;
        for option in wanted {
            until = until.min(last(option)?);
        }
        Some(until)
    }

    /// Where a command may end for the pattern: at its end, before words that may come to nothing, and
    /// before options if the pattern names some.
    fn ends(&self, words: &[Atoms]) -> Vec<bool> {
        let mut items = self.items.iter();
        let has_options = items.any(|item| matches!(item, PatternItem::Options { .. }));
        let mut ends = vec![false; words.len() + 1];
        let mut is_end = true;
        for at in (0..=words.len()).rev() {
            if let Some(word) = words.get(at) {
                is_end &= word.contains(&Atom::Any) || (has_options && may_be_option(word));
            }
            if let Some(place) = ends.get_mut(at) {
                *place = is_end;
            }
        }
        ends
    }
}

/// The words of a pattern of one simple command, or of one that is no command; none of others.
fn pattern_words(text: &str) -> Vec<String> {
    let script = ShellScript::read(text);
    if script.doubt.is_some() {
        return text.split_whitespace().map(str::to_owned).collect();
    }
    match script.commands.as_slice() {
        [command] if command.assignments.is_empty() && command.redirects.is_empty() => {
            let words = command.words.iter();
            words.map(|word| word.display_text().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// The program that the first word of a pattern names: a name with a star before or behind it at
/// most, or a path without one.
fn named_program(first: &str) -> Option<&str> {
    let core = first.trim_matches('*');
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
    let names = core.chars().all(is_name)
        && core.chars().any(|c| c.is_ascii_alphanumeric())
        && !core.starts_with('-');
    (names && (core == first || !core.contains('/'))).then_some(core)
}

/// Whether what stands behind the first word that is no option may have options of its own.
fn has_own_options_first(program: &str) -> bool {
    let name = base_name(program);
    OWN_OPTIONS_FIRST.contains(&name)
        || known_program(name).is_some_and(|it| it.is_wrapper() || it.is_interpreter())
}

fn required_options(word: &str, one_dash: bool) -> Vec<RequiredOption> {
    let core = word.trim_matches('*');
    if let Some(letters) = letters(core).filter(|_| !one_dash) {
        return letters.into_iter().map(RequiredOption::Letter).collect();
    }
    let (name, value) = match core.split_once('=') {
        Some((name, _)) => {
            let value = word.split_once('=').map(|(_, value)| value.chars());
            (name, value.map(Iterator::collect))
        }
        None => (core, None),
    };
    vec![RequiredOption::Named {
        glob: word.chars().collect(),
        name: name.to_owned(),
        value,
    }]
}

impl RequiredOption {
    /// Whether a word of a command has the option, or may become it.
    fn is_in(
        &self,
        word: &Atoms,
        next: Option<&Atoms>,
        naming: &OptionNaming,
        states: &mut MatchStates,
    ) -> bool {
        if !may_be_option(word) {
            return false;
        }
        if has_wildcard(word) {
            return true;
        }
        let text = text(word);
        let given = text.split('=').next().unwrap_or(&text);
        match self {
            Self::Letter(wanted) => match given.strip_prefix("--") {
                Some(given) => naming.has_name_like(*wanted, given),
                None => {
                    let letters = naming.given_letters(given);
                    let mut letters = letters.into_iter();
                    letters.any(|letter| naming.is_same(*wanted, letter))
                }
            },
            Self::Named { glob, name, value } => {
                if states.matches(glob, word) {
                    return true;
                }
                if let Some(value) = value {
                    return given == name && next.is_some_and(|next| states.matches(value, next));
                }
                let Some(name) = name.strip_prefix("--") else {
                    return false;
                };
                match given.strip_prefix("--") {
                    Some(given) => is_abbreviation(name, given),
                    None => {
                        let letters = naming.given_letters(given);
                        letters.iter().any(|letter| naming.has_name(*letter, name))
                    }
                }
            }
        }
    }
}

/// The characters of a word that are known.
fn text(word: &Atoms) -> String {
    word.iter().copied().filter_map(Atom::as_char).collect()
}

fn word_fits(glob: &[char], word: &Atoms, is_program: bool, states: &mut MatchStates) -> bool {
    if states.matches(glob, word) {
        return true;
    }
    if !word.contains(&Atom::Char('/')) {
        return false;
    }
    let base = word.rsplit(|atom| *atom == Atom::Char('/')).next();
    (is_program && base.is_some_and(|base| states.matches(glob, base)))
        || states.matches(glob, &resolved(word))
}

/// Whether a word may become several others.
fn has_wildcard(word: &Atoms) -> bool {
    word.iter().any(|atom| !matches!(atom, Atom::Char(_)))
}

/// Whether a word is an option, or may become one.
fn may_be_option(word: &Atoms) -> bool {
    match word.as_slice() {
        [Atom::Char(first), rest @ ..] => *first == '-' && !rest.is_empty(),
        [_, ..] => true,
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::readings;
    use super::*;

    fn fits(pattern: &str, command: &str) -> bool {
        let pattern = WidePattern::read(pattern);
        let commands = readings(command).commands;
        commands.iter().any(|command| pattern.fits(command))
    }

    #[test]
    fn a_command_that_does_what_a_pattern_says_fits_it() {
        for (pattern, command) in [
            ("git push *", "git push"),
            ("git push*", "git --no-pager push"),
            ("git push *", "git -p push origin"),
            ("git push *", "git -C sub push"),
            ("kubectl delete pod *", "kubectl -n prod delete --now pod x"),
            ("kubectl delete *", "kubectl --namespace=prod delete pod x"),
            ("git push * --force", "git push --force"),
            (
                "git push --force*",
                "git push origin main --force-with-lease",
            ),
            ("git push --force *", "git push origin -f"),
            ("git push --no-verify *", "git push origin --no-ver"),
            ("git -c *", "git -C sub -c a=b log"),
            ("python3 -c *", "python3 -I -c 1"),
            ("head /etc/*", "head -n 5 /etc/passwd"),
            ("rm -rf *", "rm -r -f x"),
            ("rm -rf *", "rm -fr x"),
            ("rm -rf *", "rm -Rfv x"),
            ("rm -rf *", "rm x -r y -f"),
            ("rm -rf *", "rm --recursive --fo x"),
            ("rm --recursive *", "rm -r x"),
            ("*rm -rf*", "/bin/rm -f -r x"),
            ("rm -rf /", "rm -fr /"),
            ("rm -rf /", "rm -fr /tmp/.."),
            ("rm -rf", "rm -f -r"),
            ("rm -rf *", "sudo -u root /bin/rm -fr x"),
            ("rm -rf *", "sh -c 'rm -fr x'"),
            ("cat /etc/*", "cat -n /etc/passwd"),
            ("find * -delete*", "find . -type f -delete"),
            ("sort --output=/etc/*", "sort --output /etc/x a"),
            ("rm 'a b' *", "rm -v \"a b\""),
        ] {
            assert!(fits(pattern, command), "{pattern}: {command}");
        }
    }

    #[test]
    fn a_command_that_does_something_else_does_not() {
        for (pattern, command) in [
            ("git push *", "git log push"),
            ("git push *", "git log --grep push"),
            ("git push *", "git pushx"),
            ("git push *", "git"),
            ("git push", "git push origin"),
            ("rm -rf *", "rm -r x"),
            ("rm -rf *", "rm -r x; ls -f"),
            ("*rm -rf*", "cp -rf platform x"),
            ("rm -rf /", "rm -fr x"),
            ("cp * /data/*", "cp /data/x y"),
            ("find * -delete*", "find . -newer x -type d -ls"),
            ("find * -ok *", "find . -name k -o -name l"),
            ("git push -f *", "git push --dry-run"),
            ("kubectl delete *", "kubectl get pod delete"),
            ("docker rm *", "docker ps --filter rm"),
            ("git push --force-with-lease *", "git push --force"),
            ("git push *", "git --no-pager log push"),
            ("npm publish*", "npm --silent run publish"),
            ("git -c *", "git commit -c HEAD"),
            ("git -C *", "git grep -C 3 x"),
            ("mysql -e *", "mysql -uadmin -psecret"),
            ("* push *", "git push"),
        ] {
            assert!(!fits(pattern, command), "{pattern}: {command}");
        }
    }
}
