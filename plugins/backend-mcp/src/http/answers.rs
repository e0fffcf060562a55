//! What comes back: cleaned, and with results kept aside.
//!
//! rmcp reads results into types of its own, which lose members that they do not know and fail as
//! a whole when one is odd. So a result that is waited for is kept as it came, and rmcp gets an
//! empty one in its place.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_client::SseError;
use serde_json::{Value, json};
use sse_stream::Sse;

use crate::link::Link;
use crate::wire;

/// Reads the answers to one request, or those of a stream without a request.
#[derive(Clone)]
pub(super) struct AnswerFilter {
    link: Arc<Link>,
    request: Option<RequestId>,
}

impl AnswerFilter {
    /// To what is being posted.
    pub(super) fn to(link: &Arc<Link>, message: &ClientJsonRpcMessage) -> Self {
        let request = match message {
            JsonRpcMessage::Request(request) => {
                if is_kept_aside(&request.request) {
                    link.expect(&request.id);
                }
                Some(request.id.clone())
            }
            _ => None,
        };
        Self {
            link: Arc::clone(link),
            request,
        }
    }

    /// On a stream that belongs to no request.
    pub(super) fn to_anything(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            request: None,
        }
    }

    /// Whether a request waits for an answer.
    pub(super) fn are_awaited(&self) -> bool {
        self.request.is_some()
    }

    /// An event as rmcp reads it, or as many as messages are in it.
    pub(super) fn clean(&self, event: Result<Sse, SseError>) -> Vec<Result<Sse, SseError>> {
        self.link.note_activity();
        let event = match event {
            Ok(event) => event,
            Err(error) => return vec![Err(error)],
        };
        let data = event.data.as_deref().unwrap_or_default();
        if data.trim().is_empty() {
            return vec![Ok(event)];
        }
        let mut cleaned: Vec<_> = self
            .read(data.as_bytes())
            .iter()
            .filter_map(|message| serde_json::to_string(message).ok())
            .map(|data| {
                Ok(Sse {
                    data: Some(data),
                    ..event.clone()
                })
            })
            .collect();
        if cleaned.is_empty() {
            // Its id still counts.
            cleaned.push(Ok(Sse {
                data: None,
                ..event
            }));
        }
        cleaned
    }

    /// The answer in a body that is no stream.
    pub(super) fn in_body(&self, body: &[u8]) -> Option<ServerJsonRpcMessage> {
        self.link.note_activity();
        let mut messages = self.read(body);
        let is_answer = |message: &ServerJsonRpcMessage| {
            matches!(
                message,
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
            )
        };
        let at = messages.iter().position(is_answer)?;
        Some(messages.swap_remove(at))
    }

    /// An error in place of the answer.
    pub(super) fn error(&self, why: impl Into<String>) -> Option<ServerJsonRpcMessage> {
        let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why.into(), None);
        Some(ServerJsonRpcMessage::error(
            error,
            Some(self.request.clone()?),
        ))
    }

    fn read(&self, data: &[u8]) -> Vec<ServerJsonRpcMessage> {
        let read = wire::read(data);
        if read.skipped > 0 {
            self.link.note_skipped();
        }
        let messages = read.messages.into_iter();
        messages
            .filter_map(|message| self.link.take(message, self.request.as_ref()))
            .map(|message| self.aside(message))
            .collect()
    }

    /// Keeps a result that is waited for.
    fn aside(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        let JsonRpcMessage::Response(mut response) = message else {
            return message;
        };
        if !self.link.is_expected(&response.id) {
            return JsonRpcMessage::Response(response);
        }
        let whole = match response.result {
            ServerResult::CustomResult(CustomResult(value)) => value,
            other => {
                response.result = other;
                return JsonRpcMessage::Response(response);
            }
        };
        response.result = stand_in(&whole);
        self.link.keep(&response.id, whole);
        JsonRpcMessage::Response(response)
    }
}

/// Whether the connection fetches a request's result itself. Those of the handshake are rmcp's.
fn is_kept_aside(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::ListToolsRequest(_)
            | ClientRequest::ListResourcesRequest(_)
            | ClientRequest::ListResourceTemplatesRequest(_)
            | ClientRequest::ReadResourceRequest(_)
            | ClientRequest::ListPromptsRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::CompleteRequest(_)
    )
}

/// What rmcp gets in place of a result: of a list of tools what it needs to know for the headers
/// of their calls, of anything else nothing.
fn stand_in(result: &Value) -> ServerResult {
    let nothing = || ServerResult::CustomResult(CustomResult(json!({ "resultType": "complete" })));
    let Some(tools) = result.get("tools").and_then(Value::as_array) else {
        return nothing();
    };
    let tools: Vec<Value> = tools
        .iter()
        .filter_map(|tool| {
            let name = tool.get("name").filter(|name| name.is_string())?;
            let schema = tool
                .get("inputSchema")
                .filter(|schema| schema.is_object())?;
            Some(json!({ "name": name, "inputSchema": schema }))
        })
        .collect();
    let list = json!({ "resultType": "complete", "tools": tools });
    let list = serde_json::from_value(list).map(ServerResult::ListToolsResult);
    list.unwrap_or_else(|_| nothing())
}
