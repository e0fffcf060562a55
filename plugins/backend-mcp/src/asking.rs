//! What servers ask of the host: the person, the model, the directories. Policy comes first.
//!
//! The same questions come in two ways: as requests of the server's (2025-11-25), and inside the
//! result of a call that is then repeated with the answers (2026-07-28).

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::{Elicit, Sample, SampleMessage};
use rmcp::model::{
    ClientCapabilities, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    RootsCapabilities, SamplingCapability, UrlElicitationCapability,
};
use serde_json::{Value, json};

use crate::config::ServerConfig;

/// The most tokens of an answer that a server gets from the session's model.
const MOST_TOKENS: u64 = 4_096;
/// The most bytes of a question to the person.
const MOST_QUESTION: usize = 8 * 1024;

/// What a server may ask, and in whose name the person is asked.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    server: String,
    elicitation: bool,
    sampling: bool,
    roots: bool,
}

impl Policy {
    /// As configured.
    pub(crate) fn new(server: &str, config: &ServerConfig) -> Self {
        Self {
            server: server.to_owned(),
            elicitation: config.elicitation,
            sampling: config.sampling,
            roots: config.roots,
        }
    }

    /// What the host declares: only what the policy lets through.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut capabilities = ClientCapabilities::default();
        if self.elicitation {
            capabilities.elicitation = Some(
                ElicitationCapability::new()
                    .with_form(FormElicitationCapability::default())
                    .with_url(UrlElicitationCapability::new()),
            );
        }
        capabilities.sampling = self.sampling.then(SamplingCapability::default);
        capabilities.roots = self.roots.then(RootsCapabilities::default);
        capabilities
    }

    /// Answers a question for the session and call that `cx` belongs to.
    pub(crate) async fn answer(
        &self,
        cx: Option<&Cx>,
        method: &str,
        params: &Value,
    ) -> Result<Value, ErrorData> {
        let allowed = match method {
            "elicitation/create" => self.elicitation,
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            _ => false,
        };
        if !allowed {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("{method} is not served here"),
                None,
            ));
        }
        let cx = cx.ok_or_else(|| failed("no session is open that could be asked"))?;
        match method {
            "elicitation/create" => self.elicit(cx, params).await,
            "sampling/createMessage" => sample(cx, params).await,
            _ => roots(cx).await,
        }
    }

    async fn elicit(&self, cx: &Cx, params: &Value) -> Result<Value, ErrorData> {
        let text = params.get("message").and_then(Value::as_str);
        let text = text.ok_or_else(|| invalid("`message` is missing"))?;
        if text.len() > MOST_QUESTION {
            return Err(invalid("`message` is too long to be asked"));
        }
        let url = params.get("url").and_then(Value::as_str);
        if params.get("mode").and_then(Value::as_str) == Some("url") && url.is_none() {
            return Err(invalid("`url` is missing"));
        }
        let question = Elicit {
            // The person must see who asks.
            message: format!("[{}] {text}", self.server),
            schema: params.get("requestedSchema").cloned(),
            url: url.map(str::to_owned),
            ..Elicit::default()
        };
        let answer = cx.elicit_async(&question).await;
        let mut answer = answer.map_err(|error| failed(error.message()))?;
        if answer.action == "accept" {
            for (field, default) in defaults(params) {
                answer.content.entry(field).or_insert(default);
            }
        }
        Ok(if answer.action == "accept" && url.is_none() {
            json!({ "action": answer.action, "content": answer.content })
        } else {
            json!({ "action": answer.action })
        })
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

async fn sample(cx: &Cx, params: &Value) -> Result<Value, ErrorData> {
    if params.get("tools").is_some() {
        return Err(invalid("sampling with tools is not served here"));
    }
    let messages = params.get("messages").and_then(Value::as_array);
    let messages = messages.ok_or_else(|| invalid("`messages` is missing"))?;
    let request = Sample {
        system: params
            .get("systemPrompt")
            .and_then(Value::as_str)
            .map(str::to_owned),
        messages: messages
            .iter()
            .map(sample_message)
            .collect::<Result<_, _>>()?,
        max_tokens: params
            .get("maxTokens")
            .and_then(Value::as_u64)
            .and_then(|tokens| u32::try_from(tokens.min(MOST_TOKENS)).ok()),
        meta: None,
    };
    let sampled = cx.sample_async(&request).await;
    let sampled = sampled.map_err(|error| failed(error.message()))?;
    let stop = match sampled.stop_reason.as_deref() {
        Some("max_tokens" | "length") => "maxTokens",
        Some("stop_sequence") => "stopSequence",
        None | Some("end_turn" | "stop") => "endTurn",
        Some(other) => other,
    };
    Ok(json!({
        "role": "assistant",
        "content": { "type": "text", "text": sampled.text },
        "model": sampled.model,
        "stopReason": stop,
    }))
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

async fn roots(cx: &Cx) -> Result<Value, ErrorData> {
    let roots = cx.roots_async().await;
    let roots = roots.map_err(|error| failed(error.message()))?;
    Ok(json!({ "roots": roots }))
}

fn failed(why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, why.to_owned(), None)
}

fn invalid(why: &str) -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_PARAMS, why.to_owned(), None)
}
