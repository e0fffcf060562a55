//! Where a library runs, in the host's process or in a worker, and why there.

use std::path::Path;

use conjure_abi::HeaderFields;

use super::packaged::PackagedOrigin;
use super::worker::{Isolation, IsolationReason, WorkerOptions};
use super::{Loader, PluginError, Sha256};

/// Where a library runs.
pub(super) struct RunPlace<'a> {
    /// How its workers are run; nothing where it runs in this process.
    pub(super) worker: Option<&'a WorkerOptions>,
    pub(super) reason: IsolationReason,
}

impl<'a> RunPlace<'a> {
    fn here(reason: IsolationReason) -> Self {
        Self {
            worker: None,
            reason,
        }
    }

    fn in_worker(worker: &'a WorkerOptions, reason: IsolationReason) -> Self {
        Self {
            worker: Some(worker),
            reason,
        }
    }
}

impl Loader {
    /// Where a library runs, and why there.
    pub(super) fn place(
        &self,
        path: &Path,
        sha256: &Sha256,
        header: &HeaderFields,
        is_program: bool,
        package: Option<&PackagedOrigin>,
    ) -> Result<RunPlace<'_>, PluginError> {
        let is_package = package.is_some();
        let Some(worker) = &self.options().worker else {
            if is_program || is_package {
                return Err(PluginError::NeedsWorker {
                    path: path.to_owned(),
                    name: header.name.clone(),
                });
            }
            if header.panic_unwind {
                return Ok(RunPlace::here(IsolationReason::NoWorkers));
            }
            return Err(PluginError::PanicAbort {
                path: path.to_owned(),
                name: header.name.clone(),
            });
        };
        if is_program {
            return Ok(RunPlace::in_worker(worker, IsolationReason::Program));
        }
        if !header.panic_unwind {
            return Ok(RunPlace::in_worker(worker, IsolationReason::PanicAbort));
        }
        let signer = package.and_then(|package| package.signer.as_deref());
        let is_signed = || {
            let is_trusted = signer.is_some_and(|signer| worker.signers.holds(signer));
            is_trusted.then_some(IsolationReason::TrustedSigner)
        };
        // What came in a package from elsewhere is a stranger's until its owner says otherwise.
        let is_set = worker.isolation == Isolation::InProcess && !is_package;
        let trusted = worker.trust.reason(path, sha256).or_else(is_signed);
        Ok(
            match trusted.or(is_set.then_some(IsolationReason::Setting)) {
                Some(_) if Self::opened() >= self.options().library_limit => {
                    RunPlace::in_worker(worker, IsolationReason::LibraryLimit)
                }
                Some(reason) => RunPlace::here(reason),
                None if is_package => {
                    RunPlace::in_worker(worker, IsolationReason::PackageNotTrusted)
                }
                None => RunPlace::in_worker(worker, IsolationReason::NotTrusted),
            },
        )
    }
}
