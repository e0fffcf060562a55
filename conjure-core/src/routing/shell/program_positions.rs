//! Where in the words of a command a program stands that the command runs.
//!
//! Only for programs that are in the table, and only where no word can be taken for a program that is
//! none: `sudo apt install npm` runs `apt`. What is not found here is still compared as a text.

use super::base_name;

/// A program that runs what its words name.
struct WrapperSyntax {
    names: &'static [&'static str],
    /// Letters of options with a value in the word behind.
    valued_letters: &'static str,
    /// Long options with a value in the word behind.
    valued_options: &'static [&'static str],
    /// Words before the program that are no options.
    positional_words: usize,
}

/// Programs that run the word behind their own options.
const RUNNERS: &[WrapperSyntax] = &[
    WrapperSyntax {
        names: &["sudo", "doas"],
        valued_letters: "ugCDhprRtTU",
        valued_options: &["--user", "--group", "--chdir", "--host", "--prompt"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["env", "cross-env"],
        valued_letters: "uCS",
        valued_options: &["--unset", "--chdir"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["nice", "ionice", "chrt"],
        valued_letters: "ncp",
        valued_options: &["--adjustment", "--class", "--classdata"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["timeout"],
        valued_letters: "ks",
        valued_options: &["--kill-after", "--signal"],
        positional_words: 1,
    },
    WrapperSyntax {
        names: &["xargs"],
        valued_letters: "InPLdsaE",
        valued_options: &[
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--arg-file",
        ],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["time", "stdbuf"],
        valued_letters: "foie",
        valued_options: &["--format", "--output", "--input", "--error"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["strace", "ltrace"],
        valued_letters: "eopsuPaEIO",
        valued_options: &["--output", "--trace", "--user"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &[
            "nohup",
            "setsid",
            "exec",
            "eval",
            "builtin",
            "unbuffer",
            "eatmydata",
            "chronic",
        ],
        valued_letters: "a",
        valued_options: &[],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["busybox", "toybox", "watch", "tini", "dumb-init"],
        valued_letters: "n",
        valued_options: &["--interval"],
        positional_words: 0,
    },
    WrapperSyntax {
        names: &["ssh", "mosh"],
        valued_letters: "bBcDeEFIiJlLmoOpQRSwW",
        valued_options: &[],
        positional_words: 1,
    },
    WrapperSyntax {
        names: &["flock", "chroot", "gosu", "su-exec", "rr", "setuidgid"],
        valued_letters: "wE",
        valued_options: &["--timeout", "--userspec", "--groups"],
        positional_words: 1,
    },
];

/// Programs that run what stands behind `--`, with the subcommands that do so.
const PROGRAM_AFTER_DASHES: &[(&str, &[&str])] = &[
    ("mise", &["exec", "x"]),
    ("op", &["run"]),
    ("distrobox", &["enter"]),
    ("kubectl", &["exec"]),
    ("oc", &["exec"]),
    ("nsjail", &[]),
    ("distrobox-enter", &[]),
];

/// Programs that run the word behind an option.
const PROGRAM_AFTER_OPTION: &[(&[&str], &[&str])] = &[
    (&["find", "gfind"], &["-exec", "-execdir", "-ok", "-okdir"]),
    (&["fd", "fdfind"], &["-x", "-X", "--exec", "--exec-batch"]),
    (
        &["sh", "bash", "dash", "zsh", "ksh", "ash"],
        &["-c", "-lc", "-ec", "-xc"],
    ),
    (&["ansible"], &["-a"]),
];

/// The places of a command's words where a program begins that it runs; the first word is one.
pub(super) fn program_positions(words: &[&str]) -> Vec<usize> {
    let mut places = vec![0];
    let mut at = 0;
    while let Some(program) = words.get(at) {
        let rest = words.get(at + 1..).unwrap_or_default();
        let Some(next) = next_program(base_name(program), rest) else {
            break;
        };
        at += next + 1;
        if at >= words.len() {
            break;
        }
        places.push(at);
    }
    places
}

/// Where the program stands that this one runs, counted from the word behind it.
fn next_program(program: &str, words: &[&str]) -> Option<usize> {
    let mut of_options = PROGRAM_AFTER_OPTION.iter();
    if let Some((_, options)) = of_options.find(|(names, _)| names.contains(&program)) {
        let option = words.iter().position(|word| options.contains(word));
        return option.map(|at| at + 1);
    }
    let mut of_dashes = PROGRAM_AFTER_DASHES.iter();
    if let Some((_, subcommands)) = of_dashes.find(|(name, _)| *name == program) {
        let runs = subcommands.is_empty()
            || words
                .first()
                .is_some_and(|first| subcommands.contains(first));
        let dashes = words.iter().position(|word| *word == "--");
        return dashes.filter(|_| runs).map(|at| at + 1);
    }
    let runner = RUNNERS.iter().find(|it| it.names.contains(&program))?;
    let (mut at, mut before) = (0, runner.positional_words);
    while let Some(word) = words.get(at) {
        if *word == "--" {
            return (before == 0).then_some(at + 1);
        } else if word.starts_with('-') {
            at += 1 + usize::from(runner.has_value(word));
        } else if is_assignment(word) {
            at += 1;
        } else if before > 0 {
            before -= 1;
            at += 1;
        } else {
            return Some(at);
        }
    }
    None
}

impl WrapperSyntax {
    fn has_value(&self, word: &str) -> bool {
        let mut letters = word.chars().skip(1);
        match (letters.next(), letters.next()) {
            (Some(letter), None) => self.valued_letters.contains(letter),
            _ => self.valued_options.contains(&word),
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_that_a_command_runs_are_found() {
        for (command, places) in [
            ("rm x", &[0][..]),
            ("sudo -u root rm x", &[0, 3]),
            ("sudo -E env A=b timeout -k 5 60 rm x", &[0, 2, 4, 8]),
            ("sudo apt install npm", &[0, 1]),
            ("xargs -n 1 rm", &[0, 3]),
            ("find . -exec rm {} +", &[0, 3]),
            ("find . -name rm", &[0]),
            ("sh -c rm", &[0, 2]),
            ("bash run.sh rm", &[0]),
            ("mise exec node -- rm", &[0, 4]),
            ("mise run -- rm", &[0]),
            ("ssh -p 22 host rm", &[0, 4]),
            ("ssh host", &[0]),
            ("command -v rm", &[0]),
            ("man rm", &[0]),
            ("sudo", &[0]),
            ("find . -exec", &[0]),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(program_positions(&words), places, "{command}");
        }
    }
}
