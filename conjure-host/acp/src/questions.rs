//! What plugins and MCP servers ask the person, as the client can ask it.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{CreateElicitationRequest, CreateElicitationResponse};
use conjure_core::chat::QuestionAsked;
use conjure_runtime::manager::QuestionReply;
use serde_json::{Map, Value, json};

use super::agent::AgentConnection;
use super::open_session::OpenSession;
use super::updates::Updates;

/// Asks the client, and gives its answer to whoever wants it. What a client cannot ask is
/// cancelled, so that nobody waits.
pub(crate) async fn answer(
    connection: Arc<AgentConnection>,
    session: Arc<OpenSession>,
    updates: Updates,
    question: QuestionAsked,
) {
    let request = connection
        .can_elicit(question.url.is_some())
        .then(|| request(&updates, &question))
        .flatten();
    let reply = match request {
        Some(request) => {
            let answer = updates.client().send_request(request).block_task().await;
            answer.map_or(QuestionReply::Cancel, |answer| reply(&answer))
        }
        None => QuestionReply::Cancel,
    };
    let manager = connection.manager();
    let done = manager.answer(&session.id, &question.id, reply).await;
    if let Err(error) = done
        && !error.is_not_found()
    {
        tracing::warn!("an answer to `{}` was not taken: {error}", question.plugin);
        let cancel = QuestionReply::Cancel;
        let _ = manager.answer(&session.id, &question.id, cancel).await;
    }
}

/// The question in the protocol's form; nothing where the protocol has no such form.
fn request(updates: &Updates, question: &QuestionAsked) -> Option<CreateElicitationRequest> {
    let mut request = json!({
        "sessionId": updates.session(),
        "message": question.message,
    });
    let more = match &question.url {
        Some(url) => json!({ "mode": "url", "elicitationId": question.id, "url": url }),
        None => json!({
            "mode": "form",
            "requestedSchema": question
                .schema
                .clone()
                .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        }),
    };
    let fields = request.as_object_mut()?;
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    if let Some(call) = &question.call_id {
        fields.insert("toolCallId".to_owned(), call.clone().into());
    }
    serde_json::from_value(request).ok()
}

fn reply(answer: &CreateElicitationResponse) -> QuestionReply {
    let json = serde_json::to_value(answer).unwrap_or_default();
    let content = match json.get("content") {
        Some(Value::Object(content)) => content.clone(),
        _ => Map::new(),
    };
    match json.get("action").and_then(Value::as_str) {
        Some("accept") => QuestionReply::Accept(content.into_iter().collect()),
        Some("decline") => QuestionReply::Decline,
        _ => QuestionReply::Cancel,
    }
}
