//! The shell of a command: started with it, or ahead of it and waiting.
//!
//! A shell that waits was started as any other, with the environment and in the directory of the
//! command before, and reads its command from standard input. Which shells can do that, and with
//! which commands it makes no difference, is said here; everything else is run as it ever was.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use conjure_process_tree::{Confinement, Start, StdinSource, Supervisor, own_program};

use crate::error::{AgentError, Result};
use crate::message::ShellCommand;

/// The kernel takes no argument longer than this.
const MAX_COMMAND: usize = 128 * 1024 - 1;
/// A shell reads its input byte by byte: a longer command is faster as an argument of a new one.
const MAX_PIPED_COMMAND: usize = 512;
/// What `bash` runs when it starts. What that does is a command's doing, and never done ahead.
const STARTUP_VARIABLE: &str = "BASH_ENV";
/// The shells that are known to take a command so, by the names of their files.
const KNOWN_SHELLS: [&str; 4] = ["sh", "dash", "ash", "bash"];
/// Reads the command to the end of the input, and lets nothing of that be seen by it: its standard
/// input is empty, its `$0` the shell, its lines count from one. `$1` is a line's end.
const WAIT_SCRIPT: &str = "__conjure_all=; while IFS= read -r __conjure_line; do \
                    __conjure_all=$__conjure_all$__conjure_line$1; done; exec </dev/null; shift; \
                    eval \"unset __conjure_all __conjure_line;$__conjure_all\"";

/// A shell as a command wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shell {
    path: String,
    env: Vec<(String, String)>,
    /// Directory where the shell begins, unless that is where the agent is: sending it there takes a
    /// slower way to start it.
    dir: Option<String>,
    confinement: Option<Confinement>,
}

impl Shell {
    /// The shell of a command.
    ///
    /// # Errors
    /// When it cannot have such an environment, or no shell takes such a command.
    pub(super) fn of(
        bash: &ShellCommand,
        dir: Option<&Path>,
        confinement: Option<Confinement>,
    ) -> Result<Self> {
        if bash.command.len() > MAX_COMMAND {
            return Err(AgentError::invalid(format!(
                "the command has {} bytes and may have {MAX_COMMAND}; write it to a file first and \
                 run that",
                bash.command.len()
            )));
        }
        if bash.command.contains('\0') {
            return Err(AgentError::invalid("the command holds a NUL byte"));
        }
        let bad = |(name, value): &&(String, String)| {
            name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
        };
        if let Some((name, _)) = bash.env.iter().find(bad) {
            return Err(AgentError::invalid(format!(
                "`{}` cannot be an environment variable",
                name.escape_debug()
            )));
        }
        Ok(Self {
            path: bash.shell.clone(),
            env: bash.env.clone(),
            dir: dir.map(|dir| dir.to_string_lossy().into_owned()),
            confinement,
        })
    }

    /// Starts it with its command.
    pub(super) fn run(&self, command: &str) -> io::Result<Supervisor> {
        let start = self.start(&[command], StdinSource::Empty);
        Supervisor::start(supervisor("supervise")?, start, None)
    }

    fn start(&self, arguments: &[&str], input: StdinSource) -> Start {
        // The dashes end the options: a command may begin with one.
        let arguments = ["-c", "--"].iter().chain(arguments);
        Start {
            program: self.path.clone(),
            arguments: arguments.map(|text| (*text).to_owned()).collect(),
            env: self.env.clone(),
            dir: self.dir.clone(),
            input,
            is_silent: false,
            confinement: self.confinement.clone(),
        }
    }

    /// What its directory and what is hidden from it are at this moment: others may stand under
    /// the same names later, and a shell that was started before knows nothing of that.
    fn place_identities(&self) -> Vec<Option<(u64, u64)>> {
        let confinement = self.confinement.iter();
        let places = confinement.flat_map(|one| one.hidden.iter().chain(&one.visible));
        let identity = |path: &String| {
            let found = fs::metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        };
        self.dir.iter().chain(places).map(identity).collect()
    }

    /// Whether it can wait for its command.
    pub(super) fn can_wait(&self) -> bool {
        let name = Path::new(&self.path).file_name();
        let known = |known: &&str| name.is_some_and(|name| name == *known);
        let does_something = std::env::var_os(STARTUP_VARIABLE).is_some()
            || self.env.iter().any(|(name, _)| name == STARTUP_VARIABLE);
        KNOWN_SHELLS.iter().any(known) && !does_something
    }
}

/// Whether it makes no difference to a command that it is read from standard input.
fn can_be_piped(command: &str) -> bool {
    // A line's end comes behind it; and some shells keep bytes beyond ASCII for themselves.
    command.len() <= MAX_PIPED_COMMAND
        && !command.ends_with('\\')
        && command
            .bytes()
            .all(|byte| matches!(byte, b'\t' | b'\n' | b' '..=b'~'))
}

/// The program that supervises a command.
fn supervisor(verb: &str) -> io::Result<Command> {
    let mut supervisor = own_program(verb)?;
    supervisor.arg0("conjure-command");
    Ok(supervisor)
}

/// A supervisor that waits for its shell, while commands run.
pub(super) fn spare_supervisor() -> io::Result<Supervisor> {
    Supervisor::spawn(supervisor("supervise-later")?)
}

/// A shell that waits for its command.
#[derive(Debug)]
pub(super) struct WaitingShell {
    shell: Shell,
    identities: Vec<Option<(u64, u64)>>,
    supervisor: Supervisor,
    pub(super) since: Instant,
}

impl WaitingShell {
    /// Starts one, by a supervisor that waits or a new one; nothing where the shell is none that can
    /// wait.
    pub(super) fn start(shell: &Shell, spare: Option<Supervisor>) -> Option<Self> {
        if !shell.can_wait() {
            return None;
        }
        let places = shell.place_identities();
        let start = shell.start(&[WAIT_SCRIPT, &shell.path, "\n"], StdinSource::Text);
        let supervisor = match spare {
            Some(spare) => spare.begin(start, None),
            None => Supervisor::start(supervisor("supervise").ok()?, start, None),
        };
        Some(Self {
            shell: shell.clone(),
            identities: places,
            supervisor: supervisor.ok()?,
            since: Instant::now(),
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.supervisor.pid()
    }

    /// Gives it its command. Nothing where it is another shell than that command wants or is gone;
    /// then it is ended.
    pub(super) fn run_command(mut self, shell: &Shell, command: &str) -> Option<Supervisor> {
        let fits = self.shell == *shell
            && can_be_piped(command)
            && self.identities == shell.place_identities();
        let heard = self.supervisor.poll_status();
        let lives = heard
            .is_ok_and(|heard| heard.exit.is_none() && !heard.all_exited && !heard.supervisor_lost);
        if fits && lives && self.supervisor.write_input(format!("{command}\n")).is_ok() {
            return Some(self.supervisor);
        }
        self.end();
        None
    }

    /// Ends it; its supervisor sees to that.
    pub(super) fn end(self) {
        self.supervisor.detach();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Child, Command, Output, Stdio};

    use super::*;

    fn shell(path: &str) -> Shell {
        let bash = ShellCommand {
            shell: path.to_owned(),
            env: vec![("A".to_owned(), "1 2".to_owned())],
            ..ShellCommand::default()
        };
        Shell::of(&bash, None, None).unwrap()
    }

    /// Starts a shell as a supervisor does.
    fn start(path: &str, arguments: &[&str]) -> Child {
        Command::new(path)
            .args(["-c", "--"])
            .args(arguments)
            .env("A", "1 2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run_given(path: &str, command: &str) -> Output {
        let mut child = start(path, &[WAIT_SCRIPT, path, "\n"]);
        let mut input = child.stdin.take().unwrap();
        input.write_all(format!("{command}\n").as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap()
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
            for command in commands {
                let plain = start(path, &[command]).wait_with_output().unwrap();
                let given = run_given(path, command);
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
        let long = "x".repeat(MAX_PIPED_COMMAND + 1);
        for command in ["echo \\", "echo é", "echo \r", &long] {
            assert!(!can_be_piped(command), "{command:?}");
        }
        assert!(can_be_piped("echo 'a'\n\ttrue"));
        for (path, can) in [("/usr/bin/fish", false), ("/bin/zsh", false), ("sh/", true)] {
            assert_eq!(shell(path).can_wait(), can, "{path}");
        }
        let mut shell = shell("/bin/sh");
        shell.env.push(("BASH_ENV".to_owned(), "/x".to_owned()));
        assert!(!shell.can_wait());
    }

    #[test]
    fn another_directory_under_the_same_name_is_another_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        fs::create_dir(&path).unwrap();
        let shell = Shell::of(&ShellCommand::default(), Some(&path), None).unwrap();
        let before = shell.place_identities();
        assert_eq!(shell.place_identities(), before);
        fs::rename(&path, dir.path().join("old")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_ne!(shell.place_identities(), before);
    }

    #[test]
    fn without_a_command_it_ends_by_itself() {
        let mut child = start("/bin/sh", &[WAIT_SCRIPT, "/bin/sh", "\n"]);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
