//! Responses.

use conjure_mock_llm::{Message, ResponsesDialect, Usage, Wire};
use serde_json::{Value, json};

use super::everything;
use crate::client::{Client, answer, ask_of, mock};

#[test]
fn a_stream_follows_the_recorded_grammar_for_every_item() {
    let response = answer(Wire::Responses, true, everything().deltas(100));
    let events = response.events();
    let kinds = response.kinds();
    assert_eq!(kinds, response.names());
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<Value> = events
        .iter()
        .map(|event| event["sequence_number"].clone())
        .collect();
    let expected: Vec<Value> = (0..events.len()).map(Value::from).collect();
    assert_eq!(numbers, expected);
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    let last = &events[events.len() - 1]["response"];
    assert_eq!(json!(done), last["output"]);
    assert_eq!(last["status"], "completed");
    let texts: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(texts, "I look.");
}

#[test]
fn without_stream_the_same_message_is_one_response() {
    let body = answer(Wire::Responses, false, everything()).json();
    let output = body["output"].as_array().unwrap();
    let begins = |item: &Value, prefix: &str| item["id"].as_str().unwrap().starts_with(prefix);
    let [reasoning, text, first, second] = output.as_slice() else {
        panic!("{output:#?}");
    };
    assert_eq!(
        reasoning["summary"],
        json!([{"type": "summary_text", "text": "Let me see."}])
    );
    assert!(
        reasoning["encrypted_content"]
            .as_str()
            .unwrap()
            .starts_with("gAAAAA")
    );
    assert!(begins(reasoning, "rs_") && begins(text, "msg_") && begins(first, "fc_"));
    assert_eq!(
        text["content"],
        json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": "I look."}])
    );
    assert_eq!(
        [
            &first["call_id"],
            &first["name"],
            &first["arguments"],
            &second["arguments"]
        ],
        ["call_1", "clock_read", "{\"zone\":\"UTC\"}", "{}"]
    );
    assert!(begins(&body, "resp_"));
}

#[test]
fn encrypted_reasoning_is_told_only_where_it_is_asked_for() {
    let mock = mock(everything());
    let mut client = Client::connect(mock.address());
    let mut request = ask_of(Wire::Responses, false);
    request.body.as_object_mut().unwrap().remove("include");
    client.send_request(&request);
    let body = client.read_all().json();
    assert_eq!(body["output"][0]["type"], "reasoning");
    assert_eq!(body["output"][0].get("encrypted_content"), None);
}

#[test]
fn w22_a_gateway_names_the_same_item_by_another_id_each_time() {
    let message = Message::new().text("Hello").dialect(ResponsesDialect {
        rotate_item_ids: true,
        ..ResponsesDialect::default()
    });
    let events = answer(Wire::Responses, true, message.deltas(2)).events();
    let mut ids: Vec<&str> = events
        .iter()
        .filter(|event| event["output_index"] == 0)
        .map(|event| {
            let item = event
                .get("item")
                .map_or(&event["item_id"], |item| &item["id"]);
            item.as_str().unwrap()
        })
        .collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), count), (8, 8));
}

#[test]
fn w23_a_call_cut_short_is_an_incomplete_item_of_an_incomplete_response() {
    let message = Message::new()
        .tool_use_text("call_1", "create_file", "{\"path\": \"/etc/pas")
        .stop_reason("max_tokens")
        .deltas(100);
    let response = answer(Wire::Responses, true, message);
    let kinds = response.kinds();
    let last = &response.events()[kinds.len() - 1];
    assert_eq!(kinds[kinds.len() - 1], "response.incomplete");
    assert!(!kinds.contains(&"response.function_call_arguments.done".to_owned()));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    assert_eq!(
        last["response"]["output"][0]["arguments"],
        "{\"path\": \"/etc/pas"
    );
}

#[test]
fn w26_messages_have_phases_where_the_server_tells_them() {
    let message = Message::new()
        .text("I look.")
        .text("Noon.")
        .dialect(ResponsesDialect {
            phases: true,
            ..ResponsesDialect::default()
        });
    let body = answer(Wire::Responses, false, message).json();
    let phases = [&body["output"][0]["phase"], &body["output"][1]["phase"]];
    assert_eq!(phases, ["commentary", "final_answer"]);
}

#[test]
fn w28_a_refusal_is_a_part_of_a_completed_response() {
    let message = Message::new().text("I cannot.").stop_reason("refusal");
    let events = answer(Wire::Responses, true, message).events();
    let last = &events[events.len() - 1]["response"];
    assert_eq!(last["status"], "completed");
    assert_eq!(
        last["output"][0]["content"],
        json!([{"type": "refusal", "refusal": "I cannot."}])
    );
    assert!(
        events
            .iter()
            .any(|event| event["type"] == "response.refusal.delta")
    );
}

#[test]
fn w29_a_custom_tool_is_called_with_free_text() {
    let mut request = ask_of(Wire::Responses, true);
    request.body["tools"] = json!([{"type": "custom", "name": "shell"}]);
    let mock = mock(Message::new().tool_use_text("call_1", "shell", "date | cat"));
    let mut client = Client::connect(mock.address());
    client.send_request(&request);
    let events = client.read_all().events();
    let item = &events[events.len() - 1]["response"]["output"][0];
    assert_eq!(
        [&item["type"], &item["input"], &item["call_id"]],
        ["custom_tool_call", "date | cat", "call_1"]
    );
}

#[test]
fn w60_input_contains_what_the_cache_gave() {
    let usage = Usage {
        input_tokens: 10,
        output_tokens: 50,
        cache_read: 3,
        cache_write_5m: 4,
        thinking_tokens: Some(7),
        ..Usage::default()
    };
    let body = answer(
        Wire::Responses,
        false,
        Message::new().text("Hi").usage(usage),
    )
    .json();
    assert_eq!(
        body["usage"],
        json!({
            "input_tokens": 17,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 67,
        })
    );
}
