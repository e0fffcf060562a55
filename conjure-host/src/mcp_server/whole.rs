//! Tools with members that the SDK does not know: task support, a vendor's own.
//!
//! Its type of a tool has no place for them but `_meta`. So a tool that would lose some travels
//! there as a whole, and takes the place of its rest where the list goes out.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rmcp::RoleServer;
use rmcp::model::{CustomResult, JsonRpcMessage, ServerResult, Tool};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::clients::Clients;

/// Where a tool travels as a whole.
const WHOLE: &str = "dev.conjure/whole";
/// The most bytes of a list over HTTP: a page has at most 1000 tools.
const LIST: usize = 256 * 1024 * 1024;

/// A tool as JSON, with what it is as a whole where the SDK's type of it is less.
pub(super) fn packed(tool: &Tool, whole: Option<&Value>) -> Value {
    let mut packed = serde_json::to_value(tool).unwrap_or_default();
    if let (Some(whole), Some(fields)) = (whole, packed.as_object_mut()) {
        let meta = fields.entry("_meta").or_insert_with(|| Map::new().into());
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(WHOLE.to_owned(), whole.clone());
        }
    }
    packed
}

/// Puts the whole tools into a list's result; false when there are none.
fn unpack(result: &mut Value) -> bool {
    let tools = result.get_mut("tools").and_then(Value::as_array_mut);
    let mut any = false;
    for tool in tools.into_iter().flatten() {
        if let Some(whole) = tool
            .pointer_mut("/_meta")
            .and_then(|meta| meta.get_mut(WHOLE))
        {
            *tool = whole.take();
            any = true;
        }
    }
    any
}

/// A transport that sends whole tools.
pub(super) struct WholeTools<T>(pub(super) T);

impl<T: Transport<RoleServer>> Transport<RoleServer> for WholeTools<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Response(response) = &mut item
            && let ServerResult::ListToolsResult(list) = &response.result
            && list.tools.iter().any(is_packed)
            && let Ok(mut result) = serde_json::to_value(list)
        {
            unpack(&mut result);
            response.result = ServerResult::CustomResult(CustomResult(result));
        }
        self.0.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.0.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.0.close()
    }
}

fn is_packed(tool: &Tool) -> bool {
    tool.meta
        .as_ref()
        .is_some_and(|meta| meta.contains_key(WHOLE))
}

/// What a message asks for.
#[derive(Deserialize)]
struct Asked {
    method: Option<String>,
}

/// Lets lists of tools go out over HTTP with whole tools.
pub(super) async fn whole_tools(
    State(clients): State<Arc<Clients>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let options = &clients.common.options;
    let (parts, body) = request.into_parts();
    let read = to_bytes(body, options.max_message_bytes);
    let body = match tokio::time::timeout(options.request_timeout, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            tracing::debug!("a request was not read: {error}");
            let most = options.max_message_bytes;
            let text = format!("a message has at most {most} bytes, and has to arrive\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => {
            let text = format!(
                "the request did not arrive within {:?}\n",
                options.request_timeout
            );
            return (StatusCode::REQUEST_TIMEOUT, text).into_response();
        }
    };
    let asked = serde_json::from_slice::<Asked>(&body).ok();
    let is_list = asked.is_some_and(|asked| asked.method.as_deref() == Some("tools/list"));
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    if !is_list || response.status() != StatusCode::OK {
        return response;
    }
    // It ends with its only answer.
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, LIST).await else {
        let text = "the list of tools is too long\n";
        return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let text = String::from_utf8_lossy(&body);
    if !text.contains(WHOLE) {
        return Response::from_parts(parts, Body::from(body));
    }
    let lines = text.split_inclusive('\n').map(line);
    Response::from_parts(parts, Body::from(lines.collect::<String>()))
}

/// A line of an answer, which is a message or an event with one, with whole tools.
fn line(line: &str) -> String {
    let (field, data) = match line.strip_prefix("data:") {
        Some(data) => ("data: ", data),
        None => ("", line),
    };
    let message = serde_json::from_str::<Value>(data);
    let Ok(mut message) = message else {
        return line.to_owned();
    };
    if !message.get_mut("result").is_some_and(unpack) {
        return line.to_owned();
    }
    let end = data.get(data.trim_end().len()..).unwrap_or_default();
    format!("{field}{message}{end}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "name": "a", "inputSchema": { "type": "object" }, "execution": { "taskSupport": "optional" },
            "vendor": { "kept": true }, "_meta": { "k": 1 },
        })
    }

    #[test]
    fn a_tool_comes_out_as_it_was() {
        let tool: Tool = serde_json::from_value(whole()).unwrap();
        let plain = json!({ "name": "b", "inputSchema": {} });
        // Through the SDK's types and back.
        let list = json!({ "tools": [packed(&tool, Some(&whole())), plain] });
        let list: rmcp::model::ListToolsResult = serde_json::from_value(list).unwrap();
        let mut result = serde_json::to_value(list).unwrap();
        assert!(unpack(&mut result));
        assert_eq!(result["tools"], json!([whole(), plain]));
        assert!(!unpack(&mut result), "there is nothing left to do");
    }

    #[test]
    fn an_answer_is_changed_where_it_has_a_packed_tool_and_nowhere_else() {
        let tool: Tool = serde_json::from_value(whole()).unwrap();
        let message = |tool: Value| json!({ "id": 1, "result": { "tools": [tool], "ttlMs": 0 } });
        let before = message(packed(&tool, Some(&whole()))).to_string();
        let after = message(whole()).to_string();
        assert_eq!(line(&before), after);
        assert_eq!(
            line(&format!("data: {before}\r\n")),
            format!("data: {after}\r\n")
        );
        for other in [
            "id: 1/0\n",
            "\n",
            ": ping\n",
            "data: \n",
            "data: {\"result\":{}}\n",
        ] {
            assert_eq!(line(other), other);
        }
    }
}
