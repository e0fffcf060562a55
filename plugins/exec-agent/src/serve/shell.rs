//! The shell of a command: started with it, or ahead of it and waiting.
//!
//! A shell that waits was started as any other, with the environment and in the directory of the
//! command before, and reads its command from standard input. Which shells can do that, and with
//! which commands it makes no difference, is said here; everything else is run as it ever was.

use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::tree::MARK;
use crate::error::{Error, Result};
use crate::message::Bash;

/// The kernel takes no argument longer than this.
const MAX_COMMAND: usize = 128 * 1024 - 1;
/// A shell reads its input byte by byte: a longer command is faster as an argument of a new one.
const MAX_GIVEN: usize = 512;
/// What `bash` runs when it starts. What that does is a command's doing, and never done ahead.
const STARTS_WITH: &str = "BASH_ENV";
/// The shells that are known to take a command so, by the names of their files.
const KNOWN: [&str; 4] = ["sh", "dash", "ash", "bash"];
/// Reads the command to the end of the input, and lets nothing of that be seen by it: its standard
/// input is empty, its `$0` the shell, its lines count from one. `$1` is a line's end.
const WAIT: &str = "__conjure_all=; while IFS= read -r __conjure_line; do \
                    __conjure_all=$__conjure_all$__conjure_line$1; done; exec </dev/null; shift; \
                    eval \"unset __conjure_all __conjure_line;$__conjure_all\"";

/// A shell as a command wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shell {
    path: String,
    env: Vec<(String, String)>,
    /// Where it begins, unless that is where the agent is: sending it there takes a slower way to
    /// start it.
    dir: Option<PathBuf>,
}

impl Shell {
    /// The shell of a command.
    ///
    /// # Errors
    /// When it cannot have such an environment, or no shell takes such a command.
    pub(super) fn of(bash: &Bash, dir: Option<&Path>) -> Result<Self> {
        if bash.command.len() > MAX_COMMAND {
            return Err(Error::invalid(format!(
                "the command has {} bytes and may have {MAX_COMMAND}; write it to a file first and \
                 run that",
                bash.command.len()
            )));
        }
        let bad = |(name, value): &&(String, String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((name, _)) = bash.env.iter().find(bad) {
            return Err(Error::invalid(format!(
                "`{}` cannot be an environment variable",
                name.escape_debug()
            )));
        }
        Ok(Self {
            path: bash.shell.clone(),
            env: bash.env.clone(),
            dir: dir.map(Path::to_owned),
        })
    }

    /// Starts it with its command.
    pub(super) fn run(&self, command: &str, mark: &str) -> io::Result<Child> {
        self.start(&[command], mark, Stdio::null())
    }

    fn start(&self, arguments: &[&str], mark: &str, input: Stdio) -> io::Result<Child> {
        let mut shell = Command::new(&self.path);
        shell
            // The dashes end the options: a command may begin with one.
            .args(["-c", "--"])
            .args(arguments)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(MARK, mark)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(dir) = &self.dir {
            shell.current_dir(dir);
        }
        shell.spawn()
    }

    /// Whether it can wait for its command.
    pub(super) fn can_wait(&self) -> bool {
        let name = Path::new(&self.path).file_name();
        let known = |known: &&str| name.is_some_and(|name| name == *known);
        let does_something = std::env::var_os(STARTS_WITH).is_some()
            || self.env.iter().any(|(name, _)| name == STARTS_WITH);
        KNOWN.iter().any(known) && !does_something
    }
}

/// Whether it makes no difference to a command that it is read from standard input.
fn can_be_given(command: &str) -> bool {
    // A line's end comes behind it; and some shells keep bytes beyond ASCII for themselves.
    command.len() <= MAX_GIVEN
        && !command.ends_with('\\')
        && command
            .bytes()
            .all(|byte| matches!(byte, b'\t' | b'\n' | b' '..=b'~'))
}

/// A shell that waits for its command.
#[derive(Debug)]
pub(super) struct Ready {
    shell: Shell,
    child: Child,
    pub(super) mark: String,
    pub(super) since: Instant,
}

impl Ready {
    /// Starts one; nothing where the shell is none that can wait.
    pub(super) fn start(shell: &Shell, mark: String) -> Option<Self> {
        if !shell.can_wait() {
            return None;
        }
        let child = shell.start(&[WAIT, &shell.path, "\n"], &mark, Stdio::piped());
        Some(Self {
            shell: shell.clone(),
            child: child.ok()?,
            mark,
            since: Instant::now(),
        })
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or_default()
    }

    /// Gives it its command. Nothing where it is another shell than that command wants or is gone;
    /// then it is ended.
    pub(super) fn give(mut self, shell: &Shell, command: &str) -> Option<(Child, String)> {
        let input = self.child.stdin.take();
        if let Some(mut input) = input.filter(|_| self.shell == *shell && can_be_given(command)) {
            // Whole or not at all: the pipe is empty, and takes so much at once.
            if input.write_all(format!("{command}\n").as_bytes()).is_ok() {
                return Some((self.child, self.mark));
            }
        }
        self.end();
        None
    }

    /// Ends it and waits for that: nothing of it is left.
    pub(super) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use rustix::process::{WaitId, WaitIdOptions};

    use super::*;

    fn shell(path: &str) -> Shell {
        let bash = Bash {
            shell: path.to_owned(),
            env: vec![("A".to_owned(), "1 2".to_owned())],
            ..Bash::default()
        };
        Shell::of(&bash, None).unwrap()
    }

    fn given(shell: &Shell, command: &str) -> Option<Output> {
        let ready = Ready::start(shell, "m".to_owned()).unwrap();
        let (child, _) = ready.give(shell, command)?;
        Some(child.wait_with_output().unwrap())
    }

    #[test]
    fn a_command_that_is_given_does_what_it_does_as_an_argument() {
        let commands = [
            "echo \"$A\" $0 $# \"$*\"; pwd; exit 3",
            "cat; echo in; false",
            "for word in a 'b  c'; do\n\tprintf '[%s]\\n' \"$word\"\ndone # end",
            "cat <<'X'\nback\\slash $A\nX",
            "trap 'echo bye' EXIT; kill -9 $$",
            "echo $LINENO\necho $LINENO",
            "env | grep conjure_; echo $? ${__conjure_all-gone} ${__conjure_line-gone}",
            "# nothing",
            "",
            "  echo  \"  two  \"  ",
            "return 4; echo on",
            "set -e; false; echo on",
        ];
        let shells = ["/bin/sh", "/bin/bash", "/bin/dash"];
        let mut tried = 0;
        for path in shells.into_iter().filter(|path| Path::new(path).exists()) {
            let shell = shell(path);
            for command in commands {
                let plain = shell.run(command, "m").unwrap().wait_with_output().unwrap();
                let given = given(&shell, command).unwrap();
                assert_eq!(given.status, plain.status, "{path}: {command}");
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(
                    text(&given.stdout),
                    text(&plain.stdout),
                    "{path}: {command}"
                );
                tried += 1;
            }
        }
        assert!(tried >= commands.len());
    }

    #[test]
    fn what_would_not_be_the_same_is_not_given() {
        let shell = shell("/bin/sh");
        let long = "x".repeat(MAX_GIVEN + 1);
        for command in ["echo \\", "echo é", "echo \r", &long] {
            assert!(given(&shell, command).is_none(), "{command:?}");
        }
        let other = Shell {
            env: Vec::new(),
            ..shell.clone()
        };
        let ready = Ready::start(&other, "m".to_owned()).unwrap();
        assert!(ready.give(&shell, "true").is_none());
        for path in ["/usr/bin/fish", "/bin/zsh", "sh/"] {
            let mut shell = shell.clone();
            shell.path = path.to_owned();
            assert_eq!(shell.can_wait(), path == "sh/", "{path}");
        }
        let mut shell = shell.clone();
        shell.env.push(("BASH_ENV".to_owned(), "/x".to_owned()));
        assert!(!shell.can_wait());
    }

    #[test]
    fn a_shell_that_was_killed_is_given_nothing() {
        let shell = shell("/bin/sh");
        let mut ready = Ready::start(&shell, "m".to_owned()).unwrap();
        ready.child.kill().unwrap();
        // Its files are closed one after the other, all of them before it counts as ended.
        let pid = rustix::process::Pid::from_child(&ready.child);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(pid), ended).unwrap();
        assert!(ready.give(&shell, "true").is_none());
    }

    #[test]
    fn without_a_command_it_ends_by_itself() {
        let shell = shell("/bin/sh");
        let mut ready = Ready::start(&shell, "m".to_owned()).unwrap();
        drop(ready.child.stdin.take());
        assert!(ready.child.wait().unwrap().success());
    }
}
