//! What this process is to those that it starts, and its own program.

use std::io;
use std::process::Command;

use rustix::process::{WaitId, WaitIdOptions, waitid};

/// Makes orphans below this process its own children, where the system can do that.
///
/// # Errors
/// The system's.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpid, set_child_subreaper};
        let me = getpid();
        // The first process adopts anyway.
        if !me.is_init() {
            set_child_subreaper(Some(me))?;
        }
    }
    Ok(())
}

/// Lets nobody of the same user read this process's memory or write to its files, where the system
/// can do that.
///
/// # Errors
/// The system's.
pub fn keep_private() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// Whether this process has no child at all, not even one that has ended and was not collected.
#[must_use]
pub fn has_no_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// The program that this process runs, to do something else: wherever it came from, and on Linux
/// whatever lies there now.
///
/// # Errors
/// When the system does not say where it is.
pub fn own_program(verb: &str) -> io::Result<Command> {
    #[cfg(target_os = "linux")]
    let mut program = Command::new("/proc/self/exe");
    #[cfg(not(target_os = "linux"))]
    let mut program = Command::new(std::env::current_exe()?);
    program.arg(verb);
    Ok(program)
}
