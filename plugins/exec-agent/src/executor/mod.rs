//! An executor whose commands and files are at an agent, over whatever leads to it.
//!
//! A backend says how a session gets its agent, what happens when that one is gone, and how its
//! files are called on this side; all the rest is here, so that each such backend does the same.

mod calls;
mod command;
mod files;
mod manual_commands;
mod sessions;
mod settings;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_skill_sdk::abi::{EmitKind, code};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Executor, Files, Result};
use serde_json::json;

pub use calls::{CallGuard, SessionCalls};
use files::FileCall;
pub use manual_commands::quoted_word;
use sessions::Sessions;
pub use settings::check_env;

use crate::client::{AgentLink, cancelled, remote_file};
use crate::error::{AgentError, AgentErrorKind};
use crate::files::DirectoryLocation;

/// A place with agents, such as an engine of containers or a remote machine.
pub trait AgentBackend: Send + Sync + 'static {
    /// A session there.
    type Session: AgentSession;
    /// What a session has there, for people, with its article: `a container`.
    const TARGET_KIND: &'static str;

    /// Prepares a session. Nothing is started before its first call.
    ///
    /// # Errors
    /// When the session has what cannot be brought there.
    fn session(&self, id: &str, working_dir: &Path, request: ExecutorInit)
    -> Result<Self::Session>;
}

/// A session of a backend, which has one agent at a time.
pub trait AgentSession: Send + Sync + 'static {
    /// Type of the executor's agents.
    type Agent: Send + Sync + 'static;

    /// Working directory and skills of the session, as commands see them.
    fn ready(&self) -> ExecutorReady;

    /// The calls that run.
    fn calls(&self) -> &Arc<SessionCalls>;

    /// The working directory on this machine, out of which files may be handed over.
    fn working_dir(&self) -> &Path;

    /// Working directory of commands at the agent.
    fn remote_dir(&self) -> &str;

    /// Settings that a command needs.
    fn shell(&self) -> AgentShell<'_>;

    /// The agent, which is started where there is none.
    fn agent(
        self: &Arc<Self>,
        cx: &Cx,
        limit: Duration,
    ) -> impl Future<Output = Result<Arc<Self::Agent>>> + Send;

    /// The stream to an agent.
    fn link(agent: &Self::Agent) -> &Arc<AgentLink>;

    /// The error of a call whose agent ended.
    fn agent_end(&self, agent: &Arc<Self::Agent>) -> impl Future<Output = Error> + Send;

    /// Gives up an agent that did not answer in time; the error is what its calls say.
    fn abandon_agent(
        self: &Arc<Self>,
        agent: &Arc<Self::Agent>,
    ) -> impl Future<Output = Error> + Send;

    /// The path over there of a file that lies here and is seen there, if it is.
    fn shared_path(&self, agent: &Self::Agent, path: &Path) -> Option<String> {
        let _ = (agent, path);
        None
    }

    /// A file over there, in the state of this number: to be fetched when somebody asks for it, where
    /// it is not seen here.
    fn file(&self, agent: &Self::Agent, path: &str, size: u64, state: Option<u64>) -> FileRef {
        let _ = agent;
        FileRef {
            size: Some(size),
            ..remote_file(path, state)
        }
    }

    /// Ends what the session has there, once its calls are told to end.
    fn end(&self) -> impl Future<Output = Result<()>> + Send;
}

/// Settings of a session's commands.
#[derive(Debug, Clone, Copy)]
pub struct AgentShell<'s> {
    /// The absolute path of the shell over there.
    pub program: &'s str,
    /// Environment of every command.
    pub env: &'s [(String, String)],
    /// Default time limit of a command.
    pub timeout: Duration,
}

/// The executor of a backend, for many sessions at once.
#[derive(Debug)]
pub struct AgentExecutor<B: AgentBackend> {
    backend: B,
    sessions: Sessions<B::Session>,
}

impl<B: AgentBackend> AgentExecutor<B> {
    /// An executor without a session.
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            sessions: Sessions::default(),
        }
    }

    fn session(&self, cx: &Cx) -> Result<Arc<B::Session>> {
        let found = self.sessions.of(cx.session().unwrap_or_default());
        found.ok_or_else(|| {
            Error::invalid(format!(
                "the session does not have {}: it was not prepared, or is over",
                B::TARGET_KIND
            ))
        })
    }

    async fn file_call<'a>(&self, cx: &'a Cx) -> Result<FileCall<'a, B::Session>> {
        FileCall::new(cx, self.session(cx)?).await
    }
}

impl<B: AgentBackend> Executor for AgentExecutor<B> {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        let working_dir = cx.working_dir().ok_or_else(|| {
            Error::invalid("the session's working directory is missing, which this executor needs")
        })?;
        for skill in &request.skills {
            let name = &skill.name;
            let plain = !name.is_empty() && !name.contains(['/', '\0', ':', ',']);
            if !plain || name == "." || name == ".." || !skill.dir.starts_with('/') {
                return Err(Error::invalid(format!(
                    "the skill `{}` at `{}` cannot be brought to {}",
                    name.escape_debug(),
                    skill.dir,
                    B::TARGET_KIND
                )));
            }
        }
        let id = cx.session().unwrap_or_default();
        let session = self
            .sessions
            .get_or_try_insert(id, || self.backend.session(id, working_dir, request))?;
        Ok(session.ready())
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        command::run(&cx, request, self.session(&cx)?).await
    }

    async fn view(&self, cx: Cx, request: View) -> Result<Viewed> {
        self.file_call(&cx).await?.view(request).await
    }

    async fn create_file(&self, cx: Cx, request: CreateFile) -> Result<Written> {
        self.file_call(&cx).await?.create_file(request).await
    }

    async fn str_replace(&self, cx: Cx, request: StrReplace) -> Result<Written> {
        self.file_call(&cx).await?.str_replace(request).await
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        match self.sessions.take(cx.session().unwrap_or_default()) {
            Some(session) => {
                session.calls().end().await;
                session.end().await
            }
            None => Ok(()),
        }
    }
}

impl<B: AgentBackend> Files for AgentExecutor<B> {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        self.file_call(&cx).await?.put(&request).await
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        self.file_call(&cx).await?.get(request).await
    }
}

/// The agent that a backend brings along, or the one that is configured in its place.
///
/// # Errors
/// When that one cannot be read, or there is none for this system.
pub fn agent_program(configured: Option<&Path>, own: &'static [u8]) -> Result<Cow<'static, [u8]>> {
    if let Some(path) = configured {
        let read = std::fs::read(path).map_err(|error| {
            Error::new(format!(
                "the agent {} cannot be read: {error}",
                path.display()
            ))
        });
        return read.map(Cow::Owned);
    }
    if cfg!(not(target_os = "linux")) {
        return Err(Error::new(
            "this plugin was built for a system other than Linux and brings no agent along: name \
             one with `agent` in this backend's configuration",
        ));
    }
    Ok(Cow::Borrowed(own))
}

/// Waits for an agent that is being started, which goes on when the call has no more time for it;
/// then the call says `late`.
///
/// # Errors
/// When it does not start, or the call or its session ends before that.
pub async fn wait_for_start<A: Send + 'static>(
    calls: &SessionCalls,
    cx: &Cx,
    limit: Duration,
    start: impl Future<Output = Result<A>> + Send + 'static,
    late: impl FnOnce() -> Error,
) -> Result<A> {
    let starting = tokio::spawn(start);
    tokio::select! {
        started = starting => started.unwrap_or_else(|_| Err(Error::cancelled())),
        () = cancelled(cx) => Err(Error::cancelled()),
        () = calls.until_ended() => Err(Error::cancelled()),
        () = tokio::time::sleep(limit) => Err(late()),
    }
}

/// Tells the host where a call works, before it writes anything there: what another call at the same
/// place may have written at the same time is not known to be this one's. A host that takes nothing is
/// not waited for.
pub fn tell_location(cx: &Cx, location: &DirectoryLocation) {
    let DirectoryLocation { machine, dirs } = location;
    let event = json!({ "event": "location", "machine": machine, "dirs": dirs });
    cx.try_emit(EmitKind::Event, event.to_string().as_bytes());
}

/// A failure at the agent as one of a plugin's.
#[must_use]
pub fn to_error(error: &AgentError) -> Error {
    let code = match error.kind() {
        AgentErrorKind::Failed => code::FAILED,
        AgentErrorKind::Invalid => code::INVALID,
        AgentErrorKind::Cancelled => code::CANCELLED,
        AgentErrorKind::Busy => code::BUSY,
    };
    Error::with_code(code, error.message())
}
