//! Requests that a server answers with questions (2026-07-28): asked, and sent again with the
//! answers, until there is a result.

use std::collections::BTreeMap;

use conjure_skill_sdk::Cx;
use rmcp::model::ClientRequest;
use serde_json::{Map, Value};

use crate::asking::Policy;
use crate::config::Limits;
use crate::connection::{Connection, Trouble};
use crate::failure::Failure;
use crate::server::Server;

/// How often a request may be sent again with answers.
const ROUNDS: usize = 10;

/// A request that may come back with questions.
pub(crate) struct Rounds<'a> {
    pub(crate) server: &'a Server,
    pub(crate) connection: &'a Connection,
    /// Whoever is asked.
    pub(crate) cx: &'a Cx,
    pub(crate) limits: Limits,
    pub(crate) trace: Option<&'a str>,
}

impl Rounds<'_> {
    /// Sends it, and again for as long as the server asks.
    pub(crate) async fn run(&self, mut request: ClientRequest) -> Result<Value, Trouble> {
        for _ in 0..ROUNDS {
            let sent =
                self.connection
                    .request(request.clone(), self.limits, Some(self.cx), self.trace);
            let value = sent.await?;
            match value.get("resultType").and_then(Value::as_str) {
                None | Some("complete") => return Ok(value),
                Some("input_required") => {}
                Some(other) => return Err(self.bad(&format!("its kind is `{other}`")).into()),
            }
            let answers = match value.get("inputRequests").and_then(Value::as_object) {
                Some(asked) => Some(self.answers(asked).await?),
                None => None,
            };
            let state = value.get("requestState").and_then(Value::as_str);
            if !put(&mut request, answers, state.map(str::to_owned)) {
                return Err(self.bad("it needs input where none can be given").into());
            }
        }
        let why = format!("it asked for input more than {ROUNDS} times");
        Err(self.bad(&why).into())
    }

    async fn answers(
        &self,
        asked: &Map<String, Value>,
    ) -> Result<BTreeMap<String, Value>, Failure> {
        let policy = Policy::new(&self.server.name, &self.server.config);
        let mut answers = BTreeMap::new();
        for (key, question) in asked {
            let method = question.get("method").and_then(Value::as_str);
            let params = question.get("params").unwrap_or(&Value::Null);
            let answer = policy
                .answer(Some(self.cx), method.unwrap_or_default(), params)
                .await
                .map_err(|error| self.bad(&format!("it needs input: {}", error.message)))?;
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    fn bad(&self, why: &str) -> Failure {
        Failure::BadAnswer {
            server: self.server.name.clone(),
            why: why.to_owned(),
        }
    }
}

/// Puts answers into a request; false for one that has no place for them.
fn put(
    request: &mut ClientRequest,
    answers: Option<BTreeMap<String, Value>>,
    state: Option<String>,
) -> bool {
    let (responses, request_state) = match request {
        ClientRequest::CallToolRequest(request) => (
            &mut request.params.input_responses,
            &mut request.params.request_state,
        ),
        ClientRequest::GetPromptRequest(request) => (
            &mut request.params.input_responses,
            &mut request.params.request_state,
        ),
        ClientRequest::ReadResourceRequest(request) => (
            &mut request.params.input_responses,
            &mut request.params.request_state,
        ),
        _ => return false,
    };
    *responses = answers;
    *request_state = state;
    true
}
