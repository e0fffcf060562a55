//! Where an author's plugin goes when it was built: into a session of its own, or into the data
//! directory of hosts that run.

use std::path::{Path, PathBuf};

use conjure_config::{BackendSpec, SessionSpec};
use conjure_core::routing::Pattern;
use conjure_plugins::{PluginFile, WorkerOptions};
use conjure_runtime::Host;

use super::served_dir::ServedDir;
use crate::args::Global;
use crate::error::CliError;

/// Where a plugin goes.
pub(super) enum DevTarget {
    /// A host of its own, whose sessions call every tool once.
    Scratch(Box<ScratchHost>),
    /// The plugins of a data directory, which hosts that run watch.
    Installed(Box<ServedDir>),
}

/// A host that nobody else has.
pub(super) struct ScratchHost {
    host: Host,
    dir: PathBuf,
    loaded: Option<LoadedBuild>,
}

/// A build that a host of its own has loaded.
struct LoadedBuild {
    path: PathBuf,
    name: String,
}

impl DevTarget {
    /// A host that writes into this directory.
    pub(super) async fn scratch(workers: WorkerOptions, dir: &Path) -> Result<Self, CliError> {
        let host = Host::builder().data_dir(dir.join("data")).workers(workers);
        Ok(Self::Scratch(Box::new(ScratchHost {
            host: host.build().await?,
            dir: dir.to_owned(),
            loaded: None,
        })))
    }

    /// The directory of data that instances of the plugin get theirs below.
    pub(super) fn data_dir(&self, global: &Global) -> PathBuf {
        match self {
            Self::Scratch(scratch) => scratch.dir.join("data"),
            Self::Installed(_) => global.data_dir(),
        }
    }

    /// Puts a build there; the inner error says why a host does not take it.
    pub(super) async fn deploy(
        &mut self,
        global: &Global,
        file: PluginFile,
    ) -> Result<Result<(), String>, CliError> {
        match self {
            Self::Scratch(scratch) => scratch.deploy(file).await,
            Self::Installed(served) => served.deploy(global, &file),
        }
    }

    /// Takes everything away again.
    pub(super) fn end(self) -> Result<Vec<String>, CliError> {
        match self {
            Self::Scratch(_) => Ok(Vec::new()),
            Self::Installed(served) => served.end(),
        }
    }
}

impl ScratchHost {
    async fn deploy(&mut self, file: PluginFile) -> Result<Result<(), String>, CliError> {
        let registry = std::sync::Arc::clone(self.host.registry());
        let new = LoadedBuild {
            path: file.path,
            name: file.header.name,
        };
        let before = self.loaded.take();
        let loading = tokio::task::spawn_blocking(move || {
            // A crate that was renamed has another library.
            let elsewhere = before.as_ref().filter(|before| before.path != new.path);
            // A host takes one of a name and version.
            let twin = elsewhere.filter(|before| before.name == new.name);
            if let Some(twin) = twin {
                registry.remove(&twin.path);
            }
            match registry.add(&new.path, true) {
                Ok(_) => {
                    // The old one goes when the new one works.
                    if let Some(old) = elsewhere {
                        registry.remove(&old.path);
                    }
                    (Some(new), Ok(()))
                }
                Err(error) => {
                    if let Some(twin) = twin {
                        let _ = registry.add(&twin.path, true);
                    }
                    (before, Err(error.to_string()))
                }
            }
        });
        let (loaded, done) = loading.await.map_err(CliError::host_from)?;
        self.loaded = loaded;
        Ok(done)
    }

    /// Opens a session that has the plugin, and lets `tool-walk` call each of its tools.
    pub(super) async fn walk(&self, name: &str, kind: &str) -> Result<String, CliError> {
        let work = self.dir.join("work");
        conjure_config::fs::create_dir_all(&work).map_err(CliError::host_from)?;
        let backend = match kind {
            "skill" => BackendSpec::native([name]),
            _ => BackendSpec::executor(name, [] as [&str; 0]),
        };
        let mut spec = SessionSpec::hybrid([backend]);
        spec.provider = Some("tool-walk".to_owned());
        spec.model = Some("tool-walk".to_owned());
        spec.working_dir = Some(work);
        spec.policy.allow = "*".parse::<Pattern>().into_iter().collect();
        let session = Box::pin(self.host.session(spec)).await?;
        let answer = Box::pin(session.chat("Call every tool.")).await;
        session.close().await;
        Ok(answer?.text)
    }
}
