//! Where the system keeps nothing from a program: it runs as it is. Nobody was promised otherwise, unless
//! it was to be in a sandbox.

use std::io;
use std::process::{Child, Command, ExitCode};

use crate::{Confinement, Gaps};

/// Starts programs that should be confined.
pub(super) struct Confiner {
    has_sandbox: bool,
}

impl Confiner {
    pub(super) fn new(confinement: &Confinement) -> Self {
        Self {
            has_sandbox: confinement.sandbox.is_some(),
        }
    }

    pub(super) fn spawn(self, program: &mut Command) -> io::Result<(Child, Gaps)> {
        let gaps = Gaps {
            processes: self.has_sandbox,
            signals: self.has_sandbox,
            files: self.has_sandbox,
            writes: self.has_sandbox,
            modes: self.has_sandbox,
            network: self.has_sandbox,
        };
        Ok((program.spawn()?, gaps))
    }
}

/// There is no user namespace.
#[must_use]
pub fn users_probe() -> ExitCode {
    ExitCode::FAILURE
}
