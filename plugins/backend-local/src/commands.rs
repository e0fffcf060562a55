//! Runs commands through the agent, which gives each a supervisor of its own: everything that a
//! command starts is below that, and gone when the call is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conjure_exec_agent::client::{CommandLost, RemoteCommand};
use conjure_exec_agent::executor::to_error;
use conjure_exec_agent::files::{CallRoots, FileChange};
use conjure_exec_agent::message::{AgentRequest, Gaps, ShellCommand};
use conjure_exec_agent::output::{Capture, Limits};
use conjure_exec_agent::private::PrivatePaths;
use conjure_exec_agent::sandbox_rules::real;
use conjure_skill_sdk::abi::{LogLevel, code};
use conjure_skill_sdk::protocol::{Bash, BashOutput, FileRef, PROVIDER_KEYS};
use conjure_skill_sdk::{Cx, Error, Result};
use tokio::sync::Mutex;

use crate::agent::Agent;
use crate::config::LocalSettings;
use crate::file_operations;
use crate::sandbox::SessionSandbox;
use crate::session::LocalSession;

/// The commands of an instance.
#[derive(Debug)]
pub(crate) struct Commands {
    settings: LocalSettings,
    private: PrivatePaths,
    /// Started with the first command, and again when it is gone.
    agent: Mutex<Option<Arc<Agent>>>,
    /// What of the confinement cannot be had, as far as somebody was told: the bits of [`Gaps`].
    reported_gaps: AtomicU8,
}

impl Commands {
    /// The commands of an instance, of which none runs yet.
    pub(crate) fn new(settings: LocalSettings, private: PrivatePaths) -> Self {
        Self {
            settings,
            private,
            agent: Mutex::default(),
            reported_gaps: AtomicU8::new(0),
        }
    }

    /// Runs a command of a session.
    pub(crate) async fn run(
        &self,
        cx: &Cx,
        request: Bash,
        session: &Arc<LocalSession>,
    ) -> Result<BashOutput> {
        let limits = Limits::new(cx.time_limit(), self.settings.timeout);
        let _running = session.running();
        let roots = file_operations::roots(cx, session, self.private.iter())?;
        let spill = cx.exchange_dir().map(|dir| dir.join(new_name()));
        let mut command = RemoteCommand::new(cx, Capture::new(request.keep_bytes, spill));
        let request = self.request(cx, request, session, &roots, limits);
        let agent = self.agent(cx).await?;
        let shown = cx.working_dir().unwrap_or(roots.working_dir()).to_owned();
        session.tell_location(cx, &shown);
        match command
            .run(agent.link(), &request, limits, session.until_ended())
            .await
        {
            Ok(ended) => {
                self.report_gaps(cx, ended.gaps);
                let file = |change: &FileChange| FileRef {
                    size: Some(change.size),
                    ..FileRef::at(shown.join(&change.path).to_string_lossy())
                };
                Ok(command.reply(ended, file).await)
            }
            Err(CommandLost::Fault(error)) => Err(to_error(&error)),
            Err(CommandLost::AgentGone) => Err(Error::new(format!(
                "the process that runs commands has ended ({}), and the command with it; call \
                 again, and end no process that the command did not start",
                agent.link().end().unwrap_or_default()
            ))),
            Err(CommandLost::CancelUnconfirmed) => Err(Error::cancelled()),
            Err(CommandLost::Stuck) => {
                if !agent.link().is_stuck().await {
                    return Err(Error::with_code(
                        code::TIMEOUT,
                        "the time of the command was over, and it was not said in time that it \
                         ended; call again",
                    ));
                }
                self.discard_agent(&agent).await;
                Err(Error::new(
                    "the process that runs commands does not answer and was ended, and the \
                     command with it; call again, and stop no process that the command did not \
                     start",
                ))
            }
        }
    }

    fn request(
        &self,
        cx: &Cx,
        request: Bash,
        session: &LocalSession,
        roots: &CallRoots,
        limits: Limits,
    ) -> AgentRequest {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut env: Vec<(String, String)> = session.env().into_iter().collect();
        env.extend(request.env);
        if let Some(dir) = cx.skill_dir() {
            env.push(("SKILL_DIR".to_owned(), text(dir)));
        }
        // What a session has of its own may be in the host's data directory.
        let exchange = cx.exchange_dir();
        let own = exchange.into_iter().chain(exchange.and_then(Path::parent));
        let skills = session.skills();
        let skills = skills.iter().map(|skill| Path::new(&skill.dir));
        let visible = [roots.working_dir()].into_iter().chain(own);
        let visible = visible.chain(cx.skill_dir()).chain(skills);
        // A command may have put a link where one of them was; the host names them without links.
        let visible = visible.filter(|dir| real(dir) == *dir).map(text);
        let setup = session.setup();
        let sandbox = setup.sandbox();
        let sandbox = sandbox.map(|rules| SessionSandbox::new(rules, cx.exchange_dir()));
        if let Some(temporary) = sandbox.as_ref().and_then(SessionSandbox::temporary_dir) {
            env.push(("TMPDIR".to_owned(), text(temporary)));
        }
        AgentRequest::Bash(ShellCommand {
            shell: text(&self.settings.shell),
            command: request.command,
            env,
            dir: Some(text(roots.working_dir())),
            visible: visible.collect(),
            sandbox: sandbox.map(SessionSandbox::into_shell),
            time_ms: milliseconds(limits.deadline.saturating_duration_since(Instant::now())),
            grace_ms: milliseconds(limits.grace),
        })
    }

    /// The agent, started if need be.
    async fn agent(&self, cx: &Cx) -> Result<Arc<Agent>> {
        let mut slot = self.agent.lock().await;
        if let Some(agent) = slot.as_ref().filter(|agent| agent.link().is_open()) {
            return Ok(Arc::clone(agent));
        }
        // Elsewhere nothing is kept from a command, and nobody is promised that.
        let confines = cfg!(target_os = "linux") && self.settings.confine;
        let private = confines.then_some(&self.private);
        let mut env = self.settings.env.clone();
        for name in &self.settings.pass_env {
            // The host took these out of its environment; named in the configuration they are given.
            if PROVIDER_KEYS.contains(&name.as_str())
                && !env.iter().any(|(has, _)| has == name.as_str())
                && let Ok(key) = cx.secret_async(name).await
            {
                env.push((name.into(), key.into()));
            }
        }
        let started = Agent::start(&env, private).await;
        let agent = Arc::new(started.map_err(|error| {
            Error::new(format!(
                "no command can be started: the process that runs commands does not start \
                 ({error}); see that more processes may be started, and that programs may run \
                 from memory (vm.memfd_noexec is below 2)"
            ))
        })?);
        *slot = Some(Arc::clone(&agent));
        Ok(agent)
    }

    /// Ends an agent that does not answer.
    async fn discard_agent(&self, agent: &Arc<Agent>) {
        agent.kill();
        let mut slot = self.agent.lock().await;
        slot.take_if(|current| Arc::ptr_eq(current, agent));
    }

    /// Says what of the confinement this machine does not give, each of that once.
    fn report_gaps(&self, cx: &Cx, gaps: Gaps) {
        let gaps = take_unreported(&self.reported_gaps, gaps);
        if gaps == Gaps::default() {
            return;
        }
        let lacks = [
            (
                gaps.files,
                "they can read the host's own files, its key among them, or reach the machine's devices \
                 from a sandbox (most often because the kernel lets this user make no user namespace)",
            ),
            (
                gaps.processes,
                "they can look into the user's other processes (the kernel has no Landlock)",
            ),
            (
                gaps.signals,
                "they can signal the user's other processes (that takes Linux 6.12)",
            ),
            (
                gaps.writes,
                "the session's sandbox does not keep them from writing (the kernel has no Landlock)",
            ),
            (
                gaps.modes,
                "the session's sandbox does not keep them from changing modes, owners and times of files \
                 elsewhere (the kernel lets this user make no user namespace)",
            ),
            (
                gaps.network,
                "the session's sandbox does not keep them from the network (the kernel has no seccomp)",
            ),
        ];
        let lacks = lacks.into_iter().filter(|(lacks, _)| *lacks);
        let lacks: Vec<&str> = lacks.map(|(_, text)| text).collect();
        let text = format!(
            "commands are not confined as they should be: {}",
            lacks.join("; ")
        );
        cx.log(LogLevel::Warn, &text);
    }
}

/// Gaps that nobody was told of yet; from now on somebody was.
fn take_unreported(told: &AtomicU8, gaps: Gaps) -> Gaps {
    let before = told.fetch_or(gaps.bits(), Ordering::Relaxed);
    Gaps::from_bits(gaps.bits() & !before)
}

/// A name for a file that no other call of this host has.
fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos();
    format!("bash-{}-{nanoseconds:x}-{number}.txt", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_told_and_nothing_twice() {
        let told = AtomicU8::new(0);
        let files = Gaps {
            files: true,
            ..Gaps::default()
        };
        let network = Gaps {
            network: true,
            ..Gaps::default()
        };
        let both = Gaps {
            files: true,
            network: true,
            ..Gaps::default()
        };
        let untold = |gaps| super::take_unreported(&told, gaps);
        assert_eq!(untold(Gaps::default()), Gaps::default());
        assert_eq!([untold(files), untold(files)], [files, Gaps::default()]);
        assert_eq!([untold(both), untold(both)], [network, Gaps::default()]);
    }
}
