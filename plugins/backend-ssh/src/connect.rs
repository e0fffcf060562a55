//! A session's way to the remote machine: the agent is copied there once, its relay is started,
//! and every connection says who comes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use conjure_exec_agent::client::relayed::{
    self, AgentProgram, RelayRoute, ResumableStream, RouteFailure, attach_script, copy_script,
    jittered, open_script,
};
use conjure_exec_agent::executor::SessionCalls;
use conjure_exec_agent::relay::{RefusalReason, RelayFrame, RelayRefusal};
use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::LogLevel;
use conjure_skill_sdk::protocol::SkillMount;
use tokio::sync::Semaphore;

use crate::config::SshSettings;
use crate::explain::{ExplainedFailure, explain, is_crowded, is_silent};
use crate::local_files::check_readable;
use crate::outage::Outage;
use crate::session::SshState;
use crate::ssh::{SshFailure, SshProcess};
use crate::ssh_command::Verbosity;

/// How many connections to a machine are made at once: a server begins to refuse some when ten log in
/// together (`MaxStartups`), and others log in there too.
const MAX_LOGINS: u32 = 6;
/// How often one is tried that such a server has refused, and how long the first wait is.
const CROWDED_TRIES: u32 = 6;
const CROWDED_WAIT: Duration = Duration::from_millis(150);

/// The remote machine, as one session has it.
#[derive(Debug)]
pub(crate) struct RemoteMachine {
    pub(crate) settings: Arc<SshSettings>,
    pub(crate) agent: Arc<AgentProgram>,
    /// The session's directory there.
    pub(crate) dir: String,
    /// Secret that only this session knows.
    token: String,
    pub(crate) skills: Vec<SkillMount>,
    pub(crate) calls: Arc<SessionCalls>,
    /// Context of the instance, for log lines that belong to no call.
    cx: Cx,
    /// Outage of the connections that are made again.
    outage: Outage,
}

type SshRelayed = relayed::Relayed<SshProcess>;

impl RemoteMachine {
    pub(crate) fn new(
        world: &SshState,
        dir: String,
        skills: Vec<SkillMount>,
        calls: Arc<SessionCalls>,
    ) -> Self {
        Self {
            settings: Arc::clone(&world.settings),
            agent: Arc::clone(&world.agent),
            cx: world.cx.clone(),
            dir,
            token: uuid::Uuid::new_v4().simple().to_string(),
            skills,
            calls,
            outage: Outage::default(),
        }
    }

    /// Begins a stream, with an agent of its own.
    pub(crate) async fn open(
        &self,
        stream: &ResumableStream,
    ) -> Result<SshRelayed, ExplainedFailure> {
        // It may be another reason by now.
        self.outage.end();
        let process = self.with_agent(&self.open_script()).await?;
        let mut connection = relayed(process);
        let answered = connection.handshake(&self.token, stream).await;
        let answered = match answered {
            Some(RelayFrame::NoStream) => self.begin(&mut connection).await?,
            answered => answered,
        };
        match answered {
            Some(RelayFrame::Welcome(0)) => Ok(connection),
            other => Err(self.refusal_reason(connection, other).await),
        }
    }

    /// Ends and removes everything over there, where no stream goes on. False when nobody says so.
    pub(crate) async fn close(&self) -> bool {
        let Ok(process) = self.with_agent(&self.open_script()).await else {
            return false;
        };
        let mut connection = relayed(process);
        let hello = connection
            .handshake(&self.token, &ResumableStream::new())
            .await;
        if !matches!(hello, Some(RelayFrame::NoStream)) {
            return false;
        }
        connection.send_frame(&RelayFrame::Close).await;
        matches!(connection.next_reply().await, Some(RelayFrame::Closed))
    }

    fn open_script(&self) -> String {
        let agent = self.agent.path(&self.settings.agent_dir);
        let waits = self.settings.waits_seconds();
        open_script(&self.agent.at_path(&agent), &self.dir, waits)
    }

    /// Runs a script over there that needs the agent, which is copied where it is not there, or is
    /// not what it was.
    async fn with_agent(&self, script: &str) -> Result<SshProcess, ExplainedFailure> {
        let mut process = self.run(script, None).await?;
        if process.mark.starts_with("wanted") {
            drop(process);
            let _copying = self.agent.copy_lock.lock().await;
            // Another session may have copied it meanwhile.
            process = self.run(script, None).await?;
            if let Some(system) = process.mark.strip_prefix("wanted") {
                self.check(system.trim())?;
                drop(process);
                self.copy().await?;
                process = self.run(script, None).await?;
            }
        }
        if process.mark != "there" {
            let text = "removes or changes the agent as soon as it is copied there; see what \
                        cleans up in `agent_dir`, or name another one";
            return Err(ExplainedFailure::permanent(&self.settings, text));
        }
        Ok(process)
    }

    /// Runs a script over there. A server that has too many logins at once is asked again.
    async fn run(
        &self,
        script: &str,
        first: Option<&[u8]>,
    ) -> Result<SshProcess, ExplainedFailure> {
        check_readable(&self.settings)
            .map_err(|why| ExplainedFailure::permanent(&self.settings, &why))?;
        let mut tries = 1;
        loop {
            let run = {
                let logins = self.logins();
                // Whoever was refused comes again without company of ours.
                let alone = if tries > 1 { MAX_LOGINS } else { 1 };
                let _login = logins.acquire_many(alone).await;
                SshProcess::run(&self.settings, script, first, Verbosity::Errors).await
            };
            match run {
                Ok(process) => {
                    self.outage.end();
                    return Ok(process);
                }
                Err(failure) if tries < CROWDED_TRIES && is_crowded(&failure) => {
                    tokio::time::sleep(jittered(CROWDED_WAIT * tries)).await;
                    tries += 1;
                }
                Err(failure) => {
                    let failure = match is_silent(&failure) {
                        true => {
                            let asked = self.ask_for_reason();
                            Box::pin(self.outage.with_known_reason(failure, asked)).await
                        }
                        false => failure,
                    };
                    return Err(explain(&self.settings, &failure));
                }
            }
        }
    }

    /// How `ssh` fails that gives its reasons, where it does: what a server says before it ends a
    /// login is no error to it.
    async fn ask_for_reason(&self) -> Option<SshFailure> {
        let logins = self.logins();
        let _login = logins.acquire().await;
        let asked = SshProcess::run(&self.settings, "exit 0", None, Verbosity::Details).await;
        asked.err()
    }

    /// Permits for logins on the machine at one time, shared by all sessions of this process.
    fn logins(&self) -> Arc<Semaphore> {
        static LOGINS_BY_MACHINE: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> =
            LazyLock::new(Mutex::default);
        let mut all = LOGINS_BY_MACHINE
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let name = format!("{} {:?}", self.settings.host, self.settings.port);
        let made = || Arc::new(Semaphore::new(MAX_LOGINS as usize));
        Arc::clone(all.entry(name).or_insert_with(made))
    }

    /// Whether the agent is one for that system and that processor.
    fn check(&self, system: &str) -> Result<(), ExplainedFailure> {
        let Some(own) = self.agent.is_not_for(system) else {
            return Ok(());
        };
        let text = format!(
            "is {system}, and this plugin brings an agent for {own} only: name one for it with \
             `agent` in the configuration of this backend"
        );
        Err(ExplainedFailure::permanent(&self.settings, &text))
    }

    /// Copies the agent there.
    async fn copy(&self) -> Result<(), ExplainedFailure> {
        let path = self.agent.path(&self.settings.agent_dir);
        let bytes = &self.agent.bytes;
        self.notify(&format!(
            "copying the agent to {} ({:.1} MB, once)",
            self.settings.host,
            bytes.len() as f64 / 1e6
        ));
        let script = copy_script(&self.settings.agent_dir, &self.agent.at_path(&path));
        self.run(&script, Some(bytes)).await.map(drop)
    }

    /// Sends what a session needs over there.
    async fn begin(
        &self,
        connection: &mut SshRelayed,
    ) -> Result<Option<RelayFrame>, ExplainedFailure> {
        let begun = connection.begin(&self.skills, self.settings.working_dir.clone());
        begun.await.map_err(|error| {
            let text = format!("cannot get the session's skills: {error}");
            ExplainedFailure::refused(&self.settings, &text)
        })
    }

    /// Why somebody who came is not let in.
    async fn refusal_reason(
        &self,
        connection: SshRelayed,
        said: Option<RelayFrame>,
    ) -> ExplainedFailure {
        match said {
            Some(RelayFrame::Refused(RelayRefusal { reason, text })) => {
                let hint = match reason {
                    RefusalReason::WorkingDir => {
                        ": make it there, let the user in, or name another `working_dir`"
                    }
                    RefusalReason::NoRoom => {
                        ": make room, or name another directory with `scratch_dir`"
                    }
                    RefusalReason::Other => "",
                };
                let text = format!("does not take the session: {text}{hint}");
                ExplainedFailure::refused(&self.settings, &text)
            }
            _ => explain(&self.settings, &connection.carrier.end().await),
        }
    }
}

fn relayed(mut process: SshProcess) -> SshRelayed {
    let rest = std::mem::take(&mut process.buffered);
    SshRelayed::new(process, &rest)
}

impl RelayRoute for RemoteMachine {
    type Carrier = SshProcess;

    fn target(&self) -> &str {
        &self.settings.host
    }

    fn notify(&self, text: &str) {
        self.cx.log(LogLevel::Warn, text);
        self.calls.notify(text);
    }

    async fn attach(&self, stream: &ResumableStream) -> Result<(SshRelayed, u64), RouteFailure> {
        let agent = self.agent.path(&self.settings.agent_dir);
        let script = attach_script(&self.agent.at_path(&agent), &self.dir);
        let process = self.with_agent(&script).await?;
        let mut connection = relayed(process);
        Err(match connection.handshake(&self.token, stream).await {
            Some(RelayFrame::Welcome(received)) => return Ok((connection, received)),
            Some(RelayFrame::NoStream) => ExplainedFailure::no_relay(&self.settings),
            other => self.refusal_reason(connection, other).await,
        }
        .into())
    }

    fn retry_time(&self) -> Duration {
        self.settings.reconnect()
    }
}
