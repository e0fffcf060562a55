//! Programs that run other programs, and how.
//!
//! A pattern with a star cannot keep what it suggests for them: `git *` is also
//! `git -c alias.x='!reboot' x`. The list is of what a development machine usually has; a program
//! that is not in it is taken for one that does only its own work.

use super::word::Word;

/// A program that may run others.
#[derive(Debug)]
pub(in super::super) struct Program {
    names: &'static [&'static str],
    kind: Kind,
    /// A pattern that keeps what it suggests.
    pub(in super::super) better: &'static str,
}

#[derive(Debug)]
enum Kind {
    /// Its arguments are a command, or code.
    Wrapper,
    /// It runs others by some options and subcommands only.
    Tool {
        /// Options that run something or write where they say; long ones also when cut short, short
        /// ones also among others (`-xf`). `=` stands for every word with that character.
        options: &'static [&'static str],
        /// Subcommands that do.
        subcommands: &'static [&'static str],
    },
    /// It runs the script that its first argument names; what stands behind that is the script's.
    Interpreter,
}

/// The program that a command's first word names, whatever directory it is in.
pub(in super::super) fn program(name: &str) -> Option<&'static Program> {
    let base = base_name(name);
    let plain = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let named = |name: &str| {
        PROGRAMS
            .iter()
            .find(|program| program.names.contains(&name))
    };
    named(base).or_else(|| named(plain))
}

/// The last part of a program's path.
pub(in super::super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

impl Program {
    /// Whether its arguments are a command or code, so that no star can stand for them.
    pub(in super::super) fn is_wrapper(&self) -> bool {
        matches!(self.kind, Kind::Wrapper)
    }

    /// Whether what stands behind its first argument is no longer its own.
    pub(in super::super) fn is_interpreter(&self) -> bool {
        matches!(self.kind, Kind::Interpreter)
    }

    /// Whether this word may make it run something.
    pub(in super::super) fn is_hazard(&self, word: &Word) -> bool {
        let Kind::Tool { options, .. } = &self.kind else {
            return false;
        };
        let Some(text) = word.text() else {
            return true;
        };
        if word.has_glob() && word.may_be_option() {
            return true;
        }
        if options.contains(&"=") && text.contains('=') {
            return true;
        }
        if !text.starts_with('-') {
            return false;
        }
        let name = text.split('=').next().unwrap_or(text);
        options.iter().any(|option| is_option(name, option))
    }

    /// Whether the first of these arguments is a subcommand that runs others.
    pub(in super::super) fn runs_by_subcommand(&self, arguments: &[Word]) -> bool {
        match (&self.kind, arguments.first().map(Word::text)) {
            (Kind::Tool { subcommands, .. }, Some(Some(first))) => subcommands.contains(&first),
            // Code on the command line, and code from standard input.
            (Kind::Interpreter, Some(Some(first))) => first.starts_with('-') && !is_version(first),
            (Kind::Interpreter, None | Some(None)) | (Kind::Tool { .. }, Some(None)) => true,
            _ => false,
        }
    }
}

fn is_version(option: &str) -> bool {
    matches!(option, "--version" | "-V" | "--help")
}

/// Whether a word is this option: whole, cut short, with its value attached, or among others.
fn is_option(name: &str, option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let given = name.strip_prefix("--");
        return given.is_some_and(|given| !given.is_empty() && long.starts_with(given));
    }
    let letters = option.trim_start_matches('-');
    if letters.chars().count() > 1 {
        // Long options with one dash, such as those of `find`.
        return name == option;
    }
    let cluster = name.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    cluster.is_some_and(|cluster| cluster.contains(letters))
}

const fn wrapper(names: &'static [&'static str], better: &'static str) -> Program {
    Program {
        names,
        kind: Kind::Wrapper,
        better,
    }
}

const fn tool(
    names: &'static [&'static str],
    options: &'static [&'static str],
    subcommands: &'static [&'static str],
    better: &'static str,
) -> Program {
    Program {
        names,
        kind: Kind::Tool {
            options,
            subcommands,
        },
        better,
    }
}

static PROGRAMS: &[Program] = &[
    wrapper(
        &[
            "sh",
            "bash",
            "rbash",
            "dash",
            "zsh",
            "ksh",
            "mksh",
            "ash",
            "fish",
            "csh",
            "tcsh",
            "busybox",
            "toybox",
            "pwsh",
            "powershell",
            "cmd",
        ],
        "bash scripts/build.sh",
    ),
    wrapper(
        &[
            "eval",
            "exec",
            "source",
            ".",
            "command",
            "builtin",
            "trap",
            "alias",
            "unalias",
            "enable",
            "hash",
            "bind",
            "complete",
            "compgen",
            "mapfile",
            "readarray",
            "read",
            "unset",
            "getopts",
            "let",
            "wait",
            "shopt",
            "export",
            "declare",
            "typeset",
            "local",
            "readonly",
        ],
        "source scripts/env.sh",
    ),
    wrapper(
        &[
            "sudo", "doas", "su", "runuser", "setpriv", "pkexec", "capsh", "newgrp", "sg",
        ],
        "sudo systemctl restart web",
    ),
    wrapper(
        &[
            "env",
            "nice",
            "ionice",
            "nohup",
            "timeout",
            "time",
            "setsid",
            "stdbuf",
            "chroot",
            "unshare",
            "nsenter",
            "watch",
            "script",
            "flock",
            "strace",
            "ltrace",
            "gdb",
            "lldb",
            "valgrind",
            "perf",
            "entr",
            "systemd-run",
            "at",
            "batch",
            "crontab",
            "screen",
            "tmux",
            "expect",
            "unbuffer",
            "faketime",
            "proot",
            "fakeroot",
            "start-stop-daemon",
            "taskset",
            "chrt",
            "numactl",
            "prlimit",
            "xvfb-run",
            "dbus-run-session",
            "bwrap",
            "firejail",
            "setarch",
            "linux",
            "i386",
            "ld.so",
            "caffeinate",
            "direnv",
            "nix-shell",
        ],
        "timeout 60 make test",
    ),
    wrapper(&["xargs", "parallel"], "xargs -n 1 wc -l"),
    wrapper(
        &["ssh", "mosh", "autossh", "sshpass", "rsh"],
        "ssh build.example.org uptime",
    ),
    wrapper(
        &[
            "vi", "vim", "nvim", "view", "ex", "ed", "emacs", "nano", "pico", "less", "more",
            "most", "man", "info", "sqlite", "psql", "mysql", "ftp", "sftp", "socat", "nc", "ncat",
            "telnet", "openssl", "gpg",
        ],
        "man git",
    ),
    tool(
        &["git"],
        &[
            "-c",
            "--config-env",
            "--exec-path",
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "-x",
            "-O",
            "--open-files-in-pager",
            "--ext-diff",
            "--textconv",
            "--output",
            "--extcmd",
            "--template",
            "--git-dir",
            "--work-tree",
            "-C",
        ],
        &[
            "config",
            "difftool",
            "mergetool",
            "bisect",
            "submodule",
            "filter-branch",
            "rebase",
            "hook",
            "clone",
            "credential",
            "daemon",
            "instaweb",
            "send-email",
            "help",
            "gui",
        ],
        "git status *",
    ),
    tool(
        &["find", "gfind"],
        &[
            "-exec",
            "-execdir",
            "-ok",
            "-okdir",
            "-delete",
            "-fprint",
            "-fprint0",
            "-fprintf",
            "-fls",
            "-files0-from",
        ],
        &[],
        "find docs -name *",
    ),
    tool(
        &["fd", "fdfind"],
        &["-x", "-X", "--exec", "--exec-batch"],
        &[],
        "fd -e md",
    ),
    tool(&["rg"], &["--pre", "--hostname-bin"], &[], "rg TODO *"),
    tool(&["ag", "ack"], &["--pager", "--output"], &[], "ag TODO *"),
    tool(
        &["tar", "gtar", "bsdtar"],
        &[
            "-I",
            "--use-compress-program",
            "--to-command",
            "--checkpoint-action",
            "--rsh-command",
            "--rmt-command",
            "-F",
            "--info-script",
            "--new-volume-script",
            "-T",
            "--files-from",
            "-P",
            "--absolute-names",
            "-C",
            "--directory",
        ],
        &[],
        "tar tf *",
    ),
    tool(
        &["zip"],
        &["-T", "--test", "--unzip-command", "-m"],
        &[],
        "zip out.zip *",
    ),
    tool(
        &["rsync"],
        &["-e", "--rsh", "--rsync-path", "--daemon", "--config"],
        &[],
        "rsync -a docs/ backup/docs/",
    ),
    tool(&["scp"], &["-S", "-o", "-F", "-D"], &[], "scp notes.txt *"),
    tool(
        &["wget"],
        &[
            "-e",
            "--execute",
            "--use-askpass",
            "--config",
            "-O",
            "--output-document",
            "-P",
        ],
        &[],
        "wget https://example.org/*",
    ),
    tool(
        &["curl"],
        &["-K", "--config", "-o", "--output", "-O", "-T"],
        &[],
        "curl https://example.org/*",
    ),
    tool(
        &["sort"],
        &["--compress-program", "-o", "--output", "-T"],
        &[],
        "sort names.txt",
    ),
    tool(&["split"], &["--filter"], &[], "split big.log *"),
    tool(&["printf", "test", "["], &["-v"], &[], "test -f *"),
    tool(
        &["awk", "gawk", "mawk", "nawk", "original-awk"],
        &[
            "-f",
            "-e",
            "-E",
            "-i",
            "-l",
            "--file",
            "--source",
            "--exec",
            "--include",
            "--load",
            "=",
        ],
        &[],
        "awk '{print $1}' *",
    ),
    tool(
        &["sed", "gsed"],
        &[
            "-e",
            "-f",
            "-i",
            "-s",
            "--expression",
            "--file",
            "--in-place",
        ],
        &[],
        "sed 's/a/b/' *",
    ),
    Program {
        names: &[
            "python",
            "pypy",
            "perl",
            "ruby",
            "node",
            "nodejs",
            "deno",
            "bun",
            "php",
            "lua",
            "luajit",
            "tclsh",
            "Rscript",
            "R",
            "julia",
            "runghc",
            "ghc",
            "scala",
            "groovy",
            "java",
            "jshell",
            "osascript",
            "guile",
            "racket",
            "elixir",
            "escript",
            "swift",
            "dotnet",
            "ts-node",
            "tsx",
        ],
        kind: Kind::Interpreter,
        better: "python3 scripts/report.py *",
    },
    tool(
        &[
            "make", "gmake", "ninja", "just", "task", "rake", "scons", "cmake", "bazel",
        ],
        &[
            "-f",
            "-C",
            "-E",
            "-P",
            "--file",
            "--makefile",
            "--eval",
            "--directory",
            "--justfile",
            "=",
        ],
        &[],
        "make test",
    ),
    tool(
        &["npm", "npx", "pnpm", "pnpx", "yarn", "bunx", "corepack"],
        &[
            "-c",
            "--call",
            "--script-shell",
            "--prefix",
            "--package",
            "-p",
            "-C",
            "--cwd",
            "--dir",
        ],
        &["exec", "x", "dlx", "config", "explore", "create", "init"],
        "npm run test *",
    ),
    tool(
        &["cargo"],
        &["--config", "-C", "--manifest-path", "-Z", "--fix"],
        &["install", "run", "r"],
        "cargo test *",
    ),
    tool(
        &["go"],
        &[
            "-exec",
            "-toolexec",
            "-overlay",
            "-C",
            "-modfile",
            "-vettool",
        ],
        &["run", "generate", "env", "install", "tool"],
        "go test *",
    ),
    tool(
        &[
            "gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "rustc", "javac", "mvn", "gradle",
        ],
        &[
            "-wrapper", "-B", "-fplugin", "-specs", "-C", "--config", "-I", "-D", "-f",
        ],
        &[],
        "gcc main.c *",
    ),
    tool(
        &[
            "docker",
            "podman",
            "nerdctl",
            "kubectl",
            "oc",
            "helm",
            "ansible",
            "terraform",
            "vagrant",
        ],
        &[
            "-H",
            "--host",
            "--context",
            "--config",
            "--kubeconfig",
            "-e",
            "--env",
        ],
        &[
            "run", "exec", "compose", "build", "buildx", "create", "cp", "debug", "plugin",
            "apply", "attach", "commit", "load", "import", "ssh", "up", "all",
        ],
        "docker ps *",
    ),
    tool(
        &[
            "pip", "pipx", "uv", "uvx", "poetry", "conda", "mamba", "gem", "bundle", "composer",
        ],
        &[
            "--python",
            "--directory",
            "--project",
            "--config-settings",
            "-C",
        ],
        &[
            "run", "install", "exec", "tool", "config", "shell", "sync", "wheel", "x",
        ],
        "pip show *",
    ),
    tool(
        &[
            "apt", "apt-get", "dpkg", "rpm", "yum", "dnf", "pacman", "apk", "brew", "snap", "nix",
        ],
        &[
            "-o",
            "-c",
            "--option",
            "--config-file",
            "--pre-invoke",
            "--root",
            "-E",
            "--eval",
            "-i",
        ],
        &["install", "run", "shell", "develop", "eval"],
        "apt-cache show *",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hazard(name: &str, word: &str) -> bool {
        program(name).unwrap().is_hazard(&Word::read(word).unwrap())
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
        ] {
            assert!(!hazard(name, word), "{name} {word}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = PROGRAMS.iter().flat_map(|it| it.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
