//! What plugins ask an MCP client: sampling, elicitation, roots.
//!
//! A question belongs to the call that asks it. It goes to the client if the client declared that
//! it can answer such; how it travels is the business of its request, and differs by era.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use conjure_abi::{Fault, code};
use conjure_skill_sdk::protocol::ServedClient;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rmcp::model::ClientCapabilities;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use conjure_runtime::backend::questions::{
    ClientAnswer, ClientQuestion, QuestionKind, QuestionSource, SessionClient,
};

/// Rounds of questions of one call that may wait.
const MAX_WAITING_ROUNDS: usize = 8;

/// The questions of one session's calls.
#[derive(Default)]
pub(super) struct SessionQuestions {
    /// Abilities that the client declared when it opened the session.
    declared: OnceLock<ClientQuestionKinds>,
    /// The calls under way, by their ids.
    calls: Mutex<HashMap<Arc<str>, Arc<AskingCall>>>,
}

/// A call that may ask.
pub(super) struct AskingCall {
    kinds: ClientQuestionKinds,
    /// Answers that came with the first request.
    initial_answers: Mutex<BTreeMap<String, Value>>,
    rounds: mpsc::Sender<QuestionRound>,
    /// Kinds of questions that the call asked and the client did not declare.
    undeclared_kinds: Mutex<BTreeSet<QuestionKind>>,
    number: AtomicU32,
}

/// Questions that are asked together.
pub(super) struct QuestionRound {
    pub(super) questions: Vec<(String, ClientQuestion)>,
    pub(super) reply: oneshot::Sender<Vec<Result<Value, Fault>>>,
}

/// The kinds of questions that a client declared that it can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct ClientQuestionKinds {
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
}

impl ClientQuestionKinds {
    pub(super) fn of(capabilities: Option<&ClientCapabilities>) -> Self {
        let Some(capabilities) = capabilities else {
            return Self::default();
        };
        // Read as JSON: two of the three are marked as deprecated in the SDK.
        let declared = serde_json::to_value(capabilities).unwrap_or_default();
        let elicitation = declared.get("elicitation");
        let url = elicitation.is_some_and(|e| e.get("url").is_some());
        // An empty capability means forms.
        let form = elicitation.is_some_and(|e| e.get("form").is_some() || !url);
        Self {
            form,
            url,
            sampling: declared.get("sampling").is_some(),
            roots: declared.get("roots").is_some(),
        }
    }

    /// The client's abilities in the SDK's type, for plugins.
    pub(super) fn served(self) -> ServedClient {
        ServedClient {
            form: self.form,
            url: self.url,
            sample: self.sampling,
            roots: self.roots,
        }
    }

    fn answers(self, question: &ClientQuestion) -> bool {
        match question.kind {
            QuestionKind::Elicit if is_page(question) => self.url,
            QuestionKind::Elicit => self.form,
            QuestionKind::Sample => self.sampling,
            QuestionKind::Roots => self.roots,
        }
    }
}

/// Whether a page is to be visited instead of a form filled in.
fn is_page(question: &ClientQuestion) -> bool {
    question.body.get("url").is_some_and(Value::is_string)
}

impl SessionQuestions {
    /// Notes what the client declared; only the first time counts.
    pub(super) fn declare(&self, kinds: impl FnOnce() -> ClientQuestionKinds) {
        self.declared.get_or_init(kinds);
    }

    /// From here on the call with this id can ask.
    pub(super) fn begin(
        &self,
        id: &Arc<str>,
        kinds: ClientQuestionKinds,
        ready: BTreeMap<String, Value>,
    ) -> (Arc<AskingCall>, mpsc::Receiver<QuestionRound>) {
        let (rounds, asked) = mpsc::channel(MAX_WAITING_ROUNDS);
        let call = Arc::new(AskingCall {
            kinds,
            initial_answers: Mutex::new(ready),
            rounds,
            undeclared_kinds: Mutex::default(),
            number: AtomicU32::new(0),
        });
        lock(&self.calls).insert(Arc::clone(id), Arc::clone(&call));
        (call, asked)
    }

    /// The call is over.
    pub(super) fn end(&self, id: &str) {
        lock(&self.calls).remove(id);
    }

    /// Number of running calls.
    pub(super) fn len(&self) -> usize {
        lock(&self.calls).len()
    }

    /// The call that asks. A backend that asks outside any call means the only one that there is.
    fn call(&self, id: Option<&str>) -> Option<Arc<AskingCall>> {
        let calls = lock(&self.calls);
        match id {
            Some(id) => calls.get(id).cloned(),
            None if calls.len() == 1 => calls.values().next().cloned(),
            None => None,
        }
    }
}

impl AskingCall {
    /// Abilities that the call needed and the client did not declare.
    pub(super) fn undeclared(&self) -> Option<ClientCapabilities> {
        let missing = lock(&self.undeclared_kinds);
        if missing.is_empty() {
            return None;
        }
        let names = missing.iter().map(|kind| {
            let name = match kind {
                QuestionKind::Elicit => "elicitation",
                QuestionKind::Sample => "sampling",
                QuestionKind::Roots => "roots",
            };
            (name.to_owned(), json!({}))
        });
        serde_json::from_value(Value::Object(names.collect())).ok()
    }

    fn key(&self, question: &ClientQuestion) -> String {
        match &question.key {
            Some(key) => key.clone(),
            None => {
                let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
                format!("{}-{number}", question.kind.op())
            }
        }
    }

    async fn ask(&self, questions: Vec<ClientQuestion>) -> Vec<ClientAnswer> {
        let mut answers: Vec<ClientAnswer> = Vec::new();
        let mut open = Vec::new();
        for (at, question) in questions.into_iter().enumerate() {
            if !self.kinds.answers(&question) {
                lock(&self.undeclared_kinds).insert(question.kind);
                answers.push(None);
                continue;
            }
            let key = self.key(&question);
            let ready = lock(&self.initial_answers).remove(&key);
            answers.push(match ready {
                Some(answer) => Some(from_client(question.kind, &answer).map_err(|reason| {
                    Fault::new(
                        code::INVALID,
                        format!("the client's answer `{key}`: {reason}"),
                    )
                })),
                None => {
                    open.push((at, (key, question)));
                    None
                }
            });
        }
        if open.is_empty() {
            return answers;
        }
        let (places, questions): (Vec<usize>, Vec<_>) = open.into_iter().unzip();
        let told = self.ask_round(questions).await;
        for (place, told) in places.into_iter().zip(told) {
            if let Some(answer) = answers.get_mut(place) {
                *answer = Some(told);
            }
        }
        answers
    }

    async fn ask_round(
        &self,
        questions: Vec<(String, ClientQuestion)>,
    ) -> Vec<Result<Value, Fault>> {
        let count = questions.len();
        let (reply, answers) = oneshot::channel();
        let sent = self.rounds.send(QuestionRound { questions, reply }).await;
        let answers = match sent {
            Ok(()) => answers.await.ok(),
            Err(_) => None,
        };
        answers.unwrap_or_else(|| {
            let gone = || Err(Fault::new(code::GONE, "the client gave no answer"));
            std::iter::repeat_with(gone).take(count).collect()
        })
    }
}

impl SessionClient for SessionQuestions {
    fn declares(&self) -> ServedClient {
        self.declared.get().copied().unwrap_or_default().served()
    }

    fn ask(
        &self,
        by: QuestionSource,
        questions: Vec<ClientQuestion>,
    ) -> BoxFuture<'static, Vec<ClientAnswer>> {
        match self.call(by.call_id.as_deref()) {
            Some(call) => async move { call.ask(questions).await }.boxed(),
            None => {
                let nobody = questions.iter().map(|_| None).collect();
                std::future::ready(nobody).boxed()
            }
        }
    }
}

/// A question as MCP asks it: method and parameters.
pub(super) fn to_client(question: &ClientQuestion) -> (&'static str, Option<Value>) {
    let body = &question.body;
    let member = |name: &str| body.get(name).filter(|value| !value.is_null()).cloned();
    match question.kind {
        QuestionKind::Roots => ("roots/list", None),
        QuestionKind::Elicit => {
            let message = member("message").unwrap_or_else(|| "".into());
            let params = match member("url") {
                Some(url) => json!({
                    "mode": "url",
                    "message": message,
                    "url": url,
                    "elicitationId": member("elicitation_id")
                        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string().into()),
                }),
                None => json!({
                    "message": message,
                    "requestedSchema": member("schema")
                        .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
                }),
            };
            ("elicitation/create", Some(params))
        }
        QuestionKind::Sample => {
            let mut params = match member("meta") {
                Some(Value::Object(more)) => more,
                _ => Map::new(),
            };
            let messages = body.get("messages").and_then(Value::as_array);
            let messages: Vec<Value> = messages.into_iter().flatten().map(message).collect();
            params.insert("messages".to_owned(), messages.into());
            let most = member("max_tokens").unwrap_or_else(|| 1024.into());
            params.insert("maxTokens".to_owned(), most);
            if let Some(system) = member("system") {
                params.insert("systemPrompt".to_owned(), system);
            }
            ("sampling/createMessage", Some(params.into()))
        }
    }
}

fn message(message: &Value) -> Value {
    let content = message.get("content").filter(|content| !content.is_null());
    let content = content.cloned().unwrap_or_else(
        || json!({ "type": "text", "text": message.get("text").cloned().unwrap_or_default() }),
    );
    json!({
        "role": message.get("role").cloned().unwrap_or_else(|| "user".into()),
        "content": content,
    })
}

/// The client's answer as the operation's reply.
///
/// # Errors
/// What is wrong with it.
pub(super) fn from_client(kind: QuestionKind, answer: &Value) -> Result<Value, String> {
    let answer = answer.as_object().ok_or("it is no object")?;
    match kind {
        QuestionKind::Elicit => {
            let action = answer.get("action").and_then(Value::as_str);
            let action = action
                .filter(|action| ["accept", "decline", "cancel"].contains(action))
                .ok_or("its `action` is none of accept, decline, cancel")?;
            let content = match answer.get("content") {
                Some(Value::Object(content)) if action == "accept" => content.clone(),
                None | Some(Value::Null | Value::Object(_)) => Map::new(),
                Some(_) => return Err("its `content` is no object".to_owned()),
            };
            Ok(json!({ "action": action, "content": content }))
        }
        QuestionKind::Sample => {
            let content = answer.get("content").ok_or("it has no `content`")?;
            let blocks: &[Value] = match content {
                Value::Array(blocks) => blocks,
                Value::Object(_) => std::slice::from_ref(content),
                _ => return Err("its `content` is no block".to_owned()),
            };
            let text: String = blocks
                .iter()
                .filter_map(|block| block.get("text").and_then(Value::as_str))
                .collect();
            let model = answer.get("model").and_then(Value::as_str);
            let mut reply = json!({ "model": model.unwrap_or_default(), "text": text });
            let is_text = |block: &Value| block.get("type").is_some_and(|kind| kind == "text");
            if let Some(fields) = reply.as_object_mut() {
                if !blocks.iter().all(is_text) {
                    fields.insert("content".to_owned(), content.clone());
                }
                if let Some(reason) = answer.get("stopReason").filter(|reason| reason.is_string()) {
                    fields.insert("stop_reason".to_owned(), reason.clone());
                }
            }
            Ok(reply)
        }
        QuestionKind::Roots => {
            let roots = answer.get("roots").and_then(Value::as_array);
            let roots = roots.ok_or("it has no `roots`")?;
            let has_uri = |root: &Value| root.get("uri").is_some_and(Value::is_string);
            if !roots.iter().all(has_uri) {
                return Err("one of its roots has no `uri`".to_owned());
            }
            Ok(json!({ "roots": roots }))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(capabilities: Value) -> ClientQuestionKinds {
        ClientQuestionKinds::of(serde_json::from_value(capabilities).ok().as_ref())
    }

    fn question(kind: QuestionKind, key: Option<&str>, body: Value) -> ClientQuestion {
        ClientQuestion {
            key: key.map(str::to_owned),
            kind,
            body,
        }
    }

    #[test]
    fn an_empty_elicitation_capability_means_forms() {
        let form = question(QuestionKind::Elicit, None, json!({ "message": "?" }));
        let page = question(QuestionKind::Elicit, None, json!({ "url": "https://x" }));
        for (declared, forms, pages) in [
            (json!({}), false, false),
            (json!({ "elicitation": {} }), true, false),
            (json!({ "elicitation": { "form": {} } }), true, false),
            (json!({ "elicitation": { "url": {} } }), false, true),
            (
                json!({ "elicitation": { "form": {}, "url": {} } }),
                true,
                true,
            ),
        ] {
            let kinds = kinds(declared.clone());
            assert_eq!(
                (kinds.answers(&form), kinds.answers(&page)),
                (forms, pages),
                "{declared}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_not_declared_is_not_asked_and_is_known_as_missing() {
        let asking = SessionQuestions::default();
        let id: Arc<str> = Arc::from("c1");
        let ready = BTreeMap::from([("dirs".to_owned(), json!({ "roots": [] }))]);
        let (call, mut rounds) = asking.begin(&id, kinds(json!({ "roots": {} })), ready);
        let by = QuestionSource {
            plugin: "p".to_owned(),
            call_id: Some(Arc::clone(&id)),
        };
        let questions = vec![
            question(QuestionKind::Sample, Some("word"), json!({})),
            question(QuestionKind::Roots, Some("dirs"), json!({})),
        ];
        let answers = asking.ask(by.clone(), questions).await;
        assert!(answers[0].is_none());
        assert_eq!(
            answers[1].as_ref().unwrap().as_ref().unwrap(),
            &json!({ "roots": [] })
        );
        assert!(rounds.try_recv().is_err(), "nothing had to be asked");
        let missing = serde_json::to_value(call.undeclared().unwrap()).unwrap();
        assert_eq!(missing, json!({ "sampling": {} }));

        let asked = tokio::spawn(asking.ask(
            by.clone(),
            vec![question(QuestionKind::Roots, None, json!({}))],
        ));
        let round = rounds.recv().await.unwrap();
        assert_eq!(round.questions[0].0, "roots-1");
        drop(round);
        let answers = asked.await.unwrap();
        assert_eq!(
            answers[0].as_ref().unwrap().as_ref().unwrap_err().code,
            code::GONE
        );
        asking.end(&id);
        assert!(asking.call(Some("c1")).is_none() && asking.call(None).is_none());
    }

    #[test]
    fn questions_and_answers_are_translated_and_checked() {
        let (method, params) = to_client(&question(
            QuestionKind::Sample,
            None,
            json!({
                "system": "be brief",
                "messages": [{ "role": "user", "text": "hi" }],
                "max_tokens": 7,
                "meta": { "temperature": 0.5 },
            }),
        ));
        assert_eq!(method, "sampling/createMessage");
        assert_eq!(
            params.unwrap(),
            json!({
                "temperature": 0.5,
                "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }],
                "maxTokens": 7,
                "systemPrompt": "be brief",
            })
        );
        let said = json!({
            "role": "assistant",
            "content": { "type": "text", "text": "hello" },
            "model": "m",
            "stopReason": "endTurn",
        });
        assert_eq!(
            from_client(QuestionKind::Sample, &said).unwrap(),
            json!({ "model": "m", "text": "hello", "stop_reason": "endTurn" })
        );
        let accepted = json!({ "action": "accept", "content": { "name": "Ada" } });
        assert_eq!(
            from_client(QuestionKind::Elicit, &accepted).unwrap(),
            accepted
        );
        for (kind, wrong) in [
            (QuestionKind::Elicit, json!(12345)),
            (QuestionKind::Elicit, json!({ "action": "maybe" })),
            (
                QuestionKind::Elicit,
                json!({ "action": "accept", "content": [1] }),
            ),
            (QuestionKind::Sample, json!({ "model": "m" })),
            (QuestionKind::Roots, json!({ "roots": [{}] })),
        ] {
            assert!(from_client(kind, &wrong).is_err(), "{wrong}");
        }
    }
}
