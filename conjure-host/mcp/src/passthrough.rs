//! Tools and results with members that the SDK does not know: task support, a vendor's own, what a
//! server behind the host answered.
//!
//! The SDK's types have no place for them but `_meta`. So what would lose some travels there as a
//! whole, and takes the place of its rest where the message goes out. `_meta` is also where peers
//! write, so the key is one that no peer can know.

use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use rmcp::RoleServer;
use rmcp::model::{CustomResult, JsonRpcMessage, MetaObject, ServerResult, Tool};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::clients::ClientSessions;

/// What the keys of `_meta` begin with that are the host's for this. No peer's entry keeps one.
const RESERVED: &str = "dev.conjure/whole";
/// The key of this process: whoever could write it would replace what was approved.
static KEY: LazyLock<String> = LazyLock::new(|| format!("{RESERVED}-{}", Uuid::new_v4().simple()));
/// The most bytes of a message over HTTP: a page of a list has at most 1000 tools.
const MAX_MESSAGE_BYTES: usize = 256 * 1024 * 1024;

/// Key of `_meta` under which an answer travels as a whole.
pub(super) fn passthrough_key() -> &'static str {
    KEY.as_str()
}

/// Takes what is the host's out of the `_meta` that a peer or a plugin wrote.
pub(super) fn clean_meta(meta: &mut Map<String, Value>) {
    meta.retain(|key, _| !key.starts_with(RESERVED));
}

/// Like [`clean_meta`], for an entry with a `_meta`: a tool, a resource, a prompt.
pub(super) fn clean_entry(entry: &mut Map<String, Value>) {
    if let Some(Value::Object(meta)) = entry.get_mut("_meta") {
        clean_meta(meta);
    }
}

/// A tool as JSON, with what it is as a whole where the SDK's type of it is less.
pub(super) fn tool_json(tool: &Tool, whole: Option<&Value>) -> Value {
    let mut packed = serde_json::to_value(tool).unwrap_or_default();
    if let (Some(whole), Some(fields)) = (whole, packed.as_object_mut()) {
        let meta = fields.entry("_meta").or_insert_with(|| Map::new().into());
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(passthrough_key().to_owned(), whole.clone());
        }
    }
    packed
}

/// Puts what travels as a whole into a result; false when there is nothing such.
pub(super) fn unpack(result: &mut Value) -> bool {
    if let Some(whole) = take_packed(result) {
        *result = whole;
        return true;
    }
    let tools = result.get_mut("tools").and_then(Value::as_array_mut);
    let mut any = false;
    for tool in tools.into_iter().flatten() {
        if let Some(whole) = take_packed(tool) {
            *tool = whole;
            any = true;
        }
    }
    any
}

fn take_packed(value: &mut Value) -> Option<Value> {
    let whole = value.get_mut("_meta")?.get_mut(passthrough_key())?;
    whole.is_object().then(|| whole.take())
}

/// A transport that sends what travels as a whole.
pub(super) struct PassthroughTransport<T>(pub(super) T);

impl<T: Transport<RoleServer>> Transport<RoleServer> for PassthroughTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Response(response) = &mut item
            && let Some(whole) = unpack_result(&mut response.result)
        {
            response.result = ServerResult::CustomResult(CustomResult(whole));
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

/// The result with what travels as a whole in it, if that is anything.
fn unpack_result(result: &mut ServerResult) -> Option<Value> {
    match result {
        ServerResult::CallToolResult(result) => take_passthrough(&mut result.meta),
        ServerResult::ReadResourceResult(result) => take_passthrough(&mut result.meta),
        ServerResult::GetPromptResult(result) => take_passthrough(&mut result.meta),
        ServerResult::ListToolsResult(list) => {
            let any = list.tools.iter().any(is_packed);
            any.then(|| list_value(list)).flatten()
        }
        _ => None,
    }
}

fn take_passthrough(meta: &mut Option<MetaObject>) -> Option<Value> {
    let whole = meta.as_mut()?.get_mut(passthrough_key())?;
    whole.is_object().then(|| whole.take())
}

fn list_value(list: &impl Serialize) -> Option<Value> {
    let mut list = serde_json::to_value(list).ok()?;
    unpack(&mut list);
    Some(list)
}

fn is_packed(tool: &Tool) -> bool {
    tool.meta
        .as_ref()
        .is_some_and(|meta| meta.contains_key(passthrough_key()))
}

/// Lets messages go out over HTTP with what travels as a whole.
pub(super) async fn passthrough_layer(
    State(clients): State<Arc<ClientSessions>>,
    request: Request,
    next: Next,
) -> Response {
    let request = match request.method() {
        &Method::POST => match receive_body(&clients, request).await {
            Ok(request) => request,
            Err(refused) => return refused,
        },
        _ => request,
    };
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        return response.map(|body| Body::from_stream(events(body)));
    }
    if !kind.starts_with("application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, MAX_MESSAGE_BYTES).await else {
        let text = "the answer is too long\n";
        return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(unpack_lines(body)))
}

/// A request once all of it is there, for which it has so much time.
async fn receive_body(clients: &ClientSessions, request: Request) -> Result<Request, Response> {
    let options = &clients.common.options;
    let (parts, body) = request.into_parts();
    let read = to_bytes(body, options.max_message_bytes);
    match tokio::time::timeout(options.request_timeout, read).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, Body::from(body))),
        Ok(Err(error)) => {
            tracing::debug!("a request was not read: {error}");
            let most = options.max_message_bytes;
            let text = format!("a message has at most {most} bytes, and has to arrive\n");
            Err((StatusCode::PAYLOAD_TOO_LARGE, text).into_response())
        }
        Err(_) => {
            let text = format!(
                "the request did not arrive within {:?}\n",
                options.request_timeout
            );
            Err((StatusCode::REQUEST_TIMEOUT, text).into_response())
        }
    }
}

/// A stream of events, whose lines go out as they are complete.
fn events(body: Body) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let begin = (body.into_data_stream(), Vec::new());
    stream::unfold(begin, |(mut body, mut begun)| async move {
        loop {
            let Some(chunk) = body.next().await else {
                let rest = std::mem::take(&mut begun);
                return (!rest.is_empty()).then(|| (Ok(unpack_lines(rest.into())), (body, begun)));
            };
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return Some((Err(error), (body, begun))),
            };
            if begun.len() + chunk.len() > MAX_MESSAGE_BYTES {
                let error = std::io::Error::other("an event is too long");
                return Some((Err(axum::Error::new(error)), (body, Vec::new())));
            }
            let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else {
                begun.extend_from_slice(&chunk);
                continue;
            };
            let (complete, rest) = (chunk.slice(..=end), chunk.slice(end + 1..));
            let complete = if begun.is_empty() {
                complete
            } else {
                begun.extend_from_slice(&complete);
                std::mem::take(&mut begun).into()
            };
            begun.extend_from_slice(&rest);
            return Some((Ok(unpack_lines(complete)), (body, begun)));
        }
    })
}

/// Whole lines, with what travels as a whole in them.
fn unpack_lines(lines: Bytes) -> Bytes {
    match std::str::from_utf8(&lines) {
        Ok(text) if text.contains(passthrough_key()) => {
            let changed: String = text.split_inclusive('\n').map(unpack_line).collect();
            changed.into()
        }
        _ => lines,
    }
}

/// A line of an answer, which is a message or an event with one.
fn unpack_line(line: &str) -> String {
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
        let list = json!({ "tools": [tool_json(&tool, Some(&whole())), plain] });
        let list: rmcp::model::ListToolsResult = serde_json::from_value(list).unwrap();
        let mut result = serde_json::to_value(list).unwrap();
        assert!(unpack(&mut result));
        assert_eq!(result["tools"], json!([whole(), plain]));
        assert!(!unpack(&mut result), "there is nothing left to do");
    }

    #[test]
    fn a_result_comes_out_as_it_was() {
        let key = passthrough_key();
        let whole = json!({ "content": 5, "vendor": 1.0, "_meta": { RESERVED: "a server's own" } });
        let packed = json!({ "content": [], "_meta": { key: whole } });
        let mut over_http = packed.clone();
        assert!(unpack(&mut over_http));
        assert_eq!(over_http, whole);
        let typed: rmcp::model::CallToolResult = serde_json::from_value(packed).unwrap();
        let mut typed = ServerResult::CallToolResult(typed);
        assert_eq!(unpack_result(&mut typed), Some(whole));
    }

    #[test]
    fn what_a_peer_writes_never_takes_the_place_of_what_the_host_says() {
        let other = json!({ "name": "evil", "inputSchema": {} });
        let entry = |key: &str, value: &Value| json!({ "name": "a", "inputSchema": {}, "_meta": { key: value } });
        // A key that everybody knows, and the host's own with something that is no object.
        for (key, value) in [(RESERVED, other), (passthrough_key(), json!("evil"))] {
            let mut result = entry(key, &value);
            result["tools"] = json!([entry(key, &value)]);
            let before = result.clone();
            assert!(!unpack(&mut result), "{key}");
            assert_eq!(result, before);
            let typed: rmcp::model::CallToolResult =
                serde_json::from_value(json!({ "content": [], "_meta": { key: value } })).unwrap();
            assert_eq!(
                unpack_result(&mut ServerResult::CallToolResult(typed)),
                None
            );
        }
    }

    #[test]
    fn the_hosts_keys_are_taken_out_of_what_a_peer_wrote() {
        let key = passthrough_key();
        let entry =
            json!({ "_meta": { RESERVED: {}, "k": 1, key: {} }, RESERVED: "its own member" });
        let mut entry = entry.as_object().unwrap().clone();
        clean_entry(&mut entry);
        assert_eq!(
            Value::Object(entry),
            json!({ "_meta": { "k": 1 }, RESERVED: "its own member" })
        );
    }

    #[tokio::test]
    async fn a_stream_is_changed_by_its_lines_however_it_is_cut() {
        let message = |result: Value| format!("data: {}\n", json!({ "id": 1, "result": result }));
        let whole = json!({ "content": [], "text": "grün" });
        let key = passthrough_key();
        let packed = message(json!({ "content": [], "_meta": { key: whole } }));
        let sent = format!("id: 0\n{packed}\n: {key}\n\n{packed}data: end");
        let expected = sent.replace(&packed, &message(whole));
        for cut in [1, 7, 50, 4096] {
            let chunks = sent.as_bytes().chunks(cut).map(Bytes::copy_from_slice);
            let chunks: Vec<Result<_, std::io::Error>> = chunks.map(Ok).collect();
            let body = Body::from_stream(stream::iter(chunks));
            let read: Vec<_> = events(body).map(Result::unwrap).collect().await;
            assert_eq!(String::from_utf8(read.concat()).unwrap(), expected, "{cut}");
        }
    }

    #[test]
    fn an_answer_is_changed_where_it_has_a_packed_tool_and_nowhere_else() {
        let tool: Tool = serde_json::from_value(whole()).unwrap();
        let message = |tool: Value| json!({ "id": 1, "result": { "tools": [tool], "ttlMs": 0 } });
        let before = message(tool_json(&tool, Some(&whole()))).to_string();
        let after = message(whole()).to_string();
        assert_eq!(unpack_line(&before), after);
        assert_eq!(
            unpack_line(&format!("data: {before}\r\n")),
            format!("data: {after}\r\n")
        );
        for other in [
            "id: 1/0\n",
            "\n",
            ": ping\n",
            "data: \n",
            "data: {\"result\":{}}\n",
        ] {
            assert_eq!(unpack_line(other), other);
        }
    }
}
