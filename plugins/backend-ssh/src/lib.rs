//! The SSH executor: commands and files on a remote machine, for many sessions at once.
//!
//! A session has an agent of its own over there, the program that also runs in containers, and one
//! connection to it, which a relay beside the agent lets it lose: a network that is gone for half a
//! minute loses no call. Nothing runs on this machine instead.
//!
//! The connection is OpenSSH's own `ssh`, and not a library such as russh: a person's aliases, keys,
//! agents, hardware tokens, jump hosts and known hosts work here as they do in his terminal, with
//! what his system's vendor keeps secure. A library would know a part of that, in a second way, and
//! would bring its own cryptography into every host. Begin at `session.rs`, then `connect.rs`.

#[cfg(not(unix))]
compile_error!("the SSH executor needs a Unix system");

mod config;
mod connect;
mod explain;
mod local_files;
mod manual_commands;
mod outage;
mod reason;
mod session;
mod ssh;
mod ssh_command;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use conjure_exec_agent::client::relayed::AgentProgram;
use conjure_exec_agent::executor::{AgentBackend, AgentExecutor, agent_program};
use conjure_exec_agent_program::PROGRAM;
use conjure_skill_sdk::protocol::{ExecutorInit, Permissions};
use conjure_skill_sdk::{ExecutorPlugin, Result, Setup, export_executor};

use crate::config::SshSettings;
use crate::session::{SshSession, SshState};

/// What `ssh` reads where a configuration names nothing else.
const DEFAULT_PATHS: [&str; 5] = [
    "~/.ssh",
    "/etc/ssh/ssh_config",
    "/etc/ssh/ssh_config.d",
    "/etc/ssh/ssh_known_hosts",
    "/etc/crypto-policies",
];

/// File in which `ssh` writes down a machine that it meets first, if it may.
const KNOWN_HOSTS: &str = "~/.ssh/known_hosts";

/// Remote machines, as one instance reaches them.
#[derive(Debug)]
struct Ssh(SshState);

impl Ssh {
    fn new(setup: &Setup) -> Result<Self> {
        let settings = SshSettings::from_setup(setup)?;
        let program = agent_program(settings.agent.as_deref(), PROGRAM)?;
        let own = settings.agent.is_none();
        Ok(Self(SshState {
            agent: Arc::new(AgentProgram::new(program, own)),
            settings: Arc::new(settings),
            cx: setup.cx.clone(),
        }))
    }
}

impl AgentBackend for Ssh {
    type Session = SshSession;
    const TARGET_KIND: &'static str = "a remote machine";

    fn session(&self, _: &str, working_dir: &Path, request: ExecutorInit) -> Result<SshSession> {
        Ok(SshSession::new(working_dir, request, &self.0))
    }
}

/// What `ssh` needs. A worker has no sockets of this machine: there, keys are files and in no agent.
fn permissions() -> Permissions {
    Permissions {
        read: DEFAULT_PATHS.map(str::to_owned).into(),
        write: vec![KNOWN_HOSTS.to_owned()],
        network: true,
        commands: true,
        ..Permissions::default()
    }
}

fn plugin() -> ExecutorPlugin<AgentExecutor<Ssh>> {
    ExecutorPlugin::new(
        "ssh",
        "Runs commands and keeps files on a remote machine over SSH",
        |setup| Ssh::new(&setup).map(AgentExecutor::new),
    )
    .threads(1)
    .starts_in_place()
    .config_schema(config::schema())
    .with_files()
    .permissions(permissions())
}

export_executor!(plugin, name = "ssh");
