//! Requests that a server answers with questions (2026-07-28): asked, and sent again with the
//! answers, until there is a result.

use std::collections::BTreeMap;

use conjure_skill_sdk::Cx;
use rmcp::model::ClientRequest;
use serde_json::Value;

use crate::asking::{QuestionPolicy, RefusedKinds};
use crate::config::RequestLimits;
use crate::connection::{Connection, RequestOptions};
use crate::failure::Failure;
use crate::request_failure::RequestFailure;
use crate::server::Server;

/// How often a request may be sent again with answers.
const MAX_ROUNDS: usize = 10;

/// A request that may come back with questions.
pub(crate) struct Rounds<'a> {
    pub(crate) server: &'a Server,
    pub(crate) connection: &'a Connection,
    /// Whoever is asked.
    pub(crate) cx: &'a Cx,
    pub(crate) limits: RequestLimits,
    pub(crate) trace: Option<&'a str>,
}

impl Rounds<'_> {
    /// Sends it, and again for as long as the server asks. What nobody can answer is left out, and
    /// from then on not declared.
    pub(crate) async fn run(&self, mut request: ClientRequest) -> Result<Value, RequestFailure> {
        let client = self.cx.client();
        let policy = QuestionPolicy::new(self.server, client);
        let mut refused = RefusedKinds::default();
        for _ in 0..MAX_ROUNDS {
            // Sessions of several clients may share a connection.
            let is_another = client != self.server.client || refused != RefusedKinds::default();
            let capabilities = is_another.then(|| policy.capabilities_without(refused));
            let options = RequestOptions {
                limits: self.limits,
                caller: Some(self.cx),
                trace: self.trace,
                capabilities,
            };
            let value = self.connection.request(request.clone(), options).await?;
            match value.get("resultType").and_then(Value::as_str) {
                None | Some("complete") => return Ok(value),
                Some("input_required") => {}
                Some(other) => {
                    return Err(self.bad_answer(&format!("its kind is `{other}`")).into());
                }
            }
            let answers = match value.get("inputRequests").and_then(Value::as_object) {
                Some(asked) => {
                    let answers = policy.answer_all(self.cx, asked, &mut refused).await;
                    let needs = |why: String| self.bad_answer(&format!("it needs input: {why}"));
                    Some(answers.map_err(needs)?)
                }
                None => None,
            };
            let state = value.get("requestState").and_then(Value::as_str);
            if !put(&mut request, answers, state.map(str::to_owned)) {
                return Err(self
                    .bad_answer("it needs input where none can be given")
                    .into());
            }
        }
        let why = format!("it asked for input more than {MAX_ROUNDS} times");
        Err(self.bad_answer(&why).into())
    }

    fn bad_answer(&self, why: &str) -> Failure {
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
