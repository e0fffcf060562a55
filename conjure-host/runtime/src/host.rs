//! The host as a library: plugins, providers, stores and sessions behind one builder.
//!
//! ```no_run
//! use conjure_runtime::{Host, session::{BackendSpec, SessionSpec}};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().plugin_file("plugins/liblog_fetcher.so").build().await?;
//! let spec = SessionSpec {
//!     provider: Some("anthropic".into()),
//!     model: Some("claude-sonnet-4-5".into()),
//!     ..SessionSpec::hybrid([BackendSpec::native(["log-fetcher"]), BackendSpec::local(["skills/log-analyzer"])])
//! };
//! let session = host.session(spec).await?;
//! println!("{}", session.chat("What went wrong last night?").await?.text);
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_core::cost::{Account, ThreadCost};
use conjure_core::log::{Entry, EntryBody};
use conjure_core::switch::SwitchReport;
use conjure_skill_sdk::{Executor, ExecutorPlugin, Exported, Setup, Skill};
use secrecy::SecretString;
use serde_json::Value;

use crate::artifacts::{Artifact, FileError, WriteTracker};
use crate::backend::instances::{Instances, InstancesParts};
use crate::backend::services::{KeyValues, LazyHttp, SERVED, ServicesShared};
use crate::backend::shared_leases::SharedLeases;
use crate::backend::{ApprovedTools, Asker, NoAsker, ToolboxError};
use crate::session::{HostParts, HostState};
use crate::session::{
    OpenThread, Preview, Recorder, SavedSessionState, Session, SessionError, ThreadHandle,
    ToolPreview, check_unfold, open_thread, sessions_dir, sweep,
};
use crate::uploads::{self, Upload, UploadError};
use conjure_config::{BackendSpec, SessionSpec};
use conjure_plugins::{
    CopyStore, LoadedPlugin, Loader, LoaderOptions, PackagedPlugins, PluginError, PluginRegistry,
    SearchPath, WatchOptions, Watcher, WorkerOptions,
};
use conjure_providers::HttpClients;
use conjure_providers::auths::Auths;
use conjure_providers::{ModelBook, ModelBookError, Provider};
use conjure_store::{Log, MemoryLog, StoreError, ThreadId};

/// A host: what is shared by its sessions. Cloning it is cheap.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<HostState>,
    _watcher: Arc<Option<Watcher>>,
}

/// Why there is no host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A plugin that is linked into the program is not right.
    #[error("a plugin that is linked into this program does not load: {0}")]
    Linked(Arc<PluginError>),
    /// The person's file of models.
    #[error(transparent)]
    Models(#[from] ModelBookError),
    /// The place for copies of plugins cannot be used.
    #[error("{0}")]
    Store(std::io::Error),
}

/// Makes the loaded plugin of a plugin that is linked into the program.
type PluginLinker = Box<dyn FnOnce() -> Result<LoadedPlugin, PluginError> + Send>;

/// Builds a [`Host`].
pub struct HostBuilder {
    data_dir: PathBuf,
    plugin_files: Vec<PathBuf>,
    plugin_dirs: Vec<PathBuf>,
    watch: bool,
    linked: Vec<PluginLinker>,
    log: Option<Arc<dyn Log>>,
    auths: Option<Auths>,
    asker: Arc<dyn Asker>,
    providers: BTreeMap<String, Arc<dyn Provider>>,
    secrets: BTreeMap<String, SecretString>,
    plugin_configs: BTreeMap<String, Value>,
    workers: Option<WorkerOptions>,
}

impl Host {
    /// A builder with the defaults of an embedding program: no plugins, threads in memory, data
    /// below [`conjure_config::env::data_dir`].
    pub fn builder() -> HostBuilder {
        HostBuilder {
            data_dir: conjure_config::env::data_dir(),
            plugin_files: Vec::new(),
            plugin_dirs: Vec::new(),
            watch: false,
            linked: Vec::new(),
            log: None,
            auths: None,
            asker: Arc::new(NoAsker),
            providers: BTreeMap::new(),
            secrets: BTreeMap::new(),
            plugin_configs: BTreeMap::new(),
            workers: None,
        }
    }

    /// The plugins.
    pub fn registry(&self) -> &Arc<PluginRegistry> {
        &self.shared.instances.registry
    }

    /// What is known of models.
    pub fn models(&self) -> &ModelBook {
        &self.shared.models
    }

    /// The directory of everything that the host keeps.
    pub fn data_dir(&self) -> &Path {
        &self.shared.instances.data_dir
    }

    /// What was approved of tools that come from outside, and what is held.
    #[must_use]
    pub fn approved_tools(&self) -> &ApprovedTools {
        &self.shared.instances.approved_tools
    }

    /// The threads.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.shared.log
    }

    /// Returns the specification with the provider that its saved auth is for, as every session that is
    /// opened has it. Reads no credential.
    ///
    /// # Errors
    /// [`SessionError::Provider`] when there is no such auth, or it is for another provider.
    #[boxed]
    pub async fn resolve_provider(&self, spec: SessionSpec) -> Result<SessionSpec, SessionError> {
        self.shared.with_auths(spec, false).await
    }

    /// Opens a session on a new thread.
    ///
    /// # Errors
    /// [`SessionError`]; nothing stays open then.
    #[boxed]
    pub async fn session(&self, spec: SessionSpec) -> Result<Session, SessionError> {
        let spec = self.shared.with_auths(spec, true).await?;
        // Behind a pointer: opening is large, and every future around it would be as large.
        Box::pin(Session::open(Arc::clone(&self.shared), spec, None)).await
    }

    /// Opens a session on a thread that may exist already.
    ///
    /// # Errors
    /// As [`Host::session`].
    #[boxed]
    pub async fn resume(
        &self,
        spec: SessionSpec,
        thread: ThreadId,
    ) -> Result<Session, SessionError> {
        let spec = self.shared.with_auths(spec, true).await?;
        // Behind a pointer: opening is large, and every future around it would be as large.
        Box::pin(Session::open(Arc::clone(&self.shared), spec, Some(thread))).await
    }

    /// Opens the thread of a saved session.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub(crate) async fn open_saved(
        &self,
        spec: SessionSpec,
        thread: ThreadId,
        saved: SavedSessionState,
    ) -> Result<(Box<OpenThread>, ThreadHandle), SessionError> {
        let spec = self.shared.with_auths(spec, true).await?;
        // Behind a pointer: opening is large, and every future around it would be as large.
        Box::pin(open_thread(
            Arc::clone(&self.shared),
            spec,
            Some(thread),
            Some(saved),
        ))
        .await
    }

    /// What a session of this specification would begin with, and what its policy says of that.
    /// Opens its backends and closes them again; asks no model and runs no call.
    ///
    /// # Errors
    /// [`SessionError`] when the tools cannot be made ready.
    #[boxed]
    pub async fn tool_preview(&self, spec: SessionSpec) -> Result<ToolPreview, SessionError> {
        let spec = self.shared.with_auths(spec, false).await?;
        let policy = spec.call_policy();
        Ok(ToolPreview::new(
            Preview::of(&self.shared, spec).await?,
            policy,
        ))
    }

    /// What sending a thread to the provider and the model of this specification would change:
    /// see [`Session::check`]. Reads the thread and writes nothing.
    ///
    /// # Errors
    /// [`SessionError`] when there is no such thread, nobody knows the provider, or the tools
    /// cannot be made ready.
    #[boxed]
    pub async fn check(
        &self,
        spec: SessionSpec,
        thread: &ThreadId,
    ) -> Result<SwitchReport, SessionError> {
        let spec = self.shared.with_auths(spec, false).await?;
        crate::session::check(Arc::clone(&self.shared), spec, thread).await
    }

    /// What a thread costs so far, and why, with the prices that are known now.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    #[boxed]
    pub async fn cost(&self, thread: &ThreadId) -> Result<ThreadCost, StoreError> {
        let entries = self.entries(thread).await?;
        let models = &self.shared.models;
        let price = |provider: &str, model: &str| Some(models.facts(provider, model)?.price);
        Ok(Account::of(&entries, &price).cost().clone())
    }

    /// Shows replies that come fast this often from now on, at the most a second apart; 5 ms when
    /// nothing is said. What came meanwhile is shown together, and costs as much as one piece does: a
    /// program that draws less often says so.
    pub fn show_replies_every(&self, frame: Duration) {
        self.shared.window.set_frame(frame);
    }

    /// The entries of a thread.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    #[boxed]
    pub async fn entries(&self, thread: &ThreadId) -> Result<Vec<Entry>, StoreError> {
        self.shared.log.read_entries(thread).await
    }

    /// The files of a thread, in the order in which they were made; each has its path if it is on
    /// this machine, where its log says.
    ///
    /// # Errors
    /// [`StoreError`] when the thread cannot be read.
    #[boxed]
    pub async fn files(&self, thread: &ThreadId) -> Result<Vec<Artifact>, StoreError> {
        let entries = self.entries(thread).await?;
        let data_dir = &self.shared.instances.data_dir;
        Ok(crate::session::thread_files(&entries, data_dir, thread))
    }

    /// Fetches files of a thread that nobody has open, by handle, from the backends of this
    /// specification; one that is here already stays where it is. Writes nothing to the log. Nobody
    /// can open the thread meanwhile: backends know a session by its thread.
    ///
    /// # Errors
    /// [`SessionError`] when there is no such thread, somebody has it open, or its backends cannot
    /// be made ready. A file that is not to be had is an error of its own.
    #[boxed]
    pub async fn fetch_files(
        &self,
        spec: SessionSpec,
        thread: &ThreadId,
        handles: &[String],
    ) -> Result<BTreeMap<String, Result<PathBuf, FileError>>, SessionError> {
        // Opening makes a thread that is not there.
        let entries = self.entries(thread).await?;
        let spec = self.shared.with_auths(spec, false).await?;
        let shared = Arc::clone(&self.shared);
        let _alone = self.shared.log.open(thread).await?;
        crate::session::fetch_files(shared, spec, thread, &entries, handles).await
    }

    /// Keeps a file that a person hands over, for a day or until a turn takes it:
    /// [`Upload::part`] in a message attaches it. `media_type` is what its sender says that it is.
    ///
    /// # Errors
    /// [`UploadError::Empty`], [`UploadError::TooLarge`] and [`UploadError::Disk`].
    pub fn upload(
        &self,
        name: &str,
        media_type: Option<&str>,
        bytes: &[u8],
    ) -> Result<Upload, UploadError> {
        uploads::keep(&self.shared.instances.data_dir, name, media_type, bytes)
    }

    /// A file that waits for a turn.
    ///
    /// # Errors
    /// [`UploadError::Unknown`], also where it is attached to one.
    pub fn pending_upload(&self, id: &str) -> Result<Upload, UploadError> {
        uploads::find(&self.shared.instances.data_dir, id, None)
    }

    /// A file that waits for a turn, or is attached to this one already.
    ///
    /// # Errors
    /// As [`Host::pending_upload`].
    pub fn upload_for_turn(&self, turn: &str, id: &str) -> Result<Upload, UploadError> {
        uploads::find(&self.shared.instances.data_dir, id, Some(turn))
    }

    /// Takes a compaction of a thread back that nobody has open: see [`Session::unfold`].
    ///
    /// # Errors
    /// [`SessionError::Unfold`] says what stands in the way; [`SessionError::Store`] when the thread cannot
    /// be written.
    #[boxed]
    pub async fn unfold(
        &self,
        thread: &ThreadId,
        fold: Option<u64>,
    ) -> Result<(u64, u64), SessionError> {
        // Opening makes a thread that is not there.
        self.shared.log.read_entries(thread).await?;
        let mut recorder = Recorder::open(&*self.shared.log, thread).await?;
        let (fold, tokens) = check_unfold(recorder.entries(), fold)?;
        recorder.entry(EntryBody::Unfolded { fold });
        recorder.commit().await?;
        Ok((fold, tokens))
    }

    /// Opens a session of several backends.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub async fn hybrid(
        &self,
        backends: impl IntoIterator<Item = BackendSpec>,
        options: SessionSpec,
    ) -> Result<Session, SessionError> {
        let backends = backends.into_iter().collect();
        self.session(SessionSpec {
            backends,
            ..options
        })
        .await
    }
}

impl HostBuilder {
    /// Where copies of plugins, threads and values of plugins are kept.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = dir.into();
        self
    }

    /// Loads a plugin file. Naming it says that it may run in this process.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Loads the plugins of a directory.
    #[must_use]
    pub fn plugin_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.plugin_dirs.push(dir.into());
        self
    }

    /// Loads the plugins of the usual places: `CONJURE_PLUGIN_PATH`, `plugins` beside the
    /// program, and `plugins` in the data directory.
    #[must_use]
    pub fn default_plugins(mut self) -> Self {
        let path = std::env::var_os(conjure_config::env::PLUGIN_PATH);
        let program = std::env::current_exe().ok();
        let usual = SearchPath::new(
            Vec::new(),
            path.as_deref(),
            program.as_deref(),
            Some(&self.data_dir),
        );
        self.plugin_dirs.extend(usual.dirs);
        self
    }

    /// How plugins run in processes of their own; without it all run in this one, and those that
    /// cannot are refused.
    #[must_use]
    pub fn workers(mut self, workers: WorkerOptions) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Watches the plugin directories: what appears is loaded, what goes is removed.
    #[must_use]
    pub fn watch(mut self, watch: bool) -> Self {
        self.watch = watch;
        self
    }

    /// A skill of the program's own. `make` runs once a session, so what its closures capture
    /// from outside is shared, and what it makes itself is the session's.
    #[must_use]
    pub fn skill(self, make: impl Fn() -> Skill + Send + Sync + 'static) -> Self {
        self.link(make)
    }

    /// An executor of the program's own under a name: sessions use it as they use a plugin.
    #[must_use]
    pub fn executor<E: Executor>(
        self,
        name: impl Into<String>,
        make: impl Fn(Setup) -> conjure_skill_sdk::Result<E> + Send + Sync + Clone + 'static,
    ) -> Self {
        let name = name.into();
        self.link(move || {
            ExecutorPlugin::new(
                name.clone(),
                "An executor of the embedding program",
                make.clone(),
            )
        })
    }

    /// Anything that a library could export, linked into the program.
    #[must_use]
    pub fn link<E: Exported>(mut self, make: impl Fn() -> E + Send + Sync + 'static) -> Self {
        self.linked.push(Box::new(move || {
            LoadedPlugin::linked(make, env!("CARGO_PKG_VERSION"), Default::default())
        }));
        self
    }

    /// A provider of the program's own: sessions name it as they name a built-in one.
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>, provider: impl Provider) -> Self {
        self.providers.insert(name.into(), Arc::new(provider));
        self
    }

    /// Where threads are kept; in memory without it.
    #[must_use]
    pub fn log(mut self, log: impl Log) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// The saved auths that sessions may name; none without it.
    #[must_use]
    pub fn auths(mut self, auths: Auths) -> Self {
        self.auths = Some(auths);
        self
    }

    /// Sets who answers questions of plugins; without it nobody does.
    #[must_use]
    pub fn asker(mut self, asker: impl Asker) -> Self {
        self.asker = Arc::new(asker);
        self
    }

    /// A secret that plugins may ask for when their manifest names it.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: SecretString) -> Self {
        self.secrets.insert(name.into(), value);
        self
    }

    /// The configuration of a plugin.
    #[must_use]
    pub fn plugin_config(mut self, plugin: impl Into<String>, config: Value) -> Self {
        self.plugin_configs.insert(plugin.into(), config);
        self
    }

    /// Loads the plugins and makes the host. A plugin that fails is listed by the registry and
    /// takes nothing else down.
    ///
    /// # Errors
    /// [`HostError`].
    pub async fn build(self) -> Result<Host, HostError> {
        let store = CopyStore::open(self.data_dir.join("store")).map_err(HostError::Store)?;
        sweep(&sessions_dir(&self.data_dir));
        let operations = SERVED.iter().map(|op| (*op).to_owned()).collect();
        let options = LoaderOptions {
            operations,
            packaged: Some(PackagedPlugins::of(&self.data_dir)),
            worker: self.workers,
            ..LoaderOptions::default()
        };
        let registry = Arc::new(PluginRegistry::new(Loader::new(store, options)));
        for link in self.linked {
            let plugin = link().map_err(|error| HostError::Linked(Arc::new(error)))?;
            registry.add_linked(plugin).map_err(HostError::Linked)?;
        }
        let search = SearchPath {
            named: self.plugin_files,
            dirs: self.plugin_dirs,
        };
        let loading = Arc::clone(&registry);
        let dirs = search.dirs.clone();
        let loaded = tokio::task::spawn_blocking(move || {
            let (found, errors) = search.find();
            for error in errors {
                tracing::warn!("a plugin directory cannot be read: {error}");
            }
            loading.load_all(&found);
        });
        if let Err(error) = loaded.await {
            tracing::error!("loading the plugins ended early: {error}");
        }
        let watcher = self
            .watch
            .then(|| Watcher::start(Arc::clone(&registry), dirs, WatchOptions::default()));
        let mut secrets = conjure_config::env::provider_keys();
        secrets.extend(conjure_config::env::secrets());
        secrets.extend(self.secrets);
        let services = ServicesShared {
            key_values: KeyValues::new(self.data_dir.join("kv")),
            secrets,
            http: LazyHttp::default(),
            temp: self.data_dir.join("tmp"),
            sessions: Mutex::default(),
            auths: self.auths.clone(),
        };
        let models = ModelBook::read(&self.data_dir)?;
        Ok(Host {
            shared: Arc::new(HostState::new(HostParts {
                instances: Arc::new(Instances::new(InstancesParts {
                    registry,
                    services: Arc::new(services),
                    data_dir: self.data_dir.clone(),
                    approved_tools: ApprovedTools::for_data_dir(&self.data_dir),
                    plugin_configs: self.plugin_configs,
                    shared: Mutex::default(),
                    shared_leases: SharedLeases::default(),
                })),
                models,
                log: self.log.unwrap_or_else(|| Arc::new(MemoryLog::default())),
                window: Arc::default(),
                write_tracker: Arc::new(WriteTracker::for_data_dir(&self.data_dir)),
                asker: self.asker,
                providers: self.providers,
                clients: HttpClients::default(),
                auths: self.auths,
            })),
            _watcher: Arc::new(watcher),
        })
    }
}

impl From<ToolboxError> for SessionError {
    fn from(error: ToolboxError) -> Self {
        Self::Tools(error)
    }
}
