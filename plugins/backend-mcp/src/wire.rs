//! From bytes that a server sent to messages: what can be used is, and the rest is counted.
//!
//! Results are kept as they came, so one bad member of one of them never costs a whole answer. A
//! line may begin with text that was printed without a line break, hold several messages, or an
//! old batch. Where an answer is no JSON, an error is in its place, so that nobody waits for it.

use rmcp::model::{
    ClientJsonRpcMessage, CustomNotification, CustomResult, DiscoverResult, ErrorCode, ErrorData,
    InitializeResult, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest,
    ServerResult,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::readable_text::readable_text;
use crate::skim::Skim;

/// The most messages of one line, in batches or side by side.
const MAX_BATCH: usize = 1_000;
/// The most bytes of an id that is a text; answers are kept under it.
const MAX_ID_BYTES: usize = 1_024;
/// How every message begins, when something else was printed before it.
pub(crate) const MESSAGE_START: &[u8] = b"{\"jsonrpc\"";
/// The member that every message has.
const PROTOCOL_MEMBER: &[u8] = b"\"jsonrpc\"";

/// A message of a server's log.
pub(crate) const LOG_MESSAGE: &str = "notifications/message";

/// The messages of a piece of input.
#[derive(Debug, Default)]
pub(crate) struct ParsedInput {
    pub(crate) messages: Vec<ServerJsonRpcMessage>,
    /// Pieces that are no messages.
    pub(crate) skipped: usize,
    /// Values that were looked at.
    value_count: usize,
}

/// A message as a line.
///
/// # Errors
/// When it cannot be written as JSON.
pub(crate) fn line(message: &ClientJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line, or the data of an event.
pub(crate) fn read(line: &[u8]) -> ParsedInput {
    let mut read = ParsedInput::default();
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return read;
    }
    match serde_json::from_slice::<Value>(line) {
        Ok(value) => take(value, &mut read),
        Err(_) => read_pieces(readable_text(line).as_bytes(), &mut read),
    }
    read
}

/// Reads a line that is not one value as it came.
fn read_pieces(line: &[u8], read: &mut ParsedInput) {
    let from = line
        .windows(MESSAGE_START.len())
        .position(|window| window == MESSAGE_START);
    // Without it no message is behind something else.
    let mut rest = line.get(from.unwrap_or_default()..).unwrap_or_default();
    if from.is_some_and(|from| from > 0) {
        read.skipped += 1;
    }
    while read.value_count < MAX_BATCH {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        rest = match values.next() {
            Some(Ok(value)) => {
                take(value, read);
                rest.get(values.byte_offset()..).unwrap_or_default()
            }
            Some(Err(error)) => match refuse(rest, &error, read) {
                Some(behind) => behind,
                None => return,
            },
            None => return,
        };
    }
}

/// Counts a piece that is no JSON, and puts an error in its place where it is an answer. Gives back
/// what follows the answer.
fn refuse<'a>(
    piece: &'a [u8],
    error: &serde_json::Error,
    read: &mut ParsedInput,
) -> Option<&'a [u8]> {
    read.value_count += 1;
    read.skipped += 1;
    let mut skim = Skim::default();
    let behind = skim.feed_object(piece);
    let (object, _) = piece.split_at_checked(piece.len() - behind.len())?;
    // What is printed may look like JSON too.
    let names_protocol = object
        .windows(PROTOCOL_MEMBER.len())
        .any(|window| window == PROTOCOL_MEMBER);
    let request = skim.answered_request().filter(|_| names_protocol)?;
    let why = format!("its answer is no JSON that can be read: {error}");
    read.messages.push(error_in_place(request.clone(), why));
    Some(behind)
}

/// The error in place of an answer that cannot be used.
pub(crate) fn error_in_place(request: RequestId, why: String) -> ServerJsonRpcMessage {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
    ServerJsonRpcMessage::error(error, Some(request))
}

fn take(value: Value, read: &mut ParsedInput) {
    read.value_count += 1;
    match value {
        Value::Array(values) => {
            let left = MAX_BATCH.saturating_sub(read.value_count - 1);
            for value in values.into_iter().take(left) {
                read.value_count += 1;
                match value {
                    Value::Object(object) => read_object(object, read),
                    _ => read.skipped += 1,
                }
            }
        }
        Value::Object(object) => read_object(object, read),
        _ => read.skipped += 1,
    }
}

fn read_object(mut object: Map<String, Value>, read: &mut ParsedInput) {
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        read.skipped += 1;
        return;
    }
    let id = object.get("id").and_then(parse_id);
    let message = if object.contains_key("method") {
        object.remove("id");
        object.remove("jsonrpc");
        object.remove("result");
        object.remove("error");
        let value = Value::Object(object);
        match id {
            Some(id) => ServerRequest::deserialize(value)
                .ok()
                .map(|request| ServerJsonRpcMessage::request(request, id)),
            // What nobody here listens to is cheap, however much of it comes.
            None if !is_relevant(&value) => return,
            // With a level that is not known too.
            None if is_log(&value) => Some(custom(value)),
            None => ServerNotification::deserialize(value)
                .ok()
                .map(ServerJsonRpcMessage::notification),
        }
    } else {
        answer(object, id)
    };
    match message {
        Some(message) => read.messages.push(message),
        None => read.skipped += 1,
    }
}

fn is_log(notification: &Value) -> bool {
    notification.get("method").and_then(Value::as_str) == Some(LOG_MESSAGE)
}

/// A notification as it came.
fn custom(mut notification: Value) -> ServerJsonRpcMessage {
    let params = notification.get_mut("params").map(Value::take);
    let notification = CustomNotification::new(LOG_MESSAGE, params);
    ServerJsonRpcMessage::notification(ServerNotification::CustomNotification(notification))
}

fn is_relevant(notification: &Value) -> bool {
    let method = notification.get("method").and_then(Value::as_str);
    matches!(
        method.unwrap_or_default(),
        "notifications/progress"
            | "notifications/cancelled"
            | LOG_MESSAGE
            | "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/subscriptions/acknowledged"
    )
}

fn answer(mut object: Map<String, Value>, id: Option<RequestId>) -> Option<ServerJsonRpcMessage> {
    match object.remove("error") {
        None | Some(Value::Null) => {}
        Some(error) => return Some(ServerJsonRpcMessage::error(error_of(error), id)),
    }
    let result = object.remove("result")?;
    Some(ServerJsonRpcMessage::response(result_of(result), id?))
}

/// The results of the handshake as types, all others as they came.
fn result_of(value: Value) -> ServerResult {
    if value.get("supportedVersions").is_some()
        && let Ok(result) = DiscoverResult::deserialize(&value)
    {
        return ServerResult::DiscoverResult(result);
    }
    if value.get("protocolVersion").is_some()
        && let Ok(result) = InitializeResult::deserialize(&value)
    {
        return ServerResult::InitializeResult(result);
    }
    ServerResult::CustomResult(CustomResult(value))
}

fn error_of(error: Value) -> ErrorData {
    let Value::Object(mut fields) = error else {
        let text = match error {
            Value::String(text) => text,
            other => other.to_string(),
        };
        return ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None);
    };
    let code = fields
        .get("code")
        .and_then(Value::as_i64)
        .and_then(|code| i32::try_from(code).ok())
        .map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
    let message = match fields.remove("message") {
        Some(Value::String(message)) => message,
        Some(other) => other.to_string(),
        None => "no message".to_owned(),
    };
    ErrorData::new(code, message, fields.remove("data"))
}

/// The id that a member is, if it can be one.
pub(crate) fn parse_id(value: &Value) -> Option<RequestId> {
    if value.as_str().is_some_and(|text| text.len() > MAX_ID_BYTES) {
        return None;
    }
    RequestId::deserialize(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(line: &str) -> (Vec<Value>, usize) {
        let read = read(line.as_bytes());
        let messages = read
            .messages
            .iter()
            .map(|m| serde_json::to_value(m).unwrap());
        (messages.collect(), read.skipped)
    }

    fn result(id: impl Into<Value>) -> Value {
        json!({ "jsonrpc": "2.0", "id": id.into(), "result": { "odd": [1] } })
    }

    #[test]
    fn a_result_is_kept_as_it_came() {
        let line = result(7).to_string();
        assert_eq!(texts(&line), (vec![result(7)], 0));
    }

    #[test]
    fn bom_and_carriage_return_are_no_part_of_a_message() {
        let line = format!("\u{feff}{}\r\n", result(7));
        assert_eq!(texts(&line), (vec![result(7)], 0));
    }

    #[test]
    fn a_print_without_a_line_break_costs_only_itself() {
        let line = format!("loading...{}", result(7));
        assert_eq!(texts(&line), (vec![result(7)], 1));
    }

    #[test]
    fn several_messages_of_a_line_are_all_read() {
        let line = format!("{}{}", result(7), result("8"));
        assert_eq!(texts(&line), (vec![result(7), result("8")], 0));
        let batch = json!([result(7), 5, result(8)]).to_string();
        assert_eq!(texts(&batch), (vec![result(7), result(8)], 1));
    }

    #[test]
    fn json_that_is_no_message_is_skipped() {
        for line in [
            "{\"level\":\"info\"}",
            "\"text\"",
            "17",
            "garbage",
            "[1,2]",
            "{}",
        ] {
            let (messages, skipped) = texts(line);
            assert!(messages.is_empty() && skipped > 0, "{line}");
        }
        assert_eq!(texts(""), (vec![], 0));
    }

    #[test]
    fn an_error_of_null_is_none_and_one_of_text_is_one() {
        let line = json!({ "jsonrpc": "2.0", "id": 7, "result": { "odd": [1] }, "error": null });
        assert_eq!(texts(&line.to_string()), (vec![result(7)], 0));
        let line = json!({ "jsonrpc": "2.0", "id": 7, "error": "no luck" });
        let error = json!({ "code": -32603, "message": "no luck" });
        let expected = json!({ "jsonrpc": "2.0", "id": 7, "error": error });
        assert_eq!(texts(&line.to_string()), (vec![expected], 0));
    }

    #[test]
    fn an_answer_that_is_no_json_is_an_error_and_costs_no_other() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for bad in ["NaN", deep.as_str(), "[1,]"] {
            for line in [
                format!(r#"{{"jsonrpc":"2.0","id":6,"result":{{"bad":{bad}}}}}"#),
                format!(r#"{{"id":6,"result":{{"bad":{bad}}},"jsonrpc":"2.0"}}"#),
                format!(r#"print{{"jsonrpc":"2.0","result":{bad},"id":6}}"#),
            ] {
                let (messages, skipped) = texts(&line);
                assert!(skipped > 0, "{line}");
                let [message] = messages.as_slice() else {
                    panic!("{line}: {messages:?}");
                };
                assert_eq!(message["id"], 6, "{line}");
                let why = message["error"]["message"].as_str().unwrap();
                assert!(why.starts_with("its answer is no JSON"), "{why}");
            }
            let bad = format!(r#"{{"jsonrpc":"2.0","id":6,"result":{bad}}}"#);
            let (messages, _) = texts(&format!("{}{bad} {}", result(5), result(7)));
            assert_eq!(messages.len(), 3);
            assert_eq!((&messages[0], &messages[2]), (&result(5), &result(7)));
        }
        for line in [
            r#"{"id":6,"result":NaN}"#,
            r#"{"jsonrpc":"2.0","id":6,"method":"ping","params":NaN}"#,
        ] {
            assert_eq!(texts(line), (vec![], 1), "{line}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_costs_one_character() {
        let line = r#"{"jsonrpc":"2.0","id":7,"result":{"text":"cut \ud83d","\ude00":"\ud83d\ude00\\ud83d"}}"#;
        let text = json!({ "text": "cut \u{fffd}", "\u{fffd}": "\u{1f600}\\ud83d" });
        let expected = json!({ "jsonrpc": "2.0", "id": 7, "result": text });
        assert_eq!(texts(line), (vec![expected], 0));
        let bytes = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"a\xff\"}}";
        let read = read(bytes);
        assert_eq!((read.messages.len(), read.skipped), (1, 0));
    }

    #[test]
    fn a_float_that_is_whole_is_an_id() {
        assert_eq!(texts(&result(7.0).to_string()).0, [result(7)]);
    }

    #[test]
    fn a_line_has_so_many_messages_however_they_are_put() {
        let batch = Value::Array(vec![result(7); MAX_BATCH]).to_string();
        assert_eq!(texts(&batch).0.len(), MAX_BATCH);
        let batches = format!("{}{}", result(7), batch.repeat(3));
        assert_eq!(texts(&batches).0.len(), MAX_BATCH);
        let empty = format!("{}{}", result(7), "[]".repeat(MAX_BATCH * 2));
        assert_eq!(read(empty.as_bytes()).value_count, MAX_BATCH);
    }

    #[test]
    fn an_id_that_is_long_is_none() {
        let request = |id: String| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        let fits = request("x".repeat(MAX_ID_BYTES)).to_string();
        assert_eq!(texts(&fits).0.len(), 1);
        let long = request("x".repeat(MAX_ID_BYTES + 1)).to_string();
        assert!(texts(&long).0.is_empty());
    }
}
