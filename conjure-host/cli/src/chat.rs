//! `conjure chat`: a conversation.

use std::io::{BufRead as _, IsTerminal as _};
use std::sync::Arc;

use conjure_core::chat::Event;
use conjure_core::turn::When;
use conjure_runtime::session::{ApprovalMode, Session, SessionSettings};
use rustyline::{DefaultEditor, ExternalPrinter};
use tokio::sync::{mpsc, oneshot};

use super::args::{Global, SessionArgs};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, DIM, RESET, YELLOW, aside, clean};
use super::run::{SAVED, TurnFollower, close, ended_by, open};
use super::signals::{Signal, Signals};
use super::transcript::Transcript;
use super::{files, spent, thread_check};

/// Holds a conversation: each line is a message. Ctrl-C ends a turn that runs, Ctrl-D ends the
/// conversation. What a plugin directory gains or loses meanwhile is there in the next step.
///
/// Lines that begin with a slash are for the host: `/tools` shows the routing table, `/files` the
/// files made so far, `/model PROVIDER/MODEL` goes on with another model, `/help` the others.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure chat --provider anthropic --model claude-sonnet-4-5
  conjure chat --config session.toml --thread 0193…     # go on where it ended")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Go on with a saved session (`conjure session list`), by its name or its id
    #[arg(long = "session", value_name = "NAME", conflicts_with_all = SAVED)]
    saved: Option<String>,
    /// Go on with this thread
    #[arg(long, visible_alias = "resume", value_name = "ID")]
    thread: Option<String>,
}

const HELP: &str = "/tools                  the routing table
/files                  the files made so far
/save FILE [DIR]        a copy of one of them
/model PROVIDER/MODEL   go on with another model, of any provider
/check PROVIDER/MODEL   what that model would get of this conversation
/cost                   what it cost so far
/compact                put a summary in place of the older part, as far as the model reads it
/unfold                 let the model read again what a summary hides
/help                   this
/quit                   end the conversation (or Ctrl-D)
Ctrl-C                  end the turn that runs; what came so far is kept";

pub(crate) async fn run(global: &Global, args: ChatArgs) -> Result<Exit, CliError> {
    if let Some(session) = &args.saved {
        let chat = super::session_chat::run(global, session, args.thread.as_deref(), args.session);
        return Box::pin(chat).await;
    }
    let mut signals = Signals::listen()?;
    let opened = Box::pin(open(global, args.session, args.thread.as_deref()));
    let (_host, session) = signals.unless(opened).await?;
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
    let mut events = session.events_since_opened();
    let (mut lines, mut printer) = LineReader::start(attended).await;
    let mut ended = None;
    while ended.is_none() {
        let line = {
            let next = lines.next();
            tokio::pin!(next);
            loop {
                tokio::select! {
                    biased;
                    signal = signals.next() => {
                        ended = Some(signal);
                        break None;
                    }
                    line = &mut next => break line,
                    event = events.next() => match (&event.event, &mut printer) {
                        (Event::Notice { text }, Some(printer)) if !global.json => {
                            let _ = printer.print(format!("{YELLOW}note:{RESET} {}\n", clean(text)));
                        }
                        (event, _) => drop(transcript.show(event, false)),
                    }
                }
            }
        };
        let Some(line) = line else { break };
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            command if command.starts_with('/') => {
                host_command(&session, command, &mut transcript).await;
            }
            text => {
                let (asked, text) = (Arc::clone(&session), text.to_owned());
                let answer = tokio::spawn(async move { asked.chat(text).await });
                let answer = TurnFollower {
                    session: &session,
                    transcript: &mut transcript,
                    signals: &mut signals,
                    attended,
                }
                .until(answer, &mut events)
                .await;
                if let Err(error) = answer
                    && !transcript.has_shown(&error)
                {
                    output::error(&ended_by(error, &signals), global.json);
                }
                // Ctrl-C ends the turn; the others mean the program.
                ended = signals.last().filter(|signal| *signal != Signal::Interrupt);
            }
        }
    }
    let files = session.created_files();
    transcript.files(&files);
    if let Some(session) = Arc::into_inner(session) {
        close(session, &mut signals).await;
    }
    Ok(ended.map_or(Exit::Fine, Signal::exit))
}

async fn host_command(session: &Session, command: &str, transcript: &mut Transcript) {
    let (name, rest) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    match (name, rest.trim()) {
        ("/tools", "") => {
            if let Some(tool_preview) = session.tool_preview().await {
                super::routes::print(&tool_preview);
            }
        }
        ("/files", "") => transcript.files(&session.created_files()),
        ("/save", wanted) => save(session, wanted).await,
        ("/model", wanted) => change_model(session, wanted).await,
        ("/check", wanted) => check_model(session, wanted).await,
        ("/cost", "") => match spent::line(&session.cost().await.total) {
            Some(spent) => aside(spent),
            None => aside("Nothing was spent yet."),
        },
        ("/compact", "") => match session.compact().await {
            Ok(compacted) => aside(compacted_words(compacted)),
            Err(error) => aside(format_args!("{YELLOW}note:{RESET} {error}")),
        },
        ("/unfold", fold) => unfold(session, fold).await,
        ("/help", "") => aside(HELP),
        _ => aside(format_args!("There is no {command}.\n{HELP}")),
    }
}

/// What a compaction came to.
pub(super) fn compacted_words((fold, tokens): (u64, u64)) -> String {
    format!(
        "Compaction {fold} stands for the older part: the model reads about {} tokens of this \
         conversation now. `/unfold`, or `conjure thread unfold`, takes it back.",
        spent::thousands(tokens)
    )
}

/// Goes on with another model: `PROVIDER/MODEL`; the model's own name may have slashes too.
async fn change_model(session: &Session, wanted: &str) {
    let Some(settings) = named(wanted) else {
        aside("Write `/model PROVIDER/MODEL`, such as `/model openai/gpt-5`.");
        return;
    };
    match session.change(settings, When::Now).await {
        Ok(()) => aside(format_args!("{DIM}Now {wanted} answers.{RESET}")),
        Err(error) => aside(format_args!(
            "{YELLOW}note:{RESET} nothing changes: {error}"
        )),
    }
}

/// Says what that model would get.
async fn check_model(session: &Session, wanted: &str) {
    let Some(settings) = named(wanted) else {
        aside("Write `/check PROVIDER/MODEL`, such as `/check openai/gpt-5`.");
        return;
    };
    match session.check(settings).await {
        Ok(report) => {
            for said in thread_check::words(&report, None) {
                aside(format_args!("  {}", clean(&said)));
            }
        }
        Err(error) => aside(format_args!("{YELLOW}note:{RESET} {error}")),
    }
}

fn named(wanted: &str) -> Option<SessionSettings> {
    let (provider, model) = wanted.split_once('/')?;
    (!provider.is_empty() && !model.is_empty()).then(|| SessionSettings {
        provider: Some(provider.to_owned()),
        model: Some(model.to_owned()),
        ..SessionSettings::default()
    })
}

/// Saves a copy of a file: `FILE`, or `FILE DIR`.
async fn save(session: &Session, wanted: &str) {
    let (file, dir) = wanted
        .split_once(char::is_whitespace)
        .unwrap_or((wanted, "."));
    let known = session.created_files();
    let Some(known) = files::named(&known, file) else {
        aside(
            "Write `/save FILE`, or `/save FILE DIR`, with a handle or a name that `/files` shows.",
        );
        return;
    };
    let saved = match session.resolve(&known.id).await {
        Ok(path) => files::save(known, &path, std::path::Path::new(dir.trim()), false),
        Err(error) => Err(CliError::from_source(Exit::No, error)),
    };
    match saved {
        Ok(to) => aside(format_args!(
            "{DIM}saved as {}{RESET}",
            clean(&to.display().to_string())
        )),
        Err(error) => aside(format_args!(
            "{YELLOW}note:{RESET} {}",
            clean(&error.to_string())
        )),
    }
}

async fn unfold(session: &Session, fold: &str) {
    let fold = match fold {
        "" => None,
        fold => match fold.parse() {
            Ok(fold) => Some(fold),
            Err(_) => {
                aside("Write `/unfold`, or `/unfold ENTRY` with a compaction's entry.");
                return;
            }
        },
    };
    match session.unfold(fold).await {
        Ok((_, tokens)) => aside(format_args!(
            "{DIM}The next request has about {} tokens of this conversation.{RESET}",
            spent::thousands(tokens)
        )),
        Err(error) => aside(format_args!("{YELLOW}note:{RESET} {error}")),
    }
}

/// Lines from the person, read on a thread of their own, one when asked for.
pub(super) struct LineReader {
    ask: mpsc::Sender<oneshot::Sender<Option<String>>>,
}

impl LineReader {
    /// Starts reading; on a terminal there is a way to print above the line that is being typed.
    pub(super) async fn start(on_terminal: bool) -> (Self, Option<Printer>) {
        let (ask, mut asked) = mpsc::channel::<oneshot::Sender<Option<String>>>(1);
        let (made, printer) = oneshot::channel();
        std::thread::spawn(move || {
            let (mut read, printer) = reader(on_terminal);
            let _ = made.send(printer);
            while let Some(answer) = asked.blocking_recv() {
                if answer.send(read()).is_err() {
                    break;
                }
            }
        });
        (Self { ask }, printer.await.ok().flatten())
    }

    pub(super) async fn next(&mut self) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.ask.send(answer).await.ok()?;
        line.await.ok().flatten()
    }
}

/// Prints above the line that is being typed.
pub(super) type Printer = Box<dyn ExternalPrinter + Send>;
type ReadLine = Box<dyn FnMut() -> Option<String>>;

fn reader(on_terminal: bool) -> (ReadLine, Option<Printer>) {
    let editor = on_terminal.then(DefaultEditor::new).and_then(Result::ok);
    match editor {
        Some(mut editor) => {
            let printer = editor.create_external_printer().ok();
            let read = move || {
                let line = editor.readline("› ").ok()?;
                let _ = editor.add_history_entry(&line);
                Some(line)
            };
            (
                Box::new(read),
                printer.map(|printer| Box::new(printer) as Printer),
            )
        }
        None => {
            let read = || {
                let mut line = String::new();
                let read = std::io::stdin().lock().read_line(&mut line).ok()?;
                (read > 0).then_some(line)
            };
            (Box::new(read), None)
        }
    }
}
