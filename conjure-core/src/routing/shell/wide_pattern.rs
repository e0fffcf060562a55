//! Patterns of rules that deny or ask, in their widest reading: which commands each is for, word by
//! word, beside those that it fits as a text.
//!
//! A star that is a word may stand for no word where it is the first one, the last one or before an
//! option. Options of a command that the pattern does not name are passed over, with the word behind
//! each, which may be its value. Options of the pattern are wanted anywhere behind what stands before
//! them, in any order and bundle of letters, and under the common long or short name. A reading too
//! many denies more; none allows anything.

use super::ShellScript;
use super::expansion::{Atom, Atoms, MatchStates, resolved};

/// The longest bundle of letters in a pattern: what is longer is one option with one dash.
const MOST_LETTERS: usize = 4;

/// Letters of options and what programs commonly call these at length.
const LONG_NAMES: &[(char, &str)] = &[
    ('r', "recursive"),
    ('R', "recursive"),
    ('f', "force"),
    ('d', "delete"),
    ('g', "global"),
    ('a', "all"),
    ('A', "all"),
    ('y', "yes"),
    ('i', "in-place"),
    ('o', "output"),
];

/// Long options that programs commonly have no letter for.
const NO_LETTER: &[&str] = &[
    "hard",
    "mirror",
    "prune",
    "amend",
    "force-with-lease",
    "privileged",
    "no-preserve-root",
];

/// Programs whose options of several letters have one dash.
const ONE_DASH: &[&str] = &[
    "find",
    "gfind",
    "go",
    "gcc",
    "g++",
    "cc",
    "c++",
    "clang",
    "clang++",
    "ld",
    "java",
    "javac",
    "mvn",
    "terraform",
    "openssl",
    "ffmpeg",
    "ffprobe",
    "magick",
    "convert",
    "mogrify",
    "identify",
    "pdflatex",
    "xelatex",
    "lualatex",
    "latexmk",
    "exiftool",
    "xterm",
];

/// A pattern for commands.
#[derive(Debug)]
pub(in super::super) struct WidePattern {
    items: Vec<PatternItem>,
}

/// The words of a command as it is or as a shell may expand it.
#[derive(Debug)]
pub(in super::super) struct CommandWords {
    pub(super) words: Vec<Atoms>,
    /// Whether each word may be the beginning of a command that this one runs.
    pub(super) runs_others: bool,
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
    Options(Vec<WantedOption>),
}

#[derive(Debug)]
enum WantedOption {
    Letter(char),
    Whole {
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
        let one_dash = words.first().is_some_and(|word| has_one_dash(word));
        let mut items = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let core = word.trim_matches('*');
            if core.is_empty() {
                let next = words.get(at + 1).map(|next| next.trim_matches('*'));
                let is_before_word = next.is_some_and(|next| !next.is_empty() && !is_option(next));
                items.push(match at > 0 && is_before_word {
                    true => PatternItem::OneOrMore,
                    false => PatternItem::Any,
                });
                continue;
            }
            let is_open_before = word.starts_with('*');
            if is_open_before {
                items.push(PatternItem::Any);
            }
            items.push(match is_option(core) && (at > 0 || is_open_before) {
                true => {
                    PatternItem::Options(wanted_options(word.trim_start_matches('*'), one_dash))
                }
                false => PatternItem::Word(word.chars().collect()),
            });
            if word.ends_with('*') {
                items.push(PatternItem::Any);
            }
        }
        Self { items }
    }

    /// Whether the pattern is for a command.
    pub(in super::super) fn fits(&self, command: &CommandWords) -> bool {
        let words = command.words.as_slice();
        if self.items.is_empty() || words.is_empty() {
            return false;
        }
        let mut states = MatchStates::default();
        let mut after = self.ends(words);
        for (index, item) in self.items.iter().enumerate().rev() {
            let mut here = vec![false; words.len() + 1];
            let until = match item {
                PatternItem::Options(wanted) => last_place(wanted, words, &mut states),
                PatternItem::Word(_) | PatternItem::Any | PatternItem::OneOrMore => None,
            };
            for at in (0..=words.len()).rev() {
                let word = words.get(at);
                let is_at = |row: &[bool], at: usize| row.get(at).copied().unwrap_or_default();
                let fits = match (item, word) {
                    (PatternItem::Any, _) => is_at(&after, at) || is_at(&here, at + 1),
                    (PatternItem::OneOrMore, _) => is_at(&after, at + 1) || is_at(&here, at + 1),
                    (PatternItem::Options(_), _) => {
                        is_at(&after, at) && until.is_some_and(|until| at <= until)
                    }
                    (PatternItem::Word(_), None) => false,
                    (PatternItem::Word(glob), Some(word)) => {
                        let goes_on = is_at(&after, at + 1) || (is_open(word) && is_at(&after, at));
                        let passed = || is_at(&here, at + 1) || is_at(&here, at + 2);
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
        match command.runs_others {
            true => after.contains(&true),
            false => after.first().copied().unwrap_or_default(),
        }
    }

    /// Where a command may end for the pattern: at its end, before words that may come to nothing, and
    /// before options if the pattern names some.
    fn ends(&self, words: &[Atoms]) -> Vec<bool> {
        let mut items = self.items.iter();
        let has_options = items.any(|item| matches!(item, PatternItem::Options(_)));
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

/// The words of a pattern. A star in a word may be where a further option begins.
fn pattern_words(text: &str) -> Vec<String> {
    let script = ShellScript::read(text);
    let words: Vec<String> = match script.commands.as_slice() {
        [command]
            if script.doubt.is_none()
                && command.assignments.is_empty()
                && command.redirects.is_empty() =>
        {
            let words = command.words.iter();
            words.map(|word| word.shown().to_owned()).collect()
        }
        _ => text.split_whitespace().map(str::to_owned).collect(),
    };
    let split = |word: String| -> Vec<String> {
        match word.split_once("*-") {
            Some((before, after)) if !before.is_empty() => {
                vec![format!("{before}*"), format!("*-{after}")]
            }
            _ => vec![word],
        }
    };
    words.into_iter().flat_map(split).collect()
}

/// Whether a word of a pattern, without the stars around it, is an option.
pub(in super::super) fn is_option(core: &str) -> bool {
    core.starts_with('-') && core.chars().any(|c| c.is_ascii_alphanumeric())
}

/// Whether the options of several letters of this program have one dash.
pub(in super::super) fn has_one_dash(program: &str) -> bool {
    ONE_DASH.contains(&super::base_name(program).trim_matches('*'))
}

/// Whether an option is also found under its other common name, or commonly has none.
pub(in super::super) fn has_common_name(core: &str) -> bool {
    match core.strip_prefix("--") {
        Some(name) => NO_LETTER.contains(&name) || LONG_NAMES.iter().any(|(_, long)| *long == name),
        None => letters(core).is_some_and(|letters| {
            let mut letters = letters.iter();
            letters.all(|letter| LONG_NAMES.iter().any(|(known, _)| known == letter))
        }),
    }
}

fn wanted_options(word: &str, one_dash: bool) -> Vec<WantedOption> {
    let core = word.trim_matches('*');
    if let Some(letters) = letters(core).filter(|_| !one_dash) {
        return letters.into_iter().map(WantedOption::Letter).collect();
    }
    let (name, value) = match core.split_once('=') {
        Some((name, _)) => {
            let value = word.split_once('=').map(|(_, value)| value.chars());
            (name, value.map(Iterator::collect))
        }
        None => (core, None),
    };
    vec![WantedOption::Whole {
        glob: word.chars().collect(),
        name: name.to_owned(),
        value,
    }]
}

/// The letters of a bundle of short options, such as `-rf`.
fn letters(core: &str) -> Option<Vec<char>> {
    let letters: Vec<char> = core.strip_prefix('-')?.chars().collect();
    let mut distinct = letters.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let is_bundle = (1..=MOST_LETTERS).contains(&letters.len())
        && letters.iter().all(char::is_ascii_alphanumeric)
        && distinct.len() == letters.len();
    is_bundle.then_some(letters)
}

/// The last place of a command before which all the options still stand; none where one is not
/// there.
fn last_place(wanted: &[WantedOption], words: &[Atoms], states: &mut MatchStates) -> Option<usize> {
    let mut last = |option: &WantedOption| {
        let mut places = words.iter().enumerate().rev();
        let found = places.find(|(at, word)| option.is_in(word, words.get(at + 1), states));
        found.map(|(at, _)| at)
    };
    let mut until = usize::MAX;
    for option in wanted {
        until = until.min(last(option)?);
    }
    Some(until)
}

impl WantedOption {
    /// Whether a word of a command has the option, or may become it.
    fn is_in(&self, word: &Atoms, next: Option<&Atoms>, states: &mut MatchStates) -> bool {
        if !may_be_option(word) {
            return false;
        }
        if is_open(word) {
            return true;
        }
        let text: String = word.iter().copied().filter_map(Atom::as_char).collect();
        let given = text.split('=').next().unwrap_or(&text);
        match self {
            Self::Letter(wanted) => match given.strip_prefix("--") {
                Some(given) => !given.is_empty() && has_long_name(*wanted, given),
                None => {
                    let letters = given
                        .chars()
                        .skip(1)
                        .take_while(char::is_ascii_alphanumeric);
                    letters.into_iter().any(|letter| is_same(*wanted, letter))
                }
            },
            Self::Whole { glob, name, value } => {
                if states.meet(glob, word) {
                    return true;
                }
                if let Some(value) = value {
                    return given == name && next.is_some_and(|next| states.meet(value, next));
                }
                let Some(name) = name.strip_prefix("--") else {
                    return false;
                };
                match given.strip_prefix("--") {
                    // Cut short.
                    Some(given) => !given.is_empty() && name.starts_with(given),
                    None => {
                        let mut letters = given.chars().skip(1);
                        letters.any(|letter| LONG_NAMES.contains(&(letter, name)))
                    }
                }
            }
        }
    }
}

/// Whether two letters stand for the same: programs take either `-r` or `-R`, or both.
fn is_same(wanted: char, given: char) -> bool {
    wanted == given || matches!((wanted, given), ('r', 'R') | ('R', 'r'))
}

/// Whether a long option, whole or cut short, is this letter's.
fn has_long_name(letter: char, given: &str) -> bool {
    let mut names = LONG_NAMES.iter();
    names.any(|(known, name)| *known == letter && name.starts_with(given))
}

fn word_fits(glob: &[char], word: &Atoms, is_program: bool, states: &mut MatchStates) -> bool {
    if states.meet(glob, word) {
        return true;
    }
    if !word.contains(&Atom::Char('/')) {
        return false;
    }
    let base = word.rsplit(|atom| *atom == Atom::Char('/')).next();
    (is_program && base.is_some_and(|base| states.meet(glob, base)))
        || states.meet(glob, &resolved(word))
}

/// Whether a word may become several others.
fn is_open(word: &Atoms) -> bool {
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
            ("* push *", "git push"),
            ("git push * --force", "git push --force"),
            (
                "git push --force*",
                "git push origin main --force-with-lease",
            ),
            ("git push --force *", "git push origin -f"),
            ("git push --no-verify *", "git push origin --no-ver"),
            ("rm -rf *", "rm -r -f x"),
            ("rm -rf *", "rm -fr x"),
            ("rm -rf *", "rm -Rfv x"),
            ("rm -rf *", "rm x -r y -f"),
            ("rm -rf *", "rm --recursive --fo x"),
            ("rm --recursive *", "rm -r x"),
            ("*rm -rf*", "/bin/rm -f -r x"),
            ("*rm*-rf*", "rm -fr x"),
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
        ] {
            assert!(!fits(pattern, command), "{pattern}: {command}");
        }
    }
}
