//! Runs a command at a session's agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::{Bash, BashOutput};
use conjure_skill_sdk::{Cx, Error, Result};

use super::{AgentSession, AgentShell, tell_location, to_error};
use crate::client::{CommandLost, RemoteCommand};
use crate::files::FileChange;
use crate::message::{AgentRequest, ShellCommand};
use crate::output::{Capture, Limits};

/// How much of the output of a lost command the error shows.
const MAX_SHOWN_BYTES: usize = 2_000;

/// Runs a command.
pub(super) async fn run<S: AgentSession>(
    cx: &Cx,
    request: Bash,
    session: Arc<S>,
) -> Result<BashOutput> {
    let begun = Instant::now();
    let _running = session.calls().begin(cx);
    let timeout = session.shell().timeout;
    let agent = session
        .agent(cx, cx.time_limit().unwrap_or(timeout))
        .await?;
    let left = cx
        .time_limit()
        .map(|limit| limit.saturating_sub(begun.elapsed()));
    let limits = Limits::new(left, timeout);
    let spill = cx.exchange_dir().map(|dir| {
        let name = uuid::Uuid::now_v7().simple();
        dir.join(format!("bash-{name}.txt"))
    });
    let mut command = RemoteCommand::new(cx, Capture::new(request.keep_bytes, spill));
    let request = request_of(cx, request, session.shell(), limits);
    let over = session.calls().until_ended();
    tell_location(cx, &S::link(&agent).location());
    match command.run(S::link(&agent), &request, limits, over).await {
        Ok(ended) => {
            let file = |change: &FileChange| {
                let path = format!("{}/{}", session.remote_dir(), change.path);
                session.file(&agent, &path, change.size, Some(change.state))
            };
            Ok(command.reply(ended, file).await)
        }
        Err(CommandLost::Fault(error)) => Err(to_error(&error)),
        Err(CommandLost::AgentGone) => Err(with_output(command, &session.agent_end(&agent).await)),
        Err(CommandLost::CancelUnconfirmed) => Err(with_output(command, &Error::cancelled())),
        Err(CommandLost::Stuck) => Err(with_output(command, &session.abandon_agent(&agent).await)),
    }
}

fn request_of(cx: &Cx, request: Bash, shell: AgentShell<'_>, limits: Limits) -> AgentRequest {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut env = shell.env.to_vec();
    env.extend(request.env);
    if let Some(dir) = cx.skill_dir() {
        env.push(("SKILL_DIR".to_owned(), dir.display().to_string()));
    }
    AgentRequest::Bash(ShellCommand {
        shell: shell.program.to_owned(),
        command: request.command,
        env,
        time_ms: milliseconds(limits.deadline.saturating_duration_since(Instant::now())),
        grace_ms: milliseconds(limits.grace),
        ..ShellCommand::default()
    })
}

/// An error that still shows what the command had said.
fn with_output(command: RemoteCommand<'_>, error: &Error) -> Error {
    let kept = command.output();
    let mut text = error.message().to_owned();
    for (name, output) in [("output", kept.stdout), ("error output", kept.stderr)] {
        if !output.is_empty() {
            let from = output.len().saturating_sub(MAX_SHOWN_BYTES);
            let from = (from..=output.len()).find(|at| output.is_char_boundary(*at));
            let end = output.get(from.unwrap_or_default()..).unwrap_or_default();
            text.push_str(&format!("\nIts {name} until then: {end}"));
        }
    }
    Error::with_code(error.code(), text)
}
