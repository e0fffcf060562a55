//! A shell command as the policy sees it: its simple commands, in words after quote removal.
//!
//! The text is read by a shell parser within bounds of length, depth and steps. Nothing is run or
//! expanded: what only a running shell knows is marked as such, and what this reading does not
//! follow is a [`Doubt`] about the whole. Judges nothing.

mod expansion;
mod lexical;
mod manager_list;
mod option_names;
mod program_list;
mod program_positions;
mod programs;
mod readings;
mod strict_list;
mod walk;
mod wide_pattern;
mod word;
mod wrapper_list;

use shuck_parser::parser::Parser;
use shuck_parser::{ShellDialect, ShellProfile};

use crate::foreign_text::is_invisible;

pub(super) use expansion::Expansions;
pub(super) use option_names::{has_common_name, has_one_dash, is_option, takes_value};
use programs::base_name;
pub(super) use programs::{KnownProgram, program};
pub(super) use readings::readings;
pub(super) use wide_pattern::WidePattern;
pub(super) use word::{ShellWord, WordPiece};

/// The longest command that is read, in bytes.
const MAX_BYTES: usize = 16 * 1024;
/// How deep constructs may stand inside each other.
const MAX_DEPTH: usize = 40;
/// How many steps the parser may take.
const MAX_STEPS: usize = 50_000;
/// How many simple commands are looked at.
const MAX_COMMANDS: usize = 512;

/// What makes a command one that cannot be judged before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Doubt {
    /// The command cannot be parsed.
    #[error("it cannot be read as a shell command")]
    Unreadable,
    /// The command is longer or deeper than what is read.
    #[error("it is too long or too deeply nested")]
    TooMuch,
    /// Characters that a shell and a person read differently.
    #[error("it has characters that are not shown, or that only look like blanks")]
    AmbiguousCharacters,
    /// A construct of the shell that is not followed.
    #[error("it has a construct of the shell whose effect is known only when it runs")]
    Construct,
    /// A construct that a POSIX shell and bash make different commands of.
    #[error("it has a construct that shells read differently")]
    Dialect,
    /// The program's name is computed.
    #[error("which program it runs is known only when it runs")]
    ComputedProgram,
    /// A program that runs what its arguments say.
    #[error("it runs a program that runs other commands out of its arguments")]
    RunsOthers,
    /// A variable, names of files or another directory make arguments that a rule may be for.
    #[error("what its arguments are is known only when it runs")]
    ComputedArguments,
}

/// A command line, read.
#[derive(Debug, Default)]
pub(super) struct ShellScript {
    /// The simple commands of the script, wherever they stand, in their order.
    pub(super) commands: Vec<SimpleCommand>,
    /// How the simple commands are put together: `c|c`, `c;c`, `(c)`.
    pub(super) shape: String,
    /// Why the script cannot be judged, if so.
    pub(super) doubt: Option<Doubt>,
}

/// A simple command.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    /// Assignments before it, or alone, and of loops.
    pub(super) assignments: Vec<Assignment>,
    /// The program and its arguments; none for assignments and redirections alone.
    pub(super) words: Vec<ShellWord>,
    /// Redirections that read or write a file.
    pub(super) redirects: Vec<Redirect>,
}

/// A variable that is set.
#[derive(Debug, PartialEq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: ShellWord,
}

/// A redirection from or to a file.
#[derive(Debug, PartialEq)]
pub(super) struct Redirect {
    /// The operator with the descriptor, such as `2>>`.
    pub(super) operator: String,
    pub(super) target: ShellWord,
}

impl ShellScript {
    /// Reads a command line.
    pub(super) fn read(text: &str) -> Self {
        let doubt = |doubt| Self {
            doubt: Some(doubt),
            ..Self::default()
        };
        if text.len() > MAX_BYTES {
            return doubt(Doubt::TooMuch);
        }
        if text.chars().any(is_ambiguous) {
            return doubt(Doubt::AmbiguousCharacters);
        }
        let profile = ShellProfile::native(ShellDialect::Bash);
        let parser = Parser::with_limits_and_profile(text, MAX_DEPTH, MAX_STEPS, profile);
        let parsed = parser.parse();
        let mut script = walk::script(&parsed.file, text);
        if parsed.is_err() {
            script.doubt = Some(Doubt::Unreadable);
        }
        if script.doubt.is_none() {
            script.doubt = lexical::doubt(text);
        }
        script
    }

    /// Why it, or one of its commands, cannot be judged.
    pub(super) fn first_doubt(&self) -> Option<Doubt> {
        let of_command = || self.commands.iter().find_map(SimpleCommand::doubt);
        self.doubt.or_else(of_command)
    }

    /// Whether it changes the directory that relative paths are relative to.
    pub(super) fn changes_directory(&self) -> bool {
        self.commands.iter().any(SimpleCommand::changes_directory)
    }
}

impl SimpleCommand {
    /// The program's name as it is written; none where it is computed, or where there is none.
    pub(super) fn program(&self) -> Option<&str> {
        let first = self.words.first()?;
        first.text().filter(|_| !first.has_glob())
    }

    /// Whether it changes the directory, in any shell: `chdir` is dash's.
    fn changes_directory(&self) -> bool {
        matches!(self.program(), Some("cd" | "chdir" | "pushd" | "popd"))
    }

    /// What keeps it from being judged by its words.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        if self.words.is_empty() {
            return None;
        }
        let Some(name) = self.program() else {
            return Some(Doubt::ComputedProgram);
        };
        let program = program(name)?;
        let arguments = self.words.get(1..).unwrap_or_default();
        let runs = arguments.iter().any(|word| program.is_hazard(word));
        (program.is_wrapper() || runs || program.runs_by_subcommand(arguments))
            .then_some(Doubt::RunsOthers)
    }
}

/// A character that a terminal does not show, or shows as a blank that is none to a shell.
fn is_ambiguous(c: char) -> bool {
    match c {
        ' ' | '\t' | '\n' => false,
        c => is_invisible(c) || c.is_whitespace(),
    }
}
