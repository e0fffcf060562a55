//! What comes back: cleaned, and with results kept aside.
//!
//! rmcp reads results into types of its own, which lose members that they do not know and fail as
//! a whole when one is odd. So a result that is waited for is kept as it came, and rmcp gets an
//! empty one in its place.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_client::SseError;
use serde_json::{Value, json};
use sse_stream::Sse;

use super::SseEvents;
use crate::link::Link;
use crate::wire;

/// The least that a server may want to have between two streams, in milliseconds.
const MIN_RETRY_MS: u64 = 500;

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
                if is_fetched_directly(&request.request) {
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
    pub(super) fn unsolicited(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            request: None,
        }
    }

    /// Whether a request waits for an answer.
    pub(super) fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// The text without what must not be shown.
    pub(super) fn redact(&self, text: String) -> String {
        self.link.secrets().redact(text)
    }

    /// An event as rmcp reads it, or as many as messages are in it. A request of the server's waits
    /// here while that is owed too many answers.
    pub(super) fn clean(&self, event: Result<Sse, SseError>) -> SseEvents {
        self.link.note_activity();
        let mut event = match event {
            Ok(event) => event,
            Err(error) => return single_event(Err(error)),
        };
        event.retry = event.retry.map(|retry| retry.max(MIN_RETRY_MS));
        let data = event.data.take().unwrap_or_default();
        let mut messages = self.read(data.as_bytes());
        if !is_read(&event) {
            // Nobody would ever answer it.
            messages.retain(|message| !matches!(message, JsonRpcMessage::Request(_)));
        }
        if messages.is_empty() {
            // Its id still counts.
            return single_event(Ok(event));
        }
        let link = Arc::clone(&self.link);
        stream::iter(messages)
            .then(move |message| {
                let (link, event) = (Arc::clone(&link), event.clone());
                async move {
                    let message = link.admit(message).await;
                    let data = message.and_then(|message| serde_json::to_string(&message).ok());
                    Ok(Sse { data, ..event })
                }
            })
            .boxed()
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
            .map(|message| self.store_expected(message))
            .collect()
    }

    /// Keeps a result that is waited for.
    fn store_expected(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
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
        response.result = placeholder(&whole);
        self.link.store_result(&response.id, whole);
        JsonRpcMessage::Response(response)
    }
}

/// A single event, or why there is none.
pub(super) fn single_event(event: Result<Sse, SseError>) -> SseEvents {
    stream::iter([event]).boxed()
}

/// Whether the connection fetches a request's result itself. Those of the handshake are rmcp's.
fn is_fetched_directly(request: &ClientRequest) -> bool {
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
fn placeholder(result: &Value) -> ServerResult {
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

/// Whether rmcp reads what an event of this name says.
fn is_read(event: &Sse) -> bool {
    matches!(event.event.as_deref(), None | Some("" | "message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer_backlog::MAX_UNANSWERED;
    use crate::secrets::Secrets;
    use crate::server_notices::ServerNotices;

    fn filter() -> AnswerFilter {
        let outside = ServerNotices::new("s", Secrets::default(), |_| {});
        AnswerFilter::unsolicited(&Link::new(Arc::new(outside)))
    }

    fn event(data: &Value, retry: Option<u64>) -> Result<Sse, SseError> {
        Ok(Sse {
            data: Some(data.to_string()),
            id: Some("7".to_owned()),
            retry,
            ..Sse::default()
        })
    }

    fn ping(id: usize) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_while_too_many_have_no_answer() {
        let filter = filter();
        let batch: Vec<Value> = (0..=MAX_UNANSWERED).map(ping).collect();
        let mut events = filter.clean(event(&Value::Array(batch), None));
        for _ in 0..MAX_UNANSWERED {
            let event = events.next().await.unwrap().unwrap();
            assert!(event.data.unwrap().contains("ping"));
        }
        let wait = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, events.next()).await.is_err());
        let answer = ClientJsonRpcMessage::error(
            ErrorData::new(ErrorCode::INTERNAL_ERROR, "busy", None),
            Some(RequestId::Number(0)),
        );
        drop(filter.link.backlog().sending(&answer));
        assert!(events.next().await.unwrap().unwrap().data.is_some());
        assert!(events.next().await.is_none());
        // For too long, and it is over.
        let mut events = filter.clean(event(&ping(1_000), None));
        assert!(events.next().await.unwrap().unwrap().data.is_none());
        assert!(filter.link.close_reason().unwrap().contains("answers"));
    }

    #[tokio::test]
    async fn a_request_that_nobody_will_answer_is_none() {
        let filter = filter();
        for (name, is_read) in [("ping", false), ("message", true)] {
            let named = event(&ping(1), None).map(|event| Sse {
                event: Some(name.to_owned()),
                ..event
            });
            let mut events = filter.clean(named);
            let event = events.next().await.unwrap().unwrap();
            assert_eq!(event.data.is_some(), is_read, "{name}");
            assert_eq!(event.id.as_deref(), Some("7"), "it still counts");
        }
    }

    #[tokio::test]
    async fn a_stream_is_not_to_be_opened_again_at_once() {
        for (said, heard) in [
            (Some(0), Some(500)),
            (Some(2_000), Some(2_000)),
            (None, None),
        ] {
            let mut events = filter().clean(event(&ping(1), said));
            let event = events.next().await.unwrap().unwrap();
            assert_eq!((event.retry, event.id.as_deref()), (heard, Some("7")));
        }
    }
}
