//! The SSH executor: commands and files on a remote machine, for many sessions at once.
//!
//! A session has an agent of its own over there, the program that also runs in containers, and one
//! connection to it, which a relay beside the agent lets it lose: a network that is gone for half a
//! minute loses no call. Nothing runs on this machine instead.
//!
//! The connection is OpenSSH's own `ssh`, and not a library such as russh: a person's aliases, keys,
//! agents, hardware tokens, jump hosts and known hosts work here as they do in his terminal, with
//! what his system's vendor keeps secure. A library would know a part of that, in a second way, and
//! would bring its own cryptography into every host.

#[cfg(not(unix))]
compile_error!("the SSH executor needs a Unix system");

mod command;
mod config;
mod connect;
mod explain;
mod files;
mod session;
mod skills;
mod ssh;
mod ssh_command;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use conjure_exec_agent::error::AgentErrorKind;
use conjure_exec_agent_program::PROGRAM;
use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{
    Cx, Error, Executor, ExecutorPlugin, Files, Result, Setup, export_executor,
};

use crate::config::SshSettings;
use crate::connect::AgentProgram;
use crate::files::FileCall;
use crate::session::{BackendState, SshSessions};

/// Runs commands and keeps files on a remote machine.
struct Ssh {
    world: BackendState,
    sessions: SshSessions,
}

impl Ssh {
    fn new(setup: &Setup) -> Result<Self> {
        let settings = SshSettings::from_setup(setup)?;
        Ok(Self {
            world: BackendState {
                agent: Arc::new(agent(&settings)?),
                settings: Arc::new(settings),
                cx: setup.cx.clone(),
            },
            sessions: SshSessions::default(),
        })
    }

    async fn work<'a>(&self, cx: &'a Cx) -> Result<FileCall<'a>> {
        let session = self.sessions.of(cx.session())?;
        FileCall::new(cx, session, &self.world.settings).await
    }
}

fn agent(settings: &SshSettings) -> Result<AgentProgram> {
    if let Some(path) = &settings.agent {
        let read = std::fs::read(path).map_err(|error| {
            Error::new(format!(
                "the agent {} cannot be read: {error}",
                path.display()
            ))
        });
        return Ok(AgentProgram::new(read?.into(), false));
    }
    if cfg!(not(target_os = "linux")) {
        return Err(Error::new(
            "this plugin was built for a system other than Linux and brings no agent for remote \
             machines along: name one with `agent` in this backend's configuration",
        ));
    }
    Ok(AgentProgram::new(PROGRAM.into(), true))
}

impl Executor for Ssh {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        let working_dir = cx.working_dir().ok_or_else(|| {
            Error::invalid("the SSH executor needs the session's working directory")
        })?;
        let session = cx.session().unwrap_or_default();
        self.sessions
            .init(session, working_dir, request, &self.world)
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        let session = self.sessions.of(cx.session())?;
        command::run(cx, request, session, &self.world.settings).await
    }

    async fn view(&self, cx: Cx, request: View) -> Result<Viewed> {
        self.work(&cx).await?.view(request).await
    }

    async fn create_file(&self, cx: Cx, request: CreateFile) -> Result<Written> {
        self.work(&cx).await?.create_file(request).await
    }

    async fn str_replace(&self, cx: Cx, request: StrReplace) -> Result<Written> {
        self.work(&cx).await?.str_replace(request).await
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        match self.sessions.take(cx.session()) {
            Some(session) => session.end().await,
            None => Ok(()),
        }
    }
}

impl Files for Ssh {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        self.work(&cx).await?.put(&request).await
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        self.work(&cx).await?.get(request).await
    }
}

fn plugin() -> ExecutorPlugin<Ssh> {
    ExecutorPlugin::new(
        "ssh",
        "Runs commands and keeps files on a remote machine over SSH",
        |setup| Ssh::new(&setup),
    )
    .threads(1)
    .starts_in_place()
    .config_schema(config::schema())
    .with_files()
}

export_executor!(plugin, name = "ssh");

/// A failure over there as one of this plugin's.
fn to_error(error: &conjure_exec_agent::error::AgentError) -> Error {
    let code = match error.kind() {
        AgentErrorKind::Failed => code::FAILED,
        AgentErrorKind::Invalid => code::INVALID,
        AgentErrorKind::Cancelled => code::CANCELLED,
        AgentErrorKind::Busy => code::BUSY,
    };
    Error::with_code(code, error.message())
}
