//! The `PATH` that a person has in a login shell.
//!
//! A host that a desktop or a service manager started has a short `PATH`, without what a person's
//! profile adds to it, such as the directory of `npx` or `uvx`. So the person's shell is asked.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::guardian::{Guardian, MARK};

/// Who is asked when nobody says which shell is the person's.
const DEFAULT_SHELL: &str = "/bin/sh";
/// How long a profile may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer counts: servers start together, and a profile is changed by hand.
const COUNTS: Duration = Duration::from_secs(60);
/// A profile may print as well, but not everything.
const MOST_BYTES: u64 = 1024 * 1024;
/// What stands before and behind the answer, so that it is told from what a profile prints.
const AROUND: &str = "@@conjure-path@@";

/// The person's login shell, with what it answered last.
#[derive(Debug, Default)]
pub(crate) struct LoginShell {
    answer: Mutex<Option<(Instant, Answer)>>,
}

/// The shell, and its `PATH` or why there is none.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) shell: OsString,
    pub(super) path: Result<OsString, String>,
}

impl LoginShell {
    /// Its `PATH`. Asks it with this environment, unless it was asked a moment ago.
    pub(super) async fn path(
        &self,
        env: &BTreeMap<OsString, OsString>,
        guardian: &Arc<Guardian>,
    ) -> Answer {
        let mut answer = self.answer.lock().await;
        if let Some((asked, answer)) = &*answer
            && asked.elapsed() < COUNTS
        {
            return answer.clone();
        }
        let shell = env.get(OsStr::new("SHELL")).cloned();
        let shell = shell.unwrap_or_else(|| DEFAULT_SHELL.into());
        let path = ask(&shell, env, guardian, PATIENCE).await;
        let new = Answer { shell, path };
        *answer = Some((Instant::now(), new.clone()));
        new
    }
}

/// Starts the shell and reads what it says. Whatever its profile started in its group is ended.
async fn ask(
    shell: &OsStr,
    env: &BTreeMap<OsString, OsString>,
    guardian: &Arc<Guardian>,
    patience: Duration,
) -> Result<OsString, String> {
    guardian.ready().map_err(|error| error.to_string())?;
    let mut command = Command::new(shell);
    // An interactive shell reads more of what a person has set, but stops where there is a
    // terminal that belongs to somebody else. Where there is one, the host was started from a shell.
    if File::open("/dev/tty").is_err() {
        command.arg("-i");
    }
    command
        .args(["-l", "-c"])
        .arg(format!("printf %s \"{AROUND}$PATH{AROUND}\""))
        .env_clear()
        .envs(env)
        .env(MARK, guardian.mark())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let group = group.and_then(Pid::from_raw);
    let _group = group.map(|group| (Group(group), guardian.guard(group)));
    let stdout = child.stdout.take().ok_or("it has no output")?;
    match tokio::time::timeout(patience, said(stdout)).await {
        Ok(Some(path)) => Ok(path),
        Ok(None) => Err("it did not say".to_owned()),
        Err(_) => Err(format!("it said nothing for {} s", patience.as_secs())),
    }
}

/// Reads up to the end of the answer; somebody may hold the output open for longer.
async fn said(output: impl AsyncRead + Unpin) -> Option<OsString> {
    let mut output = output.take(MOST_BYTES);
    let mut read = Vec::new();
    loop {
        let bytes = output.read_buf(&mut read).await.ok()?;
        if let Some(path) = between(&read) {
            return (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()));
        }
        if bytes == 0 {
            return None;
        }
    }
}

fn between(read: &[u8]) -> Option<&[u8]> {
    let around = AROUND.as_bytes();
    let at = |bytes: &[u8]| {
        bytes
            .windows(around.len())
            .position(|found| found == around)
    };
    let rest = read.get(at(read)? + around.len()..)?;
    rest.get(..at(rest)?)
}

/// The shell's group; dropping it kills it.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody of it may be left.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// The entries of one `PATH`, and behind them those of another that it lacks.
pub(super) fn joined(own: &OsStr, more: &OsStr) -> OsString {
    let split = |path: &OsStr| -> Vec<_> { std::env::split_paths(path).collect() };
    let mut entries = split(own);
    for entry in split(more) {
        if Path::is_absolute(&entry) && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    let entries: Vec<&[u8]> = entries
        .iter()
        .map(|entry| entry.as_os_str().as_bytes())
        .collect();
    OsString::from_vec(entries.join(&b':'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Person {
        home: tempfile::TempDir,
        env: BTreeMap<OsString, OsString>,
    }

    impl Person {
        /// One whose shell is this script.
        fn with_shell(script: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            let shell = home.path().join("shell");
            std::fs::write(&shell, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
            let env = BTreeMap::from([
                ("HOME".into(), home.path().into()),
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("SHELL".into(), shell.into()),
            ]);
            Self { home, env }
        }

        async fn asked(&self, patience: Duration) -> Result<OsString, String> {
            let shell = &self.env[OsStr::new("SHELL")];
            ask(shell, &self.env, &Guardian::new(), patience).await
        }
    }

    #[tokio::test]
    async fn every_shell_that_is_here_tells_the_path_of_its_profile() {
        let shells = ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/bin/fish"];
        for shell in shells.into_iter().filter(|path| Path::new(path).exists()) {
            let home = tempfile::tempdir().unwrap();
            let profile = "echo welcome\nPATH=\"$HOME/my tools:$PATH\"\nexport PATH\n";
            for name in [".profile", ".zprofile"] {
                std::fs::write(home.path().join(name), profile).unwrap();
            }
            let fish = home.path().join(".config/fish");
            std::fs::create_dir_all(&fish).unwrap();
            std::fs::write(
                fish.join("config.fish"),
                "set -x PATH \"$HOME/my tools\" $PATH",
            )
            .unwrap();
            let env = BTreeMap::from([
                ("HOME".into(), home.path().into()),
                ("PATH".into(), "/usr/bin:/bin".into()),
            ]);
            let path = ask(shell.as_ref(), &env, &Guardian::new(), PATIENCE)
                .await
                .unwrap();
            let first = std::env::split_paths(&path).next();
            assert_eq!(first, Some(home.path().join("my tools")), "{shell}");
        }
    }

    #[tokio::test]
    async fn what_a_profile_prints_or_leaves_behind_is_no_obstacle() {
        let person = Person::with_shell(
            "echo @@conjure-\nsleep 1000 &\necho \"$!\" > \"$HOME/left\"\n\
             PATH=/opt/x:$PATH\nfor command; do :; done\neval \"$command\"",
        );
        let path = person.asked(PATIENCE).await.unwrap();
        assert_eq!(path, "/opt/x:/usr/bin:/bin");
        let left = std::fs::read_to_string(person.home.path().join("left")).unwrap();
        let left = Pid::from_raw(left.trim().parse().unwrap()).unwrap();
        gone(left).await;
    }

    #[tokio::test]
    async fn a_shell_that_hangs_is_ended() {
        let person = Person::with_shell("echo \"$$\" > \"$HOME/left\"; sleep 1000");
        let home = person.home.path().to_owned();
        let hangs = person.asked(Duration::from_secs(2)).await;
        assert_eq!(hangs, Err("it said nothing for 2 s".to_owned()));
        let left = std::fs::read_to_string(home.join("left")).unwrap();
        gone(Pid::from_raw(left.trim().parse().unwrap()).unwrap()).await;
    }

    /// Fails when a process is still there after a while.
    async fn gone(process: Pid) {
        for _ in 0..500 {
            if rustix::process::test_kill_process(process).is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{process:?} is still there");
    }

    #[tokio::test]
    async fn a_shell_that_says_nothing_or_is_none_has_no_path() {
        let silent = Person::with_shell("exit 0").asked(PATIENCE).await;
        assert_eq!(silent, Err("it did not say".to_owned()));
        let mut absent = Person::with_shell("");
        absent.env.insert("SHELL".into(), "/no/such/shell".into());
        assert!(
            absent
                .asked(PATIENCE)
                .await
                .unwrap_err()
                .contains("No such file")
        );
    }

    #[tokio::test]
    async fn it_is_asked_once_for_servers_that_start_together() {
        let person = Person::with_shell("echo asked >> \"$HOME/asked\"; exit 0");
        let (shell, guardian) = (LoginShell::default(), Guardian::new());
        let ask = || shell.path(&person.env, &guardian);
        let (first, second) = tokio::join!(ask(), ask());
        assert_eq!(first.path, second.path);
        let asked = std::fs::read_to_string(person.home.path().join("asked")).unwrap();
        assert_eq!(asked, "asked\n");
    }

    #[test]
    fn a_path_gets_what_it_lacks_behind_what_it_has() {
        let joined = |own: &str, more: &str| joined(own.as_ref(), more.as_ref());
        assert_eq!(joined("/b:/a", "/a:/c:rel::/b:/d"), "/b:/a:/c:/d");
        assert_eq!(joined("/a", ""), "/a");
    }
}
