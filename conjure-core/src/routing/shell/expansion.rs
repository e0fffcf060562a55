//! What the words of a command may become when a shell expands them: what a rule that denies looks
//! at beside the words as they are written.
//!
//! Every reading here is a set of texts that holds each text which the expansion may be, and more:
//! a variable and the output of a command may be anything, names of files anything that the pattern
//! allows, several of them too. Whether a rule may be for one of them is then a question about two
//! sets. Only for commands whose programs are known; knows no file and no variable.

use std::cell::OnceCell;

use super::super::paths;
use super::wide_pattern::{CommandWords, WidePattern};
use super::word::{ShellWord, WordPiece};
use super::{ShellScript, SimpleCommand, base_name};

/// How many words of a command are looked at one by one as paths in another directory.
const MAX_MOVED_WORDS: usize = 32;
/// The longest directory that is put before paths: a longer one may be any.
const MAX_DIRECTORY_ATOMS: usize = 256;

/// A part of a set of texts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Atom {
    Char(char),
    /// Any text, also none.
    Any,
    /// Any text without a slash, also none.
    Name,
}

pub(super) type Atoms = Vec<Atom>;

impl Atom {
    /// The character, if the atom is one.
    pub(super) fn as_char(self) -> Option<char> {
        match self {
            Self::Char(c) => Some(c),
            Self::Any | Self::Name => None,
        }
    }
}

/// The texts that a command may become, and its words.
#[derive(Debug, Default)]
struct AtomReadings {
    texts: Vec<Atoms>,
    commands: Vec<CommandWords>,
}

/// What the commands of a script may become, for the rules that deny to look at.
#[derive(Debug)]
pub(in super::super) struct Expansions<'a> {
    script: &'a ShellScript,
    in_place: OnceCell<AtomReadings>,
    in_directory: OnceCell<AtomReadings>,
}

impl<'a> Expansions<'a> {
    pub(in super::super) fn new(script: &'a ShellScript) -> Self {
        Self {
            script,
            in_place: OnceCell::new(),
            in_directory: OnceCell::new(),
        }
    }

    /// Whether a command of the script may become, by expansion or in the directory that it goes
    /// to, one that `pattern` is for: a text that fits it, where `*` stands for any run of characters,
    /// or words that its widest reading, `wide`, is for.
    pub(in super::super) fn may_fit(&self, pattern: &str, wide: &WidePattern) -> bool {
        let characters: Vec<char> = pattern.chars().collect();
        let mut states = MatchStates::default();
        let mut fits = |readings: &AtomReadings| {
            let mut texts = readings.texts.iter();
            texts.any(|text| states.matches(&characters, text))
                || readings.commands.iter().any(|words| wide.fits(words))
        };
        // Only a rule about paths can be for a name in another directory.
        fits(self.readings_in_place())
            || (pattern.contains('/') && fits(self.readings_in_directory()))
    }

    fn readings_in_place(&self) -> &AtomReadings {
        self.in_place.get_or_init(|| {
            let mut found = AtomReadings::default();
            let commands = self.script.commands.iter();
            for command in commands.filter(|command| is_expanded(command)) {
                readings(command, None, &mut found);
            }
            found
        })
    }

    fn readings_in_directory(&self) -> &AtomReadings {
        self.in_directory.get_or_init(|| {
            let mut found = AtomReadings::default();
            if self.script.changes_directory() {
                let directory = self.script.directory();
                for command in &self.script.commands {
                    readings(command, Some(&directory), &mut found);
                }
            }
            found
        })
    }
}

impl ShellScript {
    /// The directory that a script goes to: any, if it goes to several or to one that is not known.
    fn directory(&self) -> Atoms {
        let mut moving = self
            .commands
            .iter()
            .filter(|command| command.changes_directory());
        let (Some(first), None) = (moving.next(), moving.next()) else {
            return vec![Atom::Any];
        };
        match first.words.as_slice() {
            [_, target] if !target.display_text().starts_with('-') => {
                let directory = atoms(target);
                match directory.len() <= MAX_DIRECTORY_ATOMS {
                    true => directory,
                    false => vec![Atom::Any],
                }
            }
            _ => vec![Atom::Any],
        }
    }
}

/// Whether some word of a command may become another one.
fn is_expanded(command: &SimpleCommand) -> bool {
    let targets = command.redirects.iter().map(|redirect| &redirect.target);
    // What a loop sets a variable to has no text: the words that use it are looked at.
    let values = command.assignments.iter().map(|set| &set.value);
    let values = values.filter(|value| !value.display_text().is_empty());
    let mut words = command.words.iter().chain(targets).chain(values);
    words.any(|word| word.text().is_none() || word.has_glob() || has_home(word.display_text()))
}

/// Whether a shell may put a home directory in.
fn has_home(text: &str) -> bool {
    text.starts_with('~') || text.contains("=~") || text.contains(":~")
}

/// The texts of a command, as those of [`super::readings`]: with its program's bare name, with its
/// files, with paths resolved; in another directory, if one is given.
fn readings(command: &SimpleCommand, directory: Option<&Atoms>, readings: &mut AtomReadings) {
    let words: Vec<Atoms> = command.words.iter().map(atoms).collect();
    let targets: Vec<Atoms> = command
        .redirects
        .iter()
        .map(|redirect| atoms(&redirect.target))
        .collect();
    let Some(directory) = directory else {
        for set in &command.assignments {
            let mut reading = chars(&format!("{}=", set.name));
            reading.extend(atoms(&set.value));
            readings.texts.push(reading);
        }
        push_readings(command, &words, &targets, readings);
        return;
    };
    let inside = |word: &Atoms| join_directory(word, directory);
    let targets: Vec<Atoms> = targets.iter().map(inside).collect();
    let all: Vec<Atoms> = words.iter().take(1).cloned().collect::<Vec<_>>();
    let all = all.into_iter().chain(words.iter().skip(1).map(inside));
    push_readings(command, &all.collect::<Vec<_>>(), &targets, readings);
    for at in 1..words.len().min(MAX_MOVED_WORDS) {
        let mut one = words.clone();
        if let Some(word) = one.get_mut(at) {
            *word = inside(word);
        }
        push_readings(command, &one, &targets, readings);
    }
    if let Some((program, rest)) = words.split_first()
        && program.contains(&Atom::Char('/'))
    {
        let program = resolved(&inside(program));
        let words = [vec![program.clone()], rest.to_vec()].concat();
        readings.commands.push(of_words(words));
        readings.texts.push(joined(program, rest));
    }
}

fn of_words(words: Vec<Atoms>) -> CommandWords {
    CommandWords {
        words,
        program_positions: vec![0],
    }
}

/// A word as a path in a directory, or as an option or assignment (`if=name`, `--file=name`) whose
/// value is one.
fn join_directory(word: &Atoms, directory: &Atoms) -> Atoms {
    let value = word.iter().position(|atom| *atom == Atom::Char('='));
    let start = value.map_or(0, |at| at + 1);
    let (option, path) = word.split_at(start);
    match path.first() {
        Some(Atom::Char('/')) | None => return word.clone(),
        // An option without a value.
        Some(Atom::Char('-')) if start == 0 => return word.clone(),
        Some(_) => {}
    }
    [option, directory, &[Atom::Char('/')], path].concat()
}

fn push_readings(
    command: &SimpleCommand,
    words: &[Atoms],
    targets: &[Atoms],
    readings: &mut AtomReadings,
) {
    readings.commands.push(of_words(words.to_vec()));
    let out = &mut readings.texts;
    for target in targets {
        out.extend([target.clone(), resolved(target)]);
    }
    let program = command.program().unwrap_or_default();
    for first in [program, base_name(program)] {
        let rest = words.get(1..).unwrap_or_default();
        let written = joined(chars(first), rest);
        let resolved_rest: Vec<Atoms> = rest.iter().map(|word| resolved(word)).collect();
        let mut with_files = written.clone();
        for (redirect, target) in command.redirects.iter().zip(targets) {
            with_files.extend(chars(&format!(" {} ", redirect.operator)));
            with_files.extend(target);
        }
        let first = if paths::is_path(first) {
            &paths::resolved(first)
        } else {
            first
        };
        out.extend([written, with_files, joined(chars(first), &resolved_rest)]);
    }
}

fn joined(program: Atoms, words: &[Atoms]) -> Atoms {
    let mut text = program;
    for word in words {
        // What may be anything may be no word at all, and then has no blank either.
        if word.as_slice() != [Atom::Any] {
            text.push(Atom::Char(' '));
        }
        text.extend(word);
    }
    text
}

pub(super) fn chars(text: &str) -> Atoms {
    text.chars().map(Atom::Char).collect()
}

/// What a word may become.
fn atoms(word: &ShellWord) -> Atoms {
    let Some(pieces) = word.pieces().filter(|_| !word.globs_dots()) else {
        return vec![Atom::Any];
    };
    let mut atoms = Vec::with_capacity(pieces.len());
    let mut before = None;
    let mut is_home = false;
    for piece in pieces {
        let atom = match piece {
            WordPiece::Char('~') if matches!(before, None | Some('=' | ':')) => {
                is_home = true;
                Atom::Any
            }
            WordPiece::Char('/') => {
                is_home = false;
                Atom::Char('/')
            }
            // The name of a user whose home it is.
            WordPiece::Char(_) if is_home => continue,
            WordPiece::Char(c) => Atom::Char(*c),
            WordPiece::Star | WordPiece::AnyChar => Atom::Name,
        };
        before = Some(piece.as_char());
        atoms.push(atom);
    }
    if word.has_glob() {
        // The names of further files, each of them a word.
        let is_path = atoms.contains(&Atom::Char('/'));
        atoms.push(if is_path { Atom::Any } else { Atom::Name });
    }
    atoms
}

/// A path resolved by its text, as [`paths::resolved`] does it. A part that may be anything stays,
/// because `..` behind it does not lead to what stands before it.
pub(super) fn resolved(path: &[Atom]) -> Atoms {
    let is_absolute = path.first() == Some(&Atom::Char('/'));
    let mut parts: Vec<&[Atom]> = Vec::new();
    let up = [Atom::Char('.'), Atom::Char('.')];
    for part in path.split(|atom| *atom == Atom::Char('/')) {
        match part {
            [] | [Atom::Char('.')] => {}
            part if *part == up => match parts.last() {
                Some(last) if last.contains(&Atom::Any) => {}
                Some(last) if **last != up => {
                    parts.pop();
                }
                None if is_absolute => {}
                _ => parts.push(part),
            },
            part => parts.push(part),
        }
    }
    let mut path: Atoms = is_absolute.then_some(Atom::Char('/')).into_iter().collect();
    path.extend(parts.join(&Atom::Char('/')));
    path
}

/// How far a pattern may have been fitted by what was read of a text; kept for the next one.
///
/// `at[i]`: whether what was read so far may have fitted the first `i` characters of the pattern.
#[derive(Debug, Default)]
pub(super) struct MatchStates {
    current: Vec<bool>,
    next: Vec<bool>,
}

impl MatchStates {
    /// Whether a text of the set fits the pattern.
    pub(super) fn matches(&mut self, pattern: &[char], set: &[Atom]) -> bool {
        let Self { current: at, next } = self;
        at.clear();
        at.resize(pattern.len() + 1, false);
        if let Some(first) = at.first_mut() {
            *first = true;
        }
        skip_stars(pattern, at);
        for atom in set {
            next.clear();
            next.resize(at.len(), false);
            let mut reaches = false;
            for (i, is_here) in at.iter().enumerate() {
                let wanted = pattern.get(i);
                reaches |= is_here;
                let (stays, goes_on) = match atom {
                    Atom::Char(c) => (
                        *is_here && wanted == Some(&'*'),
                        *is_here && wanted == Some(c),
                    ),
                    Atom::Any | Atom::Name => (reaches, false),
                };
                if let Some(state) = next.get_mut(i) {
                    *state |= stays;
                }
                if let Some(state) = next.get_mut(i + 1) {
                    *state |= goes_on;
                }
                if *atom == Atom::Name && wanted == Some(&'/') {
                    reaches = false;
                }
            }
            std::mem::swap(at, next);
            skip_stars(pattern, at);
        }
        at.last().copied().unwrap_or_default()
    }
}

/// A star may stand for no text.
fn skip_stars(pattern: &[char], at: &mut [bool]) {
    for (i, wanted) in pattern.iter().enumerate() {
        if *wanted == '*'
            && at.get(i).copied().unwrap_or_default()
            && let Some(state) = at.get_mut(i + 1)
        {
            *state = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_become(command: &str, pattern: &str) -> bool {
        Expansions::new(&ShellScript::read(command)).may_fit(pattern, &WidePattern::read(pattern))
    }

    #[test]
    fn what_a_command_may_become_is_found() {
        for (pattern, command) in [
            ("*/etc/shadow*", "cat /etc/shado?"),
            ("*/etc/shadow*", "cat /etc/sha*"),
            ("*/etc/shadow*", "cat /et*/shad*"),
            ("*/etc/shadow*", "cat /*/../etc/shad*w"),
            ("*/etc/shadow*", "x=shadow; cat /etc/$x"),
            ("*/etc/shadow*", "for f in shadow; do cat /etc/$f; done"),
            ("*/etc/shadow*", "cat \"/etc/$x\""),
            ("*/etc/shadow*", "cat < /etc/shado?"),
            ("*/etc/shadow*", "dd if=/etc/shado?"),
            ("*/etc/shadow*", "cd /etc; cat shadow"),
            ("*/etc/shadow*", "cd /; cd etc; cat shadow"),
            ("*/etc/shadow*", "chdir /etc; cat shadow"),
            ("scripts/deploy *", "cd scripts; ./deploy web"),
            ("/opt/tools/*", "cd /opt; tools/run"),
            ("*/etc/shadow*", "cd /etc && cat < shadow"),
            ("*/etc/shadow*", "cd /etc; dd if=shadow"),
            ("*/etc/shadow*", "cd /etc; grep --file=shadow x"),
            ("*/etc/shadow*", "cd /etc; dd if=../etc/shadow of=/tmp/x"),
            ("cat /data/.ssh/*", "cat ~/.ssh/id"),
            ("cat /data/.ssh/*", "cat ~someone/.ssh/id"),
            ("cat /etc/shadow", "cat ~/../etc/shadow"),
            ("systemctl stop *", "x=stop; systemctl $x db"),
            ("systemctl stop *", "systemctl $(echo stop) db"),
            ("systemctl stop *", "systemctl sto? db"),
            ("systemctl stop *", "/bin/systemctl sto* db"),
            ("systemctl db", "systemctl $x db"),
            ("rm -rf *", "rm *"),
        ] {
            assert!(may_become(command, pattern), "{command}");
        }
    }

    #[test]
    fn a_long_directory_may_be_any() {
        let long = |length: usize| format!("cd /{}; cat shadow", "a".repeat(length));
        assert!(!may_become(&long(200), "*/etc/shadow*"));
        assert!(may_become(&long(300), "*/etc/shadow*"));
    }

    #[test]
    fn what_no_rule_can_be_for_is_left_alone() {
        for (pattern, command) in [
            ("systemctl stop *", "ls *.txt"),
            ("systemctl stop *", "systemctl status *"),
            ("*/etc/shadow*", "wc -l *.md"),
            ("*/etc/shadow*", "cat 'shado?'"),
            ("*/etc/shadow*", "cd src && cat shadow"),
            ("*/etc/shadow*", "cd src && dd if=shadow of=/etc/x"),
            ("*/etc/shadow*", "for f in a b; do ls; done"),
            ("git push *", "cd \"$x\" && git status"),
            ("rm -rf *", "git log $x"),
        ] {
            assert!(!may_become(command, pattern), "{command}");
        }
    }
}
