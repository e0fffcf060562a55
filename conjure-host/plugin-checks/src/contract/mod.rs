//! The contract of each kind of plugin, as checks that run one after the other.
//!
//! Each check has an instance of its own and directories of its own, so none depends on another; only
//! the examples share a session. Which checks there are follows from the manifest: the same file has the
//! same list each time.

mod backend;
mod bench;
mod catalog;
mod common;
mod examples;
mod executor;
mod executor_files;
mod services;
mod skill;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use conjure_plugins::{
    CopyStore, Isolation, LoadedPlugin, Loader, LoaderOptions, PluginError, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use bench::{Bench, CheckFailure, CheckResult};
pub use catalog::{DiscoveredTools, tools_of};
pub use common::check_hand_over;
use examples::ExampleSession;

/// How long one check may take before it counts as failed.
const LIMIT: Duration = Duration::from_secs(60);

/// How a plugin is run.
#[derive(Debug, Clone)]
pub struct ContractOptions {
    /// How workers are run. Its `isolation` says where the plugin runs.
    pub workers: WorkerOptions,
    /// The configuration that the plugin gets.
    pub config: Value,
    /// What is copied into the working directory of the examples.
    pub working_dir: Option<PathBuf>,
    /// Where the checks write, below it [the system's directory for temporary files].
    pub scratch: Option<PathBuf>,
}

/// The checks of one plugin.
pub struct Contract {
    plugin: Arc<LoadedPlugin>,
    file: PathBuf,
    options: ContractOptions,
    scratch: tempfile::TempDir,
    checks: Vec<ContractCheck>,
    /// Opened with the first example.
    examples: tokio::sync::Mutex<Option<ExampleSession>>,
}

/// Why there is nothing to check.
#[derive(Debug)]
pub enum ContractError {
    /// A host would not load the plugin.
    Refused(PluginError),
    /// There is no place for what the checks write.
    Scratch(std::io::Error),
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// What was checked, in words.
    pub check: String,
    /// Whether it holds.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Whether a check holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The check holds.
    Passed,
    /// The check does not hold.
    Failed {
        /// What the contract says.
        expected: String,
        /// What was there instead.
        got: String,
    },
    /// The check says nothing about this plugin here.
    LeftOut {
        /// Why it does not concern this plugin.
        reason: String,
    },
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
struct ContractCheck {
    name: String,
    kind: CheckKind,
}

#[derive(Debug, Clone, PartialEq)]
enum CheckKind {
    Common(common::CommonCheck),
    Skill(skill::SkillCheck),
    Backend(backend::BackendCheck),
    Executor(executor::ExecutorCheck),
    ExecutorFiles(executor_files::FilesCheck),
    /// The example at this place of the manifest.
    Example(usize),
}

impl ContractCheck {
    fn new(name: impl Into<String>, kind: CheckKind) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }
}

impl Contract {
    /// Loads a plugin, as a host does, and finds out what it has to hold.
    ///
    /// # Errors
    /// [`ContractError`].
    #[boxed]
    pub async fn of(file: &Path, options: ContractOptions) -> Result<Self, ContractError> {
        let mut scratch = tempfile::Builder::new();
        scratch.prefix("conjure-plugin-test-");
        let scratch = match &options.scratch {
            Some(dir) => scratch.tempdir_in(dir),
            None => scratch.tempdir(),
        };
        let scratch = scratch.map_err(ContractError::Scratch)?;
        let store =
            CopyStore::open(scratch.path().join("host/store")).map_err(ContractError::Scratch)?;
        let loader = Loader::new(
            store,
            LoaderOptions {
                operations: conjure_runtime::host_operations(),
                worker: Some(options.workers.clone()),
                ..LoaderOptions::default()
            },
        );
        let path = file.to_owned();
        let loading = tokio::task::spawn_blocking(move || loader.load(&path, true)).await;
        let plugin = match loading {
            Ok(loaded) => Arc::new(loaded.map_err(ContractError::Refused)?),
            Err(error) => return Err(ContractError::Scratch(std::io::Error::other(error))),
        };
        let manifest = plugin.manifest();
        let mut checks = common::checks(manifest);
        match manifest.kind.as_str() {
            "skill" => checks.extend(skill::checks(manifest)),
            "executor" => {
                checks.extend(executor::checks());
                checks.extend(executor_files::checks());
            }
            _ => checks.extend(backend::checks(manifest)),
        }
        checks.extend(examples::checks(manifest));
        Ok(Self {
            file: file.to_owned(),
            plugin,
            options,
            scratch,
            checks,
            examples: tokio::sync::Mutex::default(),
        })
    }

    /// The plugin.
    pub fn plugin(&self) -> &LoadedPlugin {
        &self.plugin
    }

    /// Isolation of the plugin: in the host's process, or in one of its own.
    pub fn isolation(&self) -> Isolation {
        self.plugin.isolation()
    }

    /// Names of the checks, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().map(|check| check.name.as_str())
    }

    /// Runs the check at a place of [`Contract::names`]; nothing where there is none.
    #[boxed]
    pub async fn run(&self, index: usize) -> Option<CheckOutcome> {
        let check = self.checks.get(index)?;
        let begun = Instant::now();
        let done = tokio::time::timeout(LIMIT, Box::pin(self.check(&check.kind))).await;
        let verdict = match done {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(CheckFailure::Deviates { expected, got })) => Verdict::Failed { expected, got },
            Ok(Err(CheckFailure::LeftOut { reason })) => Verdict::LeftOut { reason },
            Err(_) => Verdict::Failed {
                expected: format!("an end within {} s", LIMIT.as_secs()),
                got: "none".to_owned(),
            },
        };
        Some(CheckOutcome {
            check: check.name.clone(),
            verdict,
            took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    async fn check(&self, kind: &CheckKind) -> CheckResult {
        if let CheckKind::Example(place) = kind {
            return self.example(*place).await;
        }
        let bench = Bench::set_up(&self.plugin, &self.options.config, self.scratch.path()).await?;
        let done = match kind {
            CheckKind::Common(check) => common::run(*check, &bench).await,
            CheckKind::Skill(check) => skill::run(check, &bench).await,
            CheckKind::Backend(check) => backend::run(*check, &bench).await,
            CheckKind::Executor(check) => executor::run(*check, &bench).await,
            CheckKind::ExecutorFiles(check) => executor_files::run(*check, &bench).await,
            CheckKind::Example(_) => Ok(()),
        };
        bench.take_down().await;
        done
    }

    /// Runs an example in the session that those before it had.
    async fn example(&self, index: usize) -> CheckResult {
        let Some(example) = self.plugin.manifest().examples.get(index) else {
            return Ok(());
        };
        let mut session = self.examples.lock().await;
        let open = match session.take() {
            Some(open) => open,
            None => {
                let scratch = self.scratch.path();
                ExampleSession::open(&self.plugin, &self.file, &self.options, scratch).await?
            }
        };
        session.insert(open).run(example).await
    }

    /// Closes what the examples had.
    pub async fn end(self) {
        if let Some(session) = self.examples.into_inner() {
            session.close().await;
        }
    }
}
