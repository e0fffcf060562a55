//! The `PATH` that a person has in a login shell.
//!
//! A host that a desktop or a service manager started has a short `PATH`, without what a person's
//! profile adds to it, such as the directory of `npx` or `uvx`. So the person's shell is asked.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_process_tree::Start;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::ChildStdout;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::supervisors::Supervisors;

/// Shell that is asked when nobody says which one is the person's.
const DEFAULT_SHELL: &str = "/bin/sh";
/// Time limit for running a profile.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(10);
/// How old an answer is at least before the shell is asked again for what it does not have: a
/// profile may take long, and start much.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How long it counts that there was none: servers start together.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// A profile may print as well, but not everything.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;
/// What stands before and behind the answer, so that it is told from what a profile prints.
const MARKER: &str = "@@conjure-path@@";

/// The person's login shell, with what it answered last.
#[derive(Debug, Default)]
pub(crate) struct LoginShell {
    answer: Mutex<Option<(Instant, ShellAnswer)>>,
}

/// The login shell, with its `PATH` or why there is none.
#[derive(Debug, Clone)]
pub(super) struct ShellAnswer {
    pub(super) shell: OsString,
    pub(super) path: Result<OsString, ShellFailure>,
}

/// Why a shell did not say its `PATH`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ShellFailure {
    #[error("it could not be started: {0}")]
    NotStarted(String),
    #[error("it did not say")]
    NoOutput,
    #[error("it said nothing for {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl LoginShell {
    /// The shell's `PATH`, as it was said before or, when that is `stale` or nothing, as it says now in
    /// this environment.
    pub(super) async fn path(
        &self,
        stale: bool,
        env: &BTreeMap<OsString, OsString>,
        supervisors: &Arc<Supervisors>,
    ) -> ShellAnswer {
        let mut answer = self.answer.lock().await;
        if let Some((asked, answer)) = &*answer {
            let age = asked.elapsed();
            let counts = match answer.path {
                Ok(_) => !stale || age < REFRESH_INTERVAL,
                Err(_) => age < FAILURE_LIFETIME,
            };
            if counts {
                return answer.clone();
            }
        }
        let shell = env.get(OsStr::new("SHELL")).cloned();
        let shell = shell.unwrap_or_else(|| DEFAULT_SHELL.into());
        let path = ask(&shell, env, supervisors, PROFILE_TIMEOUT).await;
        let new = ShellAnswer { shell, path };
        *answer = Some((Instant::now(), new.clone()));
        new
    }
}

/// Starts the shell and reads what it says. Whatever its profile started is ended.
async fn ask(
    shell: &OsStr,
    env: &BTreeMap<OsString, OsString>,
    supervisors: &Arc<Supervisors>,
    patience: Duration,
) -> Result<OsString, ShellFailure> {
    // An interactive shell reads more of what a person has set, but stops where there is a
    // terminal that belongs to somebody else. Where there is one, the host was started from a shell.
    let interactive = File::open("/dev/tty").is_err().then_some("-i");
    let command = format!("printf %s \"{MARKER}$PATH{MARKER}\"");
    let arguments = interactive.into_iter().chain(["-l", "-c", &command]);
    let start = Start {
        program: shell.to_string_lossy().into_owned(),
        arguments: arguments.map(str::to_owned).collect(),
        dir: Some("/".to_owned()),
        is_silent: true,
        ..Start::default()
    };
    let not_started = |error: io::Error| ShellFailure::NotStarted(error.to_string());
    let started = supervisors.start(start, env.clone(), None).await;
    let (_running, outputs) = started.map_err(not_started)?;
    let stdout = ChildStdout::from_std(outputs.stdout).map_err(not_started)?;
    match tokio::time::timeout(patience, read_answer(stdout)).await {
        Ok(path) => path.ok_or(ShellFailure::NoOutput),
        Err(_) => Err(ShellFailure::TimedOut(patience)),
    }
}

/// Reads up to the end of the answer; somebody may hold the output open for longer.
async fn read_answer(output: impl AsyncRead + Unpin) -> Option<OsString> {
    let mut output = output.take(MAX_OUTPUT_BYTES);
    let mut read = Vec::new();
    loop {
        let bytes = output.read_buf(&mut read).await.ok()?;
        if let Some(path) = marked_output(&read) {
            return (!path.is_empty()).then(|| OsString::from_vec(path.to_vec()));
        }
        if bytes == 0 {
            return None;
        }
    }
}

fn marked_output(read: &[u8]) -> Option<&[u8]> {
    let around = MARKER.as_bytes();
    let at = |bytes: &[u8]| {
        bytes
            .windows(around.len())
            .position(|found| found == around)
    };
    let rest = read.get(at(read)? + around.len()..)?;
    rest.get(..at(rest)?)
}

/// The entries of one `PATH`, and behind them those of another that it lacks.
pub(super) fn join_paths(own: &OsStr, more: &OsStr) -> OsString {
    // An empty path has no entry; an empty entry would be the directory of whoever looks.
    let split = |path: &OsStr| -> Vec<_> {
        let entries = std::env::split_paths(path);
        entries.filter(|_| !path.is_empty()).collect()
    };
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
    use conjure_exec_agent::private::PrivatePaths;

    use std::path::PathBuf;

    use super::*;
    use crate::tests::stage::{runs, until};

    struct Person {
        home: tempfile::TempDir,
        env: BTreeMap<OsString, OsString>,
    }

    impl Person {
        /// One with this profile.
        fn with_profile(profile: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join(".profile"), profile).unwrap();
            let env = BTreeMap::from([
                ("HOME".into(), home.path().into()),
                ("PATH".into(), "/usr/bin:/bin".into()),
            ]);
            Self { home, env }
        }

        async fn asked(&self, patience: Duration) -> Result<OsString, ShellFailure> {
            let shell = OsStr::new(DEFAULT_SHELL);
            ask(
                shell,
                &self.env,
                &Supervisors::new(PrivatePaths::default()),
                patience,
            )
            .await
        }

        /// The process whose number its profile wrote down.
        fn left(&self) -> Option<u64> {
            let left = std::fs::read_to_string(self.home.path().join("left"));
            left.ok()?.trim().parse().ok()
        }
    }

    fn first_file(path: &OsStr) -> PathBuf {
        std::env::split_paths(path).next().unwrap()
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
            let path = ask(
                shell.as_ref(),
                &env,
                &Supervisors::new(PrivatePaths::default()),
                PROFILE_TIMEOUT,
            )
            .await
            .unwrap();
            assert_eq!(first_file(&path), home.path().join("my tools"), "{shell}");
        }
    }

    #[tokio::test]
    async fn what_a_profile_prints_or_leaves_behind_is_no_obstacle() {
        let person = Person::with_profile(
            "echo @@conjure-\nsleep 1000 &\necho \"$!\" > \"$HOME/left\"\nPATH=/opt/x:$PATH\n",
        );
        let path = person.asked(PROFILE_TIMEOUT).await.unwrap();
        assert_eq!(first_file(&path), Path::new("/opt/x"));
        let left = person.left().unwrap();
        until("it was ended", || !runs(left));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shell_that_hangs_is_ended() {
        let profile = "echo \"$$\" > \"$HOME/left\"\nsleep 1000\n";
        let person = Arc::new(Person::with_profile(profile));
        let asks = Arc::clone(&person);
        let asked = tokio::spawn(async move { asks.asked(PROFILE_TIMEOUT * 6).await });
        until("it began", || person.left().is_some());
        let left = person.left().unwrap();
        assert!(runs(left));
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        until("it was ended", || !runs(left));
        let patience = Duration::from_millis(10);
        let hangs = person.asked(patience).await;
        assert_eq!(hangs, Err(ShellFailure::TimedOut(patience)));
    }

    #[tokio::test]
    async fn a_shell_that_says_nothing_or_is_none_has_no_path() {
        let silent = Person::with_profile("exit 0\n");
        assert_eq!(
            silent.asked(PROFILE_TIMEOUT).await,
            Err(ShellFailure::NoOutput)
        );
        let absent = OsStr::new("/no/such/shell");
        let asked = ask(
            absent,
            &silent.env,
            &Supervisors::new(PrivatePaths::default()),
            PROFILE_TIMEOUT,
        )
        .await;
        assert!(
            matches!(asked, Err(ShellFailure::NotStarted(_))),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn it_is_asked_once_for_servers_that_start_together_and_not_again_for_what_it_has() {
        let person = Person::with_profile("echo asked >> \"$HOME/asked\"\nPATH=/opt/x:$PATH\n");
        let (shell, supervisors) = (
            LoginShell::default(),
            Supervisors::new(PrivatePaths::default()),
        );
        let ask = |stale| shell.path(stale, &person.env, &supervisors);
        let (one, two) = tokio::join!(ask(false), ask(true));
        assert_eq!(one.path, two.path);
        let asked = || std::fs::read_to_string(person.home.path().join("asked")).unwrap();
        assert_eq!(asked(), "asked\n");
        // Much later.
        if let Some((when, _)) = &mut *shell.answer.lock().await {
            *when -= REFRESH_INTERVAL;
        }
        ask(false).await;
        assert_eq!(asked(), "asked\n");
        ask(true).await;
        assert_eq!(asked(), "asked\nasked\n");
    }

    #[test]
    fn a_path_gets_what_it_lacks_behind_what_it_has() {
        let joined = |own: &str, more: &str| join_paths(own.as_ref(), more.as_ref());
        assert_eq!(joined("/b:/a", "/a:/c:rel::/b:/d"), "/b:/a:/c:/d");
        assert_eq!(joined("/a", ""), "/a");
        assert_eq!(joined("", "/a:/b"), "/a:/b");
    }
}
