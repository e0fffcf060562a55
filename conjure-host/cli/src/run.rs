//! `conjure run`: one question, one answer.

use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_core::chat::Event;
use conjure_core::foreign_text::in_json;
use conjure_core::log::TurnOutcome;
use conjure_core::numerals::thousands;
use conjure_providers::auths::Auths;
use conjure_runtime::Host;
use conjure_runtime::session::{
    ApprovalMode, ChatError, OutputForm, Session, SessionError, Subscription, TurnSummary,
};
use conjure_store::{Store, ThreadId};
use serde_json::{Value, json};

use super::answer_end::cut_short;
use super::args::{Global, SessionArgs};
use super::attachments::AttachArgs;
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::person::Terminal;
use super::signals::Signals;
use super::transcript::{CallForApproval, Transcript};
use super::{chat_rules, chat_threads, drawn_turn, overwritten, person, terminal_support};

/// The most bytes of a question on standard input.
const MAX_QUESTION_BYTES: u64 = 4 * 1024 * 1024;

/// Asks one question, runs the calls that the model asks for, and prints the answer: the answer to
/// stdout, what happens on the way to stderr.
///
/// A call that does more than read asks first on a terminal; where nobody is there it is denied,
/// unless `--allow` lets it run.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure run --provider anthropic --model claude-sonnet-4-5 \"What is in this directory?\"
  conjure run --config session.toml --allow 'log-analyzer_*' \"Analyse app.log\"
  conjure run --file notes.pdf --image plan.png \"What does not fit?\"
  conjure run --session work \"Go on.\"                  # a saved session
  conjure run --continue \"Go on.\"                      # the last conversation here
  conjure run --script script.json --json \"hello\"     # events as JSON lines
  conjure run --session work --output-schema form.json \"What is in this directory?\" | jq")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    files: AttachArgs,
    /// Go on with a saved session (`conjure session list`), by its name or its id
    #[arg(long = "session", value_name = "NAME", conflicts_with_all = SAVED)]
    saved: Option<String>,
    /// Go on with this thread; `--resume ID` says the same
    #[arg(long, alias = "resume", value_name = "ID")]
    thread: Option<String>,
    /// Go on with the conversation of this directory that grew last
    #[arg(long = "continue", conflicts_with_all = ["thread", "saved"])]
    newest: bool,
    /// A file with a JSON Schema that the answer must fit: standard output is that JSON value then
    /// and nothing else
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// The question; `-` or nothing reads it from stdin
    question: Option<String>,
}

/// What a saved session says itself.
pub(crate) const SAVED: [&str; 18] = [
    "config",
    "provider",
    "auth",
    "model",
    "base_url",
    "wire",
    "dialect",
    "script",
    "set",
    "persona",
    "max_iterations",
    "skill",
    "executor",
    "working_dir",
    "sandbox",
    "allow_network",
    "allow_write",
    "allow_read",
];

pub(crate) async fn run(global: &Global, args: RunArgs) -> Result<Exit, CliError> {
    let schema = args.output_schema.as_deref().map(output_schema);
    let schema = schema.transpose()?;
    let question = question(args.question, args.files.takes_stdin())?;
    let files = args.files.read_pipes()?;
    let mut options = args.session;
    let store = global.store().await?;
    let (saved, thread) = match args.newest {
        true => Box::pin(resume_target(&store, &mut options)).await?,
        false => (args.saved, args.thread),
    };
    let _drawn = drawn_turn::begin(global.json, terminal_support::has_colors());
    if let Some(session) = &saved {
        let asked = (question, schema.map(|(schema, _)| schema));
        let target = (session.as_str(), thread.as_deref());
        let run = super::session_run::run(global, store, target, options, files, asked);
        return Box::pin(run).await;
    }
    let mut signals = Signals::listen()?;
    let opened = Box::pin(open(global, &store, options, thread.as_deref()));
    let (host, session, directory) = signals.unless(opened).await?;
    let said = files.into_message(&host, question)?;
    let attended = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if attended && !global.json {
        session.attend(ApprovalMode::Attended).await;
    }
    let holds_answer = schema.is_some() && !global.json;
    session.answer_in_form(schema.map(|(_, form)| form)).await;
    let session = Arc::new(session);
    let mut events = session.events_since_opened();
    let mut transcript = Transcript::new(global.json);
    let asked = Arc::clone(&session);
    let answer = tokio::spawn(async move { asked.say(said.message()).await });
    let answer = TurnFollower {
        session: &session,
        transcript: &mut transcript,
        signals: &mut signals,
        attended,
        rules: (global, &directory),
    }
    .follow(answer, &mut events, holds_answer)
    .await;
    let files = session.created_files();
    let thread = session.thread().to_string();
    if let Some(session) = Arc::into_inner(session) {
        close(session, &mut signals).await;
    }
    transcript.files(&files);
    let answer = answer.map_err(|error| {
        let shown = transcript.has_shown(&error);
        turn_error(error, &signals).with_shown(shown)
    });
    if global.json {
        let (text, stop_reason) = match &answer {
            Ok(answer) => (Some(&answer.text), answer.stop_reason.as_ref()),
            Err(_) => (None, None),
        };
        output::json_line(&json!({
            "type": "result", "text": text, "stop_reason": stop_reason, "thread": thread,
            "files": files,
        }));
    }
    if answer.is_err() && !global.json {
        output::print_note(format_args!(
            "The conversation so far is kept: `--thread {thread}` goes on with it."
        ));
    }
    let answer = answer?;
    if holds_answer && answer.outcome == TurnOutcome::Completed {
        output::line(in_json(answer.text.trim()));
    }
    if answer.outcome == TurnOutcome::CutShort {
        let why = cut_short(answer.stop_reason.as_deref(), &answer.text);
        return Err(CliError::new(Exit::Limit, why));
    }
    Ok(Exit::Success)
}

/// What `--continue` goes on with: the saved session that the thread is in, else the thread.
async fn resume_target(
    store: &Store,
    options: &mut SessionArgs,
) -> Result<(Option<String>, Option<String>), CliError> {
    let thread = chat_threads::newest(store, &options.directory()?).await?;
    let saved = match options.names_no_provider() {
        true => chat_threads::resumable_session(store, &thread, options).await?,
        false => None,
    };
    let thread = saved.is_none().then(|| thread.to_string());
    Ok((saved, thread))
}

/// Opens the session that the arguments describe, on a thread that is kept; and the directory in
/// which its calls work.
async fn open(
    global: &Global,
    store: &Store,
    args: SessionArgs,
    thread: Option<&str>,
) -> Result<(Host, Session, PathBuf), CliError> {
    let host = open_host(global, store, global.auths_over(store), &args).await?;
    let mut spec = args.spec(&host, global).await?;
    chat_rules::apply(global, &mut spec)?;
    let directory = match &spec.working_dir {
        Some(dir) => dir.clone(),
        None => super::args::current_dir()?,
    };
    let session = match thread {
        Some(id) => {
            let id = existing_thread(store, id).await?;
            host.resume(spec, id).await?
        }
        None => host.session(spec).await?,
    };
    Ok((host, session, directory))
}

/// The host that the arguments describe, which keeps threads in this store.
pub(crate) async fn open_host(
    global: &Global,
    store: &Store,
    auths: Auths,
    args: &SessionArgs,
) -> Result<Host, CliError> {
    let host = args
        .plugins
        .named_host(global)?
        .auths(auths)
        .log(store.clone())
        .asker(Terminal)
        .watch(true)
        .build()
        .await?;
    Ok(host)
}

/// A thread that is there: a wrong letter must not begin another conversation.
pub(crate) async fn existing_thread(store: &Store, id: &str) -> Result<ThreadId, CliError> {
    let id = ThreadId::parse(id).map_err(SessionError::from)?;
    let known = store.thread(&id).await.map_err(SessionError::from)?;
    Ok(known.id)
}

/// Ends a session. A signal meanwhile says not to wait for that.
pub(crate) async fn close(session: Session, signals: &mut Signals) {
    tokio::select! {
        () = session.close() => {}
        _ = signals.next() => {}
    }
}

/// Why a turn gave no answer; who cancelled it decides about the exit code.
pub(crate) fn turn_error(error: ChatError, signals: &Signals) -> CliError {
    let cancelled = error == ChatError::Cancelled;
    let mut error = CliError::from(error);
    if cancelled && let Some(signal) = signals.last() {
        error.exit = signal.exit();
    }
    error
}

/// Shows a turn while it runs.
pub(crate) struct TurnFollower<'a> {
    pub(crate) session: &'a Session,
    pub(crate) transcript: &'a mut Transcript,
    pub(crate) signals: &'a mut Signals,
    pub(crate) attended: bool,
    /// Where a rule goes that is written for good, and for which directory.
    pub(crate) rules: (&'a Global, &'a Path),
}

impl TurnFollower<'_> {
    /// Shows the turn until it is over. A signal ends it, also while the person is asked; what
    /// came so far is kept. A second one does not wait for that.
    pub(crate) async fn follow_to_end(
        self,
        answer: tokio::task::JoinHandle<Result<TurnSummary, ChatError>>,
        events: &mut Subscription,
    ) -> Result<TurnSummary, ChatError> {
        self.follow(answer, events, false).await
    }

    /// Like [`Self::follow_to_end`]; with `holds_answer` the answer is not shown as it comes, since it may have
    /// to be given again.
    async fn follow(
        self,
        mut answer: tokio::task::JoinHandle<Result<TurnSummary, ChatError>>,
        events: &mut Subscription,
        holds_answer: bool,
    ) -> Result<TurnSummary, ChatError> {
        let Self {
            session,
            transcript,
            signals,
            attended,
            rules: (global, directory),
        } = self;
        let is_held = |event: &Event| holds_answer && matches!(event, Event::Content { .. });
        let mut cancelled = false;
        loop {
            tokio::select! {
                biased;
                _ = signals.next() => {
                    if std::mem::replace(&mut cancelled, true) {
                        answer.abort();
                        transcript.end();
                        return Err(ChatError::Cancelled);
                    }
                    session.cancel(true).await;
                }
                event = events.next() => {
                    if is_held(&event.event) {
                        continue;
                    }
                    let asked = transcript.show(&event.event, attended);
                    // A rule that was just made may have decided it.
                    if let Some(mut asked) = asked && !cancelled && is_pending(session, &asked).await {
                        asked.overwritten =
                            overwritten::text(session, directory, &asked.call).await;
                        if let Some(text) = &asked.overwritten {
                            drawn_turn::set_overwritten(&asked.call.id, text);
                        }
                        tokio::select! {
                            biased;
                            _ = signals.next() => {
                                cancelled = true;
                                session.cancel(true).await;
                            }
                            decision = person::ask(&asked) => {
                                let id = &asked.call.id;
                                let decided =
                                    chat_rules::decide(global, directory, session, id, decision);
                                if let Err(error) = decided.await {
                                    output::error_aside(&error);
                                }
                            }
                        }
                    }
                }
                done = &mut answer => {
                    while let Some(event) = events.try_next() {
                        if is_held(&event.event) {
                            continue;
                        }
                        transcript.show(&event.event, attended);
                    }
                    transcript.end();
                    return done.unwrap_or_else(|error| {
                        Err(ChatError::Ended { reason: Some(error.to_string()) })
                    });
                }
            }
        }
    }
}

/// Whether a call still waits for the person.
async fn is_pending(session: &Session, asked: &CallForApproval) -> bool {
    let pending = session.pending().await;
    pending.iter().any(|it| it.call.call_id == asked.call.id)
}

/// A schema out of a file, as it is and ready to check answers.
fn output_schema(path: &Path) -> Result<(Value, OutputForm), CliError> {
    let text = conjure_config::fs::read_to_string(path).map_err(CliError::usage_from)?;
    let context = || format!("`--output-schema {}`", path.display());
    let schema: Value = serde_json::from_str(&text)
        .map_err(|error| CliError::usage_from(error).context(context()))?;
    let form = OutputForm::read(&schema)
        .map_err(|error| CliError::usage_from(error).context(context()))?;
    Ok((schema, form))
}

/// The question. `stdin_is_file` where standard input is something else.
fn question(given: Option<String>, stdin_is_file: bool) -> Result<String, CliError> {
    let text = match given {
        Some(text) if text != "-" => text,
        _ if stdin_is_file => {
            return Err(CliError::usage(
                "stdin is attached as a file, and the question is missing",
            )
            .hint("write `conjure run --file - \"…\"`"));
        }
        _ => {
            if std::io::stdin().is_terminal() {
                return Err(
                    CliError::usage("there is no question").hint("write `conjure run \"…\"`")
                );
            }
            read_question(std::io::stdin())?
        }
    };
    if text.trim().is_empty() {
        return Err(CliError::usage("the question is empty"));
    }
    Ok(text)
}

/// The question that comes on standard input. What is longer is refused and not cut: nobody would know
/// what the model did not read.
fn read_question(stdin: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    stdin
        .take(MAX_QUESTION_BYTES.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::usage_from(error).context("stdin cannot be read"))?;
    let attach = "`conjure run --file - \"…\"` attaches what comes on stdin as a file";
    if u64::try_from(bytes.len()).is_ok_and(|size| size > MAX_QUESTION_BYTES) {
        let message = format!(
            "the question on stdin has more than {} bytes",
            thousands(MAX_QUESTION_BYTES)
        );
        return Err(CliError::usage(message).hint(attach));
    }
    String::from_utf8(bytes)
        .map_err(|_| CliError::usage("the question on stdin is not UTF-8").hint(attach))
}

#[cfg(test)]
mod tests {
    use conjure_store::Log;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_not_there_is_wrong_usage_and_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let place = conjure_store::Location::File(dir.path().join("conjure.db"));
        let options = conjure_store::Options::default();
        let store = Store::open(&place, &options).await.unwrap();
        for id in ["no-such-thread", "../x"] {
            assert_eq!(
                existing_thread(&store, id).await.unwrap_err().exit,
                Exit::Usage
            );
        }
        let there = ThreadId::fresh();
        drop(Log::open(&store, &there).await.unwrap());
        assert_eq!(
            existing_thread(&store, there.as_str()).await.unwrap(),
            there
        );
        assert_eq!(store.threads().await.unwrap(), [there]);
    }

    #[test]
    fn a_question_on_stdin_that_is_too_long_is_refused_and_not_cut() {
        let most = usize::try_from(MAX_QUESTION_BYTES).unwrap();
        let long = "x".repeat(most);
        assert_eq!(read_question(long.as_bytes()).unwrap(), long);
        // A letter of several bytes that crosses the limit is no wrong UTF-8.
        for more in ["x", "ü"] {
            let text = format!("{}{more}", "x".repeat(most + 1 - more.len()));
            let error = read_question(text.as_bytes()).unwrap_err();
            assert_eq!(error.exit, Exit::Usage);
            assert_eq!(
                error.to_string(),
                "the question on stdin has more than 4,194,304 bytes"
            );
            assert!(error.hints()[0].contains("--file -"));
        }
        let error = read_question(&b"f\xfcr"[..]).unwrap_err();
        assert_eq!(
            (error.exit, error.to_string().as_str()),
            (Exit::Usage, "the question on stdin is not UTF-8")
        );
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_the_hosts_failure() {
        let error = SessionError::Directory {
            path: "/data/sessions".to_owned(),
            reason: "read-only".to_owned(),
        };
        assert_eq!(CliError::from(error).exit, Exit::Host);
    }
}
