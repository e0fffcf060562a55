//! What plugins ask whoever is on the other side of a session: a form, a page, an answer of a
//! model, the directories to work in.
//!
//! Where a program is on the other side (an MCP client), it is asked first; what it cannot answer
//! the host answers as it would without it, and what nobody can answer is refused.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_abi::{Fault, code};
use conjure_skill_sdk::protocol::{Root, Roots, ServedClient, host_op};
use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::permission_check::PermissionCheck;
use super::sampling::{CurrentModel, sample};
use super::services::Asker;

/// Asks several questions at once.
pub(crate) const ASK: &str = "ask";
/// The most questions of one round.
const MOST: usize = 32;

/// The client program of a session.
pub trait SessionClient: Send + Sync + 'static {
    /// What it declared that it can answer.
    fn declares(&self) -> ServedClient;

    /// Puts questions to it, together, and waits for all answers: for each the answer, or nothing
    /// where it cannot be asked that.
    fn ask(
        &self,
        by: QuestionSource,
        questions: Vec<ClientQuestion>,
    ) -> BoxFuture<'static, Vec<ClientAnswer>>;
}

/// What came of a question to the client: nothing when it cannot be asked such.
pub type ClientAnswer = Option<Result<Value, Fault>>;

/// The plugin that asks, and for which call.
#[derive(Debug, Clone)]
pub struct QuestionSource {
    /// The plugin's name.
    pub plugin: String,
    /// The call in which it asks.
    pub call_id: Option<Arc<str>>,
}

/// A question to the session's client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientQuestion {
    /// What the asker calls it, if anything.
    pub key: Option<String>,
    /// What is asked for.
    pub kind: QuestionKind,
    /// The request of the operation, as the plugin wrote it.
    pub body: Value,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionKind {
    /// A person.
    Elicit,
    /// A model.
    Sample,
    /// The directories.
    Roots,
}

impl QuestionKind {
    fn of(op: &str) -> Option<Self> {
        match op {
            host_op::ELICIT => Some(Self::Elicit),
            host_op::SAMPLE => Some(Self::Sample),
            host_op::ROOTS => Some(Self::Roots),
            _ => None,
        }
    }

    /// The operation that asks it.
    pub fn op(self) -> &'static str {
        match self {
            Self::Elicit => host_op::ELICIT,
            Self::Sample => host_op::SAMPLE,
            Self::Roots => host_op::ROOTS,
        }
    }

    /// What an answer is tagged with in the reply of [`ASK`].
    fn answer_tag(self) -> &'static str {
        match self {
            Self::Elicit => "elicited",
            Self::Sample => "sampled",
            Self::Roots => "roots",
        }
    }
}

/// Whether an operation waits for somebody outside the host.
pub(super) fn waits_for_somebody(op: &str) -> bool {
    op == ASK || QuestionKind::of(op).is_some()
}

/// Client, person and model that answer the questions of one plugin.
pub(super) struct Answerers {
    pub(super) source: QuestionSource,
    /// Whether it may ask a model.
    pub(super) sampling: PermissionCheck,
    pub(super) client: Option<Arc<dyn SessionClient>>,
    pub(super) asker: Arc<dyn Asker>,
    pub(super) current_model: CurrentModel,
    pub(super) working_dir: PathBuf,
}

impl Answerers {
    /// Serves `elicit`, `sample`, `roots` and `ask`.
    pub(super) async fn serve(&self, op: &str, json: &[u8]) -> Result<Vec<u8>, Fault> {
        let Some(kind) = QuestionKind::of(op) else {
            return self.answer_batch(json).await;
        };
        let body = parse(op, json)?;
        let question = ClientQuestion {
            key: None,
            kind,
            body,
        };
        let mut answers = self.answer_all(vec![question]).await;
        bytes(&answers.pop().unwrap_or_else(|| Err(unanswered(kind)))?)
    }

    async fn answer_batch(&self, json: &[u8]) -> Result<Vec<u8>, Fault> {
        let request: Value = parse(ASK, json)?;
        let questions = request.get("questions").and_then(Value::as_object);
        let questions = questions.ok_or_else(|| invalid("it has no `questions`"))?;
        if questions.len() > MOST {
            return Err(invalid(&format!("it has more than {MOST} questions")));
        }
        let read = |(key, body): (&String, &Value)| {
            let kind = body.get("ask").and_then(Value::as_str);
            let kind = kind.and_then(QuestionKind::of);
            let kind = kind.ok_or_else(|| invalid(&format!("`{key}` asks nothing known")))?;
            Ok(ClientQuestion {
                key: Some(key.clone()),
                kind,
                body: body.clone(),
            })
        };
        let questions: Vec<ClientQuestion> =
            questions.iter().map(read).collect::<Result<_, Fault>>()?;
        let asked: Vec<_> = questions.iter().map(|q| (q.key.clone(), q.kind)).collect();
        let answers = self.answer_all(questions).await;
        let mut reply = Map::new();
        for ((key, kind), answer) in asked.into_iter().zip(answers) {
            let tagged = match answer {
                Ok(Value::Object(mut answer)) => {
                    answer.insert("answer".to_owned(), kind.answer_tag().into());
                    Value::Object(answer)
                }
                Ok(_) => {
                    json!({ "answer": "refused", "code": code::FAILED, "message": "no answer" })
                }
                Err(fault) => {
                    json!({ "answer": "refused", "code": fault.code, "message": fault.text() })
                }
            };
            reply.insert(key.unwrap_or_default(), tagged);
        }
        bytes(&json!({ "answers": reply }))
    }

    async fn answer_all(&self, questions: Vec<ClientQuestion>) -> Vec<Result<Value, Fault>> {
        let mut answers: Vec<Option<Result<Value, Fault>>> = Vec::new();
        answers.resize_with(questions.len(), || None);
        for (question, answer) in questions.iter().zip(&mut answers) {
            if question.kind == QuestionKind::Sample
                && let Err(refused) = self.sampling.sample(&self.source.plugin)
            {
                *answer = Some(Err(refused));
            }
        }
        if let Some(client) = &self.client {
            let open: Vec<usize> = (0..questions.len())
                .filter(|at| answers.get(*at).is_some_and(Option::is_none))
                .collect();
            let put = open.iter().filter_map(|at| questions.get(*at).cloned());
            let put: Vec<ClientQuestion> = put.collect();
            if !put.is_empty() {
                let told = client.ask(self.source.clone(), put).await;
                for (at, told) in open.into_iter().zip(told) {
                    if let Some(answer) = answers.get_mut(at) {
                        *answer = told;
                    }
                }
            }
        }
        let rest = questions.into_iter().zip(answers);
        let rest = rest.map(|(question, answer)| async move {
            match answer {
                Some(answer) => answer,
                None => self.answer_from_host(question).await,
            }
        });
        join_all(rest).await
    }

    /// What the host answers itself.
    async fn answer_from_host(&self, question: ClientQuestion) -> Result<Value, Fault> {
        let kind = question.kind;
        match kind {
            QuestionKind::Roots => value(&Roots {
                roots: vec![Root {
                    uri: format!("file://{}", self.working_dir.display()),
                    name: Some("working directory".to_owned()),
                }],
            }),
            QuestionKind::Elicit => {
                if self.client.is_some() && !self.asker.is_available() {
                    return Err(unanswered(kind));
                }
                let question = from_value(kind, question.body)?;
                let QuestionSource { plugin, call_id } = self.source.clone();
                value(&self.asker.elicit_in(plugin, call_id, question).await)
            }
            QuestionKind::Sample => {
                if self.client.is_some() && self.current_model.load().is_none() {
                    return Err(unanswered(kind));
                }
                let request = from_value(kind, question.body)?;
                let sampled = sample(&self.current_model, &self.source.plugin, request).await;
                value(&sampled.map_err(|error| Fault::new(code::FAILED, error))?)
            }
        }
    }
}

fn unanswered(kind: QuestionKind) -> Fault {
    let (what, capability) = match kind {
        QuestionKind::Elicit => ("nobody is there who could be asked", "elicitation"),
        QuestionKind::Sample => ("no model is there that could be asked", "sampling"),
        QuestionKind::Roots => ("no directories are told", "roots"),
    };
    let text = format!("{what}: the MCP client did not declare the capability `{capability}`");
    Fault::new(code::DENIED, text)
}

fn invalid(reason: &str) -> Fault {
    Fault::new(code::INVALID, format!("`{ASK}`: {reason}"))
}

fn parse<T: DeserializeOwned>(op: &str, json: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(json)
        .map_err(|error| Fault::new(code::INVALID, format!("`{op}`: {error}")))
}

fn from_value<T: DeserializeOwned>(kind: QuestionKind, body: Value) -> Result<T, Fault> {
    serde_json::from_value(body)
        .map_err(|error| Fault::new(code::INVALID, format!("`{}`: {error}", kind.op())))
}

fn value<T: Serialize>(answer: &T) -> Result<Value, Fault> {
    serde_json::to_value(answer).map_err(|error| Fault::new(code::FAILED, error.to_string()))
}

fn bytes(reply: &Value) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(reply).map_err(|error| Fault::new(code::FAILED, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arc_swap::ArcSwapOption;
    use conjure_skill_sdk::protocol::Permissions;

    use super::super::services::NoAsker;
    use super::*;

    /// Answers roots only, and keeps what it was asked.
    struct RootsOnly(Mutex<Vec<Vec<ClientQuestion>>>);

    impl SessionClient for RootsOnly {
        fn declares(&self) -> ServedClient {
            ServedClient {
                roots: true,
                ..ServedClient::default()
            }
        }

        fn ask(
            &self,
            _by: QuestionSource,
            asked: Vec<ClientQuestion>,
        ) -> BoxFuture<'static, Vec<ClientAnswer>> {
            let answers = asked
                .iter()
                .map(|question| {
                    (question.kind == QuestionKind::Roots)
                        .then(|| Ok(json!({ "roots": [{ "uri": "file:///client" }] })))
                })
                .collect();
            self.0.lock().unwrap().push(asked);
            Box::pin(std::future::ready(answers))
        }
    }

    fn may_sample(sample: bool) -> PermissionCheck {
        let asked = Permissions {
            sample,
            ..Permissions::default()
        };
        PermissionCheck::new(&asked, None)
    }

    fn answerers(client: Option<Arc<dyn SessionClient>>) -> Answerers {
        Answerers {
            source: QuestionSource {
                plugin: "p".to_owned(),
                call_id: None,
            },
            sampling: may_sample(true),
            client,
            asker: Arc::new(NoAsker),
            current_model: Arc::new(ArcSwapOption::empty()),
            working_dir: "/work".into(),
        }
    }

    async fn served(answerers: &Answerers, op: &str, body: Value) -> Result<Value, Fault> {
        let reply = answerers.serve(op, body.to_string().as_bytes()).await?;
        Ok(serde_json::from_slice(&reply).unwrap())
    }

    #[tokio::test]
    async fn questions_of_a_round_go_to_the_client_together_and_the_rest_is_refused_alone() {
        let client = Arc::new(RootsOnly(Mutex::default()));
        let answerers = answerers(Some(Arc::clone(&client) as _));
        let reply = served(
            &answerers,
            ASK,
            json!({ "questions": {
                "name": { "ask": "elicit", "message": "Your name?" },
                "dirs": { "ask": "roots" },
                "word": { "ask": "sample", "messages": [{ "role": "user", "text": "hi" }] },
            } }),
        )
        .await
        .unwrap();
        let answers = &reply["answers"];
        assert_eq!(answers["name"]["answer"], "refused");
        assert_eq!(answers["word"]["answer"], "refused");
        assert_eq!(
            answers["dirs"],
            json!({ "answer": "roots", "roots": [{ "uri": "file:///client" }] })
        );
        let rounds = client.0.lock().unwrap();
        let keys: Vec<_> = rounds[0].iter().filter_map(|q| q.key.as_deref()).collect();
        assert_eq!((rounds.len(), keys), (1, vec!["name", "dirs", "word"]));
    }

    #[tokio::test]
    async fn without_a_client_the_host_answers_as_ever() {
        let answerers = answerers(None);
        let roots = served(&answerers, "roots", json!({})).await.unwrap();
        assert_eq!(roots["roots"][0]["uri"], "file:///work");
        let asked = served(&answerers, "elicit", json!({ "message": "?" })).await;
        assert_eq!(asked.unwrap()["action"], "cancel");
        let sampled = served(&answerers, "sample", json!({ "messages": [] })).await;
        assert!(sampled.unwrap_err().text().contains("no model"));
    }

    #[tokio::test]
    async fn a_plugin_without_the_permission_asks_no_model() {
        let client = Arc::new(RootsOnly(Mutex::default()));
        let mut answerers = answerers(Some(Arc::clone(&client) as _));
        answerers.sampling = may_sample(false);
        let refused = served(&answerers, "sample", json!({ "messages": [] })).await;
        assert_eq!(refused.unwrap_err().code, code::DENIED);
        assert!(client.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_round_that_is_none_is_refused() {
        let answerers = answerers(None);
        for body in [
            json!({}),
            json!({ "questions": [] }),
            json!({ "questions": { "a": { "ask": "kv.get" } } }),
            json!({ "questions": (0..33).map(|n| (n.to_string(), json!({ "ask": "roots" }))).collect::<Map<_, _>>() }),
        ] {
            let refused = served(&answerers, ASK, body).await.unwrap_err();
            assert_eq!(refused.code, code::INVALID);
        }
    }
}
