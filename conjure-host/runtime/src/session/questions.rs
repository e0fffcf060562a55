//! Questions of plugins and servers to the person of a saved session: they wait here until some
//! client answers, their asker gives up, or their time is over.
//!
//! The questions and their ends are events of the thread. What was answered is told to the asker
//! and to nobody else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use conjure_core::chat::{Event, QuestionAsked};
use conjure_skill_sdk::protocol::{Elicit, Elicited};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Asker;
use crate::backend::reports::{ReportSender, TaskReport};

/// Questions that may wait in one session; one more is cancelled.
const MOST: usize = 32;
/// The most bytes of a form's schema.
const MOST_SCHEMA: usize = 256 * 1024;

/// The questions of one session.
pub(crate) struct Questions {
    /// How long each waits.
    patience: Duration,
    open: Mutex<BTreeMap<String, OpenQuestion>>,
    /// Whether somebody may come; where nobody does, a question is cancelled at once.
    attended: AtomicBool,
    /// Where the session's actor hears of them.
    actor: OnceLock<ReportSender>,
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingQuestion {
    /// What is asked.
    #[serde(flatten)]
    pub question: QuestionAsked,
    /// After how many milliseconds it is cancelled.
    pub cancelled_in_ms: u64,
}

struct OpenQuestion {
    question: QuestionAsked,
    deadline: Instant,
    answer: oneshot::Sender<Elicited>,
}

/// What a person answers.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionReply {
    /// The form, filled in; nothing where a page was to be visited.
    Accept(Map<String, Value>),
    /// The person does not want to answer.
    Decline,
    /// The person looked away.
    Cancel,
}

/// The reason why an answer is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerRefusal {
    /// No such question waits.
    Gone,
    /// The answer does not fit the form.
    Unfit(String),
}

impl Questions {
    /// An empty set of questions, each of which will wait for `patience`.
    pub(super) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            open: Mutex::default(),
            attended: AtomicBool::new(true),
            actor: OnceLock::new(),
        })
    }

    /// The one who asks the person of a session. Until its actor can be told, such as while backends
    /// open, whoever sits at this program is asked.
    pub(super) fn asker(self: &Arc<Self>, fallback: Arc<dyn Asker>) -> Arc<dyn Asker> {
        Arc::new(QuestionAsker {
            questions: Arc::clone(self),
            fallback,
        })
    }

    /// From here on the actor is told.
    pub(super) fn set_actor(&self, actor: ReportSender) {
        let _ = self.actor.set(actor);
    }

    /// Says whether somebody may come from here on. Where nobody does, what waits is cancelled.
    pub(super) fn attend(&self, attended: bool) {
        self.attended.store(attended, Ordering::Relaxed);
        if !attended {
            // Whoever asked hears of it, as no answer can come any more.
            self.lock().clear();
        }
    }

    /// Questions that wait, the oldest first.
    pub(crate) fn pending(&self) -> Vec<PendingQuestion> {
        let now = Instant::now();
        let open = self.lock();
        let pending = open.values().map(|open| PendingQuestion {
            question: open.question.clone(),
            cancelled_in_ms: u64::try_from(
                open.deadline.saturating_duration_since(now).as_millis(),
            )
            .unwrap_or(u64::MAX),
        });
        pending.collect()
    }

    /// Answers one that waits. The first answer counts.
    pub(crate) fn answer(&self, id: &str, reply: QuestionReply) -> Result<(), AnswerRefusal> {
        let asked = {
            let open = self.lock();
            let open = open.get(id).ok_or(AnswerRefusal::Gone)?;
            open.question.clone()
        };
        let elicited = match reply {
            QuestionReply::Accept(content) => Elicited {
                action: "accept".to_owned(),
                content: check_content(&asked, content).map_err(AnswerRefusal::Unfit)?,
            },
            QuestionReply::Decline => empty_answer("decline"),
            QuestionReply::Cancel => empty_answer("cancel"),
        };
        // The form was looked at without the lock: somebody else may have been first.
        let open = self.lock().remove(id).ok_or(AnswerRefusal::Gone)?;
        open.answer.send(elicited).map_err(|_| AnswerRefusal::Gone)
    }

    fn open_question(
        &self,
        asked: QuestionAsked,
    ) -> Option<(oneshot::Receiver<Elicited>, Instant)> {
        let (answer, answered) = oneshot::channel();
        let until = Instant::now() + self.patience;
        let mut open = self.lock();
        if open.len() >= MOST || !self.attended.load(Ordering::Relaxed) {
            return None;
        }
        open.insert(
            asked.id.clone(),
            OpenQuestion {
                question: asked,
                deadline: until,
                answer,
            },
        );
        Some((answered, until))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenQuestion>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct QuestionAsker {
    questions: Arc<Questions>,
    fallback: Arc<dyn Asker>,
}

impl Asker for QuestionAsker {
    fn elicit(&self, plugin: String, question: Elicit) -> BoxFuture<'static, Elicited> {
        self.elicit_in(plugin, None, question)
    }

    fn elicit_in(
        &self,
        plugin: String,
        call_id: Option<Arc<str>>,
        question: Elicit,
    ) -> BoxFuture<'static, Elicited> {
        let questions = Arc::clone(&self.questions);
        let Some(actor) = questions.actor.get().cloned() else {
            return self.fallback.elicit_in(plugin, call_id, question);
        };
        let asked = QuestionAsked {
            id: uuid::Uuid::now_v7().to_string(),
            plugin,
            call_id: call_id.map(|id| id.to_string()),
            message: question.message,
            schema: question.schema,
            url: question.url,
        };
        async move {
            let Some((answered, until)) = questions.open_question(asked.clone()) else {
                return empty_answer("cancel");
            };
            let mut waiting = QuestionWait {
                id: asked.id.clone(),
                action: "cancel".to_owned(),
                questions: Arc::clone(&questions),
                actor: actor.clone(),
            };
            let told = TaskReport::Event(Event::Question(asked));
            if !actor.send(told).await {
                return empty_answer("cancel");
            }
            match tokio::time::timeout_at(until, answered).await {
                Ok(Ok(answer)) => {
                    waiting.action.clone_from(&answer.action);
                    answer
                }
                _ => empty_answer("cancel"),
            }
        }
        .boxed()
    }
}

/// Ends a question when its asker stops waiting, also when the call is cancelled.
struct QuestionWait {
    id: String,
    action: String,
    questions: Arc<Questions>,
    actor: ReportSender,
}

impl Drop for QuestionWait {
    fn drop(&mut self) {
        self.questions.lock().remove(&self.id);
        let over = TaskReport::Event(Event::QuestionOver {
            id: std::mem::take(&mut self.id),
            action: std::mem::take(&mut self.action),
        });
        self.actor.post(over);
    }
}

fn empty_answer(action: &str) -> Elicited {
    Elicited {
        action: action.to_owned(),
        content: BTreeMap::new(),
    }
}

/// The content of an answer, with the defaults of the fields that were left out, if it is what the
/// form asks for.
fn check_content(
    asked: &QuestionAsked,
    mut content: Map<String, Value>,
) -> Result<BTreeMap<String, Value>, String> {
    let Some(schema) = &asked.schema else {
        if content.is_empty() {
            return Ok(BTreeMap::new());
        }
        return Err("nothing is to be filled in: leave `content` out".to_owned());
    };
    if has_reference(schema) || schema.to_string().len() > MOST_SCHEMA {
        return Err(
            "the form is none that can be checked: it refers elsewhere or is too large; \
                    decline the question"
                .to_owned(),
        );
    }
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        if let Some(default) = field.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
    let options = jsonschema::options()
        .should_validate_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex());
    let validator = options.build(schema).map_err(|error| {
        format!("the form is none that can be checked: {error}; decline the question")
    })?;
    let content = Value::Object(content);
    if let Some(error) = validator.iter_errors(&content).next() {
        let place = error.instance_path().to_string();
        let place = place.trim_start_matches('/');
        // What was filled in may be secret: the rule is told, and not the value.
        let why = error.masked();
        return Err(match place {
            "" => format!("`content` does not fit the form: {why}"),
            place => format!("`content.{place}` does not fit the form: {why}"),
        });
    }
    match content {
        Value::Object(content) => Ok(content.into_iter().collect()),
        _ => Ok(BTreeMap::new()),
    }
}

/// Whether a schema refers to others, or to itself. Forms are flat, and a circle has no end.
fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| {
            matches!(name.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")
                || has_reference(value)
        }),
        Value::Array(items) => items.iter().any(has_reference),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::backend::NoAsker;

    fn question(schema: Option<Value>) -> QuestionAsked {
        QuestionAsked {
            id: "q".to_owned(),
            plugin: "p".to_owned(),
            call_id: None,
            message: "?".to_owned(),
            schema,
            url: None,
        }
    }

    fn fits(schema: &Value, content: &Value) -> Result<BTreeMap<String, Value>, String> {
        let content = content.as_object().cloned().unwrap();
        check_content(&question(Some(schema.clone())), content)
    }

    #[test]
    fn an_answer_is_what_the_form_asks_for() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "maxLength": 5 },
                "count": { "type": "integer", "default": 3 },
                "mail": { "type": "string", "format": "email" },
            },
            "required": ["name", "count"],
        });
        let taken = fits(&schema, &json!({ "name": "Ada" })).unwrap();
        assert_eq!(
            (&taken["name"], &taken["count"]),
            (&json!("Ada"), &json!(3))
        );
        for (wrong, said) in [
            (json!({}), "name"),
            (json!({ "name": 5 }), "content.name"),
            (json!({ "name": "hunter2" }), "content.name"),
            (json!({ "name": "Ada", "mail": "nowhere" }), "content.mail"),
        ] {
            let why = fits(&schema, &wrong).unwrap_err();
            assert!(why.contains(said) && !why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn a_form_that_cannot_be_checked_is_not_filled_in() {
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "properties": { "a": { "$ref": "https://nowhere.example/schema" } } }),
            json!({ "properties": { "a": { "type": "nonsense" } } }),
        ] {
            let why = fits(&schema, &json!({ "a": 1 })).unwrap_err();
            assert!(why.contains("decline"), "{why}");
        }
        let page = question(None);
        assert!(check_content(&page, Map::new()).is_ok());
        let filled = json!({ "a": 1 }).as_object().cloned().unwrap();
        assert!(check_content(&page, filled).is_err());
    }

    fn elicit() -> Elicit {
        Elicit {
            message: "Go on?".to_owned(),
            ..Elicit::default()
        }
    }

    /// Somebody who accepts.
    struct Willing;

    impl Asker for Willing {
        fn elicit(&self, _plugin: String, _question: Elicit) -> BoxFuture<'static, Elicited> {
            std::future::ready(empty_answer("accept")).boxed()
        }
    }

    #[tokio::test]
    async fn whoever_sits_there_is_asked_while_the_session_opens_and_the_session_then() {
        let questions = Questions::new(Duration::from_secs(60));
        let asker = questions.asker(Arc::new(Willing));
        let answer = asker.elicit("p".to_owned(), elicit()).await;
        assert_eq!(answer.action, "accept");
        let (actor, mut told) = ReportSender::channel();
        questions.set_actor(actor);
        let asking = tokio::spawn(asker.elicit("p".to_owned(), elicit()));
        assert!(told.recv().await.is_some());
        let id = questions.pending()[0].question.id.clone();
        questions.answer(&id, QuestionReply::Decline).unwrap();
        assert_eq!(asking.await.unwrap().action, "decline");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_answered_once_or_ends_by_its_deadline() {
        let questions = Questions::new(Duration::from_secs(60));
        let (actor, mut told) = ReportSender::channel();
        questions.set_actor(actor);
        let asking = tokio::spawn(
            questions
                .asker(Arc::new(NoAsker))
                .elicit("p".to_owned(), elicit()),
        );
        let Some(TaskReport::Event(Event::Question(asked))) = told.recv().await.map(|told| *told)
        else {
            panic!("nobody was told");
        };
        let pending = questions.pending();
        assert_eq!(pending[0].question, asked);
        assert!(pending[0].cancelled_in_ms <= 60_000);
        questions.answer(&asked.id, QuestionReply::Decline).unwrap();
        let second = questions.answer(&asked.id, QuestionReply::Cancel);
        assert_eq!(second, Err(AnswerRefusal::Gone));
        assert_eq!(asking.await.unwrap().action, "decline");
        let over = |told: Option<Box<TaskReport>>| match told.map(|told| *told) {
            Some(TaskReport::Event(Event::QuestionOver { id, action })) => (id, action),
            _ => panic!("it is not over"),
        };
        let declined = (asked.id, "decline".to_owned());
        assert_eq!(over(told.recv().await), declined);
        // Nobody answers this one, and the asker of the next goes away.
        let alone = questions
            .asker(Arc::new(NoAsker))
            .elicit("p".to_owned(), elicit())
            .await;
        assert_eq!(alone.action, "cancel");
        told.recv().await;
        assert_eq!(over(told.recv().await).1, "cancel");
        let given_up = tokio::spawn(
            questions
                .asker(Arc::new(NoAsker))
                .elicit("p".to_owned(), elicit()),
        );
        told.recv().await;
        given_up.abort();
        assert_eq!(over(told.recv().await).1, "cancel");
        assert_eq!(questions.pending(), []);
    }
}
