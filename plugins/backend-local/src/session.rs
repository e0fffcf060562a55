//! What a session was opened with, and which of its commands are running.
//!
//! Kept a session, so that ending one ends its commands and nobody else's.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use conjure_exec_agent::executor::tell_location;
use conjure_exec_agent::files::{DirectoryLocation, ResolvedSkillDirs};
use conjure_exec_agent::sandbox_rules::SandboxRules;
use conjure_skill_sdk::protocol::{ExecutorInit, Sandbox, SkillMount};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::watch;

/// How long the end of a session waits for its commands, which end within the grace time.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The sessions of a backend instance.
#[derive(Debug, Default)]
pub(crate) struct LocalSessions(Mutex<HashMap<String, Arc<LocalSession>>>);

impl LocalSessions {
    /// The session with this id. One that was never prepared has no skills and no environment.
    pub(crate) fn of(&self, id: Option<&str>) -> Arc<LocalSession> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = id.unwrap_or_default();
        if let Some(session) = sessions.get(id) {
            return Arc::clone(session);
        }
        let session = Arc::new(LocalSession::default());
        sessions.insert(id.to_owned(), Arc::clone(&session));
        session
    }

    /// Prepares a session, or prepares it again: where its skills lead is what it was the first time.
    pub(crate) fn init(&self, cx: &Cx, request: ExecutorInit) -> Result<()> {
        for skill in &request.skills {
            if !skill.dir.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the directory of the skill `{}` is `{}`; it must be absolute",
                    skill.name, skill.dir
                )));
            }
        }
        let session = self.of(cx.session());
        for skill in &request.skills {
            // One that is not there yet is looked at when it is needed.
            let _ = session.skill_dirs.resolve(Path::new(&skill.dir));
        }
        let dirs = cx.working_dir().into_iter().chain(cx.exchange_dir());
        // The host names them without links. They are not resolved here: where this is a new version of the
        // plugin, a link may be there by now.
        let dirs: Vec<PathBuf> = dirs.map(Path::to_owned).collect();
        let mut setup = session.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let sandbox = match &request.sandbox {
            Some(sandbox) => Some(setup.sandbox_of(sandbox, dirs)?),
            None => None,
        };
        *setup = Arc::new(SessionSetup { request, sandbox });
        Ok(())
    }

    /// Forgets a session, ends its commands and waits until they are gone.
    pub(crate) async fn end(&self, id: Option<&str>) {
        let session = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id.unwrap_or_default());
        if let Some(session) = session {
            session.closed.send_replace(true);
            let mut running = session.running.subscribe();
            let _ = tokio::time::timeout(END_TIMEOUT, running.wait_for(|count| *count == 0)).await;
        }
    }
}

/// What a session was opened with: its skills, its environment, and its sandbox.
#[derive(Debug, Default)]
pub(crate) struct SessionSetup {
    request: ExecutorInit,
    sandbox: Option<ResolvedSandbox>,
}

/// A sandbox with these directories, and what is allowed there.
#[derive(Debug, Clone)]
struct ResolvedSandbox {
    dirs: Vec<PathBuf>,
    rules: SandboxRules,
}

impl SessionSetup {
    /// What alone its commands may change, where that is limited.
    pub(crate) fn sandbox(&self) -> Option<&SandboxRules> {
        Some(&self.sandbox.as_ref()?.rules)
    }

    /// What is allowed in a sandbox with these directories: what it was, if it is the same sandbox.
    /// Looked at anew, a path might lead elsewhere by a link that a command put there.
    fn sandbox_of(&self, sandbox: &Sandbox, dirs: Vec<PathBuf>) -> Result<ResolvedSandbox> {
        let is_same = |known: &&ResolvedSandbox| {
            self.request.sandbox.as_ref() == Some(sandbox) && known.dirs == dirs
        };
        if let Some(known) = self.sandbox.as_ref().filter(is_same) {
            return Ok(known.clone());
        }
        let rules = SandboxRules::of(sandbox, dirs.iter().map(PathBuf::as_path))?;
        Ok(ResolvedSandbox { dirs, rules })
    }
}

/// A session of the backend.
#[derive(Debug)]
pub(crate) struct LocalSession {
    setup: Mutex<Arc<SessionSetup>>,
    skill_dirs: ResolvedSkillDirs,
    closed: watch::Sender<bool>,
    running: watch::Sender<usize>,
    location: OnceLock<DirectoryLocation>,
}

impl Default for LocalSession {
    fn default() -> Self {
        Self {
            setup: Mutex::default(),
            skill_dirs: ResolvedSkillDirs::default(),
            closed: watch::Sender::new(false),
            running: watch::Sender::new(0),
            location: OnceLock::new(),
        }
    }
}

impl LocalSession {
    /// The skill folders that it may read.
    pub(crate) fn skills(&self) -> Vec<SkillMount> {
        self.setup().request.skills.clone()
    }

    /// Tells the host where a call writes, which is in this directory of the session's.
    pub(crate) fn tell_location(&self, cx: &Cx, dir: &Path) {
        // Elsewhere it is not known, and stands in the way of who knows theirs.
        if cfg!(target_os = "linux") {
            let location = self.location.get_or_init(|| DirectoryLocation::of(dir));
            tell_location(cx, location);
        }
    }

    /// Where the folders of its skills led when it began.
    pub(crate) fn skill_dirs(&self) -> &ResolvedSkillDirs {
        &self.skill_dirs
    }

    /// The environment that its commands get besides the clean one.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        self.setup().request.env.clone()
    }

    /// Counts a command as running for as long as the value lives.
    pub(crate) fn running(self: &Arc<Self>) -> CommandGuard {
        self.running.send_modify(|count| *count += 1);
        CommandGuard(Arc::clone(self))
    }

    /// Becomes ready when the session is over.
    pub(crate) async fn until_ended(&self) {
        let _ = self.closed.subscribe().wait_for(|over| *over).await;
    }

    /// Setup that the session was opened with.
    pub(crate) fn setup(&self) -> Arc<SessionSetup> {
        Arc::clone(&self.setup.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts a command of a session until dropped.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<LocalSession>);

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.running.send_modify(|count| *count -= 1);
    }
}
