//! The person at the terminal: decisions about calls, and questions of plugins.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_core::chat::QuestionAsked;
use conjure_runtime::backend::Asker;
use conjure_skill_sdk::protocol::{Elicit, Elicited};
use conjure_terminal::{
    ApprovalLines, DECLINE, Decision, FieldAnswer, FormField, LineAnswer, PersonRequest, Update,
    decide, yes_or_no,
};
use futures_util::future::BoxFuture;
use rustix::termios::{QueueSelector, tcflush};
use serde_json::Value;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::drawn_turn;
use super::error::CliError;
use super::output::{self, BOLD, RESET, YELLOW, clean, print_note};
use super::terminal_support;
use super::transcript::CallForApproval;

/// One question at a time, from its first word to its answer.
static ASKING: Mutex<()> = Mutex::const_new(());

/// Asks the person whether a call may run: as a chat does, or in lines where nothing is redrawn.
/// Where nobody answers any more it may not.
pub(crate) async fn ask(asked: &CallForApproval) -> Decision {
    let _asking = ASKING.lock().await;
    let _held = drawn_turn::hold();
    let nobody = || Decision::No(String::new());
    let before = asked.overwritten.as_deref();
    if terminal_support::redraws() {
        let has_colors = terminal_support::has_colors();
        let decided = decide(&asked.call, &asked.reason, before, has_colors).await;
        return decided.ok().flatten().unwrap_or_else(nobody);
    }
    // A line that was typed before the question was meant for something else.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    let mut question = ApprovalLines::new(&asked.call, &asked.reason, before);
    print_note(format_args!("\n{}", question.question()));
    let typed_at = format!("  Allow it? {}: ", question.keys());
    while let Some(line) = prompt(&typed_at).await {
        match question.answer(&line) {
            LineAnswer::Decided(decision) => return decision,
            LineAnswer::AskReason => {
                let reason = prompt("  Why not? The model reads it: ").await;
                return Decision::No(reason.unwrap_or_default().trim().to_owned());
            }
            LineAnswer::Invalid(told) => print_note(format_args!("  {told}")),
        }
    }
    nobody()
}

/// Reads one line from the terminal without holding anything else up. When it is dropped nothing
/// goes on reading, so no answer to a later question is lost.
pub(super) async fn prompt(question: &str) -> Option<String> {
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(question.as_bytes());
    let _ = stderr.flush();
    if let Ok(stdin) = stdin_watcher() {
        // A terminal is readable when there is a whole line.
        drop(stdin.readable().await.ok()?);
    }
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.ok().filter(|bytes| *bytes > 0).map(|_| line)
    });
    read.await.ok().flatten()
}

#[expect(
    deprecated,
    reason = "standard input stays open for the life of the program, which is all that the \
              successor, unsafe code, asks for"
)]
fn stdin_watcher() -> std::io::Result<AsyncFd<std::io::Stdin>> {
    AsyncFd::with_interest(std::io::stdin(), Interest::READABLE)
}

/// Asks the person at the terminal for a yes or a no.
///
/// # Errors
/// When nobody is there.
pub(crate) async fn ask_yes_no(question: &str) -> Result<bool, CliError> {
    let nobody = || CliError::usage("nobody is there to ask").hint("`--yes` says that it is meant");
    if !std::io::stdin().is_terminal() {
        return Err(nobody());
    }
    let _asking = ASKING.lock().await;
    let _held = drawn_turn::hold();
    // A line that was typed before the question was meant for something else.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    print_note(question);
    let answer = prompt("  [y]es, [n]o: ").await.ok_or_else(nobody)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Whether what cannot be taken back is meant: `yes` says so, or the person does who is told what it
/// is.
///
/// # Errors
/// When nobody is there.
pub(crate) async fn confirm(
    yes: bool,
    what: impl Display,
    question: &str,
) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    print_note(what);
    let is_meant = ask_yes_no(question).await?;
    if !is_meant {
        print_note("Nothing was changed.");
    }
    Ok(is_meant)
}

/// The questions that a face shows, by their ids.
static FACE_QUESTIONS: std::sync::Mutex<BTreeMap<String, oneshot::Sender<Elicited>>> =
    std::sync::Mutex::new(BTreeMap::new());

/// How many questions were asked so. An id is used once: a late answer is one to nothing.
static NEXT_QUESTION_ID: AtomicU64 = AtomicU64::new(1);

fn face_questions() -> std::sync::MutexGuard<'static, BTreeMap<String, oneshot::Sender<Elicited>>> {
    FACE_QUESTIONS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Asks in the face that has the terminal; nothing where none has.
fn ask_in_face(plugin: &str, question: &Elicit) -> Option<oneshot::Receiver<Elicited>> {
    let (answer, answered) = oneshot::channel();
    let mut waiting = face_questions();
    waiting.retain(|_, answer| !answer.is_closed());
    let id = NEXT_QUESTION_ID.fetch_add(1, Ordering::Relaxed).to_string();
    let asked = QuestionAsked {
        id: id.clone(),
        plugin: plugin.to_owned(),
        call_id: None,
        message: question.message.clone(),
        schema: question.schema.clone(),
        url: question.url.clone(),
    };
    if !output::send_to_face(Update::Question(asked)) {
        return None;
    }
    waiting.insert(id, answer);
    Some(answered)
}

/// Gives the answer to a question that a face shows; nothing where the person does not want to.
pub(crate) fn answer_in_face(id: &str, content: Option<serde_json::Map<String, Value>>) {
    if let Some(waiting) = face_questions().remove(id) {
        let answer = match content {
            Some(content) => elicited_answer("accept", content.into_iter().collect()),
            None => elicited_answer("decline", BTreeMap::new()),
        };
        // Whoever asked may have gone.
        let _ = waiting.send(answer);
    }
}

/// Waits until the person in a face stops what runs: whether they did, or the face is gone. A plugin
/// may ask while it is loaded, so that their answers go where they belong meanwhile.
pub(crate) async fn wait_for_stop(requests: &mut mpsc::Receiver<PersonRequest>) -> bool {
    while let Some(request) = requests.recv().await {
        match request {
            PersonRequest::Stop => return true,
            PersonRequest::Answer { id, content } => answer_in_face(&id, content),
            _ => {}
        }
    }
    false
}

/// Puts questions of plugins to the person at the terminal; with no terminal they are cancelled.
pub(crate) struct Terminal;

impl Asker for Terminal {
    fn elicit(&self, plugin: String, question: Elicit) -> BoxFuture<'static, Elicited> {
        Box::pin(async move {
            if let Some(answer) = ask_in_face(&plugin, &question) {
                return answer
                    .await
                    .unwrap_or_else(|_| elicited_answer("cancel", BTreeMap::new()));
            }
            if !std::io::stdin().is_terminal() {
                return elicited_answer("cancel", BTreeMap::new());
            }
            let _asking = ASKING.lock().await;
            let _held = drawn_turn::hold();
            print_note(format_args!(
                "\n{YELLOW}?{RESET} {BOLD}{}{RESET} asks: {}",
                clean(&plugin),
                clean(&question.message)
            ));
            if let Some(url) = &question.url {
                print_note(format_args!("  Open {}", clean(url)));
            }
            let filled = match FormField::all(question.schema.as_ref()) {
                fields if fields.is_empty() => ask_agreement().await,
                fields => fill_in_form(&fields).await,
            };
            match filled {
                Ok(content) => elicited_answer("accept", content),
                Err(refusal) => elicited_answer(refusal.action(), BTreeMap::new()),
            }
        })
    }
}

/// How a person leaves a question that stands on lines.
enum QuestionRefusal {
    /// The person does not want to answer.
    Decline,
    /// The person looked away, or is not there any more.
    Cancel,
}

impl QuestionRefusal {
    /// As the protocol calls it.
    fn action(&self) -> &'static str {
        match self {
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}

/// What cancels a question where it is typed as an answer.
const CANCEL: &str = "/cancel";

/// Asks for a yes to a question without fields.
async fn ask_agreement() -> Result<BTreeMap<String, Value>, QuestionRefusal> {
    loop {
        match yes_or_no(&answer_line("  [y]es, [n]o: ").await?) {
            Some(true) => return Ok(BTreeMap::new()),
            Some(false) => return Err(QuestionRefusal::Decline),
            None => print_note(format_args!(
                "  That is no answer: y or n; {CANCEL} cancels the question."
            )),
        }
    }
}

/// Asks for each field of a form on a line of its own.
async fn fill_in_form(fields: &[FormField]) -> Result<BTreeMap<String, Value>, QuestionRefusal> {
    print_note(format_args!(
        "  {DECLINE} declines the form, {CANCEL} cancels it. Enter alone leaves an optional field out, \
         or takes the default in brackets."
    ));
    let mut content = BTreeMap::new();
    for field in fields {
        print_note(format_args!("  {}", clean(&field.label())));
        let about = field.about();
        if !about.is_empty() {
            print_note(format_args!("    {}", clean(&about)));
        }
        for choice in field.choices() {
            print_note(format_args!("    {}", clean(&choice)));
        }
        if let Some(value) = field_value(field).await? {
            content.insert(field.name().to_owned(), value);
        }
    }
    Ok(content)
}

/// Asks for a field until the answer fits it; nothing where it is left out.
async fn field_value(field: &FormField) -> Result<Option<Value>, QuestionRefusal> {
    loop {
        match field.parse_answer(&answer_line("  > ").await?) {
            FieldAnswer::Value(value) => return Ok(Some(value)),
            FieldAnswer::Omitted => return Ok(None),
            FieldAnswer::Invalid(problem) => print_note(format_args!("  {}", clean(&problem))),
        }
    }
}

/// Reads an answer, unless it leaves the question.
async fn answer_line(prompted: &str) -> Result<String, QuestionRefusal> {
    let line = prompt(prompted).await.ok_or(QuestionRefusal::Cancel)?;
    match line.trim() {
        DECLINE => Err(QuestionRefusal::Decline),
        CANCEL => Err(QuestionRefusal::Cancel),
        _ => Ok(line),
    }
}

fn elicited_answer(action: &str, content: BTreeMap<String, Value>) -> Elicited {
    Elicited {
        action: action.to_owned(),
        content,
    }
}

/// What was typed for a field, as its schema says. What cannot be a value of it stays text, so that
/// the session says what is wrong with it.
pub(super) fn parse_value(text: &str, field: &Value) -> Value {
    let field = FormField::new("", field, false);
    field.value(text).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_a_stop_hands_answers_over_and_knows_who_is_gone() {
        let (person, mut requests) = mpsc::channel(4);
        let (answer, answered) = oneshot::channel();
        let id = "asked-while-a-list-is-made".to_owned();
        face_questions().insert(id.clone(), answer);
        let content = None;
        person
            .try_send(PersonRequest::Answer { id, content })
            .unwrap();
        person.try_send(PersonRequest::Stop).unwrap();
        assert!(wait_for_stop(&mut requests).await);
        assert_eq!(answered.await.unwrap().action, "decline");
        drop(person);
        assert!(!wait_for_stop(&mut requests).await);
    }

    #[test]
    fn what_is_typed_has_the_kind_of_its_field_or_stays_text() {
        for (field, text, value) in [
            (json!({ "type": "integer", "maximum": 3 }), "50", json!(50)),
            (json!({ "type": "integer" }), "many", json!("many")),
            (json!({ "type": "boolean" }), "no", json!(false)),
            (json!({ "type": "boolean" }), "maybe", json!("maybe")),
            (json!({ "type": "string" }), "", json!("")),
            (
                json!({ "type": "array", "items": { "enum": ["a", "b"] } }),
                "a,b",
                json!(["a", "b"]),
            ),
        ] {
            assert_eq!(parse_value(text, &field), value, "{field}: {text}");
        }
    }
}
