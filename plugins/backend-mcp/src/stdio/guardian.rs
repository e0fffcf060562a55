//! The guardian: a small process that ends what the host started when the host can no longer do so:
//! login shells, and servers where there is no supervisor.
//!
//! It waits at a pipe whose other end only the host holds, so it notices the end of the host
//! however that came about, `SIGKILL` included. It is a shell script, because a library has no
//! program of its own to start. It ends nothing while the host lives.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_exec_agent::private::PrivatePaths;
use rustix::process::Pid;

const SHELL: &str = "/bin/sh";
const SCRIPT: &str = include_str!("guardian.sh");
/// The variable that marks what an instance started.
pub(super) const MARK: &str = "CONJURE_MCP_INSTANCE";

/// The owner of an instance's servers after the end of the host.
#[derive(Debug)]
pub(crate) struct Guardian {
    mark: String,
    /// What of the host no confined server sees.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "nothing is confined")
    )]
    private: PrivatePaths,
    process: Mutex<Option<Child>>,
}

/// A server that the guardian knows of. Dropping it says that the server is gone.
#[derive(Debug)]
pub(super) struct Guarded {
    guardian: Arc<Guardian>,
    leader: Pid,
}

impl Guardian {
    /// A guardian that is started with the first server.
    pub(crate) fn new(private: PrivatePaths) -> Arc<Self> {
        let random = |_| RandomState::new().build_hasher().finish();
        let [first, second] = [0, 1].map(random);
        Arc::new(Self {
            mark: format!("{first:016x}{second:016x}"),
            private,
            process: Mutex::default(),
        })
    }

    /// What of the host no confined server sees.
    #[cfg(target_os = "linux")]
    pub(super) fn private(&self) -> &PrivatePaths {
        &self.private
    }

    /// What is in the environment of everything that it ends.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Makes sure that it runs.
    pub(super) fn ready(&self) -> io::Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = process.as_mut()
            && matches!(running.try_wait(), Ok(None))
        {
            return Ok(());
        }
        *process = Some(
            Command::new(SHELL)
                .args(["-c", SCRIPT, "conjure-mcp-guardian", &self.mark])
                .process_group(0)
                .current_dir("/")
                .env_clear()
                .env("PATH", "/usr/local/bin:/usr/bin:/bin")
                .env("LC_ALL", "C")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?,
        );
        Ok(())
    }

    /// Tells of a server that was started in a group of its own.
    pub(super) fn guard(self: &Arc<Self>, leader: Pid) -> Guarded {
        self.say('+', leader);
        Guarded {
            guardian: Arc::clone(self),
            leader,
        }
    }

    fn say(&self, what: char, leader: Pid) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stdin) = process.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Where there is a `/proc` the mark alone is enough.
            let _ = writeln!(stdin, "{what} {}", leader.as_raw_nonzero());
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.guardian.say('-', self.leader);
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let process = self
            .process
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = process.take() {
            drop(child.stdin.take());
            // It ends in a moment, and somebody has to take its exit status.
            let reaper = std::thread::Builder::new().name("mcp-guardian".to_owned());
            let _ = reaper.spawn(move || child.wait());
        }
    }
}
