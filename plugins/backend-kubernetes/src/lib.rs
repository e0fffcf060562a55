//! The Kubernetes executor: one pod a session, in a cluster.
//!
//! A pod is made by the session's first call and is deleted with the session. The agent that also
//! runs in containers and on remote machines is copied into it once, through an exec; one exec more
//! carries all calls, and a relay beside the agent lets that connection be lost. Nothing runs on this
//! machine instead: a call that finds no cluster is an error. Begin at `session.rs`, then `pod.rs`.

#[cfg(not(unix))]
compile_error!("the Kubernetes executor needs a Unix system");

mod cluster;
mod config;
mod data_dir_identity;
mod explain;
mod owner;
mod pod;
mod pod_exec;
mod pod_status;
mod proxy;
mod retry;
mod route;
mod session;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_exec_agent::client::relayed::AgentProgram;
use conjure_exec_agent::executor::{AgentBackend, AgentExecutor, agent_program};
use conjure_exec_agent_program::PROGRAM;
use conjure_skill_sdk::protocol::{ExecutorInit, Permissions};
use conjure_skill_sdk::{ExecutorPlugin, Result, Setup, export_executor};

use crate::config::KubernetesSettings;
use crate::owner::PodOwner;
use crate::session::{KubernetesState, PodSession};

/// Where kubeconfigs and what they name are, and what a pod has to reach the cluster around it.
const DEFAULT_PATHS: [&str; 2] = ["~/.kube", "/var/run/secrets/kubernetes.io/serviceaccount"];

/// A cluster, as one instance has it.
#[derive(Debug)]
struct Kubernetes(Arc<KubernetesState>);

impl Kubernetes {
    fn new(setup: &Setup) -> Result<Self> {
        let settings = KubernetesSettings::from_setup(setup)?;
        let program = agent_program(settings.agent.as_deref(), PROGRAM)?;
        let own = settings.agent.is_none();
        let data_dir = setup.create.data_dir.as_ref().map_or_else(
            || std::env::temp_dir().join("conjure-kubernetes"),
            PathBuf::from,
        );
        let state = Arc::new(KubernetesState::new(
            settings,
            AgentProgram::new(program, own),
            PodOwner::new(&data_dir)?,
            setup.cx.clone(),
        ));
        // What a killed host left behind goes at the next start, not at the next call.
        let sweeping = Arc::clone(&state);
        tokio::spawn(async move { Box::pin(sweeping.sweep()).await });
        Ok(Self(state))
    }
}

impl AgentBackend for Kubernetes {
    type Session = PodSession;
    const TARGET_KIND: &'static str = "a pod";

    fn session(&self, id: &str, working_dir: &Path, request: ExecutorInit) -> Result<PodSession> {
        let state = Arc::clone(&self.0);
        Ok(PodSession::new(id, working_dir, request, state))
    }
}

fn plugin() -> ExecutorPlugin<AgentExecutor<Kubernetes>> {
    ExecutorPlugin::new(
        "kubernetes",
        "Runs commands and keeps files in a pod of a Kubernetes cluster",
        |setup| Kubernetes::new(&setup).map(AgentExecutor::new),
    )
    .threads(1)
    .starts_in_place()
    .config_schema(config::schema())
    .with_files()
    .permissions(Permissions {
        read: DEFAULT_PATHS.map(str::to_owned).into(),
        network: true,
        // A kubeconfig may name a program that logs in.
        commands: true,
        ..Permissions::default()
    })
}

export_executor!(plugin, name = "kubernetes");
