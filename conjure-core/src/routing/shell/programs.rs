//! Programs that run other programs, and how.
//!
//! A pattern with a star cannot keep what it suggests for them: `git *` is also
//! `git -c alias.x='!reboot' x`. The list is of what a development machine usually has; a program
//! that is not in it is taken for one that does only its own work.

use super::manager_list::MANAGERS;
use super::program_list::PROGRAMS;
use super::strict_list::STRICT;
use super::word::ShellWord;
use super::wrapper_list::WRAPPERS;

/// A program that may run others.
#[derive(Debug)]
pub(in super::super) struct KnownProgram {
    pub(super) names: &'static [&'static str],
    pub(super) kind: ProgramKind,
    /// A pattern that keeps what it suggests.
    pub(in super::super) safer_pattern: &'static str,
}

#[derive(Debug)]
pub(super) enum ProgramKind {
    /// The program's arguments are a command, or code.
    Wrapper,
    /// The program runs others by some options and subcommands only.
    Tool {
        /// Options that run something or write where they say; long ones also when cut short. `=`
        /// stands for every word with that character.
        options: &'static [&'static str],
        /// One-letter options, several of which may be in one word (`-xf`), behind which stands their
        /// value.
        valued_letters: &'static str,
        /// Subcommands that run others.
        subcommands: &'static [&'static str],
    },
    /// Most of the program's options run something or write where they say.
    Strict {
        /// Options that do neither, written out. `#` at the end stands for digits, `*` for letters,
        /// digits and dashes.
        harmless: &'static [&'static str],
        /// What makes a word that is no option dangerous: what is in it, but for `@`, which stands for
        /// every word that begins with it and names a file of further options, and `/`, which stands
        /// for every path out of the working directory.
        signs: &'static [&'static str],
        /// Subcommands that run others.
        subcommands: &'static [&'static str],
    },
    /// The program runs the script that its first argument names; what stands behind is the script's.
    Interpreter,
}

/// The program that a command's first word names, whatever directory it is in.
pub(in super::super) fn program(name: &str) -> Option<&'static KnownProgram> {
    let base = base_name(name);
    let plain = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let named = |name: &str| all_programs().find(|program| program.names.contains(&name));
    named(base).or_else(|| named(plain))
}

fn all_programs() -> impl Iterator<Item = &'static KnownProgram> {
    let by_option = PROGRAMS.iter().chain(MANAGERS);
    WRAPPERS.iter().chain(by_option).chain(STRICT)
}

/// The last part of a program's path.
pub(in super::super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

impl KnownProgram {
    /// Whether its arguments are a command or code, so that no star can stand for them.
    pub(in super::super) fn is_wrapper(&self) -> bool {
        matches!(self.kind, ProgramKind::Wrapper)
    }

    /// Whether what stands behind its first argument is no longer its own.
    pub(in super::super) fn is_interpreter(&self) -> bool {
        matches!(self.kind, ProgramKind::Interpreter)
    }

    /// Whether this word may make it run something.
    pub(in super::super) fn is_hazard(&self, word: &ShellWord) -> bool {
        let is_unsure = word.text().is_none() || (word.has_glob() && word.may_be_option());
        let text = word.text().unwrap_or_default();
        let name = text.split('=').next().unwrap_or(text);
        match &self.kind {
            ProgramKind::Wrapper | ProgramKind::Interpreter => false,
            _ if is_unsure => true,
            ProgramKind::Strict {
                harmless, signs, ..
            } => match text.starts_with('-') {
                true => !harmless.iter().any(|option| is_listed(name, option)),
                false => signs.iter().any(|sign| has_sign(text, sign)),
            },
            ProgramKind::Tool {
                options,
                valued_letters: valued,
                ..
            } => {
                let is_assignment = options.contains(&"=") && text.contains('=');
                let mut options = options.iter();
                let mut runs = || options.any(|option| is_option(name, option, valued));
                is_assignment || (text.starts_with('-') && runs())
            }
        }
    }

    /// Whether the first of these arguments is a subcommand that runs others.
    pub(in super::super) fn runs_by_subcommand(&self, arguments: &[ShellWord]) -> bool {
        match (&self.kind, arguments.first().map(ShellWord::text)) {
            (
                ProgramKind::Tool { subcommands, .. } | ProgramKind::Strict { subcommands, .. },
                Some(Some(first)),
            ) => subcommands.contains(&first),
            // Code on the command line, and code from standard input.
            (ProgramKind::Interpreter, Some(Some(first))) => {
                first.starts_with('-') && !is_version(first)
            }
            (ProgramKind::Interpreter, None | Some(None))
            | (ProgramKind::Tool { .. } | ProgramKind::Strict { .. }, Some(None)) => true,
            _ => false,
        }
    }
}

fn is_version(option: &str) -> bool {
    matches!(option, "--version" | "-V" | "--help")
}

/// Whether an option is one of a list of harmless ones, to the letter.
fn is_listed(name: &str, option: &str) -> bool {
    let rest = |begin: &str, is_of: fn(char) -> bool| {
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_of))
    };
    if let Some(begin) = option.strip_suffix('#') {
        return rest(begin, |c| c.is_ascii_digit());
    }
    match option.strip_suffix('*') {
        Some(begin) => rest(begin, |c| c.is_ascii_alphanumeric() || "-+".contains(c)),
        None => name == option,
    }
}

/// Whether a word that is no option has what makes it dangerous.
fn has_sign(text: &str, sign: &str) -> bool {
    match sign {
        "@" => text.starts_with('@'),
        "/" => text.starts_with(['/', '~']) || text.split('/').any(|part| part == ".."),
        sign => text.contains(sign),
    }
}

/// Whether a word is this option: whole, cut short, with its value attached, or among others.
fn is_option(name: &str, option: &str, valued: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let given = name.strip_prefix("--");
        return given.is_some_and(|given| !given.is_empty() && long.starts_with(given));
    }
    let letters = option.trim_start_matches('-');
    if letters.chars().count() > 1 {
        // Long options with one dash, such as those of `find`; some programs take two as well.
        return name == option || name.strip_prefix('-') == Some(option);
    }
    let Some(cluster) = name.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
        return false;
    };
    let end = cluster.find(|letter| valued.contains(letter));
    let own = end.and_then(|end| cluster.get(..=end)).unwrap_or(cluster);
    own.contains(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hazard(name: &str, word: &str) -> bool {
        program(name)
            .unwrap()
            .is_hazard(&ShellWord::read(word).unwrap())
    }

    #[test]
    fn programs_are_found_by_their_names_in_any_directory_and_version() {
        for name in [
            "git",
            "/usr/bin/git",
            "./git",
            "python3.12",
            "python3",
            "sqlite3",
            "bash",
            "irb3.1",
            "ipython3",
            "ghci-9.4",
            "/lib64/ld-linux-x86-64.so.2",
            "ldd",
            "xterm",
            "zig",
            "exiftool",
            "magick",
            "cross-env",
            "cross-env-shell",
            "mise",
            "concurrently",
            "eatmydata",
            "nsjail",
            "op",
            "distrobox",
            "rr",
            "rails",
            "redis-cli",
        ] {
            assert!(program(name).is_some(), "{name}");
        }
        for name in ["ls", "gitx", "cat", "wc", ""] {
            assert!(program(name).is_none(), "{name}");
        }
    }

    #[test]
    fn options_that_run_something_are_found_in_every_form() {
        for (name, word) in [
            ("git", "-c"),
            ("git", "-calias.x=!y"),
            ("git", "--config-env=a=b"),
            ("git", "--upload-p"),
            ("find", "-exec"),
            ("tar", "-xIf"),
            ("tar", "--to-command=x"),
            ("tar", "--to-comm"),
            ("sed", "-ni"),
            ("make", "SHELL=/tmp/x"),
            ("git", "-o/etc/cron.d/x"),
            ("tcpdump", "-z"),
            ("hg", "--config=alias.x=!y"),
            ("gcc", "@options"),
            ("gcc", "-o"),
            ("go", "--exec"),
            ("go", "-o"),
            ("go", "-o=/tmp/x"),
            ("gcc", "-o/tmp/x"),
            ("git", "-vo"),
            ("gcc", "-Wl,-plugin,./evil.so"),
            ("gcc", "-Wp,-MD,/etc/x"),
            ("gcc", "-aux-info"),
            ("gcc", "-fplugin=./evil.so"),
            ("rustc", "--codegen"),
            ("npm", "--node-options=--import=data:x"),
            ("npm", "--userconfig=x"),
            ("npm", "--"),
            ("rake", "-e"),
            ("bazel", "--run_under=x"),
            ("just", "--shell"),
            ("mvn", "-s"),
            ("mvn", "org.evil:plugin:run"),
            ("gradle", "-p"),
            ("go", "-coverprofile=/etc/x"),
            ("go", "-args"),
            ("kubectl", "--server=x"),
            ("terraform", "-out=/etc/x"),
            ("docker", "-c"),
            ("gh", "-w"),
            ("git", "--unsafe-paths"),
            ("pylint", "--init-hook=x"),
            ("bat", "--pager=x"),
            ("pytest", "-p"),
            ("pytest", "../evil.py"),
            ("dd", "of=/etc/x"),
            ("pdflatex", "--shell-escape"),
            ("pdflatex", "'\\write18{x}'"),
            ("exiftool", "-if"),
            ("magick", "'|id'"),
            ("sbt", "'eval x'"),
            ("curl", "-w"),
            ("curl", "'--write-out=%output{/etc/x}'"),
            ("kubectl", "--helm-command=x"),
            ("rsync", "--write-batch=/etc/x"),
            ("pip", "--log=/etc/x"),
            ("git", "--prefix=/etc/"),
            ("nm", "--plugin=./evil.so"),
            ("sdiff", "--diff-program=x"),
            ("kubectl", "--exec-command=./evil"),
            ("cargo", "--logfile=/etc/x"),
        ] {
            assert!(hazard(name, word), "{name} {word}");
        }
        for (name, word) in [
            ("git", "--stat"),
            ("git", "-p"),
            ("git", "main..x"),
            ("find", "-name"),
            ("tar", "-tf"),
            ("sed", "-n"),
            ("make", "test"),
            ("go", "-short"),
            ("go", "-cover"),
            ("go", "-count=1"),
            ("go", "-json"),
            ("git", "-uno"),
            ("gcc", "-std=c99"),
            ("gcc", "-Wall"),
            ("kubectl", "-owide"),
            ("kubectl", "-o"),
            ("gcc", "-O2"),
            ("gcc", "-Wno-unused"),
            ("gcc", "util.c"),
            ("make", "-j8"),
            ("npm", "--silent"),
            ("npm", "@types/node"),
            ("pytest", "tests/test_a.py::test_b"),
            ("pytest", "-k"),
            ("git", "--pretty=oneline"),
            ("cargo", "--target"),
            ("rsync", "--partial"),
            ("exiftool", "-json"),
            ("magick", "-resize"),
        ] {
            assert!(!hazard(name, word), "{name} {word}");
        }
    }

    #[test]
    fn subcommands_that_run_others_are_found() {
        for (name, first) in [
            ("mise", "exec"),
            ("mise", "x"),
            ("op", "run"),
            ("distrobox", "enter"),
            ("rails", "runner"),
            ("kubectl", "config"),
            ("redis-cli", "config"),
            ("redis-cli", "CONFIG"),
        ] {
            let first = [ShellWord::of_text(first)];
            assert!(program(name).unwrap().runs_by_subcommand(&first), "{name}");
        }
        for name in ["ansible", "rr", "cross-env", "concurrently"] {
            assert!(program(name).unwrap().is_wrapper(), "{name}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = super::all_programs()
            .flat_map(|it| it.names)
            .copied()
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
