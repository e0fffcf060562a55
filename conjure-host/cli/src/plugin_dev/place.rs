//! Where an author's plugin goes when it was built: into a session of its own, or into the data
//! directory of hosts that run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_config::{BackendSpec, SessionSpec};
use conjure_core::routing::Pattern;
use conjure_plugins::{InstalledPlugins, LockedPlugin, PluginFile, Sha256, WorkerOptions};
use conjure_runtime::Host;

use crate::args::Global;
use crate::error::CliError;
use crate::plugin_install;

/// Where a plugin goes.
pub(super) enum Place {
    /// A host of its own, whose sessions call every tool once.
    Scratch(Box<ScratchHost>),
    /// The plugins of a data directory, which hosts that run watch.
    Installed(ServedDir),
}

/// A host that nobody else has.
pub(super) struct ScratchHost {
    host: Host,
    dir: tempfile::TempDir,
    loaded: Option<LoadedBuild>,
}

/// A build that a host of its own has loaded.
struct LoadedBuild {
    path: PathBuf,
    name: String,
}

/// The plugins of a data directory, and what was there before.
pub(super) struct ServedDir {
    installed: InstalledPlugins,
    before: BTreeMap<String, ServedBefore>,
    keep: bool,
}

/// What was there under a name, and what was put in its place last.
struct ServedBefore {
    file: Option<PluginFile>,
    package: Option<LockedPlugin>,
    put: Sha256,
}

impl Place {
    pub(super) async fn scratch(workers: WorkerOptions) -> Result<Self, CliError> {
        let dir = tempfile::Builder::new()
            .prefix("conjure-plugin-dev-")
            .tempdir()
            .map_err(CliError::host_from)?;
        let host = Host::builder()
            .data_dir(dir.path().join("data"))
            .workers(workers);
        Ok(Self::Scratch(Box::new(ScratchHost {
            host: host.build().await?,
            dir,
            loaded: None,
        })))
    }

    pub(super) fn served(global: &Global, keep: bool) -> Self {
        Self::Installed(ServedDir {
            installed: InstalledPlugins::of(&global.data_dir()),
            before: BTreeMap::new(),
            keep,
        })
    }

    /// Puts a build there; the inner error says why a host does not take it.
    pub(super) async fn put(
        &mut self,
        global: &Global,
        file: PluginFile,
    ) -> Result<Result<(), String>, CliError> {
        match self {
            Self::Scratch(scratch) => scratch.put(file).await,
            Self::Installed(served) => served.put(global, &file),
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
    async fn put(&mut self, file: PluginFile) -> Result<Result<(), String>, CliError> {
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
        let work = self.dir.path().join("work");
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

impl ServedDir {
    fn put(&mut self, global: &Global, file: &PluginFile) -> Result<Result<(), String>, CliError> {
        let name = &file.header.name;
        let others = plugin_install::elsewhere(global, &self.installed, name);
        let twin = others
            .iter()
            .find(|other| other.header.version == file.header.version);
        if let Some(twin) = twin {
            return Ok(Err(format!(
                "{name} {} is in {} already, and a host takes one of a name and version: give this \
                 one another version",
                file.header.version,
                twin.path.display()
            )));
        }
        let is_next = match self.before.get(name) {
            Some(before) => self.installed.put_next(file, &before.put)?,
            None => false,
        };
        if let Some(before) = self.before.get_mut(name).filter(|_| is_next) {
            before.put = file.sha256;
        } else {
            // The first one, or somebody else's is there by now, which is what comes back then.
            let before = ServedBefore {
                file: self.installed.file(name)?,
                package: self
                    .installed
                    .lock()
                    .plugin(name)
                    .map_err(CliError::host_from)?,
                put: file.sha256,
            };
            self.installed.add(file)?;
            self.before.insert(name.clone(), before);
        }
        // What a crate that was renamed left is not the author's any more.
        let renamed = self.before.keys().filter(|known| *known != name);
        for old in renamed.cloned().collect::<Vec<_>>() {
            self.restore(&old)?;
        }
        Ok(Ok(()))
    }

    /// Puts back what was there under this name.
    fn restore(&mut self, name: &str) -> Result<Option<String>, CliError> {
        let Some(before) = self.before.remove(name) else {
            return Ok(None);
        };
        let (state, there) = self.installed.state_and_file(name)?;
        let there = there.map(|there| there.sha256);
        // What came in a package meanwhile is another's, also where it is the same build.
        if there != Some(before.put) || state.locked().is_some() {
            return Ok(Some(format!(
                "{name} was changed by somebody else meanwhile and stays as it is"
            )));
        }
        let Some(file) = before.file else {
            self.installed.remove(name)?;
            return Ok(Some(format!("{name} is removed")));
        };
        let change = match before.package {
            // As it came: with what its lock said of it.
            Some(package) => self.installed.install(&file, package, &state)?,
            None => self.installed.add_if_unchanged(&file, &state)?,
        };
        Ok(change.map(|_| format!("{name} {} is back", file.header.version)))
    }

    fn end(mut self) -> Result<Vec<String>, CliError> {
        if self.keep {
            return Ok(Vec::new());
        }
        let mut said = Vec::new();
        for name in self.before.keys().cloned().collect::<Vec<_>>() {
            said.extend(self.restore(&name)?);
        }
        Ok(said)
    }

    pub(super) fn dir(&self) -> &Path {
        self.installed.dir()
    }
}
