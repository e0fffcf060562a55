//! What servers ask of the host: the person, the model, the directories. Policy comes first.
//!
//! A question comes in one of two ways: as a request of the server's (2025-11-25), or inside the
//! result of a call that is then repeated with the answers (2026-07-28).

use std::collections::BTreeMap;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::{
    Answer, Ask, Elicit, Question, Roots, Sample, SampleMessage, ServedClient,
};
use rmcp::model::{
    ClientCapabilities, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    RootsCapabilities, SamplingCapability, UrlElicitationCapability,
};
use serde_json::{Map, Value, json};

use crate::server::Server;

/// The most tokens of an answer that a server gets from the session's model.
const MAX_TOKENS: u64 = 4_096;
/// The most bytes of a question to the person.
const MAX_QUESTION_BYTES: usize = 8 * 1024;

/// The kinds of questions that a server may ask, and the name it asks under.
#[derive(Debug, Clone)]
pub(crate) struct QuestionPolicy {
    server: String,
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
}

impl QuestionPolicy {
    /// As configured. Of a session with a program on the other side, only what that can answer.
    pub(crate) fn new(server: &Server, client: Option<ServedClient>) -> Self {
        let config = &server.config;
        let can = |ability: fn(ServedClient) -> bool| client.is_none_or(ability);
        // A client's model is asked at the client's cost, and it decides itself.
        let sampling = config.sampling.unwrap_or(client.is_some());
        Self {
            server: server.name.clone(),
            form: config.elicitation && can(|client| client.form),
            url: config.elicitation && can(|client| client.url),
            sampling: sampling && can(|client| client.sample),
            roots: config.roots && can(|client| client.roots),
        }
    }

    /// What the host declares: only what the policy lets through.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        if self.form || self.url {
            let mut elicitation = ElicitationCapability::new();
            elicitation.form = self.form.then(FormElicitationCapability::default);
            elicitation.url = self.url.then(UrlElicitationCapability::new);
            capabilities.elicitation = Some(elicitation);
        }
        capabilities.sampling = self.sampling.then(SamplingCapability::default);
        capabilities.roots = self.roots.then(RootsCapabilities::default);
        capabilities
    }

    /// What the host declares once it is known that some questions have no answer.
    pub(crate) fn capabilities_without(&self, refused: RefusedKinds) -> ClientCapabilities {
        let left = Self {
            server: String::new(),
            form: self.form && !refused.form,
            url: self.url && !refused.url,
            sampling: self.sampling && !refused.sampling,
            roots: self.roots && !refused.roots,
        };
        left.capabilities()
    }

    /// Answers a question for the session and call that `cx` belongs to.
    pub(crate) async fn answer(
        &self,
        cx: Option<&Cx>,
        method: &str,
        params: &Value,
    ) -> Result<Value, ErrorData> {
        let question = self.question(method, params)?;
        let cx = cx.ok_or_else(|| failed("no session is open that could be asked"))?;
        let answer = match &question {
            Question::Elicit(asked) => cx.elicit_async(asked).await.map(Answer::Elicited),
            Question::Sample(asked) => cx.sample_async(asked).await.map(Answer::Sampled),
            _ => cx.roots_async().await.map(|roots| {
                // As it is asked alone, so it is answered.
                Answer::Roots(Roots { roots })
            }),
        };
        let answer = answer.map_err(|error| failed(error.message()))?;
        reply(params, answer).map_err(|why| failed(&why))
    }

    /// Answers the questions of one round, together and under their keys, for the call that `cx`
    /// belongs to. Those that have no answer are noted as refused.
    ///
    /// # Errors
    /// Why none has an answer, or why the host cannot be asked.
    pub(crate) async fn answer_all(
        &self,
        cx: &Cx,
        asked: &Map<String, Value>,
        refused: &mut RefusedKinds,
    ) -> Result<BTreeMap<String, Value>, String> {
        let mut why = Vec::new();
        let mut questions = BTreeMap::new();
        for (key, asked) in asked {
            let method = asked.get("method").and_then(Value::as_str);
            match self.question(method.unwrap_or_default(), params(asked)) {
                Ok(question) => {
                    questions.insert(key.clone(), question);
                }
                Err(error) => why.push(error.message.into_owned()),
            }
        }
        let mut answers = BTreeMap::new();
        if !questions.is_empty() {
            let request = Ask { questions };
            let told = cx.ask_async(&request).await;
            let told = told.map_err(|error| error.message().to_owned())?;
            for (key, answer) in told.answers {
                if let (Answer::Refused { .. }, Some(question)) =
                    (&answer, request.questions.get(&key))
                {
                    refused.note(question);
                }
                let params = asked.get(&key).map_or(&Value::Null, params);
                match reply(params, answer) {
                    Ok(answer) => {
                        answers.insert(key, answer);
                    }
                    Err(refusal) => why.push(refusal),
                }
            }
        }
        if answers.is_empty() && !asked.is_empty() {
            return Err(why.join("; "));
        }
        Ok(answers)
    }

    /// A question in the host's form.
    fn question(&self, method: &str, params: &Value) -> Result<Question, ErrorData> {
        match method {
            "elicitation/create" if self.may_elicit(params) => {
                self.elicit(params).map(Question::Elicit)
            }
            "sampling/createMessage" if self.sampling => sample(params).map(Question::Sample),
            "roots/list" if self.roots => Ok(Question::Roots),
            _ => Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("{method} is not served here"),
                None,
            )),
        }
    }

    fn may_elicit(&self, params: &Value) -> bool {
        let is_page = params.get("mode").and_then(Value::as_str) == Some("url");
        if is_page { self.url } else { self.form }
    }

    fn elicit(&self, params: &Value) -> Result<Elicit, ErrorData> {
        let member = |name: &str| params.get(name).and_then(Value::as_str);
        let text = member("message").ok_or_else(|| invalid("`message` is missing"))?;
        if text.len() > MAX_QUESTION_BYTES {
            return Err(invalid("`message` is too long to be asked"));
        }
        let url = member("url");
        if member("mode") == Some("url") && url.is_none() {
            return Err(invalid("`url` is missing"));
        }
        Ok(Elicit {
            // The person must see who asks.
            message: format!("[{}] {text}", self.server),
            schema: params.get("requestedSchema").cloned(),
            url: url.map(str::to_owned),
            elicitation_id: member("elicitationId").map(str::to_owned),
        })
    }
}

/// Kinds of questions that nobody can answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RefusedKinds {
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
}

impl RefusedKinds {
    fn note(&mut self, question: &Question) {
        match question {
            Question::Elicit(asked) if asked.url.is_some() => self.url = true,
            Question::Elicit(_) => self.form = true,
            Question::Sample(_) => self.sampling = true,
            Question::Roots => self.roots = true,
            Question::Other(_) => {}
        }
    }
}

fn params(asked: &Value) -> &Value {
    asked.get("params").unwrap_or(&Value::Null)
}

/// An answer in MCP's form; why there is none.
fn reply(params: &Value, answer: Answer) -> Result<Value, String> {
    match answer {
        Answer::Elicited(mut answer) => {
            if answer.action != "accept" || params.get("url").is_some_and(Value::is_string) {
                return Ok(json!({ "action": answer.action }));
            }
            for (field, default) in defaults(params) {
                answer.content.entry(field).or_insert(default);
            }
            Ok(json!({ "action": "accept", "content": answer.content }))
        }
        Answer::Sampled(sampled) => {
            let stop = match sampled.stop_reason.as_deref() {
                Some("max_tokens" | "length") => "maxTokens",
                Some("stop_sequence") => "stopSequence",
                None | Some("end_turn" | "stop") => "endTurn",
                Some(other) => other,
            };
            let text = || json!({ "type": "text", "text": sampled.text });
            Ok(json!({
                "role": "assistant",
                "content": sampled.content.clone().unwrap_or_else(text),
                "model": sampled.model,
                "stopReason": stop,
            }))
        }
        Answer::Roots(roots) => Ok(json!({ "roots": roots.roots })),
        Answer::Refused { message, .. } => Err(message),
        Answer::Other(_) => Err("the host's answer is of a kind that is not known here".to_owned()),
    }
}

/// What the fields of a form are when the person leaves them out.
fn defaults(params: &Value) -> impl Iterator<Item = (String, Value)> + '_ {
    let fields = params
        .get("requestedSchema")
        .and_then(|schema| schema.get("properties"))
        .and_then(Value::as_object);
    fields.into_iter().flatten().filter_map(|(name, field)| {
        let default = field.get("default")?;
        Some((name.clone(), default.clone()))
    })
}

fn sample(params: &Value) -> Result<Sample, ErrorData> {
    let fields = params.as_object();
    let fields = fields.ok_or_else(|| invalid("`messages` is missing"))?;
    if fields.contains_key("tools") {
        return Err(invalid("sampling with tools is not served here"));
    }
    let messages = fields.get("messages").and_then(Value::as_array);
    let messages = messages.ok_or_else(|| invalid("`messages` is missing"))?;
    let said = ["messages", "systemPrompt", "maxTokens", "_meta"];
    let rest = fields
        .iter()
        .filter(|(name, _)| !said.contains(&name.as_str()));
    let rest: Map<String, Value> = rest.map(|(name, it)| (name.clone(), it.clone())).collect();
    Ok(Sample {
        system: fields
            .get("systemPrompt")
            .and_then(Value::as_str)
            .map(str::to_owned),
        messages: messages
            .iter()
            .map(sample_message)
            .collect::<Result<_, _>>()?,
        max_tokens: fields
            .get("maxTokens")
            .and_then(Value::as_u64)
            .and_then(|tokens| u32::try_from(tokens.min(MAX_TOKENS)).ok()),
        meta: (!rest.is_empty()).then_some(rest),
    })
}

fn sample_message(message: &Value) -> Result<SampleMessage, ErrorData> {
    let role = message.get("role").and_then(Value::as_str);
    let role = role.ok_or_else(|| invalid("a message has no `role`"))?;
    let content = message.get("content").unwrap_or(&Value::Null);
    let one = std::slice::from_ref(content);
    let parts = content.as_array().map_or(one, Vec::as_slice);
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| part.get("text").and_then(Value::as_str))
        .collect();
    let texts = texts.ok_or_else(|| invalid("only text can be sampled here"))?;
    Ok(SampleMessage {
        role: role.to_owned(),
        text: texts.join("\n"),
        content: None,
    })
}

fn failed(why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, why.to_owned(), None)
}

fn invalid(why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_PARAMS, why.to_owned(), None)
}
