//! Ends a command with everything that it started.
//!
//! A command is the leader of a process group, and every process that it starts inherits a mark
//! in its environment. On Linux the mark finds those that left the group; elsewhere only the
//! group is ended. What both leaves its parent and drops its environment is not found.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "group.rs")]
mod members;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conjure_skill_sdk::Result;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::guardian::{Guarded, Guardian};
use members::Members;

/// The environment variable that marks what a command started. A host that itself runs inside a
/// command keeps the outer mark in front: ending the outer command ends its commands too.
pub(crate) const MARK: &str = "CONJURE_CALL";

/// How long background processes of a finished command may go on by themselves, such as the
/// `tee` of a process substitution.
const LINGER: Duration = Duration::from_millis(100);
/// How often the rest is killed, for what forks faster than it is found.
const PASSES: usize = 20;
/// How long a killed process may take to be gone before it is looked for again.
const KILLED: Duration = Duration::from_millis(200);

/// What an instance puts in front of the marks of its commands. The last byte ends it, so that
/// none is the beginning of another.
pub(crate) fn new_instance() -> String {
    format!("@{}/", unique())
}

/// A new mark, and the variable's value that carries it.
pub(crate) fn new_mark(instance: &str) -> (String, String) {
    let mark = unique();
    let value = match std::env::var(MARK) {
        Ok(outer) => format!("{outer}/{instance}{mark}"),
        Err(_) => format!("{instance}{mark}"),
    };
    (mark, value)
}

fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos();
    format!("{}-{nanoseconds:x}-{number}", std::process::id())
}

/// A running command and what it started. Dropping it kills all of it.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: Pid,
    members: Members,
    started: Instant,
    ended: bool,
    /// Dropped last: until then the guardian would end what is left.
    guarded: Option<Guarded>,
}

impl Tree {
    /// The tree of a command that was just started, in a process group of its own.
    pub(crate) fn new(leader: u32, mark: String) -> Option<Self> {
        let leader = Pid::from_raw(i32::try_from(leader).ok()?)?;
        Some(Self {
            leader,
            members: Members::of(leader, mark),
            started: Instant::now(),
            ended: false,
            guarded: None,
        })
    }

    /// Makes the guardian end it too, should the host be gone.
    pub(crate) fn guard(&mut self, guardian: &Arc<Guardian>) -> Result<()> {
        self.guarded = Some(guardian.guard(self.leader, members::now())?);
        Ok(())
    }

    /// Ends everything: SIGTERM, `grace` to react, SIGKILL. Blocks until it is gone.
    pub(crate) fn end(&mut self, grace: Duration) {
        self.look();
        self.signal(Signal::TERM);
        self.members.wait_until_gone(grace);
        self.kill();
    }

    /// Whether a finished command left nothing running; then it is over.
    pub(crate) fn nothing_left(&mut self) -> bool {
        self.ended = true;
        self.look();
        self.members.is_empty()
    }

    /// Ends what a finished command left running. Costs next to nothing when there is nothing.
    pub(crate) fn end_leftovers(&mut self, grace: Duration) {
        if self.nothing_left() {
            return;
        }
        self.members.wait_until_gone(LINGER);
        self.look();
        if !self.members.is_empty() {
            self.signal(Signal::TERM);
            self.members.wait_until_gone(grace);
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.ended = true;
        for _ in 0..PASSES {
            self.look();
            self.signal(Signal::KILL);
            if self.members.is_empty() {
                return;
            }
            self.members.wait_until_gone(KILLED);
        }
    }

    fn signal(&self, signal: Signal) {
        // After the leader was reaped its number could belong to somebody else's group.
        if !self.members.is_empty() && self.members.has_group() {
            let _ = kill_process_group(self.leader, signal);
        }
        self.members.signal(signal);
    }

    fn look(&mut self) {
        self.members.look(self.started.elapsed());
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}
