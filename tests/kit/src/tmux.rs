//! A program in a terminal of tmux: keys go to it, and what a person would see comes back.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::cli::environment;
use crate::{Cli, KitError, Workspace, conjure_bin};

/// How long something may take to be seen.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a program has to end when its terminal is gone.
const ENDING: Duration = Duration::from_secs(10);
/// How often the screen is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many were started, so that each has a socket of its own.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// A terminal with a program in it. It ends when this is dropped.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
    workspace: Workspace,
}

impl Tmux {
    /// Starts a program in a terminal of so many columns and rows.
    ///
    /// # Errors
    /// When there is no tmux.
    pub fn start(cli: Cli, columns: u16, rows: u16) -> Result<Self, KitError> {
        let (workspace, words) = cli.tmux_command()?;
        let config = workspace.root().join("tmux.conf");
        let text = "set -g status off\nset -g remain-on-exit on\nset -g remain-on-exit-format ''\n\
                    set -g history-limit 10000\nset -s escape-time 0\nset -s extended-keys on\n\
                    set -sq extended-keys-format csi-u\n";
        std::fs::write(&config, text).map_err(|source| KitError::File {
            path: config.clone(),
            source,
        })?;
        let tmux = Self {
            // A socket's path is short.
            socket: std::env::temp_dir().join(format!(
                "conjure-tmux-{}-{}",
                std::process::id(),
                STARTED.fetch_add(1, Ordering::Relaxed)
            )),
            workspace,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut args: Vec<OsString> = vec!["-f".into(), config.into()];
        for word in ["new-session", "-d", "-x", &columns, "-y", &rows, "-c"] {
            args.push(word.into());
        }
        args.push(tmux.workspace.work().into());
        args.push("--".into());
        args.extend(words);
        tmux.run(&args)?;
        Ok(tmux)
    }

    fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<String, KitError> {
        let mut command = Command::new("tmux");
        command
            .env_remove("TMUX")
            .env("LANG", "C.UTF-8")
            .arg("-S")
            .arg(&self.socket);
        let output = command
            .args(args)
            .output()
            .map_err(|source| KitError::Start {
                program: "tmux".into(),
                source,
            })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Presses keys, by the names that tmux has for them: `Enter`, `Escape`, `C-c`, `y`.
    ///
    /// # Errors
    /// When tmux is gone.
    pub fn press(&self, keys: &[&str]) -> Result<(), KitError> {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.run(&args).map(drop)
    }

    /// Types a text, letter by letter.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn types(&self, text: &str) -> Result<(), KitError> {
        self.run(&["send-keys", "-l", text]).map(drop)
    }

    /// Pastes a text, in brackets where the program asked for them.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn paste(&self, text: &str) -> Result<(), KitError> {
        self.run(&["set-buffer", text])?;
        self.run(&["paste-buffer", "-p"]).map(drop)
    }

    /// Gives the terminal another size.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn resize(&self, columns: u16, rows: u16) -> Result<(), KitError> {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.run(&["resize-window", "-x", &columns, "-y", &rows])
            .map(drop)
    }

    /// What is on the screen, without empty lines at its end.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn screen(&self) -> Result<String, KitError> {
        Ok(self.run(&["capture-pane", "-p"])?.trim_end().to_owned())
    }

    /// What is on the screen, lines that the terminal broke because they were too long as one each. Where
    /// the program broke them itself they stay apart.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn unwrapped(&self) -> Result<String, KitError> {
        let lines = self.run(&["capture-pane", "-p", "-J"])?;
        let lines: Vec<&str> = lines.lines().map(str::trim_end).collect();
        Ok(lines.join("\n").trim_end().to_owned())
    }

    /// What is on the screen with its colours, as escape sequences.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn colors(&self) -> Result<String, KitError> {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Everything from the first line on, also what has left the screen.
    ///
    /// # Errors
    /// As [`Tmux::press`].
    pub fn scrollback(&self) -> Result<String, KitError> {
        let all = self.run(&["capture-pane", "-p", "-S", "-"])?;
        Ok(all.trim_end().to_owned())
    }

    /// Waits until the screen is as wanted, and gives it back.
    ///
    /// # Errors
    /// [`KitError::Deadline`] with the last screen.
    pub fn wait_until(
        &self,
        what: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<String, KitError> {
        let until = Instant::now() + LIMIT;
        loop {
            let screen = self.screen()?;
            if is_there(&screen) {
                return Ok(screen);
            }
            if Instant::now() > until {
                return Err(KitError::Deadline {
                    what: what.to_owned(),
                    limit: LIMIT,
                    seen: screen,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a text is on the screen.
    ///
    /// # Errors
    /// As [`Tmux::wait_until`].
    pub fn wait_for(&self, text: &str) -> Result<String, KitError> {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// Waits for the program's end: its exit code.
    ///
    /// # Errors
    /// [`KitError::Deadline`] with the last screen.
    pub fn wait_for_exit(&self) -> Result<i32, KitError> {
        let until = Instant::now() + LIMIT;
        loop {
            let told = "#{pane_dead} #{pane_pid} #{pane_dead_status}";
            let told = self.run(&["display-message", "-p", told])?;
            let mut words = told.split_whitespace();
            if words.next() == Some("1") {
                let (pid, code) = (words.next(), words.next());
                // tmux may see that the terminal is closed, and never look at the program's end.
                let code =
                    code.map_or_else(|| pid.and_then(code_of_zombie), |code| code.parse().ok());
                if let Some(code) = code {
                    return Ok(code);
                }
            }
            if Instant::now() > until {
                return Err(KitError::Deadline {
                    what: "the program's end".to_owned(),
                    limit: LIMIT,
                    seen: self.screen()?,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Workspace that the program runs in.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }
}

impl Cli {
    /// What tmux is to run: where, and as which words of a command line that says the whole
    /// environment.
    fn tmux_command(self) -> Result<(Workspace, Vec<OsString>), KitError> {
        let workspace = match self.workspace {
            Some(workspace) => workspace,
            None => Workspace::new()?,
        };
        let mut environment: BTreeMap<OsString, OsString> = environment(&workspace)
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect();
        environment.insert("TERM".into(), "tmux-256color".into());
        environment.extend(self.env);
        let mut words: Vec<OsString> = vec!["env".into(), "-i".into()];
        for (name, value) in environment {
            let mut word = name;
            word.push("=");
            word.push(value);
            words.push(word);
        }
        words.push(match self.program {
            Some(program) => program.into(),
            None => conjure_bin()?.into(),
        });
        words.extend(self.args);
        Ok((workspace, words))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let told = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let told = told.unwrap_or_default();
        let pid = told.trim();
        let program = pid.parse().ok().and_then(Pid::from_raw);
        // A server that has gone needs no end.
        let _ = self.run(&["kill-server"]);
        let _ = std::fs::remove_file(&self.socket);
        // The program ends with its terminal, a moment later: what it held is free then.
        let Some(program) = program else { return };
        let until = Instant::now() + ENDING;
        while test_kill_process(program).is_ok() && code_of_zombie(pid).is_none() {
            if Instant::now() > until {
                let _ = kill_process(program, Signal::KILL);
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The exit code of a program that has ended, and that whoever started it has not looked at yet.
fn code_of_zombie(pid: &str) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_zombie = fields.next() == Some("Z");
    let status: i32 = fields.next_back()?.parse().ok()?;
    is_zombie.then_some(status >> 8)
}
