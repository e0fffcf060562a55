//! What commands in a sandbox may do: read, and write where it is said.

use std::path::PathBuf;

/// What the commands of a session may change, and whether they reach the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    /// Files and directories that they change, absolute and without links; of everything else they
    /// change nothing but devices such as `/dev/null`.
    pub write: Vec<PathBuf>,
    /// Whether they open connections, to the internet and to this machine. Sockets of this machine
    /// (Unix) they never have: those of an engine or of an agent for keys are as good as its programs.
    pub network: bool,
}

/// Paths that are below none of the others.
#[must_use]
pub fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !outermost.iter().any(|outer| path.starts_with(outer)) {
            outermost.push(path);
        }
    }
    outermost
}

/// What this system cannot keep commands in a sandbox from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SandboxGaps {
    /// Writing anywhere: the kernel has no Landlock.
    pub writes: bool,
    /// Signals to other processes, or some kinds of writing: its Landlock is old.
    pub signals: bool,
    /// Connections, the kernel's own settings, other processes' share of the machine, and what processes
    /// share by number: it has no seccomp.
    pub network: bool,
}

#[cfg(not(target_os = "linux"))]
impl Sandbox {
    /// Confines the calling thread, as far as the system can: not at all.
    #[must_use]
    pub fn enter(&self, _has_own_ipc: bool) -> SandboxGaps {
        SandboxGaps {
            writes: true,
            signals: true,
            network: true,
        }
    }
}

#[cfg(target_os = "linux")]
impl Sandbox {
    /// Confines the calling thread and what it starts, as far as the system can. It gains no privileges
    /// any more, also not by programs such as `sudo`. `has_own_ipc`: memory, semaphores and queues that
    /// programs share by number or name are its own; else it has none of these.
    #[must_use]
    pub fn enter(&self, has_own_ipc: bool) -> SandboxGaps {
        let kept = super::capabilities::keep_command_capabilities().is_err();
        let gaps = super::files::restrict_sandbox(self).unwrap_or(SandboxGaps {
            writes: true,
            signals: true,
            network: false,
        });
        SandboxGaps {
            writes: gaps.writes || kept,
            network: super::system_calls::restrict_sandbox(self, has_own_ipc).is_err(),
            ..gaps
        }
    }
}
