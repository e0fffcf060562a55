//! What was decoded goes back as it came.

use super::*;

#[test]
fn w59_every_kind_of_item_comes_back_as_it_was_sent() {
    let mut message = message("msg_1", "As [1] says.");
    message["phase"] = "final_answer".into();
    message["content"] = json!([
        {"type": "output_text", "text": "As [1] says.", "annotations": [{"type": "url_citation", "z": 1, "a": 2}]},
        {"type": "output_text", "text": "And more."},
    ]);
    let items = [
        reasoning("rs_1"),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}),
        reasoning("rs_2"),
        message,
        json!({"type": "mcp_call", "id": "mcp_1", "name": "n", "server_label": "s", "arguments": "{}", "output": "o"}),
        reasoning("rs_3"),
        function_call("fc_1", "call_1", r#"{"z":1,"a":[{}]}"#),
    ];
    let body = RIG.body(RIG.answered(&RIG.complete_reply(&reply(&items, "completed"))));
    let mut input = body["input"].as_array().unwrap()[1..8].to_vec();
    let mut items = items.to_vec();
    for item in input.iter_mut().chain(&mut items) {
        item.sort_all_objects();
    }
    assert_eq!(input, items);
}
