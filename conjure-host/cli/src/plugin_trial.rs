//! Loading a plugin for whoever asks what it is, and trying whether it makes an instance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_plugins::{CopyStore, Isolation, LoadedPlugin, Loader, LoaderOptions, PackagedPlugins};
use conjure_runtime::try_plugin;
use tempfile::TempDir;

use super::args::Global;
use super::error::CliError;
use super::plugin_args::workers;

/// Where a plugin is tried: its copy and its own directory are there.
pub(crate) struct TrialDir {
    data_dir: PathBuf,
    _own: Option<TempDir>,
}

impl TrialDir {
    /// The data directory; where nothing can be written there, one that is removed with this.
    pub(crate) fn writable(global: &Global) -> Result<Self, CliError> {
        let data_dir = global.data_dir();
        let store = CopyStore::open(store_of(&data_dir));
        if store.is_ok_and(|store| tempfile::tempfile_in(store.dir()).is_ok()) {
            return Ok(Self {
                data_dir,
                _own: None,
            });
        }
        let own = tempfile::tempdir().map_err(|error| {
            CliError::host_from(error).context("there is no directory to try the plugin in")
        })?;
        Ok(Self {
            data_dir: own.path().to_owned(),
            _own: Some(own),
        })
    }

    /// As [`load_and_try`], there. To be kept for as long as the plugin is used.
    pub(crate) async fn load_and_try(
        &self,
        global: &Global,
        path: &Path,
    ) -> Result<Result<Arc<LoadedPlugin>, String>, CliError> {
        let loader = loader_in(global, &self.data_dir, None)?;
        try_library(loader, &self.data_dir, path).await
    }
}

/// Loads a library and makes an instance that answers; says why a host would not take it. `isolation`
/// says where its code runs meanwhile; the usual place without it.
pub(crate) async fn load_and_try(
    global: &Global,
    path: &Path,
    isolation: Option<Isolation>,
) -> Result<Result<Arc<LoadedPlugin>, String>, CliError> {
    let data_dir = global.data_dir();
    let loader = loader_in(global, &data_dir, isolation)?;
    try_library(loader, &data_dir, path).await
}

async fn try_library(
    loader: Loader,
    data_dir: &Path,
    path: &Path,
) -> Result<Result<Arc<LoadedPlugin>, String>, CliError> {
    // Whoever names it wants to know, however long it takes.
    loader.forget_hang(path);
    let loading = path.to_owned();
    let loaded = tokio::task::spawn_blocking(move || loader.load(&loading, true)).await;
    let plugin = match loaded {
        Ok(Ok(plugin)) => Arc::new(plugin),
        // The plugin may be as it should.
        Ok(Err(error)) if error.is_disk_full() => return Err(CliError::host_from(error)),
        Ok(Err(error)) => return Ok(Err(error.to_string())),
        Err(error) => {
            return Err(CliError::host_from(error).context("the check ended early"));
        }
    };
    let tried = try_plugin(data_dir, &plugin).await;
    Ok(tried.map(|_| plugin).map_err(|error| error.to_string()))
}

/// A loader over the data directory.
pub(crate) fn loader(global: &Global) -> Result<Loader, CliError> {
    loader_in(global, &global.data_dir(), None)
}

/// A loader whose copies are below a directory, and whose plugins run where that is said.
fn loader_in(
    global: &Global,
    data_dir: &Path,
    isolation: Option<Isolation>,
) -> Result<Loader, CliError> {
    let workers = workers(global, isolation);
    if workers.is_none() && isolation == Some(Isolation::Process) {
        return Err(CliError::host(
            "the system does not say which program this is, so no plugin can run in a process of its own",
        ));
    }
    let store = CopyStore::open(store_of(data_dir)).map_err(|error| {
        CliError::host_from(error)
            .hint("name another data directory with `--data-dir DIR` or `CONJURE_DATA_DIR`")
    })?;
    let operations = conjure_runtime::host_operations();
    Ok(Loader::new(
        store,
        LoaderOptions {
            operations,
            packaged: Some(PackagedPlugins::of(&global.data_dir())),
            worker: workers,
            ..LoaderOptions::default()
        },
    ))
}

fn store_of(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}
