//! `conjure chat`: a conversation.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_core::chat::Event;
use conjure_core::log::TurnOutcome;
use conjure_store::{Store, ThreadId};
use conjure_terminal::InputHistory;
use rustyline::error::ReadlineError;
use rustyline::{DefaultEditor, ExternalPrinter};
use tokio::sync::{mpsc, oneshot};

use super::answer_end::cut_short;
use super::args::{Global, SessionArgs};
use super::chat_opening::ChatToShow;
use super::chat_picking::run_command;
use super::chat_session::{ChatSession, OwnChat, PreparedChat};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, DIM, RESET, YELLOW, clean, print_note};
use super::run::{SAVED, TurnFollower, close, turn_error};
use super::signals::{Signal, Signals};
use super::transcript::Transcript;
use super::{
    chat_commands, chat_face, chat_mentions, chat_models, chat_shell, chat_threads,
    terminal_support,
};

/// Holds a conversation. Ctrl-C ends a turn that runs, Ctrl-D ends the conversation. What a plugin
/// directory gains or loses meanwhile is there in the next step.
///
/// On a terminal several lines can be typed, also while the model answers; `@` adds a file, `!` runs
/// a command of your own. Elsewhere each line is a message. Lines that begin with a slash are for
/// the host: `/tools` shows the routing table, `/files` the files made so far,
/// `/model PROVIDER/MODEL` goes on with another model, `/help` tells the others.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure chat --provider anthropic --model claude-sonnet-4-5
  conjure chat --continue                               # go on where the last one here ended
  conjure chat --resume lamp                            # pick one of those with that in them
  conjure chat --config session.toml --thread 0193…")]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Go on with a saved session (`conjure session list`), by its name or its id
    #[arg(long = "session", value_name = "NAME", conflicts_with_all = SAVED)]
    saved: Option<String>,
    /// Go on with this thread
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Go on with the conversation of this directory that grew last
    #[arg(long = "continue", conflicts_with_all = ["thread", "saved", "resume"])]
    newest: bool,
    /// Go on with a conversation that you pick, those of this directory first: of all, or of those
    /// with these words in their names or in what was said. A thread's id is that thread
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["thread", "saved"])]
    resume: Option<String>,
}

pub(crate) async fn run(global: &Global, args: ChatArgs) -> Result<Exit, CliError> {
    let store = global.store().await?;
    if let Some(session) = &args.saved {
        let thread = args.thread.as_deref();
        let chat = super::session_chat::run(global, store, session, thread, args.session);
        return Box::pin(chat).await;
    }
    let ChatArgs {
        mut session,
        thread,
        newest,
        resume,
        ..
    } = args;
    let is_on_terminal = terminal_support::is_supported(global);
    let thread = match (thread, resume) {
        (Some(thread), _) => Some(thread),
        (None, Some(text)) => {
            let here = session.directory()?;
            match thread_to_resume(&store, &text, &here, is_on_terminal).await? {
                Some(thread) => Some(thread.to_string()),
                None => return Ok(Exit::Success),
            }
        }
        (None, None) if newest => {
            let newest = chat_threads::newest(&store, &session.directory()?).await?;
            Some(newest.to_string())
        }
        (None, None) => None,
    };
    match &thread {
        Some(thread) if session.names_no_provider() => {
            let thread = super::thread::id(thread)?;
            let saved = chat_threads::resumable_session(&store, &thread, &mut session).await?;
            if let Some(saved) = saved {
                let chat = super::session_chat::run(global, store, &saved, None, session);
                return Box::pin(chat).await;
            }
        }
        None if is_on_terminal && session.names_no_provider() => {
            let answerer = match chat_threads::last_answerer(&store).await? {
                Some(answerer) => Some(answerer),
                None => Box::pin(chat_models::choose_answerer(global, session.base_url())).await?,
            };
            let Some(answerer) = answerer else {
                return Ok(Exit::Success);
            };
            answerer.apply_to(&mut session);
        }
        _ => {}
    }
    let mut signals = Signals::listen()?;
    let is_attended = std::io::stdin().is_terminal() && !global.json;
    let prepared = Box::pin(PreparedChat::of(
        global,
        store,
        session,
        thread.as_deref(),
        is_attended,
    ));
    let prepared = signals.unless(prepared).await?;
    if is_on_terminal {
        let chat = ChatToShow::Unopened(Box::new(prepared));
        let (chat, exit) = Box::pin(chat_face::run(global, chat, &mut signals)).await;
        if let Some(ChatSession::Own(own)) = chat {
            end(*own, &mut signals).await;
        }
        return exit;
    }
    let own = signals.unless(Box::pin(prepared.open())).await?;
    let chat = ChatSession::Own(Box::new(own));
    Box::pin(run_by_line(global, chat, &mut signals, is_attended)).await
}

/// The thread of this id, or the one that the person picks; nothing where the list is left.
async fn thread_to_resume(
    store: &Store,
    text: &str,
    here: &Path,
    is_on_terminal: bool,
) -> Result<Option<ThreadId>, CliError> {
    if let Some(thread) = chat_threads::of_id(store, text).await? {
        return Ok(Some(thread));
    }
    if !is_on_terminal {
        let error = CliError::usage(match text {
            "" => "a conversation is picked on a terminal".to_owned(),
            text => format!(
                "there is no thread `{}`, and a conversation is picked on a terminal",
                clean(text)
            ),
        });
        return Err(error.hint("`--thread ID` names it, `conjure thread list` lists them"));
    }
    chat_threads::pick_thread(store, text, here).await
}

/// A conversation line by line.
async fn run_by_line(
    global: &Global,
    mut chat: ChatSession,
    signals: &mut Signals,
    attended: bool,
) -> Result<Exit, CliError> {
    if !global.json {
        print_note(format_args!(
            "{DIM}Thread {}. `/help` shows what else there is.{RESET}",
            chat.thread().await?
        ));
    }
    let mut was_used = attended && chat.print_recent().await?;
    let directory = chat.directory().await?;
    let mut transcript = Transcript::new(global.json);
    let history = attended.then(|| global.input_history());
    let (mut lines, mut printer) = LineReader::start(attended, history).await;
    // What the person's own commands said since the last message.
    let mut told: Vec<String> = Vec::new();
    let mut ended = None;
    while ended.is_none() {
        let line = {
            let ChatSession::Own(own) = &mut chat else {
                break;
            };
            let next = lines.next_or_signal(&mut *signals);
            tokio::pin!(next);
            loop {
                tokio::select! {
                    biased;
                    line = &mut next => break line,
                    event = own.events.next() => match (&event.event, &mut printer) {
                        (Event::Notice { text }, Some(printer)) if !global.json => {
                            let _ = printer.print(format!("{YELLOW}note:{RESET} {}\n", clean(text)));
                        }
                        (event, _) => drop(transcript.show(event, false)),
                    }
                }
            }
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(signal) => {
                ended = Some(signal);
                break;
            }
        };
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            command if command.starts_with('/') => {
                let thread = chat.thread().await.ok();
                let next = async || lines.next_choice(&mut *signals).await;
                let ran = run_command(&mut chat, command, &mut transcript, attended, next).await;
                let done = match ran {
                    Ok(()) if attended => {
                        let before = chat.print_recent_unless_on(thread.as_ref()).await;
                        before.map(|has_told| was_used |= has_told)
                    }
                    done => done,
                };
                if let Err(error) = done {
                    chat_commands::report_error(&error);
                }
                ended = ending_signal(signals);
            }
            "!" if attended => print_note(chat_shell::USAGE),
            command if attended && command.starts_with('!') => {
                let command = command.strip_prefix('!').unwrap_or(command).trim();
                match Box::pin(chat_shell::run(command, &directory, signals)).await {
                    Ok(said) => told.push(said),
                    Err(error) => chat_commands::report_error(&error),
                }
                ended = ending_signal(signals);
            }
            text => {
                let ChatSession::Own(own) = &mut chat else {
                    break;
                };
                let message = chat_mentions::of_line(&own.host, &directory, text, &told, attended);
                let Some(message) = message else { continue };
                told.clear();
                was_used = true;
                let asked = Arc::clone(&own.session);
                let answer = tokio::spawn(async move { asked.say(message.message()).await });
                let answer = TurnFollower {
                    session: &own.session,
                    transcript: &mut transcript,
                    signals: &mut *signals,
                    attended,
                    rules: (global, &directory),
                }
                .follow_to_end(answer, &mut own.events)
                .await;
                match answer {
                    Err(error) if !transcript.has_shown(&error) => {
                        output::error(&turn_error(error, signals), global.json);
                    }
                    Ok(answer) if answer.outcome == TurnOutcome::CutShort && !global.json => {
                        let why = cut_short(answer.stop_reason.as_deref(), &answer.text);
                        output::error_aside(&CliError::new(Exit::Limit, why));
                    }
                    _ => {}
                }
                ended = ending_signal(signals);
            }
        }
    }
    let files = chat.files().await;
    if let Ok(files) = &files {
        transcript.files(files);
    }
    if attended && was_used {
        chat.print_resume_command();
    }
    if let ChatSession::Own(own) = chat {
        end(*own, signals).await;
    }
    files?;
    Ok(ended.map_or(Exit::Success, Signal::exit))
}

/// The signal that ends the chat: Ctrl-C ends what runs, the others mean the program.
fn ending_signal(signals: &Signals) -> Option<Signal> {
    signals.last().filter(|signal| *signal != Signal::Interrupt)
}

/// Ends the session of a chat.
async fn end(own: OwnChat, signals: &mut Signals) {
    if let Some(session) = Arc::into_inner(own.session) {
        close(session, signals).await;
    }
}

/// Terminals that keys are not read from: what is typed there comes in lines, and Ctrl-C as a signal.
const WITHOUT_KEYS: [&str; 3] = ["dumb", "cons25", "emacs"];
/// How soon after another Ctrl-C one leaves: what was typed between the two was no wish to leave.
const EXIT_WINDOW: Duration = Duration::from_secs(2);

/// Lines from the person, read on a thread of their own, one when asked for.
pub(super) struct LineReader {
    ask: mpsc::Sender<LineRequest>,
    /// Whether Ctrl-C is a key while a line is typed, and no signal.
    reads_keys: bool,
}

impl LineReader {
    /// Starts reading; on a terminal there is a way to print above the line that is being typed, which
    /// is kept in the file of a history where there is one.
    pub(super) async fn start(
        on_terminal: bool,
        history: Option<PathBuf>,
    ) -> (Self, Option<Printer>) {
        let (ask, mut asked) = mpsc::channel::<LineRequest>(1);
        let (made, printer) = oneshot::channel();
        std::thread::spawn(move || {
            let (mut read, reads_keys, printer) = reader(on_terminal, history);
            let _ = made.send((reads_keys, printer));
            while let Some(request) = asked.blocking_recv() {
                if request.answer.send(read(request.purpose)).is_err() {
                    break;
                }
            }
        });
        let (reads_keys, printer) = printer.await.unwrap_or_default();
        (Self { ask, reads_keys }, printer)
    }

    /// The next line, nothing at the end of them.
    ///
    /// # Errors
    /// The signal that came before it.
    pub(super) async fn next_or_signal(
        &mut self,
        signals: &mut Signals,
    ) -> Result<Option<String>, Signal> {
        let reads_keys = self.reads_keys;
        let line = self.next(LineUse::Message);
        line_or_signal(line, reads_keys, async || signals.next().await).await
    }

    /// The next line, which chooses from a list; nothing at the end of them, and where a signal leaves
    /// the list.
    pub(super) async fn next_choice(&mut self, signals: &mut Signals) -> Option<String> {
        let reads_keys = self.reads_keys;
        let line = self.next(LineUse::Choice);
        let line = line_or_signal(line, reads_keys, async || signals.next().await);
        line.await.unwrap_or_default()
    }

    async fn next(&mut self, is_for: LineUse) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.ask
            .send(LineRequest {
                purpose: is_for,
                answer,
            })
            .await
            .ok()?;
        line.await.ok().flatten()
    }
}

/// What a line is taken as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineUse {
    /// A message, or a command.
    Message,
    /// An answer to a list, which means nothing later.
    Choice,
}

/// Asks for a line.
struct LineRequest {
    purpose: LineUse,
    answer: oneshot::Sender<Option<String>>,
}

/// Prints above the line that is being typed.
pub(super) type Printer = Box<dyn ExternalPrinter + Send>;
type ReadLine = Box<dyn FnMut(LineUse) -> Option<String>>;

/// A line, unless a signal comes first. Where Ctrl-C is a key while a line is typed, the signal is of one
/// that came before; one more is meant, whoever sends it.
async fn line_or_signal(
    line: impl Future<Output = Option<String>>,
    reads_keys: bool,
    mut signal: impl AsyncFnMut() -> Signal,
) -> Result<Option<String>, Signal> {
    let mut forgives = reads_keys;
    tokio::pin!(line);
    loop {
        tokio::select! {
            biased;
            signal = signal() => {
                if signal != Signal::Interrupt || !std::mem::take(&mut forgives) {
                    return Err(signal);
                }
            }
            line = &mut line => return Ok(line),
        }
    }
}

/// Whether the line editor reads keys on a terminal of this name.
fn has_keys(term: Option<&str>) -> bool {
    let is_it = |term: &str| WITHOUT_KEYS.iter().any(|it| it.eq_ignore_ascii_case(term));
    !term.is_some_and(is_it)
}

/// How lines are read, whether that reads keys, and what prints above a line that is typed.
fn reader(on_terminal: bool, history: Option<PathBuf>) -> (ReadLine, bool, Option<Printer>) {
    let editor = on_terminal.then(DefaultEditor::new).and_then(Result::ok);
    match editor {
        Some(mut editor) => {
            let printer = editor.create_external_printer().ok();
            let history = InputHistory::open(history);
            for typed in history.entries() {
                let _ = editor.add_history_entry(typed);
            }
            let mut lines = HistoryLineReader { editor, history };
            (
                Box::new(move |is_for| lines.read(is_for)),
                has_keys(std::env::var("TERM").ok().as_deref()),
                printer.map(|printer| Box::new(printer) as Printer),
            )
        }
        None => {
            let read = |_: LineUse| {
                let mut line = String::new();
                let read = std::io::stdin().lock().read_line(&mut line).ok()?;
                (read > 0).then_some(line)
            };
            (Box::new(read), false, None)
        }
    }
}

/// Lines that are typed, of which those are kept that may be wanted again.
struct HistoryLineReader {
    editor: DefaultEditor,
    history: InputHistory,
}

impl HistoryLineReader {
    fn read(&mut self, is_for: LineUse) -> Option<String> {
        let line = read_line(&mut self.editor)?;
        self.add_to_history(&line, is_for);
        Some(line)
    }

    fn add_to_history(&mut self, line: &str, is_for: LineUse) {
        if is_for == LineUse::Message {
            let _ = self.editor.add_history_entry(line);
            self.history.add(line);
        }
    }
}

/// A line that is typed. Ctrl-C takes back what is typed so far; twice at once is the end.
fn read_line(editor: &mut DefaultEditor) -> Option<String> {
    let mut pressed = None;
    loop {
        match editor.readline("› ") {
            Ok(line) => return Some(line),
            Err(ReadlineError::Interrupted) if !is_exit_request(&mut pressed, Instant::now()) => {
                print_note("Ctrl-C once more leaves.");
            }
            Err(_) => return None,
        }
    }
}

/// Whether a Ctrl-C leaves. `pressed` is when the one before it was, and then when this one was.
fn is_exit_request(pressed: &mut Option<Instant>, now: Instant) -> bool {
    let before = pressed.replace(now);
    before.is_some_and(|before| now.duration_since(before) <= EXIT_WINDOW)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// What comes of a line that is still typed, with these signals.
    async fn typed(reads_keys: bool, signals: &[Signal]) -> Result<Option<String>, Signal> {
        let mut signals = signals.iter().copied();
        let signal = async || match signals.next() {
            Some(signal) => signal,
            None => pending().await,
        };
        line_or_signal(pending(), reads_keys, signal).await
    }

    #[tokio::test]
    async fn ctrl_c_that_is_a_signal_leaves() {
        use Signal::{Interrupt, Terminate};
        for term in ["dumb", "DUMB", "emacs", "cons25"] {
            assert!(!has_keys(Some(term)), "{term}");
        }
        assert!(has_keys(Some("xterm")) && has_keys(None));
        assert_eq!(typed(false, &[Interrupt]).await, Err(Interrupt));
        // One may have come before the line was begun.
        assert_eq!(typed(true, &[Interrupt, Interrupt]).await, Err(Interrupt));
        assert_eq!(typed(true, &[Interrupt, Terminate]).await, Err(Terminate));
        let mut came = [Interrupt].into_iter();
        let once = async || match came.next() {
            Some(signal) => signal,
            None => pending().await,
        };
        let line = line_or_signal(ready(Some("a".to_owned())), true, once).await;
        assert_eq!(line, Ok(Some("a".to_owned())));
    }

    #[test]
    fn a_choice_from_a_list_is_not_kept_among_what_was_typed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.jsonl");
        let mut lines = HistoryLineReader {
            editor: DefaultEditor::new().unwrap(),
            history: InputHistory::open(Some(file.clone())),
        };
        lines.add_to_history("/model", LineUse::Message);
        lines.add_to_history("2", LineUse::Choice);
        let kept = InputHistory::open(Some(file));
        assert_eq!(kept.entries().collect::<Vec<_>>(), ["/model"]);
        let recalled: Vec<_> = lines.editor.history().into_iter().collect();
        assert_eq!(recalled, ["/model"]);
    }

    #[test]
    fn what_was_typed_between_two_ctrl_c_keeps_the_chat() {
        let begun = Instant::now();
        let mut pressed = None;
        assert!(!is_exit_request(&mut pressed, begun));
        let later = begun + EXIT_WINDOW * 2;
        assert!(!is_exit_request(&mut pressed, later));
        assert!(is_exit_request(&mut pressed, later + EXIT_WINDOW / 2));
    }
}
