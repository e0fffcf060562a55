//! `!COMMAND`: a command of the person's own. What it says is shown, and goes with the next message.
//!
//! The command has no terminal: one that asks for it is told that there is none, or is ended.

mod bounded;

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal as Raised, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::error::CliError;
use super::output::{DIM, RESET, clean, print_note};
use super::signals::Signals;
use bounded::BoundedOutput;

/// What is said where nothing stands behind the exclamation mark.
pub(crate) const USAGE: &str = "Write `!COMMAND`: it runs, and the model reads what it said.";
/// How often a command is looked at that says nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a command that is asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// How many looks in a row what is left running may say nothing, once the command is over, until it
/// is heard no longer; and how long it is heard at most. Looks and not a time: a machine that stood
/// still has heard nothing meanwhile.
const MAX_QUIET_POLLS: u32 = 6;
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);

/// A command that runs. It is killed when it is dropped.
pub(crate) struct UserShellCommand {
    command: String,
    child: Child,
    lines: mpsc::Receiver<String>,
    output: BoundedOutput,
    /// Whether more of what it says is waited for.
    is_reading: bool,
    /// How and when it ended.
    exit_status: Option<(ExitStatus, Instant)>,
    /// Looks in a row since something was heard, or since it ended.
    quiet_polls: u32,
    polled_at: Instant,
    stopping: CommandStop,
    /// Whether it was stopped because it wanted the terminal.
    wants_terminal: bool,
    /// Whether something that it started still holds its output.
    leaves_something: bool,
}

/// Progress of ending a command.
#[derive(Clone, Copy)]
enum CommandStop {
    /// The command need not end.
    None,
    /// The command was asked to end, and is killed at this time.
    Requested { killed_at: Instant },
    /// The command was killed, with all that it started.
    Killed,
}

/// A line that a command wrote, or its end.
pub(crate) enum UserShellCommandEvent {
    Line(String),
    /// The command is over; `message` is what the model reads of it.
    Over {
        status: String,
        message: String,
    },
}

/// Runs a command in a chat that goes line by line, and gives back what the model reads of it.
/// Ctrl-C ends it.
///
/// # Errors
/// When there is no shell.
pub(crate) async fn run(
    command: &str,
    dir: &Path,
    signals: &mut Signals,
) -> Result<String, CliError> {
    let mut running = UserShellCommand::start(command, dir)?;
    loop {
        tokio::select! {
            biased;
            _ = signals.next() => running.stop(),
            event = running.next() => match event? {
                UserShellCommandEvent::Line(line) => show_line(&line),
                UserShellCommandEvent::Over { status, message: told } => {
                    show_status(&status);
                    return Ok(told);
                }
            },
        }
    }
}

/// Shows a line that a command wrote.
pub(crate) fn show_line(line: &str) {
    print_note(format_args!("{DIM}{}{RESET}", clean(line)));
}

/// Shows how a command ended.
pub(crate) fn show_status(status: &str) {
    print_note(format_args!(
        "{DIM}{status}; the model reads it with your next message{RESET}"
    ));
}

/// What the person wrote of a message, without what commands of their own said before it.
pub(crate) fn strip_command_output(message: &str) -> &str {
    let mut words = message;
    while let Some(rest) = after_command_output(words) {
        words = rest;
    }
    words
}

/// What follows what one command said, as [`UserShellCommand`] tells it.
fn after_command_output(text: &str) -> Option<&str> {
    let (_, said) = text
        .strip_prefix("I ran `")?
        .split_once("). It said:\n\n```")?;
    let more = said.len() - said.trim_start_matches('`').len();
    // No line of what it said has as many backticks.
    let end = format!("\n```{}\n\n", "`".repeat(more));
    let (_, rest) = said.split_once(&end)?;
    Some(rest)
}

impl UserShellCommand {
    /// Starts a command in a directory, in a session of its own: there is no terminal that it could
    /// read from, and no key that is pressed here reaches it.
    ///
    /// # Errors
    /// When there is no shell.
    pub(crate) fn start(command: &str, dir: &Path) -> Result<Self, CliError> {
        let mut apart = Command::new("setsid");
        apart.arg("sh");
        let started = match Self::start_with(apart, command, dir) {
            // Not every system has the program.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::start_with(in_own_group(), command, dir)
            }
            started => started,
        };
        started.map_err(|error| CliError::host_from(error).context("`sh` cannot be started"))
    }

    fn start_with(mut shell: Command, command: &str, dir: &Path) -> io::Result<Self> {
        let mut child = shell
            .args(["-c", command])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (said, lines) = mpsc::channel(256);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(bounded::read(stdout, said.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(bounded::read(stderr, said));
        }
        let now = Instant::now();
        Ok(Self {
            command: command.to_owned(),
            child,
            lines,
            output: BoundedOutput::default(),
            is_reading: true,
            exit_status: None,
            quiet_polls: 0,
            polled_at: now,
            stopping: CommandStop::None,
            wants_terminal: false,
            leaves_something: false,
        })
    }

    /// What happens next. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<UserShellCommandEvent, CliError> {
        loop {
            // Also where lines come without end.
            if self.polled_at.elapsed() >= POLL_INTERVAL {
                self.poll();
            }
            if let Some((status, _)) = self.exit_status
                && !self.is_reading
            {
                return Ok(self.completion_event(status));
            }
            // While it is to end it is not collected: its number stays that of its group.
            let is_collected = !matches!(self.stopping, CommandStop::Requested { .. });
            tokio::select! {
                biased;
                line = self.lines.recv(), if self.is_reading => match line {
                    Some(line) => {
                        self.quiet_polls = 0;
                        self.output.push(&line);
                        return Ok(UserShellCommandEvent::Line(line));
                    }
                    None => self.is_reading = false,
                },
                status = self.child.wait(), if self.exit_status.is_none() && is_collected => {
                    self.record_exit(status.map_err(CliError::host_from)?);
                }
                () = tokio::time::sleep_until(self.polled_at + POLL_INTERVAL) => {
                    self.quiet_polls += 1;
                    if self.exit_status.is_some() && self.quiet_polls >= MAX_QUIET_POLLS {
                        self.detach();
                    }
                }
            }
        }
    }

    /// Looks at what cannot be waited for, or not while lines come without end.
    fn poll(&mut self) {
        self.polled_at = Instant::now();
        if let Some((_, at)) = self.exit_status {
            if self.is_reading && at.elapsed() >= MAX_DRAIN_TIME {
                self.detach();
            }
            return;
        }
        let Some(pid) = self.pid() else { return };
        match self.stopping {
            CommandStop::Requested { killed_at } => {
                let is_over = !self.is_reading && has_ended(pid);
                if is_over || Instant::now() >= killed_at {
                    self.signal(Raised::KILL);
                    self.stopping = CommandStop::Killed;
                }
            }
            CommandStop::None if wants_terminal(pid) => {
                self.wants_terminal = true;
                self.stop();
            }
            CommandStop::None | CommandStop::Killed => {
                if let Ok(Some(status)) = self.child.try_wait() {
                    self.record_exit(status);
                }
            }
        }
    }

    fn record_exit(&mut self, status: ExitStatus) {
        self.exit_status = Some((status, Instant::now()));
        self.quiet_polls = 0;
    }

    /// Waits no longer for what the command left running. It runs on, and says what it says to
    /// nobody.
    fn detach(&mut self) {
        self.is_reading = false;
        self.leaves_something = true;
    }

    fn completion_event(&self, status: ExitStatus) -> UserShellCommandEvent {
        let mut status = match (status.code(), self.stopping) {
            _ if self.wants_terminal => {
                "ended, since it wants the terminal: run it in another one".to_owned()
            }
            (Some(code), CommandStop::None) => format!("exit code {code}"),
            (None, CommandStop::None) => "ended by a signal".to_owned(),
            _ => "stopped".to_owned(),
        };
        if self.leaves_something {
            status += ", and what it started runs on";
        }
        let command = bounded::inline_code(&self.command);
        let block = self.output.block();
        UserShellCommandEvent::Over {
            message: format!("I ran {command} ({status}). It said:\n\n{block}"),
            status,
        }
    }

    /// Asks it to end, and what it started: it is killed when it has not ended a moment later, or
    /// when it is asked once more.
    pub(crate) fn stop(&mut self) {
        if self.exit_status.is_some() {
            if self.is_reading {
                self.detach();
            }
            return;
        }
        let now = Instant::now();
        let grace = match self.stopping {
            CommandStop::None => GRACE,
            CommandStop::Requested { .. } => Duration::ZERO,
            CommandStop::Killed => return,
        };
        self.signal(Raised::TERM);
        // What is stopped hears nothing else.
        self.signal(Raised::CONT);
        self.stopping = CommandStop::Requested {
            killed_at: now + grace,
        };
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn end(mut self) {
        self.stop();
        while let Ok(UserShellCommandEvent::Line(_)) = self.next().await {}
    }

    /// Process id of the command, which is also that of its group; nothing once it was collected.
    fn pid(&self) -> Option<Pid> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        id.and_then(Pid::from_raw)
    }

    fn signal(&self, signal: Raised) {
        if let Some(group) = self.pid() {
            // It may be over already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for UserShellCommand {
    fn drop(&mut self) {
        self.signal(Raised::KILL);
    }
}

/// A shell in a process group of its own. It keeps the terminal, and is stopped when it wants it.
fn in_own_group() -> Command {
    let mut shell = Command::new("sh");
    shell.process_group(0);
    shell
}

/// Whether a process was stopped since it reads from the terminal, or changes it, which another group
/// has.
fn wants_terminal(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).ok().flatten();
    let signal = status.and_then(|status| status.stopping_signal());
    signal.is_some_and(|signal| {
        [Raised::TTIN, Raised::TTOU]
            .map(Raised::as_raw)
            .contains(&signal)
    })
}

/// Whether a process has ended that was not collected.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long an end may take that nothing holds up, on a busy machine.
    const SOON: Duration = Duration::from_secs(20);

    fn started(command: &str) -> UserShellCommand {
        UserShellCommand::start(command, Path::new("/")).unwrap()
    }

    /// What a command says from here on, and how it ends.
    async fn rest(running: &mut UserShellCommand) -> (Vec<String>, String, String) {
        let mut lines = Vec::new();
        let over = async {
            loop {
                match running.next().await.unwrap() {
                    UserShellCommandEvent::Line(line) => lines.push(line),
                    UserShellCommandEvent::Over {
                        status,
                        message: told,
                    } => return (status, told),
                }
            }
        };
        let (status, told) = tokio::time::timeout(SOON, over).await.unwrap();
        (lines, status, told)
    }

    async fn all(command: &str) -> (Vec<String>, String, String) {
        rest(&mut started(command)).await
    }

    #[tokio::test]
    async fn what_a_command_says_is_told_with_how_it_ended() {
        let (lines, status, told) = all("echo one; exit 3").await;
        assert_eq!(
            (lines, status.as_str()),
            (vec!["one".to_owned()], "exit code 3")
        );
        assert_eq!(
            told,
            "I ran `echo one; exit 3` (exit code 3). It said:\n\n```\none\n```"
        );
        let (lines, _, told) = all("seq 1 20000").await;
        assert_eq!(lines.len(), 20000);
        assert!(told.len() < 31_000 && told.contains(" lines left out) …\n"));
        assert!(told.ends_with("\n20000\n```"), "the end is told too");
    }

    #[tokio::test]
    async fn what_commands_said_are_no_words_of_the_person() {
        let (.., first) = all("echo one; exit 3").await;
        // What it says has a fence of its own.
        let (.., second) = all("printf '```\\n\\nx\\n'; : '`'").await;
        for own in ["And?", "I ran `ls` too.\n\n```\nx\n```\n\nSee?"] {
            assert_eq!(
                strip_command_output(&format!("{first}\n\n{second}\n\n{own}")),
                own
            );
        }
    }

    #[tokio::test]
    async fn a_line_without_an_end_takes_no_memory_and_is_told_in_part() {
        let command = "printf begin; head -c 20000000 /dev/zero | tr '\\0' x; printf end";
        let (lines, _, told) = all(command).await;
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() < 6_000 && lines[0].starts_with("beginxxx"));
        assert!(lines[0].contains(" bytes left out) … xxx") && lines[0].ends_with("xxxend"));
        assert!(told.contains(&lines[0]));
    }

    #[tokio::test]
    async fn a_command_that_takes_no_notice_is_killed_with_what_it_started() {
        let mut running = started("trap '' TERM; sleep 300 & echo $!; wait; sleep 300");
        let Ok(UserShellCommandEvent::Line(sleeper)) = running.next().await else {
            panic!("it said nothing");
        };
        running.stop();
        let (_, status, _) = rest(&mut running).await;
        assert_eq!(status, "stopped");
        let sleeper = Pid::from_raw(sleeper.parse().unwrap()).unwrap();
        // It is collected by somebody else, a moment later.
        let is_gone = || rustix::process::test_kill_process(sleeper).is_err() || is_zombie(sleeper);
        let until = Instant::now() + SOON;
        while !is_gone() {
            assert!(Instant::now() < until, "what it started runs on");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn is_zombie(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    #[tokio::test]
    async fn what_a_command_leaves_running_is_not_waited_for() {
        let (lines, status, told) = all("sleep 300 & echo $!").await;
        assert_eq!(status, "exit code 0, and what it started runs on");
        assert!(told.contains(&status), "{told}");
        let sleeper = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
        // It was left alone.
        rustix::process::kill_process(sleeper, Raised::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_command_that_is_stopped_for_wanting_the_terminal_is_ended() {
        // As the system does where it has the terminal but not the keys.
        let command = "echo one; kill -TTIN $$; echo two";
        let started = UserShellCommand::start_with(in_own_group(), command, Path::new("/"));
        let (lines, status, _) = rest(&mut started.unwrap()).await;
        assert_eq!(lines, ["one"]);
        assert_eq!(
            status,
            "ended, since it wants the terminal: run it in another one"
        );
    }

    #[tokio::test]
    async fn a_command_has_no_terminal_and_a_session_of_its_own() {
        let needed = ["/usr/bin/setsid", "/proc/self/stat"];
        if !needed.iter().all(|path| Path::new(path).exists()) {
            println!("LEFT OUT: a session for a command: this system has no setsid or no /proc");
            return;
        }
        let command = "cut -d ' ' -f 6 /proc/$$/stat; echo $$; \
                       { cat </dev/tty; } 2>/dev/null || echo none";
        let (lines, ..) = all(command).await;
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], lines[1], "it leads its session");
        assert_eq!(lines[2], "none");
    }
}
