//! Patterns for commands, such as `git status *`: which simple commands they allow.
//!
//! A pattern is read by the same shell parser as a command, and compared word by word. A `*` that is
//! a word stands for one or more arguments, a `*` in a word for characters of that word (`get*` alone
//! also for its arguments); neither stands for what would make a program run another one. Always the narrower reading; what is not
//! certain is not allowed.

use super::paths;
use super::shell::{
    Assignment, Doubt, KnownProgram, Redirect, ShellScript, ShellWord, SimpleCommand, WordPiece,
    program,
};

/// A pattern for command lines.
#[derive(Debug)]
pub(super) struct CommandPattern {
    script: ShellScript,
}

/// Why a pattern allows less than it seems to, or nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weakness {
    /// The pattern is no command that can be read.
    Unreadable(Doubt),
    /// The pattern has no program.
    NoProgram,
    /// A star stands for the program, or for the end of its name.
    AnyProgram,
    /// A star stands for what makes this program run others.
    RunsOthers(&'static KnownProgram),
}

impl CommandPattern {
    pub(super) fn read(text: &str) -> Self {
        Self {
            script: ShellScript::read(text),
        }
    }

    /// Why the pattern allows less than it seems to; none where it keeps what it says.
    pub(super) fn weakness(&self) -> Option<Weakness> {
        if let Some(doubt) = self.script.doubt {
            return Some(Weakness::Unreadable(doubt));
        }
        if self.script.commands.is_empty() {
            return Some(Weakness::NoProgram);
        }
        self.script.commands.iter().find_map(weakness)
    }

    /// Whether a simple command of a script is one that this pattern is for. A pattern of several
    /// commands is for whole scripts only.
    pub(super) fn allows(&self, command: &SimpleCommand, script: &ShellScript) -> bool {
        match self.script.commands.as_slice() {
            [pattern] if self.is_simple() => fits(pattern, command, script.changes_directory()),
            _ => false,
        }
    }

    /// Whether it is one simple command and nothing else.
    fn is_simple(&self) -> bool {
        self.script.doubt.is_none() && self.script.shape == "c"
    }

    /// Whether it is a pattern of several commands that the whole script fits, one by one.
    pub(super) fn allows_all(&self, script: &ShellScript) -> bool {
        let (patterns, commands) = (&self.script.commands, &script.commands);
        let same_form = self.script.doubt.is_none()
            && !self.is_simple()
            && patterns.len() == commands.len()
            && self.script.shape == script.shape;
        let moves = script.changes_directory();
        same_form
            && patterns
                .iter()
                .zip(commands)
                .all(|(pattern, command)| fits(pattern, command, moves))
    }
}

impl SimpleCommand {
    /// Whether it does nothing but set variables that only a script reads.
    pub(super) fn only_sets_harmless(&self) -> bool {
        self.words.is_empty()
            && self.redirects.is_empty()
            && self.assignments.iter().all(|it| is_harmless(&it.name))
    }
}

fn weakness(pattern: &SimpleCommand) -> Option<Weakness> {
    let first = pattern.words.first()?;
    if first.has_glob() {
        return Some(Weakness::AnyProgram);
    }
    let program = program(first.text()?)?;
    (!keeps(program, &pattern.words)).then_some(Weakness::RunsOthers(program))
}

/// Whether a pattern for this program allows no more than it says.
fn keeps(program: &KnownProgram, pattern: &[ShellWord]) -> bool {
    let arguments = pattern.get(1..).unwrap_or_default();
    if !arguments.iter().any(ShellWord::has_glob) {
        // Written out in full.
        return true;
    }
    let names_what_to_do = arguments
        .first()
        .is_some_and(|first| !first.has_glob() && !first.may_be_option());
    let known = arguments.iter().take_while(|word| !word.has_glob());
    names_what_to_do
        && !program.is_wrapper()
        && !program.runs_by_subcommand(arguments)
        && !known.clone().any(|word| program.is_hazard(word))
}

/// Whether a command is one that the pattern is for; `moves`: whether the script goes to another
/// directory.
fn fits(pattern: &SimpleCommand, command: &SimpleCommand, moves: bool) -> bool {
    assignments_fit(&pattern.assignments, &command.assignments)
        && redirects_fit(&pattern.redirects, &command.redirects, moves)
        && words_fit(&pattern.words, &command.words, moves)
}

fn words_fit(pattern: &[ShellWord], command: &[ShellWord], moves: bool) -> bool {
    let (Some(first), Some(name)) = (pattern.first(), command.first()) else {
        // Assignments or redirections alone, which were looked at.
        return pattern.is_empty() && command.is_empty();
    };
    let known = name.text().filter(|_| !name.has_glob());
    let Some(program) = known.map(program) else {
        return false;
    };
    if pattern.len() == 1 && first.pieces().and_then(<[WordPiece]>::last) == Some(&WordPiece::Star)
    {
        // `get*`: names that begin like that, with any arguments.
        return program.is_none() && program_fits(first, name, moves);
    }
    if let Some(program) = program
        && (first.has_glob() || !keeps(program, pattern))
    {
        return false;
    }
    program_fits(first, name, moves)
        && arguments_fit(
            pattern.get(1..).unwrap_or_default(),
            command.get(1..).unwrap_or_default(),
            program,
            moves,
        )
}

/// Whether the program is the pattern's, as it is written: `./git` is not `git`. In another directory
/// a path from there on is another program.
fn program_fits(pattern: &ShellWord, name: &ShellWord, moves: bool) -> bool {
    let (Some(written), Some(text)) = (pattern.text(), name.text()) else {
        return false;
    };
    if is_star(pattern) {
        return true;
    }
    if moves && text.contains('/') && !text.starts_with('/') {
        return false;
    }
    if !pattern.has_glob() {
        return written == text;
    }
    written.contains('/') == text.contains('/') && word_fits(pattern, name, moves)
}

/// Compares arguments from behind: `fits[at]` says whether the rest of the command from `at` fits
/// the rest of the pattern.
fn arguments_fit(
    pattern: &[ShellWord],
    command: &[ShellWord],
    program: Option<&KnownProgram>,
    moves: bool,
) -> bool {
    let mut fits: Vec<bool> = (0..=command.len()).map(|at| at == command.len()).collect();
    let after = |fits: &[bool], at: usize| fits.get(at + 1).copied().unwrap_or_default();
    // Behind the script of an interpreter nothing is the interpreter's.
    let program = program.filter(|program| !program.is_interpreter());
    for word in pattern.iter().rev() {
        let mut here = vec![false; command.len() + 1];
        for (at, argument) in command.iter().enumerate().rev() {
            let rest = after(&fits, at) || (is_star(word) && after(&here, at));
            let fits = rest
                && if word.has_glob() {
                    let harmless = program.is_none_or(|program| !program.is_hazard(argument));
                    harmless && (is_star(word) || word_fits(word, argument, moves))
                } else {
                    word_fits(word, argument, moves)
                };
            if let Some(place) = here.get_mut(at) {
                *place = fits;
            }
        }
        fits = here;
    }
    fits.first().copied().unwrap_or_default()
}

/// Whether a word of a pattern stands for any arguments.
fn is_star(word: &ShellWord) -> bool {
    word.pieces()
        .is_some_and(|pieces| !pieces.is_empty() && pieces.iter().all(|it| *it == WordPiece::Star))
}

/// Whether one word fits one of a pattern, both resolved where they are paths.
fn word_fits(pattern: &ShellWord, word: &ShellWord, moves: bool) -> bool {
    let (Some(pattern), Some(text)) = (pattern.pieces(), word.text()) else {
        return false;
    };
    if word.globs_dots() {
        return false;
    }
    let has_star = pattern.contains(&WordPiece::Star);
    let written: String = pattern.iter().map(|piece| piece.as_char()).collect();
    if !has_star && written == text && !(moves && paths::is_path(text)) {
        return true;
    }
    let is_path = paths::is_path(text) || written.contains('/');
    if !is_path {
        return has_star && star_fits(pattern, text);
    }
    let resolved_pattern = paths::resolved(&written);
    if moves && !resolved_pattern.starts_with('/') {
        return false;
    }
    let resolved = paths::resolved(text);
    if paths::escapes_start(&resolved) && !paths::escapes_start(&resolved_pattern) {
        return false;
    }
    if !has_star {
        return resolved == resolved_pattern;
    }
    // A quoted star and a star are told apart only in patterns as they are written.
    let quoted = pattern.contains(&WordPiece::Char('*'));
    if quoted {
        return star_fits(pattern, text) && text == resolved;
    }
    let pieces: Vec<WordPiece> = resolved_pattern
        .chars()
        .map(WordPiece::of_pattern)
        .collect();
    star_fits(&pieces, &resolved)
}

fn star_fits(pattern: &[WordPiece], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut on) = (0, 0);
    let mut back = None;
    loop {
        match (pattern.get(at), text.get(on)) {
            (None, None) => return true,
            (Some(WordPiece::Star), _) => {
                at += 1;
                back = Some((at, on));
            }
            (Some(wanted), Some(found)) if wanted.as_char() == *found => {
                at += 1;
                on += 1;
            }
            _ => match &mut back {
                Some((after, taken)) if *taken < text.len() => {
                    *taken += 1;
                    (at, on) = (*after, *taken);
                }
                _ => return false,
            },
        }
    }
}

/// Whether every variable that is set is harmless or the pattern's.
fn assignments_fit(pattern: &[Assignment], command: &[Assignment]) -> bool {
    let known = |assignment: &Assignment| {
        is_harmless(&assignment.name)
            || pattern.iter().any(|pattern| {
                pattern.name == assignment.name
                    && word_fits(&pattern.value, &assignment.value, true)
            })
    };
    command.iter().all(known)
}

/// Variables that change how a program shows something, and those that only a script uses. A name in
/// lower case with an underscore is left out: programs read `http_proxy` and `npm_config_…`.
fn is_harmless(name: &str) -> bool {
    let own = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.chars().all(own)
        || name.starts_with("LC_")
        || matches!(
            name,
            "LANG"
                | "NO_COLOR"
                | "CLICOLOR"
                | "FORCE_COLOR"
                | "COLUMNS"
                | "LINES"
                | "CI"
                | "RUST_BACKTRACE"
        )
}

/// Whether the files that are read and written are those of the pattern.
fn redirects_fit(pattern: &[Redirect], command: &[Redirect], moves: bool) -> bool {
    command.iter().all(|redirect| {
        pattern.iter().any(|pattern| {
            pattern.operator == redirect.operator
                && word_fits(&pattern.target, &redirect.target, moves)
        })
    })
}
