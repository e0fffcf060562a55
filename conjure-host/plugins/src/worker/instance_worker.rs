//! The worker of an instance: what it is started with, what it may reach, and when it may start again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use conjure_abi::{HeaderFields, PluginKind};
use conjure_config::env;
use conjure_confinement::WorkerConfinement;
use conjure_skill_sdk::protocol::Permissions;
use tokio::runtime::Handle;

use super::confinement::{granted_confinement, refused_dirs};
use super::end::WorkerEnd;
use super::process::{WorkerProcess, runtime};
use super::processor_budget::ProcessorTimeScope;
use super::program::WorkerArguments;
use super::restarts::Restarts;
use super::{WorkerOptions, command};
use crate::load::Loader;
use crate::open::LibraryLabel;
use crate::{PluginError, ProgramDescription, Sha256};

/// The library that a worker opens, or the program that it becomes.
#[derive(Debug, Clone)]
pub(crate) struct WorkerFile {
    pub(crate) path: PathBuf,
    pub(crate) sha256: Sha256,
    pub(crate) header: HeaderFields,
    /// The description, where it is a program.
    pub(crate) program: Option<ProgramDescription>,
}

/// What the worker of an instance is granted. Where that leads is looked at each time that a process
/// is started: a link may have come where a directory was.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerGrants {
    /// What the manifest names, or as much of it as its session grants.
    pub(crate) permissions: Permissions,
    /// All that the manifest asks to change: in another session the plugin may have put links there.
    pub(crate) asked_write: Vec<String>,
    /// The directories of its session, and its own.
    pub(crate) dirs: InstanceDirs,
}

/// The directories of a session, as the worker of an instance gets them: absolute and without links, as
/// they led when the session began. A process that is started later gets none of them where a link is on
/// the way to it by then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceDirs {
    /// Directories that it reads and changes: the working directory, and where files are exchanged.
    pub work: Vec<PathBuf>,
    /// Directories of the session that it reads and does not change.
    pub read: Vec<PathBuf>,
    /// Directories that it reads: the skill folders that are given to it.
    pub folders: Vec<PathBuf>,
}

impl InstanceDirs {
    /// Directories to work in, and no skill folders. Their links are resolved here, so this is to be made
    /// when the session begins, and kept.
    pub fn of_work(dirs: &[&Path]) -> Self {
        Self {
            work: dirs.iter().map(|dir| resolve_links(dir)).collect(),
            read: Vec::new(),
            folders: Vec::new(),
        }
    }

    /// Returns the directories with one more of the session's, which is only read.
    #[must_use]
    pub fn with_read_only(mut self, dir: &Path) -> Self {
        self.read.push(resolve_links(dir));
        self
    }

    /// Returns the directories with the plugin's own one, which the host has made.
    pub(crate) fn with_own_dir(mut self, dir: &Path) -> Self {
        self.work.push(resolve_links(dir));
        self
    }
}

/// Where a path leads, as far as it is there.
fn resolve_links(dir: &Path) -> PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// What a process is to run.
struct WorkerCode {
    /// The copy of the library, or the directory of the program's files.
    copy: PathBuf,
    /// The program's command, with the path of what is started.
    command: Option<Vec<String>>,
}

/// Why a worker is not granted what it needs.
enum GrantFailure {
    /// What its manifest asks for, which its author can change.
    Permission(String),
    /// Where its session works, which its author has no part in.
    Directory(String),
}

/// What the workers of a plugin have in common.
pub(crate) struct PluginWorkers {
    loader: Loader,
    options: WorkerOptions,
    file: WorkerFile,
    /// Workers that ended by themselves.
    ends: Arc<AtomicU64>,
    /// Processes that were started and may still run.
    started: Mutex<Vec<Weak<WorkerProcess>>>,
}

impl PluginWorkers {
    /// No process is started yet.
    pub(crate) fn new(loader: Loader, options: WorkerOptions, file: WorkerFile) -> Arc<Self> {
        Arc::new(Self {
            loader,
            options,
            file,
            ends: Arc::default(),
            started: Mutex::default(),
        })
    }

    /// Workers of this plugin that ended by themselves.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// The numbers of the processes that run, as far as the system says them.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let started = self.started().into_iter();
        started.filter_map(|process| process.pid()).collect()
    }

    /// How many processes take calls.
    pub(crate) fn running(&self) -> usize {
        let started = self.started().into_iter();
        started.filter(|process| !process.is_over()).count()
    }

    fn started(&self) -> Vec<Arc<WorkerProcess>> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().filter_map(Weak::upgrade).collect()
    }

    fn track(&self, process: &Arc<WorkerProcess>) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(|process| process.strong_count() > 0);
        started.push(Arc::downgrade(process));
    }

    /// Whether they are confined, as far as the system can.
    pub(crate) fn is_confined(&self) -> bool {
        self.options.confined && cfg!(target_os = "linux")
    }

    /// Asks for the manifest, in a worker that reaches nothing but what every program does. Blocks, at
    /// most for the limit.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn manifest(self: &Arc<Self>, limit: Duration) -> Result<Vec<u8>, PluginError> {
        InstanceWorker::new(Arc::clone(self), WorkerGrants::default()).manifest(limit)
    }

    /// What a worker may reach.
    fn confinement(&self, grants: &WorkerGrants) -> Result<WorkerConfinement, GrantFailure> {
        let home = env::home();
        let secrets = self.private_paths();
        for (dir, why) in refused_dirs(&grants.dirs, &secrets) {
            let text = why.sentence(dir, self.data_dir());
            // Without it an executor does nothing; others may have no use for it.
            if self.file.header.kind == PluginKind::Executor {
                return Err(GrantFailure::Directory(text));
            }
            let plugin = self.name();
            tracing::warn!(plugin, "its worker does not reach that directory: {text}");
        }
        granted_confinement(grants, home.as_deref(), &secrets).map_err(GrantFailure::Permission)
    }

    /// What the host keeps lies beside its copies.
    fn data_dir(&self) -> &Path {
        let store = self.loader.store().dir();
        store.parent().unwrap_or(store)
    }

    /// Where the host keeps its own: the data directory, and the key file of the vault and the database
    /// where those are somewhere else.
    fn private_paths(&self) -> Vec<PathBuf> {
        let own = self.data_dir().to_owned();
        let named = [env::KEY_FILE, env::DATABASE].into_iter();
        let named = named.filter_map(env::var);
        let files = named.filter(|named| named != "memory" && !named.contains("://"));
        let files = files.filter_map(|file| std::path::absolute(file).ok());
        std::iter::once(own).chain(files).collect()
    }

    /// Name and version.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.file.header.name, self.file.header.version)
    }
}

/// The worker of one instance: starts its process, and the next one when that has ended.
pub(crate) struct InstanceWorker {
    plugin: Arc<PluginWorkers>,
    grants: WorkerGrants,
    restarts: Arc<Restarts>,
}

impl InstanceWorker {
    /// No process is started yet.
    pub(crate) fn new(plugin: Arc<PluginWorkers>, grants: WorkerGrants) -> Arc<Self> {
        Arc::new(Self {
            restarts: Arc::new(Restarts::new(Arc::clone(&plugin.ends))),
            plugin,
            grants,
        })
    }

    fn manifest(self: &Arc<Self>, limit: Duration) -> Result<Vec<u8>, PluginError> {
        let worker = Arc::clone(self);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let asked = async move {
            let read = async {
                let process = worker.start().await?;
                let manifest = tokio::time::timeout(limit, process.client.read_manifest()).await;
                match manifest {
                    Ok(Ok(manifest)) => Ok(manifest),
                    Ok(Err(fault)) => Err(match process.end_cause().await {
                        Some(end) => worker.end_error(&end.to_string()),
                        None => PluginError::InWorker {
                            reason: fault.text().into_owned(),
                        },
                    }),
                    Err(_) => {
                        process.kill("it did not give its manifest in time");
                        Err(worker.hang_error(limit))
                    }
                }
            };
            let _ = sender.send(read.await);
        };
        runtime()
            .map_err(|error| self.start_error(error))?
            .spawn(asked);
        let none = || self.start_error("its runtime ended".to_owned());
        receiver.recv().unwrap_or_else(|_| Err(none()))
    }

    /// Starts a process.
    ///
    /// # Errors
    /// Why there is none, or not yet again.
    pub(super) async fn start(self: &Arc<Self>) -> Result<Arc<WorkerProcess>, PluginError> {
        if let Some(pause) = self.restarts.pause(Instant::now()) {
            return Err(PluginError::WorkerPaused {
                path: self.plugin.file.path.clone(),
                plugin: self.plugin.name(),
                ends: pause.ends,
                end: pause.end.to_string(),
                left: pause.remaining,
            });
        }
        // On the thread that the system ties the worker's life to, and away from it for the file.
        let worker = Arc::clone(self);
        let host = Handle::current();
        let started = async move {
            let finder = Arc::clone(&worker);
            let code = tokio::task::spawn_blocking(move || finder.code());
            let code = code
                .await
                .map_err(|error| worker.start_error(error.to_string()))??;
            worker.start_with(code, &host)
        };
        let runtime = runtime().map_err(|error| self.start_error(error))?;
        let started = runtime.spawn(started).await;
        started.unwrap_or_else(|error| Err(self.start_error(error.to_string())))
    }

    /// What a process is to run: the store's copy of the library, or the files of the program and its
    /// command.
    fn code(&self) -> Result<WorkerCode, PluginError> {
        let PluginWorkers { loader, file, .. } = &*self.plugin;
        let copy = loader.copy_of(&file.path, &file.sha256)?;
        let Some(program) = &file.program else {
            return Ok(WorkerCode {
                copy,
                command: None,
            });
        };
        let dir = loader
            .store()
            .unpack(&file.sha256, &copy)
            .map_err(|reason| self.start_error(reason))?;
        let command =
            command::resolve(program, &dir).map_err(|missing| PluginError::NoProgram {
                path: file.path.clone(),
                plugin: self.plugin.name(),
                program: missing.program,
                places: missing.searched_dirs,
            })?;
        Ok(WorkerCode {
            copy: dir,
            command: Some(command),
        })
    }

    fn start_with(
        &self,
        code: WorkerCode,
        host: &Handle,
    ) -> Result<Arc<WorkerProcess>, PluginError> {
        let PluginWorkers { options, file, .. } = &*self.plugin;
        let WorkerCode { copy, command } = code;
        let confinement = match options.confined {
            true => Some(
                self.plugin
                    .confinement(&self.grants)
                    .map(|confinement| WorkerConfinement {
                        program: command.is_some(),
                        ..confinement
                    })
                    .map_err(|why| self.grant_error(why))?,
            ),
            false => None,
        };
        let starts_programs = confinement.as_ref().is_none_or(|granted| granted.commands);
        let arguments = WorkerArguments {
            parent: (!starts_programs).then(std::process::id),
            memory: options.limits.memory,
            open_files: options.limits.open_files,
            processor_seconds: self.processor_seconds(starts_programs),
            copy,
            command,
            file: file.path.clone(),
            label: LibraryLabel::from(&file.header),
            confinement,
        };
        let restarts = Arc::clone(&self.restarts);
        let (plugin, counted) = (self.plugin.name(), ProcessorTimeScope::of(file.header.kind));
        let process = WorkerProcess::start(options, &arguments, &plugin, counted, restarts, host)
            .map_err(|reason| self.start_error(reason))?;
        self.plugin.track(&process);
        Ok(process)
    }

    /// Seconds of processors that a process may use in all, where the kernel limits them: what it starts would
    /// have the same limit, and an executor or a backend may be there for days, so those are watched.
    fn processor_seconds(&self, starts_programs: bool) -> Option<u64> {
        let PluginWorkers { options, file, .. } = &*self.plugin;
        let is_limited = file.header.kind == PluginKind::Skill && !starts_programs;
        is_limited.then(|| options.limits.processor_time.as_secs().max(1))
    }

    /// One of them answered: what went before is forgiven.
    pub(super) fn record_answer(&self) {
        self.restarts.record_answer();
    }

    /// One of them made no instance in time.
    pub(super) fn record_timeout(&self) {
        let end = WorkerEnd::by_host("it did not make its instance in time");
        self.restarts.record_end(end);
    }

    /// Name and version of the plugin.
    pub(super) fn plugin(&self) -> String {
        self.plugin.name()
    }

    pub(super) fn hang_error(&self, limit: Duration) -> PluginError {
        PluginError::HungInWorker {
            path: self.plugin.file.path.clone(),
            plugin: self.plugin.name(),
            limit,
        }
    }

    pub(super) fn end_error(&self, end: &str) -> PluginError {
        PluginError::WorkerEnded {
            path: self.plugin.file.path.clone(),
            plugin: self.plugin.name(),
            end: end.to_owned(),
        }
    }

    fn grant_error(&self, why: GrantFailure) -> PluginError {
        let path = self.plugin.file.path.clone();
        let (reason, remedy) = match (why, &self.plugin.file.program) {
            // Its sentence says what to do.
            (GrantFailure::Directory(reason), _) => (reason, String::new()),
            // A program runs nowhere else.
            (GrantFailure::Permission(reason), Some(_)) => (reason, " Tell its author".to_owned()),
            (GrantFailure::Permission(reason), None) => (
                reason,
                format!(
                    " Tell its author, or let it run in the host's process, with all that you may do \
                     yourself: `conjure plugin trust {}`",
                    path.display()
                ),
            ),
        };
        PluginError::NotGranted {
            path,
            plugin: self.plugin.name(),
            remedy,
            reason,
        }
    }

    fn start_error(&self, reason: String) -> PluginError {
        PluginError::NoWorker {
            path: self.plugin.file.path.clone(),
            plugin: self.plugin.name(),
            program: self.plugin.options.program.clone(),
            reason,
        }
    }
}
