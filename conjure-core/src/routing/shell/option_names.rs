//! Options as programs commonly have them: which letter and which long name are one, which options
//! have a value behind them, and whose letters stand in bundles.
//!
//! Only for programs that are in the tables: `-f` is `--force` for `rm` and a file for `kubectl`.
//! Decides nothing.

use super::base_name;

/// The letters of a program's options, each with its long name.
struct OptionNames {
    programs: &'static [&'static str],
    names: &'static [(char, &'static str)],
    /// Whether the letters have these meanings behind a subcommand only.
    needs_subcommand: bool,
}

const OPTION_NAMES: &[OptionNames] = &[
    OptionNames {
        programs: &["rm", "cp"],
        names: &[('r', "recursive"), ('R', "recursive"), ('f', "force")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["mv", "ln", "userdel"],
        names: &[('f', "force")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["chmod", "chown", "chgrp"],
        names: &[('R', "recursive")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["ls"],
        names: &[('R', "recursive"), ('a', "all")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["grep", "egrep", "fgrep", "rsync", "diff"],
        names: &[('r', "recursive")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["git"],
        names: &[('f', "force"), ('d', "delete"), ('a', "all"), ('A', "all")],
        needs_subcommand: true,
    },
    OptionNames {
        programs: &["docker", "podman", "nerdctl"],
        names: &[('f', "force"), ('a', "all")],
        needs_subcommand: true,
    },
    OptionNames {
        programs: &["npm", "pnpm", "yarn"],
        names: &[('f', "force"), ('g', "global"), ('y', "yes")],
        needs_subcommand: true,
    },
    OptionNames {
        programs: &["systemctl", "umount"],
        names: &[('f', "force"), ('a', "all")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["apt", "apt-get", "pip", "pip3", "dnf", "yum"],
        names: &[('y', "yes")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["lvremove", "vgremove", "pvremove"],
        names: &[('f', "force"), ('y', "yes")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["sed", "gsed"],
        names: &[('i', "in-place")],
        needs_subcommand: false,
    },
    OptionNames {
        programs: &["sort", "curl"],
        names: &[('o', "output")],
        needs_subcommand: false,
    },
    // Programs whose letters have no long name of these, or another one.
    OptionNames {
        programs: &[
            "kubectl",
            "oc",
            "helm",
            "docker-compose",
            "tar",
            "cut",
            "tail",
            "journalctl",
        ],
        names: &[],
        needs_subcommand: false,
    },
];

/// Subcommands whose `-f` is no `--force`.
const OWN_LETTERS: &[&str] = &["compose", "build", "buildx", "grep", "config", "logs"];

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

/// Programs with the options that have a value in the word behind them.
const VALUE_OPTIONS: &[(&[&str], &[&str])] = &[
    (
        &["git"],
        &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--config-env",
        ],
    ),
    (
        &["kubectl", "oc"],
        &[
            "-n",
            "--namespace",
            "--context",
            "--cluster",
            "--user",
            "--kubeconfig",
            "-s",
            "--server",
            "--token",
            "--as",
            "--as-group",
            "--request-timeout",
        ],
    ),
    (
        &["helm"],
        &["-n", "--namespace", "--kube-context", "--kubeconfig"],
    ),
    (
        &["docker", "podman", "nerdctl"],
        &[
            "-H",
            "--host",
            "-c",
            "--context",
            "-l",
            "--log-level",
            "--config",
        ],
    ),
    (
        &["docker-compose"],
        &[
            "-f",
            "--file",
            "-p",
            "--project-name",
            "--env-file",
            "--profile",
        ],
    ),
    (
        &["npm"],
        &[
            "-C",
            "--prefix",
            "--registry",
            "-w",
            "--workspace",
            "--userconfig",
            "--loglevel",
        ],
    ),
    (&["pnpm"], &["-C", "--dir", "--filter", "-F"]),
    (&["yarn"], &["--cwd"]),
    (
        &["cargo"],
        &["-C", "-Z", "--config", "--color", "--manifest-path"],
    ),
    (
        &["aws"],
        &[
            "--profile",
            "--region",
            "--output",
            "--endpoint-url",
            "--query",
        ],
    ),
    (&["gcloud"], &["--project", "--account", "--configuration"]),
    (&["gh", "glab"], &["-R", "--repo"]),
    (&["systemctl"], &["-H", "--host", "-M", "--machine"]),
];

/// Programs whose letters have no values, so that any number of them is one bundle.
const PROGRAMS_WITHOUT_LETTER_VALUES: &[&str] = &["rm", "cp", "mv", "ln", "ls", "chmod", "chown"];

/// The most letters in a bundle of other programs: a longer word is a letter with its value.
const MAX_BUNDLE_LETTERS: usize = 4;

/// The program of a pattern with its literal words, as far as its options depend on them.
#[derive(Debug)]
pub(super) struct OptionNaming {
    names: &'static [(char, &'static str)],
    letters_have_no_value: bool,
}

impl OptionNaming {
    /// How the options of a pattern's words are named; the first word is the program.
    pub(super) fn of(words: &[&str]) -> Self {
        let program = program_name(words);
        let subcommands = words.iter().skip(1).map(|word| word.trim_end_matches('*'));
        let mut subcommands = subcommands.filter(|word| !word.starts_with('-'));
        let known = known_names(program).filter(|known| {
            let has_own = words.iter().any(|word| OWN_LETTERS.contains(word));
            !known.needs_subcommand
                || (!has_own && subcommands.next().is_some_and(|word| !word.is_empty()))
        });
        Self {
            names: known.map_or(&[], |known| known.names),
            letters_have_no_value: PROGRAMS_WITHOUT_LETTER_VALUES.contains(&program),
        }
    }

    /// Whether a letter is this long option.
    pub(super) fn has_name(&self, letter: char, name: &str) -> bool {
        self.names.contains(&(letter, name))
    }

    /// Whether a letter is a long option that is this one, whole or cut short.
    pub(super) fn has_name_like(&self, letter: char, given: &str) -> bool {
        let mut names = self.names.iter();
        names.any(|(known, name)| *known == letter && is_abbreviation(name, given))
    }

    /// Whether two letters are one option.
    pub(super) fn is_same(&self, wanted: char, given: char) -> bool {
        let name = |letter| self.names.iter().find(|(known, _)| *known == letter);
        wanted == given
            || matches!((name(wanted), name(given)), (Some((_, a)), Some((_, b))) if a == b)
    }

    /// The letters of a word of a command that is an option with one dash.
    pub(super) fn given_letters(&self, given: &str) -> Vec<char> {
        let letters = given.chars().skip(1);
        let letters: Vec<char> = letters.take_while(char::is_ascii_alphanumeric).collect();
        match self.letters_have_no_value || is_bundle(&letters) {
            true => letters,
            false => letters.into_iter().take(1).collect(),
        }
    }
}

/// Whether an option is also found under the other name that this program has for it, or has none.
pub(in super::super) fn has_common_name(words: &[&str], core: &str) -> bool {
    if core
        .strip_prefix("--")
        .is_some_and(|name| NO_LETTER.contains(&name))
    {
        return true;
    }
    let Some(known) = known_names(program_name(words)) else {
        return false;
    };
    if known.needs_subcommand && OptionNaming::of(words).names.is_empty() {
        return false;
    }
    let is_common = |name: &str| {
        let mut all = OPTION_NAMES.iter().flat_map(|known| known.names);
        all.any(|(_, long)| *long == name)
    };
    match core.strip_prefix("--") {
        Some(name) => is_common(name),
        None => letters(core).is_some_and(|letters| {
            let mut letters = letters.iter();
            letters.all(|letter| known.names.iter().any(|(known, _)| known == letter))
        }),
    }
}

/// Whether the options of several letters of this program have one dash.
pub(in super::super) fn has_one_dash(program: &str) -> bool {
    ONE_DASH.contains(&base_name(program).trim_matches('*'))
}

/// Whether the word behind an option of this program is known to be its value.
pub(in super::super) fn takes_value(program: &str, option: &str) -> bool {
    let program = base_name(program).trim_matches('*');
    let mut all = VALUE_OPTIONS.iter();
    all.any(|(programs, options)| programs.contains(&program) && options.contains(&option))
}

/// Whether a word of a pattern, without the stars around it, is an option.
pub(in super::super) fn is_option(core: &str) -> bool {
    core.starts_with('-') && core.chars().any(|c| c.is_ascii_alphanumeric())
}

/// The letters of a bundle of short options, such as `-rf`.
pub(super) fn letters(core: &str) -> Option<Vec<char>> {
    let letters: Vec<char> = core.strip_prefix('-')?.chars().collect();
    let all = letters.iter().all(char::is_ascii_alphanumeric);
    (all && is_bundle(&letters)).then_some(letters)
}

/// Whether a long option is this one, whole or cut short. What ends at a dash is commonly an option
/// of its own: `--force` beside `--force-with-lease`.
pub(super) fn is_abbreviation(name: &str, given: &str) -> bool {
    let rest = name.strip_prefix(given);
    !given.is_empty() && rest.is_some_and(|rest| !rest.starts_with('-'))
}

fn is_bundle(letters: &[char]) -> bool {
    let mut distinct = letters.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    (1..=MAX_BUNDLE_LETTERS).contains(&letters.len()) && distinct.len() == letters.len()
}

fn known_names(program: &str) -> Option<&'static OptionNames> {
    let mut all = OPTION_NAMES.iter();
    all.find(|known| known.programs.contains(&program))
}

fn program_name<'a>(words: &[&'a str]) -> &'a str {
    let first = words.first().copied().unwrap_or_default();
    base_name(first).trim_matches('*')
}
