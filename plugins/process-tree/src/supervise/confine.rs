//! The Landlock domain that a confined program runs in.
//!
//! Without a sandbox it restricts next to nothing by itself. What it is for follows from being in one: the kernel
//! lets nothing in a domain look into a process outside it, so `environ`, `mem`, `maps`, `root`,
//! `cwd` and `fd` of the host and of every other process are out of reach. Where the kernel has it,
//! signals stay inside as well.
//!
//! Root has ways around both that are capabilities of their own: newer kernels let who may measure
//! the whole system (`CAP_PERFMON`) read the memory of every process, and `CAP_SYS_ADMIN` takes a
//! mount away from what it hides. A confined command is root without these two; in a sandbox it keeps
//! only what `conjure_confinement` lists.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;

use landlock::{
    AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, PathFdError, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};

use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

pub use super::mounts::users_probe;
use super::mounts::{HiddenMounts, hide};
use crate::{Confinement, Gaps, Sandbox};

/// Confines what this process starts. What is to be hidden is hidden from the process itself.
pub(super) struct Confiner {
    mounts: HiddenMounts,
    privileges: Privileges,
    sandbox: Option<Sandbox>,
}

impl Confiner {
    /// Hides what is to be hidden, as far as that can be done.
    pub(super) fn new(confinement: &Confinement) -> Self {
        let (hides, privileges) = hide(confinement);
        let mut sandbox = confinement.sandbox.clone();
        if let Some(sandbox) = &mut sandbox {
            sandbox.write.extend(hides.shared_memory.map(PathBuf::from));
        }
        Self {
            mounts: hides,
            privileges,
            sandbox,
        }
    }

    /// Starts a program in a domain of its own.
    pub(super) fn spawn(mut self, program: &mut Command) -> io::Result<(Child, Gaps)> {
        let covers = self.mounts.covers.take();
        let is_kept = covers.is_none_or(|covers| covers.watch_covers().is_ok());
        // A thread of its own enters the domain, and what it starts inherits that: the supervisor
        // stays outside, where the program cannot signal it.
        let confined = || -> io::Result<(Child, Gaps)> {
            let mut gaps = match &self.sandbox {
                Some(sandbox) => enter_sandbox(sandbox, self.mounts.ipc),
                None => enter_domain(self.privileges),
            };
            gaps.files |= !self.mounts.files || !is_kept;
            gaps.modes |= !self.mounts.modes;
            Ok((program.spawn()?, gaps))
        };
        let joined = thread::scope(|scope| {
            let entered = thread::Builder::new().spawn_scoped(scope, confined)?;
            Ok::<_, io::Error>(entered.join())
        });
        joined?.map_err(|_| io::Error::other("the thread that starts it failed"))?
    }
}

/// What the supervisor may do that its commands should not undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privileges {
    /// Nothing special.
    None,
    /// The supervisor may do as root does in a user namespace of its own, its commands may not.
    Own,
    /// The supervisor may do what is to be done to the whole system, and so may its commands if that
    /// is not taken from them.
    System,
}

/// Confines the calling thread and all that it starts to a sandbox, which is a domain as well.
fn enter_sandbox(sandbox: &Sandbox, has_own_ipc: bool) -> Gaps {
    let gaps = sandbox.enter(has_own_ipc);
    Gaps {
        processes: gaps.writes,
        signals: gaps.signals,
        writes: gaps.writes,
        network: gaps.network,
        ..Gaps::default()
    }
}

/// Confines the calling thread and all that it starts, and says what could not be had.
fn enter_domain(privileges: Privileges) -> Gaps {
    let dropped = privileges != Privileges::System || drop_capabilities().is_ok();
    for signals in [true, false] {
        if enter(privileges, signals).is_ok() {
            return Gaps {
                processes: !dropped,
                signals: !signals,
                files: !dropped,
                ..Gaps::default()
            };
        }
    }
    Gaps {
        processes: true,
        signals: true,
        files: !dropped,
        ..Gaps::default()
    }
}

/// What this thread starts gets them no more; it keeps them itself.
fn drop_capabilities() -> rustix::io::Result<()> {
    let dropped = [CapabilitySet::SYS_ADMIN, CapabilitySet::PERFMON];
    let mut own = capabilities(None)?;
    for capability in dropped {
        own.inheritable.remove(capability);
        // A kernel that does not know one has nothing to take away.
        if let Ok(true) = capability_is_in_bounding_set(capability) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    set_capabilities(None, own)
}

/// The reason why there is no Landlock domain.
#[derive(Debug, thiserror::Error)]
enum ConfineError {
    /// The root directory cannot be opened.
    #[error("the root directory cannot be opened: {0}")]
    Root(PathFdError),
    /// The kernel refuses the domain.
    #[error(transparent)]
    Refused(#[from] RulesetError),
}

fn enter(privileges: Privileges, signals: bool) -> Result<(), ConfineError> {
    // All or nothing: a part of it could break what commands do.
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if signals {
        ruleset = ruleset.scope(Scope::Signal)?;
    }
    // A domain has to know of something: of files it gives the one right back that it takes.
    let files = !signals;
    let root = match files {
        true => Some(PathFd::new("/").map_err(ConfineError::Root)?),
        false => None,
    };
    if files {
        ruleset = ruleset.handle_access(AccessFs::Refer)?;
    }
    let mut created = ruleset.create()?;
    if let Some(root) = root {
        created = created.add_rule(PathBeneath::new(root, AccessFs::Refer))?;
    }
    created
        .no_new_privs(privileges == Privileges::None)
        .restrict_self()?;
    Ok(())
}
