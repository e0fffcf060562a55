//! The container executor: one container a session, on Docker or Podman.
//!
//! A container is started by the session's first call and lives as long as the session. A small
//! program inside, the agent, runs the commands and keeps the files; one stream to it carries all
//! calls, so that a call costs no request to the engine. Nothing runs on this machine instead: a
//! call that finds no engine is an error. Begin at `session.rs`, then `container.rs`.

#[cfg(not(unix))]
compile_error!("the container executor needs a Unix system");

mod config;
mod container;
mod engine;
mod modes;
mod mounts;
mod output;
mod owner;
mod session;
mod skills;
mod socket;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_exec_agent::executor::{AgentBackend, AgentExecutor, agent_program};
use conjure_exec_agent_program::PROGRAM;
use conjure_skill_sdk::protocol::{ExecutorInit, Permissions};
use conjure_skill_sdk::{ExecutorPlugin, Result, Setup, export_executor};

use crate::config::DockerSettings;
use crate::owner::ContainerOwner;
use crate::session::{DockerSession, DockerState};

/// An engine, as one instance has it.
#[derive(Debug)]
struct Docker(Arc<DockerState>);

impl Docker {
    fn new(setup: &Setup) -> Result<Self> {
        let settings = DockerSettings::from_setup(setup)?;
        let agent = agent_program(settings.agent.as_deref(), PROGRAM)?;
        let data_dir = setup.create.data_dir.as_ref().map_or_else(
            || std::env::temp_dir().join("conjure-docker"),
            PathBuf::from,
        );
        let owner = ContainerOwner::new(&data_dir, &agent)?;
        let world = Arc::new(DockerState::new(settings, owner));
        // What a killed host left behind goes at the next start, not at the next call.
        let sweeping = Arc::clone(&world);
        tokio::spawn(async move { sweeping.sweep().await });
        Ok(Self(world))
    }
}

impl AgentBackend for Docker {
    type Session = DockerSession;
    const TARGET_KIND: &'static str = "a container";

    fn session(
        &self,
        id: &str,
        working_dir: &Path,
        request: ExecutorInit,
    ) -> Result<DockerSession> {
        let world = Arc::clone(&self.0);
        Ok(DockerSession::new(id, working_dir, request, world))
    }
}

fn plugin() -> ExecutorPlugin<AgentExecutor<Docker>> {
    ExecutorPlugin::new(
        "docker",
        "Runs commands and keeps files in a container",
        |setup| Docker::new(&setup).map(AgentExecutor::new),
    )
    .threads(1)
    .starts_in_place()
    .config_schema(config::schema())
    .with_files()
    .permissions(Permissions {
        // For an engine behind an address. A worker never gets a socket of this machine.
        network: true,
        ..Permissions::default()
    })
}

export_executor!(plugin, name = "docker");
