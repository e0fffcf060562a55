//! Runs a command in the session's container.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_exec_agent::client::{Lost, RemoteCommand};
use conjure_exec_agent::message::{AgentRequest, ShellCommand};
use conjure_exec_agent::output::{Capture, Limits};
use conjure_skill_sdk::protocol::{Bash, BashOutput};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::files::file_ref;
use crate::place::WORKSPACE;
use crate::session::{BackendState, DockerSession};
use crate::to_error;

/// How much of the output of a lost command the error shows.
const SHOWN: usize = 2_000;

/// Runs a command.
pub(crate) async fn run(
    cx: Cx,
    request: Bash,
    session: Arc<DockerSession>,
    world: &Arc<BackendState>,
) -> Result<BashOutput> {
    let begun = Instant::now();
    let _running = session.running();
    let timeout = world.settings.timeout();
    let most = cx.time_limit().unwrap_or(timeout);
    let container = session.container(world, &cx, most).await?;
    let left = cx
        .time_limit()
        .map(|limit| limit.saturating_sub(begun.elapsed()));
    let limits = Limits::new(left, timeout);
    let spill = cx.exchange_dir().map(|dir| {
        let name = uuid::Uuid::now_v7().simple();
        dir.join(format!("bash-{name}.txt"))
    });
    let mut command = RemoteCommand::new(&cx, Capture::new(request.keep_bytes, spill));
    let request = request_of(&cx, request, &session, world, limits);
    let over = session.over();
    match command.run(&container.link, &request, limits, over).await {
        Ok(ended) => {
            let file =
                |path: &str, size| file_ref(&container, &format!("{WORKSPACE}/{path}"), size);
            Ok(command.reply(ended, file).await)
        }
        Err(Lost::Fault(error)) => Err(to_error(&error)),
        Err(Lost::Gone) => Err(with_output(command, &container.gone().await)),
        Err(Lost::Unheard) => Err(with_output(command, &Error::cancelled())),
        Err(Lost::Stuck) => Err(with_output(command, &container.give_up().await)),
    }
}

fn request_of(
    cx: &Cx,
    request: Bash,
    session: &DockerSession,
    world: &BackendState,
    limits: Limits,
) -> AgentRequest {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut env = session.brought.env.clone();
    env.extend(request.env);
    if let Some(dir) = cx.skill_dir() {
        env.push(("SKILL_DIR".to_owned(), dir.display().to_string()));
    }
    AgentRequest::Bash(ShellCommand {
        shell: world.settings.shell.clone(),
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
