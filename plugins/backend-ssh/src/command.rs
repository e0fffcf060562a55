//! Runs a command on the remote machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_exec_agent::client::{Lost, RemoteCommand};
use conjure_exec_agent::message::{AgentRequest, ShellCommand};
use conjure_exec_agent::output::{Capture, Limits};
use conjure_skill_sdk::protocol::{Bash, BashOutput};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::config::SshSettings;
use crate::files::file_ref;
use crate::session::SshSession;
use crate::to_error;

/// How much of the output of a lost command the error shows.
const SHOWN: usize = 2_000;

/// Runs a command.
pub(crate) async fn run(
    cx: Cx,
    request: Bash,
    session: Arc<SshSession>,
    settings: &SshSettings,
) -> Result<BashOutput> {
    let begun = Instant::now();
    let _running = session.running(&cx);
    let timeout = settings.timeout();
    let agent = session
        .agent(&cx, cx.time_limit().unwrap_or(timeout))
        .await?;
    let left = cx
        .time_limit()
        .map(|limit| limit.saturating_sub(begun.elapsed()));
    let limits = Limits::new(left, timeout);
    let spill = cx.exchange_dir().map(|dir| {
        let name = uuid::Uuid::now_v7().simple();
        dir.join(format!("bash-{name}.txt"))
    });
    let mut command = RemoteCommand::new(&cx, Capture::new(request.keep_bytes, spill));
    let request = request_of(&cx, request, &session, settings, limits);
    match command
        .run(&agent.link, &request, limits, session.over())
        .await
    {
        Ok(ended) => {
            let file = |path: &str, size| file_ref(&format!("{}/{path}", session.remote_dir), size);
            Ok(command.reply(ended, file).await)
        }
        Err(Lost::Fault(error)) => Err(to_error(&error)),
        Err(Lost::Gone) => Err(with_output(command, &agent.gone())),
        Err(Lost::Unheard) => Err(with_output(command, &Error::cancelled())),
        Err(Lost::Stuck) => Err(with_output(command, &session.unanswered(&agent))),
    }
}

fn request_of(
    cx: &Cx,
    request: Bash,
    session: &SshSession,
    settings: &SshSettings,
    limits: Limits,
) -> AgentRequest {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut env: Vec<(String, String)> = session.env.clone().into_iter().collect();
    env.extend(request.env);
    if let Some(dir) = cx.skill_dir() {
        env.push(("SKILL_DIR".to_owned(), dir.display().to_string()));
    }
    AgentRequest::Bash(ShellCommand {
        shell: settings.shell.clone(),
        command: request.command,
        env,
        time_ms: milliseconds(limits.at.saturating_duration_since(Instant::now())),
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
            let from = output.len().saturating_sub(SHOWN);
            let from = (from..=output.len()).find(|at| output.is_char_boundary(*at));
            let end = output.get(from.unwrap_or_default()..).unwrap_or_default();
            text.push_str(&format!("\nIts {name} until then: {end}"));
        }
    }
    Error::with_code(error.code(), text)
}
