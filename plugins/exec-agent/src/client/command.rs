//! A command on an agent, as an executor sees it: shown while it runs, cancelled with its call or
//! its session, and answered with what is left of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::{BashOutput, FileRef};

use super::AgentLink;
use crate::error::AgentError;
use crate::files::FileChange;
use crate::frame::AgentFrame;
use crate::message::{AgentReply, AgentRequest, CommandResult};
use crate::output::{Capture, CommandOutput, Limits, OutputRelay, first_files, report_missing};

/// How long the agent may take beyond the command's own time to end it and to say so. The host waits
/// for 3 s beyond it.
pub(super) const END_MARGIN: Duration = Duration::from_millis(2_500);
/// How long the agent may take for a call that was cancelled, beyond the time that processes have to
/// react. The host waits for 2 s in all.
pub(super) const CANCEL_MARGIN: Duration = Duration::from_millis(1_200);

/// Reasons why the end of a command is not known.
#[derive(Debug)]
pub enum CommandLost {
    /// The command could not be run.
    Fault(AgentError),
    /// The agent went.
    AgentGone,
    /// The agent says nothing although the time of the command is over.
    Stuck,
    /// The call was cancelled, and the agent has not said in time that the command is over.
    CancelUnconfirmed,
}

/// A command that runs at the agent.
#[derive(Debug)]
pub struct RemoteCommand<'a> {
    capture: Capture,
    live: OutputRelay,
    cx: &'a Cx,
}

impl<'a> RemoteCommand<'a> {
    /// A command whose output goes to a call.
    #[must_use]
    pub fn new(cx: &'a Cx, capture: Capture) -> Self {
        Self {
            capture,
            live: OutputRelay::new(cx.clone()),
            cx,
        }
    }

    /// Runs it to its end, which comes early with the call's cancel or when `over` is ready.
    ///
    /// # Errors
    /// When it has no end of its own.
    pub async fn run(
        &mut self,
        link: &Arc<AgentLink>,
        request: &AgentRequest,
        limits: Limits,
        over: impl Future<Output = ()>,
    ) -> Result<CommandResult, CommandLost> {
        let mut call = link.call(request);
        let stuck = limits.deadline + limits.grace + END_MARGIN;
        let stuck = tokio::time::sleep_until(stuck.into());
        let ending = async {
            tokio::select! {
                () = cancelled(self.cx) => {}
                () = over => {}
            }
        };
        let (mut stuck, mut ending) = (std::pin::pin!(stuck), std::pin::pin!(ending));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                frame = call.next() => match frame {
                    Some(AgentFrame::Stdout(bytes)) => {
                        self.capture.push(EmitKind::Stdout, &bytes);
                        self.live.push(EmitKind::Stdout, &bytes);
                    }
                    Some(AgentFrame::Stderr(bytes)) => {
                        self.capture.push(EmitKind::Stderr, &bytes);
                        self.live.push(EmitKind::Stderr, &bytes);
                    }
                    Some(AgentFrame::Reply(bytes)) => {
                        return match AgentReply::decode(&bytes) {
                            Ok(AgentReply::Bash(ended)) => Ok(ended),
                            _ => Err(CommandLost::Fault(AgentError::new("the agent's reply does not fit"))),
                        };
                    }
                    Some(AgentFrame::Fault(error)) => return Err(CommandLost::Fault(error)),
                    Some(_) => {}
                    None => return Err(CommandLost::AgentGone),
                },
                () = &mut ending, if !told => {
                    told = true;
                    call.send(&AgentFrame::Cancel);
                    stuck.as_mut().reset((Instant::now() + limits.grace + CANCEL_MARGIN).into());
                }
                () = &mut stuck => {
                    return Err(if told { CommandLost::CancelUnconfirmed } else { CommandLost::Stuck });
                }
            }
        }
    }

    /// The reply of one that came to its end. `file` makes a file of the reply out of one of the
    /// working directory.
    pub async fn reply(
        self,
        ended: CommandResult,
        file: impl Fn(&FileChange) -> FileRef,
    ) -> BashOutput {
        let kept = self.capture.finish();
        report_missing(&self.live, &kept, ended.is_truncated, ended.unnamed_count);
        self.live.finish().await;
        let files = ended.files.iter().map(file).collect();
        BashOutput {
            exit_code: ended.exit_code,
            signal: ended.signal,
            stdout: kept.stdout,
            stderr: kept.stderr,
            stdout_bytes: kept.stdout_bytes,
            stderr_bytes: kept.stderr_bytes,
            full_output: kept.full_output,
            timed_out: ended.timed_out,
            files: first_files(files, self.cx).await,
        }
    }

    /// The captured output of a command whose end is not known.
    #[must_use]
    pub fn output(self) -> CommandOutput {
        self.capture.finish()
    }
}

/// Becomes ready when the call is cancelled, and never with a host that cannot tell.
pub async fn cancelled(cx: &Cx) {
    cx.until_cancelled().await;
    if !cx.cancelled() {
        std::future::pending::<()>().await;
    }
}
