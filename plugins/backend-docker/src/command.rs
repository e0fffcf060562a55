//! Runs a command in the session's container.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_exec_agent::frame::Frame;
use conjure_exec_agent::message::{Bash as AgentBash, Ended, Reply, Request};
use conjure_exec_agent::output::{Capture, Limits, Live, first_files, say_what_is_missing};
use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::{Bash, BashOutput};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::container::Container;
use crate::files::file_ref;
use crate::place::WORKSPACE;
use crate::session::{Session, World, cancelled};
use crate::to_error;

/// How long the agent may take beyond the command's own time to end it and to say so.
const ENDING: Duration = Duration::from_secs(5);
/// How much of the output of a lost command the error shows.
const SHOWN: usize = 2_000;

/// Runs a command.
pub(crate) async fn run(
    cx: Cx,
    request: Bash,
    session: Arc<Session>,
    world: &Arc<World>,
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
    let mut command = Command {
        capture: Capture::new(request.keep_bytes, spill),
        live: Live::new(cx.clone()),
        cx: &cx,
    };
    let request = request_of(&cx, request, &session, world, limits);
    match command.run(&container, &session, &request, limits).await {
        Ok(ended) => Ok(command.reply(ended, &container).await),
        Err(Lost::Fault(error)) => Err(error),
        Err(Lost::Gone) => Err(command.with_output(&container.gone().await)),
        Err(Lost::Stuck) => Err(command.with_output(&container.give_up().await)),
    }
}

fn request_of(cx: &Cx, request: Bash, session: &Session, world: &World, limits: Limits) -> Request {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut env = session.brought.env.clone();
    env.extend(request.env);
    if let Some(dir) = cx.skill_dir() {
        env.push(("SKILL_DIR".to_owned(), dir.display().to_string()));
    }
    Request::Bash(AgentBash {
        shell: world.settings.shell.clone(),
        command: request.command,
        env,
        time_ms: milliseconds(limits.at.saturating_duration_since(Instant::now())),
        grace_ms: milliseconds(limits.grace),
    })
}

/// Why a command has no end of its own.
enum Lost {
    /// It could not be run.
    Fault(Error),
    /// The container went.
    Gone,
    /// The agent says nothing.
    Stuck,
}

/// A command under way.
struct Command<'a> {
    capture: Capture,
    live: Live,
    cx: &'a Cx,
}

impl Command<'_> {
    async fn run(
        &mut self,
        container: &Container,
        session: &Session,
        request: &Request,
        limits: Limits,
    ) -> Result<Ended, Lost> {
        let mut call = container.link.call(request);
        let stuck = limits.at + limits.grace + ENDING;
        let stuck = tokio::time::sleep_until(stuck.into());
        let ending = async {
            tokio::select! {
                () = cancelled(self.cx) => {}
                () = session.over() => {}
            }
        };
        let (mut stuck, mut ending) = (std::pin::pin!(stuck), std::pin::pin!(ending));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                frame = call.next() => match frame {
                    Some(Frame::Stdout(bytes)) => {
                        self.capture.push(EmitKind::Stdout, &bytes);
                        self.live.push(EmitKind::Stdout, &bytes);
                    }
                    Some(Frame::Stderr(bytes)) => {
                        self.capture.push(EmitKind::Stderr, &bytes);
                        self.live.push(EmitKind::Stderr, &bytes);
                    }
                    Some(Frame::Reply(bytes)) => {
                        return match Reply::decode(&bytes) {
                            Ok(Reply::Bash(ended)) => Ok(ended),
                            _ => Err(Lost::Fault(Error::new("the agent's reply does not fit"))),
                        };
                    }
                    Some(Frame::Fault(error)) => return Err(Lost::Fault(to_error(&error))),
                    Some(_) => {}
                    None => return Err(Lost::Gone),
                },
                () = &mut ending, if !told => {
                    told = true;
                    call.send(&Frame::Cancel);
                    stuck.as_mut().reset((Instant::now() + limits.grace + ENDING).into());
                }
                () = &mut stuck => return Err(Lost::Stuck),
            }
        }
    }

    async fn reply(self, ended: Ended, container: &Container) -> BashOutput {
        let kept = self.capture.finish();
        say_what_is_missing(&self.live, &kept, ended.cut, ended.unnamed);
        self.live.finish().await;
        let files = ended.files.into_iter().map(|change| {
            let path = format!("{WORKSPACE}/{}", change.path);
            file_ref(container, &path, change.size)
        });
        BashOutput {
            exit_code: ended.exit_code,
            signal: ended.signal,
            stdout: kept.stdout,
            stderr: kept.stderr,
            stdout_bytes: kept.stdout_bytes,
            stderr_bytes: kept.stderr_bytes,
            full_output: kept.full_output,
            timed_out: ended.timed_out,
            files: first_files(files.collect(), self.cx).await,
        }
    }

    /// An error that still shows what the command had said.
    fn with_output(self, error: &Error) -> Error {
        let kept = self.capture.finish();
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
}
