//! `conjure chat`: a conversation.

use std::io::{BufRead as _, IsTerminal as _};
use std::sync::Arc;

use conjure_host::session::{ApprovalMode, Session};
use tokio::sync::{mpsc, oneshot};

use super::args::{Global, SessionArgs};
use super::exit::{Exit, Failure};
use super::output::{self, BOLD, DIM, RESET, aside};
use super::run::{follow, open};
use super::transcript::Transcript;

/// Holds a conversation: each line is a message. Ctrl-C ends a turn that runs, Ctrl-D ends the
/// conversation. What a plugin directory gains or loses meanwhile is there in the next step.
///
/// Lines that begin with a slash are for the host: `/tools` shows the routing table, `/files` the
/// files made so far, `/help` the others.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure chat --provider anthropic --model claude-sonnet-4-5
  conjure chat --config session.toml --thread 0193…     # go on where it ended")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArgs,
    /// Go on with this thread
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
}

const HELP: &str = "/tools   the routing table
/files   the files made so far
/help    this
/quit    end the conversation (or Ctrl-D)
Ctrl-C   end the turn that runs; what came so far is kept";

pub(crate) async fn run(global: &Global, args: Args) -> Result<Exit, Failure> {
    let (_host, session) = open(global, args.session, args.thread.as_deref()).await?;
    let attended = std::io::stdin().is_terminal() && !global.json;
    if attended {
        session.attend(ApprovalMode::Attended).await;
    }
    if !global.json {
        aside(format_args!(
            "{DIM}Thread {}. `/help` shows what else there is.{RESET}",
            session.thread()
        ));
    }
    let session = Arc::new(session);
    let mut transcript = Transcript::new(global.json);
    let mut events = session.events_from_now();
    let mut lines = Lines::start(attended);
    loop {
        let line = {
            let next = lines.next();
            tokio::pin!(next);
            loop {
                tokio::select! {
                    biased;
                    line = &mut next => break line,
                    event = events.next() => { transcript.show(&event.event, false); }
                }
            }
        };
        let Some(line) = line else { break };
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            command if command.starts_with('/') => host_command(&session, command, &mut transcript),
            text => {
                let (asked, text) = (Arc::clone(&session), text.to_owned());
                let from_now = session.events_from_now();
                while let Some(event) = events.try_next() {
                    transcript.show(&event.event, false);
                }
                let answer = tokio::spawn(async move { asked.chat(text).await });
                let answer = follow(&session, from_now, answer, &mut transcript, attended).await;
                events = session.events_from_now();
                if let Err(error) = answer {
                    output::failure(&Failure::from(error), global.json);
                }
            }
        }
    }
    let files = session.created_files();
    transcript.files(&files);
    if let Some(session) = Arc::into_inner(session) {
        session.close().await;
    }
    Ok(Exit::Fine)
}

fn host_command(session: &Session, command: &str, transcript: &mut Transcript) {
    match command {
        "/tools" => super::routes::print(&session.table()),
        "/files" => transcript.files(&session.created_files()),
        "/help" => aside(HELP),
        other => aside(format_args!("There is no {other}.\n{HELP}")),
    }
}

/// Lines from the person, read on a thread of their own, one when asked for.
struct Lines {
    ask: mpsc::Sender<oneshot::Sender<Option<String>>>,
}

impl Lines {
    fn start(on_terminal: bool) -> Self {
        let (ask, mut asked) = mpsc::channel::<oneshot::Sender<Option<String>>>(1);
        std::thread::spawn(move || {
            let mut read = reader(on_terminal);
            while let Some(answer) = asked.blocking_recv() {
                if answer.send(read()).is_err() {
                    break;
                }
            }
        });
        Self { ask }
    }

    async fn next(&mut self) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.ask.send(answer).await.ok()?;
        line.await.ok().flatten()
    }
}

fn reader(on_terminal: bool) -> Box<dyn FnMut() -> Option<String>> {
    let editor = on_terminal
        .then(rustyline::DefaultEditor::new)
        .and_then(Result::ok);
    match editor {
        Some(mut editor) => Box::new(move || {
            let line = editor.readline(&format!("{BOLD}›{RESET} ")).ok()?;
            let _ = editor.add_history_entry(&line);
            Some(line)
        }),
        None => Box::new(|| {
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line).ok()?;
            (read > 0).then_some(line)
        }),
    }
}
