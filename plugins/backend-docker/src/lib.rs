//! The container executor: one container a session, on Docker or Podman.
//!
//! A container is started by the session's first call and lives as long as the session. A small
//! program inside, the agent, runs the commands and keeps the files; one stream to it carries all
//! calls, so that a call costs no request to the engine. Nothing runs on this machine instead: a
//! call that finds no engine is an error.

#[cfg(not(unix))]
compile_error!("the container executor needs a Unix system");

mod command;
mod config;
mod container;
mod engine;
mod files;
mod output;
mod owner;
mod place;
mod session;
mod skills;
mod socket;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use conjure_exec_agent::error::AgentErrorKind;
use conjure_exec_agent_program::PROGRAM;
use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    SkillMount, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{
    Cx, Error, Executor, ExecutorPlugin, Files, Result, Setup, export_executor,
};

use crate::config::DockerSettings;
use crate::files::FileCall;
use crate::owner::ContainerOwner;
use crate::place::{SKILLS, WORKSPACE};
use crate::session::{BackendState, DockerSessions};

/// Runs commands and keeps files in containers, for many sessions at once.
struct Docker {
    world: Arc<BackendState>,
    sessions: DockerSessions,
}

impl Docker {
    fn new(setup: &Setup) -> Result<Self> {
        let settings = DockerSettings::from_setup(setup)?;
        let agent = agent(&settings)?;
        let data_dir = setup.create.data_dir.as_ref().map_or_else(
            || std::env::temp_dir().join("conjure-docker"),
            PathBuf::from,
        );
        let owner = ContainerOwner::new(&data_dir, &agent)?;
        let world = Arc::new(BackendState::new(settings, owner));
        // What a killed host left behind goes at the next start, not at the next call.
        let sweeping = Arc::clone(&world);
        tokio::spawn(async move { sweeping.sweep().await });
        Ok(Self {
            world,
            sessions: DockerSessions::default(),
        })
    }

    async fn work<'a>(&self, cx: &'a Cx) -> Result<FileCall<'a>> {
        FileCall::new(cx, self.sessions.of(cx.session())?, &self.world).await
    }
}

fn agent(settings: &DockerSettings) -> Result<std::borrow::Cow<'static, [u8]>> {
    if let Some(path) = &settings.agent {
        let read = std::fs::read(path);
        let read = read.map_err(|error| {
            Error::new(format!(
                "the agent {} cannot be read: {error}",
                path.display()
            ))
        });
        return Ok(read?.into());
    }
    if cfg!(not(target_os = "linux")) {
        return Err(Error::new(
            "this plugin was built for a system other than Linux and brings no agent for \
             containers along: name one with `agent` in this backend's configuration",
        ));
    }
    Ok(PROGRAM.into())
}

impl Executor for Docker {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        let working_dir = cx.working_dir().ok_or_else(|| {
            Error::invalid("the container executor needs the session's working directory")
        })?;
        let inside = |skill: &SkillMount| SkillMount {
            name: skill.name.clone(),
            dir: format!("{SKILLS}/{}", skill.name),
        };
        let skills = request.skills.iter().map(inside).collect();
        let session = cx.session().unwrap_or_default();
        self.sessions.init(session, working_dir, request)?;
        Ok(ExecutorReady {
            working_dir: WORKSPACE.to_owned(),
            skills,
        })
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        let session = self.sessions.of(cx.session())?;
        command::run(cx, request, session, &self.world).await
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
            Some(session) => session.end(&self.world).await,
            None => Ok(()),
        }
    }
}

impl Files for Docker {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        self.work(&cx).await?.put(&request).await
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        self.work(&cx).await?.get(request).await
    }
}

fn plugin() -> ExecutorPlugin<Docker> {
    ExecutorPlugin::new(
        "docker",
        "Runs commands and keeps files in a container",
        |setup| Docker::new(&setup),
    )
    .threads(1)
    .starts_in_place()
    .config_schema(config::schema())
    .with_files()
}

export_executor!(plugin, name = "docker");

/// A failure inside a container as one of this plugin's.
fn to_error(error: &conjure_exec_agent::error::AgentError) -> Error {
    let code = match error.kind() {
        AgentErrorKind::Failed => code::FAILED,
        AgentErrorKind::Invalid => code::INVALID,
        AgentErrorKind::Cancelled => code::CANCELLED,
        AgentErrorKind::Busy => code::BUSY,
    };
    Error::with_code(code, error.message())
}
