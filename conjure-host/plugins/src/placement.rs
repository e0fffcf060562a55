//! Where a library runs, in the host's process or in a worker, and why there.

use std::path::Path;

use conjure_abi::HeaderFields;

use super::packaged::PackagedOrigin;
use super::worker::{Isolation, IsolationReason, WorkerOptions};
use super::{Loader, PluginError, Sha256, is_description};

/// Where a library runs.
pub(super) struct Placement<'a> {
    /// How its workers are run; nothing where it runs in this process.
    pub(super) worker: Option<&'a WorkerOptions>,
    pub(super) reason: IsolationReason,
}

impl<'a> Placement<'a> {
    fn in_process(reason: IsolationReason) -> Self {
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
    /// Whether what is at a path is to run in this process, as far as the path alone tells; what the file
    /// says of itself may bring it into a worker all the same.
    pub(super) fn is_for_this_process(&self, path: &Path) -> bool {
        let Some(worker) = &self.options().worker else {
            return true;
        };
        let may_be_package = || {
            self.installed_dir()
                .is_some_and(|dir| path.starts_with(dir))
        };
        let is_set = worker.isolation == Isolation::InProcess && !may_be_package();
        !is_description(path) && (is_set || worker.trust.is_shipped(path))
    }

    /// Where a library runs, and why there.
    pub(super) fn choose_placement(
        &self,
        path: &Path,
        sha256: &Sha256,
        header: &HeaderFields,
        is_program: bool,
        package: Option<&PackagedOrigin>,
    ) -> Result<Placement<'_>, PluginError> {
        let is_package = package.is_some();
        let Some(worker) = &self.options().worker else {
            if is_program || is_package {
                return Err(PluginError::NeedsWorker {
                    path: path.to_owned(),
                    name: header.name.clone(),
                });
            }
            if header.panic_unwind {
                return Ok(Placement::in_process(IsolationReason::NoWorkers));
            }
            return Err(PluginError::PanicAbort {
                path: path.to_owned(),
                name: header.name.clone(),
            });
        };
        if is_program {
            return Ok(Placement::in_worker(worker, IsolationReason::Program));
        }
        if !header.panic_unwind {
            return Ok(Placement::in_worker(worker, IsolationReason::PanicAbort));
        }
        let signer = package.and_then(|package| package.signer.as_deref());
        let is_signed = || {
            let is_trusted = signer.is_some_and(|signer| worker.signers.contains(signer));
            is_trusted.then_some(IsolationReason::TrustedSigner)
        };
        // What came in a package from elsewhere is a stranger's until its owner says otherwise.
        let is_set = worker.isolation == Isolation::InProcess && !is_package;
        let trusted = worker.trust.reason(path, sha256).or_else(is_signed);
        Ok(
            match trusted.or(is_set.then_some(IsolationReason::Setting)) {
                Some(_) if Self::opened() >= self.options().library_limit => {
                    Placement::in_worker(worker, IsolationReason::LibraryLimit)
                }
                Some(reason) => Placement::in_process(reason),
                None if is_package => {
                    Placement::in_worker(worker, IsolationReason::PackageNotTrusted)
                }
                None => Placement::in_worker(worker, IsolationReason::NotTrusted),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CopyStore, LoaderOptions, PackagedPlugins, PluginTrust};

    #[test]
    fn what_runs_in_this_process_is_known_by_its_path_and_not_read_for_that() {
        let root = tempfile::tempdir().unwrap();
        let shipped = root.path().join("shipped");
        std::fs::create_dir(&shipped).unwrap();
        let packaged = PackagedPlugins::of(root.path());
        let installed = packaged.plugins().join("liba.so");
        let loader = |isolation: Option<Isolation>| {
            let worker = isolation.map(|isolation| WorkerOptions {
                isolation,
                trust: PluginTrust::default().shipped_in(&shipped),
                ..WorkerOptions::new("/nowhere", &[])
            });
            let options = LoaderOptions {
                worker,
                packaged: Some(packaged.clone()),
                ..LoaderOptions::default()
            };
            Loader::new(CopyStore::open(root.path().join("store")).unwrap(), options)
        };
        let own = shipped.join("liba.so");
        let elsewhere = root.path().join("liba.so");
        let program = root.path().join("a.plugin.toml");
        for (isolation, expected) in [
            (None, [true, true, true]),
            (Some(Isolation::InProcess), [true, true, false]),
            (Some(Isolation::Process), [true, false, false]),
        ] {
            let loader = loader(isolation);
            let found = [&own, &elsewhere, &installed].map(|path| loader.is_for_this_process(path));
            assert_eq!(found, expected, "{isolation:?}");
        }
        assert!(is_description(&program));
        assert!(!loader(Some(Isolation::InProcess)).is_for_this_process(&program));
    }
}
