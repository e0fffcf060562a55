//! What was decoded goes back as it came.

use serde_json::{Value, json};

use super::super::{decode_body, encode};
use super::*;

/// The blocks of a reply, decoded, kept as a message and encoded again.
fn back(blocks: &Value, stop_reason: &str) -> Value {
    let body = json!({"id": "m", "model": MODEL, "stop_reason": stop_reason, "content": blocks});
    let decoded = decode_body(body.to_string().as_bytes());
    assert_eq!(decoded.error, None);
    let mut message = said(decoded.response.parts, stop_reason);
    // As the log does: through its JSON.
    let text = serde_json::to_string(&message).unwrap();
    message = serde_json::from_str(&text).unwrap();
    let mut request = request(vec![Message::user("q"), message]);
    request.thinking_tokens = Some(2000);
    messages_of(&encode(&request))[1]["content"].take()
}

#[test]
fn every_kind_of_block_comes_back_as_it_was_sent() {
    let blocks = json!([
        {"type": "thinking", "thinking": "a\u{0}b ", "signature": "s=="},
        {"type": "redacted_thinking", "data": "d=="},
        {"type": "text", "text": "As [1] says", "citations": [{"type": "char_location", "z": 1, "a": null}]},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution",
         "input": {"command": "ls", "a": 1.0}, "caller": {"type": "direct"}},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1",
         "content": {"type": "bash_code_execution_result", "stdout": "", "content": [
            {"type": "bash_code_execution_output", "file_id": "file_1"}]}},
        {"type": "fallback", "from": {"model": "x"}},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "n", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": false, "content": []},
        {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"z": 1, "a": [{}]},
         "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}},
    ]);
    // As text, because the order of fields is a part of it.
    assert_eq!(back(&blocks, "tool_use").to_string(), blocks.to_string());
}

#[test]
fn a_paused_reply_may_even_end_with_a_thought() {
    let blocks = json!([
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "thinking", "thinking": "t", "signature": "s"},
    ]);
    assert_eq!(back(&blocks, "pause_turn"), blocks);
}

#[test]
fn another_provider_that_speaks_this_wire_signs_with_its_own_name() {
    let endpoint = crate::wire::Endpoint::new("elsewhere");
    let body = json!({"id": "m", "model": MODEL, "stop_reason": "end_turn", "content": [
        {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "web_search_tool_result"}]});
    let decoded = crate::wire::Wire::Anthropic.decode_body(&endpoint, body.to_string().as_bytes());
    let parts = decoded.response.parts;
    assert_eq!(parts[0].sidecar.as_ref().unwrap().provider, "elsewhere");
    assert!(
        matches!(&parts[1].content, Content::ServerItem { provider, .. } if provider == "elsewhere")
    );
}
